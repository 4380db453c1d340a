//! The server: connections, sites, filters, handlers and sending.
//!
//! One process has a thread with an event loop for each core. A connection stays on its thread, so its state needs no
//! locks. Threads share the settings, the sites, the PHP pools and the access log.

mod settings;

pub mod access_log;
mod answer; // error pages and redirects
mod body; // request and response bodies on their way
mod clock;
mod compress; // coding of bodies
mod context; // a request whose site is known
mod files; // files of the document root
mod filter; // answers early, or adjusts a response
mod forwarded; // the client behind a proxy
mod handler; // makes a response
mod images; // the images of a site
mod io; // sockets, deadlines, buffers
mod listen; // bound addresses and accepted connections
pub mod local_time;
mod lock;
mod log_throttle; // one log line for many events
pub mod metrics; // counters, recent requests, Prometheus
mod password; // password files
pub mod pattern; // patterns of paths, targets and host names
mod pipeline; // the page that tells the story
mod protocol; // bytes ⇄ requests and responses
mod rate_limiter;
mod relay; // answers of back ends become responses
mod runtime; // one event loop for each core
mod site; // host → site
mod thread; // shared by all parts of one thread
pub mod tls; // certificates and handshakes

pub use compress::dictionary::DictionarySettings;
pub use compress::settings::{CompressLevel, CompressSettings, CompressTable, SiteCompressTable};
pub use compress::store::CompressedStore;
pub use files::{CHARSET, EntityTags, FileRows, FileSettings, ScriptSettings, SendfileSettings, is_script_source};
pub use handler::image::sign;
pub use images::{Compat, ImageSettings, ImageSite, ImagesTable, UploadTable};
pub use io::{Address, Limits, LimitsTable};
pub use listen::{BindError, InheritedSockets};
pub use password::{Htpasswd, HtpasswdError};
pub use rate_limiter::{Rate, RateLimiter};
pub use runtime::{RunningServer, Server, ServerHandle};
pub use settings::{ServerRows, ServerSettings, TlsSettings};
pub use site::{
    Canonical, FilterSettings, Login, Maintenance, MaintenanceTable, MountSettings, OffloadSettings, OffloadTable,
    PhpSettings, RedirectRule, RewriteRule, RouteSettings, RouteTable, SiteLimits, SiteRows, SiteSettings,
    SpoolSettings, WithoutTls, WorkerScript, send_token,
};
