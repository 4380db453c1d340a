//! The body of a response. The protocol's writer picks the system call for it.

use std::collections::VecDeque;
use std::task::{Context, Poll};

use bytes::Bytes;

use crate::file::FileSlice;
use crate::source::{BodySource, BrokenBody, Piece};

/// The body of a response.
#[derive(Debug, Default)]
pub enum Body {
    #[default]
    Empty,
    /// No body, where a GET would have had one: PHP leaves it out for HEAD. Its length, if PHP announced it.
    Unsent(Option<u64>),
    Bytes(Bytes),
    /// Part of a file; sent by sendfile(2) on unencrypted connections.
    File(FileSlice),
    /// Pieces that follow one another.
    Stream(Box<dyn BodySource>),
}

impl Body {
    /// Its length, if known before the last byte has come.
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

/// Pieces that are complete from the start: the parts of a multipart/byteranges response.
#[derive(Debug, Default)]
pub struct Parts {
    pieces: VecDeque<Piece>,
    length: u64,
}

impl Parts {
    /// Adds a piece at the end.
    pub fn push(&mut self, piece: Piece) {
        self.length += piece.len();
        self.pieces.push_back(piece);
    }
}

impl BodySource for Parts {
    fn poll_piece(&mut self, _: &mut Context<'_>) -> Poll<Result<Option<Piece>, BrokenBody>> {
        Poll::Ready(Ok(self.pieces.pop_front()))
    }

    fn length(&self) -> Option<u64> {
        Some(self.length)
    }
}
