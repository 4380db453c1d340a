//! The counters of one thread. Only that thread writes them, so a count is a load, an addition and a store: a few
//! nanoseconds, and never a locked instruction.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use haulier_http::{Handler, ImageResult, Reason, Trace, Via};
use haulier_php::WaitTimes;
use haulier_proto::accept::Coding;

use super::by_reason::ByReason;
use super::times::{CLASSES, DurationHistogram};
use super::totals::{CodingTotals, HandlerTotals, SiteTotals};
use crate::clock::nanoseconds;

/// A number with one writer.
#[derive(Debug, Default)]
struct Count(AtomicU64);

impl Count {
    fn add(&self, number: u64) {
        // Not fetch_add: with one writer nothing is lost in between, and the bus stays unlocked.
        self.0
            .store(self.0.load(Ordering::Relaxed).wrapping_add(number), Ordering::Relaxed);
    }

    fn subtract(&self, number: u64) {
        self.add(number.wrapping_neg());
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of a thread.
#[derive(Debug)]
pub(crate) struct Counters {
    /// By number of the series.
    sites: Box<[Arc<SiteCounters>]>,
    /// Counters for requests without a site.
    none: Arc<SiteCounters>,
    /// Open connections that speak HTTP/2.
    http2_connections: Arc<Count>,
}

/// The counters of one thread for one site. The alignment keeps two threads from writing to one cache line, or to the
/// pair of lines that processors fetch together.
#[derive(Debug, Default)]
#[repr(align(128))]
struct SiteCounters {
    handlers: [HandlerCounters; Handler::ALL.len()],
    errors: ByReason<Count>,
    handoffs: [Count; Via::ALL.len()],
    images: [Count; ImageResult::ALL.len()],
    codings: [CodingCounters; Coding::ALL.len()],
    /// Nanoseconds that workers were free while their clients still received the response.
    saved: Count,
    in_flight: Count,
    /// Those of them with a response that did not fit one send.
    sending: Count,
}

/// Bodies coded while they were sent, without compressed copies of files.
#[derive(Debug, Default)]
struct CodingCounters {
    taken: Count,
    made: Count,
    /// Nanoseconds.
    spent: Count,
}

#[derive(Debug, Default)]
struct HandlerCounters {
    /// 1xx to 5xx.
    codes: [Count; 5],
    /// Durations by class.
    classes: [Count; CLASSES],
    /// Nanoseconds.
    duration: Count,
    /// Bytes of uncoded responses.
    bytes: Count,
    /// Bytes of responses that haulier coded, by coding.
    coded: [Count; Coding::ALL.len()],
}

/// A finished exchange.
#[derive(Debug)]
pub(crate) struct Finished<'a> {
    /// The series of its site.
    pub(crate) site: Option<u32>,
    pub(crate) status: u16,
    pub(crate) trace: &'a Trace,
    /// The reason of a failure.
    pub(crate) reason: Option<Reason>,
    /// Bytes sent, without those counted before.
    pub(crate) bytes: u64,
    /// From the end of the request head; `None` without a request.
    pub(crate) took: Option<Duration>,
    pub(crate) now: Instant,
}

impl Counters {
    pub(super) fn new(series: usize) -> Self {
        Self {
            sites: (0..series).map(|_| Arc::default()).collect(),
            none: Arc::default(),
            http2_connections: Arc::default(),
        }
    }

    /// Shares the counters with a set that has room for more series.
    pub(super) fn with_room_for(&self, series: usize) -> Self {
        let further = (self.sites.len()..series).map(|_| Arc::default());
        Self {
            sites: self.sites.iter().map(Arc::clone).chain(further).collect(),
            none: Arc::clone(&self.none),
            http2_connections: Arc::clone(&self.http2_connections),
        }
    }

    fn site(&self, series: Option<u32>) -> &SiteCounters {
        let site = series.and_then(|series| self.sites.get(series as usize));
        site.unwrap_or(&self.none)
    }

