//! The main loop of a server: it handles signals and the control socket, reloads the configuration, follows document
//! roots that move, and stops.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use haulier_php::{Pool, Supervised};
use haulier_server::metrics::{Metrics, ReloadResult};
use haulier_server::{Address, BindError, RunningServer, ServerHandle};
use haulier_settings::Report;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep};
use tracing::{error, info, warn};

use super::changes::Changes;
use super::deployments::{Deployments, Targets};
use super::edits::{Edit, Edits};
use super::failure::describe;
use super::projects::Projects;
use super::source::{self, Configuration, ConfigurationSource};
use super::systemd::Notifier;
use super::{ReceivedSignal, Signals, take_over, warm};
use crate::admin::{Admin, Command, ControlAnswer, PendingCommand, Reply, Reporter};
use crate::announce;
use crate::app::App;
use crate::assemble::{AssembleError, Assembled, Parts, RunningParts};
use crate::certificates::CertificateManager;
use crate::config::settings::Site;
use crate::error_chain::with_sources;
use crate::outcome::CommandOutcome;
use crate::purpose::Purpose;
use crate::quantity::{findings, plural};

/// Poll interval for a draining server and for a retired pool.
const POLL: Duration = Duration::from_millis(20);
/// Time for PHP to exit after the last request.
const PHP_END: Duration = Duration::from_secs(2);
/// Interval for checking whether a deployment moved a document root.
const ROOTS: Duration = Duration::from_millis(500);
/// Interval for checking a developer's configuration. A change counts once two checks saw the same new file: editors
/// write in pieces.
const FILES: Duration = Duration::from_millis(250);

/// A running server with its parts.
pub(super) struct ServingProcess {
    pub(super) server: RunningServer,
    pub(super) metrics: Arc<Metrics>,
    pub(super) pools: Vec<Arc<Pool>>,
    /// The certificates of a server with TLS.
    pub(super) certificates: Option<Arc<CertificateManager>>,
    pub(super) configuration: Arc<Configuration>,
    pub(super) source: Arc<ConfigurationSource>,
    pub(super) parts: Arc<Mutex<Parts>>,
    pub(super) purpose: Purpose,
    /// Messages are text, not JSON.
    pub(super) shows_text: bool,
    pub(super) reporter: Arc<Reporter>,
    pub(super) admin: Admin,
    pub(super) notifier: Arc<Notifier>,
    /// Pools that left the configuration and finish their requests.
    pub(super) retiring: JoinSet<()>,
}

/// The kind of a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StopMode {
    /// Serves on for the lame-duck time, then drains.
    LameDuck,
    /// Finishes the requests under way.
    Drain,
    /// Closes connections now.
    Now,
}

/// An event for the main loop.
enum LoopEvent {
    Reload,
    /// The application in this directory has changed.
    Project(PathBuf),
    /// Files of a project whose script stays booted have changed.
    Edited(Edit),
    /// Links of sites whose script stays booted lead to these targets.
    Moved(Targets),
    Command(PendingCommand),
}

/// A reload that failed: the configuration stays.
struct Refused {
    report: Report,
    /// The configuration is wrong; otherwise the machine failed.
    is_wrong: bool,
}

