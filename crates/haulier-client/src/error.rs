//! Errors of an exchange, and whether a repetition may help.

use std::io;
use std::time::Duration;

use haulier_proto::chunked::ChunkError;
use haulier_proto::framing::FramingError;
use haulier_proto::h2::client::StreamError;
use haulier_proto::h2::error::ConnectionError;
use haulier_proto::response_head::ResponseHeadError;

use crate::url::UrlError;

/// The step that a timeout ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeoutPhase {
    Connect,
    FirstByte,
    Body,
}

impl TimeoutPhase {
    fn words(self) -> &'static str {
        match self {
            Self::Connect => "connection",
            Self::FirstByte => "answer",
            Self::Body => "more of the body",
        }
    }
}

/// The failure of an exchange.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("cannot resolve {host}")]
    Resolve { host: String, source: io::Error },
    #[error("cannot connect to {to}")]
    Connect { to: String, source: io::Error },
    /// The proxy answered CONNECT with this status.
    #[error("the proxy refused the connection with status {status}")]
    Proxy { status: u16 },
    #[error("TLS with {host} failed")]
    Tls { host: String, source: io::Error },
    #[error("no {} within {} s", phase.words(), waited.as_secs_f64())]
    TimedOut { phase: TimeoutPhase, waited: Duration },
    /// The connection broke or ended before a byte of the response arrived: a safe request may be repeated on another
    /// one (RFC 9112 §9.3.1).
    #[error("the connection broke before the server answered")]
    Unanswered(#[source] io::Error),
    /// The connection broke or ended within a response.
    #[error("the connection broke")]
    Broken(#[source] io::Error),
    /// The source of the request's body failed, or gave another length than announced.
    #[error("the request's body could not be sent")]
    RequestBody(#[source] io::Error),
    /// The server closed before the end that the framing announced.
    #[error("the body ended after {received} of {expected} bytes")]
    ShortBody { received: u64, expected: u64 },
    #[error("the chunked body ended without its last chunk")]
    NoLastChunk,
    #[error("the response is not valid HTTP")]
    Head(#[from] ResponseHeadError),
    #[error("the length of the response is ambiguous")]
    Framing(#[from] FramingError),
    #[error("the chunked body is malformed")]
    Chunk(#[from] ChunkError),
    /// The HTTP/2 stream failed.
    #[error("the HTTP/2 stream failed")]
    Stream(#[source] StreamError),
    /// The server broke the rules of HTTP/2.
    #[error("the server broke the HTTP/2 protocol")]
    Http2(#[from] ConnectionError),
    #[error("the body cannot be decoded: {0}")]
    Decode(&'static str),
    #[error("more than {0} redirects")]
    TooManyRedirects(usize),
    #[error("the redirect has no valid address")]
    BadRedirect(#[source] UrlError),
    #[error("a redirect from https to http was refused")]
    InsecureRedirect,
}

impl From<StreamError> for ClientError {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::Short { received, expected } => Self::ShortBody { received, expected },
            StreamError::Head(error) => Self::Head(error),
            StreamError::Framing(error) => Self::Framing(error),
            other => Self::Stream(other),
        }
    }
}

impl ClientError {
    /// True if the same request may succeed a little later. A fault in the server's messages is likely to come again.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Resolve { .. }
            | Self::Connect { .. }
            | Self::TimedOut { .. }
            | Self::Unanswered(_)
            | Self::Broken(_)
            | Self::ShortBody { .. }
            | Self::NoLastChunk
            | Self::Chunk(_) => true,
            Self::Stream(why) => matches!(why, StreamError::Reset(_) | StreamError::Unprocessed),
            Self::Proxy { status } => matches!(status, 429 | 500..=599),
            Self::Tls { source, .. } => source.kind() == io::ErrorKind::UnexpectedEof,
            Self::Head(_)
            | Self::Framing(_)
            | Self::Http2(_)
            | Self::RequestBody(_)
            | Self::Decode(_)
            | Self::TooManyRedirects(_)
            | Self::BadRedirect(_)
            | Self::InsecureRedirect => false,
        }
    }
}
