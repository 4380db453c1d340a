//! The life of a serving process: logs, descriptors, parts, signals, the end.

use std::error::Error;
use std::io::{self, ErrorKind, IsTerminal};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use haulier_php::Pool;
use haulier_server::{Address, BindError, RunningServer};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep};
use tracing::{Level, error, info, warn};

use crate::admin::{self, Admin, AdminListener, Identity, Reporter, SiteFacts, SocketFile};
use crate::announce::Announcement;
use crate::assemble::{AssembleError, Assembled, Purpose, assemble, leave_root};
use crate::cli::Console;
use crate::command::Outcome;
use crate::config::settings::{AdminAddress, Format, LogSettings, Site};
use crate::config::{Diagnostic, Report, Settings};
use crate::log::{self, AccessLogs, Reopen, Shape};
use crate::{machine, port_holder};

/// How often a draining server is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// PHP's time to end after the last request.
const PHP_END: Duration = Duration::from_secs(2);

/// Serves until a signal says stop.
pub(crate) fn serve(
    settings: Settings,
    purpose: Purpose,
    announcement: &Announcement,
    report: &Report,
    console: &Console,
) -> Outcome {
    machine::raise_descriptor_limit();
    let shape = shape(settings.log.format, console);
    let writer = log::start(shape, level(&settings.log, console));
    for line in report.warning_lines() {
        warn!("{line}");
    }
    let outcome = match start(settings, purpose, shape, announcement, console) {
        Ok(outcome) => outcome,
        Err(StartFailure::Assemble(failure)) => {
            eprint!("{}", describe(&failure).render(console.colors_stderr()));
            Outcome::Failed
        }
        Err(StartFailure::Admin(diagnostic)) => {
            let mut report = Report::default();
            report.push(*diagnostic);
            eprint!("{}", report.render(console.colors_stderr()));
            Outcome::Failed
        }
        Err(StartFailure::System(failure)) => {
            error!(error = %failure, "cannot start");
            Outcome::Failed
        }
    };
    writer.close();
    outcome
}

enum StartFailure {
    Assemble(AssembleError),
    /// The admin address or the control socket.
    Admin(Box<Diagnostic>),
    System(io::Error),
}

impl From<io::Error> for StartFailure {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

fn start(
    settings: Settings,
    purpose: Purpose,
    shape: Shape,
    announcement: &Announcement,
    console: &Console,
) -> Result<Outcome, StartFailure> {
    let grace = settings.grace;
    let reopen = Reopen::default();
    let logs = AccessLogs::new(shape, console.quiet, reopen.clone(), settings.user.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _entered = runtime.enter();
    // Before PHP starts: a signal during the start must end what was started.
    let mut signals = Signals::listen(reopen)?;
    // Before PHP starts, too: most of what can go wrong here is a second haulier.
    let listener = bind_admin(&settings.admin, purpose).map_err(StartFailure::Admin)?;
    let (config, control, user) = (settings.config.clone(), settings.control.clone(), settings.user.clone());
    let sites = settings.sites.iter().map(site_facts).collect();
    let Assembled {
        server,
        pools,
        sockets,
        prelude,
        keeper,
    } = assemble(settings, purpose, logs).map_err(StartFailure::Assemble)?;
    let addresses = server.addresses();
    let control = bind_control(control.as_deref(), &addresses).map_err(StartFailure::Admin)?;
    let admin = Admin { listener, control };
    let identity = Identity {
        config,
        listen: addresses.iter().map(Address::to_string).collect(),
        admin: admin.address(),
        sites,
    };
    admin.serve(&Reporter::new(identity, server.metrics()))?;
    leave_root(user.as_ref(), &sockets, keeper.as_ref()).map_err(StartFailure::Assemble)?;
    let secure = server.secure_addresses();
    let running = server.run()?;
    // From here on authorities that ask are answered.
    if let Some(keeper) = keeper {
        let kept = keeper.keep();
        kept.map_err(|error| StartFailure::Assemble(error.into()))?;
    }
    announcement.print(&addresses, &secure, &admin, console);
    let outcome = runtime.block_on(until_stopped(running, &mut signals, grace));
    runtime.block_on(stop_pools(&pools));
    drop(sockets);
    drop(prelude);
    Ok(outcome)
}

fn site_facts(site: &Site) -> SiteFacts {
    SiteFacts {
        name: site.name.clone(),
        hosts: site.hosts.clone(),
        app: site.app.preset.title.to_owned(),
        root: site.app.root.clone(),
    }
}

/// The admin address. `serve` takes the next free port; `run` takes what is written, or stops.
fn bind_admin(address: &AdminAddress, purpose: Purpose) -> Result<Option<AdminListener>, Box<Diagnostic>> {
    AdminListener::bind(address, purpose == Purpose::Development).map_err(|error| {
        let diagnostic = match address {
            AdminAddress::Tcp(address) => cannot_listen(&(*address).into(), &error),
            AdminAddress::Unix(path) => cannot_bind(path, &error),
            AdminAddress::Off => Diagnostic::error("bind", error.to_string()),
        };
        Box::new(diagnostic.help("this is `admin` in `[server]`: another address there, or \"off\", helps"))
    })
}

/// The control socket. Without one of its own name a server still serves; one that is named must be had.
fn bind_control(named: Option<&Path>, addresses: &[Address]) -> Result<Option<SocketFile>, Box<Diagnostic>> {
    if let Some(path) = named {
        let bound = SocketFile::bind(path).map(Some);
        return bound.map_err(|error| Box::new(cannot_bind(path, &error).help("this is `control` in `[server]`")));
    }
    let port = addresses
        .iter()
        .find_map(Address::internet)
        .map_or(0, |address| address.port());
    let Some(path) = admin::place_for(port) else {
        warn!("no directory for a control socket: `haulier status` cannot ask this server");
        return Ok(None);
    };
    // Two servers may have one port, on two addresses or by `reuse_port`.
    let second = path.with_extension(format!("{}.sock", std::process::id()));
    match SocketFile::bind(&path).or_else(|_| SocketFile::bind(&second)) {
        Ok(socket) => Ok(Some(socket)),
        Err(error) => {
            warn!(%error, path = %path.display(), "no control socket: `haulier status` cannot ask this server");
            Ok(None)
        }
    }
}

fn cannot_bind(path: &Path, error: &io::Error) -> Diagnostic {
    let why = match error.kind() {
        ErrorKind::AddrInUse => "another process has it".to_owned(),
        _ => error.to_string(),
    };
    Diagnostic::error("bind", format!("cannot make the socket {}: {why}", path.display()))
}

/// The signals a server obeys.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    user1: Signal,
    /// What SIGUSR1 is for.
    reopen: Reopen,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    Terminate,
    Interrupt,
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

    /// The next signal that means stop. SIGHUP, which many servers take as "read your configuration again", must not
    /// end us; it says so and changes nothing. SIGUSR1 opens the log files anew.
    async fn stop(&mut self) -> Stop {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return Stop::Terminate,
                _ = self.interrupt.recv() => return Stop::Interrupt,
                _ = self.user1.recv() => self.reopen.ask(),
                _ = self.hang_up.recv() => warn!("SIGHUP changes nothing: restart haulier to read its configuration again"),
            }
        }
    }
}

