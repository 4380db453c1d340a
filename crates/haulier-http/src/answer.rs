//! The answer of a back end: its head, ready for a response, and its body on the way.

use std::time::{Duration, Instant};

use haulier_proto::field::{Fields, is_name, is_value};

/// Head, body and cost of an answer.
#[derive(Debug)]
pub struct BackendAnswer<B> {
    pub head: AnswerHead,
    pub body: B,
    pub cost: Cost,
}

/// Cost of an answer until its head. The body adds [`BodySource::worker_time`](crate::BodySource::worker_time).
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    /// Time the request waited for a worker or a connection.
    pub queued: Duration,
    /// The moment a worker or a connection was taken.
    pub taken: Instant,
    /// The process that answers, if known.
    pub pid: Option<u32>,
}

/// The head of an answer, without the fields that are not passed on.
#[derive(Debug, Default)]
pub struct AnswerHead {
    pub status: u16,
    /// Field lines for the client.
    pub fields: Fields,
    /// Field lines for the server, such as `X-Sendfile` and `X-Accel-…`. They are never sent to a client.
    pub orders: Fields,
    /// The announced length of the body in bytes.
    pub length: Option<u64>,
    /// The body is sent as it arrives: an event stream, or `X-Accel-Buffering: no`.
    pub is_live: bool,
    /// Answer with this path and query instead (RFC 3875 §6.2.2).
    pub local_redirect: Option<Vec<u8>>,
    /// The first line of the head that is not a field line; it was dropped.
    pub dropped: Option<Vec<u8>>,
}

/// A Content-Length that is not a number, so the end of the body is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("Content-Length is not a number")]
pub struct BadLength;

/// Fields that belong to the connection (RFC 9110 §7.6.1), that the protocol writes itself, or that reveal the
/// software.
const DROPPED: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "status",
    "x-powered-by",
];

/// Fields that name a file to send.
const ORDERS: [&str; 6] = [
    "x-sendfile",
    "x-sendfile2",
    "x-lighttpd-send-file",
    "x-lighttpd-send-file2",
    "x-sendfile-type",
    "x-haulier-send",
];

/// Fields that nginx interprets and never passes on.
const ORDERS_PREFIX: &str = "x-accel-";

/// Room for most heads, with the lines that filters add.
const LINES: usize = 8;
const BYTES: usize = 256;

impl AnswerHead {
    /// Reads the head of an answer and drops malformed lines.
    ///
    /// # Errors
    /// [`BadLength`]: the body cannot be delimited.
    pub fn read<'h>(status: u16, lines: impl Iterator<Item = (&'h [u8], &'h [u8])>) -> Result<Self, BadLength> {
        let mut head = Self {
            status,
            fields: Fields::with_room(LINES, BYTES),
            ..Self::default()
        };
        for (name, value) in lines {
            if name.eq_ignore_ascii_case(b"content-length") {
                head.length = Some(head.length.map_or_else(|| number(value), Ok)?);
            } else if is_one_of(&ORDERS, name) || begins_with(name, ORDERS_PREFIX) {
                head.take_order(name, value);
            } else if !is_one_of(&DROPPED, name) && is_name(name) && is_value(value) {
                head.is_live |= is_event_stream(name, value);
                head.fields.append(name, value);
            }
        }
        Ok(head)
    }

    fn take_order(&mut self, name: &[u8], value: &[u8]) {
        if is_unbuffered(name, value) {
            self.is_live = true;
        } else {
            self.orders.append(name, value);
        }
    }
}

/// The field lines of an interim answer that may reach a client.
#[must_use]
pub fn interim_fields<'h>(lines: impl Iterator<Item = (&'h [u8], &'h [u8])>) -> Fields {
    let mut fields = Fields::new();
    for (name, value) in lines.filter(|(name, value)| is_name(name) && is_value(value)) {
        if name.eq_ignore_ascii_case(b"link") {
            fields.append(name, value);
        }
    }
    fields
}

