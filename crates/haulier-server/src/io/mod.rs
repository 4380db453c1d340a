//! Sockets with and without TLS, their deadlines, buffers and limits.

mod address;
mod buffers;
mod deadline;
pub(crate) mod detect;
mod gate;
mod limits;
mod outgoing;
pub(crate) mod pace;
mod session;
pub(crate) mod socket;
mod thread_io;

pub use address::Address;
pub(crate) use address::canonical;
pub(crate) use buffers::Buffers;
pub(crate) use deadline::{WaitPhase, Watched};
pub(crate) use gate::{Gate, Permit};
pub use limits::{Limits, LimitsTable};
pub(crate) use session::Session;
pub(crate) use thread_io::Io;
