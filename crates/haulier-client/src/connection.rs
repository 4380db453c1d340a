//! A connection to a server, between exchanges.

use crate::http2::Http2;
use crate::stream::Stream;
use crate::url::Origin;

/// A connection between exchanges.
#[derive(Debug)]
pub struct Connection {
    pub(crate) stream: Stream,
    pub(crate) origin: Origin,
    /// The target is written in full, because a proxy reads it.
    pub(crate) absolute: bool,
    /// Bytes read beyond the last head; of HTTP/2 the frames not taken yet.
    pub(crate) buffer: Vec<u8>,
    pub(crate) http2: Option<Box<Http2>>,
}

impl Connection {
    /// A connection of the version that both ends agreed on, HTTP/1.1 if they did not. `absolute`: the target is
    /// written in full, because a proxy reads it.
    #[must_use]
    pub fn new(stream: Stream, origin: Origin, absolute: bool) -> Self {
        let http2 = stream.has_agreed_on_http2().then(Box::default);
        Self {
            stream,
            origin,
            absolute,
            buffer: Vec::new(),
            http2,
        }
    }

    /// A connection of HTTP/2, whether the ends agreed on it or not (RFC 9113 §3.3).
    #[must_use]
    pub fn http2(stream: Stream, origin: Origin) -> Self {
        Self {
            http2: Some(Box::default()),
            ..Self::new(stream, origin, false)
        }
    }

    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Says whether another exchange may be tried: the server has closed nothing and sent nothing unasked.
    #[must_use]
    pub fn is_reusable(&mut self) -> bool {
        match &mut self.http2 {
            Some(http2) => http2.is_reusable(&mut self.stream, &mut self.buffer),
            None => self.buffer.is_empty() && self.stream.is_quiet(),
        }
    }
}
