//! The counters of all threads, summed.

use std::sync::Arc;
use std::time::Duration;

use haulier_http::{Handler, ImageResult, Reason, Via};
use haulier_proto::accept::Coding;

use super::by_reason::ByReason;
use super::counters::Counters;
use super::times::DurationHistogram;
use crate::site::Site;

/// All counts of a server since its start.
#[derive(Debug, Clone, Default)]
pub struct Totals {
    /// The sites with their names, in the order of the configuration.
    pub sites: Vec<(String, SiteTotals)>,
    /// Requests without a site: an unknown host, or malformed bytes.
    pub none: SiteTotals,
    /// Bytes of spooled responses on disk now.
    pub spool_bytes: u64,
    /// Bytes of long responses in memory now.
    pub spool_memory_bytes: u64,
    /// Responses whose script had to wait for the client because the spool was full.
    pub spool_full: u64,
}

/// The counts of one site.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SiteTotals {
    pub(super) handlers: [HandlerTotals; Handler::ALL.len()],
    pub(super) errors: ByReason<u64>,
    pub(super) handoffs: [u64; Via::ALL.len()],
    pub(super) images: [u64; ImageResult::ALL.len()],
    pub(super) codings: [CodingTotals; Coding::ALL.len()],
    /// Time that workers were free while their clients still received the response.
    pub saved: Duration,
    /// Requests in progress.
    pub in_flight: u64,
    /// Those of them with a response that did not fit one send.
    pub sending: u64,
}

/// The counts of one handler.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct HandlerTotals {
    /// Responses with status 1xx to 5xx.
    pub codes: [u64; 5],
    /// From the end of the request head to the last byte given to the kernel.
    pub times: DurationHistogram,
    /// Bytes sent, heads included.
    pub bytes: u64,
    /// Those of them in responses that haulier coded, by coding.
    pub(super) coded: [u64; Coding::ALL.len()],
}

/// Bodies coded in one coding while they were sent.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CodingTotals {
    /// Bytes before coding.
    pub taken: u64,
    /// Bytes after coding.
    pub made: u64,
    /// Time spent coding.
    pub spent: Duration,
}

impl HandlerTotals {
    /// Number of all responses.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.codes.iter().sum()
    }

    /// Bytes sent, heads included, by the coding that haulier applied: `identity` and each coding. Compressed copies
    /// and sidecars of files count; a coding by PHP is `identity`.
    pub fn sent_by_encoding(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let identity = self.bytes - self.coded.iter().sum::<u64>();
        let coded = Coding::ALL.iter().map(|coding| coding.as_str()).zip(self.coded);
        std::iter::once(("identity", identity)).chain(coded)
    }
}

impl SiteTotals {
    /// Each handler with its name.
    pub fn handlers(&self) -> impl Iterator<Item = (&'static str, &HandlerTotals)> {
        Handler::ALL.iter().map(|handler| handler.as_str()).zip(&self.handlers)
    }

    /// Each reason with the number of requests that failed for it.
    pub fn errors(&self) -> impl Iterator<Item = (Reason, u64)> {
        Reason::ALL.iter().copied().zip(self.errors.0)
    }

    /// Each way of handing off, with its number of responses.
    pub fn handoffs(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Via::ALL.iter().map(|via| via.as_str()).zip(self.handoffs)
    }

    /// Each origin of images, with its number of requests.
    pub fn images(&self) -> impl Iterator<Item = (&'static str, u64)> {
        ImageResult::ALL.iter().map(|result| result.as_str()).zip(self.images)
    }

    /// Each coding, with its counts.
    pub fn codings(&self) -> impl Iterator<Item = (&'static str, &CodingTotals)> {
        Coding::ALL.iter().map(|coding| coding.as_str()).zip(&self.codings)
    }

    fn add(&mut self, other: &Self) {
        for (coding, more) in self.codings.iter_mut().zip(&other.codings) {
            coding.taken += more.taken;
            coding.made += more.made;
            coding.spent += more.spent;
        }
        for (handler, more) in self.handlers.iter_mut().zip(&other.handlers) {
            add_each(&mut handler.codes, &more.codes);
            handler.times = handler.times.and(&more.times);
            handler.bytes += more.bytes;
            add_each(&mut handler.coded, &more.coded);
        }
        add_each(&mut self.errors.0, &other.errors.0);
        add_each(&mut self.handoffs, &other.handoffs);
        add_each(&mut self.images, &other.images);
        self.saved += other.saved;
        // A request ends on the thread where it began, so no thread's gauge is below zero.
        self.in_flight += other.in_flight;
        self.sending += other.sending;
    }
}

fn add_each(counts: &mut [u64], more: &[u64]) {
    for (count, more) in counts.iter_mut().zip(more) {
        *count += more;
    }
}

pub(super) fn add_up(sites: &[Arc<Site>], threads: &[Arc<Counters>]) -> Totals {
    let total = |site: Option<u32>| {
        let mut total = SiteTotals::default();
        threads.iter().for_each(|thread| total.add(&thread.read(site)));
        total
    };
    let places = || sites.iter().flat_map(|site| site.mounts());
    Totals {
        sites: sites
            .iter()
            .map(|site| (site.settings.name.clone(), total(Some(site.series))))
            .collect(),
        none: total(None),
        spool_memory_bytes: places().map(|site| site.spool.in_memory()).sum(),
        spool_bytes: places().map(|site| site.spool.on_disk()).sum(),
        spool_full: places().map(|site| site.spool.times_full()).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::counters::Finished;
    use super::*;
    use crate::clock::now;
    use crate::files::fixture;
    use haulier_http::Trace;

    #[test]
    fn the_threads_are_added_up_site_by_site() {
        let site = |name: &str, series| {
            let root = fixture::Root::new().with(|settings| settings.name = name.into());
            Arc::new(fixture::open(root.site().settings, series))
        };
        let sites = [site("shop", 0), site("blog", 1)];
        let threads = [Arc::new(Counters::new(2)), Arc::new(Counters::new(2))];
        let trace = Trace::of(Handler::Redirect);
        for (thread, site) in [(0, Some(1)), (1, Some(1)), (1, None)] {
            threads[thread].finish(&Finished {
                site,
                status: 308,
                trace: &trace,
                reason: None,
                bytes: 10,
                took: Some(Duration::ZERO),
                now: now(),
            });
        }
        let totals = add_up(&sites, &threads);
        let requests = |site: &SiteTotals| site.handlers().map(|(_, handler)| handler.requests()).sum::<u64>();
        let by_name: Vec<_> = totals
            .sites
            .iter()
            .map(|(name, site)| (name.as_str(), requests(site)))
            .collect();
        assert_eq!(by_name, [("shop", 0), ("blog", 2)]);
        assert_eq!(requests(&totals.none), 1);
        let bytes = totals.sites[1]
            .1
            .handlers()
            .find(|(name, _)| *name == "redirect")
            .map(|(_, handler)| handler.bytes);
        assert_eq!(bytes, Some(20));
    }
}
