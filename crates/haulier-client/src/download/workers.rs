//! The workers of one file: as many as a gain is measured for, until every byte is there.

use std::rc::Rc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::error::{DownloadError, Remedy};
use super::growth::{Change, Growth, SMALL};
use super::job::DownloadJob;
use super::segment::work;
use crate::exchange::Exchange;

/// The interval at which the rate is measured.
const WINDOW: Duration = Duration::from_millis(250);

/// Fetches the missing ranges. `first` is a response whose body begins at `start` and ends before `end`.
pub(super) async fn run(
    job: &Rc<DownloadJob>,
    first: Exchange,
    start: u64,
    end: u64,
    most: usize,
) -> Result<(), DownloadError> {
    let mut workers = JoinSet::new();
    let worker = job.ranges.borrow_mut().add_worker();
    job.ranges.borrow_mut().assign(worker, start, end);
    workers.spawn_local(work(Rc::clone(job), worker, Some(first)));
    let is_small = end == u64::MAX || end - start < SMALL;
    let mut growth = Growth::new(if is_small { 1 } else { most });
    let mut seen = job.sample();
    let mut ticks = interval(WINDOW);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        tokio::select! {
            ended = workers.join_next() => match ended {
                // The last worker may have been retired while another one had just come to its end.
                None if job.ranges.borrow().is_left() => add(job, &mut workers),
                None => return Ok(()),
                Some(Ok(Ok(()))) => {}
                Some(Ok(Err(error))) => {
                    if workers.is_empty() || is_final(&error) {
                        workers.shutdown().await;
                        return Err(error);
                    }
                    growth.stop();
                }
                Some(Err(panicked)) => std::panic::resume_unwind(panicked.into_panic()),
            },
            _ = ticks.tick() => {
                let before = std::mem::replace(&mut seen, job.sample());
                job.report(seen.rate_since(&before), workers.len());
                match growth.step(seen.clone(), left(job)) {
                    Change::Stay => {}
                    Change::Add(more) => (0..more).for_each(|_| add(job, &mut workers)),
                    Change::Remove(fewer) => job.ranges.borrow_mut().retire(fewer),
                }
            }
        }
    }
}

fn add(job: &Rc<DownloadJob>, workers: &mut JoinSet<Result<(), DownloadError>>) {
    let mut ranges = job.ranges.borrow_mut();
    if ranges.has_work() {
        let worker = ranges.add_worker();
        workers.spawn_local(work(Rc::clone(job), worker, None));
    }
}

/// True if an error of one worker ends the download. Others fetch a range that was refused to one; no worker can
/// continue a file that has changed.
fn is_final(error: &DownloadError) -> bool {
    match error {
        DownloadError::Ranges(_) | DownloadError::Status { .. } => false,
        other => other.remedy() == Remedy::Nothing || matches!(other, DownloadError::Changed),
    }
}

fn left(job: &DownloadJob) -> u64 {
    let part = job.part.borrow();
    part.total().map_or(0, |total| total.saturating_sub(part.done().len()))
}
