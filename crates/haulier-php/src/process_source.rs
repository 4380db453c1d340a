//! The source of PHP's processes: everything in which the kinds of pools differ at run time.
//!
//! A new kind is a folder, a variant of [`PoolKind`], and an arm of each `match` here.

use std::sync::Arc;
use std::time::Duration;

use crate::error::StartError;
use crate::external::{self, ExternalServer, ExternalServers};
use crate::fastcgi_exchange::FastCgiExchange;
use crate::settings::{PoolKind, PoolSettings};
use crate::shared_pool::SharedPool;
use crate::spawner::Spawner;
use crate::supervised::{self, Supervisor};

/// The threads that keep PHP's processes running, or check external servers.
#[derive(Debug)]
pub(crate) enum ProcessSource {
    /// php-cgi, which haulier starts.
    Supervised(Supervisor),
    /// FastCGI servers that another program runs.
    External(ExternalServers),
}

impl ProcessSource {
    /// Starts php-cgi, or registers the external servers.
    ///
    /// # Errors
    /// See [`StartError`].
    pub(crate) fn start(
        settings: PoolSettings,
        spawner: Option<&Arc<Spawner>>,
    ) -> Result<(Arc<SharedPool>, Self), StartError> {
        match settings.kind.clone() {
            PoolKind::Supervised(own) => {
                let (shared, supervisor) = Supervisor::start(settings, &own, spawner)?;
                Ok((shared, Self::Supervised(supervisor)))
            }
            PoolKind::External(external) => {
                let (shared, servers) = ExternalServers::start(settings, &external)?;
                Ok((shared, Self::External(servers)))
            }
        }
    }

    /// A new exchange for this kind of pool.
    pub(crate) fn exchange(&self, settings: &PoolSettings) -> FastCgiExchange {
        let exchange = FastCgiExchange::new(settings.response_head, settings.kind.keeps_connections());
        match self {
            Self::Supervised(_) if settings.kind.is_embedded() => exchange.may_finish().of_own_worker(),
            Self::Supervised(_) => exchange.may_finish(),
            // php-fpm has its own fastcgi_finish_request().
            Self::External(_) => exchange,
        }
    }

    /// Number of times that a request may be repeated. After a closed idle connection its server may turn out to be
    /// down too, and the second repetition goes to another server.
    pub(crate) fn retries(&self, shared: &SharedPool) -> usize {
        match self {
            Self::Supervised(_) => 1,
            Self::External(_) => shared.upstream.servers().min(2),
        }
    }

    /// True if PHP has to load after its start.
    pub(crate) fn needs_warming(&self) -> bool {
        matches!(self, Self::Supervised(_))
    }

    /// The external servers; empty for supervised PHP.
    pub(crate) fn servers(&self, shared: &SharedPool) -> Vec<ExternalServer> {
        match self {
            Self::Supervised(_) => Vec::new(),
            Self::External(servers) => servers.status(shared),
        }
    }

    /// Ends the supervised processes, or the checks of external servers.
    pub(crate) async fn stop(&self) {
        match self {
            Self::Supervised(supervisor) => supervisor.stop().await,
            Self::External(servers) => servers.stop(),
        }
    }
}

/// The shortest time after which maintenance may be due; `None` if no maintenance is needed.
pub(crate) fn maintenance_interval(kind: &PoolKind) -> Option<Duration> {
    match kind {
        PoolKind::Supervised(own) => supervised::maintenance_interval(own),
        PoolKind::External(external) => Some(external.idle_timeout),
    }
}

/// Does the maintenance that is due. Returns the time to the next round, if that is known.
pub(crate) fn maintain(shared: &Arc<SharedPool>) -> Option<Duration> {
    match &shared.settings.kind {
        PoolKind::Supervised(own) => {
            supervised::maintain(shared, own);
            None
        }
        PoolKind::External(external) => external::maintain(shared, external),
    }
}