/// True if this field line announces a body of unpredictable timing, with pauses of any length.
#[must_use]
pub fn is_live(name: &[u8], value: &[u8]) -> bool {
    is_event_stream(name, value) || is_unbuffered(name, value)
}

fn is_event_stream(name: &[u8], value: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"content-type") && begins_with(value, "text/event-stream")
}

fn is_unbuffered(name: &[u8], value: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"x-accel-buffering") && value.eq_ignore_ascii_case(b"no")
}

fn is_one_of(names: &[&str], name: &[u8]) -> bool {
    names.iter().any(|one| name.eq_ignore_ascii_case(one.as_bytes()))
}

fn begins_with(text: &[u8], prefix: &str) -> bool {
    text.len() >= prefix.len() && text[..prefix.len()].eq_ignore_ascii_case(prefix.as_bytes())
}

fn number(value: &[u8]) -> Result<u64, BadLength> {
    let is_number = !value.is_empty() && value.len() <= 19 && value.iter().all(u8::is_ascii_digit);
    let add = |sum: u64, digit: &u8| sum * 10 + u64::from(digit - b'0');
    is_number.then(|| value.iter().fold(0, add)).ok_or(BadLength)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[(&'static str, &'static str)]) -> Result<AnswerHead, BadLength> {
        let lines = lines.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        AnswerHead::read(200, lines)
    }

    fn names(fields: &Fields) -> Vec<String> {
        let names = fields
            .iter()
            .map(|(name, _)| String::from_utf8_lossy(name).into_owned());
        names.collect()
    }

    #[test]
    fn lines_go_to_the_client_or_to_the_server_or_are_dropped() {
        let head = read(&[
            ("Content-Type", "text/html"),
            ("Connection", "close"),
            ("X-Powered-By", "PHP"),
            ("X-Sendfile", "/a"),
            ("x-accel-expires", "60"),
            ("Bad Name", "x"),
            ("X-Bad", "a\u{1}b"),
            ("Set-Cookie", "a=1"),
            ("content-length", "12"),
        ]);
        let head = head.expect("a head");
        assert_eq!(names(&head.fields), ["Content-Type", "Set-Cookie"]);
        assert_eq!(names(&head.orders), ["X-Sendfile", "x-accel-expires"]);
        assert_eq!((head.length, head.is_live), (Some(12), false));
    }

    #[test]
    fn the_first_length_counts_and_must_be_a_number() {
        let length = |value| read(&[("Content-Length", value)]).map(|head| head.length);
        assert_eq!(length("0"), Ok(Some(0)));
        for wrong in ["", "-1", "1x", "99999999999999999999"] {
            assert_eq!(length(wrong), Err(BadLength), "{wrong}");
        }
        let twice = read(&[("Content-Length", "1"), ("Content-Length", "2")]);
        assert_eq!(twice.expect("a head").length, Some(1));
    }

    #[test]
    fn an_event_stream_and_an_unbuffered_body_are_live() {
        for (name, value, expected) in [
            ("Content-Type", "text/event-stream; charset=utf-8", true),
            ("content-type", "TEXT/EVENT-STREAM", true),
            ("Content-Type", "text/html", false),
            ("X-Accel-Buffering", "no", true),
            ("X-Accel-Buffering", "yes", false),
        ] {
            assert_eq!(
                read(&[(name, value)]).expect("a head").is_live,
                expected,
                "{name}: {value}"
            );
            assert_eq!(is_live(name.as_bytes(), value.as_bytes()), expected);
        }
    }

    #[test]
    fn an_interim_answer_has_links_alone() {
        let lines: [(&[u8], &[u8]); 3] = [(b"Link", b"</a>"), (b"Set-Cookie", b"a=1"), (b"link", b"</b>")];
        assert_eq!(names(&interim_fields(lines.into_iter())), ["Link", "link"]);
    }
}
