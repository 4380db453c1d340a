//! Facts about a response for logs and metrics, besides its status and size.

use crate::Reason;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use haulier_proto::accept::Coding;

/// The part that made the response; a label in logs and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handler {
    Static,
    Php,
    /// PHP named a file, which haulier sends.
    Handed,
    /// PHP made the body; a rule moved it to haulier.
    Offloaded,
    /// An image, or the response to an upload.
    Image,
    Redirect,
    Denied,
    Error,
}

impl Handler {
    /// All handlers; metrics index by position.
    pub const ALL: [Self; 8] = [
        Self::Static,
        Self::Php,
        Self::Handed,
        Self::Offloaded,
        Self::Image,
        Self::Redirect,
        Self::Denied,
        Self::Error,
    ];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Php => "php",
            Self::Handed => "handed",
            Self::Offloaded => "offloaded",
            Self::Image => "image",
            Self::Redirect => "redirect",
            Self::Denied => "denied",
            Self::Error => "error",
        }
    }
}

/// The way a script handed its response off; a label in metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    /// `X-Sendfile` and `X-LIGHTTPD-send-file`.
    XSendfile,
    /// `X-Accel-Redirect`.
    XAccel,
    /// `zend_send_file()` and similar functions.
    Zend,
    /// An `offload` rule, unknown to the script.
    Transparent,
    /// `readfile()` and similar functions of PHP, in haulier's own workers.
    Readfile,
}

impl Via {
    /// All ways; metrics index by position.
    pub const ALL: [Self; 5] = [
        Self::XSendfile,
        Self::XAccel,
        Self::Zend,
        Self::Transparent,
        Self::Readfile,
    ];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::XSendfile => "x-sendfile",
            Self::XAccel => "x-accel",
            Self::Zend => "zend",
            Self::Transparent => "transparent",
            Self::Readfile => "readfile",
        }
    }
}

/// Origin of an image; a label in metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageResult {
    Memory,
    Disk,
    Memcached,
    Redis,
    /// Rendered for this request, or for another that it joined.
    Made,
    /// The unchanged original.
    Original,
    /// No image was sent.
    Error,
}

impl ImageResult {
    /// All origins; metrics index by position.
    pub const ALL: [Self; 7] = [
        Self::Memory,
        Self::Disk,
        Self::Memcached,
        Self::Redis,
        Self::Made,
        Self::Original,
        Self::Error,
    ];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Disk => "disk",
            Self::Memcached => "memcached",
            Self::Redis => "redis",
            Self::Made => "made",
            Self::Original => "original",
            Self::Error => "error",
        }
    }
}

/// Time spent on each part of making an image; `None` if a part did not happen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ImageTimes {
    /// Looking it up in the caches.
    pub cache: Option<Duration>,
    /// Reading the original from its store.
    pub fetch: Option<Duration>,
    /// Waiting for a worker and for memory.
    pub queue: Option<Duration>,
    /// Decoding the original.
    pub decode: Option<Duration>,
    /// All steps, scaling among them.
    pub resize: Option<Duration>,
    /// Encoding the variant.
    pub encode: Option<Duration>,
}

/// Facts about a response for the access log and the metrics, besides its status and size.
#[derive(Debug, Clone)]
pub struct Trace {
    pub handler: Handler,
    /// One of a fixed list; every 5xx has one.
    pub reason: Option<Reason>,
    /// The figures behind the reason, with the setting that limits them.
    pub detail: Option<Box<str>>,
    /// Boxed: most responses are files, and moving one need not move this.
    pub backend: Option<Box<BackendTrace>>,
    /// Set if the script handed its response off, so that its worker was free before the response was sent.
    pub handoff: Option<Via>,
    /// Origin of an image.
    pub image: Option<ImageResult>,
    /// Boxed, and absent for an image in memory.
    pub image_times: Option<Box<ImageTimes>>,
    /// Coding of the body while it was sent.
    pub compressed: Option<Arc<Compressed>>,
    /// Coding of the sidecar or compressed copy that was sent instead of a file.
    pub file_coding: Option<Coding>,
}

