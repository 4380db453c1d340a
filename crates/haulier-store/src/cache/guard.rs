//! A circuit breaker, so that a slow or broken server does not delay every request.
//!
//! A call has a timeout. After five failures in a row, no call reaches the server for five seconds. Then one call is
//! let through, and its result decides for the others.

use std::future::Future;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::cache::CacheError;

/// Failures in a row after which calls are refused.
const MOST_FAILURES: u32 = 5;
/// Time for which calls are refused.
const REST: Duration = Duration::from_secs(5);

/// The circuit breaker of one server or directory.
#[derive(Debug)]
pub struct Guard {
    place: String,
    budget: Duration,
    started: Instant,
    /// Failures in a row.
    failures: AtomicU32,
    /// End of the refusal in milliseconds after `started`; valid while `failures` is at its limit.
    resting_until: AtomicU64,
    /// All failures since the start.
    failed: AtomicU64,
}

impl Guard {
    /// A circuit breaker for the server at `place`, a name for messages, with `budget` as the timeout of a call.
    #[must_use]
    pub fn new(place: impl Into<String>, budget: Duration) -> Self {
        Self {
            place: place.into(),
            budget,
            started: now(),
            failures: AtomicU32::new(0),
            resting_until: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    /// Makes the call, unless calls are refused.
    ///
    /// # Errors
    /// Those of the call, [`CacheError::TooSlow`] and [`CacheError::Resting`].
    pub async fn call<T>(&self, call: impl Future<Output = Result<T, CacheError>>) -> Result<T, CacheError> {
        if !self.admits() {
            return Err(CacheError::Resting);
        }
        // A call that its caller drops does not count as a failure.
        let outcome = match tokio::time::timeout(self.budget, call).await {
            Ok(outcome) => outcome,
            Err(_) => Err(CacheError::TooSlow(self.budget)),
        };
        match &outcome {
            Ok(_) => self.succeeded(),
            Err(error) => self.failed(error),
        }
        outcome
    }

    /// Failed calls since the start.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// True if calls are refused at the moment.
    #[must_use]
    pub fn is_resting(&self) -> bool {
        self.failures.load(Ordering::Relaxed) >= MOST_FAILURES
    }

    fn elapsed(&self) -> u64 {
        u64::try_from(now().saturating_duration_since(self.started).as_millis()).unwrap_or(u64::MAX)
    }

    fn admits(&self) -> bool {
        if !self.is_resting() {
            return true;
        }
        let until = self.resting_until.load(Ordering::Relaxed);
        let now = self.elapsed();
        // The one call that moves the end of the refusal is let through.
        now >= until
            && self
                .resting_until
                .compare_exchange(
                    until,
                    now + REST.as_millis() as u64,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                )
                .is_ok()
    }

    fn succeeded(&self) {
        if self.failures.swap(0, Ordering::Relaxed) >= MOST_FAILURES {
            tracing::info!(cache = self.place, "cache_back");
        }
    }

    fn failed(&self, error: &CacheError) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        let rest = self.elapsed() + REST.as_millis() as u64;
        self.resting_until.store(rest, Ordering::Relaxed);
        if self.failures.fetch_add(1, Ordering::Relaxed) + 1 == MOST_FAILURES {
            tracing::warn!(cache = self.place, %error, "cache_down: not asked for 5 s at a time");
        }
    }
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

#[cfg(test)]
mod tests {
    use std::future::{Ready, ready};

    use super::*;

    fn broken() -> Ready<Result<(), CacheError>> {
        ready(Err(CacheError::Damaged))
    }

    fn well() -> Ready<Result<(), CacheError>> {
        ready(Ok(()))
    }

    #[tokio::test(start_paused = true)]
    async fn after_five_failures_in_a_row_one_call_in_five_seconds_is_let_through() {
        let guard = Guard::new("x", Duration::from_millis(50));
        for _ in 0..4 {
            assert!(matches!(guard.call(broken()).await, Err(CacheError::Damaged)));
        }
        guard.call(well()).await.expect("four are not enough");
        for _ in 0..5 {
            assert!(matches!(guard.call(broken()).await, Err(CacheError::Damaged)));
        }
        assert!(matches!(guard.call(well()).await, Err(CacheError::Resting)));
        tokio::time::sleep(REST).await;
        assert!(matches!(guard.call(broken()).await, Err(CacheError::Damaged)));
        assert!(matches!(guard.call(well()).await, Err(CacheError::Resting)));
        tokio::time::sleep(REST).await;
        guard.call(well()).await.expect("it is back");
        guard.call(well()).await.expect("for every call");
        assert_eq!(guard.failures(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_ends_with_its_budget() {
        let guard = Guard::new("x", Duration::from_millis(50));
        let before = tokio::time::Instant::now();
        let endless = std::future::pending::<Result<(), CacheError>>();
        assert!(matches!(guard.call(endless).await, Err(CacheError::TooSlow(_))));
        assert_eq!(before.elapsed(), Duration::from_millis(50));
    }
}
