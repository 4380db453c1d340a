//! CPU time and memory of the server's process tree, from /proc and control groups.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The kernel shows user space a hundred ticks a second on every architecture (USER_HZ).
const TICK_US: u64 = 10_000;

/// A process tree or a unit to watch.
#[derive(Debug, Clone, Default)]
pub struct Processes {
    roots: Vec<u32>,
    group: Option<PathBuf>,
}

/// Figures of all processes at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessUse {
    /// User and system time since the processes began, with that of ended children, µs. In steps of 10 ms.
    pub cpu_us: u64,
    /// Time that the scheduler counted for the present threads, µs. It is exact, but lacks threads that have ended.
    pub running_us: u64,
    /// The same two for processes named php* alone, to tell a server and its PHP apart.
    pub php_cpu_us: u64,
    pub php_running_us: u64,
    /// Resident memory, bytes; shared pages count for every process.
    pub rss_bytes: u64,
    pub processes: u32,
}

impl ProcessUse {
    /// CPU time since `before`, µs. It is exact if little was used and no thread ended, else in steps of 10 ms.
    #[must_use]
    pub fn cpu_since(&self, before: &Self) -> f64 {
        let coarse = self.cpu_us.saturating_sub(before.cpu_us);
        self.finer(coarse, self.running_us.saturating_sub(before.running_us))
    }

    /// The part of it that PHP used.
    #[must_use]
    pub fn php_cpu_since(&self, before: &Self) -> f64 {
        let coarse = self.php_cpu_us.saturating_sub(before.php_cpu_us);
        self.finer(coarse, self.php_running_us.saturating_sub(before.php_running_us))
    }

    fn finer(&self, coarse: u64, exact: u64) -> f64 {
        let is_near = exact.abs_diff(coarse) <= 2 * TICK_US * u64::from(self.processes.max(1));
        if is_near && exact > 0 {
            exact as f64
        } else {
            coarse as f64
        }
    }
}

impl Processes {
    /// # Errors
    /// A message that names the process or unit that does not exist.
    pub fn new(pids: &[u32], unit: Option<&str>) -> Result<Self, String> {
        if let Some(gone) = pids.iter().find(|pid| Stat::read(**pid).is_none()) {
            return Err(format!("there is no process {gone}"));
        }
        Ok(Self {
            roots: pids.to_vec(),
            group: unit.map(group_of).transpose()?,
        })
    }

    /// True if no process is watched.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.roots.is_empty() && self.group.is_none()
    }

    /// CPU time and memory now.
    #[must_use]
    pub fn usage(&self) -> ProcessUse {
        let mut used = ProcessUse::default();
        let members = self.members();
        for pid in &members {
            let Some(stat) = Stat::read(*pid) else { continue };
            used.cpu_us += stat.ticks * TICK_US;
            let running = running_us(*pid);
            used.running_us += running;
            if stat.is_php {
                used.php_cpu_us += stat.ticks * TICK_US;
                used.php_running_us += running;
            }
            used.rss_bytes += stat.pages * rustix::param::page_size() as u64;
            used.processes += 1;
        }
        if let Some(group) = &self.group {
            let text = fs::read_to_string(group.join("cpu.stat")).unwrap_or_default();
            let usage = text.lines().find_map(|line| line.strip_prefix("usage_usec "));
            // The group counts processes that have ended, too.
            used.cpu_us = usage.and_then(|usage| usage.parse().ok()).unwrap_or(used.cpu_us);
        }
        used
    }

    /// Memory now, bytes; shared pages count once. Slower than [`Processes::usage`]; `None` if the kernel denies access.
    #[must_use]
    pub fn pss_bytes(&self) -> Option<u64> {
        let sizes = self.members().into_iter().filter_map(|pid| {
            let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
            let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
            line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
        });
        let kibibytes: u64 = sizes.sum();
        (kibibytes > 0).then_some(kibibytes * 1024)
    }

    /// All processes of the trees and the group.
    fn members(&self) -> Vec<u32> {
        if let Some(group) = &self.group {
            let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
            return text.lines().filter_map(|line| line.parse().ok()).collect();
        }
        let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if let Some((pid, stat)) = pid.and_then(|pid| Some((pid, Stat::read(pid)?))) {
                children.entry(stat.parent).or_default().push(pid);
            }
        }
        let (mut found, mut at) = (self.roots.clone(), 0);
        while at < found.len() {
            for child in children.remove(&found[at]).unwrap_or_default() {
                if !found.contains(&child) {
                    found.push(child);
                }
            }
            at += 1;
        }
        found
    }
}

