//! Turns counters into what people ask for: rates, medians, shares. It remembers a minute of readings for that.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use haulier_php::Pool;
use haulier_server::ServerHandle;
use haulier_server::metrics::{
    HandlerTotals, ImageTotals, Metrics, SiteTotals, StreamingScript, Times, Totals, Transfer, is_clients,
};

use super::fpm::FpmStatus;
use super::history::{History, Range, Reading, Sample};
use super::state::{
    CertificateState, Downloads, ImageState, PoolState, RunningState, SiteState, Spool, State, StreamingState,
};
use super::view::{CodingView, PoolView, SiteFacts, TransferView, View};

/// How often a reading is taken.
const PACE: Duration = Duration::from_secs(1);
/// What medians, shares and failures are of.
const MINUTE: Duration = Duration::from_secs(60);
/// What rates are of.
const RATE: Duration = Duration::from_secs(10);
/// Requests shown of those that take long in a pool.
const SHOWN: usize = 5;

/// What it is, apart from its numbers.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) config: Option<PathBuf>,
    pub(crate) listen: Vec<String>,
    pub(crate) admin: Option<String>,
    pub(crate) sites: Vec<SiteFacts>,
    /// When its configuration was last exchanged.
    pub(crate) reloaded: Option<Instant>,
}

/// Tells what the server has counted.
#[derive(Debug)]
pub(crate) struct Reporter {
    identity: Mutex<Identity>,
    metrics: Arc<Metrics>,
    started: Instant,
    /// The oldest first; never empty.
    readings: Mutex<VecDeque<Reading>>,
    history: Mutex<History>,
    /// Bytes that each client had of its transfer, by the transfer's number, in the last minute, the oldest first.
    transfers: Mutex<HashMap<u64, VecDeque<(Instant, u64)>>>,
    /// The threads, once they run.
    server: OnceLock<Arc<ServerHandle>>,
    is_leaving: AtomicBool,
}

/// Serving threads look round ten times a second; one that has not for so long hangs.
const HUNG: Duration = Duration::from_secs(10);

