//! The settings of a whole configuration: defaults applied, names resolved, everything checked.
//!
//! `resolve` makes them of the tables of a file. Nothing behind it meets a raw string.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use haulier_http::Timeouts;
use haulier_php::{PoolSettings, User};
use haulier_server::pattern::glob::Glob;
use haulier_server::{
    Canonical, CompressSettings, DictionarySettings, EntityTags, Maintenance, OffloadSettings, RateLimiter,
    RedirectRule, RewriteRule, RouteSettings, SendfileSettings, ServerSettings, WithoutTls,
};
use haulier_settings::Placed;

use super::images::Images;
use crate::app::App;
use crate::certificates::Tls;
use crate::log::{LogSettings, SiteLog};
use crate::php_discovery::PhpCgi;

/// A whole configuration as meant.
#[derive(Debug)]
pub(crate) struct Settings {
    /// The file it was read from; filled in by whoever read it.
    pub(crate) config: Option<PathBuf>,
    /// What the server itself takes; pools, sites and certificates are added by `assemble`.
    pub(crate) server: ServerSettings,
    /// Encryption; `None` without.
    pub(crate) tls: Option<Tls>,
    /// Who serves once root has bound the sockets; `None` stays who we are.
    pub(crate) user: Option<User>,
    /// How long it serves on before a stop begins.
    pub(crate) lame_duck: Duration,
    /// Where metrics and health are told.
    pub(crate) admin: AdminAddress,
    /// Where balancers ask whether we live and are ready.
    pub(crate) probes: AdminAddress,
    /// Where `status` asks; `None` is the usual place.
    pub(crate) control: Option<PathBuf>,
    /// Most bytes of all compressed copies of files; 0 keeps none.
    pub(crate) variants: u64,
    /// What is logged.
    pub(crate) log: LogSettings,
    /// All pools some site uses.
    pub(crate) pools: Vec<Pool>,
    /// All sites.
    pub(crate) sites: Vec<Site>,
}

/// Where metrics and health are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AdminAddress {
    /// Nowhere.
    Off,
    Tcp(SocketAddr),
    /// A socket in the file system.
    Unix(PathBuf),
}

impl AdminAddress {
    /// The address, if it is one of the network.
    pub(crate) fn internet(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Off | Self::Unix(_) => None,
        }
    }
}

/// A pool, and what is known of its PHP.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    /// For the pool itself; the socket directory is filled in by `assemble`.
    pub(crate) settings: PoolSettings,
    /// The php-cgi of a supervised pool.
    pub(crate) php: Option<PhpCgi>,
    /// FastCGI parameters an external pool gets with each request.
    pub(crate) params: Vec<(String, String)>,
    /// The document root as an external pool sees it.
    pub(crate) remote_root: Option<PathBuf>,
}

impl Pool {
    /// PHP processes, or connections to those of others.
    pub(crate) fn workers(&self) -> usize {
        self.settings.kind.capacity()
    }
}

/// A site as meant.
#[derive(Debug, Clone)]
pub(crate) struct Site {
    pub(crate) name: String,
    pub(crate) hosts: Vec<String>,
    /// What was recognised there; its root is absolute.
    pub(crate) app: App,
    /// The project directory, if the application was recognised by looking into it; and as what.
    pub(crate) looked_at: Option<(PathBuf, App)>,
    /// What is to be said of a `.htaccess` in it.
    pub(crate) htaccess: Option<String>,
    /// Index into the pools; `None` serves files only.
    pub(crate) pool: Option<usize>,
    /// What answers for all that is no file: a script, or a page.
    pub(crate) front: Option<String>,
    /// Extensions of scripts, with their dot.
    pub(crate) extensions: Vec<String>,
    pub(crate) scripts: Vec<Glob>,
    pub(crate) never: Vec<Glob>,
    pub(crate) deny: Vec<Glob>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) redirects: Vec<RedirectRule>,
    pub(crate) cache: Vec<(Glob, String)>,
    pub(crate) etag: EntityTags,
    /// What text files say they are written in; `None` says nothing.
    pub(crate) charset: Option<String>,
    pub(crate) rewrites: Vec<RewriteRule>,
    pub(crate) canonical: Option<Canonical>,
    pub(crate) error_pages: Vec<(u16, String)>,
    pub(crate) maintenance: Option<Maintenance>,
    pub(crate) requests_per_ip: Option<Arc<RateLimiter>>,
    pub(crate) routes: Vec<Route>,
    pub(crate) body_limit: u64,
    /// Which setting it is, in words.
    pub(crate) body_limit_by: &'static str,
    /// Its own deadlines, if it says any.
    pub(crate) timeouts: Option<Arc<Timeouts>>,
    pub(crate) memory_limit: u64,
    pub(crate) spool_limit: u64,
    pub(crate) sendfile: SendfileSettings,
    pub(crate) offload: Option<OffloadSettings>,
    pub(crate) log: SiteLog,
    pub(crate) compress: CompressSettings,
    pub(crate) images: Option<Images>,
    /// It has no files: what its root says is nothing.
    pub(crate) is_rootless: bool,
    pub(crate) dictionary: DictionarySettings,
    /// What clients without TLS get; `None` where the site has no TLS.
    pub(crate) without_tls: Option<WithoutTls>,
}

/// A route as meant.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    /// All of it but the place.
    pub(crate) rules: RouteSettings,
    /// The pool it names.
    pub(crate) pool: Option<Placed<String>>,
    pub(crate) place: Option<Place>,
}

/// A site within a site: another root, or another pool.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) site: Box<Site>,
    /// What stands before its paths: `/wiki`, or nothing.
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

    /// The site itself and the places within it.
    pub(crate) fn places(&self) -> impl Iterator<Item = &Self> {
        let within = self.routes.iter().filter_map(|route| route.place.as_ref());
        std::iter::once(self).chain(within.map(|place| &*place.site))
    }

    /// The places within it, to be changed.
    pub(crate) fn places_within(&mut self) -> impl Iterator<Item = (&mut Self, Option<&Placed<String>>)> {
        self.routes.iter_mut().filter_map(|route| {
            let place = route.place.as_mut()?;
            Some((&mut *place.site, route.pool.as_ref()))
        })
    }

    /// Whether PHP answers for a part of it. Naming a front controller says that there is PHP to run.
    pub(crate) fn runs_php(&self) -> bool {
        self.app.preset.php || self.front_script().is_some()
    }

    /// The front controller, if it is a script and no page.
    pub(crate) fn front_script(&self) -> Option<&str> {
        let is_script = |front: &&str| self.extensions.iter().any(|extension| front.ends_with(extension));
        self.front.as_deref().filter(is_script)
    }
}

/// Who asks: `serve` keeps the caller as PHP's user, `run` leaves root behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Serve,
    Run,
}
