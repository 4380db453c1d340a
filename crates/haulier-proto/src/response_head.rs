//! The response head as a client reads it, and the length of its body (RFC 9112 §4, §6.3).
//!
//! httparse splits the lines. A client may be laxer than a server: a bare LF ends a line here, because old servers send
//! it and a response smuggles no request. The framing is judged as strictly as a request's: a doubtful length is an
//! error, because a download must know its end.

use std::mem::MaybeUninit;

use crate::field::{BufferRange, Fields, Known, tokens};
use crate::framing::{FramingError, content_length, keeps_alive};
use crate::head::{Method, Version};
use crate::status::is_bodiless;

/// Limits on the size of a response head.
#[derive(Debug, Clone, Copy)]
pub struct ResponseLimits {
    /// The whole head, bytes.
    pub head: usize,
    /// Field lines.
    pub fields: usize,
}

impl Default for ResponseLimits {
    fn default() -> Self {
        Self {
            head: 64 * 1024,
            fields: 200,
        }
    }
}

/// A fault in a response head. The connection cannot be used further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResponseHeadError {
    /// Not a response of RFC 9112.
    #[error("malformed response head: {0}")]
    Malformed(&'static str),
    #[error("response head too large")]
    TooLarge,
    #[error("too many field lines in the response")]
    TooManyFields,
}

/// The framing of a response body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseLength {
    /// This many bytes; 0 where there can be no body.
    Known(u64),
    /// Chunked transfer coding.
    Chunked,
    /// All bytes until the server closes: a body that was cut cannot be told from a complete one.
    UntilClose,
}

/// A complete response head. It owns the buffer it was read into.
#[derive(Debug)]
pub struct ResponseHead {
    version: Version,
    status: u16,
    reason: BufferRange,
    fields: Fields,
}

impl ResponseHead {
    /// Parses the head at the start of `buffer`. `Ok(None)` means more bytes are needed; nothing has changed then. On
    /// success the head owns `buffer`'s memory, and `buffer` has the bytes after the head.
    ///
    /// # Errors
    /// [`ResponseHeadError`] if no further byte can make this a valid response.
    pub fn parse(buffer: &mut Vec<u8>, limits: &ResponseLimits) -> Result<Option<Self>, ResponseHeadError> {
        let mut lines = vec![MaybeUninit::uninit(); limits.fields];
        let mut fields = Fields::new();
        let Some((version, status, reason, length)) = split(buffer, &mut lines, &mut fields)? else {
            return if buffer.len() > limits.head {
                Err(ResponseHeadError::TooLarge)
            } else {
                Ok(None)
            };
        };
        if length > limits.head {
            return Err(ResponseHeadError::TooLarge);
        }
        let rest = buffer[length..].to_vec();
        buffer.truncate(length);
        fields.over(std::mem::replace(buffer, rest));
        Ok(Some(Self {
            version,
            status,
            reason,
            fields,
        }))
    }

    /// The head of an HTTP/2 response.
    pub(crate) fn of_http2(status: u16, fields: Fields) -> Self {
        Self {
            version: Version::Http2,
            status,
            reason: BufferRange::default(),
            fields,
        }
    }

    /// The memory of this head, for the next one.
    #[must_use]
    pub fn into_storage(self) -> Fields {
        self.fields
    }

    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// 100 to 999.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The reason phrase as the server wrote it; it may be empty.
    #[must_use]
    pub fn reason(&self) -> &[u8] {
        self.reason.of(self.fields.buffer())
    }

    #[must_use]
    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// True if another head follows this one (RFC 9110 §15.2). 101 ends HTTP/1.1 and is final.
    #[must_use]
    pub fn is_interim(&self) -> bool {
        self.status < 200 && self.status != 101
    }

    /// True if the server keeps the connection for another exchange (RFC 9112 §9.3).
    #[must_use]
    pub fn keeps_alive(&self) -> bool {
        keeps_alive(self.version, &self.fields)
    }

    /// The value of Content-Length, if the field is present.
    ///
    /// # Errors
    /// [`FramingError`] if there is any doubt.
    pub fn content_length(&self) -> Result<Option<u64>, FramingError> {
        match self.fields.known(Known::ContentLength) {
            None => Ok(None),
            Some(_) => self.length_field().map(Some),
        }
    }

