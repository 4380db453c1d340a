//! The last failed requests and the slowest of the last hour, with their details.
//!
//! Any other request costs two comparisons. The lists are bounded in number and length of entries.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use haulier_http::{Reason, Request};

use super::counters::Finished;
use crate::lock::lock;
use crate::site::Site;

/// Most failures kept.
const FAILURES: usize = 50;
/// Most slow requests kept.
const SLOWEST: usize = 20;
/// Time a slow request is kept.
const HOUR: Duration = Duration::from_secs(3600);
/// Most bytes kept of a request target.
const LONGEST: usize = 300;
/// Most bytes kept of a message: an exception with its stack trace.
const LONGEST_MESSAGE: usize = 2000;

/// Identity of a finished request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestSummary {
    /// The end of its exchange.
    pub at: SystemTime,
    /// The name of its site, if it has one.
    pub site: Option<String>,
    /// Method and target, shortened: `GET /export?year=2026`; empty without a request.
    pub request: String,
    /// As in the log and in `X-Request-Id`; empty without a request.
    pub id: String,
    /// The client's address; `None` without a request.
    pub client: Option<IpAddr>,
    /// Status of the response.
    pub status: u16,
}

/// A failed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedRequest {
    pub request: RequestSummary,
    /// One of the fixed list.
    pub reason: &'static str,
    /// PHP's error log of the request, shortened.
    pub message: Option<String>,
}

/// A slow request, by its time in PHP and in the queue before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlowRequest {
    pub request: RequestSummary,
    /// Time in the queue for a worker.
    pub queued: Duration,
    /// Time a worker was busy with it.
    pub php: Duration,
    /// From the end of its head to the last byte given to the kernel.
    pub took: Duration,
}

impl SlowRequest {
    /// The time it is ranked by. Sending does not count, since it depends on the client.
    fn work(&self) -> Duration {
        self.queued + self.php
    }
}

/// The lists of failed and slow requests.
#[derive(Debug, Default)]
pub(super) struct Recent {
    /// Oldest first.
    failures: Mutex<VecDeque<FailedRequest>>,
    /// Slowest first.
    slowest: Mutex<Vec<(Instant, SlowRequest)>>,
    /// Least nanoseconds of work to enter a full list.
    least: AtomicU64,
}

impl Recent {
    /// Remembers a finished exchange if it failed or was slow.
    pub(super) fn note(&self, finished: &Finished<'_>, request: Option<&Request>, site: Option<&Site>) {
        if let Some(reason) = finished.reason.filter(|&reason| is_ours(finished.status, reason)) {
            self.note_failure(finished, request, site, reason);
        }
        let Some(php) = &finished.trace.backend else { return };
        let busy = Duration::from_micros(php.busy.load(Ordering::Relaxed));
        if (busy + php.queued).as_nanos() > u128::from(self.least.load(Ordering::Relaxed)) {
            let slow = SlowRequest {
                request: summary(finished, request, site),
                queued: php.queued,
                php: busy,
                took: finished.took.unwrap_or_default(),
            };
            self.note_slow(finished.now, slow);
        }
    }

    fn note_failure(&self, finished: &Finished<'_>, request: Option<&Request>, site: Option<&Site>, reason: Reason) {
        let message = finished.trace.backend.as_ref().and_then(|php| php.message.as_deref());
        let failure = FailedRequest {
            request: summary(finished, request, site),
            reason: reason.word(),
            message: message.map(|message| shortened_to(LONGEST_MESSAGE, message.as_bytes())),
        };
        let mut failures = lock(&self.failures);
        while failures.len() >= FAILURES {
            failures.pop_front();
        }
        failures.push_back(failure);
    }

    fn note_slow(&self, now: Instant, slow: SlowRequest) {
        let mut list = lock(&self.slowest);
        let place = list.partition_point(|(_, other)| other.work() >= slow.work());
        list.insert(place, (now, slow));
        list.truncate(SLOWEST);
        self.set_least(&list);
    }

    /// Drops requests older than an hour.
    pub(super) fn forget(&self, now: Instant) {
        let mut list = lock(&self.slowest);
        list.retain(|(at, _)| now.saturating_duration_since(*at) < HOUR);
        self.set_least(&list);
    }

