//! Processes of a plan: they run on chosen cores, and never outlive it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use super::settings::Named;
use super::workspace::Workspace;

/// Pause between two checks of a process tree that is ending.
const LOOK: Duration = Duration::from_millis(20);

/// Time for workers to end after their master.
const GRACE: Duration = Duration::from_secs(2);

/// A started process with its descendants, in a process group of its own.
#[derive(Debug)]
pub(super) struct Started {
    child: Child,
    pub(super) pid: u32,
}

/// Start time of a process, in ticks since boot. It tells a process from a later one with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct StartTime(u64);

/// A command that is ready to start.
pub(super) struct Start<'a> {
    pub(super) words: &'a [String],
    pub(super) env: &'a Named,
    pub(super) directory: &'a Path,
    pub(super) cores: &'a [usize],
}

impl Start<'_> {
    /// The command, not started yet: no input, a process group of its own, killed on drop.
    pub(super) fn command(&self, workspace: &Workspace) -> Command {
        let program = workspace
            .find(&self.words[0])
            .unwrap_or_else(|| self.words[0].clone().into());
        let mut command = std::process::Command::new(program);
        command
            .args(&self.words[1..])
            .current_dir(self.directory)
            .env("PATH", &workspace.search);
        command.stdin(Stdio::null()).process_group(0);
        command.envs(workspace.env.iter().chain(self.env).map(|(name, value)| (name, value)));
        let mut command = Command::from(command);
        command.kill_on_drop(true);
        command
    }

    /// Runs it to its end; its output is appended to `log`.
    pub(super) async fn run(&self, workspace: &Workspace, log: &Path) -> io::Result<ExitStatus> {
        self.start(workspace, log)?.child().wait().await
    }

    /// Starts it; its output is appended to `log`.
    pub(super) fn start(&self, workspace: &Workspace, log: &Path) -> io::Result<Started> {
        let log = File::options().create(true).append(true).open(log)?;
        let mut command = self.command(workspace);
        command.stdout(log.try_clone()?).stderr(log);
        on_cores(self.cores, || Started::spawn(&mut command))
    }
}

impl Started {
    pub(super) fn spawn(command: &mut Command) -> io::Result<Self> {
        let child = command.spawn()?;
        let pid = child.id().ok_or_else(|| io::Error::other("it ended at once"))?;
        Ok(Self { child, pid })
    }

    pub(super) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// True if it has ended.
    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends SIGTERM; after `patience`, kills the rest of its tree.
    pub(super) async fn end(&mut self, patience: Duration) {
        let tree = tree(self.pid);
        if !self.has_ended() {
            signal(self.pid, Signal::TERM);
            let _ = timeout(patience, self.child.wait()).await;
        }
        let is_left = |(pid, started): &(&u32, &StartTime)| StartTime::of(**pid) == Some(**started);
        // Workers need a moment to notice that their master has ended.
        let deadline = Instant::now() + patience.min(GRACE);
        while Instant::now() < deadline && tree.iter().any(|one| is_left(&one)) {
            sleep(LOOK).await;
        }
        for (pid, _) in tree.iter().filter(is_left) {
            signal(*pid, Signal::KILL);
        }
        let _ = self.child.wait().await;
    }
}

