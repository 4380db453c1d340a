//! Hand-off: a script names a file and ends, and the server sends the file.
//!
//! X-Sendfile and X-LIGHTTPD-send-file name a path of the file system, X-Accel-Redirect one as in a URL, X-Sendfile2
//! ranges of files. The functions of the prelude write X-Haulier-Send. Other fields of the script (type, disposition,
//! cookies, validators) remain; conditions and ranges are answered as for any file.

use std::rc::Rc;
use std::sync::Arc;

use haulier_http::{Body, FileSlice, Handler, Head, OpenFile, Parts, Piece, Response, Via};
use haulier_proto::conditional::Validators;
use haulier_proto::date;
use haulier_proto::field::Fields;
use haulier_proto::head::{Method, RequestHead};
use haulier_proto::status;

use percent_encoding::percent_decode;

use crate::files::{self, Refused, Representation, Sendable, SendfileCache, SendfileName};
use crate::site::{Site, send_token};
use crate::thread::Thread;

/// A request of a script to send a file in place of its body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Handoff<'h> {
    File(FileHandoff<'h>),
    /// The same, opened or refused by PHP in a worker of haulier's own.
    Opened(OpenedHandoff<'h>),
    /// X-Sendfile2: ranges of files, one after the other, as the script describes them.
    Parts(Vec<RangeHandoff<'h>>),
    /// A malformed field.
    Malformed,
}

/// One whole file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FileHandoff<'h> {
    name: SendfileName<'h>,
    via: Via,
    /// The type follows from the name instead of PHP's default.
    by_extension: bool,
}

/// One whole file whose descriptor comes in front of the body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OpenedHandoff<'h> {
    /// Percent-encoded.
    path: &'h [u8],
    via: Via,
    by_extension: bool,
    /// The reason for which PHP did not open it.
    fault: Option<&'static str>,
}

/// A range of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RangeHandoff<'h> {
    path: &'h [u8],
    first: u64,
    /// Inclusive; `None` for the end of the file.
    last: Option<u64>,
}

/// The private field of the prelude.
const PRIVATE: &str = "x-haulier-send";

/// The hand-off among the fields for the server. The prelude's field counts first; an empty value is none.
pub(super) fn order(orders: &Fields) -> Option<Handoff<'_>> {
    if orders.is_empty() {
        return None;
    }
    let field = |name: &str| orders.get(name).filter(|value| !value.is_empty());
    let file = |name, via| {
        Handoff::File(FileHandoff {
            name,
            via,
            by_extension: false,
        })
    };
    // X-Haulier-Send without the token is foreign: it is dropped, and other fields still count.
    if let Some(order) = field(PRIVATE).and_then(prelude_handoff) {
        return Some(order);
    }
    if let Some(location) = field("x-accel-redirect") {
        return Some(file(SendfileName::Location(location), Via::XAccel));
    }
    if let Some(path) = field("x-sendfile").or_else(|| field("x-lighttpd-send-file")) {
        return Some(file(SendfileName::Path(path), Via::XSendfile));
    }
    let parts = field("x-sendfile2").or_else(|| field("x-lighttpd-send-file2"))?;
    Some(range_handoffs(parts).map_or(Handoff::Malformed, Handoff::Parts))
}

/// True if the body was given to `zend_send_buffer`.
pub(super) fn is_buffer(orders: &Fields) -> bool {
    orders.get(PRIVATE).and_then(of_prelude) == Some(b"body")
}

/// `file PATH`, or `file-by-extension PATH`; the path is percent-encoded.
fn prelude_handoff(value: &[u8]) -> Option<Handoff<'_>> {
    let order = of_prelude(value)?;
    if let Some(opened) = opened_handoff(order) {
        return Some(Handoff::Opened(opened));
    }
    let by_extension = order.strip_prefix(b"file-by-extension ");
    let path = by_extension.or_else(|| order.strip_prefix(b"file "))?;
    Some(Handoff::File(FileHandoff {
        name: SendfileName::Encoded(path),
        via: Via::Zend,
        by_extension: by_extension.is_some(),
    }))
}

/// `opened`, `missing` or `closed`, then the way of the hand-off, then the path: from a worker of haulier's own.
fn opened_handoff(order: &[u8]) -> Option<OpenedHandoff<'_>> {
    let mut words = order.splitn(3, |&byte| byte == b' ');
    let fault = match words.next()? {
        b"opened" => None,
        b"missing" => Some("does not exist for PHP"),
        b"closed" => Some("may not be read by PHP (its account, `open_basedir`), or is no regular file"),
        _ => return None,
    };
    let (via, by_extension) = match words.next()? {
        b"x-sendfile" => (Via::XSendfile, false),
        b"x-accel" => (Via::XAccel, false),
        b"zend" => (Via::Zend, false),
        b"zend-by-extension" => (Via::Zend, true),
        _ => return None,
    };
    let path = words.next()?;
    Some(OpenedHandoff {
        path,
        via,
        by_extension,
        fault,
    })
}

