//! The thread that starts and ends worker processes.
//!
//! It lives as long as the pool, because a worker's parent-death signal is sent when the thread that started it ends.
//! The program is executed through a descriptor from the start of the server, so a package upgrade does not change it.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::fs::{MemfdFlags, Mode, OFlags, memfd_create};
use rustix::process::{Pid, setpriority_process};
use tokio::sync::oneshot;

use crate::worker::process::SUBCOMMAND;
use crate::worker::socket;

/// The nice value of workers of low priority: the highest.
const LOW_PRIORITY: i32 = 19;

/// Signals that a decoder can cause itself, by a fault or a resource limit.
const OF_DECODER: [i32; 9] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGABRT,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGXCPU,
    libc::SIGXFSZ,
];

/// A worker process with its socket and result file.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    /// The socket for orders and reports.
    pub(super) socket: OwnedFd,
    /// The memory file for results.
    pub(super) results: File,
}

/// The way in which a process ended.
#[derive(Debug)]
pub(super) struct ProcessEnd {
    /// Readable cause.
    pub(super) cause: String,
    /// Ended by a signal that no decoder causes: from another process, or because memory ran out.
    pub(super) is_from_outside: bool,
}

impl ProcessEnd {
    fn unknown(why: impl Into<String>) -> Self {
        Self {
            cause: why.into(),
            is_from_outside: false,
        }
    }
}

enum Task {
    Start(oneshot::Sender<io::Result<Process>>),
    /// Ends a process, waits for its end, and reports the cause to a caller that asks.
    End(Process, Option<oneshot::Sender<ProcessEnd>>),
}

/// The handle of the thread, which ends when this is dropped and all tasks are done.
#[derive(Debug)]
pub(super) struct ProcessStarter {
    tasks: Mutex<Sender<Task>>,
}

impl ProcessStarter {
    /// Starts the thread. `low_priority` processes get a nice value of 19. `on_idle` is called when there has been no
    /// task for some seconds.
    ///
    /// # Errors
    /// Our own program cannot be opened, or no thread can be started.
    pub(super) fn start(low_priority: bool, mut on_idle: impl FnMut() + Send + 'static) -> io::Result<Self> {
        let program = rustix::fs::open("/proc/self/exe", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let (tasks, inbox) = mpsc::channel();
        thread::Builder::new()
            .name("image-starter".into())
            .spawn(move || run(&program, low_priority, &inbox, &mut on_idle))?;
        Ok(Self {
            tasks: Mutex::new(tasks),
        })
    }

    /// Starts a process.
    pub(super) async fn start_process(&self) -> io::Result<Process> {
        let (reply, answer) = oneshot::channel();
        self.send(Task::Start(reply));
        answer.await.map_err(io::Error::other)?
    }

    /// Ends a process, in the background.
    pub(super) fn end_in_background(&self, process: Process) {
        self.send(Task::End(process, None));
    }

    /// Ends a process, unless it has ended already, and reports the cause.
    pub(super) async fn end_and_report(&self, process: Process) -> ProcessEnd {
        let (reply, answer) = oneshot::channel();
        self.send(Task::End(process, Some(reply)));
        answer.await.unwrap_or_else(|_| ProcessEnd::unknown("unknown"))
    }

    fn send(&self, task: Task) {
        let tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        // It cannot fail: the thread lives as long as `self`.
        let _ = tasks.send(task);
    }
}

fn run(program: &OwnedFd, low_priority: bool, inbox: &Receiver<Task>, on_idle: &mut impl FnMut()) {
    loop {
        match inbox.recv_timeout(Duration::from_secs(5)) {
            Ok(Task::Start(reply)) => {
                if let Err(Ok(process)) = reply.send(start(program, low_priority)) {
                    end(process);
                }
            }
            Ok(Task::End(process, reply)) => {
                let ended = end(process);
                if let Some(reply) = reply {
                    let _ = reply.send(ended);
                }
            }
            Err(RecvTimeoutError::Timeout) => on_idle(),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn start(program: &OwnedFd, low_priority: bool) -> io::Result<Process> {
    let (socket, theirs) = socket::pair()?;
    let results = File::from(memfd_create("haulier-image", MemfdFlags::CLOEXEC)?);
    let child = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()))
        .arg0("haulier")
        .arg(SUBCOMMAND)
        .env_clear()
        // Without this the allocator would keep the memory of a large picture.
        .env("MIMALLOC_ARENA_RESERVE", "0")
        .current_dir("/")
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::from(results.try_clone()?))
        .stderr(Stdio::null())
        .spawn()?;
    if low_priority {
        let pid = Pid::from_child(&child);
        // Raising the nice value of a child needs no privilege; a failure is ignored.
        let _ = setpriority_process(Some(pid), LOW_PRIORITY);
    }
    Ok(Process { child, socket, results })
}

/// Ends a process. One that has crashed is not killed, so its own signal is reported.
fn end(mut process: Process) -> ProcessEnd {
    drop(process.socket);
    if !matches!(process.child.try_wait(), Ok(Some(_))) {
        // Fails if it has ended already.
        let _ = process.child.kill();
    }
    process
        .child
        .wait()
        .map_or_else(|error| ProcessEnd::unknown(error.to_string()), end_of)
}

fn end_of(status: ExitStatus) -> ProcessEnd {
    let cause = match (status.signal(), status.code()) {
        (Some(libc::SIGABRT), _) => "aborted, out of memory or by a check of its own".into(),
        (Some(libc::SIGXCPU), _) => "its CPU time was over".into(),
        (Some(libc::SIGXFSZ), _) => "its result was too large".into(),
        (Some(signal), _) => format!("signal {signal}"),
        (None, code) => format!("exit code {}", code.unwrap_or(-1)),
    };
    ProcessEnd {
        cause,
        is_from_outside: status.signal().is_some_and(|signal| !OF_DECODER.contains(&signal)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_is_told_from_a_signal_of_somebody_else() {
        for signal in [libc::SIGKILL, libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGUSR1] {
            assert!(end_of(ExitStatus::from_raw(signal)).is_from_outside, "{signal}");
        }
        for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGABRT, libc::SIGXCPU, libc::SIGXFSZ] {
            assert!(!end_of(ExitStatus::from_raw(signal)).is_from_outside, "{signal}");
        }
        let left = end_of(ExitStatus::from_raw(1 << 8));
        assert_eq!((left.cause.as_str(), left.is_from_outside), ("exit code 1", false));
    }
}
