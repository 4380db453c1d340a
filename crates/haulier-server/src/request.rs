//! A request as handlers see it, whichever protocol carried it.

use std::cell::Cell;
use std::hash::{BuildHasher, Hasher, RandomState};
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
    /// In the log, in `X-Request-Id`, and told to PHP.
    pub id: RequestId,
    /// When its head was complete.
    pub received: Instant,
    /// Bytes of its body, if the head told: 0 = no body, `None` = chunked.
    pub body_length: Option<u64>,
    /// Counts it among those under way once its site is known.
    pub in_flight: Option<InFlight>,
    /// A password is asked for; set by the filter that asks.
    pub asks_password: Cell<bool>,
    /// The protocol's side of the exchange.
    pub exchange: Rc<dyn Exchange>,
}

/// What a handler may ask of the protocol while an exchange runs. One implementation a protocol.
pub(crate) trait Exchange: std::fmt::Debug {
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
    fn hold_to(&self, patience: Option<&Arc<Patience>>);
}

/// Whether the client of an exchange is still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    Here,
    /// It sends nothing more. Most have gone; some wait for their answer (RFC 9112 §9.6).
    Silent,
    /// Gone for good: reset, or both directions closed.
    Gone,
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
    /// All bodies together take what they may on disk: 503.
    #[error("no room for the request body: `body_spool` is used up")]
    NoRoom,
    /// It could not be stored while it came in.
    #[error("cannot spool the request body")]
    Spool,
}

/// Names one request, in every log and for good: no two threads, processes or machines give the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestId {
    /// 128 bits of our own.
    Own { thread: u64, number: u64 },
    /// The word of a proxy we trust.
    Given(Box<str>),
}

impl RequestId {
    /// Digits of an id of our own.
    pub(crate) const DIGITS: usize = 32;
    /// Longest word of a proxy that is taken over, bytes.
    const LONGEST: usize = 128;

    /// What a proxy calls the request, if that can stand in a log, a field and a page as it is.
    pub(crate) fn given(value: &[u8]) -> Option<Self> {
        let is_plain = |&byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:=+/@".contains(&byte);
        let is_id = (1..=Self::LONGEST).contains(&value.len()) && value.iter().all(is_plain);
        let text = std::str::from_utf8(value).ok().filter(|_| is_id)?;
        Some(Self::Given(text.into()))
    }

    /// The id as text; `room` is for the digits of one of our own.
    pub(crate) fn text<'t>(&'t self, room: &'t mut [u8; Self::DIGITS]) -> &'t str {
        let (thread, number) = match self {
            Self::Own { thread, number } => (*thread, *number),
            Self::Given(text) => return text,
        };
        let (first, last) = room.split_at_mut(Self::DIGITS / 2);
        // In front what differs from one request to the next: people read and quote the first digits.
        write_digits(first, mixed(number));
        write_digits(last, thread);
        std::str::from_utf8(room).expect("hexadecimal digits are ASCII")
    }
}

impl std::fmt::Display for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.text(&mut [0; Self::DIGITS]))
    }
}

/// Another number for each number (the last step of SplitMix64, which can be undone): visitors cannot count requests
/// by it at a glance.
fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

fn write_digits(room: &mut [u8], number: u64) {
    for (place, digit) in room.iter_mut().rev().enumerate() {
        *digit = b"0123456789abcdef"[(number >> (4 * place)) as usize & 0xf];
    }
}

/// Gives the ids of one thread: 64 random bits of its own, and a counter that begins anywhere and never comes round.
#[derive(Debug)]
pub(crate) struct RequestIds {
    thread: u64,
    next: Cell<u64>,
}

impl RequestIds {
    pub(crate) fn new() -> Self {
        // SipHash under keys of the system's random numbers.
        let random = || RandomState::new().build_hasher().finish();
        Self {
            thread: random(),
            next: Cell::new(random()),
        }
    }

    pub(crate) fn next(&self) -> RequestId {
        let number = self.next.get();
        self.next.set(number.wrapping_add(1));
        RequestId::Own {
            thread: self.thread,
            number,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_repeat_neither_on_a_thread_nor_between_threads() {
        let threads = [RequestIds::new(), RequestIds::new(), RequestIds::new()];
        let ids: HashSet<String> = (0..3000).map(|n| threads[n % 3].next().to_string()).collect();
        assert_eq!(ids.len(), 3000);
        let is_id = |id: &String| id.len() == 32 && id.bytes().all(|digit| digit.is_ascii_hexdigit());
        assert!(ids.iter().all(is_id));
    }

    #[test]
    fn a_thread_counts_on_behind_any_number_of_requests() {
        let ids = RequestIds::new();
        let first = ids.next();
        ids.next.set(ids.next.get() + (1 << 24) - 1);
        assert_ne!(ids.next(), first);
        let other = RequestIds::new();
        assert_ne!(ids.thread, other.thread, "not a number of the thread, nor the time");
    }

    #[test]
    fn the_word_of_a_proxy_is_taken_if_it_can_stand_anywhere() {
        let long = "a".repeat(128);
        for id in [
            "1",
            "7f3a-00_A.b:c=+/@",
            "Root=1-67891233-abcdef012345678912345678",
            &long,
        ] {
            assert_eq!(RequestId::given(id.as_bytes()).expect("well-formed").to_string(), id);
        }
        for id in [&b""[..], b"a b", b"a\"b", b"<a>", b"a\xff", b"a,b", &[b'a'; 129]] {
            assert_eq!(RequestId::given(id), None, "{}", String::from_utf8_lossy(id));
        }
    }
}
