//! Keeps a php-cgi master running on a socket of ours.
//!
//! One thread a pool starts PHP, waits for its end and starts it again; it lives as long as the pool, because the
//! signal that ends PHP with us follows the thread that forked. The socket stays open here, so that nothing is refused
//! in between. The master replaces children that die by itself.

use std::fs::{DirBuilder, File, Permissions};
use std::io::{self, BufRead, BufReader, PipeReader, PipeWriter};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{PidfdFlags, Signal};

use crate::directory::{Directories, OpenDirectory};
use crate::error::StartError;
use crate::heard::Heard;
use crate::ini_admin;
use crate::master::{Master, Starter};
use crate::peer;
use crate::recipe::{self, Recipe};
use crate::settings::{PoolSettings, Server, Supervised};
use crate::spawner::Spawner;
use crate::state::Shared;

/// Who lives shorter has crashed at its start.
const SHORT_LIFE: Duration = Duration::from_secs(5);
/// Pauses before another start after such a crash: the first, then twice as long each time up to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(10);
/// How often to look whether PHP has forked, and when to take it for granted.
const LOADING_PAUSE: Duration = Duration::from_millis(2);
const LOADING_LIMIT: Duration = Duration::from_secs(2);
/// How long workers may take to end after SIGTERM before SIGKILL.
const END_GRACE: Duration = Duration::from_secs(1);
/// How long a master may leave children unreplaced that have ended, while PHP has something to do.
const STUCK: Duration = Duration::from_secs(1);
/// Connections that may wait in the kernel. There are never more than workers, unless some are stuck.
const BACKLOG: i32 = 1024;

/// A running supervisor thread. Dropping it ends PHP as well, without waiting.
#[derive(Debug)]
pub(crate) struct Supervisor {
    /// Closing it is the order to end.
    order: Mutex<Option<PipeWriter>>,
    ended: Mutex<Option<Ended>>,
}

/// Nothing is ever sent: the channel closes when the last thread has ended.
type Ended = tokio::sync::mpsc::Receiver<()>;

/// Whether every worker is to be a php-cgi of its own, and says so where nobody asked for it.
fn is_separate(pool: &str, own: &Supervised, spawner: Option<&Arc<Spawner>>) -> bool {
    let told = match spawner {
        Some(spawner) => spawner.tells_apart(),
        None => peer::can_be_told(own.user.as_ref().map(|user| user.uid)),
    };
    if !told && !own.separate {
        tracing::warn!(
            pool,
            "the children of a php-cgi cannot be told apart here (no CAP_SYS_PTRACE, or no /proc), so every worker is \
             started by itself; opcache uses files instead of shared memory"
        );
    }
    own.separate || !told
}

/// What PHP inherits; the names begin like that of the socket.
fn directories(own: &Supervised, separate: bool, socket: &Path) -> Result<Directories, StartError> {
    let unusable = |path: &Path| {
        let path = path.to_owned();
        |source| StartError::SocketDir { path, source }
    };
    let mut directories = Directories::default();
    if !own.ini_admin.is_empty() {
        let path = socket.with_extension("ini");
        directories.admin_ini = Some(ini_admin::write(path.clone(), &own.ini_admin).map_err(unusable(&path))?);
    }
    if separate {
        let path = socket.with_extension("opcache");
        let made = OpenDirectory::create(path.clone()).map_err(unusable(&path))?;
        let given = own
            .user
            .as_ref()
            .map_or(Ok(()), |user| made.give_to(user.uid, user.gid));
        match given {
            Ok(()) => directories.opcache = Some(made),
            // Who has left root cannot give it to another account, and scripts run without it.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                tracing::warn!(user = ?own.user, "opcache has no file cache: it cannot be given to this account any more");
            }
            Err(error) => return Err(unusable(&path)(error)),
        }
    }
    Ok(directories)
}

/// Who starts PHP: we, or the spawner, if it has agreed to start just this.
fn starter(own: &Supervised, separate: bool, spawner: Option<&Arc<Spawner>>) -> Result<Starter, StartError> {
    let recipe = Recipe::of(own, separate).map_err(|source| StartError::Spawn {
        php: own.php.clone(),
        source,
    })?;
    let Some(spawner) = spawner else {
        return Ok(Starter::Ourselves(Arc::new(recipe)));
    };
    let place = spawner.place_of(&recipe).ok_or_else(|| StartError::NotAgreed {
        user: own.user.as_ref().map_or_else(String::new, |user| user.name.clone()),
    })?;
    Ok(Starter::Through(Arc::clone(spawner), place))
}

