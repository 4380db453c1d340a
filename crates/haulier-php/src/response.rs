//! A response whose head has arrived and whose body is being received.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use haulier_http::{BrokenBody, Piece, ReadInto, ReadPiece};
use haulier_proto::fastcgi::CgiHead;
use tokio::time::Sleep;

use crate::background::BackgroundScript;
use crate::error::PoolError;
use crate::fastcgi_exchange::FastCgiExchange;
use crate::lease::Lease;
use crate::stderr::log_late_stderr;

/// A response of PHP. Its worker is free once END_REQUEST has arrived. Dropping the response earlier closes the
/// connection, and the script runs until its next write. A script that has announced that its response is complete
/// keeps its worker until it ends, even if the response is dropped.
pub struct Response {
    /// Status and fields.
    pub head: CgiHead,
    pub(crate) exchange: FastCgiExchange,
    /// `None` once the worker was given back.
    pub(crate) lease: Option<Lease>,
    /// Label of the request; empty if the response is complete.
    pub(crate) label: String,
    pub(crate) queued: Duration,
    pub(crate) taken: Instant,
    pub(crate) worker_time: Option<Duration>,
    /// Timeout between two pieces of the body; `None` if there is no limit.
    pub(crate) silence: Option<Silence>,
    pub(crate) pid: Option<u32>,
    /// Length of the body in bytes, if the head states it.
    pub(crate) length: Option<u64>,
    /// The error that ended the body, until the reader takes it.
    pub(crate) error: Option<PoolError>,
}

/// The timeout of PHP's silence within a body. No timer runs while bytes arrive.
pub(crate) struct Silence {
    limit: Duration,
    heard: Instant,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Silence {
    pub(crate) fn new(limit: Duration) -> Self {
        Self {
            limit,
            heard: Instant::now(),
            timer: None,
        }
    }

    /// Ready once the timeout has expired.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let end = tokio::time::Instant::from_std(self.heard + self.limit);
            let timer = self
                .timer
                .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(end)));
            std::task::ready!(timer.as_mut().poll(cx));
            // Bytes may have arrived since the timer was set.
            if self.heard.elapsed() >= self.limit {
                return Poll::Ready(());
            }
            timer.as_mut().reset(end);
        }
    }
}

fn reborrow<'s>(place: &'s mut Option<ReadInto<'_>>) -> Option<ReadInto<'s>> {
    place.as_mut().map(|place| match place {
        ReadInto::Memory(memory) => ReadInto::Memory(memory),
        ReadInto::Pipe { end, most } => ReadInto::Pipe { end: *end, most: *most },
    })
}

impl std::fmt::Debug for Response {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Response")
            .field("head", &self.head)
            .field("pid", &self.pid)
            .field("complete", &self.lease.is_none())
            .finish_non_exhaustive()
    }
}

impl Response {
    /// Time that the request waited for a worker.
    pub fn queued(&self) -> Duration {
        self.queued
    }

    /// The time of the lease.
    pub fn taken(&self) -> Instant {
        self.taken
    }

    /// Time from the lease to END_REQUEST or the end of the response, or to now.
    pub fn worker_time(&self) -> Duration {
        self.worker_time.unwrap_or_else(|| self.taken.elapsed())
    }

    /// Process id of the worker; `None` for an external server, or if the system does not report it.
    pub fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// The next piece of the body, as PHP sends it; `None` at its end.
    ///
    /// # Errors
    /// `Timeout` after a long silence, `Crashed` if the worker closes the connection, `BadResponse` if its records are
    /// malformed, `Stopped` if the pool ended it.
    pub async fn piece(&mut self) -> Result<Option<Piece>, PoolError> {
        poll_fn(|cx| self.poll_any_piece(cx)).await
    }

    pub(crate) fn poll_any_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Piece>, PoolError>> {
        self.poll_next(cx, None).map_ok(|next| match next? {
            ReadPiece::Piece(piece) => Some(piece),
            ReadPiece::Placed(_) => unreachable!("there was no place"),
        })
    }

    /// True if the rest of the body probably comes in long records from a process on this machine: a pipe saves a copy
    /// then.
    pub(crate) fn has_long_pieces(&self) -> bool {
        let can_splice = |lease: &Lease| lease.connection().can_splice();
        self.exchange.is_in_long_body() && self.lease.as_ref().is_some_and(can_splice)
    }

    /// The next piece of the body; `None` is the end. Content that is not read yet goes to `place` without a copy, if
    /// that is given.
    pub(crate) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        mut place: Option<ReadInto<'_>>,
    ) -> Poll<Result<Option<ReadPiece>, PoolError>> {
        loop {
            if let Some(piece) = self.exchange.take_body() {
                return Poll::Ready(Ok(Some(ReadPiece::Piece(piece))));
            }
            let Some(lease) = &mut self.lease else {
                return Poll::Ready(Ok(None));
            };
            match self.exchange.poll_step(cx, lease.connection(), reborrow(&mut place)) {
                Poll::Ready(Ok(placed)) => {
                    if let Some(silence) = &mut self.silence {
                        silence.heard = Instant::now();
                    }
                    self.settle();
                    if placed > 0 {
                        return Poll::Ready(Ok(Some(ReadPiece::Placed(placed))));
                    }
                }
                Poll::Ready(Err(failure)) => {
                    let lease = self.lease.take().expect("it was there a line above");
                    return Poll::Ready(Err(lease.give_up(failure, &self.exchange.take_stderr(), &self.label)));
                }
                Poll::Pending => {
                    let Some(silence) = &mut self.silence else {
                        return Poll::Pending;
                    };
                    std::task::ready!(silence.poll(cx));
                    let (lease, limit) = (self.lease.take().expect("it was there above"), silence.limit);
                    return Poll::Ready(Err(lease.time_out(limit, &self.exchange.take_stderr(), &self.label)));
                }
            }
        }
    }

    /// Keeps the error for [`take_error`](BodySource::take_error), and returns its reason.
    pub(crate) fn break_off(&mut self, error: PoolError) -> BrokenBody {
        let reason = error.reason();
        self.error = Some(error);
        BrokenBody { reason }
    }

    /// Returns the worker after END_REQUEST, or leaves it to a script that continues after its response.
    pub(crate) fn settle(&mut self) {
        if !self.exchange.is_complete() && !self.exchange.is_finished() {
            return;
        }
        let Some(lease) = self.lease.take() else { return };
        self.worker_time = Some(self.taken.elapsed());
        if self.exchange.is_complete() {
            lease.finish(&self.exchange);
        } else {
            BackgroundScript::start(self.exchange.split_off(), lease, self.label.clone());
        }
    }

    /// STDERR of the script since the last call, at most 64 KiB.
    pub fn take_stderr(&mut self) -> Vec<u8> {
        self.exchange.take_stderr()
    }

    /// Logs STDERR of the script since the last call, with its request; for output after the head was passed on.
    pub fn log_stderr(&mut self) {
        log_late_stderr(self.pid, &self.label, &self.exchange.take_stderr());
    }
}
