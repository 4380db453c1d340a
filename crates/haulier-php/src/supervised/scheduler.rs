//! Lets further scripts begin where some at work wait for something.
//!
//! Of twenty pages that compute on one core, eight that share it all come late, and those behind them later. So only as
//! many begin as there are processors. While others are held back, this thread looks every few milliseconds which of those
//! at work sleep, for a database for example, and lets as many more begin.
//!
//! Short scripts end before the kernel would let others share their processor. There turns would only cost: each answer
//! would switch to haulier and back, where otherwise several are taken at a time. So all workers take short scripts.

use std::io::PipeReader;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::at_work::ScriptsAtWork;
use crate::shared_pool::SharedPool;

/// Pause before a look, and the one while scripts are short.
const PAUSE: Duration = Duration::from_millis(2);
const PAUSE_OF_SHORT: Duration = Duration::from_millis(20);
/// A look that takes long is followed by a pause this many times as long: it costs at most 2 % of a core.
const REST: u32 = 50;
/// Time for which more scripts may be at work than a look finds reason for: what waits once waits again.
const MEMORY: Duration = Duration::from_millis(50);
/// Scripts are short if a processor ends so many within a second.
const SHORT_RATE: f64 = 2000.0;
/// Time over which ended scripts are counted.
const COUNTED: Duration = Duration::from_millis(10);

/// The state of the thread.
pub(super) struct Scheduler {
    pub(super) shared: Arc<SharedPool>,
    pub(super) scripts: Arc<ScriptsAtWork>,
    /// Scripts that may compute at once.
    pub(super) computing: usize,
    /// Closed to tell the thread to end.
    pub(super) orders: PipeReader,
}

/// Scripts at work that do not count: rises at once, falls one by one.
#[derive(Debug, Clone, Copy)]
struct Level {
    scripts: usize,
    since: Instant,
}

impl Level {
    fn note(&mut self, found: usize, now: Instant) {
        let scripts = match found {
            _ if found >= self.scripts => found,
            _ if now.saturating_duration_since(self.since) >= MEMORY => self.scripts - 1,
            _ => return,
        };
        *self = Self { scripts, since: now };
    }
}

/// The rate at which scripts end.
#[derive(Debug, Clone, Copy)]
struct EndRate {
    ended: u64,
    since: Instant,
    are_short: bool,
}

impl EndRate {
    /// Notes the number of scripts that have ended so far, on this number of processors.
    fn note(&mut self, ended: u64, processors: usize, now: Instant) {
        let span = now.saturating_duration_since(self.since);
        if span < COUNTED {
            return;
        }
        let rate = (ended - self.ended) as f64 / span.as_secs_f64() / processors as f64;
        *self = Self {
            ended,
            since: now,
            are_short: rate >= SHORT_RATE,
        };
    }
}

impl Scheduler {
    /// Looks after requests that are held back, until told to end.
    pub(super) fn run(self) {
        let start = Instant::now();
        let mut level = Level {
            scripts: 0,
            since: start,
        };
        let mut rate = EndRate {
            ended: 0,
            since: start,
            are_short: false,
        };
        while self.wait_for_alarm() {
            let mut pause = PAUSE;
            loop {
                if self.wait(pause) {
                    return;
                }
                let begun = Instant::now();
                rate.note(self.shared.counts().served, self.computing, begun);
                let found = match rate.are_short {
                    true => self.shared.settings.kind.capacity(),
                    false => self.scripts.leaving_room(),
                };
                level.note(found, begun);
                if !self.shared.upstream.set_exempt(level.scripts) {
                    break;
                }
                let shortest = if rate.are_short { PAUSE_OF_SHORT } else { PAUSE };
                pause = shortest.max(begun.elapsed() * REST);
            }
        }
    }

    /// Waits until requests are held back; false if told to end.
    fn wait_for_alarm(&self) -> bool {
        let Some(alarm) = self.shared.upstream.held_back() else {
            return false;
        };
        let mut either = [
            PollFd::new(alarm, PollFlags::IN),
            PollFd::new(&self.orders, PollFlags::IN),
        ];
        let _ = rustix::event::poll(&mut either, None); // EINTR: a look too early
        let is_ordered = !either[1].revents().is_empty();
        alarm.reset();
        !is_ordered
    }

    /// Waits for this time; true if told to end.
    fn wait(&self, pause: Duration) -> bool {
        let mut order = [PollFd::new(&self.orders, PollFlags::IN)];
        let pause = Timespec::try_from(pause).ok();
        matches!(rustix::event::poll(&mut order, pause.as_ref()), Ok(1..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_rises_at_once_and_falls_slowly() {
        let start = Instant::now();
        let mut level = Level {
            scripts: 0,
            since: start,
        };
        let mut after = |milliseconds, found| {
            level.note(found, start + Duration::from_millis(milliseconds));
            level.scripts
        };
        assert_eq!([after(0, 3), after(10, 0), after(40, 1)], [3, 3, 3]);
        assert_eq!(
            [after(50, 1), after(60, 2), after(70, 1), after(110, 0), after(160, 0)],
            [2, 2, 2, 1, 0]
        );
    }

    #[test]
    fn scripts_are_short_where_many_end() {
        let start = Instant::now();
        let mut rate = EndRate {
            ended: 0,
            since: start,
            are_short: false,
        };
        let mut after = |milliseconds, ended| {
            rate.note(ended, 2, start + Duration::from_millis(milliseconds));
            rate.are_short
        };
        assert!(!after(5, 500), "too soon to tell");
        assert!(after(10, 500));
        assert!(after(15, 500), "too soon again");
        assert!(!after(110, 899), "1,995 a second on each processor");
    }
}