/// The value after the token.
fn of_prelude(value: &[u8]) -> Option<&[u8]> {
    value.strip_prefix(send_token().as_bytes())?.strip_prefix(b" ")
}

/// Parses `/path/one 0-99, /path/two 100-`, lighttpd's X-Sendfile2.
fn range_handoffs(value: &[u8]) -> Option<Vec<RangeHandoff<'_>>> {
    value
        .split(|&byte| byte == b',')
        .map(|part| {
            let part = part.trim_ascii();
            let space = part.iter().rposition(|&byte| byte == b' ')?;
            let (path, range) = (
                part[..space].trim_ascii(),
                std::str::from_utf8(&part[space + 1..]).ok()?,
            );
            let (first, last) = range.split_once('-')?;
            let last = if last.is_empty() {
                None
            } else {
                Some(last.parse().ok()?)
            };
            Some(RangeHandoff {
                path,
                first: first.parse().ok()?,
                last,
            })
        })
        .collect()
}

/// The response to a hand-off, or the reason for refusing it.
pub(super) fn respond(
    thread: &Thread,
    site: &Site,
    head: &RequestHead,
    order: &Handoff<'_>,
    opened: Option<FileSlice>,
    status: u16,
    fields: Fields,
) -> Result<Response, Refused> {
    let sendfile_cache = &thread.caches.sendfile;
    let (mut response, via) = match order {
        Handoff::File(order) => (
            respond_with_file(sendfile_cache, site, head, order, status, fields)?,
            order.via,
        ),
        Handoff::Opened(order) => (
            respond_with_opened(site, head, order, opened, status, fields)?,
            order.via,
        ),
        Handoff::Parts(parts) => (
            respond_with_parts(sendfile_cache, site, parts, status, fields)?,
            Via::XSendfile,
        ),
        Handoff::Malformed => return Err(Refused::Denied("X-Sendfile2 is not `/path first-last, …`".to_owned())),
    };
    response.trace.handler = Handler::Handed;
    response.trace.handoff = Some(via);
    Ok(response)
}

fn respond_with_file(
    sendfile_cache: &SendfileCache,
    site: &Site,
    head: &RequestHead,
    order: &FileHandoff<'_>,
    status: u16,
    fields: Fields,
) -> Result<Response, Refused> {
    if status::is_bodiless(status) {
        return Ok(with_head(status, fields, Body::Empty));
    }
    let sendable = opened(site, order.name, sendfile_cache)?;
    Ok(send(&sendable, head, order.via, order.by_extension, status, fields))
}

/// The response with a file that PHP has opened, if one of the site's roots has it.
fn respond_with_opened(
    site: &Site,
    head: &RequestHead,
    order: &OpenedHandoff<'_>,
    opened: Option<FileSlice>,
    status: u16,
    fields: Fields,
) -> Result<Response, Refused> {
    if status::is_bodiless(status) {
        return Ok(with_head(status, fields, Body::Empty));
    }
    let path: Vec<u8> = percent_decode(order.path).collect();
    let denied = |why: &str| Refused::Denied(format!("{} {why}", String::from_utf8_lossy(&path)));
    if let Some(why) = order.fault {
        return Err(denied(why));
    }
    let file = opened.and_then(|slice| Arc::into_inner(slice.file));
    let (Some(file), Some(php)) = (file, &site.php) else {
        return Err(denied("did not come from the worker"));
    };
    let sendable = php.send_roots.adopt(&site.files, &path, file.into_file())?;
    Ok(send(&sendable, head, order.via, order.by_extension, status, fields))
}

fn send(
    sendable: &Sendable,
    head: &RequestHead,
    via: Via,
    by_extension: bool,
    status: u16,
    mut fields: Fields,
) -> Response {
    if via != Via::Zend {
        // It described the script's own body; `zlib.output_compression` adds it even to an empty one.
        fields.remove("Content-Encoding");
    }
    FileResponse::of_named(sendable, fields, by_extension).respond(head, status)
}

/// Opens the file that a script named.
fn opened(site: &Site, name: SendfileName<'_>, sendfile_cache: &SendfileCache) -> Result<Rc<Sendable>, Refused> {
    match &site.php {
        Some(php) => php.send_roots.find(&site.files, name, sendfile_cache),
        None => Err(Refused::Denied("the site has no scripts".to_owned())),
    }
}

