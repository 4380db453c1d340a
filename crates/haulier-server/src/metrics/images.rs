//! Metrics of the image services: origin of images, rendering times, caches.

use std::fmt::Error;
use std::sync::Arc;

use haulier_image::WorkersStatus;
use haulier_store::cache::TierStatus;
use prometheus_client::encoding::DescriptorEncoder;

use super::prometheus::{add, counter, gauge, histogram, observe, set};
use super::{DurationHistogram, Metrics, SiteTotals, Totals};
use crate::images::{ImageSite, RenderStep};

/// Counts of the image service of one site, apart from its requests ([`SiteTotals::images`]).
#[derive(Debug)]
pub struct ImageTotals {
    /// Name of the site.
    pub site: String,
    /// Images uploaded.
    pub uploaded: u64,
    /// Variants that were rendered and not kept: the budget of their image was used up.
    pub unkept: u64,
    /// Variants that were rendered in the background.
    pub in_background: u64,
    /// Bytes of the images in memory.
    pub in_memory: u64,
    /// Status of the worker processes; sites with the same settings share them.
    pub workers: WorkersStatus,
    steps: [DurationHistogram; RenderStep::ALL.len()],
    tiers: Vec<TierStatus>,
}

impl ImageTotals {
    /// The steps of rendering, with their times.
    pub fn steps(&self) -> impl Iterator<Item = (&'static str, &DurationHistogram)> {
        RenderStep::ALL.iter().map(|step| step.as_str()).zip(&self.steps)
    }

    /// Calls to a cache that failed.
    #[must_use]
    pub fn cache_failures(&self) -> u64 {
        self.tiers.iter().map(|tier| tier.failures).sum()
    }
}

/// The totals of all sites that serve images.
pub(super) fn take(metrics: &Metrics) -> Vec<ImageTotals> {
    let read = |(site, images): (String, Arc<ImageSite>)| {
        let service = images.service();
        ImageTotals {
            site,
            steps: images.step_times().map(DurationHistogram::from),
            uploaded: service.uploaded(),
            unkept: service.unkept(),
            in_background: service.background().rendered(),
            in_memory: service.memory(),
            tiers: service.tiers(),
            workers: service.workers(),
        }
    };
    metrics.images().into_iter().map(read).collect()
}

fn totals_of<'t>(reading: &ImageTotals, totals: &'t Totals) -> Option<&'t SiteTotals> {
    let mut sites = totals.sites.iter();
    sites.find(|(name, _)| *name == reading.site).map(|(_, totals)| totals)
}

pub(super) fn encode(
    encoder: &mut DescriptorEncoder<'_>,
    readings: &[ImageTotals],
    totals: &Totals,
) -> Result<(), Error> {
    let help = "Requests for images, by origin of the image; a 304 needs none.";
    let mut metric = counter(encoder, "haulier_image_requests", help)?;
    for reading in readings {
        for (result, count) in totals_of(reading, totals).into_iter().flat_map(SiteTotals::images) {
            add(&mut metric, &[("site", &reading.site), ("result", result)], count)?;
        }
    }
    let help = "Duration of each step of rendering a variant.";
    let mut metric = histogram(encoder, "haulier_image_duration_seconds", help)?;
    for reading in readings {
        for (step, times) in reading.steps() {
            observe(&mut metric, &[("site", &reading.site), ("step", step)], times)?;
        }
    }
    let mut metric = counter(encoder, "haulier_image_uploads", "Images uploaded.")?;
    for reading in readings {
        add(&mut metric, &[("site", &reading.site)], reading.uploaded)?;
    }
    let help = "Variants rendered and not stored, because their image has reached its limit.";
    let mut metric = counter(encoder, "haulier_image_unkept", help)?;
    for reading in readings {
        add(&mut metric, &[("site", &reading.site)], reading.unkept)?;
    }
    let help = "Variants rendered in the background after a response in another format.";
    let mut metric = counter(encoder, "haulier_image_behind", help)?;
    for reading in readings {
        add(&mut metric, &[("site", &reading.site)], reading.in_background)?;
    }
    let mut metric = gauge(encoder, "haulier_image_memory_bytes", "Bytes of the images in memory.")?;
    for reading in readings {
        set(&mut metric, &[("site", &reading.site)], reading.in_memory)?;
    }
    let help = "Failed calls to a cache; each counts as a miss.";
    let mut metric = counter(encoder, "haulier_image_cache_failures", help)?;
    for reading in readings {
        for tier in &reading.tiers {
            let labels = [
                ("site", &*reading.site),
                ("tier", tier.tier.as_str()),
                ("place", &tier.place),
            ];
            add(&mut metric, &labels, tier.failures)?;
        }
    }
    encode_workers(encoder, readings)
}

fn encode_workers(encoder: &mut DescriptorEncoder<'_>, readings: &[ImageTotals]) -> Result<(), Error> {
    let mut metric = gauge(encoder, "haulier_image_workers", "Image workers by state.")?;
    for reading in readings {
        for (state, count) in [("busy", reading.workers.busy), ("idle", reading.workers.idle)] {
            set(&mut metric, &[("site", &reading.site), ("state", state)], count as u64)?;
        }
    }
    let mut metric = gauge(encoder, "haulier_image_queue_length", "Variants waiting for a worker.")?;
    for reading in readings {
        set(&mut metric, &[("site", &reading.site)], reading.workers.waiting as u64)?;
    }
    let help = "Image workers that crashed or exceeded their time limit.";
    let mut metric = counter(encoder, "haulier_image_worker_crashes", help)?;
    for reading in readings {
        add(&mut metric, &[("site", &reading.site)], reading.workers.crashed)?;
    }
    Ok(())
}
