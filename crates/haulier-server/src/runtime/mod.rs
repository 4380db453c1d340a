//! One thread and one event loop per core.
//!
//! [`Server`] has bound its sockets, [`RunningServer`] has started its threads and can be reloaded (`running`).
//! `event_loop` is one thread.

mod event_loop;
mod page_dictionaries;
mod running;

use std::sync::Arc;

use crate::access_log::AccessLog;
use crate::io::Address;
use crate::io::Gate;
use crate::listen::{BindError, InheritedSockets, Listener};
use crate::metrics::Metrics;
use crate::settings::ServerSettings;
use crate::site::{SharedParts, Site, SiteSettings};

pub use running::{RunningServer, ServerHandle};

/// A server whose sockets are bound. Connections wait in the kernel until [`Server::run`].
#[derive(Debug)]
pub struct Server {
    settings: Arc<ServerSettings>,
    sites: Vec<Arc<Site>>,
    gate: Arc<Gate>,
    metrics: Arc<Metrics>,
    listeners: Vec<Listener>,
    log: AccessLog,
}

impl Server {
    /// Opens the document roots and binds all addresses. Sockets in `inherited` are used for the addresses that they
    /// listen on.
    ///
    /// # Errors
    /// [`BindError`] with the first root that cannot be opened or address that cannot be bound.
    pub fn bind(
        mut settings: ServerSettings,
        log: AccessLog,
        inherited: &mut Vec<InheritedSockets>,
    ) -> Result<Self, BindError> {
        settings.threads = settings.threads.max(1);
        let limits = &settings.limits;
        let gate = Gate::new(limits.connections, limits.connections_per_ip, settings.threads);
        let metrics = Metrics::new(Arc::clone(&gate), settings.threads);
        let sites = open_sites(&mut settings, &metrics)?;
        let listeners = configured(&settings)
            .map(|(address, is_secure)| Listener::bind(address, is_secure, settings.reuse_port, &settings, inherited))
            .collect::<Result<Vec<_>, _>>()?;
        settings.https_port = https_port(&listeners);
        Ok(Self {
            settings: Arc::new(settings),
            sites,
            gate,
            metrics,
            listeners,
            log,
        })
    }

    /// The bound addresses with their real ports; TLS addresses last.
    #[must_use]
    pub fn addresses(&self) -> Vec<Address> {
        self.listeners.iter().map(|listener| listener.address.clone()).collect()
    }

    /// The bound addresses whose connections begin with TLS.
    #[must_use]
    pub fn secure_addresses(&self) -> Vec<Address> {
        let secure = self.listeners.iter().filter(|listener| listener.is_secure);
        secure.map(|listener| listener.address.clone()).collect()
    }

    /// The metrics of the server; they may outlive it.
    #[must_use]
    pub fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.metrics)
    }

    /// Starts the threads.
    ///
    /// # Errors
    /// A thread or its event loop could not be created.
    pub fn run(self) -> std::io::Result<RunningServer> {
        RunningServer::start(self)
    }
}

/// All configured addresses, each with whether its connections begin with TLS.
fn configured(settings: &ServerSettings) -> impl Iterator<Item = (&Address, bool)> {
    let plain = settings.listen.iter().map(|address| (address, false));
    plain.chain(settings.listen_tls.iter().map(|address| (address, true)))
}

/// The port that clients without TLS are redirected to.
fn https_port<'l>(listeners: impl IntoIterator<Item = &'l Listener>) -> Option<u16> {
    let mut secure = listeners.into_iter().filter(|listener| listener.is_secure);
    secure.find_map(|listener| Some(listener.address.internet()?.port()))
}

/// Opens every site, each with the series of its name.
fn open_sites(server: &mut ServerSettings, metrics: &Metrics) -> Result<Vec<Arc<Site>>, BindError> {
    let sites = std::mem::take(&mut server.sites);
    let open = |settings: SiteSettings| {
        let (site, root) = (settings.name.clone(), settings.files.root.clone());
        Site::open(settings, shared_parts(server), metrics.series_of(&site))
            .map(Arc::new)
            .map_err(|source| BindError::Root { site, root, source })
    };
    sites.into_iter().map(open).collect()
}

fn shared_parts(server: &ServerSettings) -> SharedParts<'_> {
    SharedParts {
        pools: &server.pools,
        compressed_copies: server.compressed_copies.as_ref(),
    }
}
