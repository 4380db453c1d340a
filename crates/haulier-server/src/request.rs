//! A request as handlers see it, whichever protocol carried it.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use haulier_proto::field::Fields;
use haulier_proto::head::RequestHead;

use crate::metrics::InFlight;
use crate::settings::Patience;

/// What is known of the client and of us before the first byte.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer {
    /// The client's address.
    pub remote: SocketAddr,
    /// The address it reached.
    pub local: SocketAddr,
    /// Whether the client's connection is encrypted, here or at a proxy we trust.
    pub tls: bool,
    /// It speaks HTTP without TLS to a port that wants TLS.
    pub misses_tls: bool,
    /// The proxy we trust that carried the request for the client.
    pub proxy: Option<IpAddr>,
}

/// A request whose answer needs waiting: head, peer, and the way to its body.
#[derive(Debug)]
pub(crate) struct Request {
    pub head: RequestHead,
    pub peer: Peer,
    /// Unique within a process; in the log, in `X-Request-Id`, and told to PHP.
    pub id: RequestId,
    /// When its head was complete.
    pub received: Instant,
    /// Bytes of its body, if the head told: 0 = no body, `None` = chunked.
    pub body_length: Option<u64>,
    /// Counts it among those under way once its site is known.
    pub in_flight: Option<InFlight>,
    /// The protocol's side of the exchange.
    pub exchange: Rc<dyn Exchange>,
}

/// What a handler may ask of the protocol while an exchange runs. One implementation a protocol.
pub(crate) trait Exchange: std::fmt::Debug {
    /// Appends some bytes of the request body to `into`; 0 bytes mean its end. The first call sends
    /// `100 Continue` if the client waits for it.
    fn poll_body(&self, context: &mut Context<'_>, into: &mut Vec<u8>) -> Poll<Result<usize, BodyError>>;

    /// Sends an interim response (103) now. A client that does not read loses it.
    fn send_interim(&self, status: u16, fields: &Fields);

    /// Whether the client has gone for good: reset, or both directions closed.
    fn is_gone(&self) -> bool;

    /// The site is known: these are its deadlines, or the usual ones. On a connection of several exchanges at a time the
    /// last word counts for what they have in common.
    fn hold_to(&self, patience: Option<&Arc<Patience>>);
}

/// Why the request body could not be read to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyError {
    /// The client closed or reset the connection.
    #[error("client went away during the request body")]
    Gone,
    /// No byte for `body_timeout`, or slower than the least rate: 408.
    #[error("request body too slow")]
    TooSlow,
    /// More than `body` allows: 413.
    #[error("request body too large")]
    TooLarge,
    /// Chunks that are none: 400.
    #[error("malformed chunked body")]
    Malformed,
    /// It could not be stored while it came in.
    #[error("cannot spool the request body")]
    Spool,
}

/// A number for one request: process start in the upper bits, a counter below.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct RequestId(pub u64);

impl std::fmt::Display for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
