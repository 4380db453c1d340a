//! Settings of a site. Each part has a struct with its defaults, most in their own modules.

use std::sync::Arc;

use haulier_http::{Network, Timeouts};
use haulier_settings::settings_table;

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

settings_table! {
    /// The rows of `[site.NAME]` about paths and responses.
    pub struct SiteRows = "site.NAME" =>

    /// One site: its names, its parts, and rules for its paths.
    #[derive(Debug, Clone)]
    pub struct SiteSettings {
        /// The name used in the configuration, logs and metrics.
        name: String = String::new();
        /// Host names, lower case, without port: `example.com`, `*.example.com`, or `*` for every host.
        hosts: Vec<String> = Vec::new();
        /// Show full error pages, and send `Cache-Control: no-cache` and `Server-Timing`.
        development: bool = false;
        /// Limits and timeouts of its requests.
        limits: SiteLimits = SiteLimits::default();
        /// The document root and its files.
        files: FileSettings = FileSettings::default();
        /// PHP; `None` serves files only.
        php: Option<PhpSettings> = None;
        /// The image service; `None` without images.
        images: Option<Arc<ImageSite>> = None;
        /// Coding of bodies.
        compress: CompressSettings = CompressSettings::default();
        /// Compression dictionaries of files and pages.
        dictionary: DictionarySettings = DictionarySettings::default();
        /// Budgets of spooled responses.
        spool: SpoolSettings = SpoolSettings::default();
        /// The filters.
        filters: FilterSettings = FilterSettings::default();
        /// Redirects of clients by path.
        redirects: Vec<RedirectRule> = Vec::new();
        /// Internal rewrites by path; the first match counts.
        rewrites: Vec<RewriteRule> = Vec::new();
        /// Rules for some paths.
        routes: Vec<RouteSettings> = Vec::new();
        /// Status → path of its page in the document root: a file or a script.
        error_pages: Vec<(u16, String)> = Vec::new();
        /// The access log of this site; `None` for the server's.
        log: Option<AccessLog> = None;
    }

    /// One of `hosts`, to which clients are redirected, or its whole origin: `"https://example.com"`.
    canonical: Text else "none";
    /// Extensions of its scripts. Other files that look like PHP are neither run nor sent.
    script_extensions: Texts = [".php"];
    /// Field lines set on every response.
    headers: Pairs = {};
    /// Path → path or URL, such as `"/old/*" = "/new/*"`, or `"302 /new"`.
    redirects: Pairs = {};
    /// Path → path that answers without a redirect, such as `"/wiki/*" = "/index.php?title=*"`.
    rewrites: Pairs = {};
    /// Status → page in the document root, a file or a script: `404 = "/404.html"`.
    errors: Pairs = {};
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

settings_table! {
    /// `[site.NAME.offload]`
    pub struct OffloadTable = "site.NAME.offload" =>

    /// Most bytes that the responses of a site hold while they wait for their clients.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct SpoolSettings {}

    /// Media types of bodies that are taken off PHP, such as `video/*`.
    types: Texts else "none";
    /// The same by extension of the path, or of the name in Content-Disposition.
    extensions: Texts else "none";
    /// Shorter bodies are not taken.
    min_size: Size(0) = "64KiB";
    /// Most bytes of long bodies of the site in memory, mostly in kernel pipes, before they go to `spool_dir`; `"0B"`
    /// for none.
    memory: Size(0) -> u64 = "128MiB";
    /// Most bytes of all bodies of the site in `spool_dir`; beyond it PHP waits for its clients.
    disk as "spool": Size(0) -> u64 = "2GiB";
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

settings_table! {
    /// `[[site.NAME.route]]`
    pub struct RouteTable = "site.NAME.route" =>

    /// One `[[site.NAME.route]]`.
    #[derive(Debug, Clone)]
    pub struct RouteSettings {
        /// The paths of the route.
        path: Glob = Glob::new("/*").expect("a pattern");
        /// Another document root, or another pool.
        mount: Option<MountSettings> = None;
        /// Clients that may request these paths; others get 403. `None` allows all.
        allow: Option<Vec<Network>> = None;
        /// The required passwords.
        login: Option<Login> = None;
        /// Limits the requests of one client address to these paths.
        rate: Option<Arc<RateLimiter>> = None;
    }

    /// Pattern of its paths.
    path: Text else "required";
    /// The pool that runs PHP for them.
    pool: Text else "that of the site";
    /// Another project for `/prefix/*`; its paths begin after the prefix.
    root: Path else "that of the site";
    /// Application of that project.
    app: Text else "found, as for a site";
    /// Its front controller, or its page for missing files.
    front: Text else "as `app` says";
    /// Denies these paths to all clients; 404.
    deny: Flag -> bool = false;
    /// Addresses and networks that may request them; 403 for others.
    allow: Texts else "everybody";
    /// Password file in the format of `htpasswd`; `"off"` if a wider route has one.
    basic_auth: Path else "none";
    /// Requests of one client address to these paths: `"5/m"`; 429 beyond.
    rate: Rate else "none";
}

impl RouteSettings {
    /// A route without rules.
    #[must_use]
    pub fn new(path: Glob) -> Self {
        Self {
            path,
            ..Self::default()
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
