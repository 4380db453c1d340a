//! Throttling of log lines: one line stands for many events.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::clock::now;

/// Throttles one log line, for all threads.
#[derive(Debug)]
pub(crate) struct LogThrottle {
    /// Time of the last line: milliseconds since the first look at the clock, plus one; 0 for never.
    last: AtomicU64,
    /// Events since then.
    suppressed: AtomicU64,
}

/// Least time between two lines.
const PAUSE: Duration = Duration::from_secs(10);

impl LogThrottle {
    pub(crate) const fn new() -> Self {
        Self {
            last: AtomicU64::new(0),
            suppressed: AtomicU64::new(0),
        }
    }

    /// Counts an event. Returns the number of events since the last line if a line is due.
    pub(crate) fn due(&self) -> Option<u64> {
        static BEGIN: OnceLock<Instant> = OnceLock::new();
        let since = now().saturating_duration_since(*BEGIN.get_or_init(now));
        self.due_at(since)
    }

    fn due_at(&self, since: Duration) -> Option<u64> {
        let time = u64::try_from(since.as_millis()).unwrap_or(u64::MAX).saturating_add(1);
        let last = self.last.load(Ordering::Relaxed);
        let is_early = last > 0 && time.saturating_sub(last) < PAUSE.as_millis() as u64;
        // Only one of several threads logs.
        let is_ours = || {
            let exchanged = self
                .last
                .compare_exchange(last, time, Ordering::Relaxed, Ordering::Relaxed);
            exchanged.is_ok()
        };
        if is_early || !is_ours() {
            self.suppressed.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.suppressed.swap(0, Ordering::Relaxed) + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_counts_the_suppressed_ones() {
        let seldom = LogThrottle::new();
        let at = |seconds| seldom.due_at(Duration::from_secs(seconds));
        assert_eq!(at(0), Some(1));
        assert_eq!((at(1), at(2), at(9)), (None, None, None));
        assert_eq!(at(10), Some(4));
        assert_eq!(at(11), None);
        assert_eq!(at(60), Some(2));
    }
}
