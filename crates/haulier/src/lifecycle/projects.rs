//! Projects whose application was detected, detected again while a developer works on them: PHP starts with the first
//! script, and a framework is known once it is installed.

use std::path::PathBuf;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::serving_process::blocking;
use crate::app::{self, App};
use crate::config::Settings;
use crate::config::settings::Site;

/// Interval of detection. A change counts once two detections agree: installers write one file after the other.
const PACE: Duration = Duration::from_millis(500);
/// Detection uses at most one part in this many of a processor: a folder may be large, and its disk slow.
const SHARE: u32 = 50;

/// The projects of one configuration.
#[derive(Debug)]
pub(super) struct Projects {
    /// Directories with the application that is served.
    served: Vec<(PathBuf, App)>,
    /// Result of the last detection.
    seen: Detections,
    /// Result that led to a reload already, successful or not.
    tried: Detections,
    next: Instant,
}

/// The new application of each project, if it changed.
type Detections = Vec<Option<App>>;

impl Projects {
    /// The projects whose application is detected and may still change; none unless `is_on`.
    pub(super) fn new(is_on: bool, settings: &Settings) -> Self {
        let sites = settings.sites.iter().flat_map(Site::mounts).filter(|_| is_on);
        let looked_at = sites.filter_map(|site| site.looked_at.clone());
        let served: Vec<_> = looked_at.filter(|(_, app)| app.is_provisional()).collect();
        let nothing = vec![None; served.len()];
        Self {
            served,
            seen: nothing.clone(),
            tried: nothing,
            next: Instant::now() + PACE,
        }
    }

    /// Waits until the application of a project changes, and returns its directory.
    pub(super) async fn changed(&mut self) -> PathBuf {
        if self.served.is_empty() {
            return std::future::pending().await;
        }
        loop {
            sleep_until(self.next).await;
            let begun = Instant::now();
            let served = self.served.clone();
            let found = blocking(move || look(&served)).await;
            self.next = Instant::now() + PACE.max(begun.elapsed() * SHARE);
            let before = std::mem::replace(&mut self.seen, found);
            if self.seen != before || self.seen == self.tried {
                continue;
            }
            self.tried.clone_from(&self.seen);
            if let Some(number) = self.seen.iter().position(Option::is_some) {
                return self.served[number].0.clone();
            }
        }
    }

    /// Adopts the projects of a new configuration.
    pub(super) fn follow(&mut self, is_on: bool, settings: &Settings) {
        let now = Self::new(is_on, settings);
        if now.served != self.served {
            *self = now;
        }
    }
}

fn look(served: &[(PathBuf, App)]) -> Detections {
    let look = |(directory, before): &(PathBuf, App)| {
        let found = app::detect(directory, app::AUTO).ok();
        found.filter(|found| found.supersedes(before))
    };
    served.iter().map(look).collect()
}
