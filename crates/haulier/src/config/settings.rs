//! The settings of a whole configuration: defaults applied, names resolved, everything checked.
//!
//! `resolve` makes them of the tables of a file. Nothing behind it meets a raw string.

use std::net::SocketAddr;
use std::path::PathBuf;

use haulier_php::{PoolSettings, User};
use haulier_server::{PhpSettings, RouteSettings, ServerSettings, SiteSettings};
use haulier_settings::Placed;

use super::images::Images;
use super::tables::StopSettings;
use crate::app::App;
use crate::certificates::Tls;
use crate::log::{LogSettings, SiteLog};
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
    /// The php-cgi of a supervised pool.
    pub(crate) php: Option<PhpCgi>,
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
