//! The numbers of one pool.

use haulier_php::{Pool, PoolStatus};
use serde::{Deserialize, Serialize};

/// Requests shown of those that take long in a pool.
const SHOWN: usize = 5;

/// One pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PoolState {
    pub(crate) name: String,
    pub(crate) live: bool,
    pub(crate) workers: usize,
    pub(crate) busy: usize,
    pub(crate) queued: usize,
    /// Workers that ended for any reason other than being idle.
    pub(crate) restarts: u64,
    pub(crate) memory_bytes: Option<u64>,
    /// Memory that a booted script keeps in a worker, and its growth with each request.
    #[serde(default)]
    pub(crate) kept_bytes: Option<u64>,
    #[serde(default)]
    pub(crate) kept_growth_bytes: Option<i64>,
    /// Requests that take long, the longest first.
    pub(crate) running: Vec<RunningState>,
}

/// A request that has run in PHP for some time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunningState {
    pub(crate) request: String,
    pub(crate) seconds: f64,
    pub(crate) pid: Option<u32>,
}

impl PoolState {
    /// The pool, with its numbers over all reloads.
    pub(crate) fn of(pool: &Pool, status: &PoolStatus, memory_bytes: Option<u64>) -> Self {
        let running = pool.running().into_iter().take(SHOWN).map(|request| RunningState {
            request: request.label,
            seconds: request.running.as_secs_f64(),
            pid: request.pid,
        });
        let (load, counts) = (&status.load, &status.counts);
        Self {
            name: pool.settings().name.clone(),
            live: load.is_live,
            workers: load.capacity,
            busy: load.busy,
            queued: load.queued,
            restarts: counts.recycled() + counts.crashes + counts.timeouts + counts.exits,
            memory_bytes,
            kept_bytes: status.kept.bytes,
            kept_growth_bytes: status.kept.growth,
            running: running.collect(),
        }
    }
}