    /// Counts a finished exchange.
    pub(crate) fn finish(&self, finished: &Finished<'_>) {
        let site = self.site(finished.site);
        let handler = &site.handlers[finished.trace.handler as usize];
        handler.codes[usize::from(finished.status / 100).clamp(1, 5) - 1].add(1);
        handler.count_bytes(finished.trace.coding(), finished.bytes);
        if let Some(took) = finished.took {
            handler.classes[WaitTimes::class_of(took)].add(1);
            handler.duration.add(nanoseconds(took));
        }
        if let Some(reason) = finished.reason {
            site.errors.0[reason as usize].add(1);
        }
        if let Some(via) = finished.trace.handoff {
            site.handoffs[via as usize].add(1);
        }
        if let Some(image) = finished.trace.image {
            site.images[image as usize].add(1);
        }
        if let Some(compressed) = &finished.trace.compressed {
            let coding = &site.codings[compressed.coding.index()];
            coding.taken.add(compressed.taken.load(Ordering::Relaxed));
            coding.made.add(compressed.made.load(Ordering::Relaxed));
            coding.spent.add(compressed.nanoseconds.load(Ordering::Relaxed));
        }
        if let Some(released) = finished.trace.backend.as_ref().and_then(|php| php.released()) {
            site.saved
                .add(nanoseconds(finished.now.saturating_duration_since(released)));
        }
    }

    /// Counts bytes of a response that is still being sent.
    pub(crate) fn sent(&self, site: Option<u32>, trace: &Trace, bytes: u64) {
        self.site(site).handlers[trace.handler as usize].count_bytes(trace.coding(), bytes);
    }

    /// Open connections of this thread that speak HTTP/2.
    pub(super) fn http2_connections(&self) -> u64 {
        self.http2_connections.get()
    }

    /// The counts of a site, or with `None` those of requests without a site.
    pub(super) fn read(&self, site: Option<u32>) -> SiteTotals {
        let site = self.site(site);
        SiteTotals {
            handlers: std::array::from_fn(|handler| site.handlers[handler].read()),
            errors: ByReason(std::array::from_fn(|reason| site.errors.0[reason].get())),
            handoffs: std::array::from_fn(|via| site.handoffs[via].get()),
            images: std::array::from_fn(|result| site.images[result].get()),
            codings: std::array::from_fn(|coding| site.codings[coding].read()),
            saved: Duration::from_nanos(site.saved.get()),
            in_flight: site.in_flight.get(),
            sending: site.sending.get(),
        }
    }
}

impl CodingCounters {
    fn read(&self) -> CodingTotals {
        CodingTotals {
            taken: self.taken.get(),
            made: self.made.get(),
            spent: Duration::from_nanos(self.spent.get()),
        }
    }
}

impl HandlerCounters {
    fn count_bytes(&self, coding: Option<Coding>, bytes: u64) {
        coding
            .map_or(&self.bytes, |coding| &self.coded[coding.index()])
            .add(bytes);
    }

    fn read(&self) -> HandlerTotals {
        let coded: [u64; Coding::ALL.len()] = std::array::from_fn(|coding| self.coded[coding].get());
        HandlerTotals {
            codes: std::array::from_fn(|code| self.codes[code].get()),
            times: DurationHistogram {
                classes: std::array::from_fn(|class| self.classes[class].get()),
                sum: Duration::from_nanos(self.duration.get()),
            },
            bytes: self.bytes.get() + coded.iter().sum::<u64>(),
            coded,
        }
    }
}

/// Counts an exchange as running until it is dropped.
#[derive(Debug)]
pub(crate) struct InFlight {
    counters: Arc<Counters>,
    site: Option<u32>,
    gauge: fn(&SiteCounters) -> &Count,
}

impl InFlight {
    /// Counts a request of a site, from its routing on.
    pub(crate) fn request(counters: &Arc<Counters>, site: u32) -> Self {
        Self::begin(counters, Some(site), |site| &site.in_flight)
    }

    /// Counts a response that did not fit one send.
    pub(crate) fn sending(counters: &Arc<Counters>, site: Option<u32>) -> Self {
        Self::begin(counters, site, |site| &site.sending)
    }

