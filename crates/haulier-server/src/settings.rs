//! What the server needs to know, as plain values with their defaults. Nothing here knows of files or flags.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use haulier_http::{Network, Timeouts};
use haulier_php::Pool;

use crate::access_log::AccessLog;
pub use crate::compress::dictionary::DictionarySettings;
pub use crate::compress::settings::{CompressLevel, CompressSettings};
pub use crate::compress::store::VariantStore;
use crate::listen::Address;
use crate::pattern::glob::Glob;
use crate::pattern::target::Target;
use crate::tls::Acceptor;

pub use crate::handler::image::ImageService;
pub use crate::handler::image::settings::{Compat, ImageSettings, PATIENCE};

pub use crate::password::{Htpasswd, HtpasswdError};
pub use crate::rate_limiter::{Rate, RateLimiter};

/// A whole server: where it listens and what it serves.
#[derive(Debug)]
pub struct ServerSettings {
    /// Addresses to listen on; port 0 takes a free one.
    pub listen: Vec<Address>,
    /// Addresses whose connections begin with a TLS handshake; none without `tls`.
    pub listen_tls: Vec<Address>,
    /// How TLS is spoken.
    pub tls: Option<TlsSettings>,
    /// The port of the first of `listen_tls`, once it is bound: where clients without TLS are sent.
    pub https_port: Option<u16>,
    /// Permissions of Unix sockets, such as 0o660.
    pub socket_mode: u32,
    /// Proxies whose word about a client counts.
    pub trusted_proxies: Vec<Network>,
    /// Connections of those proxies begin with a PROXY header.
    pub proxy_protocol: bool,
    /// Speak HTTP/2 with clients that begin with it.
    pub http2: bool,
    /// Let a second haulier bind the same port.
    pub reuse_port: bool,
    /// TCP_DEFER_ACCEPT: the kernel hands a connection over when its first bytes are there.
    pub defer_accept: bool,
    /// Threads, each with its own event loop; the number of processors we may use.
    pub threads: usize,
    /// Files all threads together may hold open in their caches.
    pub open_files: usize,
    /// How long running requests may go on after a stop.
    pub grace: Duration,
    /// Limits that hold before a site is known.
    pub limits: Limits,
    /// Directory of the nameless files that hold request and response bodies; should not be a tmpfs.
    pub spool_dir: PathBuf,
    /// The sites, in the order of the configuration.
    pub sites: Vec<SiteSettings>,
}

/// How TLS is spoken.
#[derive(Debug, Clone)]
pub struct TlsSettings {
    /// Versions, ciphers and certificates.
    pub acceptor: Arc<Acceptor>,
    /// A client that speaks HTTP to a port of TLS is sent to the same port by `https://`; else it gets 400.
    pub redirects_plain: bool,
}

/// What a site with TLS gives to clients without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WithoutTls {
    /// The same as to all others.
    Everything,
    /// A redirect to `https://`, once there is a certificate for the name they used.
    Redirect,
    /// Never anything but the redirect, and not the site's Strict-Transport-Security (RFC 6797 §7.2).
    RedirectOnly,
}

/// Every limit and deadline of a connection and a request (`reliability.md` gives the reasons in docs/limits.md).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// From the first byte of a request head to its last; then 408.
    pub head_timeout: Duration,
    /// Longest time without a byte of the request body; then 408.
    pub body_timeout: Duration,
    /// Least rate of a request body after its first ten seconds, bytes a second.
    pub body_min_rate: u64,
    /// How long an idle connection is kept.
    pub idle_timeout: Duration,
    /// Longest time without progress while sending.
    pub send_timeout: Duration,
    /// Least rate at which a client takes what waits for it, bytes a second; 0 = no limit.
    pub min_send_rate: u64,
    /// What that rate is the average of: so much time in which something waited.
    pub send_rate_over: Duration,
    /// Request line, bytes; longer is 414.
    pub request_line: usize,
    /// Request head without its request line, bytes; longer is 431.
    pub header: usize,
    /// Field lines of a request; more is 431.
    pub header_fields: usize,
    /// Request body, bytes; longer is 413. A site may say otherwise.
    pub body: u64,
    /// Bytes all request bodies together may take on disk; then 503.
    pub body_spool: u64,
    /// Requests a connection may carry; 1 = no keep-alive.
    pub keepalive_requests: u32,
    /// Open connections; then idle ones are closed, and where there are none the rest waits in the kernel's queue.
    pub connections: usize,
    /// Open connections of one client address; 0 = no limit.
    pub connections_per_ip: u32,
    /// Whether that holds for this machine's own addresses and for Unix sockets as well, behind which proxies are that
    /// nobody has named.
    pub local_per_ip: bool,
    /// Streams of an HTTP/2 connection open at once; a further one is refused.
    pub h2_streams: u32,
    /// Bytes of a request body a stream may have under way unread.
    pub h2_stream_window: u32,
    /// The same for all streams of a connection: what uploads may hold in memory. At least 65,535.
    pub h2_connection_window: u32,
    /// Streams of a connection reset in a minute; more ends it.
    pub h2_resets: u32,
    /// Frames in a minute that carry nothing; more ends the connection.
    pub h2_control_frames: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(15),
            body_min_rate: 500,
            idle_timeout: Duration::from_secs(15),
            send_timeout: Duration::from_secs(30),
            min_send_rate: 100,
            send_rate_over: Duration::from_secs(60),
            request_line: 16 * 1024,
            header: 32 * 1024,
            header_fields: 100,
            body: 8 * 1024 * 1024,
            body_spool: 4 << 30,
            keepalive_requests: 1000,
            connections: usize::MAX,
            connections_per_ip: 512,
            local_per_ip: false,
            h2_streams: 100,
            h2_stream_window: 64 * 1024,
            h2_connection_window: 1024 * 1024,
            h2_resets: 200,
            h2_control_frames: 1000,
        }
    }
}

