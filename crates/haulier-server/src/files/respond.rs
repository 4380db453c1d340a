//! The response with a file: conditions, ranges, and methods of files (RFC 9110 §9, §13, §14).

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use haulier_http::{Body, FileSlice, Handler, Head, OpenFile, Parts, Piece, Response, Trace};
use haulier_proto::conditional::{self, Precondition, Validators};
use haulier_proto::field::{Fields, Known};
use haulier_proto::head::{Method, RequestHead};
use haulier_proto::range::{self, ByteRange, Ranges};

use super::FileEntry;
use crate::clock;

/// RFC 9110 §14.2 allows a server to ignore greedy requests; media players ask for fewer.
const MOST_RANGES: usize = 16;

/// Methods of a file.
const ALLOW: &str = "GET, HEAD, OPTIONS";

/// A file with the fields of its responses: one of the document root, or one that a script names.
pub(crate) trait Representation: Sized {
    fn file(&self) -> &Arc<OpenFile>;
    fn validators(&self) -> Validators<'_>;
    /// The field lines of a 200.
    fn into_head(self) -> Head;
    /// The field lines of a 304.
    fn into_not_modified(self) -> Head;
    /// The field lines of a 412 or 416, which do not describe the file: those a script added.
    fn into_refusal(self) -> Head {
        Fields::default().into()
    }
    fn content_type(&self) -> &[u8];
    /// True if a range of it may be requested.
    fn takes_ranges(&self) -> bool {
        true
    }
}

impl Representation for &FileEntry {
    fn file(&self) -> &Arc<OpenFile> {
        &self.file
    }

    fn validators(&self) -> Validators<'_> {
        FileEntry::validators(self)
    }

    fn into_head(self) -> Head {
        Head::Prepared(self.head.clone())
    }

    fn into_not_modified(self) -> Head {
        Head::Prepared(self.not_modified.clone())
    }

    fn content_type(&self) -> &[u8] {
        self.content_type.as_bytes()
    }
}

/// Answers a request for this file. HEAD gets the body too: the protocol announces its length and drops it.
pub(crate) fn respond(head: &RequestHead, entry: &FileEntry) -> Response {
    match head.method() {
        Method::Get | Method::Head => read(head, entry),
        Method::Options => Response::new(204, Handler::Static).with("Allow", ALLOW),
        _ => Response::new(405, Handler::Static).with("Allow", ALLOW),
    }
}

/// Answers GET or HEAD by the conditions and the range of the request.
pub(crate) fn read(head: &RequestHead, entry: impl Representation) -> Response {
    match conditional::evaluate(head.fields(), head.method(), &entry.validators()) {
        Precondition::Failed => prepared(412, entry.into_refusal(), Body::Empty),
        Precondition::NotModified => prepared(304, entry.into_not_modified(), Body::Empty),
        Precondition::Proceed => match ranges(head, &entry) {
            Ranges::Whole => whole(entry),
            Ranges::Unsatisfiable => unsatisfiable(entry),
            Ranges::One(range) => part(entry, range),
            Ranges::Many(ranges) => parts(entry, &ranges),
        },
    }
}

/// RFC 9110 §14.2: Range applies to GET only, and only if If-Range matches.
fn ranges(head: &RequestHead, entry: &impl Representation) -> Ranges {
    let fields = head.fields();
    match fields.known(Known::Range) {
        Some(value) if head.method() == Method::Get && !fields.is_repeated(Known::Range) && entry.takes_ranges() => {
            if conditional::range_applies(fields, &strong_validators(entry)) {
                range::resolve(value, entry.file().length(), MOST_RANGES)
            } else {
                Ranges::Whole
            }
        }
        _ => Ranges::Whole,
    }
}

/// RFC 9110 §8.8.2.2: a date is a strong validator once the file cannot change within the same second.
fn strong_validators(entry: &impl Representation) -> Validators<'_> {
    let now = clock::unix_time().as_secs();
    let validators = entry.validators();
    let settled = |&modified: &u64| now >= modified.saturating_add(2);
    Validators {
        last_modified: validators.last_modified.filter(settled),
        ..validators
    }
}

/// Answers with the whole file, regardless of conditions and ranges.
pub(crate) fn whole(entry: impl Representation) -> Response {
    let body = FileSlice::whole(entry.file().clone()).into();
    prepared(200, entry.into_head(), body)
}

fn part(entry: impl Representation, range: ByteRange) -> Response {
    let place = content_range(range, entry.file().length());
    let body = slice(&entry, range).into();
    let mut head = entry.into_head();
    head.fields_mut().append("Content-Range", place);
    prepared(206, head, body)
}

/// RFC 9110 §14.6: each part has its own media type and range.
fn parts(entry: impl Representation, ranges: &[ByteRange]) -> Response {
    let boundary = boundary();
    let length = entry.file().length();
    let mut body = Parts::default();
    let mut line_end = "";
    for &range in ranges {
        let place = content_range(range, length);
        let mut head = format!("{line_end}--{boundary}\r\nContent-Type: ").into_bytes();
        head.extend_from_slice(entry.content_type());
        head.extend_from_slice(format!("\r\nContent-Range: {place}\r\n\r\n").as_bytes());
        body.push(Piece::Bytes(Bytes::from(head)));
        body.push(Piece::File(slice(&entry, range)));
        line_end = "\r\n";
    }
    body.push(Piece::Bytes(Bytes::from(format!("\r\n--{boundary}--\r\n"))));
    let mut head = entry.into_head();
    head.fields_mut()
        .set("Content-Type", format!("multipart/byteranges; boundary={boundary}"));
    prepared(206, head, Body::Stream(Box::new(body)))
}

fn unsatisfiable(entry: impl Representation) -> Response {
    let length = entry.file().length();
    prepared(416, entry.into_refusal(), Body::Empty)
        .with("Content-Range", format!("bytes */{length}"))
        .with("Accept-Ranges", "bytes")
}

fn prepared(status: u16, head: Head, body: Body) -> Response {
    Response {
        status,
        head,
        body,
        trace: Trace::of(Handler::Static),
    }
}

/// `bytes 0-99/1000` (RFC 9110 §14.4)
pub(crate) fn content_range(range: ByteRange, length: u64) -> String {
    format!("bytes {}-{}/{length}", range.start, range.end)
}

fn slice(entry: &impl Representation, range: ByteRange) -> FileSlice {
    FileSlice {
        file: entry.file().clone(),
        range: range.start..range.end + 1,
    }
}

/// A delimiter that no file contains: random for each process, so that no file can be written to contain it, and
/// counted.
fn boundary() -> String {
    static RANDOM: OnceLock<u64> = OnceLock::new();
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let random = RANDOM.get_or_init(|| RandomState::new().build_hasher().finish());
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{random:016x}{count:08x}")
}