    /// The framing of the body that answers a request of `method` over HTTP/1 (RFC 9112 §6.3).
    ///
    /// # Errors
    /// [`FramingError`] if there is any doubt.
    pub fn body_length(&self, method: Method) -> Result<ResponseLength, FramingError> {
        if method == Method::Head || is_bodiless(self.status) {
            return Ok(ResponseLength::Known(0));
        }
        let has_length = self.fields.contains("content-length");
        match self.fields.known(Known::TransferEncoding) {
            None if has_length => self.length_field().map(ResponseLength::Known),
            None => Ok(ResponseLength::UntilClose),
            Some(_) if has_length => Err(FramingError::Ambiguous("Transfer-Encoding beside Content-Length")),
            Some(_) if self.version == Version::Http10 => Err(FramingError::Ambiguous("Transfer-Encoding in HTTP/1.0")),
            Some(_) if self.fields.is_repeated(Known::TransferEncoding) => {
                Err(FramingError::Ambiguous("more than one Transfer-Encoding"))
            }
            Some(coding) if coding.eq_ignore_ascii_case(b"chunked") => Ok(ResponseLength::Chunked),
            Some(_) => Err(FramingError::UnknownCoding),
        }
    }

    /// RFC 9110 §8.6: a repeated length is one length if all its values are the same.
    fn length_field(&self) -> Result<u64, FramingError> {
        let mut agreed = None;
        for value in self.fields.get_all("content-length") {
            if value.first() == Some(&b',') || value.last() == Some(&b',') {
                return Err(FramingError::Ambiguous("bad Content-Length"));
            }
            for member in tokens(value) {
                let length = content_length(member)?;
                if *agreed.get_or_insert(length) != length {
                    return Err(FramingError::Ambiguous("two different Content-Lengths"));
                }
            }
        }
        agreed.ok_or(FramingError::Ambiguous("bad Content-Length"))
    }
}

type Split = (Version, u16, BufferRange, usize);

