//! Connections to a TLS port, from their first byte to the negotiated protocol.
//!
//! The ClientHello is usually there when the connection is accepted, so the first half of the handshake needs no
//! waiting. The whole handshake has the timeout of a request head.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Instant;

use haulier_http::Peer;
use haulier_proto::proxy;
use rustix::net::Shutdown;

use crate::io::Session;
use crate::io::detect::{self, DetectedProtocol};
use crate::io::socket::{Socket, receive_plain};
use crate::io::{Permit, WaitPhase, Watched, canonical};
use crate::protocol::{Http1, http2};
use crate::thread::Thread;
use crate::tls::{ACME_TLS, Acceptor, HTTP_1_1, HTTP_2};

/// A connection in its handshake.
#[derive(Debug)]
struct Handshake {
    thread: Rc<Thread>,
    socket: Socket,
    peer: Cell<Peer>,
    permit: Permit,
    /// A PROXY header comes first.
    awaits_proxy_header: Cell<bool>,
    session: RefCell<Session>,
    /// Bytes read before the protocol was known.
    first: RefCell<Vec<u8>>,
    is_detected: Cell<bool>,
    started: Instant,
}

/// The next step of a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HandshakeStep {
    Read,
    Write,
    /// The handshake is complete.
    Done,
    /// The client speaks plain HTTP.
    Plain,
    Close,
}

/// Takes over an accepted socket of a TLS port.
pub(super) fn start(
    thread: &Rc<Thread>,
    acceptor: &Acceptor,
    socket: Socket,
    peer: Peer,
    permit: Permit,
    begins_with_proxy_header: bool,
) {
    let session = match Session::new(acceptor, &thread.io.scratch) {
        Ok(session) => session,
        Err(error) => return tracing::error!(%error, "cannot start a TLS connection"),
    };
    let handshake = Rc::new(Handshake {
        thread: Rc::clone(thread),
        socket,
        peer: Cell::new(peer),
        permit,
        awaits_proxy_header: Cell::new(begins_with_proxy_header),
        session: RefCell::new(session),
        first: RefCell::default(),
        is_detected: Cell::new(false),
        started: thread.io.clock.coarse(),
    });
    match handshake.turn() {
        next @ (HandshakeStep::Read | HandshakeStep::Write) => {
            let weak = Rc::downgrade(&handshake);
            thread.io.deadlines.watch(weak);
            tokio::task::spawn_local(handshake.drive(next));
        }
        last => handshake.finish(last),
    }
}

impl Handshake {
    /// Runs the handshake to its end.
    async fn drive(self: Rc<Self>, mut next: HandshakeStep) {
        loop {
            let ready = match (next, self.socket.registered()) {
                (HandshakeStep::Read, Ok(registered)) => registered.readable().await,
                (HandshakeStep::Write, Ok(registered)) => registered.writable().await,
                (HandshakeStep::Read | HandshakeStep::Write, Err(error)) => Err(error),
                (last, _) => return self.finish(last),
            };
            let Ok(mut ready) = ready else { return };
            next = self.turn();
            // The session has read or written until the kernel would block.
            if matches!(next, HandshakeStep::Read | HandshakeStep::Write) {
                ready.clear_ready();
            }
        }
    }

    /// Everything that can be done without waiting.
    fn turn(&self) -> HandshakeStep {
        let mut first = self.first.borrow_mut();
        while !self.is_detected.get() {
            match self.detect(&mut first) {
                Ok(Some(DetectedProtocol::Tls)) => self.is_detected.set(true),
                Ok(Some(DetectedProtocol::Http)) => return HandshakeStep::Plain,
                Ok(None) => return HandshakeStep::Read,
                Ok(Some(DetectedProtocol::Else)) | Err(_) => return HandshakeStep::Close,
            }
        }
        let mut session = self.session.borrow_mut();
        match session.shake_hands(self.socket.descriptor(), &mut first) {
            Ok(true) => HandshakeStep::Done,
            Ok(false) if session.wants_to_send() => HandshakeStep::Write,
            Ok(false) => HandshakeStep::Read,
            Err(error) => {
                tracing::debug!(remote = %self.peer.get().remote, %error, "TLS handshake failed");
                HandshakeStep::Close
            }
        }
    }

