//! Events of a download.

use std::fmt::Debug;
use std::path::PathBuf;
use std::time::Duration;

use super::error::DownloadError;
use super::verify::Checksum;

/// An event of a download.
#[derive(Debug)]
pub enum DownloadEvent<'a> {
    /// A response was accepted; `kept` bytes were there before.
    Started {
        target: PathBuf,
        total: Option<u64>,
        kept: u64,
    },
    /// Sent a few times a second. The rate is that of the last interval, bytes a second.
    Progress {
        done: u64,
        total: Option<u64>,
        rate: f64,
        connections: usize,
    },
    /// Bytes of an earlier run have changed since, and are fetched again.
    Damaged { bytes: u64 },
    /// The next attempt comes after this time.
    Retrying { error: &'a DownloadError, wait: Duration },
    /// The part is of no use; the download starts again from the first byte.
    StartedAgain { reason: &'a DownloadError },
    /// A fact that the user should know, and that is no failure.
    Warning(&'static str),
}

/// The receiver of events.
pub trait Observer: Debug {
    fn event(&self, event: &DownloadEvent<'_>);
}

/// The result of a successful download.
#[derive(Debug)]
pub struct Finished {
    /// `None` on standard output.
    pub path: Option<PathBuf>,
    pub length: u64,
    /// Bytes that came over the wire in this run; 0 for a file that was complete already.
    pub received: u64,
    pub was_complete: bool,
    /// The checksums that the file was verified with, the most trusted first.
    pub verified: Vec<Checksum>,
    pub etag: Option<String>,
}
