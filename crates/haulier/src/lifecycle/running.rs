//! A server that runs: it answers signals and the control socket, exchanges its configuration, follows the document
//! roots, and ends.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use haulier_php::Pool;
use haulier_server::metrics::{Metrics, ReloadResult};
use haulier_server::{Address, BindError, RunningServer, ServerHandle};
use haulier_settings::Report;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep};
use tracing::{error, info, warn};

use super::changes::Changes;
use super::failure::describe;
use super::projects::Projects;
use super::source::{self, Configuration, Source};
use super::systemd::Notifier;
use super::{Signals, Wish, take_over, warm};
use crate::admin::{Admin, Answer, Command, PendingCommand, Reply, Reporter};
use crate::announce;
use crate::app::App;
use crate::assemble::{AssembleError, Assembled, Parts, Present, Purpose};
use crate::certificates::Keeper;
use crate::command::{Outcome, counts, plural};
use crate::config::settings::Site;

/// How often a draining server, and a pool that is to end, is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// PHP's time to end after the last request.
const PHP_END: Duration = Duration::from_secs(2);
/// How often it is looked whether a deployment has moved a document root.
const ROOTS: Duration = Duration::from_millis(500);
/// How often a developer's configuration is looked at. It counts as changed when two looks saw the same new file:
/// editors write in pieces.
const FILES: Duration = Duration::from_millis(250);

/// Everything that runs.
pub(super) struct Running {
    pub(super) server: RunningServer,
    pub(super) metrics: Arc<Metrics>,
    pub(super) pools: Vec<Arc<Pool>>,
    /// Of a server with TLS.
    pub(super) keeper: Option<Arc<Keeper>>,
    pub(super) configuration: Configuration,
    pub(super) source: Arc<Source>,
    pub(super) parts: Arc<Mutex<Parts>>,
    pub(super) purpose: Purpose,
    /// Messages are for people.
    pub(super) shows_text: bool,
    pub(super) reporter: Arc<Reporter>,
    pub(super) admin: Admin,
    pub(super) notifier: Arc<Notifier>,
    /// Pools without a site, that finish their requests.
    pub(super) leaving: JoinSet<()>,
}

/// How to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// After a while in which everything is still served, and then as below.
    Leave,
    /// After what runs.
    Drain,
    /// Now.
    AtOnce,
}

/// What the main loop is asked for.
enum Next {
    Reload,
    /// The same, since there is something else to be served in this directory.
    Project(PathBuf),
    Answer(PendingCommand),
}

/// Why the configuration stays as it is.
struct Refused {
    report: Report,
    /// The configuration is to blame, not the machine.
    is_wrong: bool,
}

