//! Bound addresses, and the connections that come in through them.

mod accept;
mod address;
pub(crate) mod detect;
mod listener;
mod tls;

pub(crate) use accept::{Ending, Endpoint, accept, canonical};
pub use address::Address;
pub(crate) use listener::Listener;
pub use listener::{BindError, Inherited};
