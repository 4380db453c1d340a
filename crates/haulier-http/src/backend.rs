//! The seam between a handler and the programs that answer for it.
//!
//! A pool of FastCGI workers is a back end, and so is a group of servers behind a proxy. They differ in the way a request
//! is written down ([`Backend::Head`]); what comes back is one [`Answer`] for all of them, so that the code after it does
//! not know which of them has answered.

use crate::Reason;
use std::error::Error;
use std::fs::File;
use std::sync::Arc;

use haulier_proto::field::Fields;

use crate::answer::Answer;
use crate::request::Presence;
use crate::source::BodySource;

/// Programs that answer requests.
///
/// A trait and not an enum: a call and its answer are written for one kind of back end at a time, so each handler is
/// compiled for its own, and nothing is dispatched for a piece of a body.
pub trait Backend: std::fmt::Debug {
    /// A request as this kind of back end reads it, without its body: PARAMS records for FastCGI.
    type Head: ?Sized;
    /// The body of an answer.
    type Body: BodySource + 'static;

    /// The name in the configuration, for logs and metrics.
    fn name(&self) -> &Arc<str>;

    /// Carries one request as far as the head of its answer. Interim heads go to the caller as they come.
    ///
    /// # Errors
    /// See [`BackendError`]; no part of an answer has been sent on.
    fn send(&self, call: &Call<'_, Self::Head>) -> impl Future<Output = Result<Answer<Self::Body>, BackendError>>;

    /// The error and the state of the back end in some lines, for a developer.
    fn explain(&self, error: &BackendError) -> String;
}

/// One request to a back end, complete before a worker or a connection is taken for it.
#[derive(Debug)]
pub struct Call<'a, H: ?Sized> {
    pub head: &'a H,
    pub body: RequestBody<'a>,
    /// It may be sent again if the other end was gone before a byte of the answer came.
    pub idempotent: bool,
    /// Requests with the same key go to the same one of several servers; `None` goes to any.
    pub affinity: Option<&'a [u8]>,
    pub caller: &'a dyn Caller,
}

/// The client's side of a call.
pub trait Caller: std::fmt::Debug {
    /// Whether the client still waits.
    fn presence(&self) -> Presence;

    /// Passes an interim response (103) on.
    fn send_interim(&self, status: u16, fields: &Fields);

    /// The request in a few words ("GET /report"), for log lines.
    fn label(&self) -> String;
}

/// A complete request body.
#[derive(Debug, Clone, Copy)]
pub enum RequestBody<'a> {
    Empty,
    /// In memory.
    Bytes(&'a [u8]),
    /// The first `length` bytes of a file.
    File {
        /// Read by position; its own position stays.
        file: &'a File,
        /// Bytes.
        length: u64,
    },
}

/// Why a back end gave no answer, or broke off in the middle of one.
#[derive(Debug, thiserror::Error)]
#[error("{cause}")]
pub struct BackendError {
    /// The status of our own answer in its place.
    pub status: u16,
    /// Out of the list of reasons a 5xx may have.
    pub reason: Reason,
    /// The figures behind the reason, and the setting that they are of.
    pub detail: Option<Box<str>>,
    /// The last lines that the program wrote to its error log before it went away.
    pub stderr: String,
    /// The error in the words of the back end.
    pub cause: Box<dyn Error + Send + Sync>,
}