fn respond_with_parts(
    sendfile_cache: &SendfileCache,
    site: &Site,
    orders: &[RangeHandoff<'_>],
    status: u16,
    mut fields: Fields,
) -> Result<Response, Refused> {
    let mut slices = Vec::with_capacity(orders.len());
    for order in orders {
        let sendable = opened(site, SendfileName::Path(order.path), sendfile_cache)?;
        let file = Arc::clone(&sendable.file);
        let end = order
            .last
            .map_or(file.length(), |last| last.saturating_add(1).min(file.length()));
        slices.push(FileSlice {
            range: order.first.min(end)..end,
            file,
        });
    }
    let body = match <[FileSlice; 1]>::try_from(slices) {
        Ok([only]) => only.into(),
        Err(slices) => {
            let mut parts = Parts::default();
            for slice in slices.into_iter().filter(|slice| !slice.is_empty()) {
                parts.push(Piece::File(slice));
            }
            Body::Stream(Box::new(parts))
        }
    };
    fields.remove("Content-Encoding");
    Ok(with_head(status, fields, body))
}

fn with_head(status: u16, fields: Fields, body: Body) -> Response {
    let mut response = Response::new(status, Handler::Handed).body(body);
    *response.head.fields_mut() = fields;
    response
}

/// A file in place of a script's body, with the fields of the script.
#[derive(Debug)]
pub(super) struct FileResponse {
    file: Arc<OpenFile>,
    fields: Fields,
    last_modified: Option<u64>,
}

impl FileResponse {
    /// A file by its name. Fields that the script did not send follow from the file.
    fn of_named(sendable: &Sendable, mut fields: Fields, by_extension: bool) -> Self {
        if by_extension || !fields.contains("Content-Type") {
            fields.set("Content-Type", &*sendable.content_type);
        }
        if let Some(etag) = sendable.etag.as_ref().filter(|_| !fields.contains("ETag")) {
            fields.append("ETag", etag);
        }
        let own_date = fields.get("Last-Modified").map(date::parse);
        if own_date.is_none() {
            fields.append("Last-Modified", sendable.last_modified_text);
        }
        Self::new(
            Arc::clone(&sendable.file),
            fields,
            own_date.unwrap_or(Some(sendable.last_modified)),
        )
    }

    /// A file whose validators are those of the fields, if any.
    pub(super) fn with_validators(file: Arc<OpenFile>, fields: Fields) -> Self {
        let last_modified = fields.get("Last-Modified").and_then(date::parse);
        Self::new(file, fields, last_modified)
    }

    fn new(file: Arc<OpenFile>, mut fields: Fields, last_modified: Option<u64>) -> Self {
        fields.remove("Content-Range");
        if !refuses_ranges(&fields) {
            fields.set("Accept-Ranges", "bytes");
        }
        Self {
            file,
            fields,
            last_modified,
        }
    }

    /// Responds to GET as for any file; if the script chose 206, the range is applied here. With other methods or
    /// statuses the whole file is the body.
    pub(super) fn respond(self, head: &RequestHead, status: u16) -> Response {
        let reads = matches!(head.method(), Method::Get | Method::Head);
        if reads && matches!(status, 200 | 206) {
            return files::read(head, self);
        }
        let mut response = files::whole(self);
        response.head.fields_mut().remove("Accept-Ranges");
        response.status = status;
        response
    }
}

/// True for `Accept-Ranges: none` (RFC 9110 §14.3).
fn refuses_ranges(fields: &Fields) -> bool {
    let said = fields.get("Accept-Ranges");
    said.is_some_and(|said| said.trim_ascii().eq_ignore_ascii_case(b"none"))
}

/// Fields that describe the file: a response without the file drops them. Cookies and others remain.
const OF_THE_FILE: [&str; 6] = [
    "Accept-Ranges",
    "Content-Disposition",
    "Content-Encoding",
    "Content-Type",
    "ETag",
    "Last-Modified",
];

impl Representation for FileResponse {
    fn file(&self) -> &Arc<OpenFile> {
        &self.file
    }

    fn validators(&self) -> Validators<'_> {
        Validators {
            etag: self.fields.get("ETag"),
            last_modified: self.last_modified,
        }
    }

    fn into_head(self) -> Head {
        self.fields.into()
    }

    fn into_not_modified(self) -> Head {
        files::without_metadata(&self.fields).into()
    }

    fn into_refusal(self) -> Head {
        let mut fields = self.fields;
        for name in OF_THE_FILE {
            fields.remove(name);
        }
        fields.into()
    }

    fn content_type(&self) -> &[u8] {
        self.fields.get("Content-Type").unwrap_or_default()
    }

    fn takes_ranges(&self) -> bool {
        !refuses_ranges(&self.fields)
    }
}

