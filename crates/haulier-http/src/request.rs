//! A request as handlers see it, whichever protocol carried it.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use haulier_proto::field::Fields;
use haulier_proto::head::RequestHead;

use crate::peer::Peer;
use crate::request_id::RequestId;

/// A request whose response needs waiting: its head, its peer, and access to its body.
#[derive(Debug)]
pub struct Request {
    pub head: RequestHead,
    pub peer: Peer,
    /// Written to the log and `X-Request-Id`, and passed to PHP.
    pub id: RequestId,
    /// The moment its head was complete.
    pub received: Instant,
    /// Bytes of its body by its head: 0 = no body, `None` = chunked.
    pub body_length: Option<u64>,
    /// Set by the filter that asks for a password.
    pub asks_password: Cell<bool>,
    /// The protocol's side of the exchange.
    pub exchange: Rc<dyn Exchange>,
}

/// The requests a handler makes of the protocol during an exchange. Each protocol implements it once.
pub trait Exchange: std::fmt::Debug {
    /// Limits the request body: a chunk announced beyond `most` bytes is an error before it arrives. HTTP/2 has no
    /// chunks and announces only the whole length, which is checked before.
    fn limit_body(&self, _most: u64) {}

    /// Appends bytes of the request body to `into`; 0 bytes mean its end. The first call sends `100 Continue` if the
    /// client waits for it.
    fn poll_body(&self, context: &mut Context<'_>, into: &mut Vec<u8>) -> Poll<Result<usize, BodyError>>;

    /// Sends an interim response (103) at once. It is dropped if the client does not read.
    fn send_interim(&self, status: u16, fields: &Fields);

    /// The state of the client's connection. May send something to a client that has closed its side, so that the next
    /// call sees a reset.
    fn presence(&self) -> Presence;

    /// Sets the timeouts of the site once it is known, or the default ones. The exchanges of one connection share some
    /// of them; the last call wins.
    fn set_timeouts(&self, timeouts: Option<&Arc<Timeouts>>);
}

/// Timeouts of a site that replace the server's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Longest time without a byte of the request body; then 408.
    pub body: Duration,
    /// Longest idle time of the connection after a response of the site.
    pub idle: Duration,
    /// Longest time without progress while sending.
    pub send: Duration,
}

/// State of the client of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    Here,
    /// It has closed its side. Most such clients have gone; some wait for the response (RFC 9112 §9.6).
    Silent,
    /// Gone for good: it has reset the connection or closed both directions.
    Gone,
}

/// A request body that could not be read to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The client closed or reset the connection.
    #[error("client went away during the request body")]
    Gone,
    /// No byte for `body_timeout`, or below the least rate: 408.
    #[error("request body too slow")]
    TooSlow,
    /// More than `body` allows: 413.
    #[error("request body too large")]
    TooLarge,
    /// Malformed chunks: 400.
    #[error("malformed chunked body")]
    Malformed,
    /// All bodies together use up their disk space: 503.
    #[error("no room for the request body: `body_spool` is used up")]
    NoRoom,
    /// It could not be stored while it came in.
    #[error("cannot spool the request body")]
    Spool,
}
