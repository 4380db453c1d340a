//! The thread that starts and buries worker processes.
//!
//! One thread for all, and a long-lived one: the death signal of a worker follows the thread that started it. The
//! program is run through a descriptor opened when we started, so that a replaced package changes nothing.

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

/// The nice value of low priority: the highest there is.
const PATIENT: i32 = 19;

/// Signals that a decoder can bring about itself, by a fault or at a limit.
const OWN: [i32; 9] = [
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

/// A worker process and what connects us.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    /// Orders go here, reports come from here.
    pub(super) socket: OwnedFd,
    /// The memory file with its result.
    pub(super) results: File,
}

/// The end of a process.
#[derive(Debug)]
pub(super) struct End {
    /// For people.
    pub(super) told: String,
    /// By a signal that no decoder causes: from another process, or because memory ran out.
    pub(super) is_from_outside: bool,
}

impl End {
    fn unknown(why: impl Into<String>) -> Self {
        Self {
            told: why.into(),
            is_from_outside: false,
        }
    }
}

enum Task {
    Start(oneshot::Sender<io::Result<Process>>),
    /// Ends it, waits for its end, and tells the cause to a caller that asks.
    Bury(Process, Option<oneshot::Sender<End>>),
}

/// The way to the thread. It ends when this is dropped and all is buried.
#[derive(Debug)]
pub(super) struct ProcessStarter {
    tasks: Mutex<Sender<Task>>,
}

impl ProcessStarter {
    /// Starts the thread. `low_priority` processes get what processors others leave; `look` is called now and then.
    ///
    /// # Errors
    /// Our own program cannot be opened, or there is no thread to be had.
    pub(super) fn start(low_priority: bool, mut look: impl FnMut() + Send + 'static) -> io::Result<Self> {
        let program = rustix::fs::open("/proc/self/exe", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let (tasks, inbox) = mpsc::channel();
        thread::Builder::new()
            .name("image-starter".into())
            .spawn(move || keep(&program, low_priority, &inbox, &mut look))?;
        Ok(Self {
            tasks: Mutex::new(tasks),
        })
    }

    /// A new process.
    pub(super) async fn hire(&self) -> io::Result<Process> {
        let (reply, answer) = oneshot::channel();
        self.send(Task::Start(reply));
        answer.await.map_err(io::Error::other)?
    }

    /// Ends a process, in the background.
    pub(super) fn bury(&self, process: Process) {
        self.send(Task::Bury(process, None));
    }

    /// Ends a process and says how it ended; it may have done so before.
    pub(super) async fn autopsy(&self, process: Process) -> End {
        let (reply, answer) = oneshot::channel();
        self.send(Task::Bury(process, Some(reply)));
        answer.await.unwrap_or_else(|_| End::unknown("unknown"))
    }

    fn send(&self, task: Task) {
        let tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        // The thread ends only with us.
        let _ = tasks.send(task);
    }
}

fn keep(program: &OwnedFd, low_priority: bool, inbox: &Receiver<Task>, look: &mut impl FnMut()) {
    loop {
        match inbox.recv_timeout(Duration::from_secs(5)) {
            Ok(Task::Start(reply)) => {
                if let Err(Ok(process)) = reply.send(start(program, low_priority)) {
                    bury(process);
                }
            }
            Ok(Task::Bury(process, reply)) => {
                let end = bury(process);
                if let Some(reply) = reply {
                    let _ = reply.send(end);
                }
            }
            Err(RecvTimeoutError::Timeout) => look(),
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
        // The memory of a large picture is returned to the system after it: our allocator would keep it.
        .env("MIMALLOC_ARENA_RESERVE", "0")
        .current_dir("/")
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::from(results.try_clone()?))
        .stderr(Stdio::null())
        .spawn()?;
    if low_priority {
        let pid = Pid::from_child(&child);
        // It is our child, and may always be given less; where that is forbidden it works all the same.
        let _ = setpriority_process(Some(pid), PATIENT);
    }
    Ok(Process { child, socket, results })
}

/// A worker that crashed has a moment to be gone by itself, so that its own end is what is told.
fn bury(mut process: Process) -> End {
    drop(process.socket);
    if !matches!(process.child.try_wait(), Ok(Some(_))) {
        // Fails if it is gone already.
        let _ = process.child.kill();
    }
    process
        .child
        .wait()
        .map_or_else(|error| End::unknown(error.to_string()), end)
}

fn end(status: ExitStatus) -> End {
    let told = match (status.signal(), status.code()) {
        (Some(libc::SIGABRT), _) => "aborted, out of memory or by a check of its own".into(),
        (Some(libc::SIGXCPU), _) => "its CPU time was over".into(),
        (Some(libc::SIGXFSZ), _) => "its result was too large".into(),
        (Some(signal), _) => format!("signal {signal}"),
        (None, code) => format!("exit code {}", code.unwrap_or(-1)),
    };
    End {
        told,
        is_from_outside: status.signal().is_some_and(|signal| !OWN.contains(&signal)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_is_told_from_a_signal_of_somebody_else() {
        for signal in [libc::SIGKILL, libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGUSR1] {
            assert!(end(ExitStatus::from_raw(signal)).is_from_outside, "{signal}");
        }
        for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGABRT, libc::SIGXCPU, libc::SIGXFSZ] {
            assert!(!end(ExitStatus::from_raw(signal)).is_from_outside, "{signal}");
        }
        let left = end(ExitStatus::from_raw(1 << 8));
        assert_eq!((left.told.as_str(), left.is_from_outside), ("exit code 1", false));
    }
}
