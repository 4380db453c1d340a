//! Bound addresses, and the connections that come in through them.

mod accept;
mod gate;
mod listener;

pub(crate) use accept::accept;
pub(crate) use gate::{Gate, Permit};
pub use listener::BindError;
pub(crate) use listener::Listener;
