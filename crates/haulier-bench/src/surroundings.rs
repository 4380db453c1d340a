//! The machine of a run: its description, and counters of its kernel.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::result::{KernelCounts, Machine};

/// Settings that decide how many connections there can be.
const SYSCTLS: [&str; 6] = [
    "net.core.somaxconn",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.tcp_tw_reuse",
    "net.ipv4.tcp_fin_timeout",
    "fs.file-max",
];

/// The kernel shows user space a hundred ticks a second on every architecture (USER_HZ).
const TICKS_PER_SECOND: f64 = 100.0;

/// Describes the machine. A fact that cannot be read stays empty.
#[must_use]
pub fn machine() -> Machine {
    let read = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let line = |path: &str, name: &str| {
        let text = fs::read_to_string(path).unwrap_or_default();
        let found = text.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned));
        found.map(|value| {
            value
                .trim_start_matches([' ', '\t', ':', '='])
                .trim_matches('"')
                .to_owned()
        })
    };
    let uname = rustix::system::uname();
    let memory = line("/proc/meminfo", "MemTotal").unwrap_or_default();
    let memory: u64 = memory.trim_end_matches(" kB").parse().unwrap_or(0);
    let sysctl = |name: &str| {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        Some((name.to_owned(), read(&path)?.replace('\t', " ")))
    };
    Machine {
        cpu: line("/proc/cpuinfo", "model name").unwrap_or_default(),
        cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
        memory_bytes: memory * 1024,
        kernel: format!(
            "{} {}",
            uname.sysname().to_string_lossy(),
            uname.release().to_string_lossy()
        ),
        os: line("/etc/os-release", "PRETTY_NAME").unwrap_or_default(),
        governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        // systemd's time service leaves this file after it has succeeded; others leave nothing to look at.
        clock_synchronised: Path::new("/run/systemd/timesync/synchronized").exists().then_some(true),
        load_before: load(),
        descriptors: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
        sysctls: SYSCTLS
            .iter()
            .filter_map(|name| sysctl(name))
            .collect::<BTreeMap<_, _>>(),
    }
}

/// The load average of a minute.
fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ')
        .next()
        .and_then(|number| number.parse().ok())
        .unwrap_or(0.0)
}

/// Resident memory of this process, bytes.
#[must_use]
pub fn own_memory() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

/// Processor time that all cores have used since the machine started, s; without waiting and time stolen by a host.
#[must_use]
pub fn machine_cpu_s() -> f64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    // user, nice, system, idle, iowait, irq, softirq
    let ticks = |place: usize| {
        line.split_whitespace()
            .nth(place + 1)
            .and_then(|ticks| ticks.parse::<f64>().ok())
    };
    [0, 1, 2, 5, 6].into_iter().filter_map(ticks).sum::<f64>() / TICKS_PER_SECOND
}

/// Processor time that this process has used, s.
#[must_use]
pub fn own_cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The kernel's counters since the machine started.
#[must_use]
pub fn kernel_counts() -> KernelCounts {
    let snmp = fs::read_to_string("/proc/net/snmp").unwrap_or_default();
    let netstat = fs::read_to_string("/proc/net/netstat").unwrap_or_default();
    KernelCounts {
        retransmitted: counter(&snmp, "Tcp:", "RetransSegs"),
        listen_overflows: counter(&netstat, "TcpExt:", "ListenOverflows"),
        listen_drops: counter(&netstat, "TcpExt:", "ListenDrops"),
    }
}

/// Reads a counter. Names stand in one line, values in the next; both begin with `group`.
fn counter(text: &str, group: &str, name: &str) -> u64 {
    let mut lines = text.lines().filter(|line| line.starts_with(group));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else {
        return 0;
    };
    let place = names.split(' ').position(|found| found == name);
    place
        .and_then(|place| values.split(' ').nth(place))
        .and_then(|value| value.parse().ok())
        .unwrap_or(0)
}

impl KernelCounts {
    /// The increase since `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            retransmitted: self.retransmitted.saturating_sub(before.retransmitted),
            listen_overflows: self.listen_overflows.saturating_sub(before.listen_overflows),
            listen_drops: self.listen_drops.saturating_sub(before.listen_drops),
        }
    }
}

/// Now, in UTC, RFC 3339 without fractions.
#[must_use]
pub fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    rfc3339(since.as_secs())
}

fn rfc3339(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Year, month and day of a number of days after 1970-01-01 (Hinnant's formula).
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(rfc3339(1_795_276_799), "2026-11-21T15:59:59Z");
    }

    #[test]
    fn counters_are_found_by_their_names() {
        let text = "IpExt: A B\nIpExt: 1 2\nTcpExt: SyncookiesSent ListenOverflows\nTcpExt: 5 17\n";
        assert_eq!(counter(text, "TcpExt:", "ListenOverflows"), 17);
        assert_eq!(counter(text, "TcpExt:", "Nothing"), 0);
        assert_eq!(counter("", "TcpExt:", "ListenOverflows"), 0);
    }

    #[test]
    fn this_machine_is_described() {
        let machine = machine();
        assert!(machine.cores >= 1 && machine.memory_bytes > 1 << 20, "{machine:?}");
        assert!(machine.kernel.starts_with("Linux "), "{machine:?}");
        assert!(own_memory() > 100_000);
    }
}
