//! What a download tells while it runs.

use std::fmt::Debug;
use std::path::PathBuf;
use std::time::Duration;

use super::error::DownloadError;
use super::verify::Checksum;

/// Something happened.
#[derive(Debug)]
pub enum Event<'a> {
    /// A response was accepted; `kept` bytes were there before.
    Started {
        target: PathBuf,
        total: Option<u64>,
        kept: u64,
    },
    /// A few times a second. The rate is that of the last moment, bytes a second.
    Progress {
        done: u64,
        total: Option<u64>,
        rate: f64,
        connections: usize,
    },
    /// So many bytes that an earlier run left have changed since; they are fetched again.
    Damaged { bytes: u64 },
    /// It is tried again after this time.
    Retrying { error: &'a DownloadError, wait: Duration },
    /// What was there is of no use; the first byte is asked for again.
    StartedAgain { reason: &'a DownloadError },
    /// Something the user should know, and which is no failure.
    Warning(&'static str),
}

/// Who listens.
pub trait Observer: Debug {
    fn event(&self, event: &Event<'_>);
}

/// How a download ended well.
#[derive(Debug)]
pub struct Finished {
    /// `None` on standard output.
    pub path: Option<PathBuf>,
    pub length: u64,
    /// Bytes that came over the wire in this run; 0 for a file that was complete already.
    pub received: u64,
    pub was_complete: bool,
    /// What the file was verified with, the most trusted first.
    pub verified: Vec<Checksum>,
    pub etag: Option<String>,
}
