//! The rate at which a client takes a response.
//!
//! A client that takes a byte now and then never stalls, and would keep its connection, its file and its spooled body
//! for ever. The scan of the deadlines counts the ticks in which data waits for a client. When they fill a window, the
//! bytes taken meanwhile are compared with the least rate.

use std::cell::Cell;

use super::limits::Limits;
use crate::clock::Clock;

/// The current window of one connection.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Ticks with data waiting.
    ticks: Cell<u32>,
    /// Bytes that the client had taken when the window began.
    taken: Cell<u64>,
}

impl Pace {
    /// Counts a tick in which data waits for the client; `taken` is its progress, bytes. True if a window ended below
    /// the least rate.
    pub(super) fn is_too_slow(&self, limits: &Limits, taken: impl FnOnce() -> Option<u64>) -> bool {
        let window = limits.send_rate_over.as_millis() / Clock::TICK.as_millis();
        let ticks = self.ticks.get();
        if ticks > 0 && u128::from(ticks) < window {
            self.ticks.set(ticks + 1);
            return false;
        }
        let Some(taken) = taken() else { return false };
        let before = self.taken.replace(taken);
        // The tick that ends a window begins the next one.
        self.ticks.set(1);
        let least = u128::from(limits.min_send_rate) * limits.send_rate_over.as_millis() / 1000;
        ticks > 0 && u128::from(taken.saturating_sub(before)) < least
    }

    /// Drops the window, since no data waits.
    pub(super) fn reset(&self) {
        self.ticks.set(0);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_a_whole_window_of_waiting_tells() {
        let limits = Limits {
            min_send_rate: 100,
            send_rate_over: Duration::from_secs(1),
            ..Limits::default()
        };
        let pace = Pace::default();
        let ticks = |count: usize, taken: u64| (0..count).filter(|_| pace.is_too_slow(&limits, || Some(taken))).count();
        assert_eq!(ticks(10, 50), 0, "the first tick begins the window");
        assert_eq!(ticks(1, 149), 1, "99 bytes in a second");
        assert_eq!(ticks(9, 149), 0);
        assert_eq!(ticks(1, 249), 0, "100 bytes in a second");
        assert_eq!(ticks(8, 249), 0);
        pace.reset();
        assert_eq!(ticks(10, 249), 0, "another answer has its own window");
        assert_eq!(ticks(1, 249), 1);
        assert!(!pace.is_too_slow(&limits, || None), "nobody can tell");
    }
}
