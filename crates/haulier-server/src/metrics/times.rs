//! Histogram of durations, summed over all threads.

use std::time::Duration;

use haulier_php::WaitTimes;

/// Counts of durations by class of [`WaitTimes::BOUNDS`], and their sum.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct DurationHistogram {
    /// Not cumulative; the last class holds durations above every bound.
    pub classes: [u64; CLASSES],
    /// Sum of all durations.
    pub sum: Duration,
}

pub(super) const CLASSES: usize = WaitTimes::BOUNDS.len() + 1;

impl DurationHistogram {
    /// Number of durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.classes.iter().sum()
    }

    /// The difference from `earlier`, an older snapshot of the same histogram.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut rest = *self;
        for (class, before) in rest.classes.iter_mut().zip(earlier.classes) {
            *class = class.saturating_sub(before);
        }
        rest.sum = rest.sum.saturating_sub(earlier.sum);
        rest
    }

    /// The sum with another histogram.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        for (class, more) in self.classes.iter_mut().zip(other.classes) {
            *class += more;
        }
        self.sum += other.sum;
        self
    }

    /// The quantile `q` (0 to 1), interpolated linearly within its class; `None` if empty. Durations above the last
    /// bound count as that bound.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let wanted = q * count as f64;
        let (mut below, mut lower) = (0.0, Duration::ZERO);
        for (&class, &upper) in self.classes.iter().zip(&WaitTimes::BOUNDS) {
            let class = class as f64;
            if class > 0.0 && below + class >= wanted {
                return Some(lower + (upper - lower).mul_f64(((wanted - below) / class).clamp(0.0, 1.0)));
            }
            below += class;
            lower = upper;
        }
        Some(lower)
    }

    /// Upper bounds in seconds with the counts of their classes. The library makes them cumulative.
    pub(super) fn buckets(&self) -> [(f64, u64); CLASSES] {
        std::array::from_fn(|class| {
            let bound = WaitTimes::BOUNDS
                .get(class)
                .map_or(f64::INFINITY, Duration::as_secs_f64);
            (bound, self.classes[class])
        })
    }
}

impl From<WaitTimes> for DurationHistogram {
    fn from(waits: WaitTimes) -> Self {
        Self {
            classes: waits.classes,
            sum: waits.sum,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(durations: &[u64]) -> DurationHistogram {
        let mut times = DurationHistogram::default();
        for &milliseconds in durations {
            let duration = Duration::from_millis(milliseconds);
            times.classes[WaitTimes::class_of(duration)] += 1;
            times.sum += duration;
        }
        times
    }

    #[test]
    fn a_quantile_lies_in_the_class_that_holds_it() {
        let times = times(&[1, 1, 1, 1, 40, 40, 40, 40, 40, 400]);
        let median = times.quantile(0.5).expect("some");
        assert!(
            median > Duration::from_millis(25) && median <= Duration::from_millis(50),
            "{median:?}"
        );
        assert!(times.quantile(0.95).expect("some") > Duration::from_millis(250));
        assert!(times.quantile(0.1).expect("some") <= Duration::from_millis(1));
    }

    #[test]
    fn an_empty_histogram_has_no_quantile_and_the_last_bound_is_the_largest() {
        assert_eq!(DurationHistogram::default().quantile(0.5), None);
        assert_eq!(times(&[90_000]).quantile(0.5), Some(Duration::from_secs(60)));
    }

    #[test]
    fn since_subtracts_an_earlier_snapshot() {
        let (earlier, later) = (times(&[1, 30]), times(&[1, 30, 30, 700]));
        assert_eq!(later.since(&earlier), times(&[30, 700]));
        assert_eq!(earlier.and(&times(&[30, 700])), later);
    }
}
