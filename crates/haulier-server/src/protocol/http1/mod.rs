//! HTTP/1.1 on one connection (RFC 9112).

mod connection;
mod incoming;
mod request_body;
mod sender;
mod waiting;

pub(crate) use connection::Connection;
