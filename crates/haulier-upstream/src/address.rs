//! The address of a server.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// `unix:/run/php/php8.2-fpm.sock`
    Unix(PathBuf),
    /// `127.0.0.1:9000`
    Tcp(SocketAddr),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "{address}"),
        }
    }
}
