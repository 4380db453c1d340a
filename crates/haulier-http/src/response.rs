//! A response as handlers make it and filters adjust it.

use std::sync::Arc;

use haulier_proto::field::Fields;

use crate::body::Body;
use crate::prepared::PreparedHead;
use crate::trace::{Handler, Trace};

/// Status, field lines, body, and facts for the log.
///
/// The protocol adds `Date`, `Server`, `Connection`, `Content-Length` and `Transfer-Encoding`.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub head: Head,
    pub body: Body,
    pub trace: Trace,
}

impl Response {
    /// A response without field lines and body.
    #[must_use]
    pub fn new(status: u16, handler: Handler) -> Self {
        Self {
            status,
            head: Fields::new().into(),
            body: Body::Empty,
            trace: Trace::of(handler),
        }
    }

    /// Adds a field line.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.head.fields_mut().append(name, value);
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Body>) -> Self {
        self.body = body.into();
        self
    }
}

/// The field lines of a response, as a list or encoded already.
#[derive(Debug)]
pub enum Head {
    /// Boxed: a response is moved more often than its fields are read.
    Fields(Box<Fields>),
    /// Shared by all responses with the same file.
    Prepared(Arc<PreparedHead>),
}

impl From<Fields> for Head {
    fn from(fields: Fields) -> Self {
        Self::Fields(Box::new(fields))
    }
}

impl Head {
    /// The field lines, for changes. A prepared head is copied first.
    pub fn fields_mut(&mut self) -> &mut Fields {
        if let Self::Prepared(prepared) = self {
            *self = prepared.fields().clone().into();
        }
        match self {
            Self::Fields(fields) => fields,
            Self::Prepared(_) => unreachable!("made loose above"),
        }
    }

    /// The field lines.
    pub fn fields(&self) -> &Fields {
        match self {
            Self::Fields(fields) => fields,
            Self::Prepared(prepared) => prepared.fields(),
        }
    }
}