    fn begin(counters: &Arc<Counters>, site: Option<u32>, gauge: fn(&SiteCounters) -> &Count) -> Self {
        gauge(counters.site(site)).add(1);
        Self {
            counters: Arc::clone(counters),
            site,
            gauge,
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        // A reload makes counters that share their counts with these.
        (self.gauge)(self.counters.site(self.site)).subtract(1);
    }
}

/// Counts a connection as one of HTTP/2 until it is dropped.
#[derive(Debug)]
pub(crate) struct Http2Connection(Arc<Counters>);

impl Http2Connection {
    pub(crate) fn new(counters: &Arc<Counters>) -> Self {
        counters.http2_connections.add(1);
        Self(Arc::clone(counters))
    }
}

impl Drop for Http2Connection {
    fn drop(&mut self) {
        self.0.http2_connections.subtract(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now;
    use haulier_http::BackendTrace;

    fn finished(trace: &Trace) -> Finished<'_> {
        Finished {
            site: Some(0),
            status: 200,
            trace,
            reason: None,
            bytes: 1000,
            took: Some(Duration::from_millis(3)),
            now: now(),
        }
    }

    #[test]
    fn a_request_is_counted_for_its_site_handler_and_class() {
        let counters = Counters::new(2);
        let trace = Trace::of(Handler::Static);
        counters.finish(&finished(&trace));
        counters.finish(&Finished {
            status: 404,
            ..finished(&trace)
        });
        counters.sent(Some(0), &trace, 24);
        let site = counters.read(Some(0));
        let handler = &site.handlers[Handler::Static as usize];
        assert_eq!(handler.codes, [0, 1, 0, 1, 0]);
        assert_eq!(
            (handler.bytes, handler.times.count(), handler.times.classes[2]),
            (2024, 2, 2)
        );
        assert_eq!(handler.times.sum, Duration::from_millis(6));
        assert_eq!(counters.read(Some(1)), SiteTotals::default());
    }

    #[test]
    fn bytes_are_booked_on_the_coding_they_were_sent_in() {
        let counters = Counters::new(1);
        let mut trace = Trace::of(Handler::Static);
        counters.finish(&finished(&trace));
        trace.file_coding = Some(Coding::Brotli);
        counters.sent(Some(0), &trace, 30);
        counters.finish(&finished(&trace));
        let site = counters.read(Some(0));
        let (_, handler) = site
            .handlers()
            .find(|(name, _)| *name == "static")
            .expect("there are files");
        let sent: Vec<_> = handler.sent_by_encoding().filter(|(_, bytes)| *bytes > 0).collect();
        assert_eq!(sent, [("identity", 1000), ("br", 1030)]);
        assert_eq!(handler.bytes, 2030);
    }

    #[test]
    fn exchanges_without_a_site_are_counted_apart() {
        let counters = Counters::new(1);
        let trace = Trace::of(Handler::Error);
        let refusal = Finished {
            site: None,
            status: 400,
            reason: Some(Reason::BadRequest),
            took: None,
            ..finished(&trace)
        };
        counters.finish(&refusal);
        let none = counters.read(None);
        assert_eq!(none.handlers[Handler::Error as usize].codes, [0, 0, 0, 1, 0]);
        assert_eq!(none.handlers[Handler::Error as usize].times.count(), 0);
        let errors: Vec<_> = none.errors().filter(|(_, count)| *count > 0).collect();
        assert_eq!(errors, [(Reason::BadRequest, 1)]);
        assert_eq!(counters.read(Some(0)), SiteTotals::default());
    }

    #[test]
    fn a_worker_is_saved_the_time_from_its_release_to_the_clients_last_byte() {
        let counters = Counters::new(1);
        let now = now();
        let taken = now
            .checked_sub(Duration::from_secs(10))
            .expect("the machine is up longer than that");
        let php = BackendTrace {
            taken: Some(taken),
            ..BackendTrace::default()
        };
        let mut trace = Trace {
            backend: Some(Box::new(php)),
            ..Trace::of(Handler::Php)
        };
        counters.finish(&Finished {
            now,
            ..finished(&trace)
        });
        assert_eq!(counters.read(Some(0)).saved, Duration::ZERO, "it was not released yet");
        trace
            .backend
            .as_mut()
            .expect("set above")
            .busy
            .store(4_000_000, Ordering::Relaxed);
        trace.handoff = Some(Via::XSendfile);
        counters.finish(&Finished {
            now,
            ..finished(&trace)
        });
        let site = counters.read(Some(0));
        assert_eq!(site.saved, Duration::from_secs(6));
        assert_eq!(site.handoffs[Via::XSendfile as usize], 1);
    }

    #[test]
    fn with_room_for_more_sites_everything_counted_stays() {
        let counters = Counters::new(1);
        let trace = Trace::of(Handler::Static);
        counters.finish(&finished(&trace));
        let more = counters.with_room_for(3);
        assert_eq!(more.read(Some(0)), counters.read(Some(0)));
        // A thread that has not switched yet counts on.
        counters.finish(&finished(&trace));
        more.finish(&Finished {
            site: Some(2),
            ..finished(&trace)
        });
        let codes = |site| more.read(Some(site)).handlers[Handler::Static as usize].codes[1];
        assert_eq!([codes(0), codes(1), codes(2)], [2, 0, 1]);
    }

    #[test]
    fn a_gauge_goes_down_again() {
        let count = Count::default();
        count.add(2);
        count.subtract(1);
        assert_eq!(count.get(), 1);
    }
}
