//! The response with an image. Its heads are made once and kept with the image in the cache.

use std::sync::{Arc, OnceLock};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use haulier_http::{Body, Handler, Head, OpenFile, PreparedHead, Response};
use haulier_image::{Format, Hinted};
use haulier_image_service::{Image, ImageContent};
use haulier_proto::conditional::{self, Precondition, Validators};
use haulier_proto::field::{Fields, Known};
use haulier_proto::head::{Method, RequestHead};
use haulier_proto::range::{self, ByteRange, Ranges};
use haulier_store::cache::CacheKey;

use crate::files::{self, Representation, without_metadata};

/// Lifetime of an image in clients while a better one is rendered, seconds.
const TEMPORARY: u32 = 60;

/// The parts that all responses with one image share.
#[derive(Debug)]
struct Prepared {
    etag: String,
    /// Heads by how the image was chosen.
    heads: [OnceLock<Heads>; VariantSelection::COUNT],
}

/// The parts of a request that chose a variant, besides the address.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct VariantSelection {
    /// The format, by Accept.
    pub(crate) accept: bool,
    /// The size, by a client hint.
    pub(crate) hinted: Hinted,
    /// A better one is being rendered: clients keep this one for a short time only.
    pub(crate) temporary: bool,
}

impl VariantSelection {
    /// Number of combinations.
    const COUNT: usize = 12;

    fn index(self) -> usize {
        usize::from(self.temporary) * 6 + usize::from(self.accept) * 3 + self.hinted as usize
    }

    /// The value of Vary (RFC 9110 §12.5.5).
    fn vary(self) -> Option<&'static str> {
        match (self.accept, self.hinted) {
            (false, Hinted::Nothing) => None,
            (true, Hinted::Nothing) => Some("Accept"),
            (false, Hinted::Density) => Some("Sec-CH-DPR, DPR"),
            (true, Hinted::Density) => Some("Accept, Sec-CH-DPR, DPR"),
            (false, Hinted::Width) => Some("Sec-CH-Width, Width"),
            (true, Hinted::Width) => Some("Accept, Sec-CH-Width, Width"),
        }
    }
}

/// The heads of responses with one image.
#[derive(Debug)]
struct Heads {
    /// The field lines of a 200.
    whole: Arc<PreparedHead>,
    /// The field lines of a 304.
    not_modified: Arc<PreparedHead>,
}

impl Heads {
    fn new(etag: &str, format: Option<Format>, frame: &Fields, selection: VariantSelection) -> Self {
        let fields = fields(etag, format, frame, selection);
        let not_modified = without_metadata(&fields);
        Self {
            whole: Arc::new(PreparedHead::new(fields)),
            not_modified: Arc::new(PreparedHead::new(not_modified)),
        }
    }
}

/// The strong entity tag that is made of a key, with its quotes.
pub(crate) fn etag(tag: &CacheKey) -> String {
    format!("\"{}\"", URL_SAFE_NO_PAD.encode(&tag.as_bytes()[..16]))
}

impl Prepared {
    fn of(image: &Image) -> Self {
        Self {
            etag: etag(image.tag()),
            heads: Default::default(),
        }
    }
}

/// Answers GET or HEAD with an image, by the conditions and the range of the request. `frame` are the fields of every
/// such response of the site.
pub(crate) fn respond(image: &Image, request: &RequestHead, frame: &Fields, selection: VariantSelection) -> Response {
    let Prepared { etag, heads } = image.attached(Prepared::of);
    let heads = heads[selection.index()].get_or_init(|| Heads::new(etag, image.format(), frame, selection));
    let mut response = match image.content() {
        ImageContent::File(file) => {
            let content_type = content_type(image.format());
            let view = View {
                file,
                etag,
                heads,
                content_type,
            };
            files::read(request, view)
        }
        ImageContent::Bytes(bytes) => from_memory(request, bytes, etag, heads),
    };
    response.trace.handler = Handler::Image;
    response
}

