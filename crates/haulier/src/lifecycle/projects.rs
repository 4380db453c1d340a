//! Projects that were recognised by a look at their files, looked at again while somebody works on them: PHP starts when
//! there is a script, and a framework is known when it is installed.

use std::path::PathBuf;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::running::blocking;
use crate::app::{self, App};
use crate::config::Settings;
use crate::config::settings::Site;

/// How often they are looked at. Something else counts as found when two looks saw the same: installers write one file
/// after the other.
const PACE: Duration = Duration::from_millis(500);
/// A look takes at most one part in so many of a processor: a folder may be large, and its disk slow.
const SHARE: u32 = 50;

/// The projects of one configuration.
#[derive(Debug)]
pub(super) struct Projects {
    /// Directories, and what is served of them.
    served: Vec<(PathBuf, App)>,
    /// What the last look found in place of that.
    seen: Found,
    /// What has led to a reload already, whatever came of it.
    tried: Found,
    next: Instant,
}

/// For each project what is to be served instead, if anything.
type Found = Vec<Option<App>>;

impl Projects {
    /// Those of sites that do not name their application, and where more may come; none if nobody works on them.
    pub(super) fn new(is_on: bool, settings: &Settings) -> Self {
        let sites = settings.sites.iter().flat_map(Site::places).filter(|_| is_on);
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

    /// Waits until there is something else to be served, and says where.
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

    /// The configuration was read again.
    pub(super) fn follow(&mut self, is_on: bool, settings: &Settings) {
        let now = Self::new(is_on, settings);
        if now.served != self.served {
            *self = now;
        }
    }
}

fn look(served: &[(PathBuf, App)]) -> Found {
    let look = |(directory, before): &(PathBuf, App)| {
        let found = app::detect(directory, app::AUTO).ok();
        found.filter(|found| found.supersedes(before))
    };
    served.iter().map(look).collect()
}
