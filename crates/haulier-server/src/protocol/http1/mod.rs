//! HTTP/1.1 on one connection (RFC 9112).

mod connection;
mod incoming;
mod sender;

pub(crate) use connection::Connection;
