//! Collecting the request body: PHP needs its length, and no worker waits for a slow client.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use haulier_http::{BodyError, Request, RequestBody};
use rustix::fs::{Mode, OFlags};

use crate::log_throttle::LogThrottle;

/// A complete request body.
#[derive(Debug)]
pub(crate) enum Collected {
    Empty,
    Memory(Vec<u8>),
    /// An unnamed file, from its beginning.
    File {
        file: File,
        length: u64,
        /// Charged as long as the file is open.
        _charge: Charge,
    },
}

/// Bytes of request bodies on disk, of all threads and sites.
static ON_DISK: AtomicU64 = AtomicU64::new(0);
static FAILURES: LogThrottle = LogThrottle::new();
static REFUSALS: LogThrottle = LogThrottle::new();

/// The share of one body.
#[derive(Debug, Default)]
pub(crate) struct Charge(u64);

impl Charge {
    /// Charges `bytes` more, if `most` allows.
    fn grow(&mut self, bytes: u64, most: u64) -> Result<(), BodyError> {
        let add = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= most);
        if ON_DISK.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_err() {
            if let Some(times) = REFUSALS.due() {
                let used = ON_DISK.load(Ordering::Relaxed);
                tracing::error!(
                    used,
                    most,
                    times,
                    "`body_spool` is used up: requests with long bodies get 503"
                );
            }
            return Err(BodyError::NoRoom);
        }
        self.0 += bytes;
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        ON_DISK.fetch_sub(self.0, Ordering::Relaxed);
    }
}

impl Collected {
    /// Bytes.
    pub(crate) fn length(&self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File { length, .. } => *length,
        }
    }

    /// The body in the form that back ends take.
    pub(crate) fn as_request_body(&self) -> RequestBody<'_> {
        match self {
            Self::Empty => RequestBody::Empty,
            Self::Memory(bytes) => RequestBody::Bytes(bytes),
            Self::File { file, length, .. } => RequestBody::File { file, length: *length },
        }
    }
}

/// Longest body that stays in memory.
const IN_MEMORY: usize = 64 * 1024;

/// Storage for long request bodies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Storage<'a> {
    pub(crate) directory: &'a Path,
    /// Most bytes of all bodies together.
    pub(crate) most: u64,
}

/// Reads the request body to its end.
///
/// # Errors
/// [`BodyError`]. A body with an announced length above `most` fails before its first byte, a chunk before its content.
pub(crate) async fn collect(request: &Request, most: u64, storage: Storage<'_>) -> Result<Collected, BodyError> {
    match request.body_length {
        Some(0) => return Ok(Collected::Empty),
        Some(length) if length > most => return Err(BodyError::TooLarge),
        _ => {}
    }
    request.exchange.limit_body(most);
    let mut memory = Vec::new();
    let mut spooled: Option<(File, u64)> = None;
    let mut charge = Charge::default();
    loop {
        let read = std::future::poll_fn(|context| request.exchange.poll_body(context, &mut memory)).await?;
        let spooled_length = spooled.as_ref().map_or(0, |(_, length)| *length);
        if spooled_length + memory.len() as u64 > most {
            return Err(BodyError::TooLarge);
        }
        if memory.len() > IN_MEMORY || (read == 0 && spooled.is_some()) {
            charge.grow(memory.len() as u64, storage.most)?;
            let (file, length) = match &mut spooled {
                Some(spooled) => spooled,
                None => spooled.insert((nameless(storage.directory).map_err(|error| cannot_spool(&error))?, 0)),
            };
            file.write_all(&memory).map_err(|error| cannot_spool(&error))?;
            *length += memory.len() as u64;
            memory.clear();
        }
        if read == 0 {
            return Ok(match spooled {
                Some((file, length)) => Collected::File {
                    file,
                    length,
                    _charge: charge,
                },
                None if memory.is_empty() => Collected::Empty,
                None => Collected::Memory(memory),
            });
        }
    }
}

fn cannot_spool(error: &std::io::Error) -> BodyError {
    if let Some(times) = FAILURES.due() {
        tracing::error!(%error, times, "cannot spool a request body");
    }
    BodyError::Spool
}

/// An unnamed file, removed with its last descriptor.
pub(crate) fn nameless(directory: &Path) -> std::io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => Ok(file.into()),
        // Some file systems lack O_TMPFILE (overlayfs before Linux 6.3, NFS): create a file and remove its name.
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR) => named_for_a_moment(directory),
        Err(error) => Err(error.into()),
    }
}

fn named_for_a_moment(directory: &Path) -> std::io::Result<File> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    let path = directory.join(format!(".haulier-{}-{number}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}
