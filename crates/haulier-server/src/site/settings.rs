//! Settings of a site. Each part has a struct with its defaults, most in their own modules.

use std::sync::Arc;

use haulier_http::Timeouts;
use haulier_settings::settings_table;

use super::filters::FilterSettings;
use super::php::PhpSettings;
use super::routes::RouteSettings;
use crate::access_log::AccessLog;
use crate::compress::dictionary::DictionarySettings;
use crate::compress::settings::CompressSettings;
use crate::files::FileSettings;
use crate::images::ImageSite;
use crate::pattern::glob::Glob;
use crate::pattern::target::Target;

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