    /// Reads until the first byte after a PROXY header is there; `None` if it is not yet.
    fn detect(&self, first: &mut Vec<u8>) -> io::Result<Option<DetectedProtocol>> {
        if first.capacity() == 0 {
            *first = self.thread.io.buffers.take();
        }
        first.reserve(1024);
        match receive_plain(self.socket.descriptor(), first)? {
            Some(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Some(_) => {}
            None => return Ok(None),
        }
        if self.awaits_proxy_header.get() && !self.take_proxy_header(first)? {
            return Ok(None);
        }
        Ok(first.first().map(|&byte| detect::of(byte)))
    }

    /// Takes the client's address from the PROXY header; false if the header is incomplete.
    fn take_proxy_header(&self, first: &mut Vec<u8>) -> io::Result<bool> {
        let peer = self.peer.get();
        let header = proxy::parse(first).map_err(|error| {
            tracing::warn!(proxy = %peer.remote, %error, "a connection of a trusted proxy is refused");
            io::Error::other(error)
        })?;
        let Some(header) = header else { return Ok(false) };
        first.drain(..header.length);
        self.awaits_proxy_header.set(false);
        if let Some((remote, local)) = header.addresses {
            self.peer.set(Peer {
                remote: canonical(remote),
                local: canonical(local),
                proxy: Some(peer.remote.ip()),
                ..peer
            });
        }
        Ok(true)
    }

    /// Starts the protocol, or closes the connection.
    fn finish(self: Rc<Self>, last: HandshakeStep) {
        // The deadlines hold a weak reference, so this is the only one.
        let Some(handshake) = Rc::into_inner(self) else { return };
        let Self {
            thread,
            mut socket,
            peer,
            permit,
            session,
            first,
            ..
        } = handshake;
        let peer = peer.get();
        match last {
            HandshakeStep::Done => {
                let mut session = session.into_inner();
                thread.io.buffers.give(first.into_inner());
                let protocol = Protocol::of(session.protocol());
                let peer = Peer { tls: true, ..peer };
                match protocol {
                    Protocol::Http2 => {
                        let input = session.take_early();
                        socket.secure(session);
                        http2::start(&thread, socket, peer, permit, input);
                    }
                    Protocol::Http1 => {
                        socket.secure(session);
                        Http1::start(&thread, socket, peer, permit, false);
                    }
                    // RFC 8737 §3: the certificate was the whole answer.
                    Protocol::Challenge => socket.secure(session),
                }
            }
            HandshakeStep::Plain => {
                socket.unread(first.into_inner());
                let peer = Peer {
                    misses_tls: true,
                    ..peer
                };
                Http1::start(&thread, socket, peer, permit, false);
            }
            HandshakeStep::Read | HandshakeStep::Write | HandshakeStep::Close => {}
        }
    }
}

/// The protocol after the handshake.
enum Protocol {
    Http2,
    Http1,
    Challenge,
}

impl Protocol {
    /// The protocol by ALPN; without ALPN it is HTTP/1.1.
    fn of(agreed: Option<&[u8]>) -> Self {
        match agreed {
            Some(ACME_TLS) => Self::Challenge,
            Some(HTTP_2) => Self::Http2,
            Some(HTTP_1_1) | None => Self::Http1,
            Some(_) => unreachable!("the library agrees on nothing we did not offer"),
        }
    }
}

impl Watched for Handshake {
    fn waiting(&self) -> (WaitPhase, Instant) {
        (WaitPhase::Head, self.started)
    }

    /// A connection in its handshake is no idle one.
    fn idle(&self) -> Option<(&Permit, Instant)> {
        Some((&self.permit, self.started))
    }

    /// Ends the handshake as if the client had closed.
    fn expire(&self, _: WaitPhase) {
        self.cut();
    }

    fn cut(&self) {
        let _ = rustix::net::shutdown(self.socket.descriptor(), Shutdown::Both);
    }
}
