//! HTTP/2 as a pure state machine (RFC 9113): bytes in → events, answers → frames out.
//!
//! [`connection::Connection`] is the server's side of one connection, [`client::Client`] the other; both read frames by
//! one `reader`. Neither reads a socket or a clock: the driver gives it the bytes received, acts on the events, and
//! sends the `output` of a turn in one write.

mod block;
pub mod client;
pub mod connection;
pub mod error;
pub mod flow;
pub mod frame;
pub mod hpack;
pub mod limits;
mod reader;
mod request;
mod response;
pub mod settings;
mod stream;

pub use reader::Received;

/// The first bytes of a client (RFC 9113 §3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