impl Drop for Started {
    /// Ends the process if the plan is interrupted: SIGTERM, then SIGKILL after a grace period.
    fn drop(&mut self) {
        let Some(group) = pid_of(self.pid).filter(|_| !self.has_ended()) else {
            return;
        };
        let _ = kill_process_group(group, Signal::TERM);
        let deadline = std::time::Instant::now() + GRACE;
        while !self.has_ended() && std::time::Instant::now() < deadline {
            std::thread::sleep(LOOK);
        }
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// Runs `start` while this thread may use these cores only; processes that it starts inherit them.
pub(super) fn on_cores<T>(cores: &[usize], start: impl FnOnce() -> T) -> T {
    let Ok(before) = sched_getaffinity(None) else {
        return start();
    };
    let mut set = CpuSet::new();
    cores.iter().for_each(|core| set.set(*core));
    // If cores cannot be chosen, all processes share them; CPU time per request is still right.
    let _ = sched_setaffinity(None, &set);
    let started = start();
    let _ = sched_setaffinity(None, &before);
    started
}

fn pid_of(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = pid_of(pid) {
        // A process that has ended meanwhile needs no signal.
        let _ = kill_process(pid, signal);
    }
}

impl StartTime {
    /// Start time of a process (proc(5), field 22).
    fn of(pid: u32) -> Option<Self> {
        let (_, birth) = stat(pid)?;
        Some(birth)
    }
}

/// Parent and start time of a process; `None` for a zombie.
fn stat(pid: u32) -> Option<(u32, StartTime)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after_name) = text.rsplit_once(')')?;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    if fields.first() == Some(&"Z") {
        return None;
    }
    Some((u32::try_from(number(4)?).ok()?, StartTime(number(22)?)))
}

/// A process and its descendants.
fn tree(root: u32) -> BTreeMap<u32, StartTime> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        all.extend(pid.and_then(|pid| Some((pid, stat(pid)?))));
    }
    let mut found = BTreeMap::new();
    let mut waiting = vec![root];
    while let Some(pid) = waiting.pop() {
        let Some((_, birth)) = all.get(&pid) else { continue };
        if found.insert(pid, *birth).is_none() {
            let children = all.iter().filter(|(_, (parent, _))| *parent == pid);
            waiting.extend(children.map(|(child, _)| *child));
        }
    }
    found
}

/// The last 300 characters of a log, in one line.
pub(super) fn last_words(log: impl AsRef<OsStr>) -> String {
    let bytes = fs::read(Path::new(log.as_ref())).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    let from = line.char_indices().rev().nth(299).map_or(0, |(at, _)| at);
    match line[from..].is_empty() {
        true => "it printed nothing".to_owned(),
        false => line[from..].to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Started {
        let mut command = Command::from({
            let mut command = std::process::Command::new("sh");
            command.args(["-c", script]).process_group(0).stdout(Stdio::piped());
            command
        });
        Started::spawn(&mut command).expect("a shell")
    }

    /// Waits until the process has this number of descendants.
    async fn grown(pid: u32, count: usize) -> BTreeMap<u32, StartTime> {
        for _ in 0..1000 {
            let tree = tree(pid);
            if tree.len() >= count {
                return tree;
            }
            sleep(LOOK).await;
        }
        panic!("it never had {count} processes");
    }

    fn left(tree: &BTreeMap<u32, StartTime>) -> usize {
        tree.iter()
            .filter(|(pid, birth)| StartTime::of(**pid) == Some(**birth))
            .count()
    }

    #[tokio::test]
    async fn a_tree_ends_with_its_root_even_if_it_does_not_want_to() {
        let mut started = shell("trap '' TERM; (trap '' TERM; sleep 60) & sleep 60 & wait");
        let tree = grown(started.pid, 3).await;
        started.end(Duration::from_millis(300)).await;
        for _ in 0..500 {
            if left(&tree) == 0 {
                return;
            }
            sleep(LOOK).await;
        }
        panic!("{} processes are left", left(&tree));
    }

    #[tokio::test]
    async fn a_dropped_process_is_killed() {
        let started = shell("sleep 60 & wait");
        let tree = grown(started.pid, 2).await;
        drop(started);
        for _ in 0..500 {
            if left(&tree) == 0 {
                return;
            }
            sleep(LOOK).await;
        }
        panic!("{} processes are left", left(&tree));
    }

    #[test]
    fn the_end_of_a_log_fits_in_a_line() {
        let log = tempfile::NamedTempFile::new().expect("a file");
        fs::write(log.path(), format!("{}\n  the\nend é", "x ".repeat(500))).expect("written");
        let words = last_words(log.path());
        assert!(words.ends_with("the end é") && words.chars().count() == 300, "{words}");
        assert_eq!(last_words("/nowhere"), "it printed nothing");
    }
}
