//! `haulier get`, the real binary, against servers that lie, cut, stall and change, and against real ones.
//!
//! One rule stands above all: a file that differs from the server's never gets its name.

mod faults;
mod files;
mod http;
mod http2;
#[path = "../support/http2_peer.rs"]
mod http2_peer;
mod peer;
#[path = "../support/ports.rs"]
mod ports;
mod program;
mod resuming;
mod segments;
mod servers;
mod tls;
mod uploads;
mod verifying;
