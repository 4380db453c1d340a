//! From a source into the spool, at the speed of the source.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use haulier_http::{BodySource, BrokenBody, ByteBudget, Piece, ReadPiece};

use super::queue::Queue;
use crate::log_throttle::LogThrottle;

/// The transfer of a body into its spool: uncoded, or through a coder.
pub(crate) trait Transfer {
    /// Length of the transferred body, if known before its end.
    fn length(&self, source: &impl BodySource) -> Option<u64>;

    /// Transfers the body to its end, or until its client is gone.
    ///
    /// # Errors
    /// The source broke off, or its content cannot be coded.
    fn run<S: BodySource>(
        self,
        source: &mut S,
        spool: &mut SpoolWriter,
    ) -> impl Future<Output = Result<(), BrokenBody>>;
}

/// The source's end of a spool.
#[derive(Debug)]
pub(crate) struct SpoolWriter {
    queue: Rc<RefCell<Queue>>,
    /// All budgets were used up once.
    was_full: bool,
}

static FULL: LogThrottle = LogThrottle::new();

impl SpoolWriter {
    pub(super) fn new(queue: &Rc<RefCell<Queue>>) -> Self {
        Self {
            queue: Rc::clone(queue),
            was_full: false,
        }
    }

    /// True if the client has gone.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.queue.borrow().is_abandoned
    }

    /// The budget for memory of the transfer itself.
    pub(crate) fn memory(&self) -> Arc<ByteBudget> {
        Arc::clone(&self.queue.borrow().budget.memory)
    }

    /// Stores bytes; waits for the client if the budgets are used up.
    pub(crate) async fn push(&mut self, piece: Bytes) {
        let mut waiting = Some(piece);
        poll_fn(|context| {
            let mut queue = self.queue.borrow_mut();
            let Some(piece) = waiting.take().filter(|_| !queue.is_abandoned) else {
                return Poll::Ready(());
            };
            match queue.push(piece) {
                Ok(()) => Poll::Ready(()),
                Err(piece) if queue.is_empty() => {
                    queue.push_over_budget(piece);
                    Poll::Ready(())
                }
                Err(piece) => {
                    waiting = Some(piece);
                    note_full(&queue, &mut self.was_full);
                    queue.is_full = true;
                    queue.wake_reader();
                    queue.writer = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await;
    }

    /// Polls the next piece of a source. Long content goes into the pipe of the spool and is part of it then.
    fn poll_into_pipe(
        &self,
        source: &mut impl BodySource,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<ReadPiece>, BrokenBody>> {
        let mut queue = self.queue.borrow_mut();
        let in_pieces = |source: &mut _, context: &mut _| {
            BodySource::poll_piece(source, context).map_ok(|piece| piece.map(ReadPiece::Piece))
        };
        let Some(pipe) = queue.pipe() else {
            return in_pieces(source, context);
        };
        let filled = pipe.fill(|place| {
            let read = source.poll_read(context, place);
            let piped = match &read {
                Poll::Ready(Ok(Some(ReadPiece::Placed(length)))) => {
                    queue.append_piped(&pipe, *length as u64);
                    *length
                }
                Poll::Ready(Ok(Some(ReadPiece::Piece(_)))) => {
                    pipe.note_full();
                    0
                }
                _ => 0,
            };
            (read, piped)
        });
        filled.unwrap_or_else(|| in_pieces(source, context))
    }
}

fn note_full(queue: &Queue, was_full: &mut bool) {
    if std::mem::replace(was_full, true) {
        return;
    }
    queue.budget.note_full();
    if let Some(times) = FULL.due() {
        let site = &queue.budget.site;
        tracing::warn!(site, times, "spool_full: the back end waits for a slow client");
    }
}

/// The body as the source sends it. Long pieces stay in the kernel.
#[derive(Debug)]
pub(crate) struct Uncoded;

impl Transfer for Uncoded {
    fn length(&self, source: &impl BodySource) -> Option<u64> {
        source.length()
    }

    async fn run<S: BodySource>(self, source: &mut S, spool: &mut SpoolWriter) -> Result<(), BrokenBody> {
        while !spool.is_abandoned() {
            let next = if source.is_worth_a_pipe() {
                poll_fn(|context| spool.poll_into_pipe(source, context)).await?
            } else {
                let piece = poll_fn(|context| source.poll_piece(context)).await?;
                piece.map(ReadPiece::Piece)
            };
            match next {
                Some(ReadPiece::Piece(Piece::Bytes(piece))) => spool.push(piece).await,
                Some(ReadPiece::Piece(piece)) => spool.queue.borrow_mut().push_as_it_is(piece),
                Some(ReadPiece::Placed(_)) => {}
                None => return Ok(()),
            }
        }
        Ok(())
    }
}
