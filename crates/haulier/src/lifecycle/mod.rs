//! The life of a serving process: start, reload, replacement, stop.
//!
//! `mod` starts it, `serving_process` is its main loop and reloads its configuration, `take_over` replaces another
//! process, `systemd` talks to a service manager.

mod changes;
mod deployments;
mod edits;
mod failure;
mod projects;
mod serving_process;
mod source;
mod systemd;
mod take_over;

use std::io::{self, IsTerminal};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use haulier_php::{Pool, PoolError};
use haulier_server::{Address, Server};
use haulier_settings::{Diagnostic, Report};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tracing::{Level, error, warn};

pub(crate) use failure::cannot_listen;
pub(crate) use source::{Configuration, ConfigurationSource};

use self::failure::{cannot_bind, describe};
use self::serving_process::ServingProcess;
use self::systemd::Notifier;
use self::take_over::{Predecessor, Sockets};
use crate::admin::{self, Admin, AdminListener, Identity, Reporter, SiteFacts, SocketFile};
use crate::announce::Announcement;
use crate::assemble::{AssembleError, Parts, RunningParts};
use crate::cli::Console;
use crate::config::Settings;
use crate::config::settings::{AdminAddress, Site};
use crate::error_chain::with_sources;
use crate::log::{self, AccessLogs, Format, LineFormat, LogSettings, Reopen};
use crate::machine;
use crate::outcome::CommandOutcome;
use crate::purpose::Purpose;

/// Requests of the control socket that wait for the main loop.
const WAITING_COMMANDS: usize = 16;

/// Options of a serving process.
#[derive(Debug)]
pub(crate) struct StartOptions {
    pub(crate) source: ConfigurationSource,
    pub(crate) configuration: Configuration,
    pub(crate) purpose: Purpose,
    pub(crate) announcement: Announcement,
    /// Warnings about the configuration.
    pub(crate) report: Report,
    /// Replace the haulier that serves now.
    pub(crate) take_over: bool,
}

/// Serves until a signal or the control socket says stop.
pub(crate) fn serve(options: StartOptions, console: &Console) -> CommandOutcome {
    machine::raise_descriptor_limit();
    systemd::keep_from_children();
    let settings = &options.configuration.settings;
    let line_format = line_format(settings.log.format, console);
    let writer = log::start(line_format, level(&settings.log, console));
    for line in options.report.warning_lines() {
        warn!("{line}");
    }
    let outcome = match start(options, line_format, console) {
        Ok(outcome) => outcome,
        Err(StartFailure::Assemble(failure)) => {
            eprint!("{}", describe(&failure).render(console.colors_stderr()));
            CommandOutcome::Failed
        }
        Err(StartFailure::Bind(diagnostic)) => {
            let mut report = Report::default();
            report.push(*diagnostic);
            eprint!("{}", report.render(console.colors_stderr()));
            CommandOutcome::Failed
        }
        Err(StartFailure::System(failure)) => {
            error!(error = %failure, "cannot start");
            CommandOutcome::Failed
        }
    };
    writer.close();
    outcome
}

enum StartFailure {
    Assemble(AssembleError),
    /// The admin address, the control socket, or the sockets of another haulier.
    Bind(Box<Diagnostic>),
    System(io::Error),
}

