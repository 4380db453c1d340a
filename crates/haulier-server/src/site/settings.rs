//! Settings of a site. Each part has a struct with its defaults, most in their own modules.

use std::sync::Arc;

use haulier_http::{Network, Timeouts};

use super::filters::FilterSettings;
use super::php::PhpSettings;
use crate::access_log::AccessLog;
use crate::compress::dictionary::DictionarySettings;
use crate::compress::settings::CompressSettings;
use crate::files::FileSettings;
use crate::images::ImageSite;
use crate::password::Htpasswd;
use crate::pattern::glob::Glob;
use crate::pattern::target::Target;
use crate::rate_limiter::RateLimiter;

/// One site: its names, its parts, and rules for its paths.
#[derive(Debug, Clone, Default)]
pub struct SiteSettings {
    /// The name used in the configuration, logs and metrics.
    pub name: String,
    /// Host names, lower case, without port: `example.com`, `*.example.com`, or `*` for every host.
    pub hosts: Vec<String>,
    /// Show full error pages, and send `Cache-Control: no-cache` and `Server-Timing`.
    pub development: bool,
    /// Limits and timeouts of its requests.
    pub limits: SiteLimits,
    /// The document root and its files.
    pub files: FileSettings,
    /// PHP; `None` serves files only.
    pub php: Option<PhpSettings>,
    /// The image service; `None` without images.
    pub images: Option<Arc<ImageSite>>,
    /// Coding of bodies.
    pub compress: CompressSettings,
    /// Compression dictionaries of files and pages.
    pub dictionary: DictionarySettings,
    /// Budgets of spooled responses.
    pub spool: SpoolSettings,
    /// The filters.
    pub filters: FilterSettings,
    /// Redirects of clients by path.
    pub redirects: Vec<RedirectRule>,
    /// Internal rewrites by path; the first match counts.
    pub rewrites: Vec<RewriteRule>,
    /// Rules for some paths.
    pub routes: Vec<RouteSettings>,
    /// Status → path of its page in the document root: a file or a script.
    pub error_pages: Vec<(u16, String)>,
    /// The access log of this site; `None` for the server's.
    pub log: Option<AccessLog>,
}

/// Limits and timeouts of the requests of a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteLimits {
    /// Longest request body, bytes; 413 beyond.
    pub body: u64,
    /// The setting that `body` comes from, for the log and for error pages in development.
    pub body_setting: &'static str,
    /// Replaces the timeouts of the server.
    pub timeouts: Option<Arc<Timeouts>>,
}

impl Default for SiteLimits {
    fn default() -> Self {
        Self {
            body: 8 * 1024 * 1024,
            body_setting: "`body` in `[limits]`",
            timeouts: None,
        }
    }
}

/// Budgets of all spooled responses of a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpoolSettings {
    /// Bytes of long bodies in memory.
    pub memory: u64,
    /// Bytes on disk.
    pub disk: u64,
}

impl Default for SpoolSettings {
    fn default() -> Self {
        Self {
            memory: 128 << 20,
            disk: 2 << 30,
        }
    }
}

/// A line of `redirects`.
#[derive(Debug, Clone)]
pub struct RedirectRule {
    /// An exact path, or a prefix that ends in `*`.
    pub from: Glob,
    /// A path or a URL.
    pub to: Target,
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
}

/// A line of `rewrites`.
#[derive(Debug, Clone)]
pub struct RewriteRule {
    /// The requested path.
    pub from: Glob,
    /// A path, with or without a query.
    pub to: Target,
}

/// A `[[site.NAME.route]]`.
#[derive(Debug, Clone)]
pub struct RouteSettings {
    /// The paths of the route.
    pub path: Glob,
    /// Another document root, or another pool.
    pub mount: Option<MountSettings>,
    /// Answers 404.
    pub deny: bool,
    /// Clients that may request these paths; others get 403. `None` allows all.
    pub allow: Option<Vec<Network>>,
    /// The required passwords.
    pub login: Option<Login>,
    /// Limits the requests of one client address to these paths.
    pub rate: Option<Arc<RateLimiter>>,
}

impl RouteSettings {
    /// A route without rules.
    #[must_use]
    pub fn new(path: Glob) -> Self {
        Self {
            path,
            mount: None,
            deny: false,
            allow: None,
            login: None,
            rate: None,
        }
    }
}

/// A mounted site.
#[derive(Debug, Clone)]
pub struct MountSettings {
    /// Its files and PHP; its hosts, routes and filters are not used.
    pub site: Box<SiteSettings>,
    /// The path of the mount without slash at the end: `/wiki`, or empty.
    pub prefix: String,
}

/// Passwords of a route.
#[derive(Debug, Clone)]
pub enum Login {
    /// The users of a password file.
    Users(Arc<Htpasswd>),
    /// No password, even if a wider route requires one.
    Off,
}
