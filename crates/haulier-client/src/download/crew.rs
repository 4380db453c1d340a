//! The lanes of one file, together: as many as gain, until every byte is there.

use std::rc::Rc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::error::{DownloadError, Remedy};
use super::growth::{Change, Growth, SMALL};
use super::job::Job;
use super::segment::work;
use crate::exchange::Exchange;

/// How often the rate is looked at.
const WINDOW: Duration = Duration::from_millis(250);

/// Fetches what is missing. `first` is a response whose body begins at `start` and belongs to the bytes before `end`.
pub(super) async fn run(
    job: &Rc<Job>,
    first: Exchange,
    start: u64,
    end: u64,
    most: usize,
) -> Result<(), DownloadError> {
    let mut lanes = JoinSet::new();
    let lane = job.board.borrow_mut().add_lane();
    job.board.borrow_mut().assign(lane, start, end);
    lanes.spawn_local(work(Rc::clone(job), lane, Some(first)));
    let is_small = end == u64::MAX || end - start < SMALL;
    let mut growth = Growth::new(if is_small { 1 } else { most });
    let mut seen = job.look();
    let mut ticks = interval(WINDOW);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        tokio::select! {
            ended = lanes.join_next() => match ended {
                // The last lane may have been sent home while another one had just come to its end.
                None if job.board.borrow().is_left() => add(job, &mut lanes),
                None => return Ok(()),
                Some(Ok(Ok(()))) => {}
                Some(Ok(Err(error))) => {
                    if lanes.is_empty() || is_final(&error) {
                        lanes.shutdown().await;
                        return Err(error);
                    }
                    growth.stop();
                }
                Some(Err(panicked)) => std::panic::resume_unwind(panicked.into_panic()),
            },
            _ = ticks.tick() => {
                let before = std::mem::replace(&mut seen, job.look());
                job.report(seen.rate_since(&before), lanes.len());
                match growth.step(seen.clone(), left(job)) {
                    Change::Stay => {}
                    Change::Add(more) => (0..more).for_each(|_| add(job, &mut lanes)),
                    Change::Remove(fewer) => job.board.borrow_mut().retire(fewer),
                }
            }
        }
    }
}

fn add(job: &Rc<Job>, lanes: &mut JoinSet<Result<(), DownloadError>>) {
    let mut board = job.board.borrow_mut();
    if board.has_work() {
        let lane = board.add_lane();
        lanes.spawn_local(work(Rc::clone(job), lane, None));
    }
}

/// A lane that could not get its part is missed by nobody; a file that changes ends them all.
fn is_final(error: &DownloadError) -> bool {
    match error {
        DownloadError::Ranges(_) | DownloadError::Status { .. } => false,
        other => other.remedy() == Remedy::Nothing || matches!(other, DownloadError::Changed),
    }
}

fn left(job: &Job) -> u64 {
    let part = job.part.borrow();
    part.total().map_or(0, |total| total.saturating_sub(part.done().len()))
}
