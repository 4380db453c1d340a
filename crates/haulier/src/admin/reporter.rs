//! Turns counters into rates, medians and shares, from a minute of readings.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use haulier_server::ServerHandle;
use haulier_server::metrics::{Metrics, Reason, SiteTotals, Totals};

use super::fpm::FpmStatus;
use super::history::{History, MetricsReading, Range, Sample};
use super::state::{
    CertificateState, Downloads, ImageState, PoolState, ServerState, SiteState, Spool, made, streaming_states,
};
use super::totals::{all_sites, bytes, find, requests};
use super::view::{CodingView, PoolView, SiteFacts, TransferView, View};

/// Time between two readings.
const PACE: Duration = Duration::from_secs(1);
/// Period of medians, shares and failures.
const MINUTE: Duration = Duration::from_secs(60);
/// Period of rates.
const RATE: Duration = Duration::from_secs(10);

/// The server's properties that are not counters.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) config: Option<PathBuf>,
    pub(crate) listen: Vec<String>,
    pub(crate) admin: Option<String>,
    pub(crate) sites: Vec<SiteFacts>,
    /// Time of the last reload.
    pub(crate) reloaded: Option<Instant>,
}

/// Reports the numbers of the server.
#[derive(Debug)]
pub(crate) struct Reporter {
    identity: Mutex<Identity>,
    metrics: Arc<Metrics>,
    started: Instant,
    /// The oldest first; never empty.
    readings: Mutex<VecDeque<MetricsReading>>,
    history: Mutex<History>,
    /// Bytes sent to each client in the last minute, by the number of its transfer, the oldest first.
    transfers: Mutex<HashMap<u64, VecDeque<(Instant, u64)>>>,
    /// The serving threads, once they run.
    server: OnceLock<Arc<ServerHandle>>,
    is_leaving: AtomicBool,
    /// What was to be served and did not boot.
    not_booted: Mutex<Option<String>>,
}

/// Silence after which a serving thread is considered hung. Its loop runs at least ten times a second.
const HUNG: Duration = Duration::from_secs(10);

/// Interval between two records of the bytes sent of a transfer. Its rate is that of the last minute: the kernel of a slow
/// client takes megabytes at once and then nothing for half a minute, so a short span would show 0 and peaks by turns.
const BETWEEN_LOOKS: Duration = Duration::from_secs(5);

impl Reporter {
    pub(crate) fn new(identity: Identity, metrics: Arc<Metrics>) -> Arc<Self> {
        let started = Instant::now();
        let first = reading(&metrics, started);
        Arc::new(Self {
            identity: Mutex::new(identity),
            metrics,
            started,
            readings: Mutex::new(VecDeque::from([first])),
            history: Mutex::default(),
            transfers: Mutex::default(),
            server: OnceLock::new(),
            is_leaving: AtomicBool::new(false),
            not_booted: Mutex::default(),
        })
    }

    /// Notes what was to be served and did not boot, or that all has booted.
    pub(crate) fn note_boot(&self, failure: Option<String>) {
        *self.not_booted.lock().unwrap_or_else(PoisonError::into_inner) = failure;
    }

    /// The threads serve from now on.
    pub(crate) fn serving(&self, server: Arc<ServerHandle>) {
        let _ = self.server.set(server); // called once
    }

    /// Records that the server will end, so that balancers send no new clients.
    pub(crate) fn leaving(&self) {
        self.is_leaving.store(true, Ordering::Relaxed);
    }

    /// The reason to restart the server, if there is one.
    pub(super) fn why_not_alive(&self) -> Option<String> {
        let lag = self.server.get()?.lag();
        (lag > HUNG).then(|| format!("a serving thread has not responded for {} s", lag.as_secs()))
    }

    /// The reason not to send clients here now, if there is one.
    pub(super) fn why_not_ready(&self) -> Option<String> {
        if self.server.get().is_none() {
            return Some("starting".to_owned());
        }
        if self.is_leaving.load(Ordering::Relaxed) {
            return Some("leaving".to_owned());
        }
        let sick = self.sick_pools();
        if !sick.is_empty() {
            return Some(format!("no live worker: {}", sick.join(", ")));
        }
        self.why_not_alive()
    }

    /// Records a reload; these are the addresses from now on.
    pub(crate) fn reloaded(&self, listen: Vec<String>, sites: Vec<SiteFacts>) {
        let mut identity = self.identity.lock().unwrap_or_else(PoisonError::into_inner);
        identity.listen = listen;
        identity.sites = sites;
        identity.reloaded = Some(Instant::now());
    }

