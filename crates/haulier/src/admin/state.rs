//! What `haulier status` and `/api/state.json` say: one shape for the server that tells and the command that prints.
//!
//! Durations are seconds or milliseconds as the names say, sizes bytes; what nobody knows is `null`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::tls::days;

/// A running haulier.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) version: String,
    pub(crate) pid: u32,
    pub(crate) uptime_s: f64,
    /// `None` for `serve` without a configuration.
    pub(crate) config: Option<PathBuf>,
    /// How long ago it was read again; `None` if it never was.
    pub(crate) reloaded_s: Option<f64>,
    pub(crate) listen: Vec<String>,
    pub(crate) admin: Option<String>,
    pub(crate) connections: usize,
    pub(crate) sites: Vec<SiteState>,
    pub(crate) pools: Vec<PoolState>,
    pub(crate) downloads: Downloads,
    /// Bodies that PHP has made and clients have not taken yet.
    #[serde(default)]
    pub(crate) spool: Spool,
    /// Sites with TLS.
    #[serde(default)]
    pub(crate) certificates: Vec<CertificateState>,
    /// Sites that serve images.
    #[serde(default)]
    pub(crate) images: Vec<ImageState>,
    /// Worker time saved by all sites since the start.
    pub(crate) worker_seconds_saved: f64,
    /// Scripts that still stream large bodies through PHP, the worst first.
    pub(crate) streaming: Vec<StreamingState>,
}

/// One site; rates are of the last ten seconds, everything that is not called `total` of the last minute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SiteState {
    pub(crate) name: String,
    pub(crate) requests_total: u64,
    pub(crate) requests_per_second: f64,
    pub(crate) in_flight: u64,
    pub(crate) p50_ms: Option<f64>,
    pub(crate) p95_ms: Option<f64>,
    /// Responses with 5xx in the last minute.
    pub(crate) failed: u64,
    /// Share of each handler in the responses, 0 to 1; empty without any.
    pub(crate) shares: BTreeMap<String, f64>,
    pub(crate) worker_seconds_saved: f64,
    pub(crate) handoffs_total: BTreeMap<String, u64>,
    /// Reasons that occurred, since the start.
    pub(crate) errors_total: BTreeMap<String, u64>,
}

/// The image service of one site; its rate is of the last ten seconds, its shares of the last minute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ImageState {
    pub(crate) site: String,
    /// Share of each place images came from, 0 to 1: a cache, `made`, `original` or `error`. Empty without any.
    pub(crate) shares: BTreeMap<String, f64>,
    pub(crate) made_per_second: f64,
    pub(crate) made_total: u64,
    pub(crate) uploads_total: u64,
    /// Made beyond the number that is kept of an image.
    pub(crate) unkept_total: u64,
    pub(crate) cache_failures_total: u64,
    pub(crate) memory_bytes: u64,
    /// Processes that make variants: those at work, and all there are.
    pub(crate) busy: usize,
    pub(crate) workers: usize,
    pub(crate) queued: usize,
    /// Processes that an image ended.
    pub(crate) crashes: u64,
    /// Mean time of each step of a variant since the start; without those that never ran.
    pub(crate) steps_ms: BTreeMap<String, f64>,
}

impl ImageState {
    /// What of it came from a cache, 0 to 1; `None` without any.
    pub(crate) fn cached(&self) -> Option<f64> {
        let found = ["memory", "disk", "memcached", "redis"];
        (!self.shares.is_empty()).then(|| found.iter().filter_map(|name| self.shares.get(*name)).sum())
    }
}

/// The certificates of one site.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct CertificateState {
    pub(crate) site: String,
    /// Until the first of them ends, negative afterwards; `None` while there is none.
    pub(crate) left_s: Option<f64>,
}

impl CertificateState {
    /// `ends in 61 days`
    pub(crate) fn in_words(&self) -> String {
        match self.left_s {
            None => "none yet: see the log".to_owned(),
            Some(left) if left < 0.0 => {
                format!("ended {} ago: clients refuse it", days(Duration::from_secs_f64(-left)))
            }
            Some(left) => format!("ends in {}", days(Duration::from_secs_f64(left))),
        }
    }
}

/// One pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PoolState {
    pub(crate) name: String,
    pub(crate) live: bool,
    pub(crate) workers: usize,
    pub(crate) busy: usize,
    pub(crate) queued: usize,
    /// Workers that ended, for whatever reason.
    pub(crate) restarts: u64,
    pub(crate) memory_bytes: Option<u64>,
    /// Requests that take long, the longest first.
    pub(crate) running: Vec<RunningState>,
}

/// A request PHP has been at for a while.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunningState {
    pub(crate) request: String,
    pub(crate) seconds: f64,
    pub(crate) pid: Option<u32>,
}

/// Responses that clients do not take at once.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Downloads {
    pub(crate) active: u64,
    /// Of all responses, in the last ten seconds.
    pub(crate) bytes_per_second: f64,
}

/// Where bodies wait for their clients, of all sites.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spool {
    pub(crate) memory_bytes: u64,
    pub(crate) disk_bytes: u64,
    /// Responses whose script had to wait for its client because there was no room.
    pub(crate) full_total: u64,
}

/// A script that streams.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StreamingState {
    pub(crate) site: String,
    pub(crate) script: String,
    pub(crate) media_type: Option<String>,
    pub(crate) responses: u64,
    pub(crate) bytes: u64,
    /// What to write into the configuration.
    pub(crate) rule: String,
}
