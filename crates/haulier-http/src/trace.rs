//! What logs and metrics tell of a response beside its status and size.

use crate::Reason;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use haulier_proto::accept::Coding;

/// Who made the response; a label in logs and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handler {
    Static,
    Php,
    /// PHP named a file, we send it.
    Handed,
    /// PHP made the body, a rule has us send it.
    Offloaded,
    /// An image, or what an upload is told.
    Image,
    Redirect,
    Denied,
    Error,
}

impl Handler {
    /// All of them, in the order of their numbers.
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

/// How a script handed its response over; a label in metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    /// `X-Sendfile` and `X-LIGHTTPD-send-file`.
    XSendfile,
    /// `X-Accel-Redirect`.
    XAccel,
    /// `zend_send_file()` and its kin.
    Zend,
    /// An `offload` rule; the script knows nothing of it.
    Transparent,
}

impl Via {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::XSendfile, Self::XAccel, Self::Zend, Self::Transparent];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::XSendfile => "x-sendfile",
            Self::XAccel => "x-accel",
            Self::Zend => "zend",
            Self::Transparent => "transparent",
        }
    }
}

/// Where an image came from; a label in metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageResult {
    Memory,
    Disk,
    Memcached,
    Redis,
    /// A variant that was made for this request, or for one it waited with.
    Made,
    /// The untouched bytes from the store.
    Original,
    /// There was none to send.
    Error,
}

impl ImageResult {
    /// All of them, in the order of their numbers.
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

/// Where the time of an image went; what did not happen has none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ImageTimes {
    /// Looking into the caches.
    pub cache: Option<Duration>,
    /// Getting the original out of its store.
    pub fetch: Option<Duration>,
    /// Waiting for a worker, and for memory.
    pub queue: Option<Duration>,
    /// Reading the original.
    pub decode: Option<Duration>,
    /// The steps: scaling and all others.
    pub resize: Option<Duration>,
    /// Writing the variant.
    pub encode: Option<Duration>,
}

/// What the access log and the metrics tell beside status and size.
#[derive(Debug, Clone)]
pub struct Trace {
    pub handler: Handler,
    /// Out of a fixed list; every 5xx has one.
    pub reason: Option<Reason>,
    /// The figures behind the reason, and the setting that they are of.
    pub detail: Option<Box<str>>,
    /// Apart: a file is answered more often than PHP, and need not move what only PHP fills.
    pub backend: Option<Box<BackendTrace>>,
    /// The script was done before its response was sent, because it handed that over.
    pub handoff: Option<Via>,
    /// Where the image came from, if it is one.
    pub image: Option<ImageResult>,
    /// Apart: what is in memory took no time.
    pub image_times: Option<Box<ImageTimes>>,
    /// How the body was coded on its way.
    pub compressed: Option<Arc<Compressed>>,
    /// The coding of a file's variant that was sent in its place.
    pub variant: Option<Coding>,
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
            variant: None,
        }
    }

    /// What we coded the body with, now or before; what PHP coded itself is not ours.
    #[must_use]
    pub fn coding(&self) -> Option<Coding> {
        self.compressed
            .as_ref()
            .map(|compressed| compressed.coding)
            .or(self.variant)
    }

    /// How long the client went on reading after the worker was free; `None` if the body did not leave PHP at once, or
    /// the worker is still busy. This is the time of a worker that the hand-off saved.
    #[must_use]
    pub fn worker_time_saved(&self, now: Instant) -> Option<Duration> {
        self.handoff?;
        Some(now.saturating_duration_since(self.backend.as_ref()?.released()?))
    }
}

/// How PHP took part.
#[derive(Debug, Clone, Default)]
pub struct BackendTrace {
    /// Time the request waited for a worker.
    pub queued: Duration,
    /// When a worker was taken.
    pub taken: Option<Instant>,
    /// Microseconds a worker was busy with it; 0 until the worker is free again.
    pub busy: Arc<AtomicU64>,
    /// The name of the pool that ran the script.
    pub pool: Option<Arc<str>>,
    /// The worker, where it is known.
    pub pid: Option<u32>,
    /// First line PHP wrote to its error log during this request.
    pub message: Option<String>,
    /// All of these lines, for sites in development.
    pub stderr: String,
    /// What was streamed, if the body was too long to be held.
    pub streamed: Option<Box<Streamed>>,
}

impl BackendTrace {
    /// When the worker was free again; `None` before.
    #[must_use]
    pub fn released(&self) -> Option<Instant> {
        let busy = self.busy.load(Ordering::Relaxed);
        self.taken
            .filter(|_| busy > 0)
            .map(|taken| taken + Duration::from_micros(busy))
    }
}

/// A body that a script streamed: noted when it turns out to be too long to be held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Streamed {
    /// The script's path in the document root.
    pub script: String,
    /// The media type it announced, without parameters.
    pub media_type: Option<String>,
}

impl Streamed {
    /// For a script and the value of its Content-Type field.
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

/// What coding a body came to, for logs and metrics. A body that still comes adds to it.
#[derive(Debug)]
pub struct Compressed {
    pub coding: Coding,
    pub level: i32,
    /// How busy the server was, for the log.
    load: &'static str,
    /// Bytes before and after, so far.
    pub taken: AtomicU64,
    pub made: AtomicU64,
    /// Time spent coding, nanoseconds.
    pub nanoseconds: AtomicU64,
}

impl Compressed {
    /// A coding that has taken nothing yet.
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

    /// Adds what one run of the coder took and made.
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
