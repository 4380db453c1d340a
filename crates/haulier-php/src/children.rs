//! The children of a php-cgi master, and the one that holds the other end of a Unix connection.
//!
//! SO_PEERCRED names the process that called listen. The kernel's socket diagnosis (sock_diag(7), UNIX_DIAG_PEER)
//! returns the inode of the other end, and /proc/PID/fd shows the process that holds it, so a signal ends the right
//! child.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};
use rustix::process::{Pid, PidfdFlags, Signal};
use rustix::thread::CapabilitySet;

/// True if the system lets us identify the child at the other end of a connection, for a php-cgi of this user.
pub(crate) fn can_tell_apart(user: Option<u32>) -> bool {
    // ptrace(2), "Ptrace access mode checking": the same user, or the capability.
    let ours = user.is_none_or(|user| user == rustix::process::geteuid().as_raw());
    let privileged =
        || rustix::thread::capabilities(None).is_ok_and(|ours| ours.effective.contains(CapabilitySet::SYS_PTRACE));
    let lists_children = std::fs::read_to_string("/proc/thread-self/children").is_ok();
    let names_peers = || UnixStream::pair().and_then(|(one, _other)| peer_inode(&one)).is_ok();
    (ours || privileged()) && lists_children && names_peers()
}

/// The child of `master` that holds the socket with this inode.
pub(crate) fn holder(master: u32, inode: u32) -> Option<u32> {
    of(master).into_iter().find(|&pid| holds(pid, inode))
}

/// Sends a signal to a process if it holds the socket with this inode; true if it was sent.
pub(crate) fn end_holder(pid: u32, inode: u32, signal: Signal) -> bool {
    // Opened before the check, because the process id may be reused at any time.
    let process = open(pid).filter(|_| holds(pid, inode));
    process.is_some_and(|process| rustix::process::pidfd_send_signal(process, signal).is_ok())
}

/// A descriptor of a process, which stays valid when the process id is reused.
pub(crate) fn open(pid: u32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(pid as i32)?;
    rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Process ids of the children of a process, from the kernel's list.
pub(crate) fn of(master: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{master}/task/{master}/children")).unwrap_or_default();
    list.split_ascii_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// True while the process runs. A zombie does not count: the process that adopted it may never reap it.
pub(crate) fn is_alive(pid: u32) -> bool {
    state(pid).is_some_and(|state| !matches!(state, b'Z' | b'X'))
}

/// True if the process has a processor or waits for one. It takes about ten microseconds to ask.
pub(crate) fn is_computing(pid: u32) -> bool {
    state(pid) == Some(b'R')
}

/// The letter of a process's state (proc_pid_stat(5)); `None` if it is gone.
fn state(pid: u32) -> Option<u8> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The state is the first word after the name, which is in parentheses and may hold any character.
    let after_name = stat.rsplit(')').next()?;
    after_name.trim_start().bytes().next()
}

/// True if one of the process's descriptors is the socket with this inode.
fn holds(pid: u32, inode: u32) -> bool {
    let Ok(descriptors) = std::fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    let wanted = format!("socket:[{inode}]");
    descriptors
        .flatten()
        .any(|entry| std::fs::read_link(entry.path()).is_ok_and(|target| target.as_os_str() == wanted.as_str()))
}

const NLMSG_HEADER: usize = 16;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const UDIAG_SHOW_PEER: u32 = 4;
const UNIX_DIAG_PEER: u16 = 2;
/// `struct unix_diag_msg`, in front of the attributes.
const UNIX_DIAG_MSG: usize = 16;

/// The inode of the socket at the other end of a connection.
pub(crate) fn peer_inode(socket: impl AsFd) -> io::Result<u32> {
    let inode = u32::try_from(rustix::fs::fstat(socket)?.st_ino).map_err(io::Error::other)?;
    let kernel = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )?;
    rustix::net::send(&kernel, &diag_request(inode), SendFlags::empty())?;
    let mut answer = [0; 1024];
    // The kernel answers within the send.
    let (length, _) = rustix::net::recv(&kernel, &mut answer, RecvFlags::DONTWAIT)?;
    find_peer(&answer[..length]).ok_or_else(|| Errno::NOENT.into())
}

/// `struct nlmsghdr` and `struct unix_diag_req` for one socket, without a cookie.
fn diag_request(inode: u32) -> Vec<u8> {
    let mut request = Vec::with_capacity(NLMSG_HEADER + 24);
    request.extend((NLMSG_HEADER as u32 + 24).to_ne_bytes());
    request.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request.extend(NLM_F_REQUEST.to_ne_bytes());
    request.extend([0; 8]); // sequence, port
    request.extend([AddressFamily::UNIX.as_raw() as u8, 0, 0, 0]);
    request.extend(u32::MAX.to_ne_bytes()); // every state
    request.extend(inode.to_ne_bytes());
    request.extend(UDIAG_SHOW_PEER.to_ne_bytes());
    request.extend([0xff; 8]); // no cookie
    request
}

/// The UNIX_DIAG_PEER attribute of an answer. An error message lacks it, and so does the answer before the connection
/// was accepted.
fn find_peer(answer: &[u8]) -> Option<u32> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    if kind != SOCK_DIAG_BY_FAMILY {
        return None;
    }
    let mut attributes = answer.get(NLMSG_HEADER + UNIX_DIAG_MSG..)?;
    while let Some((header, rest)) = attributes.split_first_chunk::<4>() {
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]])).checked_sub(4)?;
        if u16::from_ne_bytes([header[2], header[3]]) == UNIX_DIAG_PEER {
            let inode = u32::from_ne_bytes(rest.get(..4)?.try_into().ok()?);
            return (inode != 0).then_some(inode);
        }
        attributes = rest.get(length.next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_end_of_a_pair_is_found_in_the_process_that_holds_it() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let inode = peer_inode(&ours).expect("the kernel tells");
        let expected = rustix::fs::fstat(&theirs).expect("fstat").st_ino;
        assert_eq!(u64::from(inode), expected);
        assert!(holds(std::process::id(), inode));
        drop(theirs);
        assert!(!holds(std::process::id(), inode));
    }

    #[test]
    fn our_own_processes_can_be_told_apart() {
        assert!(can_tell_apart(None));
        assert!(can_tell_apart(Some(rustix::process::geteuid().as_raw())));
    }

    #[test]
    fn an_answer_without_a_peer_names_none() {
        assert_eq!(find_peer(&[]), None);
        assert_eq!(find_peer(&[0xff; 40]), None);
        let mut answer = vec![0; NLMSG_HEADER + UNIX_DIAG_MSG];
        answer[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        assert_eq!(find_peer(&answer), None);
        answer.extend([3, 0, 2, 0]); // an attribute shorter than its own header
        assert_eq!(find_peer(&answer), None);
    }
}
