//! HTTP and FastCGI as bytes and messages.
//!
//! No module opens a socket, reads a clock or starts a task: bytes go in, values come out, and the other way round.
//! Therefore the server, the client, the load generator and the fuzzers can share them.

pub mod accept;
pub mod chunked;
pub mod conditional;
pub mod content_range;
pub mod copy;
pub mod date;
pub mod dictionary;
pub mod encode;
pub mod etag;
pub mod fastcgi;
pub mod field;
pub mod forwarded;
pub mod framing;
pub mod h2;
pub mod head;
pub mod path;
pub mod proxy;
pub mod range;
pub mod response_head;
pub mod status;
pub mod text;