impl ServingProcess {
    /// Serves until a stop is requested.
    pub(super) async fn operate(
        mut self,
        signals: &mut Signals,
        commands: &mut mpsc::Receiver<PendingCommand>,
    ) -> CommandOutcome {
        self.notifier.ready(&self.status());
        let following = tokio::spawn(follow_roots(self.server.handle()));
        let watchdog = tokio::spawn(feed_watchdog(self.server.handle(), Arc::clone(&self.notifier)));
        let end = self.serve(signals, commands).await;
        following.abort();
        let (grace, lame_duck) = (self.configuration.settings.stop.grace, self.lame_duck(end));
        self.reporter.leaving();
        self.notifier.stopping(lame_duck + grace);
        let end = serve_lame_duck(&self.server, end, lame_duck, signals, commands).await;
        watchdog.abort();
        let (over, _) = watch::channel(());
        let early = stop_pools_early(&self.pools, grace, &over);
        let outcome = stop(self.server, end, grace, signals, commands).await;
        drop(over);
        early.join_all().await;
        stop_pools(&self.pools, self.retiring).await;
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).end_spawner();
        outcome
    }

    async fn serve(&mut self, signals: &mut Signals, commands: &mut mpsc::Receiver<PendingCommand>) -> StopMode {
        let is_watched = self.purpose == Purpose::Development;
        let mut files = FilesWatch::new(is_watched, &self.configuration.files);
        let mut projects = Projects::new(is_watched, &self.configuration.settings);
        let mut edits = Edits::new(is_watched, &self.configuration.settings);
        let mut deployments = Deployments::new(&self.configuration.settings);
        loop {
            let event = tokio::select! {
                signal = signals.next() => match signal {
                    ReceivedSignal::Terminate => return StopMode::LameDuck,
                    ReceivedSignal::Interrupt => return StopMode::Drain,
                    ReceivedSignal::Reload => LoopEvent::Reload,
                },
                Some(pending) = commands.recv() => LoopEvent::Command(pending),
                () = files.changed() => LoopEvent::Reload,
                directory = projects.changed() => LoopEvent::Project(directory),
                edit = edits.changed() => LoopEvent::Edited(edit),
                targets = deployments.moved() => LoopEvent::Moved(targets),
                Some(_) = self.retiring.join_next() => continue,
            };
            // New workers may take long to start; a stop must not wait for them.
            let ended = match event {
                LoopEvent::Reload => {
                    let reloaded = unless_stopped(self.reload_unasked(), signals).await;
                    reloaded.map(|read| files.follow(read)).err()
                }
                LoopEvent::Project(directory) => unless_stopped(self.reload_project(&directory), signals).await.err(),
                LoopEvent::Edited(edit) => {
                    let booted = unless_stopped(self.boot_edited(&edit), signals).await;
                    booted.map(|()| edits.note(edit)).err()
                }
                LoopEvent::Moved(targets) => {
                    let release = deployments.release(&targets);
                    let booted = unless_stopped(self.boot_release(&release), signals).await;
                    booted.map(|is_served| deployments.note(targets, is_served)).err()
                }
                LoopEvent::Command(pending) => match unless_stopped(self.answer(pending), signals).await {
                    Ok(end) => end,
                    Err(end) => Some(end),
                },
            };
            if let Some(end) = ended {
                return end;
            }
            projects.follow(is_watched, &self.configuration.settings);
            edits.follow(is_watched, &self.configuration.settings);
            deployments.follow(&self.configuration.settings);
        }
    }

    /// Reloads because a project changed, and logs its new application.
    async fn reload_project(&mut self, directory: &Path) {
        let before = self.recognised(directory);
        self.reload_unasked().await;
        if self.recognised(directory) != before {
            let what = announce::what(&self.configuration.settings, Some(directory));
            info!("{} has changed: {what}", directory.display());
        }
    }

    /// Boots the scripts that stay booted anew after a developer's edit. If they do not boot, the running workers go on.
    async fn boot_edited(&mut self, edit: &Edit) {
        let scripts = self.booted_pools("a file of its project changed");
        let begun = Instant::now();
        let booted = self.switch_to(Arc::clone(&self.configuration), &scripts).await;
        match booted {
            Ok(_) => {
                let seconds = begun.elapsed().as_secs_f64();
                info!("{} changed: booted anew in {seconds:.2} s", edit.in_words());
                self.reporter.note_boot(None);
            }
            Err(refused) => self.not_booted(&refused, &edit.in_words()),
        }
    }

    /// Boots the release that a deployment has made the current one, and switches. Returns false if it does not boot:
    /// the release before is still served.
    async fn boot_release(&mut self, release: &Path) -> bool {
        let booted = self.switch_to(Arc::clone(&self.configuration), &[]).await;
        let release = release.display();
        match booted {
            Ok(_) => {
                info!("{release} is served: its script has booted");
                self.reporter.note_boot(None);
                true
            }
            Err(refused) => {
                self.not_booted(&refused, &format!("the release {release}"));
                false
            }
        }
    }

    /// Says that `what` did not boot, in the log and in the status.
    fn not_booted(&self, refused: &Refused, what: &str) {
        for line in refused.report.error_lines() {
            error!("{line}");
        }
        warn!("{what} is not served: the workers that run go on");
        let why = refused.report.error_lines().next().unwrap_or_default();
        self.reporter.note_boot(Some(format!("{what} is not served: {why}")));
    }

    /// The pools whose workers boot a script, and why they are to start anew.
    fn booted_pools(&self, why: &'static str) -> Vec<(String, &'static str)> {
        let boots = |pool: &&Arc<Pool>| pool.settings().kind.supervised().is_some_and(Supervised::boots_script);
        let booted = self.pools.iter().filter(boots);
        booted.map(|pool| (pool.settings().name.clone(), why)).collect()
    }

    /// The application that was detected in a directory.
    fn recognised(&self, directory: &Path) -> Option<App> {
        let mut sites = self.configuration.settings.sites.iter().flat_map(Site::mounts);
        sites.find_map(|site| {
            let (of, app) = site.looked_at.as_ref()?;
            (of == directory).then(|| app.clone())
        })
    }

    /// Handles a request on the control socket. Returns the stop that it asks for.
    async fn answer(&mut self, pending: PendingCommand) -> Option<StopMode> {
        let PendingCommand { command, pid, reply } = pending;
        let (answer, end): (Reply, _) = match command {
            Command::Reload { color, php } => (self.reload_for(color, php).await.into(), None),
            Command::Stop { now } => {
                let end = if now { StopMode::Now } else { StopMode::LameDuck };
                (ControlAnswer::Done(self.stop_summary(end)).into(), Some(end))
            }
            Command::Sockets => (take_over::hand_over(&self.server.handle(), &self.admin), None),
            Command::YieldSockets => {
                if let Some(pid) = pid {
                    self.notifier.succeeded_by(pid);
                }
                self.server.handle().yield_sockets();
                self.admin.yield_sockets();
                self.parts
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .own_sockets(false);
                (
                    ControlAnswer::Done(self.stop_summary(StopMode::Drain)).into(),
                    Some(StopMode::Drain),
                )
            }
            Command::Status => (
                ControlAnswer::Error("the control socket answers that".to_owned()).into(),
                None,
            ),
        };
        let _ = reply.send(answer); // the client may have gone
        if end == Some(StopMode::Now) {
            sleep(POLL).await; // so that the answer is sent first
        }
        end
    }

    /// The connections that a stop affects, and its time limit.
    fn stop_summary(&self, end: StopMode) -> String {
        let connections = plural(self.server.active(), "connection");
        if end == StopMode::Now {
            return format!("{connections} cut");
        }
        let most = self.lame_duck(end) + self.configuration.settings.stop.grace;
        format!("{connections}, at most {} s", most.as_secs())
    }

    /// The lame-duck time of a stop.
    fn lame_duck(&self, end: StopMode) -> Duration {
        match end {
            StopMode::LameDuck => self.configuration.settings.stop.lame_duck,
            StopMode::Drain | StopMode::Now => Duration::ZERO,
        }
    }

    /// The status line for the service manager.
    fn status(&self) -> String {
        let addresses: Vec<String> = self.addresses();
        let sites = plural(self.configuration.settings.sites.len(), "site");
        format!("serving {sites} on {}", addresses.join(", "))
    }

    fn addresses(&self) -> Vec<String> {
        let addresses = self.server.handle().addresses();
        addresses.iter().map(Address::to_string).collect()
    }

    /// A reload by SIGHUP or after a developer changed a file. Returns the files to watch.
    async fn reload_unasked(&mut self) -> Vec<PathBuf> {
        match self.reload(false).await {
            Ok(_) => self.configuration.files.clone(),
            Err(refused) => {
                if self.shows_text {
                    eprint!("{}", refused.report.render(false));
                }
                self.source.files(&refused.report)
            }
        }
    }

    async fn reload_for(&mut self, color: bool, php: bool) -> ControlAnswer {
        match self.reload(php).await {
            Ok(words) => ControlAnswer::Done(words),
            Err(Refused { report, is_wrong: true }) => {
                let name = self.source.name().display();
                ControlAnswer::Wrong(format!("{}{name}: {}", report.render(color), findings(&report)))
            }
            Err(refused) => ControlAnswer::Error(refused.report.render(color).trim_end().to_owned()),
        }
    }

    /// Reloads the configuration, with new workers for every pool if `php`. Returns what changed, in words.
    async fn reload(&mut self, php: bool) -> Result<String, Refused> {
        let start = Instant::now();
        self.notifier.reloading();
        let result = self.exchange(php).await;
        self.notifier.ready(&self.status());
        match result {
            Ok(words) => {
                self.metrics.note_reload(ReloadResult::Success);
                let sites = super::site_facts(&self.configuration.settings);
                self.reporter.reloaded(self.addresses(), sites);
                let took = start.elapsed().as_secs_f64();
                self.reporter.note_boot(None);
                let words = format!("reloaded in {took:.2} s: {words}{}", self.draining());
                info!("{words}");
                Ok(words)
            }
            Err(refused) => {
                self.metrics.note_reload(ReloadResult::Failure);
                if !self.shows_text {
                    refused.report.error_lines().for_each(|line| error!("{line}"));
                }
                warn!(
                    errors = refused.report.errors(),
                    "not reloaded: the previous configuration stays in use"
                );
                Err(refused)
            }
        }
    }

    async fn exchange(&mut self, php: bool) -> Result<String, Refused> {
        let configuration = Arc::new(self.read().await?);
        let stale = self.stale_pools(&configuration, php);
        self.switch_to(configuration, &stale).await
    }

    /// Serves by this configuration once the pools that are new in it, or `stale`, have booted. Returns what changed.
    async fn switch_to(
        &mut self,
        configuration: Arc<Configuration>,
        stale: &[(String, &'static str)],
    ) -> Result<String, Refused> {
        let assembled = self.assemble(&configuration, stale).await;
        let assembled = assembled.map_err(|failure| Refused::by_machine(&failure))?;
        let (new, leaving) = compare(&self.pools, &assembled.pools);
        warm(&new).await.map_err(|failure| Refused::by_machine(&failure))?;
        let handle = self.server.handle();
        let switched: Result<(), BindError> = blocking(move || handle.reload(assembled.server, assembled.log)).await;
        switched.map_err(|error| Refused::by_machine(&AssembleError::Bind(error)))?;
        let changes = Changes::between(&self.configuration.effective, &configuration.effective, stale);
        self.follow_certificates(assembled.certificates);
        self.pools = assembled.pools;
        self.configuration = configuration;
        let grace = self.configuration.settings.stop.grace;
        for pool in leaving {
            self.retiring.spawn(retire(pool, grace, Arc::clone(&self.metrics)));
        }
        Ok(changes.in_words())
    }

    /// Keeps these certificates up to date from now on, in the place of the previous ones.
    fn follow_certificates(&mut self, certificates: Option<Arc<CertificateManager>>) {
        let runs = |new: &Arc<CertificateManager>| self.certificates.as_ref().is_some_and(|old| Arc::ptr_eq(old, new));
        if let Some(new) = certificates.as_ref().filter(|new| !runs(new))
            && let Err(error) = new.start()
        {
            let error = with_sources(&error);
            error!(error, "certificates are served but not renewed");
        }
        self.certificates = certificates;
    }

    async fn read(&self) -> Result<Configuration, Refused> {
        let source = Arc::clone(&self.source);
        let (read, report) = blocking(move || {
            let mut report = Report::default();
            (source.read(&mut report), report)
        })
        .await;
        match read {
            Ok(configuration) => {
                report.warning_lines().for_each(|line| warn!("{line}"));
                Ok(configuration)
            }
            Err(_) => Err(Refused { report, is_wrong: true }),
        }
    }

    /// Pools that start anew with the same settings, and why.
    fn stale_pools(&self, next: &Configuration, all: bool) -> Vec<(String, &'static str)> {
        let before = &self.configuration.settings.pools;
        let stale = next.settings.pools.iter().filter_map(|pool| {
            let name = &pool.settings.name;
            let known = before.iter().find(|before| before.settings.name == *name)?;
            match (all, known.php == pool.php) {
                (true, _) => Some((name.clone(), "asked for")),
                (false, true) if pool.boots_script() => Some((name.clone(), "its script is booted anew")),
                (false, false) => Some((name.clone(), "PHP or its php.ini changed")),
                (false, true) => None,
            }
        });
        stale.collect()
    }

    async fn assemble(
        &self,
        configuration: &Arc<Configuration>,
        stale: &[(String, &'static str)],
    ) -> Result<Assembled, AssembleError> {
        let parts = Arc::clone(&self.parts);
        let present = RunningParts {
            pools: self.pools.clone(),
            stale: stale.iter().map(|(name, _)| name.clone()).collect(),
            certificates: self.certificates.clone(),
        };
        let configuration = Arc::clone(configuration);
        blocking(move || {
            let mut parts = parts.lock().unwrap_or_else(PoisonError::into_inner);
            parts.assemble(&configuration.settings, &present)
        })
        .await
    }

    /// The requests that go on with the previous configuration, in words.
    fn draining(&self) -> String {
        let totals = self.metrics.totals();
        let sum = |of: fn(&haulier_server::metrics::SiteTotals) -> u64| -> usize {
            let all: u64 = totals.sites.iter().map(|(_, site)| of(site)).sum();
            usize::try_from(all).unwrap_or(usize::MAX)
        };
        let downloads = sum(|site| site.sending);
        let requests = sum(|site| site.in_flight).saturating_sub(downloads);
        let words: Vec<String> = [(requests, "request"), (downloads, "download")]
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| plural(count, what))
            .collect();
        if words.is_empty() {
            return String::new();
        }
        format!("; {} draining", words.join(" and "))
    }
}

impl Refused {
    fn by_machine(failure: &AssembleError) -> Self {
        Self {
            report: describe(failure),
            is_wrong: false,
        }
    }
}

/// The pools that are new, and those that left.
fn compare(before: &[Arc<Pool>], after: &[Arc<Pool>]) -> (Vec<Arc<Pool>>, Vec<Arc<Pool>>) {
    let without = |these: &[Arc<Pool>], those: &[Arc<Pool>]| -> Vec<Arc<Pool>> {
        let is_missing = |pool: &&Arc<Pool>| !those.iter().any(|other| Arc::ptr_eq(other, pool));
        these.iter().filter(is_missing).cloned().collect()
    };
    (without(after, before), without(before, after))
}

/// Stops a pool after its last request, or after `grace`.
async fn retire(pool: Arc<Pool>, grace: Duration, metrics: Arc<Metrics>) {
    let end = Instant::now() + grace_of(&pool, grace);
    // Requests hold their site, and with it the pool; the server itself has let go of both.
    while Arc::strong_count(&pool) > 1 && Instant::now() < end {
        sleep(POLL).await;
    }
    pool.stop(Duration::ZERO).await;
    metrics.pool_ended(&pool);
}

/// The time that requests of this pool have left.
fn grace_of(pool: &Pool, most: Duration) -> Duration {
    pool.settings().grace.map_or(most, |grace| grace.min(most))
}

/// Stops the pools with a shorter grace period than the server while it drains, unless `over` is dropped before.
fn stop_pools_early(pools: &[Arc<Pool>], most: Duration, over: &watch::Sender<()>) -> JoinSet<()> {
    let mut ending = JoinSet::new();
    for pool in pools.iter().filter(|pool| grace_of(pool, most) < most) {
        let pool = Arc::clone(pool);
        let mut over = over.subscribe();
        ending.spawn(async move {
            if tokio::time::timeout(grace_of(&pool, most), over.changed())
                .await
                .is_err()
            {
                pool.stop(Duration::ZERO).await;
            }
        });
    }
    ending
}

/// Runs a call that may block on a thread for it.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(failed) => std::panic::resume_unwind(failed.into_panic()),
    }
}