/// Between two looks at a transfer that its rate is made of; that is of the last minute. The kernel of a client that reads
/// slowly takes megabytes at once and then nothing for half a minute, so a short time would show 0 and many times as much
/// by turns.
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
        })
    }

    /// The threads serve from now on.
    pub(crate) fn serving(&self, server: Arc<ServerHandle>) {
        let _ = self.server.set(server); // said once
    }

    /// It is to end: nobody new should be sent here.
    pub(crate) fn leaving(&self) {
        self.is_leaving.store(true, Ordering::Relaxed);
    }

    /// Why it should be started anew, if it should.
    pub(super) fn why_not_alive(&self) -> Option<String> {
        let lag = self.server.get()?.lag();
        (lag > HUNG).then(|| format!("a serving thread hangs since {} s", lag.as_secs()))
    }

    /// Why nobody should be sent here now, if so.
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

    /// The configuration was exchanged; these are the addresses by now.
    pub(crate) fn reloaded(&self, listen: Vec<String>, sites: Vec<SiteFacts>) {
        let mut identity = self.identity.lock().unwrap_or_else(PoisonError::into_inner);
        identity.listen = listen;
        identity.sites = sites;
        identity.reloaded = Some(Instant::now());
    }

    fn identity(&self) -> Identity {
        self.identity.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn readings(&self) -> MutexGuard<'_, VecDeque<Reading>> {
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
        // The one that is just a minute old stays, to be compared with.
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

    /// The pool of this name in the words of php-fpm.
    pub(super) fn fpm_status(&self, name: &[u8]) -> Option<FpmStatus> {
        let pools = self.metrics.pools();
        let pool = pools.iter().find(|pool| pool.settings().name.as_bytes() == name)?;
        Some(FpmStatus::of(pool, &self.metrics.pool_status(pool)))
    }

    /// What it is doing now.
    pub(crate) fn state(&self) -> State {
        self.state_of(&reading(&self.metrics, Instant::now()))
    }

    fn state_of(&self, now: &Reading) -> State {
        let readings = self.readings();
        let minute = reading_before(&readings, now.at, MINUTE);
        let rate = reading_before(&readings, now.at, RATE);
        let seconds = now.at.saturating_duration_since(rate.at).as_secs_f64().max(0.001);
        let sites = now.totals.sites.iter().enumerate().map(|(number, (name, site))| {
            let earlier = |reading: &Reading| find(&reading.totals, number, name).cloned();
            let (minute, rate) = (earlier(minute).unwrap_or_default(), earlier(rate).unwrap_or_default());
            site_state(name, site, &minute, (requests(site) - requests(&rate)) as f64 / seconds)
        });
        let bytes = |totals: &Totals| all_sites(totals).map(bytes).sum::<u64>();
        let identity = self.identity();
        State {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_s: self.started.elapsed().as_secs_f64(),
            config: identity.config,
            reloaded_s: identity.reloaded.map(|at| at.elapsed().as_secs_f64()),
            listen: identity.listen,
            admin: identity.admin,
            connections: self.metrics.connections(),
            sites: sites.collect(),
            pools: self.metrics.pools().iter().map(|pool| self.pool_state(pool)).collect(),
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
            certificates: self.metrics.certificates().into_iter().map(certificate_state).collect(),
            worker_seconds_saved: all_sites(&now.totals).map(|site| site.saved.as_secs_f64()).sum(),
            streaming: streaming_states(self.metrics.streaming_scripts()),
        }
    }

    fn images(&self, now: &Reading, minute: &Reading, rate: &Reading) -> Vec<ImageState> {
        let seconds = now.at.saturating_duration_since(rate.at).as_secs_f64().max(0.001);
        let all = self.metrics.image_totals().into_iter().map(|images| {
            let of = |reading: &Reading| find(&reading.totals, 0, &images.site).cloned().unwrap_or_default();
            let (now, minute, rate) = (of(now), of(minute), of(rate));
            image_state(
                &images,
                &now,
                &minute,
                made(&now).saturating_sub(made(&rate)) as f64 / seconds,
            )
        });
        all.collect()
    }

    /// What the dashboard shows, with charts of this range.
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
            pools: self.metrics.pools().iter().map(|pool| self.pool_view(pool)).collect(),
            handlers: none.handlers().map(|(name, _)| name).collect(),
            range,
            samples,
            transfers: self.transfer_views(now.at),
            failures: self.metrics.failures(),
            slowest: self.metrics.slowest(),
            failed: self.failed(&now),
            codings: codings(&now.totals),
            saved_day,
        }
    }

    /// Reasons of the last minute with their number, the most frequent first.
    fn failed(&self, now: &Reading) -> Vec<(&'static str, u64)> {
        let readings = self.readings();
        let before = &reading_before(&readings, now.at, MINUTE).totals;
        let before = reasons(before);
        let mut failed: Vec<_> = reasons(&now.totals)
            .into_iter()
            .map(|(reason, count)| (reason, count.saturating_sub(before.get(reason).copied().unwrap_or(0))))
            .filter(|&(reason, count)| count > 0 && !is_clients(reason))
            .collect();
        failed.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
        failed
    }

    fn transfer_views(&self, now: Instant) -> Vec<TransferView> {
        let transfers = lock(&self.transfers);
        let views = self.metrics.transfers().into_iter().map(|one| {
            let known = transfers.get(&one.number).and_then(|looks| looks.front().copied());
            transfer_view(&one, now, known)
        });
        views.collect()
    }

    fn pool_state(&self, pool: &Pool) -> PoolState {
        let status = self.metrics.pool_status(pool);
        let running = pool.running().into_iter().take(SHOWN).map(|request| RunningState {
            request: request.label,
            seconds: request.running.as_secs_f64(),
            pid: request.pid,
        });
        PoolState {
            name: pool.settings().name.clone(),
            live: status.load.is_live,
            workers: status.load.capacity,
            busy: status.load.busy,
            queued: status.load.queued,
            restarts: status.counts.recycled() + status.counts.crashes + status.counts.timeouts + status.counts.exits,
            memory_bytes: self.metrics.pool_memory(pool),
            running: running.collect(),
        }
    }

    fn pool_view(&self, pool: &Pool) -> PoolView {
        PoolView {
            name: pool.settings().name.clone(),
            is_own: pool.settings().kind.supervised().is_some(),
            status: self.metrics.pool_status(pool),
            memory: self.metrics.pool_memory(pool),
            workers: pool.workers(),
            servers: pool.servers(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All counters at this moment.
fn reading(metrics: &Metrics, at: Instant) -> Reading {
    let pools = metrics.pools();
    Reading {
        at,
        totals: metrics.totals(),
        pools: pools
            .iter()
            .map(|pool| (pool.settings().name.as_str().into(), metrics.pool_status(pool)))
            .collect(),
    }
}

/// All reasons that occurred, with the number of requests.
fn reasons(totals: &Totals) -> BTreeMap<&'static str, u64> {
    let mut reasons = BTreeMap::new();
    let all = all_sites(totals).chain([&totals.none]);
    for (reason, count) in all.flat_map(SiteTotals::errors).filter(|(_, count)| *count > 0) {
        *reasons.entry(reason).or_default() += count;
    }
    reasons
}

fn codings(totals: &Totals) -> Vec<CodingView> {
    let mut codings: Vec<CodingView> = Vec::new();
    for (name, coding) in all_sites(totals).flat_map(SiteTotals::codings) {
        let place = codings.iter().position(|known| known.name == name).unwrap_or_else(|| {
            codings.push(CodingView {
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

/// `known` is what it had sent some seconds ago; without that its rate is that since the beginning.
fn transfer_view(transfer: &Transfer, now: Instant, known: Option<(Instant, u64)>) -> TransferView {
    let (since, before) = known.filter(|(at, _)| *at < now).unwrap_or((transfer.since, 0));
    let seconds = now.saturating_duration_since(since).as_secs_f64().max(0.001);
    let sent = transfer.taken();
    TransferView {
        site: transfer.site.clone(),
        target: transfer.target.clone(),
        client: transfer.client,
        sent,
        length: transfer.length,
        bytes_per_second: sent.saturating_sub(before) as f64 / seconds,
        running: now.saturating_duration_since(transfer.since),
    }
}

fn certificate_state((site, not_after): (String, Option<SystemTime>)) -> CertificateState {
    let now = SystemTime::now();
    let left = |end: SystemTime| match end.duration_since(now) {
        Ok(left) => left.as_secs_f64(),
        Err(over) => -over.duration().as_secs_f64(),
    };
    CertificateState {
        site,
        left_s: not_after.map(left),
    }
}

/// The newest reading that is at least so old, or the oldest there is.
fn reading_before(readings: &VecDeque<Reading>, now: Instant, age: Duration) -> &Reading {
    let old_enough = |reading: &&Reading| now.saturating_duration_since(reading.at) >= age;
    readings.iter().rev().find(old_enough).unwrap_or(&readings[0])
}

/// A site of an earlier reading: mostly at its old place, after a reload perhaps at another one, or not there yet.
fn find<'t>(totals: &'t Totals, number: usize, name: &str) -> Option<&'t SiteTotals> {
    let named = |(found, site): &'t (String, SiteTotals)| (found == name).then_some(site);
    let in_place = totals.sites.get(number).and_then(named);
    in_place.or_else(|| totals.sites.iter().find_map(named))
}

fn all_sites(totals: &Totals) -> impl Iterator<Item = &SiteTotals> {
    totals.sites.iter().map(|(_, site)| site)
}

fn sum(site: &SiteTotals, of: impl Fn(&HandlerTotals) -> u64) -> u64 {
    site.handlers().map(|(_, handler)| of(handler)).sum()
}

fn requests(site: &SiteTotals) -> u64 {
    sum(site, HandlerTotals::requests)
}

fn bytes(site: &SiteTotals) -> u64 {
    sum(site, |handler| handler.bytes)
}

fn failures(site: &SiteTotals) -> u64 {
    sum(site, |handler| handler.codes[4])
}

fn times(site: &SiteTotals) -> Times {
    site.handlers()
        .fold(Times::default(), |all, (_, handler)| all.and(&handler.times))
}

fn site_state(name: &str, now: &SiteTotals, minute: &SiteTotals, requests_per_second: f64) -> SiteState {
    let recent = times(now).since(&times(minute));
    let milliseconds = |q| recent.quantile(q).map(|time| time.as_secs_f64() * 1000.0);
    SiteState {
        name: name.to_owned(),
        requests_total: requests(now),
        requests_per_second,
        in_flight: now.in_flight,
        p50_ms: milliseconds(0.5),
        p95_ms: milliseconds(0.95),
        failed: failures(now) - failures(minute),
        shares: shares(now, minute),
        worker_seconds_saved: now.saved.as_secs_f64(),
        handoffs_total: now.handoffs().map(|(via, count)| (via.to_owned(), count)).collect(),
        errors_total: now
            .errors()
            .filter(|(_, count)| *count > 0)
            .map(|(reason, count)| (reason.to_owned(), count))
            .collect(),
    }
}

fn shares(now: &SiteTotals, minute: &SiteTotals) -> BTreeMap<String, f64> {
    let all = requests(now) - requests(minute);
    if all == 0 {
        return BTreeMap::new();
    }
    let handlers = now.handlers().zip(minute.handlers());
    let recent = handlers.map(|((name, now), (_, minute))| (name, now.requests() - minute.requests()));
    recent
        .map(|(name, count)| (name.to_owned(), count as f64 / all as f64))
        .collect()
}

/// Variants made.
fn made(site: &SiteTotals) -> u64 {
    let mut images = site.images();
    images
        .find(|(result, _)| *result == "made")
        .map_or(0, |(_, count)| count)
}

fn image_state(images: &ImageTotals, now: &SiteTotals, minute: &SiteTotals, made_per_second: f64) -> ImageState {
    let recent = now.images().zip(minute.images());
    let recent: Vec<_> = recent
        .map(|((result, now), (_, minute))| (result, now.saturating_sub(minute)))
        .filter(|(_, count)| *count > 0)
        .collect();
    let all: u64 = recent.iter().map(|(_, count)| count).sum();
    let steps = images.steps().filter(|(_, times)| times.count() > 0);
    ImageState {
        site: images.site.clone(),
        shares: recent
            .into_iter()
            .map(|(result, count)| (result.to_owned(), count as f64 / all as f64))
            .collect(),
        made_per_second,
        made_total: made(now),
        uploads_total: images.uploaded,
        unkept_total: images.unkept,
        cache_failures_total: images.cache_failures(),
        memory_bytes: images.in_memory,
        busy: images.workers.busy,
        workers: images.workers.busy + images.workers.idle,
        queued: images.workers.waiting,
        crashes: images.workers.crashed,
        steps_ms: steps
            .map(|(step, times)| (step.to_owned(), times.sum.as_secs_f64() * 1000.0 / times.count() as f64))
            .collect(),
    }
}

/// What PHP says of a body whose script says nothing: a rule for it would be one for every page.
const SAYS_NOTHING: &str = "text/html";

fn streaming_states(scripts: Vec<StreamingScript>) -> Vec<StreamingState> {
    let rules: Vec<_> = scripts.iter().map(|script| rule_for(script, &scripts)).collect();
    let states = scripts.into_iter().zip(rules).map(|(script, rule)| StreamingState {
        rule,
        site: script.site,
        script: script.script,
        media_type: script.media_type,
        responses: script.responses,
        bytes: script.bytes,
    });
    states.collect()
}

/// The table that takes the bodies of a script, and of all others of its site, off PHP's hands; names of sites need no
/// quotes.
fn rule_for(script: &StreamingScript, scripts: &[StreamingScript]) -> String {
    let says_nothing = |kind: &str| kind.is_empty() || kind == SAYS_NOTHING;
    if script.media_type.as_deref().is_none_or(says_nothing) {
        let name = &script.script;
        return format!("# have {name} send the Content-Type of what it streams, or name the file (X-Sendfile)");
    }
    let mut types = script.listed.clone();
    for other in scripts.iter().filter(|other| other.site == script.site) {
        match &other.media_type {
            Some(kind) if !says_nothing(kind) && !types.contains(kind) => types.push(kind.clone()),
            _ => {}
        }
    }
    let quoted: Vec<_> = types
        .into_iter()
        .map(|kind| serde_json::Value::from(kind).to_string())
        .collect();
    format!("[site.{}.offload]\ntypes = [{}]", script.site, quoted.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(at: Instant) -> Reading {
        Reading {
            at,
            totals: Totals::default(),
            pools: Vec::new(),
        }
    }

    #[test]
    fn the_rule_of_a_site_can_be_pasted_and_names_all_its_types() {
        let script = |script: &str, media_type: Option<&str>| StreamingScript {
            site: "shop".into(),
            script: script.into(),
            media_type: media_type.map(str::to_owned),
            responses: 1,
            bytes: 1,
            listed: vec!["video/*".into()],
        };
        let states = streaming_states(vec![
            script("/a.php", Some("application/zip")),
            script("/b.php", Some("application/pdf")),
            script("/c.php", Some("application/zip")),
            script("/page.php", Some("text/html")),
            script("/says-nothing.php", None),
        ]);
        assert_eq!(states[0].rule, states[1].rule);
        let rule: toml::Table = states[0].rule.parse().expect("TOML");
        let types = &rule["site"]["shop"]["offload"]["types"];
        assert_eq!(
            types.to_string(),
            r#"["video/*", "application/zip", "application/pdf"]"#
        );
        for state in &states[3..] {
            let advice = format!("# have {} send the Content-Type", state.script);
            assert!(state.rule.starts_with(&advice), "{state:?}");
        }
    }

    #[test]
    fn what_is_compared_with_is_the_newest_reading_that_is_old_enough() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let readings: VecDeque<Reading> = [0, 1, 5, 9].map(|second| reading(at(second))).into();
        assert_eq!(reading_before(&readings, at(10), Duration::from_secs(5)).at, at(5));
        assert_eq!(reading_before(&readings, at(10), Duration::from_secs(4)).at, at(5));
        assert_eq!(
            reading_before(&readings, at(10), MINUTE).at,
            at(0),
            "the oldest there is"
        );
    }
}
