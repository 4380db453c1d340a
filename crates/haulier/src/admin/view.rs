//! The content of the dashboard as plain data. The reporter takes it, `page` makes HTML of it.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use haulier_php::{ExternalServer, Pool, PoolStatus, TracedRequest, WorkerStatus};
use haulier_server::metrics::{FailedRequest, Metrics, SiteTotals, SlowRequest, Totals, Transfer};

use super::history::{Range, Sample};
use super::state::ServerState;
use super::totals::all_sites;

/// Everything at one moment.
#[derive(Debug, Clone)]
pub(crate) struct View {
    /// The wall-clock time.
    pub(super) at: SystemTime,
    /// The same moment, monotonic.
    pub(super) now: Instant,
    /// The name of this machine.
    pub(super) machine: String,
    pub(super) state: ServerState,
    pub(super) sites: Vec<SiteFacts>,
    pub(super) pools: Vec<PoolView>,
    /// Names of the handlers, in the order of [`Sample::requests`].
    pub(super) handlers: Vec<&'static str>,
    pub(super) range: Range,
    /// The oldest first.
    pub(super) samples: Vec<Sample>,
    /// The longest-running first.
    pub(super) transfers: Vec<TransferView>,
    /// The newest first.
    pub(super) failures: Vec<FailedRequest>,
    /// The slowest first.
    pub(super) slowest: Vec<SlowRequest>,
    /// Requests of the last minute that failed, by reason; without those that clients aborted.
    pub(super) failed: Vec<(&'static str, u64)>,
    pub(super) codings: Vec<CodingView>,
    /// Worker time saved in the last day, or since the start.
    pub(super) saved_day: Duration,
}

/// Facts of a site that are known before its first request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SiteFacts {
    pub(crate) name: String,
    pub(crate) hosts: Vec<String>,
    /// The recognised application and its directory: `Symfony in /srv/shop/public`.
    pub(crate) what: String,
}

/// A pool.
#[derive(Debug, Clone)]
pub(super) struct PoolView {
    pub(super) name: String,
    /// haulier runs its PHP.
    pub(super) is_own: bool,
    /// The script that its workers have booted.
    pub(super) script: Option<PathBuf>,
    pub(super) status: PoolStatus,
    pub(super) memory: Option<u64>,
    pub(super) workers: Vec<WorkerStatus>,
    /// The last slow requests whose calls were read, oldest first.
    pub(super) traced: Vec<TracedRequest>,
    /// Status of the servers, if another program runs the pool.
    pub(super) servers: Vec<ExternalServer>,
}

/// A download.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TransferView {
    pub(super) site: Option<String>,
    pub(super) target: String,
    pub(super) client: IpAddr,
    pub(super) sent: u64,
    pub(super) length: Option<u64>,
    pub(super) bytes_per_second: f64,
    pub(super) running: Duration,
}

/// Bodies coded in one coding since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CodingView {
    pub(super) name: &'static str,
    /// Bytes before coding.
    pub(super) taken: u64,
    /// Bytes after coding.
    pub(super) made: u64,
    pub(super) spent: Duration,
}

impl TransferView {
    /// A transfer. `known` is an earlier moment with the bytes sent by then; without it the rate covers the whole
    /// transfer.
    pub(super) fn of(transfer: &Transfer, now: Instant, known: Option<(Instant, u64)>) -> Self {
        let (since, before) = known.filter(|(at, _)| *at < now).unwrap_or((transfer.since, 0));
        let seconds = now.saturating_duration_since(since).as_secs_f64().max(0.001);
        let sent = transfer.taken();
        Self {
            site: transfer.site.clone(),
            target: transfer.target.clone(),
            client: transfer.client,
            sent,
            length: transfer.length,
            bytes_per_second: sent.saturating_sub(before) as f64 / seconds,
            running: now.saturating_duration_since(transfer.since),
        }
    }
}

impl CodingView {
    /// All codings of all sites.
    pub(super) fn all(totals: &Totals) -> Vec<Self> {
        let mut codings: Vec<Self> = Vec::new();
        for (name, coding) in all_sites(totals).flat_map(SiteTotals::codings) {
            let place = codings.iter().position(|known| known.name == name).unwrap_or_else(|| {
                codings.push(Self {
                    name,
                    taken: 0,
                    made: 0,
                    spent: Duration::ZERO,
                });
                codings.len() - 1
            });
            let sum = &mut codings[place];
            sum.taken += coding.taken;
            sum.made += coding.made;
            sum.spent += coding.spent;
        }
        codings
    }
}

impl PoolView {
    pub(super) fn of(pool: &Pool, metrics: &Metrics) -> Self {
        Self {
            name: pool.settings().name.clone(),
            is_own: pool.settings().kind.supervised().is_some(),
            script: pool.settings().kind.booted_script().map(Path::to_owned),
            status: metrics.pool_status(pool),
            memory: metrics.pool_memory(pool),
            workers: pool.workers(),
            traced: pool.traced(),
            servers: pool.servers(),
        }
    }
}
