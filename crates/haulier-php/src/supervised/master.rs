//! A running php-cgi, started by this process, or by the spawner as another account.

use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal};

use crate::spawner::Spawner;
use crate::spawner::recipe::Recipe;
use crate::spawner::spawn::{Inherited, spawn};

/// Polling interval for the end of a process that is about to end.
const LOOK: Duration = Duration::from_millis(5);

/// The process that starts a pool's php-cgi.
#[derive(Debug, Clone)]
pub(crate) enum Starter {
    Ourselves(Arc<Recipe>),
    /// The spawner, with the number of the recipe in its list.
    Through(Arc<Spawner>, u32),
}

impl Starter {
    /// Starts a php-cgi.
    ///
    /// # Errors
    /// The system error.
    pub(crate) fn start(&self, listener: BorrowedFd<'_>, inherited: Inherited<'_>) -> io::Result<Master> {
        match self {
            Self::Ourselves(recipe) => spawn(recipe, listener, inherited).map(Master::Ours),
            Self::Through(spawner, number) => {
                let (pid, stderr) = spawner.spawn(*number, listener, inherited)?;
                Ok(Master::Theirs {
                    spawner: Arc::clone(spawner),
                    pid,
                    stderr,
                    ended: None,
                })
            }
        }
    }
}

/// A php-cgi process, with or without children.
#[derive(Debug)]
pub(crate) enum Master {
    Ours(Child),
    /// A child of the spawner.
    Theirs {
        spawner: Arc<Spawner>,
        pid: u32,
        stderr: Option<OwnedFd>,
        ended: Option<ExitStatus>,
    },
}

impl Master {
    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        match self {
            Self::Ours(child) => child.id(),
            Self::Theirs { pid, .. } => *pid,
        }
    }

    /// The process id as a type for system calls.
    pub(crate) fn pid(&self) -> Pid {
        let id = i32::try_from(self.id()).ok().and_then(Pid::from_raw);
        id.expect("the system gives ids above 0 that fit")
    }

    /// Takes its stderr, once.
    pub(crate) fn take_stderr(&mut self) -> Option<File> {
        let stderr = match self {
            Self::Ours(child) => child.stderr.take().map(OwnedFd::from),
            Self::Theirs { stderr, .. } => stderr.take(),
        };
        stderr.map(File::from)
    }

    /// The exit status; `None` while it runs.
    ///
    /// # Errors
    /// The system error, or the spawner has ended, and PHP with it.
    pub(crate) fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        match self {
            Self::Ours(child) => child.try_wait(),
            Self::Theirs {
                spawner, pid, ended, ..
            } => {
                if ended.is_none() {
                    *ended = spawner.how_ended(*pid)?;
                }
                Ok(*ended)
            }
        }
    }

    /// Waits for the end of a process that is about to end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        loop {
            match self.try_wait() {
                Ok(None) => thread::sleep(LOOK),
                ended => return ended.ok().flatten().unwrap_or_default(),
            }
        }
    }

    /// True while it runs.
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.try_wait(), Ok(None))
    }

    /// Ends the process by SIGKILL, without its children.
    pub(crate) fn end(&self) {
        match self {
            Self::Ours(_) => _ = rustix::process::kill_process(self.pid(), Signal::KILL), // it may have ended
            Self::Theirs { ended: Some(_), .. } => {}
            Self::Theirs { spawner, pid, .. } => spawner.end_master(*pid),
        }
    }

    /// Sends SIGTERM or SIGKILL to the process and its children.
    pub(crate) fn end_group(&self, signal: Signal) {
        match self {
            Self::Ours(_) => {
                let _ = rustix::process::kill_process_group(self.pid(), signal); // they may all have ended
            }
            // The spawner has forgotten a program that has ended, and has ended its children.
            Self::Theirs { ended: Some(_), .. } => {}
            Self::Theirs { spawner, pid, .. } => _ = spawner.end_group(*pid, signal),
        }
    }
}
