//! The state of a pool as others see it: numbers for metrics, and a list of workers.

use std::time::Duration;

use haulier_upstream::UpstreamLoad;

use crate::counts::PoolCounts;
use crate::recycling::own_memory;
use crate::shared_pool::SharedPool;

/// The state of a pool, and its counters since it was started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolStatus {
    /// Workers and the queue. A connection is a worker: `capacity` is the number of requests PHP works on at most.
    pub load: UpstreamLoad,
    /// Ends of requests and of workers.
    pub counts: PoolCounts,
}

impl PoolStatus {
    pub(crate) fn of(shared: &SharedPool) -> Self {
        Self {
            load: shared.upstream.load(),
            counts: shared.counts(),
        }
    }

    /// This status with everything that a predecessor has counted and is still busy with. The number of workers stays this
    /// one's.
    #[must_use]
    pub fn following(self, before: Self) -> Self {
        Self {
            load: self.load.following(&before.load),
            counts: self.counts.plus(&before.counts),
        }
    }
}

/// A worker at one moment. Workers that were never needed are in no list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerStatus {
    /// The request it works on.
    pub work: WorkerActivity,
    /// Its process id, where it is known.
    pub pid: Option<u32>,
    /// Requests it has answered, as far as the pool has seen; `None` where the worker is not known.
    pub served: Option<u64>,
    /// Bytes it shares with no other process, where the system tells.
    pub memory: Option<u64>,
}

/// The work of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkerActivity {
    /// A request that takes long: its label, and the time it has had the worker.
    Long(String, Duration),
    /// A request it got within the last tenth of a second or so.
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

/// Status of every worker started so far: those with a long-running request first, then the other busy ones, then the idle
/// ones, the last used first.
pub(crate) fn workers(shared: &SharedPool) -> Vec<WorkerStatus> {
    let long = shared.running.list();
    let (busy, idle) = shared
        .upstream
        .connections(|connection| (connection.peer.pid(), connection.worker.served));
    let short = busy.saturating_sub(long.len());
    // /proc is read outside the lock.
    let long = long.into_iter().map(|request| {
        let served = request.pid.map(|_| request.served);
        WorkerStatus::new(WorkerActivity::Long(request.label, request.running), request.pid, served)
    });
    let short = (0..short).map(|_| WorkerStatus::new(WorkerActivity::Short, None, None));
    let idle = idle
        .into_iter()
        .map(|(pid, served)| WorkerStatus::new(WorkerActivity::Idle, pid, Some(served)));
    long.chain(short).chain(idle).collect()
}
