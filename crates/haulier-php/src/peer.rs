//! The process at the other end of a connection.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::process::Signal;

use crate::children;
use crate::ended::{Ended, has_ended, how_ended, only_ended};
use crate::spawner::Spawner;

/// The process at the other end of a connection, as far as it is known.
#[derive(Debug)]
pub(crate) enum Peer {
    /// Not searched yet.
    Unknown,
    /// One of these children accepts the connection, or has just accepted it.
    OneOf(Vec<(u32, OwnedFd)>),
    /// Not a child of ours, or the system does not report it.
    Untold,
    /// This child holds the other end, a socket with this inode.
    Child {
        pid: u32,
        inode: u32,
        /// Descriptor that reports its exit status; `None` if the system gave none.
        process: Option<OwnedFd>,
    },
    /// The separate worker program that listens on the connection's address.
    Process { pid: u32, process: Arc<OwnedFd> },
}

impl Peer {
    /// Finds the child of `master` that holds the other end of `socket`, through the spawner if that started them.
    /// Takes about ten microseconds per child.
    pub(crate) fn find(socket: impl AsFd, master: u32, spawner: Option<&Spawner>) -> Self {
        let Ok(inode) = children::peer_inode(socket) else {
            return Self::Untold;
        };
        let holder = match spawner {
            Some(spawner) => spawner.holder(master, inode),
            None => children::holder(master, inode),
        };
        holder.map_or(Self::Untold, |pid| Self::Child {
            pid,
            inode,
            process: children::open(pid),
        })
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> Option<u32> {
        match *self {
            Self::Child { pid, .. } | Self::Process { pid, .. } => Some(pid),
            Self::Unknown | Self::OneOf(_) | Self::Untold => None,
        }
    }

    /// One of the running children, none of which holds the other end yet.
    pub(crate) fn one_of(master: u32) -> Self {
        let open = |pid| Some((pid, children::open(pid)?));
        let mut found: Vec<_> = children::of(master).into_iter().filter_map(open).collect();
        found.retain(|(_, process)| !has_ended(process.as_fd()));
        Self::OneOf(found)
    }

    /// True if a further search may find the process.
    pub(crate) fn may_be_found(&self) -> bool {
        matches!(self, Self::Unknown | Self::OneOf(_))
    }

    /// The process whose end closed the connection, with its exit status if the system reports that.
    pub(crate) fn find_ended(&self) -> Option<(u32, Option<Ended>)> {
        let (pid, process) = match self {
            Self::Child { pid, process, .. } => (*pid, process.as_ref()?.as_fd()),
            Self::Process { pid, process } => (*pid, process.as_fd()),
            Self::OneOf(children) => {
                let processes: Vec<_> = children.iter().map(|(_, process)| process.as_fd()).collect();
                // If two ended at the same time, either may be the one.
                let index = only_ended(&processes)?;
                (children[index].0, processes[index])
            }
            Self::Unknown | Self::Untold => return None,
        };
        Some((pid, how_ended(process).map(Ended)))
    }

    /// Sends SIGTERM or SIGKILL to the process if it still holds the other end; true if the signal was sent.
    pub(crate) fn end(&self, signal: Signal, spawner: Option<&Spawner>) -> bool {
        match (self, spawner) {
            (Self::Child { pid, inode, .. }, None) => children::end_holder(*pid, *inode, signal),
            (Self::Child { pid, inode, .. }, Some(spawner)) => spawner.end_child(*pid, *inode, signal),
            (Self::Process { process, .. }, None) => rustix::process::pidfd_send_signal(process, signal).is_ok(),
            (Self::Process { pid, .. }, Some(spawner)) => spawner.end_group(*pid, signal),
            (Self::Unknown | Self::OneOf(_) | Self::Untold, _) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn what_holds_no_socket_of_ours_gets_no_signal() {
        let mut sleeper = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("sleep starts");
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        let inode = children::peer_inode(&ours).expect("the kernel tells");
        let peer = Peer::Child {
            pid: sleeper.id(),
            inode,
            process: None,
        };
        assert!(!peer.end(Signal::KILL, None));
        assert!(matches!(sleeper.try_wait(), Ok(None)));
        sleeper.kill().expect("it is ours");
        sleeper.wait().expect("it ends");
    }
}
