//! HTTP/2 on the wire: raw frames over real sockets against a whole server.
//!
//! The files are in the order of RFC 9113. The state machine alone is tested in `haulier-proto`; here it is the
//! client's view. "Row" in a test's doc line is a row of the table of attacks in `docs/limits.md`.

#[path = "../http1/client.rs"]
#[allow(dead_code, reason = "the tests of HTTP/1.1 need more of it")]
mod client;
mod peer;
#[path = "../http1/site.rs"]
#[allow(dead_code, reason = "the tests of HTTP/1.1 need more of it")]
mod site;

mod deadlines;
mod floods; // §10.5
mod frames; // §6
mod goaway; // §6.8
mod messages; // §8
mod starting; // RFC 9113 §3
mod streams; // §5
mod windows; // §5.2, §6.9
