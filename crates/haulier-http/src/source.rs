//! Where the pieces of a body come from.

use crate::Reason;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use haulier_proto::copy;
use haulier_proto::field::Fields;

use crate::backend::BackendError;
use crate::file::FileSlice;
use crate::pipe::PipeSlice;

/// A body that comes in pieces, once the head of its message is known.
///
/// A worker of PHP, an upstream server, a store, a file that is coded and a spool fill it alike; the spool, the coder and
/// the protocols read it without knowing which of them it is. A source that is dropped before its end learns that way
/// that its reader has gone.
pub trait BodySource: std::fmt::Debug {
    /// The next piece; `Ok(None)` is the end.
    ///
    /// # Errors
    /// The source failed: the connection must be cut, or the client would take a part for the whole.
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Piece>, BrokenBody>>;

    /// The same, but content that this process has not read yet may go to `into`, so that it is not copied on its way.
    ///
    /// # Errors
    /// As for [`poll_piece`](Self::poll_piece).
    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        into: ReadInto<'_>,
    ) -> Poll<Result<Option<ReadPiece>, BrokenBody>> {
        let _ = into;
        self.poll_piece(context).map_ok(|piece| piece.map(ReadPiece::Piece))
    }

    /// The next piece if it is there already.
    ///
    /// # Errors
    /// As for [`poll_piece`](Self::poll_piece).
    fn try_piece(&mut self) -> Poll<Result<Option<Piece>, BrokenBody>> {
        self.poll_piece(&mut Context::from_waker(Waker::noop()))
    }

    /// The whole length in bytes, if known.
    fn length(&self) -> Option<u64>;

    /// Bytes of the body that are certain to come next: the rest of a piece that the source has begun to send.
    fn coming(&self) -> usize {
        0
    }

    /// Whether the next pieces are long, and worth a pipe: [`poll_read`](Self::poll_read) moves them there.
    fn is_worth_a_pipe(&self) -> bool {
        false
    }

    /// Whether it goes on for as long as the client listens (an event stream): a client that closes its side is gone.
    fn is_endless(&self) -> bool {
        false
    }

    /// Field lines after the body (RFC 9110 §6.5), known once its end has come. Only a body of unknown length has a place
    /// for them in every protocol.
    fn trailers(&self) -> Option<Fields> {
        None
    }

    /// The time that a worker or a server has spent on it so far.
    fn worker_time(&self) -> Duration {
        Duration::ZERO
    }

    /// The full error after [`BrokenBody`], once.
    fn take_error(&mut self) -> Option<BackendError> {
        None
    }

    /// What its program wrote to the error log since the last call.
    fn take_stderr(&mut self) -> Vec<u8> {
        Vec::new()
    }

    /// Logs what its program wrote to the error log since the last call, with the request it belongs to.
    fn log_stderr(&mut self) {}
}

/// A source on the heap: what passes it on moves one pointer.
impl<S: BodySource> BodySource for Box<S> {
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Piece>, BrokenBody>> {
        (**self).poll_piece(context)
    }

    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        into: ReadInto<'_>,
    ) -> Poll<Result<Option<ReadPiece>, BrokenBody>> {
        (**self).poll_read(context, into)
    }

    fn try_piece(&mut self) -> Poll<Result<Option<Piece>, BrokenBody>> {
        (**self).try_piece()
    }

    fn length(&self) -> Option<u64> {
        (**self).length()
    }

    fn coming(&self) -> usize {
        (**self).coming()
    }

    fn is_worth_a_pipe(&self) -> bool {
        (**self).is_worth_a_pipe()
    }

    fn is_endless(&self) -> bool {
        (**self).is_endless()
    }

    fn trailers(&self) -> Option<Fields> {
        (**self).trailers()
    }

    fn worker_time(&self) -> Duration {
        (**self).worker_time()
    }

    fn take_error(&mut self) -> Option<BackendError> {
        (**self).take_error()
    }

    fn take_stderr(&mut self) -> Vec<u8> {
        (**self).take_stderr()
    }

    fn log_stderr(&mut self) {
        (**self).log_stderr();
    }
}

/// Where content of a body may go at once.
#[derive(Debug)]
pub enum ReadInto<'p> {
    /// To the end of this memory.
    Memory(&'p mut Vec<u8>),
    /// Into a pipe, without a copy, if it is long.
    Pipe {
        /// The end that is written to.
        end: BorrowedFd<'p>,
        /// Most bytes it may be given, at least one.
        most: usize,
    },
}

/// What a read with a place brought.
#[derive(Debug)]
pub enum ReadPiece {
    /// A piece, as without a place.
    Piece(Piece),
    /// This number of bytes, which are in their place.
    Placed(usize),
}

/// One piece of a body.
#[derive(Debug)]
pub enum Piece {
    Bytes(Bytes),
    File(FileSlice),
    Pipe(PipeSlice),
}

impl Piece {
    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(slice) => slice.len(),
            Self::Pipe(slice) => slice.len(),
        }
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends its bytes to `memory`. Blocks if they are on the disk only.
    ///
    /// # Errors
    /// What the system says of the file, or of the pipe.
    pub fn read_to(self, memory: &mut Vec<u8>) -> io::Result<()> {
        let start = memory.len();
        match self {
            Self::Bytes(bytes) => copy::append(memory, &bytes),
            Self::File(slice) => {
                memory.resize(start + slice.len() as usize, 0);
                slice
                    .file
                    .file()
                    .read_exact_at(&mut memory[start..], slice.range.start)?;
            }
            Self::Pipe(mut slice) => {
                let mut end = start;
                memory.resize(start + slice.len() as usize, 0);
                while !slice.is_empty() {
                    end += slice.read(&mut memory[end..])?;
                }
            }
        }
        Ok(())
    }

    /// Drops everything after the first `most` bytes.
    pub fn truncate(&mut self, most: u64) {
        match self {
            Self::Bytes(bytes) => bytes.truncate(usize::try_from(most).unwrap_or(usize::MAX)),
            Self::File(slice) => slice.range.end = slice.range.end.min(slice.range.start.saturating_add(most)),
            Self::Pipe(slice) => slice.truncate(most),
        }
    }
}

/// The source of a body failed before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("body broke off: {reason}")]
pub struct BrokenBody {
    /// Out of the list of reasons a 5xx may have.
    pub reason: Reason,
}
