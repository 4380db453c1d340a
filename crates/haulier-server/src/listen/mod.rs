//! Bound addresses, and the connections accepted there.

mod accept;
mod listener;
mod tls;

pub(crate) use accept::{Endpoint, StopSignal, accept};
pub(crate) use listener::Listener;
pub use listener::{BindError, InheritedSockets};
