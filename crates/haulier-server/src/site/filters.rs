//! The part of a site that filters use: settings, and the state that outlives a request.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use haulier_http::Network;
use haulier_settings::settings_table;

use crate::clock::now;
use crate::rate_limiter::RateLimiter;

/// Settings of a site's filters.
#[derive(Debug, Clone, Default)]
pub struct FilterSettings {
    /// The response to clients without TLS; `None` if the site has no TLS.
    pub without_tls: Option<WithoutTls>,
    /// The canonical host of a site with several.
    pub canonical: Option<Canonical>,
    /// Field lines set on every response.
    pub headers: Vec<(String, String)>,
    /// Closing of the site for maintenance.
    pub maintenance: Option<Maintenance>,
    /// Limits the requests of one client address; sites may share it.
    pub requests_per_ip: Option<Arc<RateLimiter>>,
}

/// The response of a site with TLS to clients without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WithoutTls {
    /// The same as with TLS.
    Everything,
    /// A redirect to `https://`, once there is a certificate for the host.
    Redirect,
    /// Always the redirect, but never Strict-Transport-Security (RFC 6797 §7.2).
    RedirectOnly,
}

/// The canonical host of a site with several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Canonical {
    /// Host name, lower case.
    pub host: String,
    /// `https://example.com` if the setting names scheme and port; `None` keeps those of the request.
    pub origin: Option<String>,
}

settings_table! {
    /// `[site.NAME.maintenance]`
    pub struct MaintenanceTable = "site.NAME.maintenance" =>

    /// Closing of a site for maintenance.
    #[derive(Debug, Clone)]
    pub struct Maintenance {
        /// The site is closed while this file exists.
        file: PathBuf = PathBuf::new();
        /// Path of the page in the document root.
        page: Option<String> = None;
        /// Clients for which the site stays open.
        allow: Vec<Network> = Vec::new();
    }

    /// While this file exists the site answers 503 with Retry-After.
    file: Path else "required";
    /// Page in the document root to show meanwhile.
    page: Text else "a short page";
    /// Addresses and networks for which the site stays open.
    allow: Texts = [];
    /// Time after which clients should retry.
    retry_after: Deadline -> Duration = "5m";
}

/// Time between two checks for the file.
const FRESH: Duration = Duration::from_secs(1);

/// True if the file of `maintenance` exists. One of the threads checks at most once a second.
#[derive(Debug)]
pub(crate) struct MaintenanceSwitch {
    started: Instant,
    /// Time of the next check, milliseconds since `started`.
    check_at: AtomicU64,
    is_on: AtomicBool,
}

impl MaintenanceSwitch {
    pub(crate) fn new() -> Self {
        Self {
            started: now(),
            check_at: AtomicU64::new(0),
            is_on: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_on(&self, file: &Path, now: Instant) -> bool {
        let milliseconds = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let now = milliseconds(now.saturating_duration_since(self.started));
        let check_at = self.check_at.load(Ordering::Acquire);
        if now < check_at {
            return self.is_on.load(Ordering::Acquire);
        }
        let is_on = file.exists();
        self.is_on.store(is_on, Ordering::Release);
        self.check_at.store(now + milliseconds(FRESH), Ordering::Release);
        is_on
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_looked_for_once_a_second() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("maintenance");
        let switch = MaintenanceSwitch::new();
        let at = |milliseconds| switch.is_on(&file, switch.started + Duration::from_millis(milliseconds));
        assert!(!at(0));
        std::fs::write(&file, "").expect("a file");
        assert!(!at(999), "known to be off");
        assert!(at(1000));
        std::fs::remove_file(&file).expect("it is there");
        assert!(at(1500), "known to be on");
        assert!(!at(2000));
    }
}
