//! A body between a fast source and a slow client.
//!
//! A task takes the body from its source as fast as that makes it, into memory first and then into a file without a name,
//! and the worker is free. What a script passes on in long pieces stays in the kernel's memory, in a pipe. The client gets
//! it at its own pace, the file part by sendfile(2). Only when all budgets are used up does the source wait for the client.

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
use super::transfer::{Uncoded, SpoolWriter, Transfer};

/// What a spool may use.
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
    /// Bytes of the whole body, if they are known.
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

    /// A body that goes out as it comes; its program runs for as long as the client listens.
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

    /// A body that is to become a file as a whole: [`Spool::complete`] waits for that.
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

    /// Waits for the end of the body, or until there is no room for the rest of it.
    ///
    /// # Errors
    /// The source broke off, or ended short of the length it had announced.
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

    /// Bytes that came so far and nobody took yet.
    pub(crate) fn waiting(&self) -> u64 {
        self.queue.borrow().waiting()
    }
}

/// What waiting for a body came to.
#[derive(Debug)]
pub(crate) enum Completed {
    /// All of it.
    File(Arc<OpenFile>),
    /// All of it, in several places.
    Pieces(Spool),
    /// The rest is still to come.
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
    /// The rest of a body without a reader is taken and thrown away: a worker that still runs must not count as free. The
    /// script of an event stream would never end so; it learns from its connection.
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
    /// However the task ends, the client is not left waiting.
    fn drop(&mut self) {
        self.busy
            .store(self.source.worker_time().as_micros() as u64, Ordering::Relaxed);
        self.source.log_stderr();
        self.queue.borrow_mut().finish(Err(BrokenBody {
            reason: Reason::Aborted,
        }));
    }
}

/// Takes the rest of a body without a reader, at most [`MOST_ABANDONED`] bytes.
///
/// # Errors
/// The source broke off.
pub(crate) async fn discard(source: &mut impl BodySource) -> Result<(), BrokenBody> {
    let mut left = MOST_ABANDONED as u64;
    while let Some(piece) = poll_fn(|context| source.poll_piece(context)).await? {
        left = left.saturating_sub(piece.len());
        if left == 0 {
            break;
        }
    }
    Ok(())
}
