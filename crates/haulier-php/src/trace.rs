//! Calls of a running script: function, file and line of each, as the master of our own workers reads them
//! (embed/trace.c).

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};

/// Longest wait for an answer. The master has nothing else to do, but the threads of requests wait meanwhile.
const WAIT: Duration = Duration::from_millis(20);
/// Longest answer, bytes: process id and calls (embed/serve.c).
const LONGEST: usize = 8192;

/// The socket over which a master tells what its workers are at.
#[derive(Debug)]
pub(crate) struct TraceLine(Mutex<OwnedFd>);

impl TraceLine {
    /// The line, and its other end for the master.
    ///
    /// # Errors
    /// No descriptor is left.
    pub(crate) fn new() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self(Mutex::new(ours)), theirs))
    }

    /// The calls of this worker; `None` if it is at no script, or the master does not answer in time.
    pub(crate) fn ask(&self, pid: u32) -> Option<Trace> {
        let line = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        rustix::net::send(&*line, &pid.to_ne_bytes(), flags).ok()?;
        let deadline = Instant::now() + WAIT;
        let mut answer = [0; LONGEST];
        loop {
            let left = Timespec::try_from(deadline.saturating_duration_since(Instant::now())).ok()?;
            let mut polled = [PollFd::from_borrowed_fd(line.as_fd(), PollFlags::IN)];
            if !matches!(rustix::event::poll(&mut polled, Some(&left)), Ok(1..)) {
                return None;
            }
            let (length, _) = rustix::net::recv(&*line, &mut answer, RecvFlags::DONTWAIT).ok()?;
            let (about, calls) = answer[..length].split_first_chunk::<4>()?;
            // The answer to an earlier question may come late.
            if u32::from_ne_bytes(*about) == pid {
                return String::from_utf8_lossy(calls).parse().ok();
            }
        }
    }
}

/// The calls of a script, the innermost first: `sleep() /srv/shop/pay.php:12`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace(Vec<String>);

impl Trace {
    /// The calls, the innermost first.
    pub fn calls(&self) -> &[String] {
        &self.0
    }
}

/// Reads lines, one a call.
impl FromStr for Trace {
    type Err = NoCalls;

    fn from_str(text: &str) -> Result<Self, NoCalls> {
        let calls: Vec<String> = text.lines().map(str::to_owned).collect();
        if calls.is_empty() {
            Err(NoCalls)
        } else {
            Ok(Self(calls))
        }
    }
}

/// A worker is at no script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoCalls;

/// One line for logs: the innermost call first.
impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(" < "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(line: &OwnedFd, pid: u32, calls: &str) {
        let packet = [&pid.to_ne_bytes(), calls.as_bytes()].concat();
        rustix::net::send(line, &packet, SendFlags::empty()).expect("the other end is open");
    }

    #[test]
    fn an_answer_about_another_worker_is_a_late_one() {
        let (line, master) = TraceLine::new().expect("a pair");
        assert_eq!(line.ask(7), None, "no answer");
        answer(&master, 7, "late() /a.php:1\n");
        answer(&master, 8, "sleep() /b.php:2\n{main} /b.php:9\n");
        let trace = line.ask(8).expect("an answer");
        assert_eq!(trace.calls(), ["sleep() /b.php:2", "{main} /b.php:9"]);
        assert_eq!(trace.to_string(), "sleep() /b.php:2 < {main} /b.php:9");
        answer(&master, 9, "");
        assert_eq!(line.ask(9), None, "between two scripts");
        drop(master);
        assert_eq!(line.ask(8), None);
    }
}