impl Trace {
    #[must_use]
    pub fn of(handler: Handler) -> Self {
        Self {
            handler,
            reason: None,
            detail: None,
            backend: None,
            handoff: None,
            image: None,
            image_times: None,
            compressed: None,
            file_coding: None,
        }
    }

    /// The coding that haulier applied, now or earlier; a coding by PHP does not count.
    #[must_use]
    pub fn coding(&self) -> Option<Coding> {
        self.compressed
            .as_ref()
            .map(|compressed| compressed.coding)
            .or(self.file_coding)
    }

    /// Time the client kept reading after the worker was free: the worker time that the hand-off saved. `None` without
    /// a hand-off, or while the worker is busy.
    #[must_use]
    pub fn worker_time_saved(&self, now: Instant) -> Option<Duration> {
        self.handoff?;
        Some(now.saturating_duration_since(self.backend.as_ref()?.released()?))
    }
}

/// The back end's part in a response.
#[derive(Debug, Clone, Default)]
pub struct BackendTrace {
    /// Time the request waited for a worker.
    pub queued: Duration,
    /// The moment a worker was taken.
    pub taken: Option<Instant>,
    /// Microseconds the worker was busy; 0 until it is free again.
    pub busy: Arc<AtomicU64>,
    /// The name of the pool that ran the script.
    pub pool: Option<Arc<str>>,
    /// The worker's process, if known.
    pub pid: Option<u32>,
    /// The first line PHP wrote to its error log during this request.
    pub message: Option<String>,
    /// All lines of that log, for sites in development.
    pub stderr: String,
    /// Set for a body too long to be held back.
    pub streamed: Option<Box<Streamed>>,
}

impl BackendTrace {
    /// The moment the worker was free again; `None` before.
    #[must_use]
    pub fn released(&self) -> Option<Instant> {
        let busy = self.busy.load(Ordering::Relaxed);
        self.taken
            .filter(|_| busy > 0)
            .map(|taken| taken + Duration::from_micros(busy))
    }
}

/// A body that a script streamed because it was too long to be held back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Streamed {
    /// The script's path below the document root.
    pub script: String,
    /// Its media type, without parameters.
    pub media_type: Option<String>,
}

impl Streamed {
    /// Takes the script's path and its Content-Type.
    #[must_use]
    pub fn new(script: &[u8], content_type: Option<&[u8]>) -> Box<Self> {
        let media_type = content_type.map(|value| {
            let end = value.iter().position(|&byte| byte == b';').unwrap_or(value.len());
            String::from_utf8_lossy(value[..end].trim_ascii()).to_ascii_lowercase()
        });
        Box::new(Self {
            script: String::from_utf8_lossy(script).into_owned(),
            media_type,
        })
    }
}

/// Result of coding a body, for logs and metrics; updated while the body is sent.
#[derive(Debug)]
pub struct Compressed {
    pub coding: Coding,
    pub level: i32,
    /// The load of the server, for the log.
    load: &'static str,
    /// Bytes before and after coding, so far.
    pub taken: AtomicU64,
    pub made: AtomicU64,
    /// Time spent coding, nanoseconds.
    pub nanoseconds: AtomicU64,
}

impl Compressed {
    /// A coding that has seen no bytes yet.
    #[must_use]
    pub fn new(coding: Coding, level: i32, load: &'static str) -> Arc<Self> {
        Arc::new(Self {
            coding,
            level,
            load,
            taken: AtomicU64::new(0),
            made: AtomicU64::new(0),
            nanoseconds: AtomicU64::new(0),
        })
    }

    /// Adds the bytes before and after one run of the coder.
    pub fn add(&self, taken: usize, made: usize, spent: Duration) {
        self.nanoseconds.fetch_add(spent.as_nanos() as u64, Ordering::Relaxed);
        self.taken.fetch_add(taken as u64, Ordering::Relaxed);
        self.made.fetch_add(made as u64, Ordering::Relaxed);
    }

    /// `zstd:3:busy`, for the log.
    #[must_use]
    pub fn label(&self) -> String {
        format!("{}:{}:{}", self.coding.as_str(), self.level, self.load)
    }
}
