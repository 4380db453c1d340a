//! A response as handlers make it and filters adjust it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use haulier_php::Pool;
use haulier_proto::accept::Coding;
use haulier_proto::encode;
use haulier_proto::field::Fields;
use haulier_proto::h2::hpack;

use crate::body::Body;
use crate::compress::Compressed;
use crate::metrics::Streamed;

/// Status, field lines and body, and what the log wants to know.
///
/// `Date`, `Server`, `Connection`, `Content-Length` and `Transfer-Encoding` are the protocol's: it writes them.
#[derive(Debug)]
pub(crate) struct Response {
    pub status: u16,
    pub head: Head,
    pub body: Body,
    pub trace: Trace,
}

impl Response {
    /// A response without field lines and body.
    #[must_use]
    pub(crate) fn new(status: u16, handler: Handler) -> Self {
        Self {
            status,
            head: Fields::new().into(),
            body: Body::Empty,
            trace: Trace::of(handler),
        }
    }

    /// With one more field line.
    #[must_use]
    pub(crate) fn with(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.head.fields_mut().append(name, value);
        self
    }

    /// With this body.
    #[must_use]
    pub(crate) fn body(mut self, body: impl Into<Body>) -> Self {
        self.body = body.into();
        self
    }
}

/// The field lines of a response, loose or already made into bytes.
#[derive(Debug)]
pub(crate) enum Head {
    /// Apart: a response is moved about more often than its fields are looked at.
    Fields(Box<Fields>),
    /// The same for every answer from one file, made once.
    Prepared(Arc<PreparedHead>),
}

impl From<Fields> for Head {
    fn from(fields: Fields) -> Self {
        Self::Fields(Box::new(fields))
    }
}

impl Head {
    /// The field lines, to be changed. A prepared head becomes a loose copy.
    pub(crate) fn fields_mut(&mut self) -> &mut Fields {
        if let Self::Prepared(prepared) = self {
            *self = prepared.fields().clone().into();
        }
        match self {
            Self::Fields(fields) => fields,
            Self::Prepared(_) => unreachable!("made loose above"),
        }
    }

    /// The field lines.
    pub(crate) fn fields(&self) -> &Fields {
        match self {
            Self::Fields(fields) => fields,
            Self::Prepared(prepared) => &prepared.fields,
        }
    }
}

/// Field lines with their bytes on the wire beside them.
#[derive(Debug)]
pub(crate) struct PreparedHead {
    fields: Fields,
    /// `Name: value\r\n` of every line, without status line and closing empty line.
    http1: Vec<u8>,
    /// The lines as a field block of HTTP/2, once somebody asked for them.
    hpack: OnceLock<Box<[u8]>>,
    /// The site's own Server field stands in place of ours.
    pub(crate) has_server: bool,
    /// Another client may get the same content coded.
    pub(crate) is_negotiable: bool,
}

impl PreparedHead {
    /// Encodes once what every answer will need.
    #[must_use]
    pub(crate) fn new(fields: Fields) -> Self {
        let mut http1 = Vec::with_capacity(256);
        encode::fields(&mut http1, &fields);
        Self {
            has_server: fields.contains("Server"),
            is_negotiable: false,
            fields,
            http1,
            hpack: OnceLock::new(),
        }
    }

    /// Of content that has codings.
    #[must_use]
    pub(crate) fn negotiable(mut self) -> Self {
        self.is_negotiable = true;
        self
    }

    #[must_use]
    pub(crate) fn fields(&self) -> &Fields {
        &self.fields
    }

    /// The lines as HTTP/1.1 sends them.
    #[must_use]
    pub(crate) fn http1(&self) -> &[u8] {
        &self.http1
    }

    /// The lines as HTTP/2 sends them, without `:status`.
    #[must_use]
    pub(crate) fn hpack(&self) -> &[u8] {
        self.hpack.get_or_init(|| {
            let mut block = Vec::with_capacity(self.http1.len());
            hpack::encode::fields(&mut block, &self.fields);
            block.into_boxed_slice()
        })
    }
}

/// Who made the response; a label in logs and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handler {
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
    pub(crate) const ALL: [Self; 8] = [
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
    pub(crate) fn as_str(self) -> &'static str {
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
pub(crate) enum Via {
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
    pub(crate) const ALL: [Self; 4] = [Self::XSendfile, Self::XAccel, Self::Zend, Self::Transparent];

    #[must_use]
    pub(crate) fn as_str(self) -> &'static str {
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
pub(crate) enum ImageResult {
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
    pub(crate) const ALL: [Self; 7] = [
        Self::Memory,
        Self::Disk,
        Self::Memcached,
        Self::Redis,
        Self::Made,
        Self::Original,
        Self::Error,
    ];

    #[must_use]
    pub(crate) fn as_str(self) -> &'static str {
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
pub(crate) struct ImageTimes {
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
pub(crate) struct Trace {
    pub handler: Handler,
    /// Out of a fixed list; every 5xx has one.
    pub reason: Option<&'static str>,
    /// The figures behind the reason, and the setting that they are of.
    pub detail: Option<Box<str>>,
    /// Apart: a file is answered more often than PHP, and need not move what only PHP fills.
    pub php: Option<Box<PhpTrace>>,
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
    pub(crate) fn of(handler: Handler) -> Self {
        Self {
            handler,
            reason: None,
            detail: None,
            php: None,
            handoff: None,
            image: None,
            image_times: None,
            compressed: None,
            variant: None,
        }
    }

    /// What we coded the body with, now or before; what PHP coded itself is not ours.
    #[must_use]
    pub(crate) fn coding(&self) -> Option<Coding> {
        self.compressed
            .as_ref()
            .map(|compressed| compressed.coding)
            .or(self.variant)
    }

    /// How long the client went on reading after the worker was free; `None` if the body did not leave PHP at once, or
    /// the worker is still busy. This is the time of a worker that the hand-off saved.
    #[must_use]
    pub(crate) fn worker_time_saved(&self, now: Instant) -> Option<Duration> {
        self.handoff?;
        Some(now.saturating_duration_since(self.php.as_ref()?.released()?))
    }
}

/// How PHP took part.
#[derive(Debug, Clone, Default)]
pub(crate) struct PhpTrace {
    /// Time the request waited for a worker.
    pub queued: Duration,
    /// When a worker was taken.
    pub taken: Option<Instant>,
    /// Microseconds a worker was busy with it; 0 until the worker is free again.
    pub busy: Arc<AtomicU64>,
    /// The pool that ran the script.
    pub pool: Option<Arc<Pool>>,
    /// The worker, where it is known.
    pub pid: Option<u32>,
    /// First line PHP wrote to its error log during this request.
    pub message: Option<String>,
    /// All of these lines, for sites in development.
    pub stderr: String,
    /// What was streamed, if the body was too long to be held.
    pub streamed: Option<Box<Streamed>>,
}

impl PhpTrace {
    /// When the worker was free again; `None` before.
    #[must_use]
    pub(crate) fn released(&self) -> Option<Instant> {
        let busy = self.busy.load(Ordering::Relaxed);
        self.taken
            .filter(|_| busy > 0)
            .map(|taken| taken + Duration::from_micros(busy))
    }
}
