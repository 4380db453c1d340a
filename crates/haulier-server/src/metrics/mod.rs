//! The metrics of a server: one registry for `/metrics`, `haulier status` and the dashboard.
//!
//! Each thread has its own counters (`counters`), without locks or shared cache lines; a reader adds them up
//! (`totals`). Labels come from the configuration and from fixed lists, never from a request.

mod by_reason;
mod counters;
mod images;
mod pools;
mod process;
mod prometheus;
mod recent;
mod stream;
mod times;
mod totals;
mod transfers;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Instant, SystemTime};

use haulier_http::{Request, Streamed};
use haulier_php::{Pool, PoolStatus};

use crate::images::ImageSite;
use crate::io::Gate;
use crate::lock::lock;
use crate::site::Site;
use crate::tls::Certificates;

use self::pools::Pools;
pub(crate) use counters::{Counters, Finished, Http2Connection, InFlight};
pub use haulier_http::Reason;
pub use images::ImageTotals;
pub use recent::{FailedRequest, RequestSummary, SlowRequest};
pub use stream::StreamingScript;
pub use times::DurationHistogram;
pub use totals::{CodingTotals, HandlerTotals, SiteTotals, Totals};
pub use transfers::Transfer;
pub(crate) use transfers::{LISTED_AFTER, ListedTransfer};

/// All metrics of a server. Reading them takes some microseconds and blocks no other thread.
#[derive(Debug)]
pub struct Metrics {
    served: Mutex<Served>,
    gate: Arc<Gate>,
    streaming: Mutex<stream::StreamingTable>,
    recent: recent::Recent,
    transfers: Arc<transfers::Transfers>,
    reloads: [AtomicU64; ReloadResult::ALL.len()],
    /// Version for `haulier_build_info`.
    version: &'static str,
}

/// The parts that a reload may replace.
#[derive(Debug)]
struct Served {
    sites: Vec<Arc<Site>>,
    pools: Pools,
    /// Names of the series by number. A removed site keeps its number, in case it returns.
    series: Vec<String>,
    threads: Vec<Arc<Counters>>,
    /// `None` without TLS.
    certificates: Option<Arc<Certificates>>,
}

/// Result of an attempt to reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReloadResult {
    /// The new configuration is in force.
    Success,
    /// The old configuration is still in force.
    Failure,
}

impl ReloadResult {
    pub(crate) const ALL: [Self; 2] = [Self::Success, Self::Failure];

    fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure => "failure",
        }
    }
}

impl Metrics {
    /// Metrics of a server with this number of threads and no sites.
    pub(crate) fn new(gate: Arc<Gate>, threads: usize) -> Arc<Self> {
        Arc::new(Self {
            served: Mutex::new(Served {
                sites: Vec::new(),
                pools: Pools::default(),
                series: Vec::new(),
                threads: (0..threads).map(|_| Arc::new(Counters::new(0))).collect(),
                certificates: None,
            }),
            gate,
            streaming: Mutex::default(),
            recent: recent::Recent::default(),
            transfers: Arc::default(),
            reloads: Default::default(),
            version: env!("CARGO_PKG_VERSION"),
        })
    }

