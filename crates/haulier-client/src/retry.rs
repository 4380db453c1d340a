//! Retries: the failures that may pass, and the wait before the next try (RFC 9110 §10.2.3).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use haulier_proto::date;
use haulier_proto::field::Fields;

/// The number of tries and the waits between them.
#[derive(Debug, Clone, Copy)]
pub struct RetryPolicy {
    /// Tries after the first one. Those that brought new bytes do not count.
    pub most: u32,
    /// The first wait; each further one is twice as long.
    pub first: Duration,
    /// The longest wait that the client chooses.
    pub longest: Duration,
    /// The longest wait that a server may ask for; for a longer one the client gives up.
    pub longest_asked: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            most: 5,
            first: Duration::from_millis(500),
            longest: Duration::from_secs(30),
            longest_asked: Duration::from_secs(600),
        }
    }
}

impl RetryPolicy {
    /// The wait before try number `attempt` (from 1) with its jitter: between half and all of the doubled time.
    #[must_use]
    pub fn delay(&self, attempt: u32) -> Duration {
        let doubled = self.first.saturating_mul(1u32 << attempt.saturating_sub(1).min(16));
        doubled.min(self.longest).mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    /// The wait before try number `attempt`, at least the time that the server asked for. `None`: no further try.
    #[must_use]
    pub fn wait(&self, attempt: u32, asked: Option<Duration>) -> Option<Duration> {
        if attempt > self.most || asked.is_some_and(|asked| asked > self.longest_asked) {
            return None;
        }
        Some(self.delay(attempt).max(asked.unwrap_or_default()))
    }
}

/// True if the same request may get another status a little later.
#[must_use]
pub fn is_transient_status(status: u16) -> bool {
    matches!(status, 408 | 425 | 429 | 500 | 502 | 503 | 504)
}

/// The wait that Retry-After asks for: seconds, or a date relative to `now` (seconds since 1970).
#[must_use]
pub fn retry_after(fields: &Fields, now: u64) -> Option<Duration> {
    let value = fields.get("retry-after")?;
    let seconds = match std::str::from_utf8(value).ok()?.parse::<u64>() {
        Ok(seconds) => seconds,
        Err(_) => date::parse(value)?.saturating_sub(now),
    };
    Some(Duration::from_secs(seconds))
}

/// Seconds since 1970.
#[must_use]
pub fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(value: &str) -> Fields {
        let mut fields = Fields::new();
        fields.append("Retry-After", value);
        fields
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let at = 784_111_777;
        assert_eq!(retry_after(&fields("120"), at), Some(Duration::from_secs(120)));
        let date = fields("Sun, 06 Nov 1994 08:49:47 GMT");
        assert_eq!(retry_after(&date, at), Some(Duration::from_secs(10)));
        assert_eq!(retry_after(&date, at + 60), Some(Duration::ZERO));
        assert_eq!(retry_after(&fields("soon"), at), None);
        assert_eq!(retry_after(&Fields::new(), at), None);
    }

    #[test]
    fn waits_double_up_to_the_longest_and_never_fall_below_half() {
        let policy = RetryPolicy::default();
        for (attempt, whole) in [(1, 500), (2, 1000), (3, 2000), (20, 30_000)] {
            let delay = policy.delay(attempt);
            let whole = Duration::from_millis(whole);
            assert!(delay >= whole / 2 && delay <= whole, "{attempt}: {delay:?}");
        }
    }

    #[test]
    fn a_server_may_ask_for_longer_but_not_for_ever() {
        let policy = RetryPolicy::default();
        assert_eq!(
            policy.wait(1, Some(Duration::from_secs(60))),
            Some(Duration::from_secs(60))
        );
        assert_eq!(policy.wait(1, Some(Duration::from_secs(3600))), None);
        assert_eq!(policy.wait(6, None), None);
    }
}
