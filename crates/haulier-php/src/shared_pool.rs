//! The part of a pool that leases, responses, the supervisor and the maintenance thread share.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use haulier_upstream::Upstream;

use crate::at_work::ScriptsAtWork;
use crate::connection::Connection;
use crate::counts::PoolCounts;
use crate::kept_memory::{KeptMemory, PoolMemory};
use crate::processes::Processes;
use crate::recycling::{Recycling, Spent};
use crate::running::RunningRequests;
use crate::settings::PoolSettings;
use crate::stderr::StderrTail;
use crate::trace::Trace;

/// Slow requests whose calls are kept; each has some kilobytes at most.
const MOST_TRACED: usize = 20;

/// A slow request, and the calls of its script at that time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracedRequest {
    /// Label of the request: `GET /export (req 7e10)`.
    pub label: String,
    /// The innermost call first.
    pub trace: Trace,
}

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
    /// Slow requests with the calls of their scripts, oldest first.
    traced: Mutex<VecDeque<TracedRequest>>,
    /// The scripts at work; `None` if all workers may compute at once.
    pub(crate) at_work: Option<Arc<ScriptsAtWork>>,
    /// Requests that have been running for a while.
    pub(crate) running: Arc<RunningRequests>,
    pub(crate) recycling: Recycling,
    pub(crate) started: Instant,
    counts: Mutex<PoolCounts>,
    memory: Mutex<PoolMemory>,
}

impl SharedPool {
    pub(crate) fn new(
        settings: PoolSettings,
        upstream: Arc<Upstream<Connection>>,
        processes: Option<Processes>,
        recycling: Recycling,
    ) -> Arc<Self> {
        Arc::new(Self {
            at_work: upstream.held_back().map(|_| Arc::default()),
            settings,
            upstream,
            processes,
            stderr: Arc::default(),
            traced: Mutex::default(),
            running: Arc::default(),
            recycling,
            started: Instant::now(),
            counts: Mutex::default(),
            memory: Mutex::default(),
        })
    }

    /// The calls of the script at which this worker is, if it is one of our own. They are kept for the dashboard.
    pub(crate) fn trace(&self, pid: Option<u32>, label: &str) -> Option<Trace> {
        let trace = self.processes.as_ref()?.trace(pid?)?;
        let mut traced = self.traced.lock().unwrap_or_else(PoisonError::into_inner);
        traced.retain(|known| known.label != label);
        if traced.len() == MOST_TRACED {
            traced.pop_front();
        }
        traced.push_back(TracedRequest {
            label: label.to_owned(),
            trace: trace.clone(),
        });
        Some(trace)
    }

    /// The last requests whose calls were read, oldest first.
    pub(crate) fn traced(&self) -> Vec<TracedRequest> {
        let traced = self.traced.lock().unwrap_or_else(PoisonError::into_inner);
        traced.iter().cloned().collect()
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

    /// Notes the memory that a worker has told, with its growth over many requests.
    pub(crate) fn note_memory(&self, bytes: u64, growth: Option<i64>) {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.note(bytes, growth);
    }

    pub(crate) fn kept_memory(&self) -> KeptMemory {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).kept()
    }

    pub(crate) fn counts(&self) -> PoolCounts {
        *self.lock_counts()
    }
}
