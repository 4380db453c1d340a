//! The numbers of one site.

use std::collections::BTreeMap;

use haulier_server::metrics::{DurationHistogram, SiteTotals};
use serde::{Deserialize, Serialize};

use crate::admin::totals::{requests, sum};

/// One site; rates are of the last ten seconds, everything that is not called `total` of the last minute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SiteState {
    pub(crate) name: String,
    pub(crate) requests_total: u64,
    pub(crate) requests_per_second: f64,
    pub(crate) in_flight: u64,
    pub(crate) p50_ms: Option<f64>,
    pub(crate) p95_ms: Option<f64>,
    /// Responses with 5xx in the last minute.
    pub(crate) failed: u64,
    /// Share of each handler in the responses, 0 to 1; empty without any.
    pub(crate) shares: BTreeMap<String, f64>,
    pub(crate) worker_seconds_saved: f64,
    pub(crate) handoffs_total: BTreeMap<String, u64>,
    /// Reasons that occurred, since the start.
    pub(crate) errors_total: BTreeMap<String, u64>,
}

fn failures(site: &SiteTotals) -> u64 {
    sum(site, |handler| handler.codes[4])
}

fn times(site: &SiteTotals) -> DurationHistogram {
    site.handlers().fold(DurationHistogram::default(), |all, (_, handler)| {
        all.and(&handler.times)
    })
}

impl SiteState {
    /// The site now, compared with a minute ago.
    pub(crate) fn of(name: &str, now: &SiteTotals, minute: &SiteTotals, requests_per_second: f64) -> Self {
        let recent = times(now).since(&times(minute));
        let milliseconds = |q| recent.quantile(q).map(|time| time.as_secs_f64() * 1000.0);
        Self {
            name: name.to_owned(),
            requests_total: requests(now),
            requests_per_second,
            in_flight: now.in_flight,
            p50_ms: milliseconds(0.5),
            p95_ms: milliseconds(0.95),
            failed: failures(now) - failures(minute),
            shares: shares(now, minute),
            worker_seconds_saved: now.saved.as_secs_f64(),
            handoffs_total: now.handoffs().map(|(via, count)| (via.to_owned(), count)).collect(),
            errors_total: now
                .errors()
                .filter(|(_, count)| *count > 0)
                .map(|(reason, count)| (reason.word().to_owned(), count))
                .collect(),
        }
    }
}

fn shares(now: &SiteTotals, minute: &SiteTotals) -> BTreeMap<String, f64> {
    let all = requests(now) - requests(minute);
    if all == 0 {
        return BTreeMap::new();
    }
    let handlers = now.handlers().zip(minute.handlers());
    let recent = handlers.map(|((name, now), (_, minute))| (name, now.requests() - minute.requests()));
    recent
        .map(|(name, count)| (name.to_owned(), count as f64 / all as f64))
        .collect()
}
