//! The interface between a handler and the programs that answer for it.
//!
//! A pool of FastCGI workers is a back end, and so is a group of servers behind a proxy. Each has its own form of a
//! request ([`Backend::Head`]). All return the same [`BackendAnswer`], so later code does not depend on the kind.

use crate::Reason;
use std::error::Error;
use std::fs::File;
use std::sync::Arc;

use haulier_proto::field::Fields;

use crate::answer::BackendAnswer;
use crate::request::Presence;
use crate::source::BodySource;

/// Programs that answer requests.
///
/// A trait and not an enum: each handler is compiled for one kind of back end, so no piece of a body is dispatched.
pub trait Backend: std::fmt::Debug {
    /// A request as this kind of back end reads it, without its body: PARAMS records for FastCGI.
    type Head: ?Sized;
    /// The body of an answer.
    type Body: BodySource + 'static;

    /// Its name in the configuration, for logs and metrics.
    fn name(&self) -> &Arc<str>;

    /// Sends one request and returns once the head of the answer is complete. Interim heads go to the caller at once.
    ///
    /// # Errors
    /// See [`BackendError`]. No part of an answer has been passed on.
    fn send(
        &self,
        call: &BackendCall<'_, Self::Head>,
    ) -> impl Future<Output = Result<BackendAnswer<Self::Body>, BackendError>>;

    /// Describes the error and the state of the back end in a few lines, for a developer.
    fn explain(&self, error: &BackendError) -> String;
}

/// One request to a back end, complete before it takes a worker or a connection.
#[derive(Debug)]
pub struct BackendCall<'a, H: ?Sized> {
    pub head: &'a H,
    pub body: RequestBody<'a>,
    /// Safe to send again if the connection closed before the first byte of an answer.
    pub idempotent: bool,
    /// Requests with the same key go to the same server of several; `None` goes to any.
    pub affinity: Option<&'a [u8]>,
    pub caller: &'a dyn Caller,
}

/// The client's side of a call.
pub trait Caller: std::fmt::Debug {
    /// The state of the client's connection.
    fn presence(&self) -> Presence;

    /// Passes an interim response (103) on.
    fn send_interim(&self, status: u16, fields: &Fields);

    /// A short form of the request ("GET /report") for log lines.
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
        /// Read by position; the file's own offset is not moved.
        file: &'a File,
        /// Bytes.
        length: u64,
    },
}

/// Failure of a back end, before or in the middle of its answer.
#[derive(Debug, thiserror::Error)]
#[error("{cause}")]
pub struct BackendError {
    /// The status of the response sent instead.
    pub status: u16,
    /// One of the fixed reasons of a 5xx.
    pub reason: Reason,
    /// The figures behind the reason, with the setting that limits them.
    pub detail: Option<Box<str>>,
    /// The last lines the program wrote to its error log before it ended.
    pub stderr: String,
    /// The back end's own error.
    pub cause: Box<dyn Error + Send + Sync>,
}
