//! The load of an upstream, now and since its start.

use std::time::{Duration, Instant};

use crate::wait_times::WaitTimes;

/// The load of an upstream, now and since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UpstreamLoad {
    /// Most requests at a time: the connection limits of all servers together.
    pub capacity: usize,
    /// Requests that have a connection.
    pub busy: usize,
    /// Open connections without a request.
    pub idle: usize,
    /// Requests that wait for a connection.
    pub queued: usize,
    /// Waiting time of the first of them.
    pub longest_wait: Duration,
    /// Requests turned away because no connection became free.
    pub exhausted: u64,
    /// Most requests that have had a connection at a time.
    pub most_busy: usize,
    /// Most requests that have waited at a time.
    pub most_queued: usize,
    /// Number of times that the last free connection was taken.
    pub full: u64,
    /// At least one server runs, or is started by the next request, and accepted the last connection to it.
    pub is_live: bool,
    /// Time that requests have held connections, summed over all connections, current leases included.
    pub busy_time: Duration,
    /// Waits for a connection, including those of requests that got none.
    pub waits: WaitTimes,
}

impl UpstreamLoad {
    /// This load plus the counts and current requests of the predecessor. The capacity stays this one's.
    #[must_use]
    pub fn following(mut self, before: &Self) -> Self {
        self.busy += before.busy;
        self.queued += before.queued;
        self.exhausted += before.exhausted;
        self.full += before.full;
        self.most_busy = self.most_busy.max(before.most_busy);
        self.most_queued = self.most_queued.max(before.most_queued);
        self.busy_time += before.busy_time;
        self.waits = self.waits.plus(before.waits);
        self
    }
}

/// The part of a [`UpstreamLoad`] that is counted as requests come and go.
#[derive(Debug)]
pub(crate) struct Usage {
    pub(crate) counts: UpstreamLoad,
    /// Moment up to which `busy_time` is counted.
    settled: Instant,
}

impl Usage {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            counts: UpstreamLoad {
                capacity,
                ..UpstreamLoad::default()
            },
            settled: Instant::now(),
        }
    }

    /// Adds the busy time since the last call; to be called before the number of busy connections changes from `busy`.
    pub(crate) fn settle(&mut self, busy: usize) {
        let now = Instant::now();
        let busy = u32::try_from(busy).unwrap_or(u32::MAX);
        self.counts.busy_time += now.saturating_duration_since(self.settled) * busy;
        self.settled = now;
    }

    /// Notes that the number of busy connections has risen to `busy`.
    pub(crate) fn note_more_busy(&mut self, busy: usize) {
        self.counts.full += u64::from(busy == self.counts.capacity);
        self.counts.most_busy = self.counts.most_busy.max(busy);
    }

    pub(crate) fn note_queued(&mut self, queued: usize) {
        self.counts.most_queued = self.counts.most_queued.max(queued);
    }
}