/// One site: a document root with its rules.
#[derive(Debug, Clone)]
pub struct SiteSettings {
    /// The name used in the configuration, logs and metrics.
    pub name: String,
    /// Host names it answers to, lower case, without port: `example.com`, `*.example.com`, or `*` for every host.
    pub hosts: Vec<String>,
    /// The document root, absolute.
    pub root: PathBuf,
    /// Names tried, in order, when a directory is asked for.
    pub index: Vec<String>,
    /// How PHP is run; `None` serves files only.
    pub php: Option<PhpSettings>,
    /// What clients without TLS get, where the site has TLS; `None` where it has not.
    pub without_tls: Option<WithoutTls>,
    /// Paths nobody gets, judged after decoding; answered 404. Beside them, dotfiles and backups never leave.
    pub deny: Vec<Glob>,
    /// Field lines set on every response.
    pub headers: Vec<(String, String)>,
    /// Path → where to send the client instead.
    pub redirects: Vec<Redirect>,
    /// Path → another path that answers; the first match wins.
    pub rewrites: Vec<Rewrite>,
    /// What holds for some paths only.
    pub routes: Vec<RouteSettings>,
    /// The name the site wants to be known by.
    pub canonical: Option<Canonical>,
    /// Status → path in the document root of the page shown with it: a file or a script.
    pub error_pages: Vec<(u16, String)>,
    /// How the site is closed for a while.
    pub maintenance: Option<Maintenance>,
    /// Requests of one client address; shared by sites that count together.
    pub requests_per_ip: Option<Arc<RateLimiter>>,
    /// Path → Cache-Control; the first match wins.
    pub cache: Vec<(Glob, String)>,
    /// Entity tags of files.
    pub etag: EntityTags,
    /// The charset that files of text name; `None` names none.
    pub charset: Option<String>,
    /// Show the contents of a directory without index (development only).
    pub listing: bool,
    /// Full error pages, `Cache-Control: no-cache`, `Server-Timing`.
    pub development: bool,
    /// The page for what is asked for and is no file, as a path in the document root (`/index.html`): applications that
    /// run in the browser find their way by the address. A front controller of PHP comes first.
    pub fallback: Option<String>,
    /// Longest request body, bytes; 413 beyond.
    pub body_limit: u64,
    /// Who says so: words for the log and for whoever works on the site.
    pub body_limit_by: &'static str,
    /// In place of the deadlines in [`Limits`]; `None` keeps those.
    pub timeouts: Option<Arc<Timeouts>>,
    /// Most bytes the long ones of all spooled responses of this site may take in memory.
    pub memory_limit: u64,
    /// Most bytes all spooled responses of this site may take on disk.
    pub spool_limit: u64,
    /// Which files its scripts may name for us to send.
    pub sendfile: SendfileSettings,
    /// Which bodies of scripts are taken off PHP and sent as files; `None` for none.
    pub offload: Option<OffloadSettings>,
    /// The access log of this site; `None` writes to the server's.
    pub log: Option<AccessLog>,
    /// How bodies are coded for the wire.
    pub compress: CompressSettings,
    /// Images: uploads, and variants of them and of files; `None` for none.
    pub images: Option<Arc<ImageService>>,
    /// What clients are told to keep, so that later answers are sent as what they have over it.
    pub dictionary: DictionarySettings,
    /// Where coded variants of files are kept; `None` keeps none.
    pub variants: Option<Arc<VariantStore>>,
}

