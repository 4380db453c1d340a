//! The php-cgi programs of a pool, one per address, as leases and status use them.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::Signal;

use crate::memory;
use crate::peer::Peer;
use crate::spawner::Spawner;
use crate::trace::{Trace, TraceLine};

/// The programs that the supervisor keeps running.
#[derive(Debug)]
pub(crate) struct Processes {
    programs: Vec<Program>,
    /// Every worker is a separate program instead of a child of one master.
    pub(crate) separate: bool,
    /// Starts and ends them as another account; `None` if this process does.
    spawner: Option<Arc<Spawner>>,
}

/// One php-cgi program.
#[derive(Debug, Default)]
struct Program {
    /// Process id; 0 while it does not run.
    pid: AtomicU32,
    /// A descriptor of the process, if it is a separate worker.
    process: Mutex<Option<Arc<OwnedFd>>>,
    /// Tells what its workers are at, if they are of our own.
    traces: Mutex<Option<Arc<TraceLine>>>,
}

impl Program {
    fn set_process(&self, process: Option<OwnedFd>) {
        *self.process.lock().unwrap_or_else(PoisonError::into_inner) = process.map(Arc::new);
    }

    fn process(&self) -> Option<Arc<OwnedFd>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Processes {
    pub(crate) fn new(number: usize, separate: bool, spawner: Option<Arc<Spawner>>) -> Self {
        Self {
            programs: (0..number).map(|_| Program::default()).collect(),
            separate,
            spawner,
        }
    }

    pub(crate) fn note_started(&self, server: usize, pid: u32, process: Option<OwnedFd>, traces: Option<TraceLine>) {
        *self.programs[server]
            .traces
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = traces.map(Arc::new);
        self.programs[server].pid.store(pid, Ordering::Relaxed);
        self.programs[server].set_process(process);
    }

    /// Notes the end, and returns the former process id.
    pub(crate) fn note_ended(&self, server: usize) -> u32 {
        let pid = self.programs[server].pid.swap(0, Ordering::Relaxed);
        self.programs[server].set_process(None);
        pid
    }

    /// Searches the worker at the other end of a connection to this address; `None` while the program does not run.
    pub(crate) fn find_peer(&self, server: usize, peer: &Peer, socket: impl std::os::fd::AsFd) -> Option<Peer> {
        let master = self.programs[server].pid.load(Ordering::Relaxed);
        if master == 0 {
            return None;
        }
        let found = match self.programs[server].process() {
            Some(process) => Peer::Process { pid: master, process },
            None => Peer::find(socket, master, self.spawner.as_deref()),
        };
        match (found, peer) {
            (Peer::Untold, Peer::Unknown) => Some(Peer::one_of(master)),
            (Peer::Untold, _) => None,
            (found, _) => Some(found),
        }
    }

    /// Sends SIGTERM or SIGKILL to a worker; true if the signal was sent.
    pub(crate) fn end(&self, peer: &Peer, signal: Signal) -> bool {
        peer.end(signal, self.spawner.as_deref())
    }

    /// The calls of the script that this worker runs; `None` if it runs none, or is none of our own.
    pub(crate) fn trace(&self, pid: u32) -> Option<Trace> {
        let line = |program: &Program| program.traces.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.programs.iter().filter_map(line).find_map(|line| line.ask(pid))
    }

    /// Memory of all programs and their children in bytes, shared memory counted once. Programs that are being started,
    /// or whose memory the system does not report, count 0.
    pub(crate) fn memory(&self) -> u64 {
        let masters = self.programs.iter().map(|program| program.pid.load(Ordering::Relaxed));
        let of_tree = |master| match &self.spawner {
            Some(spawner) if master != 0 => spawner.memory(master),
            _ => memory::of_tree(master),
        };
        masters.filter_map(of_tree).sum()
    }
}
