//! A request: method, address, field lines and body, and the head as HTTP/1.1 writes it (RFC 9112 §3, §6).

use std::borrow::Cow;
use std::fmt::Debug;
use std::io;
use std::task::{Context, Poll};

use bytes::Bytes;
use haulier_proto::encode;
use haulier_proto::field::{Fields, is_name};
use haulier_proto::head::Method;

use crate::url::Url;

/// The method of a request: any token (RFC 9110 §9.1), written as it is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MethodName(Cow<'static, str>);

impl MethodName {
    pub const GET: Self = Self(Cow::Borrowed("GET"));
    pub const POST: Self = Self(Cow::Borrowed("POST"));
    pub const DELETE: Self = Self(Cow::Borrowed("DELETE"));

    /// `None` if the name is no token.
    #[must_use]
    pub fn new(name: &str) -> Option<Self> {
        is_name(name.as_bytes()).then(|| Self(Cow::Owned(name.to_owned())))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The method, if it is one of RFC 9110 or PATCH; else [`Method::Other`].
    #[must_use]
    pub fn kind(&self) -> Method {
        Method::of(&self.0)
    }
}

/// The body of a request. It may come in pieces, and need not be complete when the request is sent.
pub trait RequestBody: Debug {
    /// Its length in bytes, if known. It becomes Content-Length; without it HTTP/1.1 sends chunks.
    fn length(&self) -> Option<u64>;

    /// The next piece, which is not empty; `Ok(None)` is the end.
    ///
    /// # Errors
    /// The source failed. The exchange is given up, so that the server cannot take a part for the whole.
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>>;

    /// The trailers (RFC 9110 §6.5), asked for after the last piece of a body of unknown length.
    fn trailers(&mut self) -> Option<Fields> {
        None
    }
}

/// A body that is all there, or none if it is empty.
impl RequestBody for Bytes {
    fn length(&self) -> Option<u64> {
        Some(self.len() as u64)
    }

    fn poll_piece(&mut self, _: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        let all = std::mem::take(self);
        Poll::Ready(Ok(Some(all).filter(|all| !all.is_empty())))
    }
}

/// A request to be sent.
#[derive(Debug, Clone)]
pub struct Request<B = Bytes> {
    pub method: MethodName,
    pub url: Url,
    /// Field lines. Host is added if it is missing; Content-Length and Transfer-Encoding follow from the body alone.
    pub fields: Fields,
    pub body: B,
}

impl Request {
    /// A request without field lines and body.
    #[must_use]
    pub fn new(method: MethodName, url: Url) -> Self {
        Self {
            method,
            url,
            fields: Fields::new(),
            body: Bytes::new(),
        }
    }

    /// A GET without field lines.
    #[must_use]
    pub fn get(url: Url) -> Self {
        Self::new(MethodName::GET, url)
    }

    /// A POST with this body.
    #[must_use]
    pub fn post(url: Url, body: impl Into<Bytes>) -> Self {
        Self::new(MethodName::POST, url).with_body(body.into())
    }
}

impl<B: RequestBody> Request<B> {
    /// Adds a field line.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.fields.append(name, value);
        self
    }

    /// The same request with another body.
    #[must_use]
    pub fn with_body<C: RequestBody>(self, body: C) -> Request<C> {
        Request {
            method: self.method,
            url: self.url,
            fields: self.fields,
            body,
        }
    }

    /// Adds User-Agent and Accept of a client of its own, unless they are given. A proxy leaves them as they are.
    pub fn add_own_fields(&mut self) {
        let own = [
            ("User-Agent", concat!("haulier/", env!("CARGO_PKG_VERSION"))),
            ("Accept", "*/*"),
        ];
        for (name, value) in own {
            if !self.fields.contains(name) {
                self.fields.append(name, value);
            }
        }
    }

