//! Figures of the process from /proc, for the standard `process_*` metrics.

use std::fs;
use std::time::{Duration, SystemTime};

/// Figures from the kernel; 0 if unavailable.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Process {
    /// User and system time.
    pub(super) cpu: Duration,
    /// Since 1970.
    pub(super) started: Duration,
    pub(super) virtual_bytes: u64,
    pub(super) resident_bytes: u64,
    pub(super) threads: u64,
    pub(super) open_fds: u64,
    pub(super) max_fds: u64,
}

/// The kernel reports times in hundredths of a second on every architecture (USER_HZ).
const TICK: Duration = Duration::from_millis(10);

impl Process {
    /// Reads the figures of this process.
    pub(super) fn look() -> Self {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let open_fds = fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let mut process = Self {
            open_fds,
            max_fds: limit.unwrap_or(u64::MAX),
            ..Self::from_stat(&stat)
        };
        if let Some(since_boot) = start_since_boot(&stat) {
            process.started = booted().unwrap_or_default() + since_boot;
        }
        process
    }

    fn from_stat(stat: &str) -> Self {
        let field = |number| field(stat, number).unwrap_or(0);
        let ticks = field(14) + field(15);
        Self {
            cpu: TICK * u32::try_from(ticks).unwrap_or(u32::MAX),
            threads: field(20),
            virtual_bytes: field(23),
            resident_bytes: field(24) * rustix::param::page_size() as u64,
            ..Self::default()
        }
    }
}

/// A field of /proc/self/stat by its number in proc(5). The name (field 2) may contain any character, brackets
/// included.
fn field(stat: &str, number: usize) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(number - 3)?.parse().ok()
}

fn start_since_boot(stat: &str) -> Option<Duration> {
    Some(TICK * u32::try_from(field(stat, 22)?).ok()?)
}

/// Boot time of the machine, since 1970.
fn booted() -> Option<Duration> {
    let up = fs::read_to_string("/proc/uptime").ok()?;
    let up: f64 = up.split_whitespace().next()?.parse().ok()?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(now.saturating_sub(Duration::from_secs_f64(up)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_threads_memory_and_a_start_in_the_past() {
        let process = Process::look();
        assert!(
            process.threads >= 1 && process.open_fds >= 3 && process.max_fds >= process.open_fds,
            "{process:?}"
        );
        assert!(
            process.resident_bytes > 100_000 && process.virtual_bytes >= process.resident_bytes,
            "{process:?}"
        );
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .expect("after 1970");
        assert!(process.started <= now + Duration::from_secs(2), "{process:?}");
        assert!(process.started + Duration::from_secs(86_400) > now, "{process:?}");
    }

    #[test]
    fn a_name_with_brackets_and_spaces_moves_no_field() {
        let stat = "7 (a) b) S 1 1 1 0 -1 0 0 0 0 0 150 50 0 0 20 0 3 0 100 4096 2";
        let process = Process::from_stat(stat);
        assert_eq!(
            (process.cpu, process.threads, process.virtual_bytes),
            (Duration::from_secs(2), 3, 4096)
        );
        assert_eq!(start_since_boot(stat), Some(Duration::from_secs(1)));
    }
}
