//! A limit on new connections per second, so that a burst of requests does not wake every worker at once.

use std::time::{Duration, Instant};

/// Period of the limit.
const PERIOD: Duration = Duration::from_secs(1);

/// Connections opened within the current second.
#[derive(Debug)]
pub(crate) struct OpenRate {
    /// Most within a second; `None` is no limit.
    limit: Option<u32>,
    period_start: Instant,
    opened: u32,
}

impl OpenRate {
    pub(crate) fn new(limit: Option<u32>) -> Self {
        Self {
            limit,
            period_start: Instant::now(),
            opened: 0,
        }
    }

    /// Number of connections that may be opened now.
    pub(crate) fn left(&mut self) -> usize {
        let Some(limit) = self.limit else {
            return usize::MAX;
        };
        if self.period_start.elapsed() >= PERIOD {
            (self.period_start, self.opened) = (Instant::now(), 0);
        }
        limit.saturating_sub(self.opened) as usize
    }

    pub(crate) fn count(&mut self, opened: usize) {
        let opened = u32::try_from(opened).unwrap_or(u32::MAX);
        self.opened = self.opened.saturating_add(opened);
    }
}
