//! The other end of the wire: what `haulier get` downloads with.
//!
//! The modules stand in the order of a request: an address, a connection, one exchange on it, where it leads, when to
//! try again. `download` builds a whole file of that. The load generator, haulier-bench, has an engine of its own beneath
//! the same addresses.

pub mod url;

pub mod connect;
pub mod error;
pub mod stream;

pub mod client;
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
