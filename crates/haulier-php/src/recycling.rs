//! Replacement of workers: the record of each, and the limits after which it ends.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::kept_memory::WorkerMemory;
use crate::settings::Recycle;

/// The record of a worker, as far as the pool knows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorkerRecord {
    /// Answered requests.
    pub(crate) served: u64,
    /// Time of the first request.
    pub(crate) since: Instant,
    pub(crate) memory: WorkerMemory,
}

/// Limits of workers, and the records of running workers without a connection.
#[derive(Debug, Default)]
pub(crate) struct Recycling {
    limits: Recycle,
    /// Records by process id.
    unconnected: Mutex<HashMap<u32, WorkerRecord>>,
    /// Most records: if there are more, nearly all are of ended workers.
    most: usize,
}

impl Recycling {
    /// Recycling with these limits, for servers with this number of connections each.
    pub(crate) fn new(limits: Recycle, connections: usize) -> Self {
        Self {
            limits,
            unconnected: Mutex::default(),
            most: 4 * connections,
        }
    }

    fn unconnected(&self) -> MutexGuard<'_, HashMap<u32, WorkerRecord>> {
        self.unconnected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The limit that an idle worker has reached; `None` if it stays.
    pub(crate) fn judge(&self, worker: WorkerRecord, pid: Option<u32>) -> Option<Spent> {
        let pid = pid.filter(|_| self.limits.is_on())?;
        worker.spent(&self.limits, pid)
    }

    /// Takes the record of a worker that has a connection again.
    pub(crate) fn take(&self, pid: Option<u32>) -> Option<WorkerRecord> {
        let pid = pid.filter(|_| self.limits.is_on())?;
        self.unconnected().remove(&pid)
    }

    /// Stores the record of a worker whose connection closes.
    pub(crate) fn keep(&self, pid: Option<u32>, worker: WorkerRecord) {
        let Some(pid) = pid.filter(|_| self.limits.is_on()) else {
            return;
        };
        let mut unconnected = self.unconnected();
        if unconnected.len() > self.most {
            unconnected.clear();
        }
        unconnected.insert(pid, worker);
    }

    /// Drops the records of the workers for which `are_gone` is true.
    pub(crate) fn forget(&self, are_gone: impl Fn(u32) -> bool) {
        self.unconnected().retain(|&worker, _| !are_gone(worker));
    }
}

/// The reason why a worker is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spent {
    Requests,
    Memory,
    Age,
    /// It was idle for too long.
    Idle,
}

impl WorkerRecord {
    pub(crate) fn new() -> Self {
        Self {
            served: 0,
            since: Instant::now(),
            memory: WorkerMemory::default(),
        }
    }

    /// The limit that the idle worker with this process id has reached.
    pub(crate) fn spent(self, recycle: &Recycle, pid: u32) -> Option<Spent> {
        if recycle.requests > 0 && self.served >= sooner(recycle.requests, pid) {
            Some(Spent::Requests)
        } else if self.is_old(recycle, pid) {
            Some(Spent::Age)
        } else if recycle.memory > 0 && own_memory(pid).is_some_and(|memory| memory > recycle.memory) {
            Some(Spent::Memory)
        } else {
            None
        }
    }

    /// True if it has reached its age limit.
    pub(crate) fn is_old(self, recycle: &Recycle, pid: u32) -> bool {
        let age = u64::try_from(recycle.age.as_millis()).unwrap_or(u64::MAX);
        age > 0 && self.since.elapsed() >= Duration::from_millis(sooner(age, pid))
    }
}

/// The limit minus up to a tenth, which depends on the process id.
fn sooner(limit: u64, pid: u32) -> u64 {
    // Process ids are consecutive; the multiplication spreads them (Fibonacci hashing).
    let thousandths = u64::from(pid.wrapping_mul(0x9E37_79B9) >> 22) % 101;
    limit - (u128::from(limit) * u128::from(thousandths) / 1000) as u64
}

/// Unshared memory of a process, bytes. About 7 MB that it has in common with its master since the fork are included.
/// `None` if the system does not report it.
pub(crate) fn own_memory(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let mut pages = text
        .split_ascii_whitespace()
        .skip(1)
        .map_while(|word| word.parse::<u64>().ok());
    let (resident, shared) = (pages.next()?, pages.next()?);
    Some(resident.saturating_sub(shared) * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_comes_up_to_a_tenth_sooner_and_not_for_all_at_once() {
        let limits: std::collections::BTreeSet<u64> = (5000..5100).map(|pid| sooner(1000, pid)).collect();
        assert!(limits.iter().all(|limit| (900..=1000).contains(limit)), "{limits:?}");
        assert!(limits.len() > 30, "{} different ones of a hundred", limits.len());
        assert_eq!(sooner(1, 4321), 1, "never zero");
        assert!(sooner(u64::MAX, 7) > u64::MAX / 10 * 8, "no overflow");
    }

    #[test]
    fn each_limit_is_a_reason_of_its_own() {
        let pid = std::process::id();
        let worker = WorkerRecord {
            served: 10,
            ..WorkerRecord::new()
        };
        let spent = |requests, memory, age| worker.spent(&Recycle { requests, memory, age }, pid);
        assert_eq!(spent(0, 0, Duration::ZERO), None);
        assert_eq!(spent(10, 0, Duration::ZERO), Some(Spent::Requests));
        assert_eq!(spent(100, 0, Duration::ZERO), None);
        assert_eq!(spent(0, 1, Duration::ZERO), Some(Spent::Memory));
        assert_eq!(spent(0, 1 << 40, Duration::ZERO), None);
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(spent(0, 0, Duration::from_millis(1)), Some(Spent::Age));
        assert_eq!(spent(0, 0, Duration::from_secs(3600)), None);
    }

    #[test]
    fn own_memory_of_a_process_that_is_gone_is_not_told() {
        assert!(own_memory(std::process::id()).is_some_and(|bytes| bytes > 100_000));
        assert_eq!(own_memory(u32::MAX), None);
    }
}
