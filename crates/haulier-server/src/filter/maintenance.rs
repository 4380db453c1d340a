//! `maintenance` of a site: while a file exists, everybody but those let in gets 503 with Retry-After.
//!
//! The file is looked for at most once a second, by whichever thread comes first.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use haulier_http::Response;

use crate::answer::error_page;
use crate::context::Visit;

/// The reason in log and metrics, and by which the page of the site is found.
pub(crate) const REASON: &str = "maintenance";

/// How long an answer about the file stands.
const FRESH: Duration = Duration::from_secs(1);

/// Whether the file is there, as far as known.
#[derive(Debug)]
pub(crate) struct Switch {
    started: Instant,
    /// Milliseconds since `started` from which on the file is to be looked for again.
    check_at: AtomicU64,
    is_on: AtomicBool,
}

impl Switch {
    pub(crate) fn new() -> Self {
        Self {
            started: crate::clock::now(),
            check_at: AtomicU64::new(0),
            is_on: AtomicBool::new(false),
        }
    }

    fn is_on(&self, file: &Path, now: Instant) -> bool {
        let milliseconds = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let now = milliseconds(now.saturating_duration_since(self.started));
        let check_at = self.check_at.load(Ordering::Acquire);
        if now < check_at {
            return self.is_on.load(Ordering::Acquire);
        }
        let is_on = file.exists();
        self.is_on.store(is_on, Ordering::Release);
        self.check_at.store(now + milliseconds(FRESH), Ordering::Release);
        is_on
    }
}

pub(super) fn on_request(visit: &Visit<'_>) -> Option<Response> {
    let maintenance = visit.site.settings.maintenance.as_ref()?;
    if visit.comes_from(&maintenance.allow) {
        return None;
    }
    let now = visit.thread.clock.coarse();
    visit.site.maintenance.is_on(&maintenance.file, now).then(|| {
        let mut response = error_page::respond(503, Some(REASON), Some(visit.site), &visit.request.id, None);
        let seconds = maintenance.retry_after.as_secs().max(1);
        response.head.fields_mut().set("Retry-After", seconds.to_string());
        response
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_looked_for_once_a_second() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("maintenance");
        let switch = Switch::new();
        let at = |milliseconds| switch.is_on(&file, switch.started + Duration::from_millis(milliseconds));
        assert!(!at(0));
        std::fs::write(&file, "").expect("a file");
        assert!(!at(999), "known to be off");
        assert!(at(1000));
        std::fs::remove_file(&file).expect("it is there");
        assert!(at(1500), "known to be on");
        assert!(!at(2000));
    }
}