/// Drains at the first signal; the second one, or the end of the grace, cuts what is left.
async fn until_stopped(running: RunningServer, signals: &mut Signals, grace: Duration) -> Outcome {
    signals.stop().await;
    running.drain();
    info!(connections = running.active(), grace_s = grace.as_secs(), "stopping");
    let end = Instant::now() + grace;
    while !running.is_finished() && Instant::now() < end {
        tokio::select! {
            second = signals.stop() => {
                warn!(connections = running.active(), "stopped at once");
                running.abort();
                return if second == Stop::Interrupt { Outcome::Interrupted } else { Outcome::Done };
            }
            () = sleep(LOOK) => (),
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

async fn stop_pools(pools: &[Arc<Pool>]) {
    for pool in pools {
        pool.stop(PHP_END).await;
    }
}

fn shape(format: Format, console: &Console) -> Shape {
    let text = match format {
        Format::Text => true,
        Format::Json => false,
        Format::Auto | Format::Combined => io::stderr().is_terminal(),
    };
    if text {
        Shape::Text {
            color: console.colors_stderr(),
        }
    } else {
        Shape::Json
    }
}

fn level(settings: &LogSettings, console: &Console) -> Level {
    match console.verbose {
        0 => settings.level,
        1 => settings.level.max(Level::DEBUG),
        _ => Level::TRACE,
    }
}

fn describe(failure: &AssembleError) -> Report {
    let mut report = Report::default();
    report.push(match failure {
        AssembleError::Bind(BindError::Address { address, source }) => cannot_listen(address, source),
        other => Diagnostic::error("start", with_sources(other)),
    });
    report
}

/// An error and its causes in one line.
pub(crate) fn with_sources(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

/// Why an address cannot be listened on, and what to do about it.
pub(crate) fn cannot_listen(address: &Address, error: &io::Error) -> Diagnostic {
    let failed = |why: &str| Diagnostic::error("bind", format!("cannot listen on {address}: {why}"));
    match error.kind() {
        ErrorKind::AddrInUse => match address.internet().and_then(port_holder::find) {
            Some(holder) => failed(&format!("{holder} listens there")).help("stop it, or choose another port"),
            None => failed("another program listens there").help("stop it, or choose another port"),
        },
        ErrorKind::PermissionDenied if address.internet().is_none() => failed("permission denied"),
        ErrorKind::PermissionDenied => failed("permission denied")
            .help("ports below 1024 need root, or: setcap cap_net_bind_service=+ep /usr/bin/haulier"),
        ErrorKind::AddrNotAvailable => {
            failed("this machine has no such address").help("`ip address` lists those it has")
        }
        ErrorKind::NotFound => {
            failed("there is no such directory").help("make it, or let the unit do it: RuntimeDirectory=")
        }
        _ => failed(&error.to_string()),
    }
}
