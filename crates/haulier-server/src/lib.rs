//! The life of a request, module by module in the order a request meets them.
//!
//! One process, one thread and one event loop per core. A connection lives and dies on its thread, so its state needs
//! no locks; shared between threads are the settings, the sites, the PHP pools and the access log.

mod settings;

pub mod access_log;
mod answer; // error pages and redirects
mod body; // what is sent
mod clock;
mod compress; // coding of bodies
mod context; // a request whose site is known
mod files; // files of the document root
mod filter; // answers early, or adjusts a response
mod forwarded; // who the client is behind a proxy
mod handler; // makes a response
mod images; // the images of a site
mod io; // sockets, deadlines, buffers
mod listen; // accept
pub mod local_time;
pub mod metrics; // what was counted
mod password; // files of names and passwords
pub mod pattern; // of paths, targets and host names
mod pipeline; // the page that tells the story
mod protocol; // bytes ⇄ requests and responses
mod rate_limiter;
mod relay; // answers of back ends become responses
mod runtime; // one thread and one current_thread runtime per core
mod log_throttle;
mod site; // host → site
mod thread; // what all parts of one thread share
pub mod tls; // certificates, handshakes // log lines that stand for many

pub use compress::dictionary::DictionarySettings;
pub use compress::settings::{CompressLevel, CompressSettings};
pub use compress::store::VariantStore;
pub use files::{CHARSET, EntityTags, FileSettings, ScriptSettings, SendfileSettings, is_script_source};
pub use handler::image::sign;
pub use images::{Compat, ImageSettings, ImageSite};
pub use io::{Address, Limits};
pub use listen::{BindError, Inherited};
pub use password::{Htpasswd, HtpasswdError};
pub use rate_limiter::{Rate, RateLimiter};
pub use runtime::{RunningServer, Server, ServerHandle};
pub use settings::{ServerSettings, TlsSettings};
pub use site::{
    Canonical, FilterSettings, Login, Maintenance, MountSettings, OffloadSettings, PhpSettings, RedirectRule, RewriteRule,
    RouteSettings, SiteLimits, SiteSettings, SpoolSettings, WithoutTls, send_token,
};
