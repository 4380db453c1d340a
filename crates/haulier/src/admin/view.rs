//! What the dashboard shows, as plain data: taken by the reporter, made into a page by `page`.

use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};

use haulier_php::{ExternalServer, PoolStatus, WorkerStatus};
use haulier_server::metrics::{Failure, SlowRequest};

use super::history::{Range, Sample};
use super::state::State;

/// Everything at one moment.
#[derive(Debug, Clone)]
pub(crate) struct View {
    /// By the clock on the wall.
    pub(super) at: SystemTime,
    /// The same moment.
    pub(super) now: Instant,
    /// The name of this machine.
    pub(super) machine: String,
    pub(super) state: State,
    pub(super) sites: Vec<SiteFacts>,
    pub(super) pools: Vec<PoolView>,
    /// Names of the handlers, in the order of [`Sample::requests`].
    pub(super) handlers: Vec<&'static str>,
    pub(super) range: Range,
    /// The oldest first.
    pub(super) samples: Vec<Sample>,
    /// The longest under way first.
    pub(super) transfers: Vec<TransferView>,
    /// The newest first.
    pub(super) failures: Vec<Failure>,
    /// The slowest first.
    pub(super) slowest: Vec<SlowRequest>,
    /// Requests of the last minute that came to nothing, by reason; without those that clients gave up.
    pub(super) failed: Vec<(&'static str, u64)>,
    pub(super) codings: Vec<CodingView>,
    /// Worker time saved in the last day, or since the start.
    pub(super) saved_day: Duration,
}

/// What is known of a site before its first request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SiteFacts {
    pub(crate) name: String,
    pub(crate) hosts: Vec<String>,
    /// What was recognised and where: `Symfony in /srv/shop/public`.
    pub(crate) what: String,
}

/// A pool.
#[derive(Debug, Clone)]
pub(super) struct PoolView {
    pub(super) name: String,
    /// We run its PHP.
    pub(super) is_own: bool,
    pub(super) status: PoolStatus,
    pub(super) memory: Option<u64>,
    pub(super) workers: Vec<WorkerStatus>,
    /// Of a pool that another program runs.
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

/// What was coded in one coding since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CodingView {
    pub(super) name: &'static str,
    /// Bytes before.
    pub(super) taken: u64,
    /// Bytes after.
    pub(super) made: u64,
    pub(super) spent: Duration,
}