impl Running {
    /// Serves until it is told to end.
    pub(super) async fn operate(
        mut self,
        signals: &mut Signals,
        commands: &mut mpsc::Receiver<PendingCommand>,
    ) -> Outcome {
        self.notifier.ready(&self.status());
        let following = tokio::spawn(follow_roots(self.server.handle()));
        let living = tokio::spawn(show_life(self.server.handle(), Arc::clone(&self.notifier)));
        let end = self.serve(signals, commands).await;
        following.abort();
        let (grace, lame_duck) = (self.configuration.settings.server.grace, self.lame_duck(end));
        self.reporter.leaving();
        self.notifier.stopping(lame_duck + grace);
        let end = serve_on(&self.server, end, lame_duck, signals, commands).await;
        living.abort();
        let (over, _) = watch::channel(());
        let hasty = end_hasty_pools(&self.pools, grace, &over);
        let outcome = stop(self.server, end, grace, signals, commands).await;
        drop(over);
        hasty.join_all().await;
        stop_pools(&self.pools, self.leaving).await;
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).end_spawner();
        outcome
    }

    async fn serve(&mut self, signals: &mut Signals, commands: &mut mpsc::Receiver<PendingCommand>) -> End {
        let is_watched = self.purpose == Purpose::Development;
        let mut files = FilesWatch::new(is_watched, &self.configuration.files);
        let mut projects = Projects::new(is_watched, &self.configuration.settings);
        loop {
            let next = tokio::select! {
                wish = signals.next() => match wish {
                    Wish::Terminate => return End::Leave,
                    Wish::Interrupt => return End::Drain,
                    Wish::Reload => Next::Reload,
                },
                Some(pending) = commands.recv() => Next::Answer(pending),
                () = files.changed() => Next::Reload,
                directory = projects.changed() => Next::Project(directory),
                Some(_) = self.leaving.join_next() => continue,
            };
            // New workers may take their time: nobody who wants the end has to wait for them.
            let ended = match next {
                Next::Reload => {
                    let reloaded = unless_ended(self.reload_by_itself(), signals).await;
                    reloaded.map(|read| files.follow(read)).err()
                }
                Next::Project(directory) => unless_ended(self.take_up(&directory), signals).await.err(),
                Next::Answer(pending) => match unless_ended(self.answer(pending), signals).await {
                    Ok(end) => end,
                    Err(end) => Some(end),
                },
            };
            if let Some(end) = ended {
                return end;
            }
            projects.follow(is_watched, &self.configuration.settings);
        }
    }

    /// Serves what has come to be in a project; says so where that was all that changed.
    async fn take_up(&mut self, directory: &Path) {
        let before = self.recognised(directory);
        self.reload_by_itself().await;
        if self.recognised(directory) != before {
            let what = announce::what(&self.configuration.settings, Some(directory));
            info!("{} is something else now: {what}", directory.display());
        }
    }

    /// What is served of a directory that was looked into.
    fn recognised(&self, directory: &Path) -> Option<App> {
        let mut sites = self.configuration.settings.sites.iter().flat_map(Site::places);
        sites.find_map(|site| {
            let (of, app) = site.looked_at.as_ref()?;
            (of == directory).then(|| app.clone())
        })
    }

    /// Does what somebody asks for on the control socket.
    async fn answer(&mut self, pending: PendingCommand) -> Option<End> {
        let PendingCommand { command, pid, reply } = pending;
        let (answer, end): (Reply, _) = match command {
            Command::Reload { color, php } => (self.reload_for(color, php).await.into(), None),
            Command::Stop { now } => {
                let end = if now { End::AtOnce } else { End::Leave };
                (Answer::Done(self.farewell(end)).into(), Some(end))
            }
            Command::Sockets => (take_over::hand_over(&self.server.handle(), &self.admin), None),
            Command::GiveWay => {
                if let Some(pid) = pid {
                    self.notifier.succeeded_by(pid);
                }
                self.server.handle().give_way();
                self.admin.yield_sockets();
                self.parts
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .own_sockets(false);
                (Answer::Done(self.farewell(End::Drain)).into(), Some(End::Drain))
            }
            Command::Status => (Answer::Error("the control socket answers that".to_owned()).into(), None),
        };
        let _ = reply.send(answer); // whoever asked may have gone
        if end == Some(End::AtOnce) {
            sleep(LOOK).await; // for the answer to get out
        }
        end
    }

    fn farewell(&self, end: End) -> String {
        let connections = plural(self.server.active(), "connection");
        if end == End::AtOnce {
            return format!("{connections} cut");
        }
        let most = self.lame_duck(end) + self.configuration.settings.server.grace;
        format!("{connections}, at most {} s", most.as_secs())
    }

    /// How long everything is still served.
    fn lame_duck(&self, end: End) -> Duration {
        match end {
            End::Leave => self.configuration.settings.lame_duck,
            End::Drain | End::AtOnce => Duration::ZERO,
        }
    }

    /// For the service manager.
    fn status(&self) -> String {
        let addresses: Vec<String> = self.addresses();
        let sites = plural(self.configuration.settings.sites.len(), "site");
        format!("serving {sites} on {}", addresses.join(", "))
    }

    fn addresses(&self) -> Vec<String> {
        let addresses = self.server.handle().addresses();
        addresses.iter().map(Address::to_string).collect()
    }

    /// A reload that nobody waits for: by SIGHUP, or because a developer changed the file. Gives the files to look at.
    async fn reload_by_itself(&mut self) -> Vec<PathBuf> {
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

    async fn reload_for(&mut self, color: bool, php: bool) -> Answer {
        match self.reload(php).await {
            Ok(words) => Answer::Done(words),
            Err(Refused { report, is_wrong: true }) => {
                let name = self.source.name().display();
                Answer::Wrong(format!("{}{name}: {}", report.render(color), counts(&report)))
            }
            Err(refused) => Answer::Error(refused.report.render(color).trim_end().to_owned()),
        }
    }

    /// Exchanges the configuration, with fresh workers for every pool if `php`; says what changed.
    async fn reload(&mut self, php: bool) -> Result<String, Refused> {
        let begun = Instant::now();
        self.notifier.reloading();
        let result = self.exchange(php).await;
        self.notifier.ready(&self.status());
        match result {
            Ok(words) => {
                self.metrics.note_reload(ReloadResult::Success);
                let sites = super::site_facts(&self.configuration.settings);
                self.reporter.reloaded(self.addresses(), sites);
                let took = begun.elapsed().as_secs_f64();
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
                    "not reloaded: the configuration stays as it was"
                );
                Err(refused)
            }
        }
    }

    async fn exchange(&mut self, php: bool) -> Result<String, Refused> {
        let configuration = self.read().await?;
        let stale = self.stale_pools(&configuration, php);
        let (configuration, assembled) = self.assemble(configuration, &stale).await;
        let assembled = assembled.map_err(|failure| Refused::by_machine(&failure))?;
        let (new, leaving) = compare(&self.pools, &assembled.pools);
        warm(&new).await.map_err(|failure| Refused::by_machine(&failure))?;
        let handle = self.server.handle();
        let switched: Result<(), BindError> = blocking(move || handle.reload(assembled.server, assembled.log)).await;
        switched.map_err(|error| Refused::by_machine(&AssembleError::Bind(error)))?;
        let changes = Changes::between(&self.configuration.effective, &configuration.effective, &stale);
        self.keep(assembled.keeper);
        self.pools = assembled.pools;
        self.configuration = configuration;
        let grace = self.configuration.settings.server.grace;
        for pool in leaving {
            self.leaving.spawn(retire(pool, grace, Arc::clone(&self.metrics)));
        }
        Ok(changes.in_words())
    }

    /// Takes care of these certificates from now on, and of those before no more.
    fn keep(&mut self, keeper: Option<Arc<Keeper>>) {
        let is_new = |keeper: &&Arc<Keeper>| !self.keeper.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, keeper));
        if let Some(new) = keeper.as_ref().filter(is_new)
            && let Err(error) = new.keep()
        {
            let error = super::with_sources(&error);
            error!(error, "certificates are served but not renewed");
        }
        self.keeper = keeper;
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

    /// Pools that start anew although their settings are the same.
    fn stale_pools(&self, next: &Configuration, all: bool) -> Vec<(String, &'static str)> {
        let before = &self.configuration.settings.pools;
        let stale = next.settings.pools.iter().filter_map(|pool| {
            let name = &pool.settings.name;
            let known = before.iter().find(|before| before.settings.name == *name)?;
            match (all, known.php == pool.php) {
                (true, _) => Some((name.clone(), "asked for")),
                (false, false) => Some((name.clone(), "PHP or its php.ini changed")),
                (false, true) => None,
            }
        });
        stale.collect()
    }

    async fn assemble(
        &self,
        configuration: Configuration,
        stale: &[(String, &'static str)],
    ) -> (Configuration, Result<Assembled, AssembleError>) {
        let parts = Arc::clone(&self.parts);
        let present = Present {
            pools: self.pools.clone(),
            stale: stale.iter().map(|(name, _)| name.clone()).collect(),
            keeper: self.keeper.clone(),
        };
        blocking(move || {
            let mut parts = parts.lock().unwrap_or_else(PoisonError::into_inner);
            let assembled = parts.assemble(&configuration.settings, &present);
            (configuration, assembled)
        })
        .await
    }

    /// What goes on with the configuration it began with.
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

/// The pools that are new, and those that are not there any more.
fn compare(before: &[Arc<Pool>], after: &[Arc<Pool>]) -> (Vec<Arc<Pool>>, Vec<Arc<Pool>>) {
    let without = |these: &[Arc<Pool>], those: &[Arc<Pool>]| -> Vec<Arc<Pool>> {
        let is_missing = |pool: &&Arc<Pool>| !those.iter().any(|other| Arc::ptr_eq(other, pool));
        these.iter().filter(is_missing).cloned().collect()
    };
    (without(after, before), without(before, after))
}

/// Ends a pool once no request needs it any more, after `grace` at the latest.
async fn retire(pool: Arc<Pool>, grace: Duration, metrics: Arc<Metrics>) {
    let end = Instant::now() + grace_of(&pool, grace);
    // Requests hold their site, and with it the pool; the server itself has let go of both.
    while Arc::strong_count(&pool) > 1 && Instant::now() < end {
        sleep(LOOK).await;
    }
    pool.stop(Duration::ZERO).await;
    metrics.pool_ended(&pool);
}

/// How long requests of this pool may go on.
fn grace_of(pool: &Pool, most: Duration) -> Duration {
    pool.settings().grace.map_or(most, |grace| grace.min(most))
}

/// While a server drains: ends the pools whose requests have less time than the others, unless `over` is dropped before.
fn end_hasty_pools(pools: &[Arc<Pool>], most: Duration, over: &watch::Sender<()>) -> JoinSet<()> {
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

/// Runs what may block where it holds nobody up.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(failed) => std::panic::resume_unwind(failed.into_panic()),
    }
}

/// What comes out of it, unless somebody wants the end first.
async fn unless_ended<T>(work: impl Future<Output = T>, signals: &mut Signals) -> Result<T, End> {
    tokio::select! {
        done = work => Ok(done),
        wish = signals.end() => Err(if wish == Wish::Terminate { End::Leave } else { End::Drain }),
    }
}

/// Shows the service manager signs of life, whatever the main loop is at. A thread that hangs is none, even if this one
/// goes on.
async fn show_life(handle: Arc<ServerHandle>, notifier: Arc<Notifier>) {
    let Some(patience) = notifier.watchdog() else { return };
    let mut ticks = ticks(patience / 2);
    loop {
        ticks.tick().await;
        let lag = handle.lag();
        if lag < patience {
            notifier.alive();
        } else {
            error!(
                ?lag,
                "a serving thread does not come back: the service manager is told nothing"
            );
        }
    }
}

/// Sees to it that sites whose root is a symbolic link follow it.
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

/// The next tick; never where there are none.
async fn tick(ticks: &mut Option<Interval>) {
    match ticks {
        Some(ticks) => _ = ticks.tick().await,
        None => std::future::pending().await,
    }
}

/// The files of a configuration, looked at from time to time.
struct FilesWatch {
    /// `None` where nobody wants to know.
    ticks: Option<Interval>,
    files: Vec<PathBuf>,
    /// As they were when they were read.
    known: FileStates,
    /// As they were at the last look.
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

    /// Waits until one of the files has changed, and is as it was at the look before.
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

    /// They were read just now.
    fn follow(&mut self, files: Vec<PathBuf>) {
        if files != self.files {
            self.files = files;
            self.seen = source::state_of(&self.files);
        }
        // What was written while it was read is a change again.
        self.known.clone_from(&self.seen);
    }
}

/// Serves everything for so long, while `/readyz` and every answer say that this server leaves; then a stop may begin.
async fn serve_on(
    running: &RunningServer,
    end: End,
    lame_duck: Duration,
    signals: &mut Signals,
    commands: &mut mpsc::Receiver<PendingCommand>,
) -> End {
    if lame_duck.is_zero() {
        return end;
    }
    running.announce_end();
    info!(
        connections = running.active(),
        lame_duck_s = lame_duck.as_secs_f64(),
        "leaving: everything is still served"
    );
    let over = sleep(lame_duck);
    tokio::pin!(over);
    loop {
        tokio::select! {
            () = &mut over => return End::Drain,
            wish = signals.next() => if wish != Wish::Reload {
                return End::Drain;
            },
            Some(pending) = commands.recv() => if answer_while_stopping(pending).await.is_some() {
                return End::AtOnce;
            },
        }
    }
}

/// Ends the server: after what runs, unless that takes longer than `grace` or somebody has no patience.
async fn stop(
    running: RunningServer,
    end: End,
    grace: Duration,
    signals: &mut Signals,
    commands: &mut mpsc::Receiver<PendingCommand>,
) -> Outcome {
    if end == End::AtOnce {
        warn!(connections = running.active(), "stopped at once");
        running.abort();
        return Outcome::Done;
    }
    running.drain();
    info!(connections = running.active(), grace_s = grace.as_secs(), "stopping");
    let deadline = Instant::now() + grace;
    while !running.is_finished() && Instant::now() < deadline {
        let impatient = tokio::select! {
            wish = signals.next() => match wish {
                Wish::Terminate => Some(Outcome::Done),
                Wish::Interrupt => Some(Outcome::Interrupted),
                Wish::Reload => None,
            },
            Some(pending) = commands.recv() => answer_while_stopping(pending).await,
            () = sleep(LOOK) => None,
        };
        if let Some(outcome) = impatient {
            warn!(connections = running.active(), "stopped at once");
            running.abort();
            return outcome;
        }
    }
    let left = running.active();
    if !running.is_finished() {
        warn!(connections = left, "connections cut: the grace is over");
    }
    running.abort();
    info!("stopped");
    Outcome::Done
}

async fn answer_while_stopping(pending: PendingCommand) -> Option<Outcome> {
    let now = pending.command == Command::Stop { now: true };
    let answer = match pending.command {
        Command::Stop { .. } => Answer::Done("it is stopping already".to_owned()),
        _ => Answer::Error("this haulier is stopping".to_owned()),
    };
    let _ = pending.reply.send(answer.into()); // whoever asked may have gone
    if now {
        sleep(LOOK).await; // for the answer to get out
    }
    now.then_some(Outcome::Done)
}

/// Those of the configuration, and those that had still something to finish.
async fn stop_pools(pools: &[Arc<Pool>], mut leaving: JoinSet<()>) {
    // Dropping the last handle of a pool ends it without waiting.
    leaving.shutdown().await;
    for pool in pools {
        pool.stop(PHP_END).await;
    }
}
