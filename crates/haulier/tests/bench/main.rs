//! `haulier bench`, the real binary, against servers that do what the test says, and beside the real ab.
//!
//! What is checked is what was counted and what was said of it; how fast this machine is, is nobody's business here.

mod ab;
mod comparing;
mod failures;
mod files;
mod http2;
#[path = "../support/http2_peer.rs"]
mod http2_peer;
mod loops;
mod plans;
#[path = "../support/ports.rs"]
mod ports;
mod program;
mod reports;
mod scripted;
mod targets;
