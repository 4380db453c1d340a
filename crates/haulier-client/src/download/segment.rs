//! One lane at work: asks for its range, checks what comes, and moves the bytes to where they belong.
//!
//! On a plain connection the bytes go from the socket through a pipe into the file and are never seen by us.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use rustix::pipe::SpliceFlags;

use super::board::MOVE;
use super::error::DownloadError;
use super::job::Job;
use super::plan::{Asked, Plan, decide};
use super::validators::Validators;
use crate::exchange::Exchange;
use crate::request::Request;
use crate::retry;
use crate::stream::wide_pipe;

/// What a lane reads at once where it has to see the bytes.
const READ: usize = 256 * 1024;

/// Works until nothing is left for this lane. `first` is a response whose body is the lane's present span.
pub(super) async fn work(job: Rc<Job>, lane: usize, first: Option<Exchange>) -> Result<(), DownloadError> {
    let mut conveyor = Conveyor::default();
    let mut first = first;
    loop {
        if first.is_none() && !job.board.borrow_mut().take(lane) {
            return Ok(());
        }
        let fetched = fetch(&job, lane, first.take(), &mut conveyor).await;
        job.board.borrow_mut().release(lane);
        fetched?;
    }
}

async fn fetch(job: &Job, lane: usize, first: Option<Exchange>, conveyor: &mut Conveyor) -> Result<(), DownloadError> {
    let mut exchange = match first {
        Some(exchange) => exchange,
        None => ask(job, lane).await?,
    };
    loop {
        let (at, end) = job.board.borrow().span(lane);
        let most = usize::try_from(end - at).map_or(usize::MAX, |left| left.min(job.piece()));
        if most == 0 || job.board.borrow().is_retired(lane) {
            break;
        }
        let moved = conveyor.carry(&mut exchange, job, at, most).await?;
        if moved == 0 {
            if end == u64::MAX {
                job.board.borrow_mut().end_here(lane);
                job.part.borrow_mut().set_total(Some(at))?;
            }
            break;
        }
        job.board.borrow_mut().advance(lane, moved as u64);
        job.moved(lane, at, moved as u64)?;
        job.pay(moved).await;
    }
    job.client.give_back(exchange);
    Ok(())
}

/// Asks for the lane's span, bound to the state we have bytes of.
async fn ask(job: &Job, lane: usize) -> Result<Exchange, DownloadError> {
    let (start, end) = job.board.borrow().span(lane);
    let (validators, total) = job.state();
    let end = (end != u64::MAX).then_some(end);
    let request = bound(job.request(), start, end, &validators);
    let (exchange, _) = job.client.fetch_as(request, job.located.is_trusted).await?;
    let asked = Asked {
        range: Some((start, end)),
        validators: &validators,
        total,
    };
    match decide(exchange.head(), &asked, retry::now())? {
        Plan::Part { end: has, .. } => check_length(&exchange, has - start).map(|()| exchange),
        Plan::Whole if validators.agree_with(&Validators::of(exchange.head())) => {
            Err(DownloadError::Ranges("the whole came where a part was asked for"))
        }
        Plan::Whole | Plan::Unchanged | Plan::NothingMore { .. } => Err(DownloadError::Changed),
    }
}

/// The body of a part must be as long as its Content-Range says.
pub(super) fn check_length(exchange: &Exchange, length: u64) -> Result<(), DownloadError> {
    match exchange.body_length() {
        Some(framed) if framed != length => Err(DownloadError::Ranges("its length is not that of its range")),
        _ => Ok(()),
    }
}

/// Adds the range, and what it is bound to (RFC 9110 §13.1.5).
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
struct Conveyor {
    pipe: Option<(OwnedFd, OwnedFd)>,
    /// This file system takes nothing from a pipe.
    cannot_splice: bool,
    buffer: Vec<u8>,
}

impl Conveyor {
    /// Moves the next piece to `offset`; 0 at the end of the body.
    async fn carry(
        &mut self,
        exchange: &mut Exchange,
        job: &Job,
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
        job: &Job,
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
