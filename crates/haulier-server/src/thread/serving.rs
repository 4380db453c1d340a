//! State that a reload replaces: settings, sites, log and counters.

use std::sync::Arc;

use crate::access_log::AccessLog;
use crate::metrics::Counters;
use crate::settings::ServerSettings;
use crate::site::Router;

/// The settings, sites, log and counters of a thread. A reload replaces them as a whole; a request keeps those it began
/// with.
#[derive(Debug)]
pub(crate) struct Serving {
    pub(crate) settings: Arc<ServerSettings>,
    pub(crate) router: Arc<Router>,
    /// The log of the server; a site may have its own.
    pub(crate) log: AccessLog,
    /// This thread's share of the metrics.
    pub(crate) counters: Arc<Counters>,
}

impl Serving {
    /// Most files that each thread holds open: requested by clients, and handed off by scripts.
    pub(super) fn open_files(&self) -> (usize, usize) {
        let all = (self.settings.open_files / self.settings.threads.max(1)).max(16);
        (all - all / 4, all / 4)
    }
}