impl Supervisor {
    /// Makes the socket, starts the thread and waits for the first start of PHP.
    ///
    /// # Errors
    /// See [`StartError`].
    pub(crate) fn start(
        settings: PoolSettings,
        own: &Supervised,
        spawner: Option<&Arc<Spawner>>,
    ) -> Result<(Arc<Shared>, Self), StartError> {
        let separate = is_separate(&settings.name, own, spawner);
        let starter = starter(own, separate, spawner)?;
        let sockets = (0..if separate { own.workers } else { 1 })
            .map(|_| Socket::bind(&own.socket_dir, &settings.name))
            .collect::<Result<Vec<_>, _>>()?;
        let addresses = sockets.iter().map(|socket| Server::Unix(socket.path.clone())).collect();
        let directories = Arc::new(directories(own, separate, &sockets[0].path)?);
        let shared = Shared::new(settings, addresses, separate, spawner.cloned());
        let shared = Arc::new(shared.map_err(StartError::Thread)?);
        let (orders, order) = io::pipe().map_err(StartError::Thread)?;
        let (tell_started, started) = mpsc::sync_channel(sockets.len());
        let (alive, ended) = tokio::sync::mpsc::channel(1);
        for (server, socket) in sockets.into_iter().enumerate() {
            let watch = Watch {
                shared: Arc::clone(&shared),
                server,
                own: own.clone(),
                starter: starter.clone(),
                socket,
                directories: Arc::clone(&directories),
                orders: orders.try_clone().map_err(StartError::Thread)?,
                _alive: alive.clone(),
            };
            let tell_started = tell_started.clone();
            thread::Builder::new()
                .name("php-supervisor".into())
                .spawn(move || watch.run(&tell_started))
                .map_err(StartError::Thread)?;
        }
        drop(tell_started);
        for _ in 0..shared.addresses.len() {
            let started = started.recv();
            let started = started.unwrap_or_else(|_| Err(io::Error::other("the supervisor ended")));
            started.map_err(|source| StartError::Spawn {
                php: own.php.clone(),
                source,
            })?;
        }
        Ok((
            shared,
            Self {
                order: Mutex::new(Some(order)),
                ended: Mutex::new(Some(ended)),
            },
        ))
    }

    /// Ends PHP and waits until it is gone: a second at most, then by force.
    pub(crate) async fn stop(&self) {
        drop(self.order.lock().unwrap_or_else(PoisonError::into_inner).take());
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut ended) = ended {
            ended.recv().await;
        }
    }
}

/// The listening socket in its private directory; the file goes with it.
#[derive(Debug)]
struct Socket {
    listener: UnixListener,
    path: PathBuf,
}

impl Socket {
    fn bind(directory: &Path, pool: &str) -> Result<Self, StartError> {
        private_directory(directory).map_err(|source| StartError::SocketDir {
            path: directory.to_owned(),
            source,
        })?;
        let path = directory.join(file_name(pool));
        let listening = UnixListener::bind(&path).and_then(|listener| {
            rustix::net::listen(&listener, BACKLOG)?; // again: the standard library asks for less
            Ok(listener)
        });
        match listening {
            Ok(listener) => Ok(Self { listener, path }),
            Err(source) => Err(StartError::Listen { path, source }),
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path); // may be gone with its directory
    }
}

