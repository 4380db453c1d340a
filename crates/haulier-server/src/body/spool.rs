//! A body between a fast source and a slow client.
//!
//! A task reads the source at full speed, first into memory, then into an unnamed file, so that the worker is free.
//! Long pieces of a script stay in the kernel's memory, in a pipe. The client reads at its own pace, the file part by
//! sendfile(2). The source waits for the client only if all budgets are used up.

use std::cell::RefCell;
use std::future::poll_fn;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use haulier_http::{Body, BodySource, BrokenBody, OpenFile, Piece, Reason};
use haulier_proto::field::Fields;
use tokio::task::AbortHandle;

use super::budget::SpoolBudget;
use super::hold::{MOST_ABANDONED, SPOOL_MEMORY};
use super::queue::Queue;
use super::transfer::{SpoolWriter, Transfer, Uncoded};

/// The budget and directory of a spool.
#[derive(Debug, Clone)]
pub(crate) struct SpoolRoom {
    pub(crate) budget: Arc<SpoolBudget>,
    /// Directory of the files.
    pub(crate) directory: PathBuf,
}

/// The client's end of a spooled body.
#[derive(Debug)]
pub(crate) struct Spool {
    queue: Rc<RefCell<Queue>>,
    /// Length of the whole body, if known.
    length: Option<u64>,
    is_endless: bool,
    task: AbortHandle,
}

impl Spool {
    /// A body that is drained from its source while the client reads. `busy` gets the worker's time at the end,
    /// microseconds.
    pub(crate) fn drain(
        room: SpoolRoom,
        source: impl BodySource + 'static,
        transfer: impl Transfer + 'static,
        busy: Arc<AtomicU64>,
    ) -> Self {
        Self::start(Queue::new(room, SPOOL_MEMORY), source, transfer, busy)
    }

    /// An endless body, sent as it comes; its program runs until the client leaves.
    pub(crate) fn live(
        room: SpoolRoom,
        source: impl BodySource + 'static,
        transfer: impl Transfer + 'static,
        busy: Arc<AtomicU64>,
    ) -> Self {
        let mut spool = Self::drain(room, source, transfer, busy);
        spool.is_endless = true;
        spool
    }

    /// A body that is to become one file; [`Spool::complete`] waits for it.
    pub(crate) fn file(room: SpoolRoom, source: impl BodySource + 'static, busy: Arc<AtomicU64>) -> Self {
        Self::start(Queue::new(room, 0), source, Uncoded, busy)
    }

    fn start<S: BodySource + 'static>(
        queue: Queue,
        source: S,
        transfer: impl Transfer + 'static,
        busy: Arc<AtomicU64>,
    ) -> Self {
        let length = transfer.length(&source);
        let queue = Rc::new(RefCell::new(queue));
        let draining = Draining {
            source,
            busy,
            queue: Rc::clone(&queue),
        };
        let task = tokio::task::spawn_local(draining.run(transfer)).abort_handle();
        Self {
            queue,
            length,
            is_endless: false,
            task,
        }
    }

    /// Waits until the body ends, has no room for its rest, or `timeout` is over.
    ///
    /// # Errors
    /// The source broke off, or ended short of its announced length.
    pub(crate) async fn complete(mut self, timeout: Duration) -> Result<Completed, BrokenBody> {
        let ended = poll_fn(|context| {
            let mut queue = self.queue.borrow_mut();
            if queue.end.is_some() || queue.is_full {
                return Poll::Ready(());
            }
            queue.reader = Some(context.waker().clone());
            Poll::Pending
        });
        let _ = tokio::time::timeout(timeout, ended).await;
        let queue = Rc::clone(&self.queue);
        let mut queue = queue.borrow_mut();
        if let Some(Err(broken)) = queue.end {
            return Err(broken);
        }
        if queue.end.is_none() {
            return Ok(Completed::NotYet(self));
        }
        let came = queue.waiting();
        let length = *self.length.get_or_insert(came);
        if came < length {
            return Err(BrokenBody {
                reason: Reason::BadResponse,
            });
        }
        Ok(match queue.take_file() {
            Some(mut file) => {
                file.truncate(length);
                Completed::File(Arc::new(file))
            }
            None => Completed::Pieces(self),
        })
    }

    /// Bytes that the client has not taken.
    pub(crate) fn waiting(&self) -> u64 {
        self.queue.borrow().waiting()
    }
}

/// The result of waiting for a body.
#[derive(Debug)]
pub(crate) enum Completed {
    /// The whole body.
    File(Arc<OpenFile>),
    /// The whole body, in several places.
    Pieces(Spool),
    /// The first part; the rest is still to come.
    NotYet(Spool),
}

impl From<Spool> for Body {
    fn from(spool: Spool) -> Self {
        Self::Stream(Box::new(spool))
    }
}

impl BodySource for Spool {
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Piece>, BrokenBody>> {
        let mut queue = self.queue.borrow_mut();
        if let Some(piece) = queue.pop() {
            return Poll::Ready(Ok(Some(piece)));
        }
        match queue.end {
            Some(Ok(())) => Poll::Ready(Ok(None)),
            Some(Err(broken)) => Poll::Ready(Err(broken)),
            None => {
                queue.reader = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    fn length(&self) -> Option<u64> {
        self.length
    }

    fn is_endless(&self) -> bool {
        self.is_endless
    }

    fn trailers(&self) -> Option<Fields> {
        self.queue.borrow().trailers.clone()
    }
}

impl Drop for Spool {
    /// Reads and discards the rest, since a worker that still runs must not count as free. The script of an event
    /// stream would never end; it finds its connection closed.
    fn drop(&mut self) {
        if self.is_endless {
            self.task.abort();
        } else {
            self.queue.borrow_mut().abandon();
        }
    }
}

/// The source's end of a spooled body.
struct Draining<S: BodySource> {
    source: S,
    busy: Arc<AtomicU64>,
    queue: Rc<RefCell<Queue>>,
}

impl<S: BodySource> Draining<S> {
    async fn run(mut self, transfer: impl Transfer) {
        let mut spool = SpoolWriter::new(&self.queue);
        let mut end = transfer.run(&mut self.source, &mut spool).await;
        if end.is_ok() && spool.is_abandoned() {
            end = discard(&mut self.source).await;
        }
        if let Some(error) = self.source.take_error() {
            let reason = error.reason.word();
            tracing::error!(reason, %error, "the back end broke off in the middle of a response");
        }
        let mut queue = self.queue.borrow_mut();
        queue.trailers = self.source.trailers();
        queue.finish(end);
    }
}

impl<S: BodySource> Drop for Draining<S> {
    /// Wakes the client even if the task panics.
    fn drop(&mut self) {
        self.busy
            .store(self.source.worker_time().as_micros() as u64, Ordering::Relaxed);
        self.source.log_stderr();
        self.queue.borrow_mut().finish(Err(BrokenBody {
            reason: Reason::Aborted,
        }));
    }
}

/// Reads and discards the rest of a body, at most [`MOST_ABANDONED`] bytes. Files are not read.
///
/// # Errors
/// The source broke off.
pub(crate) async fn discard(source: &mut impl BodySource) -> Result<(), BrokenBody> {
    let mut left = MOST_ABANDONED as u64;
    while let Some(piece) = poll_fn(|context| source.poll_piece(context)).await? {
        if matches!(piece, Piece::File(_)) {
            continue;
        }
        left = left.saturating_sub(piece.len());
        if left == 0 {
            break;
        }
    }
    Ok(())
}