fn validators(etag: &str) -> Validators<'_> {
    Validators {
        etag: Some(etag.as_bytes()),
        last_modified: None,
    }
}

fn from_memory(request: &RequestHead, bytes: &Bytes, etag: &str, heads: &Heads) -> Response {
    match conditional::evaluate(request.fields(), request.method(), &validators(etag)) {
        Precondition::Failed => Response::new(412, Handler::Image),
        Precondition::NotModified => prepared(304, Head::Prepared(Arc::clone(&heads.not_modified)), Body::Empty),
        Precondition::Proceed => {
            let mut head = Head::Prepared(Arc::clone(&heads.whole));
            match range(request, bytes.len() as u64, etag) {
                Some(Ok(range)) => {
                    head.fields_mut()
                        .append("Content-Range", files::content_range(range, bytes.len() as u64));
                    let part = bytes.slice(range.start as usize..=range.end as usize);
                    prepared(206, head, part.into())
                }
                Some(Err(())) => unsatisfiable(bytes.len() as u64),
                None => prepared(200, head, bytes.clone().into()),
            }
        }
    }
}

/// The response to a range that begins after the end.
pub(crate) fn unsatisfiable(total: u64) -> Response {
    Response::new(416, Handler::Image)
        .with("Content-Range", format!("bytes */{total}"))
        .with("Accept-Ranges", "bytes")
}

/// The value of Range, if it applies (RFC 9110 §14.2, §13.1.5).
pub(crate) fn range_asked<'r>(request: &'r RequestHead, etag: &str) -> Option<&'r [u8]> {
    let fields = request.fields();
    let value = fields.known(Known::Range)?;
    let applies = request.method() == Method::Get
        && !fields.is_repeated(Known::Range)
        && conditional::range_applies(fields, &validators(etag));
    applies.then_some(value)
}

/// The range of a response. Several ranges get the whole image, as RFC 9110 §14.2 allows: it is short.
fn range(request: &RequestHead, length: u64, etag: &str) -> Option<Result<ByteRange, ()>> {
    match range::resolve(range_asked(request, etag)?, length, 1) {
        Ranges::One(range) => Some(Ok(range)),
        Ranges::Unsatisfiable => Some(Err(())),
        Ranges::Whole | Ranges::Many(_) => None,
    }
}

/// An image in a file, with its heads.
struct View<'a> {
    file: &'a Arc<OpenFile>,
    etag: &'a str,
    heads: &'a Heads,
    content_type: &'static str,
}

impl Representation for View<'_> {
    fn file(&self) -> &Arc<OpenFile> {
        self.file
    }

    fn validators(&self) -> Validators<'_> {
        validators(self.etag)
    }

    fn into_head(self) -> Head {
        Head::Prepared(Arc::clone(&self.heads.whole))
    }

    fn into_not_modified(self) -> Head {
        Head::Prepared(Arc::clone(&self.heads.not_modified))
    }

    fn content_type(&self) -> &[u8] {
        self.content_type.as_bytes()
    }
}

/// The media type of a format. Bytes of none, stored before types were checked, are sent as bytes.
pub(crate) fn content_type(format: Option<Format>) -> &'static str {
    format.map_or("application/octet-stream", Format::media_type)
}

/// The fields of a 200.
pub(crate) fn fields(etag: &str, format: Option<Format>, frame: &Fields, selection: VariantSelection) -> Fields {
    let mut fields = Fields::new();
    fields.append("Content-Type", content_type(format));
    fields.append("ETag", etag);
    fields.append("Accept-Ranges", "bytes");
    fields.append("X-Content-Type-Options", "nosniff");
    for (name, value) in frame.iter() {
        fields.set(name, value);
    }
    if let Some(vary) = selection.vary() {
        fields.append("Vary", vary);
    }
    if selection.temporary
        && let Some(shortened) = fields.get("Cache-Control").map(shortened)
    {
        fields.set("Cache-Control", shortened);
    }
    fields
}

