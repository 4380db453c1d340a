//! What to send. The protocol's writer picks the system call.

use std::collections::VecDeque;
use std::task::{Context, Poll};

use bytes::Bytes;
use haulier_proto::field::Fields;

use crate::file::FileSlice;
use crate::pipe::PipeSlice;

/// The body of a response.
#[derive(Debug, Default)]
pub enum Body {
    #[default]
    Empty,
    /// The body a GET would have got, where PHP itself leaves it out for HEAD; its length, if PHP said so.
    Unsent(Option<u64>),
    Bytes(Bytes),
    /// Part of a file; plain connections send it by sendfile(2).
    File(FileSlice),
    /// Pieces that come one after the other.
    Stream(Box<dyn BodyStream>),
}

impl Body {
    /// Its length, if it is known before the last byte is there.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        match self {
            Self::Empty => Some(0),
            Self::Unsent(length) => *length,
            Self::Bytes(bytes) => Some(bytes.len() as u64),
            Self::File(slice) => Some(slice.len()),
            Self::Stream(stream) => stream.length(),
        }
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        if bytes.is_empty() {
            Self::Empty
        } else {
            Self::Bytes(bytes)
        }
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        text.into_bytes().into()
    }
}

impl From<FileSlice> for Body {
    fn from(slice: FileSlice) -> Self {
        if slice.is_empty() {
            Self::Empty
        } else {
            Self::File(slice)
        }
    }
}

/// One piece of a streamed body.
#[derive(Debug)]
pub enum Chunk {
    Bytes(Bytes),
    File(FileSlice),
    Pipe(PipeSlice),
}

impl Chunk {
    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(slice) => slice.len(),
            Self::Pipe(slice) => slice.len(),
        }
    }

    /// Whether nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops what is beyond the first `most` bytes.
    pub fn truncate(&mut self, most: u64) {
        match self {
            Self::Bytes(bytes) => bytes.truncate(usize::try_from(most).unwrap_or(usize::MAX)),
            Self::File(slice) => slice.range.end = slice.range.end.min(slice.range.start.saturating_add(most)),
            Self::Pipe(slice) => slice.truncate(most),
        }
    }
}

/// A body that comes in pieces. Dropping it tells the source that nobody reads any more.
pub trait BodyStream: std::fmt::Debug {
    /// The next piece; `Ok(None)` is the end.
    ///
    /// # Errors
    /// The source failed: the connection must be cut, or the client would take a part for the whole.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Chunk>, BrokenBody>>;

    /// The whole length in bytes, if known.
    fn length(&self) -> Option<u64>;

    /// Whether it goes on for as long as somebody listens (an event stream): a client that closes its side is gone.
    fn is_endless(&self) -> bool {
        false
    }

    /// Field lines behind the body (RFC 9110 §6.5), to be asked for once its end has come. Only a body whose length
    /// nobody announced has a place for them in every protocol.
    fn trailers(&self) -> Option<Fields> {
        None
    }
}

/// The source of a body failed before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("body broke off: {reason}")]
pub struct BrokenBody {
    /// Out of the list of reasons a 5xx may have.
    pub reason: &'static str,
}

/// Pieces that are all there: the parts of a multipart/byteranges answer.
#[derive(Debug, Default)]
pub struct Parts {
    pieces: VecDeque<Chunk>,
    length: u64,
}

impl Parts {
    /// Adds a piece at the end.
    pub fn push(&mut self, piece: Chunk) {
        self.length += piece.len();
        self.pieces.push_back(piece);
    }
}

impl BodyStream for Parts {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Result<Option<Chunk>, BrokenBody>> {
        Poll::Ready(Ok(self.pieces.pop_front()))
    }

    fn length(&self) -> Option<u64> {
        Some(self.length)
    }
}
