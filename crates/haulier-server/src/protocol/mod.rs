//! Bytes of a connection ⇄ requests and responses.

mod active_transfer;
mod catch_unwind;
mod finished_exchange;
mod http1;
pub(crate) mod http2;

pub(crate) use http1::Connection as Http1;