/// The result of some work, unless a signal asks for a stop first.
async fn unless_stopped<T>(work: impl Future<Output = T>, signals: &mut Signals) -> Result<T, StopMode> {
    tokio::select! {
        done = work => Ok(done),
        signal = signals.end() => Err(if signal == ReceivedSignal::Terminate { StopMode::LameDuck } else { StopMode::Drain }),
    }
}

/// Feeds the watchdog of the service manager, as long as every serving thread responds.
async fn feed_watchdog(handle: Arc<ServerHandle>, notifier: Arc<Notifier>) {
    let Some(timeout) = notifier.watchdog() else { return };
    let mut ticks = ticks(timeout / 2);
    loop {
        ticks.tick().await;
        let lag = handle.lag();
        if lag < timeout {
            notifier.alive();
        } else {
            error!(?lag, "a serving thread does not respond: the watchdog is not fed");
        }
    }
}

/// Opens a site anew when the symbolic link of its root points elsewhere.
async fn follow_roots(handle: Arc<ServerHandle>) {
    let mut ticks = ticks(ROOTS);
    loop {
        ticks.tick().await;
        let handle = Arc::clone(&handle);
        for site in blocking(move || handle.follow_roots()).await {
            info!(site, "the document root is another directory now");
        }
    }
}

fn ticks(pace: Duration) -> Interval {
    let mut ticks = interval(pace.max(Duration::from_millis(10)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Waits for the next tick; for ever without ticks.
async fn tick(ticks: &mut Option<Interval>) {
    match ticks {
        Some(ticks) => _ = ticks.tick().await,
        None => std::future::pending().await,
    }
}

/// Watches the files of a configuration by polling.
struct FilesWatch {
    /// `None` if they are not watched.
    ticks: Option<Interval>,
    files: Vec<PathBuf>,
    /// Their state when they were read.
    known: FileStates,
    /// Their state at the last check.
    seen: FileStates,
}

type FileStates = Vec<Option<(std::time::SystemTime, u64)>>;

impl FilesWatch {
    fn new(is_on: bool, files: &[PathBuf]) -> Self {
        let known = source::state_of(files);
        Self {
            ticks: is_on.then(|| ticks(FILES)),
            files: files.to_vec(),
            seen: known.clone(),
            known,
        }
    }

    /// Waits until a file has changed and two checks saw the same state of it.
    async fn changed(&mut self) {
        loop {
            tick(&mut self.ticks).await;
            let now = source::state_of(&self.files);
            let before = std::mem::replace(&mut self.seen, now);
            if self.seen != self.known && self.seen == before {
                return;
            }
        }
    }

    /// Watches these files, which were read just now.
    fn follow(&mut self, files: Vec<PathBuf>) {
        if files != self.files {
            self.files = files;
            self.seen = source::state_of(&self.files);
        }
        // A file that was written while it was read has changed again.
        self.known.clone_from(&self.seen);
    }
}

/// Serves on for the lame-duck time, while `/readyz` and every response announce the stop.
async fn serve_lame_duck(
    running: &RunningServer,
    end: StopMode,
    lame_duck: Duration,
    signals: &mut Signals,
    commands: &mut mpsc::Receiver<PendingCommand>,
) -> StopMode {
    if lame_duck.is_zero() {
        return end;
    }
    running.announce_end();
    info!(
        connections = running.active(),
        lame_duck_s = lame_duck.as_secs_f64(),
        "leaving: requests are still served"
    );
    let over = sleep(lame_duck);
    tokio::pin!(over);
    loop {
        tokio::select! {
            () = &mut over => return StopMode::Drain,
            signal = signals.next() => if signal != ReceivedSignal::Reload {
                return StopMode::Drain;
            },
            Some(pending) = commands.recv() => if answer_while_stopping(pending).await.is_some() {
                return StopMode::Now;
            },
        }
    }
}

/// Stops the server after the requests under way, within `grace`; a second signal stops it at once.
async fn stop(
    running: RunningServer,
    end: StopMode,
    grace: Duration,
    signals: &mut Signals,
    commands: &mut mpsc::Receiver<PendingCommand>,
) -> CommandOutcome {
    if end == StopMode::Now {
        warn!(connections = running.active(), "stopped at once");
        running.abort();
        return CommandOutcome::Done;
    }
    running.drain();
    info!(connections = running.active(), grace_s = grace.as_secs(), "stopping");
    let deadline = Instant::now() + grace;
    while !running.is_finished() && Instant::now() < deadline {
        let forced = tokio::select! {
            signal = signals.next() => match signal {
                ReceivedSignal::Terminate => Some(CommandOutcome::Done),
                ReceivedSignal::Interrupt => Some(CommandOutcome::Interrupted),
                ReceivedSignal::Reload => None,
            },
            Some(pending) = commands.recv() => answer_while_stopping(pending).await,
            () = sleep(POLL) => None,
        };
        if let Some(outcome) = forced {
            warn!(connections = running.active(), "stopped at once");
            running.abort();
            return outcome;
        }
    }
    let left = running.active();
    if !running.is_finished() {
        warn!(
            connections = left,
            "grace period over, closing the remaining connections"
        );
    }
    running.abort();
    info!("stopped");
    CommandOutcome::Done
}

async fn answer_while_stopping(pending: PendingCommand) -> Option<CommandOutcome> {
    let now = pending.command == Command::Stop { now: true };
    let answer = match pending.command {
        Command::Stop { .. } => ControlAnswer::Done("it is stopping already".to_owned()),
        _ => ControlAnswer::Error("this haulier is stopping".to_owned()),
    };
    let _ = pending.reply.send(answer.into()); // the client may have gone
    if now {
        sleep(POLL).await; // so that the answer is sent first
    }
    now.then_some(CommandOutcome::Done)
}

/// Stops the pools of the configuration, and the retiring ones.
async fn stop_pools(pools: &[Arc<Pool>], mut leaving: JoinSet<()>) {
    // Dropping the last handle of a pool ends it without waiting.
    leaving.shutdown().await;
    for pool in pools {
        pool.stop(PHP_END).await;
    }
}
