//! Bodies whose first pieces were taken already.

use std::collections::VecDeque;
use std::task::{Context, Poll};
use std::time::Duration;

use haulier_http::{BackendError, BodySource, BrokenBody, Piece, ReadInto, ReadPiece};
use haulier_proto::field::Fields;

/// A body with its first pieces put back.
#[derive(Debug)]
pub(crate) struct Resumed<S> {
    ahead: VecDeque<Piece>,
    source: S,
}

impl<S: BodySource> Resumed<S> {
    pub(crate) fn new(ahead: Vec<Piece>, source: S) -> Self {
        Self {
            ahead: ahead.into(),
            source,
        }
    }
}

impl<S: BodySource> BodySource for Resumed<S> {
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Piece>, BrokenBody>> {
        match self.ahead.pop_front() {
            Some(piece) => Poll::Ready(Ok(Some(piece))),
            None => self.source.poll_piece(context),
        }
    }

    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        into: ReadInto<'_>,
    ) -> Poll<Result<Option<ReadPiece>, BrokenBody>> {
        match self.ahead.pop_front() {
            Some(piece) => Poll::Ready(Ok(Some(ReadPiece::Piece(piece)))),
            None => self.source.poll_read(context, into),
        }
    }

    fn length(&self) -> Option<u64> {
        self.source.length()
    }

    fn coming(&self) -> usize {
        match self.ahead.front() {
            Some(piece) => piece.len() as usize,
            None => self.source.coming(),
        }
    }

    fn is_worth_a_pipe(&self) -> bool {
        self.ahead.is_empty() && self.source.is_worth_a_pipe()
    }

    fn is_endless(&self) -> bool {
        self.source.is_endless()
    }

    fn trailers(&self) -> Option<Fields> {
        self.source.trailers()
    }

    fn worker_time(&self) -> Duration {
        self.source.worker_time()
    }

    fn take_error(&mut self) -> Option<BackendError> {
        self.source.take_error()
    }

    fn take_stderr(&mut self) -> Vec<u8> {
        self.source.take_stderr()
    }

    fn log_stderr(&mut self) {
        self.source.log_stderr();
    }
}
