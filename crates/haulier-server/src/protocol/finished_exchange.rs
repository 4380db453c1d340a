//! The end of an exchange: it is counted, recorded if it failed or was slow, and logged.

use std::sync::Arc;

use haulier_http::{Peer, Request, Trace};

use crate::access_log::LogRecord;
use crate::clock;
use crate::metrics::Finished;
use crate::site::Site;
use crate::thread::Thread;

/// An exchange that is complete or cut off.
#[derive(Debug)]
pub(super) struct FinishedExchange<'a> {
    /// `None` for the refusal of bytes that were no request.
    pub(super) request: Option<&'a Request>,
    pub(super) peer: Peer,
    pub(super) site: Option<&'a Arc<Site>>,
    pub(super) status: u16,
    pub(super) trace: &'a Trace,
    /// Bytes sent, head included.
    pub(super) sent: u64,
    /// Those of them that the metrics have counted already.
    pub(super) counted: u64,
    /// Those of them in the body.
    pub(super) body_sent: u64,
    /// True if the whole response was sent.
    pub(super) complete: bool,
}

impl FinishedExchange<'_> {
    /// Counts, records and logs the exchange.
    #[inline]
    pub(super) fn note(&self, thread: &Thread) {
        let &Self {
            request,
            site,
            status,
            trace,
            ..
        } = self;
        let now = clock::now();
        let took = request.map(|request| now.saturating_duration_since(request.received));
        let reason = trace
            .reason
            .or(if self.complete { None } else { Some(thread.end_reason()) });
        let finished = Finished {
            site: site.map(|site| site.series),
            status,
            trace,
            reason,
            bytes: self.sent - self.counted,
            took,
            now,
        };
        let serving = thread.serving();
        serving.counters.finish(&finished);
        thread.metrics.remember(&finished, request, site.map(|site| &**site));
        let streamed = trace.backend.as_ref().and_then(|php| php.streamed.as_deref());
        if let (Some(site), Some(streamed), None) = (site, streamed, trace.handoff) {
            thread.metrics.note_streamed(site, streamed, self.sent);
        }
        let of_site = site.and_then(|site| site.settings.log.as_ref());
        let log = of_site.unwrap_or(&serving.log);
        if log.wants(status) {
            log.write(&LogRecord {
                request,
                site: site.map(|site| site.settings.name.as_str()),
                peer: request.map_or(self.peer, |request| request.peer),
                status,
                trace,
                sent: self.sent,
                body_sent: self.body_sent,
                reason,
                took,
                saved: trace.worker_time_saved(now),
            });
        }
    }
}
