//! What the server counts: one registry for `/metrics`, `haulier status` and everything else that shows numbers.
//!
//! Each thread counts for itself (`counters`), without locks and without sharing a cache line; a reader adds the
//! threads up (`totals`). Labels come from the configuration and from fixed lists, never from a request.

mod counters;
mod process;
mod prometheus;
mod reason;
mod recent;
mod stream;
mod times;
mod totals;
mod transfers;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use haulier_php::Pool;

use crate::listen::Gate;
use crate::request::Request;
use crate::route::Site;
use crate::tls::Certificates;

pub(crate) use counters::{Counters, Finished, Http2Connection, InFlight};
pub use reason::is_clients;
pub use recent::{Failure, Noted, SlowRequest};
pub(crate) use stream::Streamed;
pub use stream::StreamingScript;
pub use times::Times;
pub use totals::{CodingTotals, HandlerTotals, SiteTotals, Totals};
pub use transfers::Transfer;
pub(crate) use transfers::{LISTED_AFTER, UnderWay};

/// All counters of a server. Reading them takes some microseconds and holds nobody up.
#[derive(Debug)]
pub struct Metrics {
    sites: Vec<Arc<Site>>,
    /// Each pool once, in the order of the sites.
    pools: Vec<Arc<Pool>>,
    threads: Vec<Arc<Counters>>,
    gate: Arc<Gate>,
    streaming: Mutex<stream::Table>,
    recent: recent::Recent,
    transfers: Arc<transfers::Transfers>,
    /// `None` without TLS.
    certificates: Option<Arc<Certificates>>,
    /// What `haulier_build_info` says.
    version: &'static str,
}

impl Metrics {
    pub(crate) fn new(
        sites: Vec<Arc<Site>>,
        gate: Arc<Gate>,
        certificates: Option<Arc<Certificates>>,
        threads: usize,
    ) -> Arc<Self> {
        let pools = pools_of(&sites);
        let threads = (0..threads).map(|_| Arc::new(Counters::new(sites.len()))).collect();
        Arc::new(Self {
            sites,
            pools,
            threads,
            gate,
            streaming: Mutex::default(),
            recent: recent::Recent::default(),
            transfers: Arc::default(),
            certificates,
            version: env!("CARGO_PKG_VERSION"),
        })
    }

    /// The counters of one thread. Nobody else may write to them.
    pub(crate) fn of_thread(&self, number: usize) -> Arc<Counters> {
        Arc::clone(&self.threads[number])
    }

    /// The pools of all sites, each once.
    #[must_use]
    pub fn pools(&self) -> &[Arc<Pool>] {
        &self.pools
    }

    /// Open connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.gate.open()
    }

    /// Those of them that speak HTTP/2.
    #[must_use]
    pub fn http2_connections(&self) -> usize {
        let counts = self.threads.iter().map(|thread| thread.http2_connections());
        counts.sum::<u64>() as usize
    }

    /// Everything counted so far, all threads together.
    #[must_use]
    pub fn totals(&self) -> Totals {
        totals::add_up(&self.sites, &self.threads)
    }

    /// Every site with TLS, and when the first of its certificates ends; `None` while it has none.
    #[must_use]
    pub fn certificates(&self) -> Vec<(&str, Option<SystemTime>)> {
        let Some(certificates) = &self.certificates else {
            return Vec::new();
        };
        let sites = self.sites.iter().map(|site| &site.settings);
        let secure = sites.filter(|site| site.without_tls.is_some());
        secure
            .map(|site| (site.name.as_str(), certificates.not_after(&site.name)))
            .collect()
    }

    /// The metrics in the OpenMetrics text format.
    #[must_use]
    pub fn encode(&self) -> String {
        prometheus::encode(self)
    }

    /// Scripts whose large bodies went through PHP although a rule could spare it that, the worst first.
    #[must_use]
    pub fn streaming_scripts(&self) -> Vec<StreamingScript> {
        self.streaming
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .worst_first(&self.sites)
    }

    /// The last requests that came to nothing, the newest first.
    #[must_use]
    pub fn failures(&self) -> Vec<Failure> {
        self.recent.failures()
    }

    /// The requests of the last hour that PHP took longest for, the slowest first.
    #[must_use]
    pub fn slowest(&self) -> Vec<SlowRequest> {
        self.recent.slowest()
    }

    /// Lets go of requests that are remembered by name and are too old by now. To be called now and then.
    pub fn forget_old(&self, now: Instant) {
        self.recent.forget(now);
    }

    /// Responses that have been on their way for a second or more, the oldest first.
    #[must_use]
    pub fn transfers(&self) -> Vec<Arc<Transfer>> {
        self.transfers.list()
    }

    /// Remembers an exchange that is over by name, if it failed or was slow.
    pub(crate) fn remember(&self, finished: &Finished<'_>, request: Option<&Request>, site: Option<&Site>) {
        self.recent.note(finished, request, site);
    }

    /// Lists a response among those on their way, until the value is dropped. `length` is in bytes, head included.
    pub(crate) fn begin_transfer(
        &self,
        request: &Request,
        site: Option<&Site>,
        length: Option<u64>,
        since: Instant,
    ) -> UnderWay {
        self.transfers.begin(request, site, length, since)
    }

    /// Notes a body that went through PHP, if it is large.
    pub(crate) fn note_streamed(&self, site: &Site, streamed: &Streamed, bytes: u64) {
        if bytes > stream::LARGE {
            let mut table = self.streaming.lock().unwrap_or_else(PoisonError::into_inner);
            table.note(site.number, streamed, bytes);
        }
    }
}

fn pools_of(sites: &[Arc<Site>]) -> Vec<Arc<Pool>> {
    let mut pools: Vec<Arc<Pool>> = Vec::new();
    for php in sites
        .iter()
        .flat_map(|site| site.places())
        .filter_map(|site| site.settings.php.as_ref())
    {
        if !pools.iter().any(|pool| Arc::ptr_eq(pool, &php.pool)) {
            pools.push(Arc::clone(&php.pool));
        }
    }
    pools
}
