//! Worker processes, which decode untrusted bytes: the same binary, executed again without privileges and with resource
//! limits.
//!
//! [`Workers`] is the pool that the server uses; [`main`] runs in a worker. An image that crashes a decoder, or takes
//! too much time or memory, costs its own request and one process. Workers are reused, and end with the server.

mod mapping;
mod message;
mod pool;
mod process;
mod sandbox;
mod socket;
mod starter;
mod watch;

pub use pool::{OriginalSource, StartError, Workers, WorkersSettings, WorkersStatus};
pub use process::{SUBCOMMAND, main};
