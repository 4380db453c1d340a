//! The length of a request body, and the connection after it (RFC 9112 §6, §9.3).
//!
//! A length that two servers could read differently is an error here, and the connection is closed after it, so that no
//! smuggled request is ever executed.

use crate::field::{Fields, Known, tokens};
use crate::head::{RequestHead, Version};

/// The framing of a request body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyLength {
    /// This many bytes; 0 for a request without a body.
    Known(u64),
    /// Chunked transfer coding.
    Chunked,
}

/// A fault in the framing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FramingError {
    /// 400.
    #[error("ambiguous framing: {0}")]
    Ambiguous(&'static str),
    /// RFC 9112 §6.1: an unknown transfer coding, 501.
    #[error("transfer coding other than chunked")]
    UnknownCoding,
}

impl FramingError {
    /// The status that tells the client.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::Ambiguous(_) => 400,
            Self::UnknownCoding => 501,
        }
    }
}

/// The framing of the request's body.
///
/// # Errors
/// [`FramingError`] if there is any doubt: the connection must not be used further.
pub fn body_length(head: &RequestHead) -> Result<BodyLength, FramingError> {
    let fields = head.fields();
    let length = fields.known(Known::ContentLength);
    match (fields.known(Known::TransferEncoding), length) {
        (None, None) => Ok(BodyLength::Known(0)),
        (None, Some(_)) if fields.is_repeated(Known::ContentLength) => {
            Err(FramingError::Ambiguous("more than one Content-Length"))
        }
        (None, Some(length)) => content_length(length).map(BodyLength::Known),
        (Some(_), Some(_)) => Err(FramingError::Ambiguous("Transfer-Encoding beside Content-Length")),
        // RFC 9112 §6.1: Transfer-Encoding in HTTP/1.0 means faulty framing.
        (Some(_), None) if head.version() == Version::Http10 => {
            Err(FramingError::Ambiguous("Transfer-Encoding in HTTP/1.0"))
        }
        (Some(_), None) if fields.is_repeated(Known::TransferEncoding) => {
            Err(FramingError::Ambiguous("more than one Transfer-Encoding"))
        }
        (Some(coding), None) if coding.eq_ignore_ascii_case(b"chunked") => Ok(BodyLength::Chunked),
        (Some(coding), None) => Err(refused_coding(coding)),
    }
}

/// A list of well-formed codings that ends in chunked is merely unknown here; anything else is ambiguous.
fn refused_coding(value: &[u8]) -> FramingError {
    let codings: Vec<&[u8]> = tokens(value).collect();
    let well_formed = codings
        .iter()
        .all(|coding| coding.iter().all(|&byte| crate::field::is_token_byte(byte)));
    let chunked = codings
        .iter()
        .filter(|coding| coding.eq_ignore_ascii_case(b"chunked"))
        .count();
    let ends_in_chunked = codings.last().is_some_and(|last| last.eq_ignore_ascii_case(b"chunked"));
    if well_formed && chunked == 1 && ends_in_chunked && codings.len() > 1 {
        FramingError::UnknownCoding
    } else {
        FramingError::Ambiguous("bad Transfer-Encoding")
    }
}

/// RFC 9110 §8.6: digits only. A list of equal values, which may be accepted there, is refused (RFC 9112 §6.3).
pub(crate) fn content_length(value: &[u8]) -> Result<u64, FramingError> {
    if value.is_empty() || value.len() > 19 || !value.iter().all(u8::is_ascii_digit) {
        return Err(FramingError::Ambiguous("bad Content-Length"));
    }
    // 19 digits stay below 2^64.
    Ok(value.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}

/// True if the client wants to send another request on this connection (RFC 9112 §9.3).
#[must_use]
pub fn wants_keep_alive(head: &RequestHead) -> bool {
    keeps_alive(head.version(), head.fields())
}

/// True if the connection persists by RFC 9112 §9.3, which is the same for both directions.
pub(crate) fn keeps_alive(version: Version, fields: &Fields) -> bool {
    match fields.known(Known::Connection) {
        None => return version == Version::Http11,
        // The one option of most clients.
        Some(b"keep-alive" | b"Keep-Alive") if !fields.is_repeated(Known::Connection) => return true,
        Some(b"close" | b"Close") => return false,
        Some(_) => {}
    }
    let (mut close, mut keep_alive) = (false, false);
    for option in fields.get_all("connection").flat_map(tokens) {
        close |= option.eq_ignore_ascii_case(b"close");
        keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
    }
    !close && (keep_alive || version == Version::Http11)
}

/// The answer that the client expects before it sends the body (RFC 9110 §10.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expectation {
    None,
    Continue,
    /// Something else: 417.
    Unknown,
}

/// Reads the Expect field. HTTP/1.0 clients have none.
#[must_use]
pub fn expectation(head: &RequestHead) -> Expectation {
    match head.fields().known(Known::Expect) {
        Some(value) if head.version() != Version::Http10 => {
            if value.eq_ignore_ascii_case(b"100-continue") && !head.fields().is_repeated(Known::Expect) {
                Expectation::Continue
            } else {
                Expectation::Unknown
            }
        }
        _ => Expectation::None,
    }
}

#[cfg(test)]
mod tests;