    /// Content-Length, if one is sent: the length is known, and is not 0 for a method that needs no body (RFC 9110
    /// §8.6).
    pub(crate) fn content_length(&self) -> Option<u64> {
        let needs_body = matches!(self.method.kind(), Method::Post | Method::Put | Method::Patch);
        self.body.length().filter(|length| *length > 0 || needs_body)
    }

    /// The client waits for 100 before it sends the body (RFC 9110 §10.1.1).
    pub(crate) fn expects_continue(&self) -> bool {
        let expects = self.fields.get("expect");
        expects.is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue")) && self.body.length() != Some(0)
    }

    /// Field lines to be sent as given. Those of the framing are written by the protocol: two lengths would be two
    /// requests to some servers.
    pub(crate) fn sent_fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let is_framing = |name: &[u8]| {
            name.eq_ignore_ascii_case(b"content-length") || name.eq_ignore_ascii_case(b"transfer-encoding")
        };
        self.fields.iter().filter(move |(name, _)| !is_framing(name))
    }

    /// The head as HTTP/1.1 sends it. The target is `absolute` for a proxy (RFC 9112 §3.2.2).
    pub(crate) fn write_head(&self, out: &mut Vec<u8>, absolute: bool) {
        out.extend_from_slice(self.method.as_str().as_bytes());
        out.push(b' ');
        if absolute {
            out.extend_from_slice(self.url.to_string().as_bytes());
        } else {
            out.extend_from_slice(self.url.target().as_bytes());
        }
        out.extend_from_slice(b" HTTP/1.1\r\n");
        if !self.fields.contains("host") {
            encode::field(out, "Host", self.url.origin().host_field());
        }
        for (name, value) in self.sent_fields() {
            encode::field(out, name, value);
        }
        match self.content_length() {
            Some(length) => encode::number_field(out, "Content-Length", length),
            None if self.body.length().is_none() => encode::field(out, "Transfer-Encoding", "chunked"),
            None => {}
        }
        out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url() -> Url {
        Url::parse("http://example.org:81/a?b").expect("a URL")
    }

    fn head<B: RequestBody>(request: &Request<B>) -> String {
        let mut out = Vec::new();
        request.write_head(&mut out, false);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn every_method_is_written_as_it_is_given() {
        for name in ["PUT", "PATCH", "OPTIONS", "TRACE", "PROPFIND", "get", "M-SEARCH"] {
            let method = MethodName::new(name).unwrap_or_else(|| panic!("{name} is a token"));
            let text = head(&Request::new(method, url()));
            assert!(text.starts_with(&format!("{name} /a?b HTTP/1.1\r\n")), "{text}");
        }
        for name in ["", "GET /x", "G\r\nT", "G:T"] {
            assert_eq!(MethodName::new(name), None, "{name:?}");
        }
    }

    #[test]
    fn a_request_has_one_length_and_one_host() {
        let lengths = [("GET", "", None), ("PUT", "", Some(0)), ("DELETE", "ab", Some(2))];
        for (name, body, length) in lengths {
            let request = Request::new(MethodName::new(name).expect("a token"), url())
                .with("content-length", "7")
                .with("Transfer-Encoding", "gzip")
                .with_body(Bytes::from(body));
            let text = head(&request);
            let line = length.map_or(String::new(), |length| format!("Content-Length: {length}\r\n"));
            assert_eq!(
                text,
                format!("{name} /a?b HTTP/1.1\r\nHost: example.org:81\r\n{line}\r\n")
            );
        }
        let text = head(&Request::get(url()).with("host", "x"));
        assert_eq!(text, "GET /a?b HTTP/1.1\r\nhost: x\r\n\r\n");
    }

    #[test]
    fn own_fields_are_added_where_they_are_missing() {
        let mut request = Request::get(url()).with("accept", "image/avif");
        request.add_own_fields();
        assert_eq!(request.fields.len(), 2);
        assert_eq!(request.fields.get("accept"), Some(&b"image/avif"[..]));
        assert!(request.fields.contains("user-agent"));
    }
}