/// A Cache-Control that lets clients keep the image [`TEMPORARY`] seconds at most.
fn shortened(cache_control: &[u8]) -> String {
    let cache_control = String::from_utf8_lossy(cache_control);
    let mut age = TEMPORARY;
    let mut directives: Vec<&str> = Vec::new();
    for directive in cache_control.split(',').map(str::trim) {
        let (name, value) = directive.split_once('=').unwrap_or((directive, ""));
        match name.to_ascii_lowercase().as_str() {
            "max-age" => age = age.min(value.parse().unwrap_or(0)),
            "s-maxage" | "immutable" | "stale-while-revalidate" | "stale-if-error" | "" => {}
            _ => directives.push(directive),
        }
    }
    directives.push("");
    format!("{}max-age={age}", directives.join(", "))
}

/// The 304 for a request that names this tag; `None` if the image is needed. It costs no lookup and no rendering.
pub(crate) fn unchanged(
    request: &RequestHead,
    etag: &str,
    frame: &Fields,
    selection: VariantSelection,
) -> Option<Response> {
    let asked = request.fields();
    let value = asked.known(Known::IfNoneMatch)?.trim_ascii();
    if asked.known(Known::IfMatch).is_some() || asked.known(Known::IfUnmodifiedSince).is_some() {
        return None;
    }
    // zimg's tags had no quotes, and its clients send them so.
    let is_bare = value == etag.trim_matches('"').as_bytes();
    // `*` matches any image; whether one exists is unknown here.
    let is_named =
        value != b"*" && conditional::evaluate(asked, request.method(), &validators(etag)) == Precondition::NotModified;
    (is_bare || is_named).then(|| {
        let fields = without_metadata(&fields(etag, None, frame, selection));
        prepared(304, fields.into(), Body::Empty)
    })
}

