//! `haulier bench`, the real binary, against scripted servers, and compared with the real ab.
//!
//! Counts and texts are checked, but no speed, which depends on the machine.

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