/// Makes the directory, or makes one of ours private: who can connect to PHP can have it run any file.
fn private_directory(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let found = std::fs::metadata(directory)?;
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it belongs to another user",
        ));
    }
    if found.mode() & 0o777 != 0o700 {
        std::fs::set_permissions(directory, Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// A name of its own for each start: a reload has two pools of one name, and a killed process leaves its file behind.
fn file_name(pool: &str) -> String {
    static STARTS: AtomicU32 = AtomicU32::new(0);
    let plain = |letter: char| {
        if letter.is_ascii_alphanumeric() || letter == '-' {
            letter
        } else {
            '_'
        }
    };
    let pool: String = pool.chars().take(32).map(plain).collect();
    format!(
        "{pool}.{}.{}.sock",
        std::process::id(),
        STARTS.fetch_add(1, Ordering::Relaxed)
    )
}

/// What the thread works with.
struct Watch {
    shared: Arc<Shared>,
    /// The number of its address.
    server: usize,
    own: Supervised,
    starter: Starter,
    socket: Socket,
    directories: Arc<Directories>,
    orders: PipeReader,
    _alive: tokio::sync::mpsc::Sender<()>,
}

/// What a watched php-cgi comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// It ended.
    End,
    /// It is to end.
    Order,
    /// Nobody needs it.
    Rest,
    /// It does not replace its children.
    Stuck,
}

/// Children of a master that are fewer than they should be: since when, and which.
type Missing = Option<(Instant, Vec<u32>)>;

/// How a watch ended.
enum Outcome {
    Ordered,
    Resting,
    Replaced,
    ByItself(ExitStatus),
}

impl Watch {
    /// Starts PHP again and again until the order to end. The socket goes with `self`.
    fn run(self, tell_started: &mpsc::SyncSender<io::Result<()>>) {
        let pool = self.shared.settings.name.as_str();
        let mut pause = Duration::ZERO;
        let mut first = Some(tell_started);
        let mut is_usual = false;
        loop {
            let begun = Instant::now();
            let separate = self.shared.separate;
            let inherited = self.directories.inherited();
            match self.starter.start(self.socket.listener.as_fd(), inherited) {
                Ok(master) => {
                    let (pid, workers) = (master.id(), if separate { 1 } else { self.own.workers });
                    match first.take() {
                        // Whoever starts us says so: it is part of the start.
                        Some(tell) => {
                            let _ = tell.send(Ok(()));
                            tracing::debug!(pool, pid, workers, "PHP started");
                        }
                        None if is_usual => tracing::debug!(pool, pid, "PHP started anew"),
                        None => tracing::info!(pool, pid, workers, "PHP started again"),
                    }
                    let status = match self.watch(master) {
                        Outcome::Ordered => return,
                        Outcome::Resting if self.is_called() => None,
                        Outcome::Resting => return,
                        Outcome::Replaced => None,
                        Outcome::ByItself(status) => Some(status),
                    };
                    // One that ends well at its very start is no PHP.
                    let was_asked = |status| self.was_asked_to_end(status) && begun.elapsed() >= FIRST_PAUSE;
                    is_usual = status.is_none_or(was_asked);
                    let Some(status) = status.filter(|_| !is_usual) else {
                        pause = Duration::ZERO;
                        continue;
                    };
                    tracing::error!(pool, %status, "PHP ended by itself and is started again");
                }
                Err(error) => {
                    tracing::error!(pool, %error, php = %self.own.php.display(), "PHP cannot be started");
                    if let Some(tell) = first.take() {
                        let _ = tell.send(Err(error));
                        return;
                    }
                }
            }
            if self.ordered_to_end(pause) {
                return;
            }
            pause = next_pause(pause, begun.elapsed());
        }
    }

    /// Waits until PHP ends by itself, or ends it when ordered to, or when nobody needs it.
    fn watch(&self, mut master: Master) -> Outcome {
        if let Some(stderr) = master.take_stderr() {
            log_stderr(
                stderr,
                self.shared.settings.name.clone(),
                Arc::clone(&self.shared.heard),
            );
        }
        let process = rustix::process::pidfd_open(master.pid(), PidfdFlags::empty());
        let single = process.ok().filter(|_| self.shared.separate);
        // One that has no children takes connections as soon as it has loaded; they wait in the kernel.
        if single.is_some() || self.wait_for_children(&mut master) {
            self.shared.master_started(self.server, master.id(), single);
        }
        let event = self.wait_for_event(&mut master);
        match event {
            Event::End => {}
            Event::Stuck => master.end(),
            Event::Order | Event::Rest => end_group(&mut master),
        }
        let status = master.wait();
        let was_asked = event == Event::Rest || self.was_asked_to_end(status);
        self.shared.master_ended(self.server, was_asked);
        match event {
            Event::Order => return Outcome::Ordered,
            Event::Rest => return Outcome::Resting,
            Event::End | Event::Stuck => {}
        }
        // Its children would answer on the socket for ever. SIGTERM lets them finish what they are at.
        master.end_group(Signal::TERM);
        if event == Event::Stuck {
            Outcome::Replaced
        } else {
            Outcome::ByItself(status)
        }
    }

    /// Waits until a request needs PHP; false if the order to end came first.
    fn is_called(&self) -> bool {
        let Some(alarm) = self.shared.alarm(self.server) else {
            return true;
        };
        tracing::debug!(pool = self.shared.settings.name, "PHP rests until somebody asks for it");
        let mut either = [
            PollFd::new(alarm, PollFlags::IN),
            PollFd::new(&self.orders, PollFlags::IN),
        ];
        while either.iter().all(|descriptor| descriptor.revents().is_empty()) {
            let _ = rustix::event::poll(&mut either, None); // EINTR: once more
        }
        let is_ordered = !either[1].revents().is_empty();
        let _ = rustix::io::read(alarm, &mut [0; 8]); // it does not block
        !is_ordered
    }

    /// A single worker ends well after SIGTERM, which is how it is replaced, and by SIGKILL when it took too long. By
    /// itself it does neither.
    fn was_asked_to_end(&self, status: ExitStatus) -> bool {
        self.shared.separate && (status.success() || status.signal() == Some(Signal::KILL.as_raw()))
    }

    /// Waits until PHP has loaded and forked; false if it ended before, or the order to end came. Requests meanwhile
    /// stay in our queue, with its time limit, and not in the kernel's.
    fn wait_for_children(&self, master: &mut Master) -> bool {
        let begun = Instant::now();
        while peer::children(master.id()).is_empty() {
            if self.ordered_to_end(LOADING_PAUSE) || !master.is_running() {
                return false;
            }
            if begun.elapsed() >= LOADING_LIMIT {
                return true; // a kernel that does not list children
            }
        }
        true
    }

    fn wait_for_event(&self, master: &mut Master) -> Event {
        let process = rustix::process::pidfd_open(master.pid(), PidfdFlags::empty());
        let Ok(process) = process else {
            return self.look_for_end_or_order(master);
        };
        let mut either = [
            PollFd::new(&process, PollFlags::IN),
            PollFd::new(&self.orders, PollFlags::IN),
        ];
        // A kernel that does not list children cannot tell that some are missing.
        let has_children = !self.shared.separate && !peer::children(master.id()).is_empty();
        let mut missing = None;
        while either.iter().all(|descriptor| descriptor.revents().is_empty()) {
            if has_children && self.is_stuck(master.id(), &mut missing) {
                return Event::Stuck;
            }
            let rest = match self.own.rests_after().map(|idle| self.shared.rest(self.server, idle)) {
                Some(Ok(())) => return Event::Rest,
                Some(Err(left)) => Some(left),
                None => None,
            };
            let look = has_children.then_some(STUCK);
            let time = rest.into_iter().chain(look).min();
            let time = time.and_then(|time| Timespec::try_from(time).ok());
            let _ = rustix::event::poll(&mut either, time.as_ref()); // EINTR: once more
        }
        if either[0].revents().is_empty() {
            Event::Order
        } else {
            Event::End
        }
    }

    /// Whether the master has left children unreplaced for [`STUCK`] that PHP's work needs. It replaces them at once
    /// unless it is stopped, or hangs.
    fn is_stuck(&self, master: u32, missing: &mut Missing) -> bool {
        if !self.shared.is_needed() {
            *missing = None;
            return false;
        }
        let wanted = recipe::children(&self.own);
        let mut alive = peer::children(master);
        alive.retain(|&child| peer::is_alive(child));
        if alive.len() >= wanted {
            *missing = None;
            return false;
        }
        // One that was not there before is new: the master is at work.
        let before = missing.take();
        let since = before.filter(|(_, before)| alive.iter().all(|child| before.contains(child)));
        let since = since.map_or_else(Instant::now, |(since, _)| since);
        let is_stuck = since.elapsed() >= STUCK;
        if is_stuck {
            let (pool, children) = (self.shared.settings.name.as_str(), alive.len());
            tracing::error!(
                pool,
                pid = master,
                children,
                wanted,
                "php-cgi does not replace children that have ended: it hangs or is stopped, and is replaced itself"
            );
        }
        *missing = Some((since, alive));
        is_stuck
    }

    /// The same where no descriptor for the process is to be had.
    fn look_for_end_or_order(&self, master: &mut Master) -> Event {
        while master.is_running() {
            if self.ordered_to_end(END_GRACE) {
                return Event::Order;
            }
        }
        Event::End
    }

    /// Waits for the order to end, at most for `time`; true if it came.
    fn ordered_to_end(&self, time: Duration) -> bool {
        let mut order = [PollFd::new(&self.orders, PollFlags::IN)];
        let time = Timespec::try_from(time).ok();
        matches!(rustix::event::poll(&mut order, time.as_ref()), Ok(1..))
    }
}

/// At once after a life of some length, else ever later.
fn next_pause(pause: Duration, lived: Duration) -> Duration {
    if lived >= SHORT_LIFE + pause {
        Duration::ZERO
    } else {
        (pause * 2).clamp(FIRST_PAUSE, LAST_PAUSE)
    }
}

/// Ends the master and its children, by force after [`END_GRACE`].
fn end_group(master: &mut Master) {
    let children = peer::children(master.id());
    master.end_group(Signal::TERM);
    let deadline = Instant::now() + END_GRACE;
    while master.is_running() || children.iter().any(|&child| peer::is_alive(child)) {
        if Instant::now() >= deadline {
            master.end_group(Signal::KILL);
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Passes on what PHP says outside of requests: settings it cannot use, extensions it cannot load.
fn log_stderr(stderr: File, pool: String, heard: Arc<Heard>) {
    let reader = move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            heard.note(&line);
            tracing::warn!(pool, "PHP: {line}");
        }
    };
    let _ = thread::Builder::new().name("php-stderr".into()).spawn(reader); // without it PHP writes into a closed pipe
}
