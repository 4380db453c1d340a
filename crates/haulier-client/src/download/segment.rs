//! One worker: requests its range, checks the response, and writes the bytes to their place in the file.
//!
//! On a plain connection the kernel splices the bytes from the socket through a pipe into the file.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use rustix::pipe::SpliceFlags;

use super::error::DownloadError;
use super::job::DownloadJob;
use super::plan::{DownloadPlan, Requested, decide};
use super::ranges::MOVE;
use super::validators::Validators;
use crate::exchange::Exchange;
use crate::request::Request;
use crate::retry;
use crate::stream::wide_pipe;

/// Bytes that a worker reads at once if they cannot be spliced.
const READ: usize = 256 * 1024;

/// Works until the worker gets no further range. `first` is a response whose body is the worker's present range.
pub(super) async fn work(job: Rc<DownloadJob>, worker: usize, first: Option<Exchange>) -> Result<(), DownloadError> {
    let mut copier = SpliceCopier::default();
    let mut first = first;
    loop {
        if first.is_none() && !job.ranges.borrow_mut().take(worker) {
            return Ok(());
        }
        let fetched = fetch(&job, worker, first.take(), &mut copier).await;
        job.ranges.borrow_mut().release(worker);
        fetched?;
    }
}

async fn fetch(
    job: &DownloadJob,
    worker: usize,
    first: Option<Exchange>,
    copier: &mut SpliceCopier,
) -> Result<(), DownloadError> {
    let mut exchange = match first {
        Some(exchange) => exchange,
        None => ask(job, worker).await?,
    };
    loop {
        let (at, end) = job.ranges.borrow().span(worker);
        let most = usize::try_from(end - at).map_or(usize::MAX, |left| left.min(job.piece()));
        if most == 0 || job.ranges.borrow().is_retired(worker) {
            break;
        }
        let moved = copier.carry(&mut exchange, job, at, most).await?;
        if moved == 0 {
            if end == u64::MAX {
                job.ranges.borrow_mut().end_here(worker);
                job.part.borrow_mut().set_total(Some(at))?;
            }
            break;
        }
        job.ranges.borrow_mut().advance(worker, moved as u64);
        job.moved(worker, at, moved as u64)?;
        job.pay(moved).await;
    }
    job.client.give_back(exchange);
    Ok(())
}

/// Requests the worker's range, bound to the state of the file that the part has.
async fn ask(job: &DownloadJob, worker: usize) -> Result<Exchange, DownloadError> {
    let (start, end) = job.ranges.borrow().span(worker);
    let (validators, total) = job.state();
    let end = (end != u64::MAX).then_some(end);
    let request = bound(job.request(), start, end, &validators);
    let (exchange, _) = job.client.fetch_as(request, job.located.is_trusted).await?;
    let requested = Requested {
        range: Some((start, end)),
        validators: &validators,
        total,
    };
    match decide(exchange.head(), &requested, retry::now())? {
        DownloadPlan::Part { end: has, .. } => check_length(&exchange, has - start).map(|()| exchange),
        DownloadPlan::Whole if validators.agree_with(&Validators::of(exchange.head())) => {
            Err(DownloadError::Ranges("the whole file came in place of a part"))
        }
        DownloadPlan::Whole | DownloadPlan::Unchanged | DownloadPlan::NothingMore { .. } => Err(DownloadError::Changed),
    }
}

/// The body of a part must be as long as its Content-Range says.
pub(super) fn check_length(exchange: &Exchange, length: u64) -> Result<(), DownloadError> {
    match exchange.body_length() {
        Some(framed) if framed != length => Err(DownloadError::Ranges("Content-Length and Content-Range differ")),
        _ => Ok(()),
    }
}

/// Adds the range, and the validator it is bound to (RFC 9110 §13.1.5).
pub(super) fn bound(request: Request, start: u64, end: Option<u64>, validators: &Validators) -> Request {
    let range = match end {
        Some(end) => format!("bytes={start}-{}", end - 1),
        None => format!("bytes={start}-"),
    };
    let request = request.with("Range", range);
    match validators.if_range() {
        Some(validator) => request.with("If-Range", validator),
        None => request,
    }
}

/// Moves bytes from a response into the file.
#[derive(Debug, Default)]
struct SpliceCopier {
    pipe: Option<(OwnedFd, OwnedFd)>,
    /// This file system does not splice.
    cannot_splice: bool,
    buffer: Vec<u8>,
}

impl SpliceCopier {
    /// Moves the next piece to `offset`; 0 at the end of the body.
    async fn carry(
        &mut self,
        exchange: &mut Exchange,
        job: &DownloadJob,
        offset: u64,
        most: usize,
    ) -> Result<usize, DownloadError> {
        if exchange.can_splice() && !self.cannot_splice {
            return self.splice(exchange, job, offset, most.min(MOVE)).await;
        }
        self.buffer.clear();
        let read = exchange.read(&mut self.buffer, most.min(READ)).await?;
        job.part.borrow().write_at(&self.buffer, offset)?;
        Ok(read)
    }

    async fn splice(
        &mut self,
        exchange: &mut Exchange,
        job: &DownloadJob,
        offset: u64,
        most: usize,
    ) -> Result<usize, DownloadError> {
        let (read_end, write_end) = match &mut self.pipe {
            Some(pipe) => pipe,
            none => none.insert(wide_pipe().map_err(|error| job.file_error(error))?),
        };
        let moved = exchange.splice(write_end.as_fd(), most).await?;
        let mut at = offset;
        while at < offset + moved as u64 {
            let left = (offset + moved as u64 - at) as usize;
            let part = job.part.borrow();
            match rustix::pipe::splice(&*read_end, None, part.file(), Some(&mut at), left, SpliceFlags::MOVE) {
                Ok(0) => return Err(job.file_error(io::ErrorKind::WriteZero.into())),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::INVAL) => {
                    self.cannot_splice = true;
                    self.buffer.resize(left, 0);
                    let read = rustix::io::read(&*read_end, &mut self.buffer[..])
                        .map_err(|error| job.file_error(error.into()))?;
                    part.write_at(&self.buffer[..read], at)?;
                    at += read as u64;
                }
                Err(error) => return Err(job.file_error(error.into())),
            }
        }
        Ok(moved)
    }
}
