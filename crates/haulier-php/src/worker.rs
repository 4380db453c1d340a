//! What is known of one php-cgi process, and when it has done its share.

use std::time::{Duration, Instant};

use crate::settings::Recycle;

/// What a worker has done, as far as we have seen.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Worker {
    /// Requests answered.
    pub(crate) served: u64,
    /// When it answered its first.
    pub(crate) since: Instant,
}

/// Why a worker is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spent {
    Requests,
    Memory,
    Age,
    /// It had nothing to do.
    Idle,
}

impl Worker {
    pub(crate) fn new() -> Self {
        Self {
            served: 0,
            since: Instant::now(),
        }
    }

    /// Why the worker with this process id is to go, if it is; it has no request.
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

    /// True if it has lived its time.
    pub(crate) fn is_old(self, recycle: &Recycle, pid: u32) -> bool {
        let age = u64::try_from(recycle.age.as_millis()).unwrap_or(u64::MAX);
        age > 0 && self.since.elapsed() >= Duration::from_millis(sooner(age, pid))
    }
}

/// Up to a tenth less, different for each worker and always the same for one.
fn sooner(limit: u64, pid: u32) -> u64 {
    // Process ids stand in a row; the multiplication spreads them (Fibonacci hashing).
    let thousandths = u64::from(pid.wrapping_mul(0x9E37_79B9) >> 22) % 101;
    limit - (u128::from(limit) * u128::from(thousandths) / 1000) as u64
}

/// Memory that the process does not share with files or other processes, bytes; what it has in common with its master
/// since the fork counts too, some 7 MB. `None` where the system does not tell.
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
        assert_eq!(sooner(1, 4321), 1, "never none at all");
        assert!(sooner(u64::MAX, 7) > u64::MAX / 10 * 8, "no overflow");
    }

    #[test]
    fn each_limit_is_a_reason_of_its_own() {
        let pid = std::process::id();
        let worker = Worker {
            served: 10,
            ..Worker::new()
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