/// How entity tags of files are made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EntityTags {
    /// Of size and time of modification.
    #[default]
    Stat,
    /// Of the content.
    Content,
    /// Not at all.
    Off,
}

/// The charset of text where a site says nothing.
pub const CHARSET: &str = "utf-8";

/// Files that scripts name and the server sends (X-Sendfile and its kin).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SendfileSettings {
    /// Directories such files may lie in. One that does not exist yet is looked for again.
    pub roots: Vec<PathBuf>,
    /// Prefix of an X-Accel-Redirect → directory. Without any, such a path is one in the document root.
    pub map: Vec<(String, PathBuf)>,
}

/// Bodies that scripts pass on, recognised by what they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OffloadSettings {
    /// Media types, lower case: `application/pdf`, or `video/*`.
    pub types: Vec<String>,
    /// Extensions without their dot, lower case, of the path asked for or of the name in Content-Disposition.
    pub extensions: Vec<String>,
    /// Shorter bodies are left alone, bytes.
    pub min_size: u64,
}

impl OffloadSettings {
    /// Whether a media type, in lower case and without parameters, is one of `types`.
    pub(crate) fn lists(&self, media_type: &[u8]) -> bool {
        self.types.iter().any(|listed| match listed.strip_suffix('*') {
            Some(prefix) => media_type.starts_with(prefix.as_bytes()),
            None => media_type == listed.as_bytes(),
        })
    }
}

/// How a site runs PHP.
#[derive(Debug, Clone)]
pub struct PhpSettings {
    /// The workers.
    pub pool: Arc<Pool>,
    /// The front controller as a path in the document root (`/index.php`): what is asked for and is no file goes
    /// there. `None` answers 404 instead.
    pub front: Option<String>,
    /// Scripts that may run, as paths in the document root; empty = all.
    pub scripts: Vec<Glob>,
    /// Scripts that never run, whatever `scripts` says (upload directories); answered 404.
    pub never: Vec<Glob>,
    /// Extensions of scripts, with their dot.
    pub extensions: Vec<String>,
    /// FastCGI parameters added to every request.
    pub params: Vec<(String, String)>,
    /// The document root as PHP sees it, where it runs on another machine.
    pub remote_root: Option<PathBuf>,
}

/// One line of `redirects`.
#[derive(Debug, Clone)]
pub struct Redirect {
    /// What is asked for: an exact path, or a prefix that ends in `*`.
    pub from: Glob,
    /// Path or URL.
    pub to: Target,
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
}

/// One line of `rewrites`.
#[derive(Debug, Clone)]
pub struct Rewrite {
    /// What is asked for.
    pub from: Glob,
    /// Path, with or without a query.
    pub to: Target,
}

/// One `[[site.NAME.route]]`.
#[derive(Debug, Clone)]
pub struct RouteSettings {
    /// The paths it is for.
    pub path: Glob,
    /// Another document root, or another pool.
    pub place: Option<PlaceSettings>,
    /// Nobody gets these paths; 404.
    pub deny: bool,
    /// Clients that get them, others 403; `None`: all.
    pub allow: Option<Vec<Network>>,
    /// Who is asked for a password.
    pub login: Option<Login>,
    /// Requests of one client address to these paths.
    pub rate: Option<Arc<RateLimiter>>,
}

impl RouteSettings {
    /// A route that says nothing yet.
    #[must_use]
    pub fn new(path: Glob) -> Self {
        Self {
            path,
            place: None,
            deny: false,
            allow: None,
            login: None,
            rate: None,
        }
    }
}

/// A site within a site.
#[derive(Debug, Clone)]
pub struct PlaceSettings {
    /// Its root and how it runs PHP; its hosts, routes and filters are not asked for.
    pub site: Box<SiteSettings>,
    /// What stands before its paths, without slash at the end: `/wiki`, or nothing.
    pub prefix: String,
}

/// Who may pass with a password.
#[derive(Debug, Clone)]
pub enum Login {
    /// Those in the file.
    Users(Arc<Htpasswd>),
    /// Nobody is asked, whatever a wider route says.
    Nobody,
}

/// The one name of a site with several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Canonical {
    /// Host name, lower case.
    pub host: String,
    /// `https://example.com` where scheme and port are said, else as the client came.
    pub origin: Option<String>,
}

/// How a site is closed for a while.
#[derive(Debug, Clone)]
pub struct Maintenance {
    /// The site is closed while this file exists.
    pub file: PathBuf,
    /// Path in the document root of the page shown.
    pub page: Option<String>,
    /// Clients for whom it stays open.
    pub allow: Vec<Network>,
    /// What Retry-After says, in whole seconds.
    pub retry_after: Duration,
}
