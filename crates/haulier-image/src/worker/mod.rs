//! Foreign bytes are decoded only in worker processes: re-executed from our own binary, without rights, bounded.
//!
//! [`Workers`] is the pool the server asks; [`main`] is what a worker runs. An image that crashes a decoder, takes too
//! long or too much memory costs its own request and one process. Workers are reused and end when we end.

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
