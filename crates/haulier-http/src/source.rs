//! Sources of bodies that come in pieces.

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

/// A body that comes in pieces after the head of its message.
///
/// A PHP worker, an upstream server, a store, a coder and a spool are sources. Spool, coder and protocols read any of
/// them. Dropping a source before its end tells it that its reader has gone.
pub trait BodySource: std::fmt::Debug {
    /// The next piece; `Ok(None)` is the end.
    ///
    /// # Errors
    /// The source failed. The connection must be cut: otherwise the client takes a part for the whole.
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Piece>, BrokenBody>>;

    /// The same, but content that is still in the kernel may go to `into`, which saves a copy.
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

    /// The next piece, if it is available at once.
    ///
    /// # Errors
    /// As for [`poll_piece`](Self::poll_piece).
    fn try_piece(&mut self) -> Poll<Result<Option<Piece>, BrokenBody>> {
        self.poll_piece(&mut Context::from_waker(Waker::noop()))
    }

    /// The whole length in bytes, if known.
    fn length(&self) -> Option<u64>;

    /// Bytes of the body that are certain to follow: the rest of a piece that the source has begun to send.
    fn coming(&self) -> usize {
        0
    }

    /// True if the next pieces are long enough to be moved through a pipe by [`poll_read`](Self::poll_read).
    fn is_worth_a_pipe(&self) -> bool {
        false
    }

    /// True if the body lasts as long as the client listens (an event stream): a client that closes its side is gone.
    fn is_endless(&self) -> bool {
        false
    }

    /// Field lines after the body (RFC 9110 §6.5), known after its end. Only a body of unknown length can carry them in
    /// every protocol.
    fn trailers(&self) -> Option<Fields> {
        None
    }

    /// The time a worker or a server has spent on it so far.
    fn worker_time(&self) -> Duration {
        Duration::ZERO
    }

    /// The full error behind a [`BrokenBody`], once.
    fn take_error(&mut self) -> Option<BackendError> {
        None
    }

    /// The program's error log since the last call.
    fn take_stderr(&mut self) -> Vec<u8> {
        Vec::new()
    }

    /// Logs the program's error log since the last call, with the request it belongs to.
    fn log_stderr(&mut self) {}
}

/// A boxed source: passing it on moves one pointer.
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

/// Destination for content read directly from the kernel.
#[derive(Debug)]
pub enum ReadInto<'p> {
    /// Appended to this memory.
    Memory(&'p mut Vec<u8>),
    /// Moved into a pipe without a copy, if it is long.
    Pipe {
        /// The write end.
        end: BorrowedFd<'p>,
        /// Most bytes to move, at least one.
        most: usize,
    },
}

/// Result of a read with a destination.
#[derive(Debug)]
pub enum ReadPiece {
    /// A piece outside the destination.
    Piece(Piece),
    /// Number of bytes written to the destination.
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

    /// True if it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends its bytes to `memory`. Blocks if they are not in the page cache.
    ///
    /// # Errors
    /// The system's error for the file or the pipe.
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

    /// Drops all bytes after the first `most`.
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
    /// One of the fixed reasons of a 5xx.
    pub reason: Reason,
}