impl From<io::Error> for StartFailure {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

impl From<AssembleError> for StartFailure {
    fn from(error: AssembleError) -> Self {
        Self::Assemble(error)
    }
}

impl From<Box<Diagnostic>> for StartFailure {
    fn from(diagnostic: Box<Diagnostic>) -> Self {
        Self::Bind(diagnostic)
    }
}

fn start(options: StartOptions, line_format: LineFormat, console: &Console) -> Result<CommandOutcome, StartFailure> {
    let settings = &options.configuration.settings;
    let notifier = Arc::new(Notifier::of_environment());
    let reopen = Reopen::default();
    let logs = AccessLogs::new(line_format, console.quiet, reopen.clone(), settings.user.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _entered = runtime.enter();
    // Before PHP starts: a signal during the start must stop PHP too.
    let mut signals = Signals::listen(reopen)?;
    let (predecessor, mut sockets) = inherit(options.take_over, settings)?;
    // Before PHP starts, too: the most frequent failure here is a second haulier on the same port.
    let purpose = options.purpose;
    let listener = bind_admin("admin", &settings.admin, purpose, sockets.admin.take())?;
    let probes = bind_admin("probes", &settings.probes, purpose, sockets.probes.take())?;
    let mut parts = Parts::new(options.purpose, logs, settings.user.as_ref())?;
    let assembled = parts.assemble(settings, &RunningParts::default())?;
    let server = Server::bind(assembled.server, assembled.log, &mut sockets.http).map_err(AssembleError::Bind)?;
    sockets.warn_of_the_rest();
    let addresses = server.addresses();
    let control = bind_control(settings.control.as_deref(), &addresses, &mut sockets)?;
    let mut admin = Admin::new(listener, probes, control);
    let identity = Identity {
        config: settings.config.clone(),
        listen: addresses.iter().map(Address::to_string).collect(),
        admin: admin.address(),
        sites: site_facts(settings),
        reloaded: None,
    };
    let reporter = Reporter::new(identity, server.metrics());
    let (asking, mut commands) = mpsc::channel(WAITING_COMMANDS);
    admin.serve(&reporter, &asking)?;
    let of_sites = addresses.iter().filter_map(|address| match address {
        Address::Unix(path) => Some(path.clone()),
        Address::Internet(_) => None,
    });
    let files: Vec<PathBuf> = of_sites.chain(admin.socket_files()).collect();
    parts.leave_root(settings.user.as_ref(), assembled.certificates.as_deref(), &files)?;
    parts.own_sockets(!options.take_over);
    check_spool_dir(settings);
    if options.take_over {
        runtime.block_on(warm(&assembled.pools))?;
    }
    let metrics = server.metrics();
    let secure = server.secure_addresses();
    let server = server.run()?;
    reporter.serving(server.handle());
    // The server now answers the challenges of certificate authorities.
    if let Some(certificates) = &assembled.certificates {
        certificates.start().map_err(AssembleError::Certificates)?;
    }
    if drain_predecessor(predecessor) {
        // Only now: if the start fails, the old process keeps serving.
        server.handle().claim();
        admin.claim();
        parts.own_sockets(true);
    }
    options.announcement.print(&addresses, &secure, &admin, console);
    let running = ServingProcess {
        server,
        metrics,
        pools: assembled.pools,
        certificates: assembled.certificates,
        configuration: Arc::new(options.configuration),
        source: Arc::new(options.source),
        parts: Arc::new(Mutex::new(parts)),
        purpose: options.purpose,
        shows_text: matches!(line_format, LineFormat::Text { .. }),
        reporter,
        admin,
        notifier,
        retiring: tokio::task::JoinSet::new(),
    };
    Ok(runtime.block_on(running.operate(&mut signals, &mut commands)))
}

/// Sockets that another process bound for this one, and the predecessor that still serves on them.
fn inherit(take_over: bool, settings: &Settings) -> Result<(Option<Predecessor>, Sockets), Box<Diagnostic>> {
    if take_over {
        let (predecessor, sockets) = Predecessor::ask(settings)?;
        return Ok((Some(predecessor), sockets));
    }
    Ok((None, Sockets::of_manager(systemd::passed())))
}

/// Tells the predecessor to drain. Returns whether there was one that does.
fn drain_predecessor(predecessor: Option<Predecessor>) -> bool {
    let Some(mut predecessor) = predecessor else {
        return false;
    };
    match predecessor.drain() {
        Ok(said) => {
            tracing::info!("the previous process drains: {said}");
            true
        }
        Err(error) => {
            let error = with_sources(&error);
            warn!(error, "the previous process did not confirm that it drains: stop it");
            false
        }
    }
}

/// Warns if the serving account cannot write spool files; the cause is hard to find once a long body fails.
fn check_spool_dir(settings: &Settings) {
    let directory = &settings.server.spool_dir;
    let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    if let Err(error) = rustix::fs::access(directory, access) {
        let user = settings.user.as_ref().map(|user| user.name.as_str());
        warn!(
            directory = %directory.display(),
            user,
            %error,
            "`spool_dir` cannot be written: request bodies beyond 64 KiB get 507, and PHP waits for slow clients"
        );
    }
}

/// Waits until PHP answers in every pool.
///
/// # Errors
/// The first pool that does not answer.
async fn warm(pools: &[Arc<Pool>]) -> Result<(), AssembleError> {
    for pool in pools {
        if let Err(source) = pool.warm().await {
            return Err(silent(pool, source).await);
        }
    }
    Ok(())
}

/// Time in which the last lines of a process that has ended are read.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// The failure of a pool that does not answer, with PHP's words about the script that its workers boot.
async fn silent(pool: &Pool, source: PoolError) -> AssembleError {
    let name = pool.settings().name.clone();
    let embedded = pool.settings().kind.supervised().and_then(|own| own.embedded.as_ref());
    let Some(script) = embedded.and_then(|embedded| embedded.release.clone().or(embedded.script.clone())) else {
        return AssembleError::Silent { name, source };
    };
    tokio::time::sleep(LAST_WORDS).await;
    let words = match source {
        PoolError::Timeout { .. } => "it asks for no request within `timeout`".to_owned(),
        _ => complaint(&pool.last_words()),
    };
    AssembleError::Unbootable { name, script, words }
}

/// The first error among PHP's messages; a script without one has ended by itself.
fn complaint(messages: &str) -> String {
    let is_error = |line: &&str| line.contains("error:") || line.contains("Error:");
    let line = messages.lines().find(is_error).or(messages.lines().next());
    line.map_or_else(
        || "it ended without a call of frankenphp_handle_request()".to_owned(),
        str::to_owned,
    )
}

/// Name, hosts and content of each site, for reports.
fn site_facts(settings: &Settings) -> Vec<SiteFacts> {
    let facts = |site: &Site| SiteFacts {
        name: site.settings.name.clone(),
        hosts: site.settings.hosts.clone(),
        what: site
            .images_alone()
            .unwrap_or_else(|| format!("{} in {}", site.app.preset.title, site.app.root.display())),
    };
    settings.sites.iter().map(facts).collect()
}

/// The admin address, or that of probes. `serve` takes the next free port; `run` takes what is written, or stops.
fn bind_admin(
    key: &str,
    address: &AdminAddress,
    purpose: Purpose,
    inherited: Option<OwnedFd>,
) -> Result<Option<AdminListener>, Box<Diagnostic>> {
    if let Some(adopted) = inherited.and_then(|socket| AdminListener::adopt(address, socket)) {
        return Ok(Some(adopted));
    }
    AdminListener::bind(address, purpose == Purpose::Development).map_err(|error| {
        let diagnostic = match address {
            AdminAddress::Tcp(address) => cannot_listen(&(*address).into(), &error),
            AdminAddress::Unix(path) => cannot_bind(path, &error),
            AdminAddress::Off => Diagnostic::error("bind", error.to_string()),
        };
        let help = format!("this is `{key}` in `[server]`: another address there, or \"off\", helps");
        Box::new(diagnostic.help(help))
    })
}

/// The control socket. A server serves without the default one; one that the configuration names is required.
fn bind_control(
    named: Option<&Path>,
    addresses: &[Address],
    sockets: &mut Sockets,
) -> Result<Option<SocketFile>, Box<Diagnostic>> {
    let inherited = sockets.control.take().and_then(SocketFile::adopt);
    if let Some(path) = named {
        if let Some(adopted) = inherited.filter(|adopted| adopted.path() == path) {
            return Ok(Some(adopted));
        }
        let bound = SocketFile::bind(path).map(Some);
        return bound.map_err(|error| Box::new(cannot_bind(path, &error).help("this is `control` in `[server]`")));
    }
    let port = addresses
        .iter()
        .find_map(Address::internet)
        .map_or(0, |address| address.port());
    let Some(path) = admin::place_for(port) else {
        warn!("no directory for a control socket: `haulier status` cannot ask this server");
        return Ok(inherited);
    };
    // Two servers may use one port, on two addresses or by `reuse_port`.
    let second = path.with_extension(format!("{}.sock", std::process::id()));
    if let Some(adopted) = inherited.filter(|adopted| adopted.path().parent() == path.parent()) {
        return Ok(Some(adopted));
    }
    match SocketFile::bind(&path).or_else(|_| SocketFile::bind(&second)) {
        Ok(socket) => Ok(Some(socket)),
        Err(error) => {
            warn!(%error, path = %path.display(), "no control socket: `haulier status` cannot ask this server");
            Ok(None)
        }
    }
}

/// The signals that a server handles.
#[derive(Debug)]
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    user1: Signal,
    /// Requested by SIGUSR1.
    reopen: Reopen,
}

/// A signal that was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReceivedSignal {
    Terminate,
    Interrupt,
    Reload,
}

