//! Accepting connections in batches. Accepting pauses while the limit is reached and no connection is idle.

use std::cell::Cell;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use haulier_http::Peer;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use tokio::sync::Notify;

use super::tls;
use crate::forwarded;
use crate::io::socket::{self, Socket};
use crate::io::{Address, canonical};
use crate::protocol::Http1;
use crate::thread::Thread;

/// Connections accepted before other tasks run.
const BATCH: usize = 64;

/// The end of a batch.
enum Batch {
    /// The queue is empty.
    Empty,
    /// More may be waiting.
    More,
    /// `connections` is reached.
    Full,
    /// Out of descriptors or memory.
    Exhausted(Errno),
    /// The client address has reached `connections_per_ip`.
    Crowded(Arrival),
}

/// An accepted connection without a permit.
struct Arrival {
    socket: Socket,
    remote: SocketAddr,
}

/// A listening socket of one thread.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) socket: OwnedFd,
    pub(crate) address: Address,
    /// Connections begin with a TLS handshake.
    pub(crate) is_secure: bool,
}

/// The listener that a connection came through.
#[derive(Debug, Clone, Copy)]
struct AcceptContext {
    local: SocketAddr,
    is_secure: bool,
}

/// Ends an accept loop.
#[derive(Debug, Default)]
pub(crate) struct StopSignal {
    is_sent: Cell<bool>,
    sent: Notify,
}

impl StopSignal {
    /// Ends the loop once the kernel's queue is empty.
    pub(crate) fn send(&self) {
        self.is_sent.set(true);
        self.sent.notify_waiters();
    }
}

/// Accepts connections until `stop`. Connections that the kernel had queued by then are still served.
pub(crate) async fn accept(thread: Rc<Thread>, endpoint: Endpoint, stop: Rc<StopSignal>) {
    let Endpoint {
        socket,
        address,
        is_secure,
    } = endpoint;
    let context = AcceptContext {
        local: address.as_internet(),
        is_secure,
    };
    let listener = match socket::watch(Rc::new(socket)) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%address, %error, "cannot register the listening socket");
            return;
        }
    };
    while !stop.is_sent.get() {
        let mut ready = tokio::select! {
            ready = listener.readable() => match ready {
                Ok(ready) => ready,
                Err(_) => return,
            },
            () = stop.sent.notified() => break,
        };
        match accept_batch(&thread, listener.get_ref(), context) {
            Batch::Empty => ready.clear_ready(),
            Batch::More => tokio::task::yield_now().await,
            Batch::Crowded(arrival) => {
                if thread.io.make_room_of(arrival.remote.ip()) > 0 {
                    // The connections that give way close first.
                    tokio::task::yield_now().await;
                }
                if let Err(arrival) = serve(&thread, arrival, context) {
                    refuse(&thread, &arrival, context);
                }
            }
            // Idle connections are closed only if a new one is waiting.
            Batch::Full | Batch::Exhausted(_) if !is_awaited(listener.get_ref()) => ready.clear_ready(),
            Batch::Full => {
                let closed = thread.io.make_room();
                note_full(&thread, closed);
                thread.io.gate.wait_for_room().await;
            }
            Batch::Exhausted(error) => {
                thread.shed_files();
                let closed = thread.io.make_room();
                note_exhausted(&thread, closed, error);
                thread.io.gate.wait_for_room().await;
            }
        }
    }
    // Closing the socket would reset the connections in its queue.
    loop {
        match accept_batch(&thread, listener.get_ref(), context) {
            Batch::More => {}
            Batch::Crowded(arrival) => refuse(&thread, &arrival, context),
            Batch::Empty | Batch::Full | Batch::Exhausted(_) => return,
        }
    }
}

