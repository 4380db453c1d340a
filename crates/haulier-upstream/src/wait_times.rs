//! A histogram of the waits for a connection.

use std::time::Duration;

/// A histogram of waits: their number in each class, and their sum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WaitTimes {
    /// Waits in each class, not cumulative; the last class has those above every bound.
    pub classes: [u64; Self::BOUNDS.len() + 1],
    /// Sum of all waits.
    pub sum: Duration,
}

impl WaitTimes {
    /// Upper bounds of the classes: 1 ms to 1 min.
    pub const BOUNDS: [Duration; 14] = [
        Duration::from_millis(1),
        Duration::from_micros(2500),
        Duration::from_millis(5),
        Duration::from_millis(10),
        Duration::from_millis(25),
        Duration::from_millis(50),
        Duration::from_millis(100),
        Duration::from_millis(250),
        Duration::from_millis(500),
        Duration::from_secs(1),
        Duration::from_millis(2500),
        Duration::from_secs(5),
        Duration::from_secs(10),
        Duration::from_secs(60),
    ];

    /// The class of a time. The search begins at the shortest, since most waits are short.
    #[must_use]
    pub fn class_of(time: Duration) -> usize {
        let class = Self::BOUNDS.iter().position(|&bound| time <= bound);
        class.unwrap_or(Self::BOUNDS.len())
    }

    /// Both histograms together.
    pub(crate) fn plus(mut self, other: Self) -> Self {
        for (class, more) in self.classes.iter_mut().zip(other.classes) {
            *class += more;
        }
        self.sum += other.sum;
        self
    }

    pub(crate) fn record(&mut self, wait: Duration) {
        self.classes[Self::class_of(wait)] += 1;
        self.sum += wait;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_belongs_to_the_first_class_whose_bound_it_does_not_exceed() {
        let rows = [(0, 0), (1_000, 0), (1_001, 1), (60_000_000, 13), (60_000_001, 14)];
        for (micros, class) in rows {
            assert_eq!(WaitTimes::class_of(Duration::from_micros(micros)), class, "{micros} µs");
        }
        assert!(WaitTimes::BOUNDS.is_sorted());
    }

    #[test]
    fn every_wait_is_in_one_class_and_in_the_sum() {
        let mut waits = WaitTimes::default();
        for seconds in [0, 3, 90] {
            waits.record(Duration::from_secs(seconds));
        }
        assert_eq!(waits.classes.iter().sum::<u64>(), 3);
        assert_eq!((waits.classes[0], waits.classes[11], waits.classes[14]), (1, 1, 1));
        assert_eq!(waits.sum, Duration::from_secs(93));
        let twice = waits.plus(waits);
        assert_eq!((twice.classes[11], twice.sum), (2, Duration::from_secs(186)));
    }
}
