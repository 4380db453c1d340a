//! Bytes of a connection ⇄ requests and responses.

mod deadline;
mod http1;
pub(crate) mod http2;
mod listing;
mod over;
mod pace;
pub(crate) mod socket;
mod unwinding;

pub(crate) use deadline::{Deadlines, Phase, Watched};
pub(crate) use http1::Connection as Http1;
