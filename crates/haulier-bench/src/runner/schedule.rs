//! The requests of a thread that are still to be sent, and the end of its slice.
//!
//! A closed loop only has a deadline. An open loop has due times, which it keeps even if no connection is free.

use crate::job::{Arrivals, SliceJob};
use crate::pacer::Pacer;

/// Least time that an open loop waits after its deadline, ns.
const GRACE: u64 = 1_000_000_000;

/// Requests to come. Times are nanoseconds since the start of the thread.
#[derive(Debug)]
pub(super) struct Schedule {
    /// End of a closed loop. In an open loop nothing is due from then on.
    deadline: Option<u64>,
    open: Option<OpenLoop>,
}

/// Requests of an open loop.
#[derive(Debug)]
struct OpenLoop {
    pacer: Pacer,
    /// Number of the next request among those of all threads.
    number: u64,
    /// Distance to the next number of this thread.
    step: u64,
    /// Requests that may still be sent; `None` without a limit.
    left: Option<u64>,
    /// Last time at which a request was due and no connection was free.
    blocked_at: u64,
    /// Due time of the first request that was sent after the deadline.
    late_from: u64,
}

/// A due request that is sent now, or given up.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DueRequest {
    pub(super) number: u64,
    /// No connection was free when it was due.
    pub(super) has_waited: bool,
}

impl Schedule {
    pub(super) fn new(job: &SliceJob, thread: u32) -> Self {
        let (pacer, left) = match &job.arrivals {
            Arrivals::Closed => (None, None),
            Arrivals::Open { rate, spacing, seed } => {
                let threads = u64::from(job.threads);
                let share = |all| all / threads + u64::from(u64::from(thread) < all % threads);
                let pacer = Pacer::new(*spacing, *rate, thread, job.threads, *seed);
                (Some(pacer), job.count.map(share))
            }
            Arrivals::Schedule(times) => {
                let own = times.iter().skip(thread as usize).step_by(job.threads as usize);
                (Some(Pacer::at(own.copied().collect())), None)
            }
        };
        Self {
            deadline: job.time.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
            open: pacer.map(|pacer| OpenLoop {
                pacer,
                number: u64::from(thread),
                step: u64::from(job.threads),
                left,
                blocked_at: 0,
                late_from: u64::MAX,
            }),
        }
    }

    pub(super) fn is_open_loop(&self) -> bool {
        self.open.is_some()
    }

    pub(super) fn deadline(&self) -> Option<u64> {
        self.deadline
    }

    pub(super) fn is_past_deadline(&self, now: u64) -> bool {
        self.deadline.is_some_and(|deadline| now >= deadline)
    }

    /// Due time of the next request of an open loop; `None` if none is left. A request that was due before the deadline
    /// stays due after it: without it the wait that a slow server caused would be missing.
    pub(super) fn due(&self) -> Option<u64> {
        let open = self.open.as_ref()?;
        let due = open.pacer.next()?;
        let is_in_time = self.deadline.is_none_or(|deadline| due < deadline);
        (is_in_time && open.left != Some(0)).then_some(due)
    }

    /// Takes the next due request out of the schedule.
    pub(super) fn take(&mut self, due: u64, now: u64) -> Option<DueRequest> {
        let is_late = self.is_past_deadline(now);
        let open = self.open.as_mut()?;
        let taken = DueRequest {
            number: open.number,
            has_waited: due <= open.blocked_at,
        };
        if is_late {
            open.late_from = open.late_from.min(due);
        }
        open.number += open.step;
        open.pacer.advance();
        open.left = open.left.map(|left| left - 1);
        Some(taken)
    }

    /// Notes that a request is due and no connection is free.
    pub(super) fn block(&mut self, now: u64) {
        if let Some(open) = &mut self.open {
            open.blocked_at = now;
        }
    }

    /// True if a request of this due time was sent after the deadline.
    pub(super) fn was_late(&self, due: u64) -> bool {
        self.open.as_ref().is_some_and(|open| due >= open.late_from)
    }

    /// True if the slice is over, with `active` connections or requests left. `longest` is the longest answer so far.
    pub(super) fn is_over(&self, now: u64, active: usize, longest: impl FnOnce() -> u64) -> bool {
        let is_late = self.is_past_deadline(now);
        let Some(open) = &self.open else {
            return is_late || active == 0;
        };
        // A timed slice lasts its time even if its last request was due earlier; a number or a log may end it before.
        let has_sent_all = open.left == Some(0) || open.pacer.next().is_none();
        let is_done = active == 0 && (has_sent_all || (is_late && self.due().is_none()));
        is_done || self.is_grace_over(now, longest)
    }

