//! Bytes of a connection ⇄ requests and responses.

mod deadline;
mod http1;
pub(crate) mod socket;

pub(crate) use deadline::{Deadlines, Phase, Watched};
pub(crate) use http1::Connection as Http1;
