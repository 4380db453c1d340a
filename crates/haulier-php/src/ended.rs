//! Exit status of a process that is not our child: the kernel reports it to a holder of its pidfd (Linux 6.15).
#![allow(unsafe_code)] // an ioctl that neither the standard library nor rustix has

use std::ffi::c_int;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::ioctl::{Updater, opcode};

/// Longest wait for the end of the process, and the pauses until its parent has reaped it: the connection closes a
/// moment earlier.
const DYING: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 3_000_000,
};
const PAUSE: Duration = Duration::from_micros(250);
const PAUSES: usize = 12;

/// `struct pidfd_info` in its first version.
#[repr(C)]
#[derive(Debug, Default)]
struct PidfdInfo {
    mask: u64,
    cgroup: u64,
    ids: [u32; 11],
    exit_code: c_int,
}

const PIDFD_INFO_EXIT: u64 = 1 << 3;
const PIDFD_GET_INFO: rustix::ioctl::Opcode = opcode::read_write::<PidfdInfo>(0xff, 11);

/// True if the process has ended.
pub(crate) fn has_ended(process: BorrowedFd<'_>) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut polled = [PollFd::from_borrowed_fd(process, PollFlags::IN)];
    matches!(rustix::event::poll(&mut polled, Some(&now)), Ok(1..))
}

/// Index of the only process among these that has ended, or ends within milliseconds.
pub(crate) fn only_ended(processes: &[BorrowedFd<'_>]) -> Option<usize> {
    let watch = |&process| PollFd::from_borrowed_fd(process, PollFlags::IN);
    let mut polled: Vec<_> = processes.iter().map(watch).collect();
    let count = rustix::event::poll(&mut polled, Some(&DYING));
    let index = polled.iter().position(|process| !process.revents().is_empty())?;
    matches!(count, Ok(1)).then_some(index)
}

/// Exit status of a process that has ended, or ends within milliseconds. `None` if it runs, or the kernel does not
/// report it.
pub(crate) fn how_ended(process: BorrowedFd<'_>) -> Option<ExitStatus> {
    only_ended(&[process])?;
    for _ in 0..PAUSES {
        let info = ask(process)?;
        if info.mask & PIDFD_INFO_EXIT != 0 {
            return Some(ExitStatus::from_raw(info.exit_code));
        }
        thread::sleep(PAUSE);
    }
    None
}

fn ask(process: BorrowedFd<'_>) -> Option<PidfdInfo> {
    let mut info = PidfdInfo {
        mask: PIDFD_INFO_EXIT,
        ..PidfdInfo::default()
    };
    // SAFETY: PIDFD_GET_INFO reads and writes one `struct pidfd_info` of the size in its number, which `info` has.
    let asked = unsafe { rustix::ioctl::ioctl(process, Updater::<PIDFD_GET_INFO, PidfdInfo>::new(&mut info)) };
    asked.ok().map(|()| info)
}

/// An exit status as logs and pages show it: `signal 11 (SIGSEGV)`, `exit code 255`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended(pub ExitStatus);

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(signal) = self.0.signal() else {
            return write!(f, "exit code {}", self.0.code().unwrap_or_default());
        };
        let name = match signal {
            libc::SIGILL => " (SIGILL)",
            libc::SIGABRT => " (SIGABRT)",
            libc::SIGBUS => " (SIGBUS)",
            libc::SIGFPE => " (SIGFPE)",
            libc::SIGKILL => " (SIGKILL)",
            libc::SIGSEGV => " (SIGSEGV)",
            libc::SIGTERM => " (SIGTERM)",
            libc::SIGXCPU => " (SIGXCPU)",
            libc::SIGXFSZ => " (SIGXFSZ)",
            libc::SIGSYS => " (SIGSYS)",
            _ => "",
        };
        write!(f, "signal {signal}{name}")
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::process::Command;

    use rustix::process::{Pid, PidfdFlags, Signal};

    use super::*;

    #[test]
    fn an_end_is_told_with_its_signal_where_the_kernel_knows_it() {
        let mut sleeper = Command::new("sleep").arg("60").spawn().expect("sleep starts");
        let pid = Pid::from_child(&sleeper);
        let process = rustix::process::pidfd_open(pid, PidfdFlags::empty()).expect("a descriptor");
        assert_eq!(how_ended(process.as_fd()), None, "it lives");
        rustix::process::pidfd_send_signal(&process, Signal::KILL).expect("ours");
        sleeper.wait().expect("it ends");
        let ended = how_ended(process.as_fd());
        if ask(process.as_fd()).is_some_and(|info| info.mask & PIDFD_INFO_EXIT != 0) {
            assert_eq!(
                ended.map(|status| Ended(status).to_string()).as_deref(),
                Some("signal 9 (SIGKILL)")
            );
        }
    }

    #[test]
    fn ends_have_plain_words() {
        let words = |raw| Ended(ExitStatus::from_raw(raw)).to_string();
        assert_eq!(words(11), "signal 11 (SIGSEGV)");
        assert_eq!(words(64), "signal 64");
        assert_eq!(words(255 << 8), "exit code 255");
    }
}
