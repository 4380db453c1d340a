//! Bytes of a connection ⇄ requests and responses.

mod http1;
pub(crate) mod http2;
mod listing;
mod over;
mod unwinding;

pub(crate) use http1::Connection as Http1;
