//! A process that stays root, to remove the files that the server's account cannot remove, after the server's end.
//!
//! It is our own program, started before the server leaves root, with the paths in its arguments. It reads two letters
//! from the server and nothing else: the socket files belong to the server (`+`), or to another process by now (`-`).
//! When its pipe from the server closes, it removes the files and exits.
#![allow(unsafe_code)] // fork(2) in a process without threads: an orphan, which no process has to reap

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, ExitCode, Stdio};

/// The argument that makes our program this process.
pub(crate) const SUBCOMMAND: &str = "leftovers-sweeper";

const OURS: u8 = b'+';
const ANOTHERS: u8 = b'-';

/// The pipe to the process.
#[derive(Debug)]
pub(crate) struct Sweeper {
    line: ChildStdin,
}

impl Sweeper {
    /// Starts it, as root.
    ///
    /// # Errors
    /// The process cannot be started.
    pub(crate) fn start(folders: &[PathBuf], sockets: &[PathBuf]) -> io::Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("haulier")
            .arg(SUBCOMMAND)
            .args(folders)
            .arg("--")
            .args(sockets)
            .env_clear()
            .current_dir("/")
            // Signals of a terminal are for the server only.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut child = command.spawn()?;
        let line = child.stdin.take().expect("it was asked for");
        // The process forks and exits at once; its child continues.
        child.wait()?;
        Ok(Self { line })
    }

    /// Tells whether the socket files belong to this server from now on, or to another process.
    pub(crate) fn own_sockets(&mut self, ours: bool) {
        // Without it the files stay, and the next start replaces them.
        let _ = self.line.write_all(&[if ours { OURS } else { ANOTHERS }]);
    }
}

/// The main function of the process.
pub(crate) fn main() -> ExitCode {
    // SAFETY: there is one thread, and the child goes on as this process would.
    match unsafe { libc::fork() } {
        0 => {}
        -1 => return ExitCode::FAILURE,
        _ => return ExitCode::SUCCESS,
    }
    let all: Vec<PathBuf> = std::env::args_os().skip(2).map(PathBuf::from).collect();
    let (folders, sockets) = match all.iter().position(|path| path.as_os_str().as_bytes() == b"--") {
        Some(place) => (&all[..place], &all[place + 1..]),
        None => return ExitCode::FAILURE,
    };
    let folders: Vec<_> = folders.iter().map(|path| (path, identity(path))).collect();
    let mut owned = Vec::new();
    let mut letter = [0];
    while let Ok(1) = io::stdin().read(&mut letter) {
        owned = match letter[0] {
            OURS => sockets.iter().map(|path| (path, identity(path))).collect(),
            _ => Vec::new(),
        };
    }
    for (path, found) in folders {
        if found.is_some() && identity(path) == found {
            let _ = fs::remove_dir_all(path); // the next start tries again
        }
    }
    for (path, found) in owned {
        if found.is_some() && identity(path) == found && is_socket(path) {
            let _ = fs::remove_file(path);
        }
    }
    ExitCode::SUCCESS
}

/// Device and inode: another process may have replaced the file.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

fn is_socket(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
}
