//! What a pool carries to PHP.

use std::fmt;
use std::fs::File;

/// One request, complete before a worker is taken.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// Complete PARAMS records as `ParamsWriter` makes them, without the empty one that ends them. CONTENT_LENGTH must
    /// be the length of `body`.
    pub params: &'a [u8],
    /// The request body.
    pub body: Body<'a>,
    /// The request may be sent again if the worker was gone before a byte of the response came.
    pub idempotent: bool,
    /// What requests have in common that are to go to the same one of several servers; `None` goes to any.
    pub affinity: Option<&'a [u8]>,
    /// Whether anybody still waits for the answer; asked now and then in the queue, and when a worker comes free after it.
    pub wanted: &'a dyn Fn() -> Wanted,
    /// The request in a few words ("GET /report"), for log lines; called only when there is something to log.
    pub label: &'a dyn Fn() -> String,
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("label", &(self.label)())
            .field("params", &self.params.len())
            .field("body", &self.body)
            .field("idempotent", &self.idempotent)
            .finish()
    }
}

/// Whether anybody waits for the answer to a request in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Somebody does.
    Yes,
    /// The client sends nothing more, and may have gone: those that wait for certain come first.
    Perhaps,
    /// Nobody does: PHP is not asked.
    No,
}

/// A request body.
#[derive(Debug, Clone, Copy)]
pub enum Body<'a> {
    /// None.
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
