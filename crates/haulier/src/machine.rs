//! The resources of this machine: processors, memory, descriptors.

use std::fs;
use std::thread;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors for the open-file caches of a few sites.
const OPEN_FILES: u64 = 512;
/// Open files per thread and site if there are many sites; half of them belong to the cache's older generation.
const OPEN_FILES_OF_A_SITE: u64 = 2;
/// Descriptors for listeners, logs, current spools and libraries.
const MISCELLANEOUS: u64 = 64;

/// The resources that defaults depend on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Machine {
    /// Processors this process may use.
    pub(crate) cores: usize,
    /// Memory in bytes: the machine's, or the limit of our control group when that is less.
    pub(crate) memory: u64,
    /// Most descriptors this process may have.
    pub(crate) descriptors: u64,
}

impl Machine {
    /// Reads the resources of this machine.
    pub(crate) fn look() -> Self {
        let memory = [total_memory(), group_memory()].into_iter().flatten().min();
        Self {
            cores: thread::available_parallelism().map_or(1, usize::from),
            memory: memory.unwrap_or(u64::MAX),
            descriptors: getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX),
        }
    }

    /// Connections the descriptor limit allows.
    ///
    /// A reserve is kept for the open-file caches, one a site, two a PHP worker, four a thread and 64 others; never
    /// more than half of the limit, and the descriptors of the admin address.
    pub(crate) fn connections(&self, workers: usize, threads: usize, sites: usize) -> usize {
        let files = self.open_files(threads, sites) as u64;
        let wanted = files + MISCELLANEOUS + sites as u64 + 2 * workers as u64 + 4 * threads as u64;
        let reserve = wanted.min(self.descriptors / 2 + RESERVED.min(self.descriptors / 8));
        usize::try_from(self.descriptors - reserve).unwrap_or(usize::MAX).max(1)
    }

    /// Files the caches of all threads may hold open: 512, more for many sites, at most a quarter of the limit.
    pub(crate) fn open_files(&self, threads: usize, sites: usize) -> usize {
        let wanted = (OPEN_FILES_OF_A_SITE * threads as u64 * sites as u64).max(OPEN_FILES);
        usize::try_from(wanted.min(self.descriptors / 4)).unwrap_or(usize::MAX)
    }

    /// Default number of PHP processes: max(4, 2 × cores), fewer where that many at `memory_limit` bytes each
    /// would take more than 60 % of the memory.
    pub(crate) fn workers(&self, memory_limit: Option<u64>) -> usize {
        let wanted = (2 * self.cores).max(4);
        let Some(memory_limit) = memory_limit else {
            return wanted;
        };
        let room = self.memory / 10 * 6 / memory_limit.max(1);
        wanted.min(usize::try_from(room).unwrap_or(usize::MAX)).max(1)
    }
}

/// Descriptors kept for health checks and commands.
const RESERVED: u64 = 8;

/// Raises the soft limit on descriptors nearly to the hard one; shells set a low one for programs that use `select`. The
/// difference is the [`Reserve`].
pub(crate) fn raise_descriptor_limit() {
    limit_descriptors(true);
}

/// Opens the last descriptors for use while it is held. Those that are in use then stay open, and return to the reserve
/// when they are closed.
#[derive(Debug)]
pub(crate) struct Reserve(());

impl Reserve {
    pub(crate) fn open() -> Self {
        limit_descriptors(false);
        Self(())
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        limit_descriptors(true);
    }
}

fn limit_descriptors(keeps_reserve: bool) {
    let limit = getrlimit(Resource::Nofile);
    let reserved = |most: u64| RESERVED.min(most / 8);
    let current = limit
        .maximum
        .map(|most| most - if keeps_reserve { reserved(most) } else { 0 });
    // A refusal leaves the limit as it was; `Machine::connections` reads the limit in force.
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current,
            maximum: limit.maximum,
        },
    );
}

fn total_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// The limit of our control group (version 2).
fn group_memory() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    fs::read_to_string(format!("/sys/fs/cgroup{path}/memory.max"))
        .ok()?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn workers_follow_cores_and_memory() {
        let machine = |cores, memory| Machine {
            cores,
            memory,
            descriptors: 1024,
        };
        assert_eq!(machine(2, 8 * GIB).workers(Some(128 << 20)), 4);
        assert_eq!(machine(16, 64 * GIB).workers(Some(128 << 20)), 32);
        assert_eq!(machine(16, 4 * GIB).workers(Some(256 << 20)), 9);
        assert_eq!(machine(2, GIB / 4).workers(Some(512 << 20)), 1);
        assert_eq!(machine(2, GIB).workers(None), 4);
    }

    #[test]
    fn connections_leave_a_reserve_but_never_more_than_half() {
        let machine = |descriptors| Machine {
            cores: 2,
            memory: GIB,
            descriptors,
        };
        assert_eq!(machine(20_000).connections(8, 2, 1), 20_000 - 512 - 64 - 1 - 16 - 8);
        assert_eq!(
            machine(20_000).connections(8, 2, 1000),
            20_000 - 4000 - 64 - 1000 - 16 - 8
        );
        assert_eq!(machine(1024).connections(8, 2, 1), 1024 - 256 - 64 - 1 - 16 - 8);
        assert_eq!(machine(1024).connections(8, 2, 1000), 504);
        assert_eq!(machine(64).connections(8, 2, 1), 24);
    }

    #[test]
    fn this_machine_has_a_processor_and_memory() {
        let machine = Machine::look();
        assert!(
            machine.cores >= 1 && machine.memory > 1 << 20 && machine.descriptors > 0,
            "{machine:?}"
        );
    }
}
