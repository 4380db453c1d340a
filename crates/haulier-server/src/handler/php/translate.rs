//! PHP's response head as ours.

use haulier_proto::fastcgi::response::CgiHead;
use haulier_proto::field::{Fields, is_name, is_value};

/// What PHP's head means.
pub(super) struct Translated {
    pub(super) status: u16,
    pub(super) fields: Fields,
    /// The length PHP announced, bytes.
    pub(super) length: Option<u64>,
    /// The body goes out as it comes: an event stream, or `X-Accel-Buffering: no`.
    pub(super) is_live: bool,
}

/// Fields that belong to the connection (RFC 9110 §7.6.1), that the protocol writes itself, or that tell outsiders
/// what runs here.
const DROPPED: [&str; 16] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "content-length",
    "status",
    "x-powered-by",
    "x-sendfile",
    "x-sendfile2",
    "x-lighttpd-send-file",
    "x-lighttpd-send-file2",
    "x-sendfile-type",
    "x-haulier-send",
];

/// What nginx takes as orders and never passes on.
const DROPPED_PREFIX: &[u8] = b"x-accel-";

/// Most heads of PHP, with what we add to them, get by with this.
const LINES: usize = 8;
const BYTES: usize = 256;

/// Reads PHP's final head.
///
/// # Errors
/// A Content-Length that is no number: the body cannot be trusted.
pub(super) fn head(head: &CgiHead) -> Result<Translated, &'static str> {
    let mut fields = Fields::with_room(LINES, BYTES);
    for (name, value) in head.fields() {
        if !is_dropped(name) && is_name(name) && is_value(value) {
            fields.append(name, value);
        }
    }
    let length = match head.field("content-length") {
        None => None,
        Some(value) => Some(number(value).ok_or("Content-Length is no number")?),
    };
    Ok(Translated {
        status: head.status(),
        length,
        is_live: is_live(head),
        fields,
    })
}

fn is_dropped(name: &[u8]) -> bool {
    let begins = |prefix: &[u8]| name.len() >= prefix.len() && name[..prefix.len()].eq_ignore_ascii_case(prefix);
    DROPPED
        .iter()
        .any(|dropped| name.eq_ignore_ascii_case(dropped.as_bytes()))
        || begins(DROPPED_PREFIX)
}

/// The field lines of an interim response.
pub(super) fn interim_fields(head: &CgiHead) -> Fields {
    let mut fields = Fields::new();
    let lines = head.fields().filter(|(name, value)| is_name(name) && is_value(value));
    for (name, value) in lines.filter(|(name, _)| name.eq_ignore_ascii_case(b"link")) {
        fields.append(name, value);
    }
    fields
}

fn number(value: &[u8]) -> Option<u64> {
    let is_number = !value.is_empty() && value.len() <= 19 && value.iter().all(u8::is_ascii_digit);
    is_number.then(|| value.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}

fn is_live(head: &CgiHead) -> bool {
    let is_event_stream = head.field("content-type").is_some_and(|value| {
        const EVENT_STREAM: &[u8] = b"text/event-stream";
        value.len() >= EVENT_STREAM.len() && value[..EVENT_STREAM.len()].eq_ignore_ascii_case(EVENT_STREAM)
    });
    is_event_stream
        || head
            .field("x-accel-buffering")
            .is_some_and(|value| value.eq_ignore_ascii_case(b"no"))
}
