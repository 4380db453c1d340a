//! Status of a pool: numbers for metrics, and a list of workers.

use std::time::Duration;

use haulier_upstream::UpstreamLoad;

use crate::counts::PoolCounts;
use crate::kept_memory::KeptMemory;
use crate::recycling::own_memory;
use crate::shared_pool::SharedPool;

/// Status of a pool, and its counters since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolStatus {
    /// Workers and the queue. A connection is a worker, so `capacity` is the most requests that PHP processes at a
    /// time.
    pub load: UpstreamLoad,
    /// Ends of requests and of workers.
    pub counts: PoolCounts,
    /// Memory that a booted script keeps.
    pub kept: KeptMemory,
}

impl PoolStatus {
    pub(crate) fn of(shared: &SharedPool) -> Self {
        Self {
            load: shared.upstream.load(),
            counts: shared.counts(),
            kept: shared.kept_memory(),
        }
    }

    /// This status plus the counts and current requests of the predecessor. The number of workers and their
    /// memory stay this one's.
    #[must_use]
    pub fn following(self, before: Self) -> Self {
        Self {
            load: self.load.following(&before.load),
            counts: self.counts.plus(&before.counts),
            kept: self.kept,
        }
    }
}

/// Status of one worker. Workers that were never used are not listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerStatus {
    /// Its current activity.
    pub work: WorkerActivity,
    /// Process id, if known.
    pub pid: Option<u32>,
    /// Answered requests, as far as the pool knows; `None` if the worker is not known.
    pub served: Option<u64>,
    /// Unshared memory in bytes, if the system reports it.
    pub memory: Option<u64>,
}

/// The activity of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkerActivity {
    /// A request that has been running for a while: its label, and the time since the lease.
    Long(String, Duration),
    /// A request that began about a tenth of a second ago at most.
    Short,
    /// No request.
    Idle,
}

impl WorkerStatus {
    fn new(work: WorkerActivity, pid: Option<u32>, served: Option<u64>) -> Self {
        Self {
            work,
            pid,
            served,
            memory: pid.and_then(own_memory),
        }
    }
}

/// Status of every worker used so far: long-running requests first, then the other busy workers, then the idle ones,
/// the last used first.
pub(crate) fn workers(shared: &SharedPool) -> Vec<WorkerStatus> {
    let long = shared.running.list();
    let (busy, idle) = shared
        .upstream
        .connections(|connection| (connection.peer.pid(), connection.worker.served));
    let short = busy.saturating_sub(long.len());
    // /proc is read outside the lock.
    let long = long.into_iter().map(|request| {
        let served = request.pid.map(|_| request.served);
        WorkerStatus::new(
            WorkerActivity::Long(request.label, request.running),
            request.pid,
            served,
        )
    });
    let short = (0..short).map(|_| WorkerStatus::new(WorkerActivity::Short, None, None));
    let idle = idle
        .into_iter()
        .map(|(pid, served)| WorkerStatus::new(WorkerActivity::Idle, pid, Some(served)));
    long.chain(short).chain(idle).collect()
}
