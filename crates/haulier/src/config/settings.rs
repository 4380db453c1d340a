//! The settings of a whole configuration: defaults applied, names resolved, everything checked.
//!
//! `resolve` makes them of the tables of a file. Nothing behind it meets a raw string.

use std::net::SocketAddr;
use std::path::PathBuf;

use haulier_php::{PoolSettings, Supervised, User};
use haulier_server::{PhpSettings, RouteSettings, ServerSettings, SiteSettings};
use haulier_settings::{Placed, SourcePlace};

use super::images::Images;
use super::tables::StopSettings;
use crate::app::App;
use crate::app::stays_booted::BootableScript;
use crate::certificates::Tls;
use crate::log::{LogSettings, SiteLog};
use crate::own_workers::NoOwnWorkers;
use crate::php_discovery::PhpCgi;

/// The settings of a process.
#[derive(Debug)]
pub(crate) struct Settings {
    /// The file it was read from; the reader of the file sets it.
    pub(crate) config: Option<PathBuf>,
    /// For the server; `assemble` adds pools, sites and certificates.
    pub(crate) server: ServerSettings,
    /// TLS; `None` if no site has it.
    pub(crate) tls: Option<Tls>,
    /// The account that serves after root has bound the sockets; `None` keeps ours.
    pub(crate) user: Option<User>,
    /// The end of the process.
    pub(crate) stop: StopSettings,
    /// Address of metrics and health.
    pub(crate) admin: AdminAddress,
    /// Address of the probes of balancers.
    pub(crate) probes: AdminAddress,
    /// The control socket; `None` is the default path.
    pub(crate) control: Option<PathBuf>,
    /// Most bytes of all compressed copies of files; 0 keeps none.
    pub(crate) variants: u64,
    /// The logs.
    pub(crate) log: LogSettings,
    /// The pools that sites use.
    pub(crate) pools: Vec<Pool>,
    /// All sites.
    pub(crate) sites: Vec<Site>,
}

/// An address for reports about the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AdminAddress {
    /// None.
    Off,
    Tcp(SocketAddr),
    /// A socket in the file system.
    Unix(PathBuf),
}

impl AdminAddress {
    /// The address, if it is a port.
    pub(crate) fn internet(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Off | Self::Unix(_) => None,
        }
    }
}

/// A pool with its PHP.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    /// For the pool itself; the socket directory is filled in by `assemble`.
    pub(crate) settings: PoolSettings,
    /// The table that describes it; pools of a script that stays booted share it.
    pub(crate) table: String,
    /// The php-cgi of a supervised pool.
    pub(crate) php: Option<PhpCgi>,
    /// Why `run = "auto"` is php-cgi's own loop here.
    pub(crate) no_own_workers: Option<NoOwnWorkers>,
    /// FastCGI parameters of each request to an external pool.
    pub(crate) params: Vec<(String, String)>,
    /// The document root on the machine of an external pool.
    pub(crate) remote_root: Option<PathBuf>,
}

impl Pool {
    /// Number of PHP processes, or of connections to external ones.
    pub(crate) fn workers(&self) -> usize {
        self.settings.kind.capacity()
    }

    /// True if its workers boot a script before they take requests.
    pub(crate) fn boots_script(&self) -> bool {
        self.settings.kind.supervised().is_some_and(Supervised::boots_script)
    }

    /// The program that takes requests in PHP's processes, if haulier runs them: `embed` or `cgi`, as `run` has it.
    pub(crate) fn run(&self) -> Option<&'static str> {
        let own = self.settings.kind.supervised()?;
        Some(if own.embedded.is_some() { "embed" } else { "cgi" })
    }

    /// One of its workers in words; a pool that another program runs has connections.
    pub(crate) fn worker_kind(&self) -> &'static str {
        match self.run() {
            Some("cgi") => "php-cgi worker",
            Some(_) if self.boots_script() => "booted worker",
            Some(_) => "haulier worker",
            None => "connection",
        }
    }

    /// `pool php: php-cgi takes requests itself, since …`, where `run = "auto"` could not take our own workers.
    pub(crate) fn remark(&self) -> Option<String> {
        let why = self.no_own_workers.as_ref()?;
        Some(format!(
            "pool {}: php-cgi takes requests itself, since {why}",
            self.settings.name
        ))
    }
}