    fn set_least(&self, list: &[(Instant, SlowRequest)]) {
        let least = list.get(SLOWEST - 1).map_or(0, |(_, slow)| slow.work().as_nanos());
        self.least
            .store(u64::try_from(least).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Newest first.
    pub(super) fn failures(&self) -> Vec<FailedRequest> {
        lock(&self.failures).iter().rev().cloned().collect()
    }

    /// Slowest first.
    pub(super) fn slowest(&self) -> Vec<SlowRequest> {
        lock(&self.slowest).iter().map(|(_, slow)| slow.clone()).collect()
    }
}

/// True for a failure that concerns the administrator: every 5xx, and any that the client did not cause.
fn is_ours(status: u16, reason: Reason) -> bool {
    status >= 500 || !reason.is_clients()
}

fn summary(finished: &Finished<'_>, request: Option<&Request>, site: Option<&Site>) -> RequestSummary {
    let mut words = String::new();
    if let Some(request) = request {
        words = shortened(request.head.method_name());
        words.push(' ');
        words.push_str(&shortened(request.head.target()));
    }
    RequestSummary {
        at: SystemTime::now(),
        site: site.map(|site| site.settings.name.clone()),
        request: words,
        id: request.map(|request| request.id.to_string()).unwrap_or_default(),
        client: request.map(|request| request.peer.remote.ip()),
        status: finished.status,
    }
}

/// The beginning of a text, with `…` if it was cut.
pub(super) fn shortened(bytes: &[u8]) -> String {
    shortened_to(LONGEST, bytes)
}

fn shortened_to(longest: usize, bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(longest)]);
    if bytes.len() > longest {
        format!("{}…", text.trim_end_matches('\u{fffd}'))
    } else {
        text.into_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::clock::now;
    use haulier_http::{BackendTrace, Handler, Trace};

    /// An exchange of a script with this many milliseconds of PHP.
    fn php(milliseconds: u64) -> Trace {
        let mut trace = Trace::of(Handler::Php);
        trace.backend = Some(Box::new(BackendTrace {
            busy: Arc::new(AtomicU64::new(milliseconds * 1000)),
            message: Some("PHP Fatal error".into()),
            ..BackendTrace::default()
        }));
        trace
    }

    fn finished<'t>(trace: &'t Trace, status: u16, reason: Option<Reason>, now: Instant) -> Finished<'t> {
        Finished {
            site: Some(0),
            status,
            trace,
            reason,
            bytes: 0,
            took: Some(Duration::from_secs(1)),
            now,
        }
    }

    #[test]
    fn failures_of_the_server_are_kept_newest_first() {
        let recent = Recent::default();
        let trace = php(1);
        for (status, reason) in [
            (500, Some(Reason::PhpError)),
            (400, Some(Reason::BadRequest)),
            (200, None),
            (404, Some(Reason::SendfileDenied)),
            (200, Some(Reason::ClientGone)),
            (503, Some(Reason::PoolFull)),
        ] {
            recent.note(&finished(&trace, status, reason, now()), None, None);
        }
        let failures = recent.failures();
        let reasons: Vec<_> = failures.iter().map(|failure| failure.reason).collect();
        assert_eq!(reasons, ["pool_full", "sendfile_denied", "php_error"]);
        assert_eq!(failures[0].message.as_deref(), Some("PHP Fatal error"));
        for _ in 0..2 * FAILURES {
            recent.note(&finished(&trace, 500, Some(Reason::Panic), now()), None, None);
        }
        assert_eq!(recent.failures().len(), FAILURES);
        assert!(recent.failures().iter().all(|failure| failure.reason == "panic"));
    }

    #[test]
    fn the_slowest_are_kept_in_order_and_for_an_hour() {
        let recent = Recent::default();
        let begin = now();
        for milliseconds in 1..=100 {
            // Neither order of arrival nor the slowest first.
            let trace = php(milliseconds * 37 % 101);
            recent.note(&finished(&trace, 200, None, begin), None, None);
        }
        let times = |recent: &Recent| {
            let slowest = recent.slowest().into_iter();
            slowest.map(|slow| slow.php.as_millis() as u64).collect::<Vec<_>>()
        };
        assert_eq!(times(&recent), (81..=100).rev().collect::<Vec<_>>());
        let later = begin + HOUR / 2;
        recent.note(&finished(&php(50), 200, None, later), None, None);
        assert_eq!(recent.slowest().len(), SLOWEST, "what is not slow enough is not kept");
        recent.note(&finished(&php(90), 200, None, later), None, None);
        recent.forget(begin + HOUR);
        assert_eq!(times(&recent), [90], "the others are an hour old");
        recent.note(&finished(&php(2), 200, None, later), None, None);
        assert_eq!(times(&recent), [90, 2], "and there is room again");
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(shortened(b"/short"), "/short");
        let long = "é".repeat(LONGEST);
        let short = shortened(&long.as_bytes()[1..]);
        assert!(
            short.len() <= LONGEST + "…".len() + 3 && short.ends_with("é…"),
            "{short}"
        );
    }
}
