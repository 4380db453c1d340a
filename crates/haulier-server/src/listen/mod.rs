//! Bound addresses, and the connections that come in through them.

mod accept;
mod address;
mod gate;
mod listener;
mod network;

pub(crate) use accept::{Ending, accept, canonical};
pub use address::Address;
pub(crate) use gate::{Gate, Permit};
pub(crate) use listener::Listener;
pub use listener::{BindError, Inherited};
pub use network::{Network, NotANetwork};