/// A resolved site.
#[derive(Debug, Clone)]
pub(crate) struct Site {
    /// For the server; `assemble` adds PHP, routes, images and the log.
    pub(crate) settings: SiteSettings,
    /// The application, with its absolute root.
    pub(crate) app: App,
    /// The project directory and its application, if the application was detected there.
    pub(crate) looked_at: Option<(PathBuf, App)>,
    /// A remark on a `.htaccess` in the project.
    pub(crate) htaccess: Option<String>,
    /// The script or page that answers for every path without a file.
    pub(crate) front: Option<String>,
    /// The project directory; `None` without a usable one.
    pub(crate) project: Option<PathBuf>,
    /// The script that is made to stay booted, whether it does or not.
    pub(crate) bootable: Option<BootableScript>,
    /// The script that stays booted.
    pub(crate) worker: Option<BootedScript>,
    /// Index of its pool; `None` serves files only.
    pub(crate) pool: Option<usize>,
    /// For its PHP; `assemble` adds the pool and its parameters.
    pub(crate) php: PhpSettings,
    /// Its routes.
    pub(crate) routes: Vec<Route>,
    /// Its access log.
    pub(crate) log: SiteLog,
    /// Its image service.
    pub(crate) images: Option<Images>,
    /// The site has no files: its root means nothing.
    pub(crate) is_rootless: bool,
}

/// A script that stays booted and takes one request after the other.
#[derive(Debug, Clone)]
pub(crate) struct BootedScript {
    /// The file, absolute. A symbolic link in it stays one: deployments make it point elsewhere.
    pub(crate) file: PathBuf,
    /// Its place in the configuration.
    pub(crate) place: Option<SourcePlace>,
    /// Further environment of its workers.
    pub(crate) env: Vec<(String, String)>,
    /// If its workers cannot run, the site does without; otherwise that is an error.
    pub(crate) is_optional: bool,
}

/// A resolved route.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    /// All of it but the mount.
    pub(crate) rules: RouteSettings,
    /// The pool that it names.
    pub(crate) pool: Option<Placed<String>>,
    /// Another root, or another pool.
    pub(crate) mount: Option<Mount>,
}

/// A site within a site: another root, or another pool.
#[derive(Debug, Clone)]
pub(crate) struct Mount {
    pub(crate) site: Box<Site>,
    /// The prefix of its paths: `/wiki`, or nothing.
    pub(crate) prefix: String,
}

impl Site {
    /// `Images in /srv/images`, for a site that has no files.
    pub(crate) fn images_alone(&self) -> Option<String> {
        if !self.is_rootless {
            return None;
        }
        Some(match self.images.as_ref().and_then(|images| images.store.as_ref()) {
            Some(store) => format!("Images in {}", store.location),
            None => "Images".to_owned(),
        })
    }

    /// A line about the script that is made to stay booted: `public/index.php is made to stay booted (…)`.
    pub(crate) fn booted_remark(&self, mode: Mode, pools: &[Pool]) -> Option<String> {
        let found = self.bootable.as_ref()?;
        let project = self.project.as_ref();
        let script = project.and_then(|project| found.file.strip_prefix(project).ok());
        let script = script.unwrap_or(&found.file).display();
        let by = &found.by;
        let why = self
            .pool
            .and_then(|pool| pools[pool].php.as_ref()?.own_workers.as_ref().err());
        Some(match (&self.worker, mode, why) {
            (Some(_), Mode::Serve, _) => {
                format!("{script} stays booted ({by}); --no-worker boots it for each request.")
            }
            (Some(_), Mode::Run, _) => return None,
            (None, _, Some(why)) => format!("{script} could stay booted ({by}), but {why}"),
            (None, Mode::Serve, None) => format!("{script} could stay booted ({by}): --worker keeps it."),
            (None, Mode::Run, None) => {
                let name = &self.settings.name;
                format!("site {name}: {script} could stay booted ({by}): set `worker` to it")
            }
        })
    }

    /// The site itself and the sites mounted in it.
    pub(crate) fn mounts(&self) -> impl Iterator<Item = &Self> {
        let mounted = self.routes.iter().filter_map(|route| route.mount.as_ref());
        std::iter::once(self).chain(mounted.map(|mount| &*mount.site))
    }

    /// The sites mounted in it, each with the pool that its route names.
    pub(crate) fn mounted_mut(&mut self) -> impl Iterator<Item = (&mut Self, Option<&Placed<String>>)> {
        self.routes.iter_mut().filter_map(|route| {
            let mount = route.mount.as_mut()?;
            Some((&mut *mount.site, route.pool.as_ref()))
        })
    }

    /// True if PHP answers for a part of it. A front controller is a script that needs PHP.
    pub(crate) fn runs_php(&self) -> bool {
        self.app.preset.php || self.front_script().is_some()
    }

    /// The front controller, if it is a script and no page.
    pub(crate) fn front_script(&self) -> Option<&str> {
        let is_script = |front: &&str| {
            self.php
                .scripts
                .extensions
                .iter()
                .any(|extension| front.ends_with(extension))
        };
        self.front.as_deref().filter(is_script)
    }
}

/// The command: `serve` keeps the caller as PHP's user, `run` leaves root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Serve,
    Run,
}
