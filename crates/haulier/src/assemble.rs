//! Makes the running parts of the settings. No other file knows every part.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, lchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use haulier_php::{Pool, PoolError, PoolSettings, Spawner, StartError, Supervised, User};
use haulier_server::BindError;
use haulier_server::access_log::AccessLog;
use haulier_server::{
    CompressedStore, MountSettings, PhpSettings, RouteSettings, ServerSettings, SiteSettings, TlsSettings, WorkerScript,
};

use crate::certificates::{CertificateError, CertificateManager, CertificateNeeds};
use crate::config::Settings;
use crate::config::settings::{self, Site};
use crate::error_chain::with_sources;
use crate::images::{Images, ImagesError};
use crate::leftovers;
use crate::log::{AccessLogs, LogFileError};
use crate::prelude::{self, Prelude, Reader, Sites};
use crate::privileges;
use crate::purpose::Purpose;
use crate::sweeper::Sweeper;

/// Parts of the process that outlive its configurations.
#[derive(Debug)]
pub(crate) struct Parts {
    purpose: Purpose,
    logs: AccessLogs,
    sockets: SocketDir,
    prelude: Option<Prelude>,
    /// Starts PHP as other accounts after root was left.
    spawner: Option<Arc<Spawner>>,
    variants: Option<Variants>,
    images: Images,
    /// Removes what root has made, after root was left.
    sweeper: Option<Sweeper>,
}

/// The store of compressed copies, with its settings.
#[derive(Debug)]
struct Variants {
    directory: PathBuf,
    limit: u64,
    store: Arc<CompressedStore>,
}

/// Parts that run already, and may stay.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunningParts {
    pub(crate) pools: Vec<Arc<Pool>>,
    /// Names of pools that start anew even with the same settings.
    pub(crate) stale: Vec<String>,
    pub(crate) certificates: Option<Arc<CertificateManager>>,
}

/// A configuration made ready: running pools, and the settings of the server.
#[derive(Debug)]
pub(crate) struct Assembled {
    pub(crate) server: ServerSettings,
    pub(crate) log: AccessLog,
    /// In the order of the settings.
    pub(crate) pools: Vec<Arc<Pool>>,
    /// Of a server with TLS; the running ones if their settings are the same.
    pub(crate) certificates: Option<Arc<CertificateManager>>,
}

