//! Bytes of a connection ⇄ requests and responses.

mod active_transfer;
mod catch_unwind;
mod exact_body;
mod finished_exchange;
mod head_fields;
mod http1;
pub(crate) mod http2;

pub(crate) use http1::Connection as Http1;
