//! The first process of a container.
//!
//! Process 1 becomes the parent of every process whose parent has ended, and has to collect it. Signals without a handler
//! do not reach it. So as process 1 haulier starts itself again as the server, passes signals on to it, collects every
//! process that ends, and exits with the server's code.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::outcome::CommandOutcome;

/// The signals that a server handles, and those that end it.
const PASSED_ON: [Signal; 6] = [
    Signal::TERM,
    Signal::INT,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
];

/// Runs the server as a child if this is process 1; returns its exit code. `None` for any other process: it is the server.
pub(crate) fn run_as_first() -> Option<CommandOutcome> {
    if std::process::id() != 1 {
        return None;
    }
    let ended = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .and_then(|runtime| runtime.block_on(look_after_server()));
    Some(ended.unwrap_or_else(|error| {
        eprintln!("error: process 1 cannot start the server: {error}");
        CommandOutcome::Failed
    }))
}

async fn look_after_server() -> io::Result<CommandOutcome> {
    // Before the server starts: a signal in between must not be lost.
    let mut children = signal(SignalKind::child())?;
    let (passed, mut to_pass) = mpsc::unbounded_channel();
    for kind in PASSED_ON {
        let mut received = signal(SignalKind::from_raw(kind.as_raw()))?;
        let passed = passed.clone();
        tokio::spawn(async move { while received.recv().await.is_some() && passed.send(kind).is_ok() {} });
    }
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_else(|| "haulier".into());
    // The loop below waits for all children, this one included.
    let server = Command::new("/proc/self/exe").arg0(name).args(arguments).spawn()?.id();
    let server = i32::try_from(server).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
    loop {
        tokio::select! {
            _ = children.recv() => {
                if let Some(status) = collect(server) {
                    return Ok(outcome(status.exit_status(), status.terminating_signal()));
                }
            }
            Some(kind) = to_pass.recv() => {
                let _ = rustix::process::kill_process(server, kind); // it may have just ended
            }
        }
    }
}

/// Collects all processes that have ended; returns the server's exit code if it is among them.
fn collect(server: Pid) -> Option<WaitStatus> {
    let mut of_server = None;
    while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
        if pid == server {
            of_server = Some(status);
        }
    }
    of_server
}

/// The exit code of a process; if a signal ended it, 128 and the signal's number, as in shells.
fn outcome(exit: Option<i32>, signal: Option<i32>) -> CommandOutcome {
    let code = exit.or_else(|| signal.map(|signal| 128 + signal));
    match u8::try_from(code.unwrap_or(1)) {
        Ok(0) => CommandOutcome::Done,
        Ok(code) => CommandOutcome::FailedWith(code),
        Err(_) => CommandOutcome::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_other_process_is_the_server_itself() {
        assert_eq!(run_as_first(), None);
    }

    #[test]
    fn it_ends_as_the_server_did() {
        assert_eq!(outcome(Some(0), None), CommandOutcome::Done);
        assert_eq!(outcome(Some(2), None), CommandOutcome::FailedWith(2));
        assert_eq!(outcome(None, Some(9)), CommandOutcome::FailedWith(137));
    }
}
