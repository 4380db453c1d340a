//! Reading and writing of connections: sockets with and without TLS, their deadlines, buffers and number.

mod buffers;
mod deadline;
mod gate;
mod limits;
mod outgoing;
pub(crate) mod pace;
mod session;
pub(crate) mod socket;

pub(crate) use buffers::Buffers;
pub(crate) use deadline::{Deadlines, Phase, Watched};
pub(crate) use gate::{Gate, Permit};
pub use limits::Limits;
pub(crate) use session::{Scratch, Session};
