//! Bound addresses, and the connections that come in through them.

mod accept;
mod listener;
mod tls;

pub(crate) use accept::{StopSignal, Endpoint, accept};
pub(crate) use listener::Listener;
pub use listener::{BindError, Inherited};
