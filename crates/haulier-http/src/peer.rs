//! The two ends of a connection.

use std::net::{IpAddr, SocketAddr};

/// What is known of the client and of us before the first byte.
#[derive(Debug, Clone, Copy)]
pub struct Peer {
    /// The client's address.
    pub remote: SocketAddr,
    /// The address it reached.
    pub local: SocketAddr,
    /// Whether the client's connection is encrypted, here or at a proxy we trust.
    pub tls: bool,
    /// It speaks HTTP without TLS to a port that wants TLS.
    pub misses_tls: bool,
    /// The proxy we trust that carried the request for the client.
    pub proxy: Option<IpAddr>,
}
