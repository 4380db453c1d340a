//! A response as handlers make it and filters adjust it.

use std::sync::Arc;
use std::time::Duration;

use haulier_proto::encode;
use haulier_proto::field::Fields;

use crate::body::Body;

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
            head: Head::Fields(Fields::new()),
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
    Fields(Fields),
    /// The same for every answer from one file, made once.
    Prepared(Arc<PreparedHead>),
}

impl Head {
    /// The field lines, to be changed. A prepared head becomes a loose copy.
    pub(crate) fn fields_mut(&mut self) -> &mut Fields {
        if let Self::Prepared(prepared) = self {
            *self = Self::Fields(prepared.fields.clone());
        }
        match self {
            Self::Fields(fields) => fields,
            Self::Prepared(_) => unreachable!("made loose above"),
        }
    }

    /// The field lines.
    #[cfg(test)]
    pub(crate) fn fields(&self) -> &Fields {
        match self {
            Self::Fields(fields) => fields,
            Self::Prepared(prepared) => &prepared.fields,
        }
    }
}

/// Field lines with their HTTP/1.1 bytes beside them.
#[derive(Debug)]
pub(crate) struct PreparedHead {
    fields: Fields,
    /// `Name: value\r\n` of every line, without status line and closing empty line.
    http1: Vec<u8>,
    /// The site's own Server field stands in place of ours.
    pub(crate) has_server: bool,
}

impl PreparedHead {
    /// Encodes once what every answer will need.
    #[must_use]
    pub(crate) fn new(fields: Fields) -> Self {
        let mut http1 = Vec::with_capacity(256);
        encode::fields(&mut http1, &fields);
        Self {
            has_server: fields.contains("Server"),
            fields,
            http1,
        }
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
}

/// Who made the response; a label in logs and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handler {
    Static,
    Php,
    Redirect,
    Denied,
    Error,
}

impl Handler {
    #[must_use]
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Php => "php",
            Self::Redirect => "redirect",
            Self::Denied => "denied",
            Self::Error => "error",
        }
    }
}

/// What the access log tells beside status and size.
#[derive(Debug, Clone)]
pub(crate) struct Trace {
    pub handler: Handler,
    /// Out of a fixed list; every 5xx has one.
    pub reason: Option<&'static str>,
    pub php: Option<PhpTrace>,
}

impl Trace {
    #[must_use]
    pub(crate) fn of(handler: Handler) -> Self {
        Self {
            handler,
            reason: None,
            php: None,
        }
    }
}

/// How PHP took part.
#[derive(Debug, Clone, Default)]
pub(crate) struct PhpTrace {
    /// Time the request waited for a worker.
    pub queued: Duration,
    /// Time a worker was busy with it; set when the worker is free again.
    pub busy: Arc<std::sync::atomic::AtomicU64>,
    /// The worker, where it is known.
    pub pid: Option<u32>,
    /// First line PHP wrote to its error log during this request.
    pub message: Option<String>,
}
