//! Sites whose script stays booted, followed when a deployment makes a symbolic link of theirs point elsewhere.
//!
//! The new release boots first; the site with its files stays in the old one until it has.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::serving_process::blocking;
use crate::config::Settings;
use crate::config::settings::Site;

/// Interval for checking the links.
const PACE: Duration = Duration::from_millis(250);
/// Pauses before a release that did not boot is tried again: the first, doubled each time up to the last.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LAST_PAUSE: Duration = Duration::from_secs(60);

/// Paths that may contain links, each with the file or directory that it leads to.
pub(super) type Targets = BTreeMap<PathBuf, PathBuf>;

/// The links of one configuration.
#[derive(Debug)]
pub(super) struct Deployments {
    /// Document roots and scripts of sites with a script that stays booted, as they are served.
    served: Targets,
    /// A release that did not boot, with the time of the next try and the pause before it.
    failed: Option<(Targets, Instant, Duration)>,
    next: Instant,
}

impl Deployments {
    pub(super) fn new(settings: &Settings) -> Self {
        let sites = settings.sites.iter().flat_map(Site::mounts);
        let booted = sites.filter_map(|site| Some([site.app.root.clone(), site.worker.as_ref()?.file.clone()]));
        Self {
            served: targets(booted.flatten()),
            failed: None,
            next: Instant::now() + PACE,
        }
    }

    /// Waits until a link points elsewhere, and returns what all of them lead to.
    pub(super) async fn moved(&mut self) -> Targets {
        if self.served.is_empty() {
            return std::future::pending().await;
        }
        loop {
            sleep_until(self.next).await;
            let links: Vec<PathBuf> = self.served.keys().cloned().collect();
            let found = blocking(move || targets(links.into_iter())).await;
            self.next = Instant::now() + PACE;
            // A link that is being made again leads nowhere for a moment.
            let is_whole = found.len() == self.served.len();
            let waits = |(failed, until, _): &(Targets, Instant, Duration)| *failed == found && *until > Instant::now();
            if is_whole && found != self.served && !self.failed.as_ref().is_some_and(waits) {
                return found;
            }
        }
    }

    /// The directory by which the release of these targets differs from the one that is served: `/srv/app/releases/7`.
    pub(super) fn release(&self, after: &Targets) -> PathBuf {
        release(&self.served, after)
    }

    /// Notes that these targets are served, or that they did not boot.
    pub(super) fn note(&mut self, found: Targets, is_served: bool) {
        if is_served {
            self.served = found;
            self.failed = None;
            return;
        }
        let before = self.failed.take().filter(|(failed, ..)| *failed == found);
        let pause = before.map_or(FIRST_PAUSE, |(_, _, pause)| (pause * 2).min(LAST_PAUSE));
        self.failed = Some((found, Instant::now() + pause, pause));
    }

    /// Adopts the sites of a configuration that was read anew.
    pub(super) fn follow(&mut self, settings: &Settings) {
        let now = Self::new(settings);
        if !now.served.keys().eq(self.served.keys()) {
            *self = now;
        }
    }
}

fn targets(paths: impl Iterator<Item = PathBuf>) -> Targets {
    paths
        .filter_map(|path| Some((path.canonicalize().ok()?, path)))
        .map(|(target, path)| (path, target))
        .collect()
}

fn release(before: &Targets, after: &Targets) -> PathBuf {
    let pair = after
        .iter()
        .find_map(|(path, target)| Some((before.get(path).filter(|old| *old != target)?, target)));
    let Some((old, new)) = pair else { return PathBuf::new() };
    let shared = old
        .components()
        .rev()
        .zip(new.components().rev())
        .take_while(|(old, new)| old == new)
        .count();
    let parts: Vec<_> = new.components().collect();
    parts[..parts.len() - shared.min(parts.len())].iter().collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_release_is_named_by_the_directory_that_is_another() {
        let at = |target: &str| Targets::from([(PathBuf::from("/srv/current/public"), PathBuf::from(target))]);
        let (old, new) = (at("/srv/releases/6/public"), at("/srv/releases/7/public"));
        assert_eq!(release(&old, &new), Path::new("/srv/releases/7"));
        assert_eq!(release(&new, &new), Path::new(""));
    }
}
