//! The lock of plans that must run alone on the machine.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tokio::time::sleep;

/// Name of the lock file, below the directory for temporary files.
const NAME: &str = "haulier-bench.lock";
/// Pause between two attempts to get the lock.
const PAUSE: Duration = Duration::from_secs(1);

/// The lock, held until this is dropped.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Waits for the lock; calls `wait` once if another measurement holds it.
    ///
    /// # Errors
    /// The lock file cannot be created or opened.
    pub(super) async fn take(wait: impl FnOnce()) -> io::Result<Self> {
        let file = open()?;
        let mut wait = Some(wait);
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self { _file: file }),
                Err(Errno::WOULDBLOCK) => {
                    if let Some(wait) = wait.take() {
                        wait();
                    }
                    sleep(PAUSE).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Opens the file read-only, because it may belong to another user.
fn open() -> io::Result<File> {
    let path = std::env::temp_dir().join(NAME);
    match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        opened => return opened,
    }
    let made = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&path);
    match made {
        // Another measurement has just created it.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => File::open(&path),
        made => made,
    }
}
