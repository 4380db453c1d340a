//! The part of a pool that leases, responses, the supervisor and the maintenance thread share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use haulier_upstream::Upstream;

use crate::connection::Connection;
use crate::counts::PoolCounts;
use crate::processes::Processes;
use crate::recycling::{Recycling, Spent};
use crate::running::RunningRequests;
use crate::settings::PoolSettings;
use crate::stderr::StderrTail;

/// A pool without its threads.
#[derive(Debug)]
pub(crate) struct SharedPool {
    pub(crate) settings: PoolSettings,
    /// The queue, and the connections to PHP.
    pub(crate) upstream: Arc<Upstream<Connection>>,
    /// The supervised php-cgi programs; `None` for external servers.
    pub(crate) processes: Option<Processes>,
    /// Last lines that PHP wrote outside of requests.
    pub(crate) stderr: Arc<StderrTail>,
    /// Requests that have been running for a while.
    pub(crate) running: Arc<RunningRequests>,
    pub(crate) recycling: Recycling,
    pub(crate) started: Instant,
    counts: Mutex<PoolCounts>,
}

impl SharedPool {
    pub(crate) fn new(
        settings: PoolSettings,
        upstream: Arc<Upstream<Connection>>,
        processes: Option<Processes>,
        recycling: Recycling,
    ) -> Arc<Self> {
        Arc::new(Self {
            settings,
            upstream,
            processes,
            stderr: Arc::default(),
            running: Arc::default(),
            recycling,
            started: Instant::now(),
            counts: Mutex::default(),
        })
    }

    fn lock_counts(&self) -> MutexGuard<'_, PoolCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the counters.
    pub(crate) fn count(&self, change: impl FnOnce(&mut PoolCounts)) {
        change(&mut self.lock_counts());
    }

    /// Counts a worker that is replaced.
    pub(crate) fn count_replaced(&self, why: Spent) {
        self.count(|counts| match why {
            Spent::Requests => counts.recycled_requests += 1,
            Spent::Memory => counts.recycled_memory += 1,
            Spent::Age => counts.recycled_age += 1,
            Spent::Idle => counts.shrunk += 1,
        });
    }

    pub(crate) fn counts(&self) -> PoolCounts {
        *self.lock_counts()
    }
}
