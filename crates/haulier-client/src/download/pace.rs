//! A rate limit for all connections together.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Limits the bytes received in any second.
#[derive(Debug)]
pub struct Pace {
    bytes_per_second: u64,
    /// The moment at which the bytes so far are within the rate.
    paid_at: Cell<Option<Instant>>,
}

impl Pace {
    /// `bytes_per_second` is at least 1.
    #[must_use]
    pub fn new(bytes_per_second: u64) -> Self {
        Self {
            bytes_per_second: bytes_per_second.max(1),
            paid_at: Cell::new(None),
        }
    }

    /// Bytes to read at once: those of a twentieth of a second, so that the rate is even.
    #[must_use]
    pub fn piece(&self) -> usize {
        usize::try_from((self.bytes_per_second / 20).clamp(512, 256 * 1024)).unwrap_or(512)
    }

    /// Waits until `bytes` that have come are within the rate.
    pub async fn pay(&self, bytes: usize) {
        let now = Instant::now();
        let from = self.paid_at.get().map_or(now, |paid| paid.max(now));
        let until = from + Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
        self.paid_at.set(Some(until));
        sleep_until(until).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn the_rate_holds_over_any_number_of_pieces() {
        let pace = Pace::new(1_000_000);
        let start = Instant::now();
        for _ in 0..20 {
            pace.pay(50_000).await;
        }
        let took = start.elapsed();
        assert!(
            took >= Duration::from_millis(999) && took < Duration::from_millis(1100),
            "{took:?}"
        );
    }
}
