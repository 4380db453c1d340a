//! The two ends of a connection.

use std::net::{IpAddr, SocketAddr};

/// Facts about both ends that are known before the first byte of a request.
#[derive(Debug, Clone, Copy)]
pub struct Peer {
    /// The client's address.
    pub remote: SocketAddr,
    /// The address it connected to.
    pub local: SocketAddr,
    /// The client's connection is encrypted, here or at a trusted proxy.
    pub tls: bool,
    /// It speaks HTTP without TLS on a TLS port.
    pub misses_tls: bool,
    /// The trusted proxy that carried the request.
    pub proxy: Option<IpAddr>,
}
