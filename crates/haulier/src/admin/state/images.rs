//! The numbers of the image service of one site.

use std::collections::BTreeMap;

use haulier_server::metrics::{ImageTotals, SiteTotals};
use serde::{Deserialize, Serialize};

/// The image service of one site; its rate is of the last ten seconds, its shares of the last minute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ImageState {
    pub(crate) site: String,
    /// Share of images by origin, 0 to 1: a cache, `made`, `original` or `error`. Empty if there were no images.
    pub(crate) shares: BTreeMap<String, f64>,
    pub(crate) made_per_second: f64,
    pub(crate) made_total: u64,
    pub(crate) uploads_total: u64,
    /// Variants that were rendered but not kept: their image had its most variants already.
    pub(crate) unkept_total: u64,
    pub(crate) cache_failures_total: u64,
    pub(crate) memory_bytes: u64,
    /// Processes that make variants: those at work, and all there are.
    pub(crate) busy: usize,
    pub(crate) workers: usize,
    pub(crate) queued: usize,
    /// Processes that an image ended.
    pub(crate) crashes: u64,
    /// Mean time of each step of a variant since the start; without those that never ran.
    pub(crate) steps_ms: BTreeMap<String, f64>,
}

impl ImageState {
    /// Share of images that came from a cache, 0 to 1; `None` without any image.
    pub(crate) fn cached(&self) -> Option<f64> {
        let found = ["memory", "disk", "memcached", "redis"];
        (!self.shares.is_empty()).then(|| found.iter().filter_map(|name| self.shares.get(*name)).sum())
    }
}

/// Variants made.
pub(crate) fn made(site: &SiteTotals) -> u64 {
    let mut images = site.images();
    images
        .find(|(result, _)| *result == "made")
        .map_or(0, |(_, count)| count)
}

impl ImageState {
    /// The image service of a site now, compared with a minute ago.
    pub(crate) fn of(images: &ImageTotals, now: &SiteTotals, minute: &SiteTotals, made_per_second: f64) -> Self {
        let recent = now.images().zip(minute.images());
        let recent: Vec<_> = recent
            .map(|((result, now), (_, minute))| (result, now.saturating_sub(minute)))
            .filter(|(_, count)| *count > 0)
            .collect();
        let all: u64 = recent.iter().map(|(_, count)| count).sum();
        let steps = images.steps().filter(|(_, times)| times.count() > 0);
        Self {
            site: images.site.clone(),
            shares: recent
                .into_iter()
                .map(|(result, count)| (result.to_owned(), count as f64 / all as f64))
                .collect(),
            made_per_second,
            made_total: made(now),
            uploads_total: images.uploaded,
            unkept_total: images.unkept,
            cache_failures_total: images.cache_failures(),
            memory_bytes: images.in_memory,
            busy: images.workers.busy,
            workers: images.workers.busy + images.workers.idle,
            queued: images.workers.waiting,
            crashes: images.workers.crashed,
            steps_ms: steps
                .map(|(step, times)| (step.to_owned(), times.sum.as_secs_f64() * 1000.0 / times.count() as f64))
                .collect(),
        }
    }
}
