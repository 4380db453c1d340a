//! Stored histograms on one logarithmic scale.

use crate::histogram::Histogram;

/// Percentiles at the ends of a scale. Samples beyond belong to its first and last step.
const MIDDLE: (f64, f64) = (0.2, 99.8);

/// The distinct times of a histogram with their counts.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TimeCounts {
    /// Microseconds, ascending.
    values: Vec<(f64, u64)>,
    count: u64,
}

impl TimeCounts {
    /// `None` if the text is no histogram, or an empty one.
    pub(super) fn of(stored: &str) -> Option<Self> {
        let histogram = Histogram::decode(stored)?;
        let values: Vec<(f64, u64)> = histogram
            .values()
            .map(|(us, count)| (us.max(1) as f64, count))
            .collect();
        (!values.is_empty()).then(|| Self {
            count: histogram.count(),
            values,
        })
    }

    /// Share of the samples in each of `steps` steps from `low` to `high`, which are equal factors.
    pub(super) fn shares(&self, low: f64, high: f64, steps: usize) -> Vec<f64> {
        let mut counts = vec![0; steps];
        for (us, count) in &self.values {
            let along = (us / low).ln() / (high / low).ln() * steps as f64;
            // The cast moves times below the scale to its first step.
            counts[(along as usize).min(steps - 1)] += count;
        }
        counts
            .into_iter()
            .map(|count| count as f64 / self.count as f64)
            .collect()
    }

    fn percentile(&self, percent: f64) -> f64 {
        let wanted = (self.count as f64 * percent / 100.0).ceil() as u64;
        let mut seen = 0;
        let found = self.values.iter().find(|(_, count)| {
            seen += count;
            seen >= wanted
        });
        found.or(self.values.last()).map_or(1.0, |(us, _)| *us)
    }
}

/// A scale for the middle part of all histograms, microseconds.
pub(super) fn range<'t>(all: impl Iterator<Item = &'t TimeCounts> + Clone) -> Option<(f64, f64)> {
    let low = all
        .clone()
        .map(|times| times.percentile(MIDDLE.0))
        .fold(f64::INFINITY, f64::min);
    let high = all.map(|times| times.percentile(MIDDLE.1)).fold(0.0, f64::max);
    // If all times are equal, they still fill a step.
    low.is_finite().then(|| (0.9 * low, (1.1 * high).max(1.5 * low)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(all: &[u64]) -> TimeCounts {
        let mut histogram = Histogram::default();
        all.iter().for_each(|us| histogram.record(us * 1000));
        TimeCounts::of(&histogram.encode()).expect("our own")
    }

    #[test]
    fn shares_add_up_and_the_ends_take_what_lies_beyond() {
        let shares = times(&[10, 1000, 1010, 20_000]).shares(100.0, 10_000.0, 4);
        assert_eq!(shares, [0.25, 0.0, 0.5, 0.25]);
    }

    #[test]
    fn a_scale_holds_all_of_them() {
        let (fast, slow) = (times(&[1000; 50]), times(&[2000, 8000]));
        let (low, high) = range([&fast, &slow].into_iter()).expect("a range");
        assert!(low < 1000.0 && high > 8000.0, "{low} to {high}");
        let (low, high) = range([&fast].into_iter()).expect("a range");
        assert!(low < 1000.0 && high > 1000.0);
        assert_eq!(range([].into_iter()), None);
    }

    #[test]
    fn a_text_that_is_no_histogram_has_no_times() {
        assert_eq!(TimeCounts::of(""), None);
        assert_eq!(TimeCounts::of(&Histogram::default().encode()), None);
    }
}
