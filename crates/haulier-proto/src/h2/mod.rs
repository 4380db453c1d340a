//! HTTP/2 as a pure state machine (RFC 9113): bytes in → events, answers → frames out.
//!
//! [`connection::Connection`] is the server's side of one connection, [`client::Client`] the other. Neither reads a
//! socket or a clock: the driver feeds it what it received, acts on the events, and sends what is in `output`, all of
//! one turn in one write.

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

pub use reader::Step;

/// What a client sends first (RFC 9113 §3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
