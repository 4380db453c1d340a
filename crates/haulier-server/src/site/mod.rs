//! Sites: their hosts, their parts, and the rules for their paths.

mod filters;
mod php;
pub(crate) mod rewrite;
mod router;
mod routes;
mod settings;
#[allow(clippy::module_inception, reason = "the file of `Site`")]
mod site;

pub use filters::{Canonical, FilterSettings, Maintenance, MaintenanceTable, WithoutTls};
pub(crate) use php::SitePhp;
pub use php::{OffloadSettings, PhpSettings, WorkerScript, send_token};
pub(crate) use router::Router;
pub use routes::{Login, MountSettings, RouteSettings, RouteTable};
pub(crate) use routes::{Mount, PathRules, Routes};
pub use settings::{OffloadTable, RedirectRule, RewriteRule, SiteLimits, SiteRows, SiteSettings, SpoolSettings};
pub(crate) use site::{SharedParts, Site};