    fn served(&self) -> MutexGuard<'_, Served> {
        lock(&self.served)
    }

    /// The number of this site's series; adds one if there is none.
    pub(crate) fn series_of(&self, site: &str) -> u32 {
        let mut served = self.served();
        let known = served.series.iter().position(|name| name == site);
        let number = known.unwrap_or_else(|| {
            served.series.push(site.to_owned());
            served.series.len() - 1
        });
        u32::try_from(number).expect("a configuration of four billion sites fits no memory")
    }

    /// Replaces the sites, and the certificates of those with TLS. Returns the counters of each thread, which only that
    /// thread may write.
    pub(crate) fn serve(&self, sites: Vec<Arc<Site>>, certificates: Option<Arc<Certificates>>) -> Vec<Arc<Counters>> {
        let mut served = self.served();
        let room = served.series.len();
        for counters in &mut served.threads {
            *counters = Arc::new(counters.with_room_for(room));
        }
        served.pools.exchange(pools::of_sites(&sites));
        served.sites = sites;
        served.certificates = certificates;
        served.threads.clone()
    }

    /// The pools of all sites, each once, in the order of the sites.
    #[must_use]
    pub fn pools(&self) -> Vec<Arc<Pool>> {
        self.served().pools.current().to_vec()
    }

    /// Status of a pool, with the counts of its predecessors of the same name.
    #[must_use]
    pub fn pool_status(&self, pool: &Pool) -> PoolStatus {
        self.served().pools.status(pool)
    }

    /// Memory of the PHP processes of a pool in bytes, including predecessors that still finish requests.
    #[must_use]
    pub fn pool_memory(&self, pool: &Pool) -> Option<u64> {
        let leaving = self.served().pools.leaving(pool);
        // Measured without holding the lock.
        let memory = pool.memory()?;
        Some(memory + leaving.iter().filter_map(|pool| pool.memory()).sum::<u64>())
    }

    /// Keeps the counts of a pool that has ended under its name.
    pub fn pool_ended(&self, pool: &Pool) {
        self.served().pools.ended(pool);
    }

    /// Counts an attempt to reload the configuration.
    pub fn note_reload(&self, result: ReloadResult) {
        self.reloads[result as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Number of reloads with this result.
    #[must_use]
    pub fn reloads(&self, result: ReloadResult) -> u64 {
        self.reloads[result as usize].load(Ordering::Relaxed)
    }

    /// Open connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.gate.open()
    }

    /// Open connections that speak HTTP/2.
    #[must_use]
    pub fn http2_connections(&self) -> usize {
        let served = self.served();
        let counts = served.threads.iter().map(|thread| thread.http2_connections());
        counts.sum::<u64>() as usize
    }

    /// All counts so far, added up over the threads.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let served = self.served();
        totals::add_up(&served.sites, &served.threads)
    }

    /// Every site with TLS, with the expiry of its first certificate; `None` while it has none.
    #[must_use]
    pub fn certificates(&self) -> Vec<(String, Option<SystemTime>)> {
        let served = self.served();
        let Some(certificates) = &served.certificates else {
            return Vec::new();
        };
        let sites = served.sites.iter().map(|site| &site.settings);
        let secure = sites.filter(|site| site.filters.without_tls.is_some());
        secure
            .map(|site| (site.name.clone(), certificates.not_after(&site.name)))
            .collect()
    }

    /// The metrics in the OpenMetrics text format.
    #[must_use]
    pub fn encode(&self) -> String {
        prometheus::encode(self)
    }

    /// Scripts with large bodies through PHP that a rule could offload, the largest first.
    #[must_use]
    pub fn streaming_scripts(&self) -> Vec<StreamingScript> {
        let sites = self.served().sites.clone();
        lock(&self.streaming).worst_first(&sites)
    }

    /// The counts of the image services, in the order of their sites.
    #[must_use]
    pub fn image_totals(&self) -> Vec<ImageTotals> {
        images::take(self)
    }

    /// The sites that serve images.
    fn images(&self) -> Vec<(String, Arc<ImageSite>)> {
        let served = self.served();
        let named = served.sites.iter().filter_map(|site| {
            let images = site.settings.images.as_ref()?;
            Some((site.settings.name.clone(), Arc::clone(images)))
        });
        named.collect()
    }

    /// The last failed requests, newest first.
    #[must_use]
    pub fn failures(&self) -> Vec<FailedRequest> {
        self.recent.failures()
    }

    /// The requests of the last hour that took PHP longest, slowest first.
    #[must_use]
    pub fn slowest(&self) -> Vec<SlowRequest> {
        self.recent.slowest()
    }

    /// Drops slow requests that are too old. To be called regularly.
    pub fn forget_old(&self, now: Instant) {
        self.recent.forget(now);
    }

    /// Responses that have been sent for a second or more, oldest first.
    #[must_use]
    pub fn transfers(&self) -> Vec<Arc<Transfer>> {
        self.transfers.list()
    }

    /// Remembers a finished exchange if it failed or was slow.
    pub(crate) fn remember(&self, finished: &Finished<'_>, request: Option<&Request>, site: Option<&Site>) {
        self.recent.note(finished, request, site);
    }

    /// Lists a response as under way until the value is dropped. `length` is in bytes, head included.
    pub(crate) fn begin_transfer(
        &self,
        request: &Request,
        site: Option<&Site>,
        length: Option<u64>,
        since: Instant,
    ) -> ListedTransfer {
        self.transfers.begin(request, site, length, since)
    }

    /// Notes a body that went through PHP, if it is large.
    pub(crate) fn note_streamed(&self, site: &Site, streamed: &Streamed, bytes: u64) {
        if bytes > stream::LARGE {
            lock(&self.streaming).note(site.series, streamed, bytes);
        }
    }
}
