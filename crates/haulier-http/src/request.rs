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

/// A request whose answer needs waiting: head, peer, and the way to its body.
#[derive(Debug)]
pub struct Request {
    pub head: RequestHead,
    pub peer: Peer,
    /// In the log, in `X-Request-Id`, and told to PHP.
    pub id: RequestId,
    /// When its head was complete.
    pub received: Instant,
    /// Bytes of its body, if the head told: 0 = no body, `None` = chunked.
    pub body_length: Option<u64>,
    /// A password is asked for; set by the filter that asks.
    pub asks_password: Cell<bool>,
    /// The protocol's side of the exchange.
    pub exchange: Rc<dyn Exchange>,
}

/// What a handler may ask of the protocol while an exchange runs. One implementation a protocol.
pub trait Exchange: std::fmt::Debug {
    /// More bytes of the request body than that are not wanted: what is announced beyond is an error before it comes.
    /// A protocol without chunks announces nothing but the length, which is known.
    fn limit_body(&self, _most: u64) {}

    /// Appends some bytes of the request body to `into`; 0 bytes mean its end. The first call sends
    /// `100 Continue` if the client waits for it.
    fn poll_body(&self, context: &mut Context<'_>, into: &mut Vec<u8>) -> Poll<Result<usize, BodyError>>;

    /// Sends an interim response (103) now. A client that does not read loses it.
    fn send_interim(&self, status: u16, fields: &Fields);

    /// Whether the client is still there. One that sends nothing more may be told something, so that its system says by the
    /// next time whether anybody listens.
    fn presence(&self) -> Presence;

    /// The site is known: these are its deadlines, or the usual ones. On a connection of several exchanges at a time the
    /// last word counts for what they have in common.
    fn set_timeouts(&self, timeouts: Option<&Arc<Timeouts>>);
}

/// How long a client may let us wait once its site is known, where the site has its own opinion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Longest time without a byte of the request body; then 408.
    pub body: Duration,
    /// How long the connection is kept after a response of the site.
    pub idle: Duration,
    /// Longest time without progress while sending.
    pub send: Duration,
}

/// Whether the client of an exchange is still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    Here,
    /// It sends nothing more. Most have gone; some wait for their answer (RFC 9112 §9.6).
    Silent,
    /// Gone for good: reset, or both directions closed.
    Gone,
}

/// Why the request body could not be read to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
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
    /// All bodies together take what they may on disk: 503.
    #[error("no room for the request body: `body_spool` is used up")]
    NoRoom,
    /// It could not be stored while it came in.
    #[error("cannot spool the request body")]
    Spool,
}
