//! The supervisor of a pool: prepares sockets and directories, and starts the threads that keep php-cgi running.

use std::io::{self, PipeWriter};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use haulier_upstream::{Address, Upstream, UpstreamSettings};

use super::directory::{Directories, OpenDirectory};
use super::extension;
use super::ini_admin;
use super::master::Starter;
use super::scheduler::Scheduler;
use super::socket::Socket;
use super::watcher::Watcher;
use crate::children;
use crate::error::StartError;
use crate::processes::Processes;
use crate::recycling::Recycling;
use crate::settings::{PoolSettings, Supervised};
use crate::shared_pool::SharedPool;
use crate::spawner::Spawner;
use crate::spawner::recipe::Recipe;

/// Timeout of a connection to the supervised php-cgi, whose backlog is longer than the number of workers.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The threads of a supervisor, one per php-cgi program. Dropping it ends PHP too, without waiting.
#[derive(Debug)]
pub(crate) struct Supervisor {
    /// Closing it tells the threads to end.
    order: Mutex<Option<PipeWriter>>,
    ended: Mutex<Option<ThreadsEnded>>,
}

/// Carries no values: the channel closes when the last thread ends.
type ThreadsEnded = tokio::sync::mpsc::Receiver<()>;

/// True if every worker must be a separate php-cgi. Warns if the system requires it and not the settings.
fn is_separate(pool: &str, own: &Supervised, spawner: Option<&Arc<Spawner>>) -> bool {
    let can_tell = match spawner {
        Some(spawner) => spawner.tells_apart(),
        None => children::can_tell_apart(own.user.as_ref().map(|user| user.uid)),
    };
    if !can_tell && !own.separate {
        tracing::warn!(
            pool,
            "the children of a php-cgi cannot be told apart here (no CAP_SYS_PTRACE, or no /proc), so every worker is \
             started separately; opcache uses files instead of shared memory"
        );
    }
    own.separate || !can_tell
}

/// Creates the directories that PHP inherits; their names begin like that of the socket.
fn directories(own: &Supervised, separate: bool, socket: &Path) -> Result<Directories, StartError> {
    let unusable = |path: &Path| {
        let path = path.to_owned();
        |source| StartError::SocketDir { path, source }
    };
    let mut directories = Directories::default();
    if let Some(embedded) = &own.embedded {
        directories.extension = Some(extension::open(&embedded.version).map_err(unusable(socket))?);
    }
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
            // A process that has left root cannot change the owner. Scripts run without the cache.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                tracing::warn!(user = ?own.user, "opcache has no file cache: after leaving root, haulier cannot give it to this account");
            }
            Err(error) => return Err(unusable(&path)(error)),
        }
    }
    Ok(directories)
}

/// The starter of PHP: this process, or the spawner if its list has this recipe.
fn starter(own: &Supervised, separate: bool, spawner: Option<&Arc<Spawner>>) -> Result<Starter, StartError> {
    let recipe = Recipe::of(own, separate).map_err(|source| StartError::Spawn {
        php: own.php.clone(),
        source,
    })?;
    let Some(spawner) = spawner else {
        return Ok(Starter::Ourselves(Arc::new(recipe)));
    };
    let number = spawner.number_of(&recipe).ok_or_else(|| StartError::NotAgreed {
        user: own.user.as_ref().map_or_else(String::new, |user| user.name.clone()),
    })?;
    Ok(Starter::Through(Arc::clone(spawner), number))
}

impl Supervisor {
    /// Creates the sockets, starts the threads and waits for the first start of PHP.
    ///
    /// # Errors
    /// See [`StartError`].
    pub(crate) fn start(
        settings: PoolSettings,
        own: &Supervised,
        spawner: Option<&Arc<Spawner>>,
    ) -> Result<(Arc<SharedPool>, Self), StartError> {
        if own.workers == 0 {
            return Err(StartError::Empty);
        }
        let separate = is_separate(&settings.name, own, spawner);
        let starter = starter(own, separate, spawner)?;
        let sockets = (0..if separate { own.workers } else { 1 })
            .map(|_| Socket::bind(&own.socket_dir, &settings.name))
            .collect::<Result<Vec<_>, _>>()?;
        let directories = Arc::new(directories(own, separate, &sockets[0].path)?);
        let upstream = Upstream::new(upstream_settings(&settings, own, &sockets)).map_err(StartError::Thread)?;
        let processes = Processes::new(sockets.len(), separate, spawner.cloned());
        let recycling = Recycling::new(own.recycle, own.workers / sockets.len());
        let shared = SharedPool::new(settings, upstream, Some(processes), recycling);
        let (orders, order) = io::pipe().map_err(StartError::Thread)?;
        let (tell_started, started) = mpsc::sync_channel(sockets.len());
        let (alive, ended) = tokio::sync::mpsc::channel(1);
        for (server, socket) in sockets.into_iter().enumerate() {
            let watcher = Watcher {
                shared: Arc::clone(&shared),
                separate,
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
                .spawn(move || watcher.run(&tell_started))
                .map_err(StartError::Thread)?;
        }
        drop(tell_started);
        if let (Some(scripts), Some(computing)) = (&shared.at_work, own.computing) {
            let scheduler = Scheduler {
                shared: Arc::clone(&shared),
                scripts: Arc::clone(scripts),
                computing,
                orders: orders.try_clone().map_err(StartError::Thread)?,
            };
            thread::Builder::new()
                .name("php-scheduler".into())
                .spawn(move || scheduler.run())
                .map_err(StartError::Thread)?;
        }
        for _ in 0..shared.upstream.servers() {
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

    /// Ends PHP and waits for that: a second at most, then by SIGKILL.
    pub(crate) async fn stop(&self) {
        drop(self.order.lock().unwrap_or_else(PoisonError::into_inner).take());
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut ended) = ended {
            ended.recv().await;
        }
    }
}

fn upstream_settings(settings: &PoolSettings, own: &Supervised, sockets: &[Socket]) -> UpstreamSettings {
    UpstreamSettings {
        name: settings.name.clone(),
        server_kind: "FastCGI server",
        addresses: sockets
            .iter()
            .map(|socket| Address::Unix(socket.path.clone()))
            .collect(),
        connections: own.workers / sockets.len(),
        at_once: own.computing.filter(|&computing| computing < own.workers),
        connect_timeout: CONNECT_TIMEOUT,
        queue_length: settings.queue_length,
        queue_timeout: settings.queue_timeout,
        open_rate: own.spawn_rate,
        is_running: false,
        may_park: own.parks_after().is_some(),
        thresholds: None,
    }
}
