//! Settings of a whole server, as plain values. Configuration files and flags are unknown here.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use haulier_http::Network;
use haulier_php::Pool;

use crate::body::request::Storage;
use crate::compress::store::CompressedStore;
use crate::io::{Address, Limits};
use crate::site::SiteSettings;
use crate::tls::Acceptor;

/// Settings of a server: its addresses and its sites.
#[derive(Debug, Clone)]
pub struct ServerSettings {
    /// Addresses to listen on; port 0 takes a free one.
    pub listen: Vec<Address>,
    /// Addresses whose connections begin with a TLS handshake; empty without `tls`.
    pub listen_tls: Vec<Address>,
    /// TLS settings.
    pub tls: Option<TlsSettings>,
    /// The port of the first of `listen_tls` once it is bound. Clients without TLS are redirected there.
    pub https_port: Option<u16>,
    /// Permissions of Unix sockets, such as 0o660.
    pub socket_mode: u32,
    /// Proxies whose forwarding fields are trusted.
    pub trusted_proxies: Vec<Network>,
    /// Connections of those proxies begin with a PROXY header.
    pub proxy_protocol: bool,
    /// Serve HTTP/2 to clients that begin with it.
    pub http2: bool,
    /// Let a second haulier bind the same port.
    pub reuse_port: bool,
    /// TCP_DEFER_ACCEPT: the kernel completes an accept once the first bytes are there.
    pub defer_accept: bool,
    /// Threads, each with its own event loop; by default the number of usable processors.
    pub threads: usize,
    /// Most files that all threads together hold open in their caches.
    pub open_files: usize,
    /// Longest time that active requests may take after a stop.
    pub grace: Duration,
    /// Limits that apply before a site is known.
    pub limits: Limits,
    /// Directory of the unnamed files that hold request and response bodies; should not be a tmpfs.
    pub spool_dir: PathBuf,
    /// The PHP pools; sites refer to them by index.
    pub pools: Vec<Arc<Pool>>,
    /// The store of compressed copies; `None` keeps none.
    pub compressed_copies: Option<Arc<CompressedStore>>,
    /// The sites, in the order of the configuration.
    pub sites: Vec<SiteSettings>,
}

impl ServerSettings {
    /// Storage for long request bodies.
    pub(crate) fn body_storage(&self) -> Storage<'_> {
        Storage {
            directory: &self.spool_dir,
            most: self.limits.body_spool,
        }
    }
}

impl Default for ServerSettings {
    /// One thread without addresses.
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            listen_tls: Vec::new(),
            tls: None,
            https_port: None,
            socket_mode: 0o660,
            trusted_proxies: Vec::new(),
            proxy_protocol: false,
            http2: true,
            reuse_port: false,
            defer_accept: false,
            threads: 1,
            open_files: 1024,
            grace: Duration::from_secs(30),
            limits: Limits::default(),
            spool_dir: PathBuf::from("/var/tmp"),
            pools: Vec::new(),
            compressed_copies: None,
            sites: Vec::new(),
        }
    }
}

/// TLS settings of the listeners.
#[derive(Debug, Clone)]
pub struct TlsSettings {
    /// Versions, ciphers and certificates.
    pub acceptor: Arc<Acceptor>,
    /// A client that speaks HTTP to a TLS port is redirected to `https://` on the same port; else it gets 400.
    pub redirects_plain: bool,
}