    /// True if an open loop waits no longer for answers.
    pub(super) fn is_grace_over(&self, now: u64, longest: impl FnOnce() -> u64) -> bool {
        self.is_past_deadline(now) && now >= self.end_of_grace(longest())
    }

    /// The end of an open loop's wait for answers: twice the longest answer so far after its deadline, so that a slow
    /// server that keeps up has answered all requests. A slice takes at most twice its time, or a second more.
    fn end_of_grace(&self, longest: u64) -> u64 {
        self.deadline.map_or(u64::MAX, |deadline| {
            let grace = longest.saturating_mul(2).min(deadline).max(GRACE);
            deadline.saturating_add(grace)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::job::tests::job;
    use crate::pacer::Spacing;

    const MS: u64 = 1_000_000;

    /// A request every millisecond for ten of them.
    fn open_loop(count: Option<u64>, time: Duration) -> Schedule {
        let job = SliceJob {
            count,
            time: Some(time),
            arrivals: Arrivals::Open {
                rate: 1000.0,
                spacing: Spacing::Constant,
                seed: 1,
            },
            ..job()
        };
        Schedule::new(&job, 0)
    }

    const TEN_MS: Duration = Duration::from_millis(10);

    /// Takes all due requests; gives their due times in ms.
    fn take_all(schedule: &mut Schedule) -> Vec<u64> {
        let mut found = Vec::new();
        while let Some(due) = schedule.due() {
            schedule.take(due, due);
            found.push(due / MS);
        }
        found
    }

    #[test]
    fn requests_due_before_the_deadline_stay_due_after_it() {
        let mut schedule = open_loop(None, TEN_MS);
        assert!(!schedule.is_over(500 * MS, 0, || 0), "ten wait for a connection");
        assert_eq!(take_all(&mut schedule), (0..10).collect::<Vec<u64>>());
        assert!(schedule.is_over(500 * MS, 0, || 0));
        assert!(!schedule.is_over(500 * MS, 1, || 0), "one waits for its answer");
        assert!(schedule.is_over(10 * MS + GRACE, 1, || 0));
    }

    #[test]
    fn a_slice_lasts_its_time_unless_a_number_ends_it() {
        let mut schedule = open_loop(None, TEN_MS);
        assert_eq!(take_all(&mut schedule).len(), 10);
        assert!(!schedule.is_over(9 * MS, 0, || 0));
        let mut schedule = open_loop(Some(3), TEN_MS);
        assert_eq!(take_all(&mut schedule), [0, 1, 2]);
        assert!(schedule.is_over(3 * MS, 0, || 0));
    }

    #[test]
    fn slow_answers_are_waited_for_but_not_longer_than_the_slice_was() {
        let schedule = open_loop(None, Duration::from_secs(5));
        for (longest, grace) in [(2, 1000), (2000, 4000), (3000, 5000)] {
            assert_eq!(
                schedule.end_of_grace(longest * MS),
                (5000 + grace) * MS,
                "after {longest} ms"
            );
        }
    }

    #[test]
    fn a_request_has_waited_if_no_connection_was_free_when_it_was_due() {
        let mut schedule = open_loop(None, TEN_MS);
        schedule.block(2 * MS);
        let taken: Vec<DueRequest> = (0..4).filter_map(|due| schedule.take(due * MS, 5 * MS)).collect();
        assert_eq!(taken.iter().map(|one| one.number).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(
            taken.iter().map(|one| one.has_waited).collect::<Vec<_>>(),
            [true, true, true, false]
        );
        assert!(!schedule.was_late(3 * MS));
        schedule.take(4 * MS, 11 * MS);
        assert!(schedule.was_late(4 * MS) && !schedule.was_late(3 * MS));
    }

    #[test]
    fn a_closed_loop_ends_at_its_deadline_or_without_connections() {
        let schedule = Schedule::new(&job(), 0);
        assert!(!schedule.is_open_loop() && schedule.due().is_none());
        assert!(!schedule.is_over(u64::MAX, 1, || 0) && schedule.is_over(0, 0, || 0));
    }
}