impl Signals {
    fn listen(reopen: Reopen) -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            user1: signal(SignalKind::user_defined1())?,
            reopen,
        })
    }

    /// Waits for a signal to stop. Other signals stay pending.
    async fn end(&mut self) -> ReceivedSignal {
        tokio::select! {
            _ = self.terminate.recv() => ReceivedSignal::Terminate,
            _ = self.interrupt.recv() => ReceivedSignal::Interrupt,
        }
    }

    /// The next signal. SIGUSR1 is handled here: log files are opened anew.
    async fn next(&mut self) -> ReceivedSignal {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return ReceivedSignal::Terminate,
                _ = self.interrupt.recv() => return ReceivedSignal::Interrupt,
                _ = self.hang_up.recv() => return ReceivedSignal::Reload,
                _ = self.user1.recv() => self.reopen.ask(),
            }
        }
    }
}

fn line_format(format: Format, console: &Console) -> LineFormat {
    let text = match format {
        Format::Text => true,
        Format::Json => false,
        Format::Auto | Format::Combined => io::stderr().is_terminal(),
    };
    if text {
        LineFormat::Text {
            color: console.colors_stderr(),
        }
    } else {
        LineFormat::Json
    }
}

fn level(settings: &LogSettings, console: &Console) -> Level {
    match console.verbose {
        0 => settings.level,
        1 => settings.level.max(Level::DEBUG),
        _ => Level::TRACE,
    }
}
