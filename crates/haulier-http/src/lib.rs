//! Message types shared by handlers, back ends and protocols: requests, responses, bodies.
//!
//! README.md follows a message through its life. This crate opens no socket, starts no task and reads no setting.

mod answer;
mod backend;
mod body;
mod budget;
mod file;
mod network;
mod peer;
mod pipe;
mod prepared;
mod reason;
mod request;
mod request_id;
mod response;
mod source;
mod trace;

pub use answer::{AnswerHead, BackendAnswer, BadLength, Cost, interim_fields, is_live};
pub use backend::{Backend, BackendCall, BackendError, Caller, RequestBody};
pub use body::{Body, Parts};
pub use budget::{ByteBudget, Charge};
pub use file::{FileSlice, OpenFile, ReadNow};
pub use network::{Network, NotANetwork};
pub use peer::Peer;
pub use pipe::{Pipe, PipeSlice};
pub use prepared::{FieldEncoding, PreparedHead};
pub use reason::{Fault, Reason};
pub use request::{BodyError, Exchange, Presence, Request, Timeouts};
pub use request_id::{RequestId, RequestIds};
pub use response::{Head, Response};
pub use source::{BodySource, BrokenBody, Piece, ReadInto, ReadPiece};
pub use trace::{BackendTrace, Compressed, Handler, ImageResult, ImageTimes, Streamed, Trace, Via};