/// Lets httparse find the lines. `Ok(None)` means the head is not complete.
fn split<'b>(
    buffer: &'b [u8],
    lines: &mut [MaybeUninit<httparse::Header<'b>>],
    fields: &mut Fields,
) -> Result<Option<Split>, ResponseHeadError> {
    let mut response = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(&mut response, buffer, lines);
    let length = match parsed {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(ResponseHeadError::TooManyFields),
        Err(httparse::Error::HeaderName) => return Err(ResponseHeadError::Malformed("bad field name")),
        Err(httparse::Error::HeaderValue) => return Err(ResponseHeadError::Malformed("bad field value")),
        Err(_) => return Err(ResponseHeadError::Malformed("bad status line or line end")),
    };
    let (Some(version), Some(status), Some(reason)) = (response.version, response.code, response.reason) else {
        return Err(ResponseHeadError::Malformed("bad status line"));
    };
    if !(100..1000).contains(&status) {
        return Err(ResponseHeadError::Malformed("status below 100"));
    }
    for line in response.headers.iter() {
        fields.push_part_of(buffer, line.name.as_bytes(), line.value.trim_ascii());
    }
    let version = if version == 0 { Version::Http10 } else { Version::Http11 };
    // httparse gives an empty phrase of its own where the line has none, or has bytes beyond ASCII.
    let reason = if reason.is_empty() {
        BufferRange::default()
    } else {
        BufferRange::within(buffer, reason.as_bytes())
    };
    Ok(Some((version, status, reason, length)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<Option<ResponseHead>, ResponseHeadError> {
        ResponseHead::parse(&mut text.as_bytes().to_vec(), &ResponseLimits::default())
    }

    fn head(status_line: &str, lines: &[&str]) -> ResponseHead {
        let mut text = format!("{status_line}\r\n");
        for line in lines {
            text.push_str(line);
            text.push_str("\r\n");
        }
        text.push_str("\r\n");
        parse(&text).expect("a good head").expect("a complete head")
    }

    fn length(lines: &[&str]) -> Result<ResponseLength, FramingError> {
        head("HTTP/1.1 200 OK", lines).body_length(Method::Get)
    }

    #[test]
    fn status_reason_and_fields_are_read_and_the_rest_is_left() {
        let mut buffer = b"HTTP/1.1 206 Partial Content\r\nETag: \"a\"\r\n\r\nbody".to_vec();
        let head = ResponseHead::parse(&mut buffer, &ResponseLimits::default())
            .expect("a good head")
            .expect("a complete head");
        assert_eq!((head.status(), head.reason()), (206, &b"Partial Content"[..]));
        assert_eq!(head.fields().get("etag"), Some(&b"\"a\""[..]));
        assert_eq!(buffer, b"body");
    }

    #[test]
    fn a_reason_may_be_missing_and_a_line_may_end_with_lf() {
        assert_eq!(head("HTTP/1.0 404", &[]).reason(), b"");
        assert_eq!(head("HTTP/1.0 200 ", &[]).version(), Version::Http10);
        let head = parse("HTTP/1.1 200 OK\nA: b\n\n").expect("good").expect("complete");
        assert_eq!(head.fields().get("a"), Some(&b"b"[..]));
    }

    #[test]
    fn what_is_no_response_is_refused() {
        for text in [
            "SSH-2.0-OpenSSH_9.2\r\n\r\n",
            "HTTP/2 200 OK\r\n\r\n",
            "HTTP/1.1 OK\r\n\r\n",
            "HTTP/1.1 20 OK\r\n\r\n",
            "HTTP/1.1 099 x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA: \0\r\n\r\n",
        ] {
            assert!(matches!(parse(text), Err(ResponseHeadError::Malformed(_))), "{text:?}");
        }
    }

    #[test]
    fn a_head_has_bounds() {
        let limits = ResponseLimits { head: 100, fields: 2 };
        let parse = |text: String| ResponseHead::parse(&mut text.into_bytes(), &limits).map(|head| head.is_some());
        let long = "x".repeat(100);
        assert_eq!(
            parse(format!("HTTP/1.1 200 OK\r\nA: {long}")),
            Err(ResponseHeadError::TooLarge)
        );
        assert_eq!(
            parse(format!("HTTP/1.1 200 OK\r\nA: {long}\r\n\r\n")),
            Err(ResponseHeadError::TooLarge)
        );
        assert_eq!(
            parse("HTTP/1.1 200 OK\r\nA:1\r\nB:2\r\nC:3\r\n\r\n".to_owned()),
            Err(ResponseHeadError::TooManyFields)
        );
        assert_eq!(parse("HTTP/1.1 200 OK\r\nA:1\r\n\r\n".to_owned()), Ok(true));
    }

    #[test]
    fn the_length_follows_rfc_9112_section_6_3() {
        assert_eq!(length(&["Content-Length: 42"]), Ok(ResponseLength::Known(42)));
        assert_eq!(length(&["Transfer-Encoding: chunked"]), Ok(ResponseLength::Chunked));
        assert_eq!(length(&[]), Ok(ResponseLength::UntilClose));
        for line in [
            "HTTP/1.1 204 No Content",
            "HTTP/1.1 304 Not Modified",
            "HTTP/1.1 103 Early",
        ] {
            let head = head(line, &["Content-Length: 42"]);
            assert_eq!(head.body_length(Method::Get), Ok(ResponseLength::Known(0)), "{line}");
        }
        let head = head("HTTP/1.1 200 OK", &["Content-Length: 42"]);
        assert_eq!(head.body_length(Method::Head), Ok(ResponseLength::Known(0)));
    }

    #[test]
    fn equal_lengths_are_one_length() {
        for lines in [
            &["Content-Length: 5", "Content-Length: 5"][..],
            &["Content-Length: 5, 5"],
        ] {
            assert_eq!(length(lines), Ok(ResponseLength::Known(5)));
        }
    }

    #[test]
    fn a_length_in_doubt_is_an_error() {
        for lines in [
            &["Content-Length: 5", "Content-Length: 6"][..],
            &["Content-Length: 5, 6"],
            &["Content-Length:"],
            &["Content-Length: -1"],
            &["Content-Length: 5,"],
            &["Content-Length: 99999999999999999999"],
            &["Transfer-Encoding: chunked", "Content-Length: 5"],
            &["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"],
            &["Transfer-Encoding: gzip, chunked"],
            &["Transfer-Encoding: identity"],
        ] {
            assert!(length(lines).is_err(), "{lines:?}");
        }
        let old = head("HTTP/1.0 200 OK", &["Transfer-Encoding: chunked"]);
        assert!(old.body_length(Method::Get).is_err());
    }

    #[test]
    fn keep_alive_is_the_rule_of_1_1_and_the_exception_of_1_0() {
        assert!(head("HTTP/1.1 200 OK", &[]).keeps_alive());
        assert!(!head("HTTP/1.1 200 OK", &["Connection: Close"]).keeps_alive());
        assert!(!head("HTTP/1.0 200 OK", &[]).keeps_alive());
        assert!(head("HTTP/1.0 200 OK", &["Connection: keep-alive"]).keeps_alive());
    }

    proptest! {
        #[test]
        fn a_head_is_the_same_however_it_arrives(cut in 0usize..60, status in 100u16..1000) {
            let text = format!("HTTP/1.1 {status} Some Reason\r\nContent-Length: 3\r\nA: b\r\n\r\nabc");
            let mut buffer = text.as_bytes()[..cut.min(text.len())].to_vec();
            let limits = ResponseLimits::default();
            let early = ResponseHead::parse(&mut buffer, &limits).expect("a good beginning");
            let head = match early {
                Some(head) => head,
                None => {
                    buffer.extend_from_slice(&text.as_bytes()[cut.min(text.len())..]);
                    ResponseHead::parse(&mut buffer, &limits).expect("good").expect("complete")
                }
            };
            prop_assert_eq!(head.status(), status);
            prop_assert_eq!(head.fields().len(), 2);
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut buffer = [b"HTTP/1.1 200 OK\r\n".to_vec(), bytes].concat();
            if let Ok(Some(head)) = ResponseHead::parse(&mut buffer, &ResponseLimits::default()) {
                let _ = head.body_length(Method::Get);
            }
        }
    }
}
