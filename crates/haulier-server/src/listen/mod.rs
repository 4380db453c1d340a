//! Bound addresses, and the connections that come in through them.

mod accept;
mod address;
mod gate;
mod listener;
mod network;

pub(crate) use accept::{accept, canonical};
pub use address::Address;
pub(crate) use gate::{Gate, Permit};
pub use listener::BindError;
pub(crate) use listener::{Listener, SocketFile};
pub use network::{Network, NotANetwork};
