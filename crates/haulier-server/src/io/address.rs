//! Listening addresses: an internet address, or a socket in the file system.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// An address to listen on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Address {
    /// An IPv4 or IPv6 address with its port; port 0 takes a free one.
    Internet(SocketAddr),
    /// The absolute path of a Unix socket. Its clients count as 127.0.0.1.
    Unix(PathBuf),
}

impl Address {
    /// The internet address; `None` for a Unix socket.
    #[must_use]
    pub fn internet(&self) -> Option<SocketAddr> {
        match self {
            Self::Internet(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }

    /// The server address of requests that come in here. A Unix socket has neither address nor port: loopback, and the
    /// port that URLs leave out.
    pub(crate) fn as_internet(&self) -> SocketAddr {
        self.internet()
            .unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, 80)))
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Internet(address)
    }
}

impl fmt::Display for Address {
    /// As it is written in the configuration: `127.0.0.1:80`, `unix:/run/x.sock`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Internet(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// An IPv4 client of an IPv6 listener is an IPv4 client.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