/// The fields of /proc/PID/stat that are used here.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    /// Its name begins with `php`.
    is_php: bool,
    /// User and system, of the process and of its ended children.
    ticks: u64,
    pages: u64,
}

impl Stat {
    fn read(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Fields by their number in proc(5). The name, field 2, may contain any character, even brackets.
    fn parse(text: &str) -> Option<Self> {
        let (before, after_name) = text.rsplit_once(')')?;
        let (_, name) = before.split_once('(')?;
        let fields: Vec<&str> = after_name.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            parent: u32::try_from(field(4)?).ok()?,
            is_php: name.starts_with("php"),
            ticks: field(14)? + field(15)? + field(16)? + field(17)?,
            pages: field(24)?,
        })
    }
}

/// The scheduler's time of all threads of a process, µs; 0 if it does not count.
fn running_us(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let times = tasks.filter_map(|task| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    times.sum::<u64>() / 1000
}

/// The control group of a systemd unit.
fn group_of(unit: &str) -> Result<PathBuf, String> {
    let output = Command::new("systemctl")
        .args(["show", "--property=ControlGroup", "--value", "--", unit])
        .output()
        .map_err(|error| format!("systemctl: {error}"))?;
    let path = String::from_utf8_lossy(&output.stdout);
    let path = path.trim();
    let group = PathBuf::from(format!("/sys/fs/cgroup{path}"));
    if path.is_empty() || !group.join("cgroup.procs").exists() {
        return Err(format!("the unit {unit} is not running"));
    }
    Ok(group)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_moves_no_field() {
        let text = "7 (a) b) S 42 1 1 0 -1 0 0 0 0 0 1 2 3 4 20 0 3 0 100 4096 9";
        let stat = Stat {
            parent: 42,
            is_php: false,
            ticks: 10,
            pages: 9,
        };
        assert_eq!(Stat::parse(text), Some(stat));
        assert_eq!(Stat::parse("nonsense"), None);
        let php = Stat::parse(&text.replace("a) b", "php-fpm8.2")).expect("the same fields");
        assert!(php.is_php);
    }

    #[test]
    fn a_tree_has_its_children_and_their_time() {
        let mut child = Command::new("sh")
            .args(["-c", "sleep 30 & wait"])
            .spawn()
            .expect("a shell");
        let processes = Processes::new(&[child.id()], None).expect("it runs");
        let deadline = Instant::now() + Duration::from_secs(20);
        while processes.usage().processes < 2 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        let (used, pss) = (processes.usage(), processes.pss_bytes());
        let members = processes.members();
        for pid in members {
            let _ = Command::new("kill").arg(pid.to_string()).status();
        }
        let _ = child.wait();
        assert_eq!(used.processes, 2);
        assert!(used.rss_bytes > 100_000, "{used:?}");
        assert!(pss.is_none_or(|pss| pss <= used.rss_bytes), "{pss:?} of {used:?}");
    }

    #[test]
    fn time_that_is_used_is_seen() {
        let processes = Processes::new(&[std::process::id()], None).expect("we run");
        let before = processes.usage().cpu_us;
        let begun = Instant::now();
        let mut sum = 0u64;
        while processes.usage().cpu_us < before + 2 * TICK_US && begun.elapsed() < Duration::from_secs(60) {
            sum = sum.wrapping_mul(31).wrapping_add(std::hint::black_box(1));
        }
        assert!(processes.usage().cpu_us > before, "{sum}");
    }

    #[test]
    fn little_time_is_exact_and_much_is_complete() {
        let used = |cpu_us, running_us| ProcessUse {
            cpu_us,
            running_us,
            processes: 1,
            ..ProcessUse::default()
        };
        assert_eq!(used(10_000, 3_250).cpu_since(&used(0, 0)), 3_250.0);
        // A thread ended: only the coarse figure has its time.
        assert_eq!(used(900_000, 1_000).cpu_since(&used(0, 0)), 900_000.0);
        assert_eq!(used(10_000, 0).cpu_since(&used(0, 500)), 10_000.0);
    }

    #[test]
    fn a_missing_process_is_an_error() {
        assert!(Processes::new(&[u32::MAX], None).is_err());
        assert!(Processes::default().is_empty());
        assert_eq!(Processes::default().usage(), ProcessUse::default());
    }
}