    fn identity(&self) -> Identity {
        self.identity.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn readings(&self) -> MutexGuard<'_, VecDeque<MetricsReading>> {
        lock(&self.readings)
    }

    /// Takes readings for as long as it is polled.
    pub(super) async fn keep_samples(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(PACE);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.take_reading(Instant::now());
        }
    }

    fn take_reading(&self, now: Instant) {
        self.metrics.forget_old(now);
        let reading = reading(&self.metrics, now);
        let mut readings = self.readings();
        if let Some(before) = readings.back() {
            lock(&self.history).push(Sample::between(before, &reading));
        }
        readings.push_back(reading);
        // The newest of those that are a minute old stays, for comparison.
        while readings
            .get(1)
            .is_some_and(|second| now.saturating_duration_since(second.at) >= MINUTE)
        {
            readings.pop_front();
        }
        drop(readings);
        let mut transfers = lock(&self.transfers);
        let mut before = std::mem::take(&mut *transfers);
        for one in self.metrics.transfers() {
            let mut looks = before.remove(&one.number).unwrap_or_else(|| [(one.since, 0)].into());
            let is_due = |(at, _): &(Instant, u64)| now.saturating_duration_since(*at) >= BETWEEN_LOOKS;
            if looks.back().is_none_or(is_due) {
                looks.push_back((now, one.taken()));
            }
            while looks
                .get(1)
                .is_some_and(|(at, _)| now.saturating_duration_since(*at) >= MINUTE)
            {
                looks.pop_front();
            }
            transfers.insert(one.number, looks);
        }
    }

    /// The metrics as text.
    pub(super) fn metrics(&self) -> String {
        self.metrics.encode()
    }

    /// The names of the pools that cannot answer anything now.
    pub(super) fn sick_pools(&self) -> Vec<String> {
        let pools = self.metrics.pools();
        let sick = pools.iter().filter(|pool| !pool.status().load.is_live);
        sick.map(|pool| pool.settings().name.clone()).collect()
    }

    /// Status of the pool of this name in the words of php-fpm.
    pub(super) fn fpm_status(&self, name: &[u8]) -> Option<FpmStatus> {
        let pools = self.metrics.pools();
        let pool = pools.iter().find(|pool| pool.settings().name.as_bytes() == name)?;
        Some(FpmStatus::of(pool, &self.metrics.pool_status(pool)))
    }

    /// The state now.
    pub(crate) fn state(&self) -> ServerState {
        self.state_of(&reading(&self.metrics, Instant::now()))
    }

    fn state_of(&self, now: &MetricsReading) -> ServerState {
        let readings = self.readings();
        let minute = reading_before(&readings, now.at, MINUTE);
        let rate = reading_before(&readings, now.at, RATE);
        let seconds = now.at.saturating_duration_since(rate.at).as_secs_f64().max(0.001);
        let sites = now.totals.sites.iter().enumerate().map(|(number, (name, site))| {
            let earlier = |reading: &MetricsReading| find(&reading.totals, number, name).cloned();
            let (minute, rate) = (earlier(minute).unwrap_or_default(), earlier(rate).unwrap_or_default());
            SiteState::of(name, site, &minute, (requests(site) - requests(&rate)) as f64 / seconds)
        });
        let bytes = |totals: &Totals| all_sites(totals).map(bytes).sum::<u64>();
        let identity = self.identity();
        ServerState {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_s: self.started.elapsed().as_secs_f64(),
            config: identity.config,
            reloaded_s: identity.reloaded.map(|at| at.elapsed().as_secs_f64()),
            listen: identity.listen,
            admin: identity.admin,
            connections: self.metrics.connections(),
            sites: sites.collect(),
            pools: self.pools(),
            not_booted: self.not_booted.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            downloads: Downloads {
                active: all_sites(&now.totals).map(|site| site.sending).sum(),
                bytes_per_second: bytes(&now.totals).saturating_sub(bytes(&rate.totals)) as f64 / seconds,
            },
            spool: Spool {
                memory_bytes: now.totals.spool_memory_bytes,
                disk_bytes: now.totals.spool_bytes,
                full_total: now.totals.spool_full,
            },
            images: self.images(now, minute, rate),
            certificates: self
                .metrics
                .certificates()
                .into_iter()
                .map(CertificateState::of)
                .collect(),
            worker_seconds_saved: all_sites(&now.totals).map(|site| site.saved.as_secs_f64()).sum(),
            streaming: streaming_states(self.metrics.streaming_scripts()),
        }
    }

    fn pools(&self) -> Vec<PoolState> {
        let metrics = &self.metrics;
        let pools = metrics.pools();
        let states = pools
            .iter()
            .map(|pool| PoolState::of(pool, &metrics.pool_status(pool), metrics.pool_memory(pool)));
        states.collect()
    }

    fn images(&self, now: &MetricsReading, minute: &MetricsReading, rate: &MetricsReading) -> Vec<ImageState> {
        let seconds = now.at.saturating_duration_since(rate.at).as_secs_f64().max(0.001);
        let all = self.metrics.image_totals().into_iter().map(|images| {
            let of = |reading: &MetricsReading| find(&reading.totals, 0, &images.site).cloned().unwrap_or_default();
            let (now, minute, rate) = (of(now), of(minute), of(rate));
            ImageState::of(
                &images,
                &now,
                &minute,
                made(&now).saturating_sub(made(&rate)) as f64 / seconds,
            )
        });
        all.collect()
    }

    /// The content of the dashboard, with charts of this range.
    pub(super) fn view(&self, range: Range) -> View {
        let now = reading(&self.metrics, Instant::now());
        let none = &now.totals.none;
        let (samples, saved_day) = {
            let history = lock(&self.history);
            (history.points(range), history.saved())
        };
        View {
            at: SystemTime::now(),
            now: now.at,
            machine: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            state: self.state_of(&now),
            sites: self.identity().sites,
            pools: self
                .metrics
                .pools()
                .iter()
                .map(|pool| PoolView::of(pool, &self.metrics))
                .collect(),
            handlers: none.handlers().map(|(name, _)| name).collect(),
            range,
            samples,
            transfers: self.transfer_views(now.at),
            failures: self.metrics.failures(),
            slowest: self.metrics.slowest(),
            failed: self.failed(&now),
            codings: CodingView::all(&now.totals),
            saved_day,
        }
    }

    /// Reasons of the last minute with their number, the most frequent first.
    fn failed(&self, now: &MetricsReading) -> Vec<(&'static str, u64)> {
        let readings = self.readings();
        let before = &reading_before(&readings, now.at, MINUTE).totals;
        let before = reasons(before);
        let mut failed: Vec<_> = reasons(&now.totals)
            .into_iter()
            .map(|(reason, count)| (reason, count.saturating_sub(before.get(&reason).copied().unwrap_or(0))))
            .filter(|&(reason, count)| count > 0 && !reason.is_clients())
            .collect();
        failed.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
        failed
            .into_iter()
            .map(|(reason, count)| (reason.word(), count))
            .collect()
    }

    fn transfer_views(&self, now: Instant) -> Vec<TransferView> {
        let transfers = lock(&self.transfers);
        let views = self.metrics.transfers().into_iter().map(|one| {
            let known = transfers.get(&one.number).and_then(|looks| looks.front().copied());
            TransferView::of(&one, now, known)
        });
        views.collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All counters at this moment.
fn reading(metrics: &Metrics, at: Instant) -> MetricsReading {
    let pools = metrics.pools();
    MetricsReading {
        at,
        totals: metrics.totals(),
        pools: pools
            .iter()
            .map(|pool| (pool.settings().name.as_str().into(), metrics.pool_status(pool)))
            .collect(),
    }
}

/// All reasons that occurred, with the number of requests.
fn reasons(totals: &Totals) -> BTreeMap<Reason, u64> {
    let mut reasons = BTreeMap::new();
    let all = all_sites(totals).chain([&totals.none]);
    for (reason, count) in all.flat_map(SiteTotals::errors).filter(|(_, count)| *count > 0) {
        *reasons.entry(reason).or_default() += count;
    }
    reasons
}

/// The newest reading of at least this age, or the oldest of all.
fn reading_before(readings: &VecDeque<MetricsReading>, now: Instant, age: Duration) -> &MetricsReading {
    let old_enough = |reading: &&MetricsReading| now.saturating_duration_since(reading.at) >= age;
    readings.iter().rev().find(old_enough).unwrap_or(&readings[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(at: Instant) -> MetricsReading {
        MetricsReading {
            at,
            totals: Totals::default(),
            pools: Vec::new(),
        }
    }

    #[test]
    fn what_is_compared_with_is_the_newest_reading_that_is_old_enough() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let readings: VecDeque<MetricsReading> = [0, 1, 5, 9].map(|second| reading(at(second))).into();
        assert_eq!(reading_before(&readings, at(10), Duration::from_secs(5)).at, at(5));
        assert_eq!(reading_before(&readings, at(10), Duration::from_secs(4)).at, at(5));
        assert_eq!(
            reading_before(&readings, at(10), MINUTE).at,
            at(0),
            "the oldest there is"
        );
    }
}
