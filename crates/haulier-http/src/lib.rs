//! Messages as handlers, back ends and protocols share them: requests, responses, bodies.
//!
//! README.md tells the life of a message. Nothing here opens a socket, starts a task or knows a setting.

mod body;
mod budget;
mod file;
mod network;
mod peer;
mod pipe;
mod prepared;
mod request;
mod request_id;
mod response;
mod source;
mod trace;

pub use body::{Body, BodyStream, BrokenBody, Chunk, Parts};
pub use budget::{Budget, Charge};
pub use file::{FileSlice, OpenFile, ReadNow};
pub use network::{Network, NotANetwork};
pub use peer::Peer;
pub use pipe::{Pipe, PipeSlice};
pub use prepared::{FieldEncoding, PreparedHead};
pub use request::{BodyError, Exchange, Presence, Request, Timeouts};
pub use request_id::{RequestId, RequestIds};
pub use response::{Head, Response};
pub use source::ReadInto;
pub use trace::{Compressed, Handler, ImageResult, ImageTimes, PhpTrace, Streamed, Trace, Via};