fn prepared(status: u16, head: Head, body: Body) -> Response {
    let mut response = Response::new(status, Handler::Image);
    response.head = head;
    response.body = body;
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::fixture::head;

    fn frame() -> Fields {
        let mut fields = Fields::new();
        fields.append("Cache-Control", "public, max-age=60");
        fields
    }

    /// The beginning of a WebP: RIFF, four bytes of length, and WEBP.
    fn image() -> Image {
        let bytes = Bytes::from_static(b"RIFF0123WEBP");
        Image::of_bytes(bytes, CacheKey::of(&[b"x"]))
    }

    const ACCEPTED: VariantSelection = VariantSelection {
        accept: true,
        hinted: Hinted::Nothing,
        temporary: false,
    };

    fn body(response: &Response) -> &[u8] {
        match &response.body {
            Body::Bytes(bytes) => bytes,
            Body::Empty => b"",
            body => panic!("bytes, not {body:?}"),
        }
    }

    #[test]
    fn a_whole_image_has_its_type_and_tag() {
        let response = respond(&image(), &head("GET", "/x", ""), &frame(), ACCEPTED);
        assert_eq!((response.status, body(&response)), (200, &b"RIFF0123WEBP"[..]));
        let fields = response.head.fields();
        for (name, value) in [
            ("Content-Type", "image/webp"),
            ("X-Content-Type-Options", "nosniff"),
            ("Accept-Ranges", "bytes"),
            ("Vary", "Accept"),
            ("Cache-Control", "public, max-age=60"),
        ] {
            assert_eq!(fields.get(name), Some(value.as_bytes()), "{name}");
        }
        assert_eq!(response.trace.handler, Handler::Image);
    }

    #[test]
    fn a_response_varies_by_all_that_chose_it() {
        let image = image();
        let mut seen = std::collections::HashSet::new();
        for (accept, temporary) in [(false, false), (true, false), (true, true)] {
            for hinted in [Hinted::Nothing, Hinted::Density, Hinted::Width] {
                let selection = VariantSelection {
                    accept,
                    hinted,
                    temporary,
                };
                assert!(
                    seen.insert(selection.index()) && selection.index() < VariantSelection::COUNT,
                    "{selection:?}"
                );
                let response = respond(&image, &head("GET", "/x", ""), &frame(), selection);
                let vary = response.head.fields().get("Vary").map(String::from_utf8_lossy);
                let names: Vec<&str> = vary.as_deref().unwrap_or("").split(", ").collect();
                assert_eq!(names.contains(&"Accept"), accept, "{vary:?}");
                assert_eq!(names.contains(&"Sec-CH-DPR"), hinted == Hinted::Density, "{vary:?}");
                assert_eq!(names.contains(&"Sec-CH-Width"), hinted == Hinted::Width, "{vary:?}");
            }
        }
    }

    #[test]
    fn a_temporary_image_is_cached_for_a_short_time() {
        for (usual, expected) in [
            ("public, max-age=31536000, immutable", "public, max-age=60"),
            ("Max-Age=10, s-maxage=99", "max-age=10"),
            ("private, no-cache", "private, no-cache, max-age=60"),
            ("no-transform", "no-transform, max-age=60"),
        ] {
            assert_eq!(shortened(usual.as_bytes()), expected);
        }
        let selection = VariantSelection {
            temporary: true,
            ..ACCEPTED
        };
        let mut frame = Fields::new();
        let silent = fields("\"x\"", None, &frame, selection);
        assert!(!silent.contains("Cache-Control"));
        frame.append("Cache-Control", "public, max-age=3600");
        let told = fields("\"x\"", None, &frame, selection);
        assert_eq!(told.get("Cache-Control"), Some(&b"public, max-age=60"[..]));
    }

    #[test]
    fn one_range_is_answered_and_several_are_the_whole() {
        let ask = |range: &str| {
            respond(
                &image(),
                &head("GET", "/x", &format!("Range: {range}\r\n")),
                &frame(),
                VariantSelection::default(),
            )
        };
        let response = ask("bytes=4-6");
        assert_eq!((response.status, body(&response)), (206, &b"012"[..]));
        assert_eq!(response.head.fields().get("Content-Range"), Some(&b"bytes 4-6/12"[..]));
        assert_eq!(ask("bytes=20-").status, 416);
        assert_eq!(ask("bytes=0-1,4-5").status, 200);
        let request = head("GET", "/x", "Range: bytes=4-6\r\nIf-Range: \"other\"\r\n");
        assert_eq!(
            respond(&image(), &request, &frame(), VariantSelection::default()).status,
            200
        );
    }

    #[test]
    fn a_client_with_the_image_gets_a_304_without_a_lookup() {
        let etag = etag(&CacheKey::of(&[b"x"]));
        let bare = etag.trim_matches('"');
        for value in [etag.as_str(), bare, &format!("\"y\", W/{etag}")] {
            let request = head("GET", "/x", &format!("If-None-Match: {value}\r\n"));
            let response = unchanged(&request, &etag, &frame(), ACCEPTED).expect(value);
            assert_eq!(response.status, 304);
            let fields = response.head.fields();
            assert_eq!(fields.get("ETag"), Some(etag.as_bytes()));
            assert!(fields.contains("Vary") && fields.contains("Cache-Control") && !fields.contains("Content-Type"));
        }
        for value in ["*", "\"y\"", "y"] {
            let request = head("GET", "/x", &format!("If-None-Match: {value}\r\n"));
            assert!(
                unchanged(&request, &etag, &frame(), VariantSelection::default()).is_none(),
                "{value}"
            );
        }
        let any = head("GET", "/x", "If-None-Match: *\r\n");
        assert_eq!(
            respond(&image(), &any, &frame(), VariantSelection::default()).status,
            304
        );
    }
}
