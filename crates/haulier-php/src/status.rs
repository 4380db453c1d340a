//! The state of a pool as others see it: numbers for metrics, and a list of workers.

use std::time::Duration;

use haulier_upstream::Load;

use crate::recycling::own_memory;
use crate::shared::Shared;

/// The state of a pool, and its counters since it was started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolStatus {
    /// Workers and the queue. A connection is a worker: `capacity` is the number of requests PHP works on at most.
    pub load: Load,
    /// What has become of requests and workers.
    pub counts: Counts,
}

/// What has become of requests and workers since a pool was started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests answered to the end.
    pub served: u64,
    /// Workers that ended in the middle of a request.
    pub crashes: u64,
    /// Workers ended because no response head came in time.
    pub timeouts: u64,
    /// Requests sent once more because the first worker was gone.
    pub retries: u64,
    /// Workers replaced after their number of requests.
    pub recycled_requests: u64,
    /// Workers replaced because of the memory they had taken.
    pub recycled_memory: u64,
    /// Workers replaced because of their age.
    pub recycled_age: u64,
    /// Idle workers replaced to give their memory back.
    pub shrunk: u64,
    /// Requests that took longer than the slow log allows.
    pub slow: u64,
    /// Times the php-cgi master ended unasked.
    pub exits: u64,
}

impl Counts {
    /// Workers replaced between requests because they had reached a limit.
    pub fn recycled(&self) -> u64 {
        self.recycled_requests + self.recycled_memory + self.recycled_age
    }

    fn plus(self, other: &Self) -> Self {
        Self {
            served: self.served + other.served,
            crashes: self.crashes + other.crashes,
            timeouts: self.timeouts + other.timeouts,
            retries: self.retries + other.retries,
            recycled_requests: self.recycled_requests + other.recycled_requests,
            recycled_memory: self.recycled_memory + other.recycled_memory,
            recycled_age: self.recycled_age + other.recycled_age,
            shrunk: self.shrunk + other.shrunk,
            slow: self.slow + other.slow,
            exits: self.exits + other.exits,
        }
    }
}

impl PoolStatus {
    pub(crate) fn of(shared: &Shared) -> Self {
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
    pub work: Work,
    /// Its process id, where it is known.
    pub pid: Option<u32>,
    /// Requests it has answered, as far as the pool has seen; `None` where the worker is not known.
    pub served: Option<u64>,
    /// Bytes it shares with no other process, where the system tells.
    pub memory: Option<u64>,
}

/// The work of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// A request that takes long: its label, and the time it has had the worker.
    Long(String, Duration),
    /// A request it got within the last tenth of a second or so.
    Short,
    /// No request.
    Idle,
}

impl WorkerStatus {
    fn new(work: Work, pid: Option<u32>, served: Option<u64>) -> Self {
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
pub(crate) fn workers(shared: &Shared) -> Vec<WorkerStatus> {
    let long = shared.running.list();
    let (busy, idle) = shared
        .upstream
        .connections(|connection| (connection.peer.pid(), connection.worker.served));
    let short = busy.saturating_sub(long.len());
    // /proc is read outside the lock.
    let long = long.into_iter().map(|request| {
        let served = request.pid.map(|_| request.served);
        WorkerStatus::new(Work::Long(request.label, request.running), request.pid, served)
    });
    let short = (0..short).map(|_| WorkerStatus::new(Work::Short, None, None));
    let idle = idle
        .into_iter()
        .map(|(pid, served)| WorkerStatus::new(Work::Idle, pid, Some(served)));
    long.chain(short).chain(idle).collect()
}