/// A part did not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AssembleError {
    #[error("cannot make a directory for PHP's sockets")]
    SocketDir(#[source] io::Error),
    #[error("pool `{name}` does not start")]
    Pool { name: String, source: StartError },
    #[error("cannot start the process that starts PHP of other accounts")]
    Spawner(#[source] io::Error),
    #[error("PHP of pool `{name}` does not answer")]
    Silent { name: String, source: PoolError },
    #[error("{} does not boot in pool `{name}`: {words}", script.display())]
    Unbootable {
        name: String,
        script: PathBuf,
        words: String,
    },
    #[error("cannot become the user `{name}`")]
    User { name: String, source: io::Error },
    #[error(transparent)]
    Images(#[from] ImagesError),
    #[error(transparent)]
    Log(#[from] LogFileError),
    #[error(transparent)]
    Certificates(#[from] CertificateError),
    #[error(transparent)]
    Bind(#[from] BindError),
}

impl Parts {
    /// Makes the directory of PHP's sockets, and removes those of processes that were killed. `user` will serve.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub(crate) fn new(purpose: Purpose, logs: AccessLogs, user: Option<&User>) -> Result<Self, AssembleError> {
        let accounts = [Some(our_account().0), user.map(|user| user.uid)];
        leftovers::clear(runtime_dirs(), &accounts.into_iter().flatten().collect::<Vec<_>>());
        Ok(Self {
            purpose,
            logs,
            sockets: SocketDir::create().map_err(AssembleError::SocketDir)?,
            prelude: None,
            spawner: None,
            variants: None,
            images: Images::default(),
            sweeper: None,
        })
    }

    /// Opens the logs, starts the pools and reads the certificates. Running parts with the same settings stay.
    ///
    /// # Errors
    /// The first part that does not start. Parts that were started before it end, too.
    pub(crate) fn assemble(&mut self, settings: &Settings, present: &RunningParts) -> Result<Assembled, AssembleError> {
        let log = self.logs.of_server(&settings.log)?;
        if self.prelude.is_none() {
            self.prelude = write_prelude(&settings.pools);
        }
        let reusable: Vec<&Arc<Pool>> = present
            .pools
            .iter()
            .filter(|pool| !present.stale.contains(&pool.settings().name))
            .collect();
        let wanted: Vec<PoolSettings> = settings
            .pools
            .iter()
            .enumerate()
            .map(|(number, pool)| {
                let prelude = self.prelude.as_ref();
                let prelude = prelude.map(|prelude| prelude.path(sites_of(number, &settings.sites)));
                pool_settings(pool, self.sockets.path(), prelude.as_deref())
            })
            .collect();
        let serving = serving(settings);
        if self.spawner.is_none() && settings.user.is_some() {
            self.spawner = start_spawner(&wanted, serving)?;
        }
        let pools = wanted
            .into_iter()
            .map(
                |wanted| match reusable.iter().find(|running| is_same(running.settings(), &wanted)) {
                    Some(running) => Ok(Arc::clone(running)),
                    None => start_pool(wanted, serving, self.spawner.as_ref()),
                },
            )
            .collect::<Result<Vec<_>, _>>()?;
        self.open_variants(settings);
        let sites = settings
            .sites
            .iter()
            .map(|site| {
                let log = self.logs.of_site(&settings.log, &site.log)?;
                let images = self.images.of_site(site, self.purpose, settings.user.as_ref())?;
                let mut made = site_settings(site, &settings.pools, self.purpose);
                if site.is_rootless {
                    made.files.root = self.sockets.empty().map_err(AssembleError::SocketDir)?;
                }
                Ok(SiteSettings { log, images, ..made })
            })
            .collect::<Result<_, AssembleError>>()?;
        self.images.forget_unused();
        let certificates = open_certificates(settings, present.certificates.as_ref())?;
        let tls = settings.tls.as_ref().zip(certificates.as_ref());
        let server = ServerSettings {
            listen_tls: tls.map(|(tls, _)| tls.listen.clone()).unwrap_or_default(),
            tls: tls.map(|(tls, certificates)| TlsSettings {
                acceptor: Arc::clone(certificates.acceptor()),
                redirects_plain: tls.redirects_plain,
            }),
            pools: pools.clone(),
            compressed_copies: self.variants.as_ref().map(|variants| Arc::clone(&variants.store)),
            sites,
            ..settings.server.clone()
        };
        Ok(Assembled {
            server,
            log,
            pools,
            certificates,
        })
    }

    /// Ends the process that starts PHP of other accounts, after its pools.
    pub(crate) fn end_spawner(&mut self) {
        if let Some(spawner) = self.spawner.take() {
            spawner.end();
        }
    }

    /// Opens the directory of compressed copies; each account that runs haulier has its own. Without it files are
    /// compressed for every request.
    fn open_variants(&mut self, settings: &Settings) {
        let limit = settings.variants;
        if limit == 0 || !settings.sites.iter().any(|site| site.settings.compress.is_on()) {
            self.variants = None;
            return;
        }
        // The account after the sockets are bound.
        let owner = settings.user.as_ref().map(|user| (user.uid, user.gid));
        let account = owner.map_or_else(|| rustix::process::geteuid().as_raw(), |(uid, _)| uid);
        let directory = settings.server.spool_dir.join(format!("haulier-variants-{account}"));
        let is_open = |variants: &Variants| variants.directory == directory && variants.limit == limit;
        if self.variants.as_ref().is_some_and(is_open) {
            return;
        }
        self.variants = match CompressedStore::open(&directory, limit, owner) {
            Ok(store) => Some(Variants {
                directory,
                limit,
                store,
            }),
            Err(error) => {
                tracing::warn!(directory = %directory.display(), %error, "compressed copies of files are not kept");
                None
            }
        };
    }

    /// Sets whether this process removes the socket files in the end, or another one does.
    pub(crate) fn own_sockets(&mut self, ours: bool) {
        if let Some(sweeper) = &mut self.sweeper {
            sweeper.own_sockets(ours);
        }
    }

    /// Leaves root for good if another account is to serve, after everything that needs root is bound. `sockets` are the
    /// socket files that root has made.
    ///
    /// # Errors
    /// The process must end: it would serve as root.
    pub(crate) fn leave_root(
        &mut self,
        user: Option<&User>,
        certificates: Option<&CertificateManager>,
        sockets: &[PathBuf],
    ) -> Result<(), AssembleError> {
        let Some(user) = user else { return Ok(()) };
        let folders = self.prelude.as_ref().map(|prelude| prelude.directory().to_owned());
        let folders: Vec<PathBuf> = folders.into_iter().chain([self.sockets.path().to_owned()]).collect();
        match Sweeper::start(&folders, sockets) {
            Ok(sweeper) => self.sweeper = Some(sweeper),
            Err(error) => tracing::warn!(%error, "what root has made will stay behind"),
        }
        let given = certificates.map_or(Ok(()), |certificates| certificates.give_to(user));
        let left = given
            .and_then(|()| self.sockets.give_to(user))
            .and_then(|()| privileges::drop_to(user));
        left.map_err(|source| AssembleError::User {
            name: user.name.clone(),
            source,
        })
    }
}

/// The certificates of a server with TLS: the running ones, refreshed, if the settings are the same.
fn open_certificates(
    settings: &Settings,
    running: Option<&Arc<CertificateManager>>,
) -> Result<Option<Arc<CertificateManager>>, AssembleError> {
    let Some(tls) = &settings.tls else { return Ok(None) };
    let needs = CertificateNeeds::new(tls, settings.server.http2, !settings.server.listen.is_empty());
    if let Some(running) = running.filter(|running| *running.needs() == needs) {
        running.refresh();
        return Ok(Some(Arc::clone(running)));
    }
    let opened = CertificateManager::open(needs, running.map(Arc::as_ref))?;
    Ok(Some(Arc::new(opened)))
}

/// True if a running pool has these settings. After root was left, our account is the one that a pool may name.
fn is_same(running: &PoolSettings, wanted: &PoolSettings) -> bool {
    let (uid, gid) = our_account();
    let plain = |settings: &PoolSettings| {
        let mut settings = settings.clone();
        if let Some(supervised) = settings.kind.supervised_mut()
            && !supervised.is_foreign_to(uid, gid)
        {
            supervised.user = None;
        }
        settings
    };
    plain(running) == plain(wanted)
}

/// Writes the prelude, if a pool runs it. Without it only the functions are missing that it defines.
fn write_prelude(pools: &[settings::Pool]) -> Option<Prelude> {
    for (pool, open_basedir) in pools.iter().filter_map(|pool| Some((pool, open_basedir(pool)?))) {
        tracing::info!(
            pool = pool.settings.name,
            open_basedir,
            "zend_send_file() and fastcgi_finish_request() are not defined: open_basedir is set"
        );
    }
    if !pools.iter().any(runs_prelude) {
        return None;
    }
    // PHP of another account reads only what every account may.
    let reader = if pools.iter().any(has_user) {
        Reader::Anybody
    } else {
        Reader::Ourselves
    };
    match Prelude::create(runtime_dirs(), reader, haulier_server::send_token()) {
        Ok(prelude) => Some(prelude),
        Err(error) => {
            tracing::warn!(%error, "zend_send_file() and fastcgi_finish_request() are not defined: their file cannot be written");
            None
        }
    }
}

/// The kind of the sites of this pool, mounts included.
fn sites_of(pool: usize, sites: &[Site]) -> Sites {
    let is_served =
        |site: &&Site| site.pool == Some(pool) || site.php.worker.as_ref().is_some_and(|worker| worker.pool == pool);
    let mut served = sites.iter().flat_map(Site::mounts).filter(is_served);
    if served.all(|site| !site.php.sendfile.roots.is_empty()) {
        Sites::Sending
    } else {
        Sites::Any
    }
}

/// True if PHP runs as another account than we do.
fn has_user(pool: &settings::Pool) -> bool {
    pool.settings.kind.user().is_some()
}

/// True if the prelude runs before the scripts of this pool. `auto_prepend_file = "none"` in its `ini` prevents it.
fn runs_prelude(pool: &settings::Pool) -> bool {
    pool.php.is_some() && open_basedir(pool).is_none() && !prepended_by_ini(pool).is_some_and(is_none)
}

/// The `open_basedir` of a pool. With one, PHP refuses to open the prelude, and with it every script.
fn open_basedir(pool: &settings::Pool) -> Option<&str> {
    pool.php.as_ref()?.open_basedir.as_deref()
}

/// True for PHP's word for no file.
fn is_none(file: &str) -> bool {
    file.eq_ignore_ascii_case("none")
}

fn prepended_by_ini(pool: &settings::Pool) -> Option<&str> {
    let supervised = pool.settings.kind.supervised()?;
    let all = supervised.ini.iter().chain(&supervised.ini_admin);
    let last = all.rev().find(|(name, _)| name == prelude::SETTING);
    last.map(|(_, file)| file.as_str())
}

/// The user's own `auto_prepend_file`, which the prelude runs.
fn prepended(pool: &settings::Pool) -> Option<&str> {
    let of_php = pool.php.as_ref()?.auto_prepend_file.as_deref();
    prepended_by_ini(pool)
        .or(of_php)
        .filter(|file| !file.is_empty() && !is_none(file))
}

/// Starts PHP as the server would, and ends it. The error is a text.
pub(crate) fn try_pool(pool: &settings::Pool) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| with_sources(&error))?;
    let _entered = runtime.enter();
    let sockets = SocketDir::create().map_err(|error| with_sources(&AssembleError::SocketDir(error)))?;
    let pool =
        start_pool(pool_settings(pool, sockets.path(), None), None, None).map_err(|error| with_sources(&error))?;
    runtime.block_on(pool.stop(Duration::ZERO));
    Ok(())
}

fn pool_settings(pool: &settings::Pool, sockets: &Path, prelude: Option<&Path>) -> PoolSettings {
    let mut settings = pool.settings.clone();
    if let Some(supervised) = settings.kind.supervised_mut() {
        supervised.socket_dir = sockets.to_owned();
        if let Some(embedded) = &mut supervised.embedded {
            let release = |script: &PathBuf| script.canonicalize().unwrap_or_else(|_| script.clone());
            embedded.release = embedded.script.as_ref().map(release);
        }
        if let Some(prelude) = prelude.filter(|_| runs_prelude(pool)) {
            put_prelude(supervised, prelude);
        }
    }
    settings
}

/// User and group.
type Account = (u32, u32);

fn our_account() -> Account {
    let process = (rustix::process::geteuid(), rustix::process::getegid());
    (process.0.as_raw(), process.1.as_raw())
}

/// The account without rights that serves, now or soon; `None` if ours stays.
fn serving(settings: &Settings) -> Option<Account> {
    let becoming = settings.user.as_ref().map(|user| (user.uid, user.gid));
    becoming.or_else(|| privileges::has_left_root().then(our_account))
}

/// The account of this pool, if the one that serves cannot start it.
fn foreign_user(pool: &PoolSettings, serving: Option<Account>) -> Option<&User> {
    let supervised = pool.kind.supervised()?;
    let (uid, gid) = serving?;
    supervised.user.as_ref().filter(|_| supervised.is_foreign_to(uid, gid))
}

/// Starts the process that stays root, if a pool needs it. Needs root.
fn start_spawner(pools: &[PoolSettings], serving: Option<Account>) -> Result<Option<Arc<Spawner>>, AssembleError> {
    let foreign: Vec<&Supervised> = pools
        .iter()
        .filter(|pool| foreign_user(pool, serving).is_some())
        .filter_map(|pool| pool.kind.supervised())
        .collect();
    if foreign.is_empty() {
        return Ok(None);
    }
    Spawner::start(foreign).map(Some).map_err(AssembleError::Spawner)
}

fn start_pool(
    settings: PoolSettings,
    serving: Option<Account>,
    spawner: Option<&Arc<Spawner>>,
) -> Result<Arc<Pool>, AssembleError> {
    let name = settings.name.clone();
    let started = match (foreign_user(&settings, serving), spawner) {
        (None, _) => Pool::start(settings),
        (Some(_), Some(spawner)) => Pool::start_through(settings, spawner),
        (Some(user), None) => Err(StartError::NotAgreed {
            user: user.name.clone(),
        }),
    };
    started.map_err(|source| AssembleError::Pool { name, source })
}

/// Sets the prelude in place of the user's own file: in `ini_admin`, which no script can change, if that file stood there.
fn put_prelude(supervised: &mut Supervised, prelude: &Path) {
    let before = supervised.ini_admin.len();
    supervised.ini.retain(|(name, _)| name != prelude::SETTING);
    supervised.ini_admin.retain(|(name, _)| name != prelude::SETTING);
    let fixed = supervised.ini_admin.len() < before;
    let place = if fixed {
        &mut supervised.ini_admin
    } else {
        &mut supervised.ini
    };
    place.push((prelude::SETTING.to_owned(), prelude.display().to_string()));
}

/// The settings of a site with its PHP and its routes.
fn site_settings(site: &Site, pools: &[settings::Pool], purpose: Purpose) -> SiteSettings {
    let development = purpose == Purpose::Development;
    let front_script = site.front_script().map(str::to_owned);
    let mut settings = SiteSettings {
        development,
        routes: site
            .routes
            .iter()
            .map(|route| route_settings(route, pools, purpose))
            .collect(),
        ..site.settings.clone()
    };
    // An application that stays booted answers for directories, too.
    settings.files.listing = development && site.worker.is_none();
    settings.files.fallback = site.front.clone().filter(|_| front_script.is_none());
    settings.php = site.pool.map(|index| PhpSettings {
        pool: index,
        front: front_script,
        params: params(&pools[index]),
        remote_root: pools[index].remote_root.clone(),
        worker: site.php.worker.as_ref().map(|worker| WorkerScript {
            file: worker.file.canonicalize().unwrap_or_else(|_| worker.file.clone()),
            pool: worker.pool,
        }),
        ..site.php.clone()
    });
    settings
}

/// The FastCGI parameters of each request to the pool.
fn params(pool: &settings::Pool) -> Vec<(String, String)> {
    let mut params = pool.params.clone();
    if let Some(file) = prepended(pool) {
        params.push(("HAULIER_PREPEND".to_owned(), file.to_owned()));
    }
    params
}

fn route_settings(route: &settings::Route, pools: &[settings::Pool], purpose: Purpose) -> RouteSettings {
    let mount = route.mount.as_ref().map(|mount| MountSettings {
        site: Box::new(site_settings(&mount.site, pools, purpose)),
        prefix: mount.prefix.clone(),
    });
    RouteSettings {
        mount,
        ..route.rules.clone()
    }
}

/// A private directory for the listening sockets of PHP, one for each process.
#[derive(Debug)]
pub(crate) struct SocketDir {
    path: PathBuf,
    /// Locked: another haulier must not take it for a dead one's.
    _lock: File,
}

impl SocketDir {
    /// Makes it in the first base directory that allows it: `/run/haulier` may belong to another account.
    fn create() -> io::Result<Self> {
        Self::create_in(runtime_dirs())
    }

    fn create_in(bases: impl Iterator<Item = PathBuf>) -> io::Result<Self> {
        let mut last_error = io::Error::from(io::ErrorKind::NotFound);
        for base in bases {
            match Self::create_at(&base) {
                Ok(made) => return Ok(made),
                Err(error) => last_error = io::Error::new(error.kind(), format!("{}: {error}", base.display())),
            }
        }
        Err(last_error)
    }

    /// Skips names that are taken: in a shared folder another account may have taken ours.
    fn create_at(base: &Path) -> io::Result<Self> {
        for attempt in 0..100 {
            let path = base.join(format!("haulier-{}-{attempt}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {
                    let lock = leftovers::hold(&path)?;
                    return Ok(Self { path, _lock: lock });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    fn path(&self) -> &Path {
        &self.path
    }

    /// An empty directory: the document root of a site that has none.
    fn empty(&self) -> io::Result<PathBuf> {
        let path = self.path.join("empty");
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(path),
        }
    }

    /// Lets `user` connect to the sockets, and make others when PHP starts again.
    fn give_to(&self, user: &User) -> io::Result<()> {
        let give = |path: &Path| lchown(path, Some(user.uid), Some(user.gid));
        for entry in fs::read_dir(self.path())? {
            give(&entry?.path())?;
        }
        give(self.path())
    }
}

impl Drop for SocketDir {
    fn drop(&mut self) {
        // The next start removes the rest.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The runtime directories of systemd or the session, else the system's folder for temporary files.
fn runtime_dirs() -> impl Iterator<Item = PathBuf> {
    // systemd names several with colons between them.
    let first = |name| Some(PathBuf::from(std::env::var(name).ok()?.split(':').next()?));
    let given = ["RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"].into_iter().filter_map(first);
    let given = given.filter(|path| path.is_absolute());
    given.chain([PathBuf::from("/run/haulier"), std::env::temp_dir()])
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_place_that_takes_no_sockets_is_passed_over() {
        let place = tempfile::tempdir().expect("a directory");
        let file = place.path().join("file");
        fs::write(&file, "").expect("the directory is ours");
        let bases = [place.path().join("missing"), file, place.path().to_owned()];
        let directory = SocketDir::create_in(bases.into_iter()).expect("the last one takes it");
        assert_eq!(directory.path().parent(), Some(place.path()));
    }

    #[test]
    fn the_socket_directory_is_private_and_goes_with_its_owner() {
        let directory = SocketDir::create().expect("a writable temporary folder");
        let other = SocketDir::create().expect("a second one beside it");
        let path = directory.path().to_owned();
        assert_ne!(path, other.path());
        let mode = fs::metadata(&path).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        drop(directory);
        assert!(!path.exists());
    }
}