/// The field of a hand-off, for the log.
pub(super) fn field_of(order: &Handoff<'_>) -> &'static str {
    let via = match order {
        Handoff::File(order) => order.via,
        Handoff::Opened(order) => order.via,
        Handoff::Parts(_) | Handoff::Malformed => return "X-Sendfile2",
    };
    match via {
        Via::XAccel => "X-Accel-Redirect",
        Via::Zend => "zend_send_file",
        Via::XSendfile | Via::Transparent | Via::Readfile => "X-Sendfile",
    }
}

/// True if the descriptor of the file comes in front of the body.
pub(super) fn comes_opened(order: &Handoff<'_>) -> bool {
    matches!(order, Handoff::Opened(OpenedHandoff { fault: None, .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(lines: &str) -> Fields {
        let mut fields = Fields::new();
        for (name, value) in lines.lines().filter_map(|line| line.split_once(':')) {
            fields.append(name, value.trim());
        }
        fields
    }

    fn file(name: SendfileName<'_>, via: Via, by_extension: bool) -> Option<Handoff<'_>> {
        Some(Handoff::File(FileHandoff {
            name,
            via,
            by_extension,
        }))
    }

    #[test]
    fn each_field_is_an_order_of_its_kind() {
        for (line, expected) in [
            ("X-Sendfile: /a", file(SendfileName::Path(b"/a"), Via::XSendfile, false)),
            (
                "x-lighttpd-send-file: /a",
                file(SendfileName::Path(b"/a"), Via::XSendfile, false),
            ),
            (
                "X-Accel-Redirect: /a",
                file(SendfileName::Location(b"/a"), Via::XAccel, false),
            ),
            ("X-Sendfile:", None),
            ("X-Accel-Buffering: no", None),
            ("X-Sendfile2: /a", Some(Handoff::Malformed)),
            ("X-Sendfile2: /a 1-x", Some(Handoff::Malformed)),
        ] {
            assert_eq!(order(&parsed(&format!("{line}\r\n"))), expected, "{line}");
        }
    }

    #[test]
    fn a_worker_of_our_own_tells_what_it_has_opened() {
        let told = |text: &str| parsed(&format!("X-Haulier-Send: {} {text}\r\n", send_token()));
        let opened = |path, via, by_extension, fault| {
            Some(Handoff::Opened(OpenedHandoff {
                path,
                via,
                by_extension,
                fault,
            }))
        };
        let head = told("opened x-sendfile /a%20b");
        assert_eq!(order(&head), opened(b"/a%20b", Via::XSendfile, false, None));
        assert!(order(&head).is_some_and(|order| comes_opened(&order)));
        let head = told("opened zend-by-extension /a");
        assert_eq!(order(&head), opened(b"/a", Via::Zend, true, None));
        let head = told("missing zend /a");
        assert_eq!(
            order(&head),
            opened(b"/a", Via::Zend, false, Some("does not exist for PHP"))
        );
        assert!(order(&head).is_some_and(|order| !comes_opened(&order)));
        assert_eq!(order(&told("opened other /a")), None);
    }

    #[test]
    fn parts_have_a_path_and_a_range_each() {
        let head = parsed("X-Sendfile2: /a b 0-9, /c 10-\r\n");
        let part = |path, first, last| RangeHandoff { path, first, last };
        let parts = vec![part(&b"/a b"[..], 0, Some(9)), part(b"/c", 10, None)];
        assert_eq!(order(&head), Some(Handoff::Parts(parts)));
    }

    #[test]
    fn only_the_token_makes_an_order_of_the_private_field() {
        let token = send_token();
        let head = parsed(&format!(
            "X-Haulier-Send: {token} file-by-extension /a%20b\r\nX-Sendfile: /c\r\n"
        ));
        assert_eq!(order(&head), file(SendfileName::Encoded(b"/a%20b"), Via::Zend, true));
        let head = parsed(&format!("X-Haulier-Send: {token} file /a\r\n"));
        assert_eq!(order(&head), file(SendfileName::Encoded(b"/a"), Via::Zend, false));
        assert!(is_buffer(&parsed(&format!("X-Haulier-Send: {token} body\r\n"))));
        for value in [
            "0 file /a",
            "file /a",
            &format!("{token}file /a"),
            &format!("{token} else /a"),
            token,
        ] {
            let head = parsed(&format!("X-Haulier-Send: {value}\r\nX-Sendfile: /c\r\n"));
            assert_eq!(
                order(&head),
                file(SendfileName::Path(b"/c"), Via::XSendfile, false),
                "{value}"
            );
            assert!(!is_buffer(&head));
        }
    }
}
