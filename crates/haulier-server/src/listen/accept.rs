//! Accepting: in batches, and not at all while there is no room.

use std::cell::Cell;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use rustix::io::Errno;
use rustix::net::SocketFlags;
use tokio::sync::Notify;

use super::{Address, tls};
use crate::forwarded;
use crate::protocol::Http1;
use crate::protocol::socket::{self, Socket};
use crate::request::Peer;
use crate::thread::Thread;

/// Connections accepted before others get a turn.
const BATCH: usize = 64;

/// Why a batch ended.
enum Batch {
    /// The queue is empty.
    Empty,
    /// More may be waiting.
    More,
    /// No descriptor, no memory: pause.
    Exhausted,
}

/// A socket of one thread that listens.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) socket: OwnedFd,
    pub(crate) address: Address,
    /// Connections begin with a TLS handshake.
    pub(crate) is_secure: bool,
}

/// Where a connection came in.
#[derive(Debug, Clone, Copy)]
struct Entrance {
    local: SocketAddr,
    is_secure: bool,
}

/// Ends an accept loop.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    asked: Cell<bool>,
    told: Notify,
}

impl Ending {
    /// No further connections, beyond those that the kernel has queued.
    pub(crate) fn ask(&self) {
        self.asked.set(true);
        self.told.notify_waiters();
    }
}

/// Accepts connections until it is asked to end. What the kernel had queued by then is still served.
pub(crate) async fn accept(thread: Rc<Thread>, endpoint: Endpoint, ending: Rc<Ending>) {
    let Endpoint {
        socket,
        address,
        is_secure,
    } = endpoint;
    let entrance = Entrance {
        local: address.as_internet(),
        is_secure,
    };
    let listener = match socket::watch(Rc::new(socket)) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%address, %error, "cannot watch the listening socket");
            return;
        }
    };
    while !ending.asked.get() {
        if thread.gate.is_full() {
            thread.gate.wait_for_room().await;
            continue;
        }
        let mut ready = tokio::select! {
            ready = listener.readable() => match ready {
                Ok(ready) => ready,
                Err(_) => return,
            },
            () = ending.told.notified() => break,
        };
        match accept_batch(&thread, listener.get_ref(), entrance) {
            Batch::Empty => ready.clear_ready(),
            Batch::More => tokio::task::yield_now().await,
            Batch::Exhausted => {
                thread.shed_files();
                thread.gate.wait_for_room().await;
            }
        }
    }
    // Closing the socket resets what is left in its queue.
    while matches!(accept_batch(&thread, listener.get_ref(), entrance), Batch::More) {}
}

fn accept_batch(thread: &Rc<Thread>, socket: &OwnedFd, entrance: Entrance) -> Batch {
    let local = entrance.local;
    for _ in 0..BATCH {
        if thread.gate.is_full() {
            return Batch::Exhausted;
        }
        match rustix::net::acceptfrom_with(socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            Ok((accepted, address)) => {
                let remote = address.and_then(|address| SocketAddr::try_from(address).ok());
                serve(thread, accepted, remote.unwrap_or(local), entrance);
            }
            Err(Errno::AGAIN) => return Batch::Empty,
            // The peer gave up in the queue, or a signal came.
            Err(Errno::CONNABORTED | Errno::INTR | Errno::PROTO | Errno::PERM) => {}
            Err(error) => {
                tracing::warn!(%local, %error, open = thread.gate.open(), "accepting pauses until a connection closes");
                return Batch::Exhausted;
            }
        }
    }
    Batch::More
}

fn serve(thread: &Rc<Thread>, accepted: OwnedFd, remote: SocketAddr, entrance: Entrance) {
    let listening = entrance.local;
    let socket = Socket::new(accepted);
    let remote = canonical(remote);
    let serving = thread.serving();
    let is_proxy = forwarded::is_trusted(&serving.settings.trusted_proxies, remote.ip());
    let Some(permit) = thread.gate.enter((!is_proxy).then(|| remote.ip())) else {
        // Over TLS the words would cost a handshake.
        if !entrance.is_secure {
            let _ = socket.send(
                b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                false,
            );
        }
        return;
    };
    // Only a wildcard listener has to ask which of our addresses was reached.
    let local = if listening.ip().is_unspecified() {
        socket.local_address().unwrap_or(listening)
    } else {
        listening
    };
    let peer = Peer {
        remote,
        local: canonical(local),
        tls: false,
        misses_tls: false,
        proxy: None,
    };
    let begins_with_header = is_proxy && serving.settings.proxy_protocol;
    // A panic here is one connection's, not the listener's.
    if catch_unwind(AssertUnwindSafe(|| {
        match (&serving.settings.tls, entrance.is_secure) {
            (_, false) => Http1::start(thread, socket, peer, permit, begins_with_header),
            (Some(tls), true) => tls::start(thread, &tls.acceptor, socket, peer, permit, begins_with_header),
            // It was in the queue when a reload ended TLS: nothing here could speak with it.
            (None, true) => {}
        }
    }))
    .is_err()
    {
        tracing::error!(%remote, "a connection ended by a panic");
    }
}

/// An IPv4 client of an IPv6 listener is an IPv4 client.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
