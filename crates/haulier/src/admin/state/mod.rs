//! The state for `haulier status` and `/api/state.json`: one shape for the server that writes it and the command that reads
//! it. Each part is made in the file of its shape.
//!
//! Durations are seconds or milliseconds as the names say, sizes bytes; an unknown value is `null`.

mod certificates;
mod images;
mod pools;
mod sites;
mod streaming;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub(crate) use self::certificates::CertificateState;
pub(crate) use self::images::{ImageState, made};
pub(crate) use self::pools::{PoolState, RunningState};
pub(crate) use self::sites::SiteState;
pub(crate) use self::streaming::{StreamingState, streaming_states};

/// A running haulier.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ServerState {
    pub(crate) version: String,
    pub(crate) pid: u32,
    pub(crate) uptime_s: f64,
    /// `None` for `serve` without a configuration.
    pub(crate) config: Option<PathBuf>,
    /// Time since the last reload; `None` if there was none.
    pub(crate) reloaded_s: Option<f64>,
    pub(crate) listen: Vec<String>,
    pub(crate) admin: Option<String>,
    pub(crate) connections: usize,
    pub(crate) sites: Vec<SiteState>,
    pub(crate) pools: Vec<PoolState>,
    /// A release or an edit that did not boot: what ran before is served.
    #[serde(default)]
    pub(crate) not_booted: Option<String>,
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

/// Responses that clients do not take at once.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Downloads {
    pub(crate) active: u64,
    /// Of all responses, in the last ten seconds.
    pub(crate) bytes_per_second: f64,
}

/// Bodies that wait for their clients, of all sites.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spool {
    pub(crate) memory_bytes: u64,
    pub(crate) disk_bytes: u64,
    /// Responses whose script had to wait for its client because there was no room.
    pub(crate) full_total: u64,
}
