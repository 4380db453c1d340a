//! Settings of a whole server.

use std::path::PathBuf;
use std::sync::Arc;

use haulier_http::Network;
use haulier_php::Pool;
use haulier_settings::settings_table;

use crate::body::request::Storage;
use crate::compress::store::CompressedStore;
use crate::io::{Address, Limits};
use crate::site::SiteSettings;
use crate::tls::Acceptor;

settings_table! {
    /// The rows of `[server]` that the server takes as written.
    pub struct ServerRows = "server" =>

    /// Settings of a server: its addresses and its sites.
    #[derive(Debug, Clone)]
    pub struct ServerSettings {
        /// Addresses to listen on; port 0 takes a free one.
        listen: Vec<Address> = Vec::new();
        /// Addresses whose connections begin with a TLS handshake; empty without `tls`.
        listen_tls: Vec<Address> = Vec::new();
        /// TLS settings.
        tls: Option<TlsSettings> = None;
        /// The port of the first of `listen_tls` once it is bound. Clients without TLS are redirected there.
        https_port: Option<u16> = None;
        /// Permissions of Unix sockets, such as 0o660.
        socket_mode: u32 = 0o660;
        /// Proxies whose forwarding fields are trusted.
        trusted_proxies: Vec<Network> = Vec::new();
        /// Connections of those proxies begin with a PROXY header.
        proxy_protocol: bool = false;
        /// Threads, each with its own event loop; by default the number of usable processors.
        threads: usize = 1;
        /// Most files that all threads together hold open in their caches.
        open_files: usize = 1024;
        /// Limits that apply before a site is known.
        limits: Limits = Limits::default();
        /// Directory of the unnamed files that hold request and response bodies; should not be a tmpfs.
        spool_dir: PathBuf = PathBuf::from("/var/tmp");
        /// The PHP pools; sites refer to them by index.
        pools: Vec<Arc<Pool>> = Vec::new();
        /// The store of compressed copies; `None` keeps none.
        compressed_copies: Option<Arc<CompressedStore>> = None;
        /// The sites, in the order of the configuration.
        sites: Vec<SiteSettings> = Vec::new();
    }

    /// Speak HTTP/2 with clients that begin with it, and over TLS with those that can.
    http2: Flag -> bool = true;
    /// Let a second haulier serve the same port, for more connections than one process may hold.
    reuse_port: Flag -> bool = false;
    /// Take a connection when its first bytes are there; silent ones wait in the kernel.
    defer_accept: Flag -> bool = true;
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

/// TLS settings of the listeners.
#[derive(Debug, Clone)]
pub struct TlsSettings {
    /// Versions, ciphers and certificates.
    pub acceptor: Arc<Acceptor>,
    /// A client that speaks HTTP to a TLS port is redirected to `https://` on the same port; else it gets 400.
    pub redirects_plain: bool,
}
