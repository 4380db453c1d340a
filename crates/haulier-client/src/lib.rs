//! The client's side of HTTP: connections, exchanges, redirects, and downloads of whole files.
//!
//! README.md lists the modules in the order of a request. The load generator, haulier-bench, shares the addresses and
//! the decoders, and has an engine of its own.

pub mod url;

pub mod connect;
pub mod error;
pub mod stream;

mod active_request;
pub mod client;
pub mod connection;
pub mod credentials;
pub mod decode;
pub mod download;
pub mod exchange;
mod http1;
mod http2;
pub mod names;
pub mod pool;
pub mod redirect;
pub mod request;
pub mod retry;
mod upload;