/// True if connections are waiting in the kernel's queue.
fn is_awaited(socket: &OwnedFd) -> bool {
    let mut poll = [PollFd::new(socket, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut poll, Some(&now)).map_or(true, |count| count > 0)
}

/// Logs that the limit is reached and `closed` idle connections of this thread were closed.
fn note_full(thread: &Thread, closed: usize) {
    let (warnings, open) = (&thread.io.gate.warnings, thread.io.gate.open());
    if closed > 0 {
        if let Some(times) = warnings.made_room.due() {
            tracing::warn!(
                open,
                times,
                "`connections` is reached: the longest idle ones are closed"
            );
        }
    } else if let Some(times) = warnings.all_busy.due() {
        tracing::warn!(
            open,
            times,
            "`connections` is reached and this thread has no idle one: new ones wait"
        );
    }
}

/// Logs that descriptors or memory are exhausted.
fn note_exhausted(thread: &Thread, closed: usize, error: Errno) {
    let (warnings, open) = (&thread.io.gate.warnings, thread.io.gate.open());
    if closed > 0 {
        if let Some(times) = warnings.made_room.due() {
            tracing::warn!(%error, open, times, "cannot accept: the longest idle ones are closed");
        }
    } else if let Some(times) = warnings.no_descriptors.due() {
        tracing::warn!(%error, open, times, "accepting pauses until a connection closes");
    }
}

fn accept_batch(thread: &Rc<Thread>, socket: &OwnedFd, context: AcceptContext) -> Batch {
    let local = context.local;
    for _ in 0..BATCH {
        if thread.io.gate.is_full() {
            return Batch::Full;
        }
        match rustix::net::acceptfrom_with(socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            Ok((accepted, address)) => {
                let remote = address.and_then(|address| SocketAddr::try_from(address).ok());
                let arrival = Arrival {
                    socket: Socket::new(accepted),
                    remote: canonical(remote.unwrap_or(local)),
                };
                if let Err(arrival) = serve(thread, arrival, context) {
                    return Batch::Crowded(arrival);
                }
            }
            Err(Errno::AGAIN) => return Batch::Empty,
            // The peer gave up in the queue, or a signal interrupted the call.
            Err(Errno::CONNABORTED | Errno::INTR | Errno::PROTO | Errno::PERM) => {}
            Err(error) => return Batch::Exhausted(error),
        }
    }
    Batch::More
}

/// Refuses a connection of an address with `connections_per_ip` others, none of them idle.
fn refuse(thread: &Thread, arrival: &Arrival, context: AcceptContext) {
    if let Some(times) = thread.io.gate.warnings.crowded.due() {
        let (address, most) = (arrival.remote.ip(), thread.serving().settings.limits.connections_per_ip);
        tracing::warn!(%address, most, times, "refused: the address has reached `connections_per_ip`, and none is idle");
    }
    // Over TLS a response would cost a handshake.
    if !context.is_secure {
        let _ = arrival.socket.send(
            b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            false,
        );
    }
}

/// Starts the protocol. Gives the connection back if its address has reached `connections_per_ip`.
fn serve(thread: &Rc<Thread>, arrival: Arrival, context: AcceptContext) -> Result<(), Arrival> {
    let listening = context.local;
    let remote = arrival.remote;
    let serving = thread.serving();
    let settings = &serving.settings;
    let is_proxy = forwarded::is_trusted(&settings.trusted_proxies, remote.ip());
    let is_counted = !is_proxy && (settings.limits.local_per_ip || !remote.ip().is_loopback());
    let Some(permit) = thread.io.gate.enter(is_counted.then(|| remote.ip())) else {
        return Err(arrival);
    };
    let socket = arrival.socket;
    // Only a wildcard listener needs the system call for its own address.
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
    // A panic costs this connection, not the listener.
    if catch_unwind(AssertUnwindSafe(|| {
        match (&serving.settings.tls, context.is_secure) {
            (_, false) => Http1::start(thread, socket, peer, permit, begins_with_header),
            (Some(tls), true) => tls::start(thread, &tls.acceptor, socket, peer, permit, begins_with_header),
            // A reload ended TLS while this connection was in the queue: no protocol fits.
            (None, true) => {}
        }
    }))
    .is_err()
    {
        tracing::error!(%remote, "a connection ended by a panic");
    }
    Ok(())
}
