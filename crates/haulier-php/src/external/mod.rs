//! FastCGI servers that another program runs, usually php-fpm: connections and health.

mod fpm_status;
mod ping;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use haulier_upstream::{HealthChecks, ServerStatus, Thresholds, Upstream, UpstreamSettings, probe_while_down};

pub use self::fpm_status::FpmStatus;
pub(crate) use self::ping::ping_params;
use crate::connection::Connection;
use crate::error::StartError;
use crate::recycling::Recycling;
use crate::settings::{External, Health, PoolSettings};
use crate::shared_pool::SharedPool;

/// Status of one external server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalServer {
    /// Health and connections.
    pub status: ServerStatus,
    /// The last status page. `None` if it is not requested, or the server did not answer.
    pub told: Option<FpmStatus>,
    /// The status page is requested with each health check.
    pub is_asked: bool,
}

/// The servers of a pool, with the thread that checks them.
#[derive(Debug)]
pub(crate) struct ExternalServers {
    checks: HealthChecks,
    told: Arc<Told>,
    is_asked: bool,
}

/// The last status page of each server.
#[derive(Debug, Default)]
struct Told(Mutex<Vec<Option<FpmStatus>>>);

impl Told {
    fn lock(&self) -> MutexGuard<'_, Vec<Option<FpmStatus>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ExternalServers {
    /// Registers the servers. Checks them if there are several, or if the settings have health checks.
    ///
    /// # Errors
    /// See [`StartError`].
    pub(crate) fn start(settings: PoolSettings, external: &External) -> Result<(Arc<SharedPool>, Self), StartError> {
        if external.connections == 0 || external.servers.is_empty() {
            return Err(StartError::Empty);
        }
        let upstream = Upstream::new(upstream_settings(&settings, external)).map_err(StartError::Thread)?;
        let shared = SharedPool::new(settings, upstream, None, Recycling::default());
        let told = Arc::new(Told(Mutex::new(vec![None; external.servers.len()])));
        let checks = start_checks(&shared, external, &told).map_err(StartError::Thread)?;
        let is_asked = external.health.as_ref().is_some_and(|health| health.status.is_some());
        Ok((shared, Self { checks, told, is_asked }))
    }

    /// Status of every server.
    pub(crate) fn status(&self, shared: &SharedPool) -> Vec<ExternalServer> {
        let servers = shared.upstream.status().into_iter().zip(self.told.lock().clone());
        servers
            .map(|(status, told)| ExternalServer {
                status,
                told,
                is_asked: self.is_asked,
            })
            .collect()
    }

    /// Ends the checks.
    pub(crate) fn stop(&self) {
        self.checks.stop();
    }
}

fn upstream_settings(settings: &PoolSettings, external: &External) -> UpstreamSettings {
    let thresholds = external.health.as_ref().map(|health| Thresholds {
        fail: health.fail,
        recover: health.recover,
    });
    UpstreamSettings {
        name: settings.name.clone(),
        server_kind: "FastCGI server",
        addresses: external.servers.clone(),
        connections: external.connections,
        at_once: None,
        connect_timeout: external.connect_timeout,
        queue_length: settings.queue_length,
        queue_timeout: settings.queue_timeout,
        open_rate: None,
        is_running: true,
        may_park: false,
        thresholds,
    }
}

fn start_checks(shared: &Arc<SharedPool>, external: &External, told: &Arc<Told>) -> std::io::Result<HealthChecks> {
    let servers = external.servers.len();
    match &external.health {
        None if servers < 2 => Ok(HealthChecks::none()),
        None => {
            let upstream = Arc::clone(&shared.upstream);
            HealthChecks::start(servers, "php-health", move |server| {
                probe_while_down(Arc::clone(&upstream), server)
            })
        }
        Some(health) => {
            let (shared, told, health) = (Arc::clone(shared), Arc::clone(told), health.clone());
            HealthChecks::start(servers, "php-health", move |server| {
                check(Arc::clone(&shared), server, health.clone(), Arc::clone(&told))
            })
        }
    }
}

/// Checks one server forever: the ping, then the status page if configured.
async fn check(shared: Arc<SharedPool>, server: usize, health: Health, told: Arc<Told>) {
    let mut has_warned = false;
    loop {
        tokio::time::sleep(health.every).await;
        let is_well = ask(&shared.upstream, server, &health.path, health.every)
            .await
            .is_some();
        shared.upstream.note_check(server, is_well);
        let Some(path) = &health.status else { continue };
        let text = ask(&shared.upstream, server, path, health.every).await;
        let status = text.and_then(|text| FpmStatus::parse(&text));
        if is_well && status.is_none() && !std::mem::replace(&mut has_warned, true) {
            let (pool, server) = (shared.settings.name.as_str(), shared.upstream.address(server));
            tracing::warn!(pool, %server, path, "php-fpm does not tell its status there: see its pm.status_path");
        }
        shared.upstream.note_server_load(server, status.map(FpmStatus::load));
        told.lock()[server] = status;
    }
}

/// The server's answer to a request for this path, if its status is 200 and it arrives in time.
async fn ask(upstream: &Upstream<Connection>, server: usize, path: &str, timeout: Duration) -> Option<Vec<u8>> {
    let asked = async {
        let begun = Instant::now();
        let connection = upstream.open(server).await.ok()?;
        upstream.note_connect_time(server, begun.elapsed());
        ping::ask(&connection, path).await
    };
    tokio::time::timeout(timeout, asked).await.ok().flatten()
}

/// Closes connections that have been idle for too long. Returns the time until the next one is due.
pub(crate) fn maintain(shared: &SharedPool, external: &External) -> Option<Duration> {
    shared.upstream.close_idle(external.idle_timeout)
}
