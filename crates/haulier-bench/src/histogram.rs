//! Times in a fixed amount of memory: HdrHistogram, microseconds, three digits, up to an hour.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram as Hdr;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::{Deserialize, Serialize};

use super::result::{Distribution, PERCENTILES};

/// Longer times are counted as this long: an hour, µs.
const LONGEST: u64 = 3_600_000_000;
/// Significant digits of every value.
const DIGITS: u8 = 3;

/// A histogram of times, always about 180 KB.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram(Hdr<u64>);

impl Default for Histogram {
    fn default() -> Self {
        Self(Hdr::new_with_bounds(1, LONGEST, DIGITS).expect("the bounds are good"))
    }
}

impl Histogram {
    /// Adds one time, nanoseconds.
    pub fn record(&mut self, nanoseconds: u64) {
        self.0.saturating_record(nanoseconds / 1000);
    }

    /// Adds all times of another.
    pub fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("both have the same bounds");
    }

    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The time that `percent` of the samples stayed within, µs; 0 without samples.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> u64 {
        if self.0.is_empty() {
            return 0;
        }
        self.0.value_at_percentile(percent).min(self.0.max())
    }

    /// The mean, µs; 0 without samples.
    #[must_use]
    pub fn mean(&self) -> f64 {
        if self.0.is_empty() { 0.0 } else { self.0.mean() }
    }

    /// The standard deviation of a sample (n − 1), µs; 0 with fewer than two.
    #[must_use]
    pub fn deviation(&self) -> f64 {
        let count = self.0.len() as f64;
        if count < 2.0 {
            return 0.0;
        }
        self.0.stdev() * (count / (count - 1.0)).sqrt()
    }

    /// The shortest time, µs.
    #[must_use]
    pub fn min(&self) -> u64 {
        if self.0.is_empty() { 0 } else { self.0.min() }
    }

    /// The longest time, µs.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.0.max()
    }

    /// Distinct values, ascending, µs, each with its count.
    pub fn values(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0
            .iter_recorded()
            .map(|step| (step.value_iterated_to(), step.count_at_value()))
    }

    /// The form that a stored run has.
    #[must_use]
    pub fn distribution(&self) -> Distribution {
        Distribution {
            count: self.count(),
            mean_us: self.mean(),
            deviation_us: self.deviation(),
            min_us: self.min(),
            max_us: self.max(),
            percentiles: PERCENTILES.map(|percent| (percent, self.percentile(percent))).to_vec(),
            histogram: self.encode(),
        }
    }

    /// HdrHistogram V2, deflated, base64: the form of [`Distribution::histogram`] and of HDR logs.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new()
            .serialize(&self.0, &mut bytes)
            .expect("memory takes everything");
        STANDARD.encode(bytes)
    }

    /// The reverse of [`Histogram::encode`]; `None` if the text is no histogram of times.
    #[must_use]
    pub fn decode(text: &str) -> Option<Self> {
        let bytes = STANDARD.decode(text).ok()?;
        let found: Hdr<u64> = Deserializer::new().deserialize(&mut bytes.as_slice()).ok()?;
        let mut histogram = Self::default();
        histogram.0.add(&found).ok()?;
        Some(histogram)
    }
}

impl Serialize for Histogram {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.encode())
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::decode(&text).ok_or_else(|| serde::de::Error::custom("not a histogram"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn percentiles_are_right_to_three_digits() {
        let mut histogram = Histogram::default();
        for time in 1..=10_000 {
            histogram.record(time * MS);
        }
        for (percent, expected) in [(50.0, 5_000_000.0), (99.0, 9_900_000.0), (100.0, 10_000_000.0)] {
            let found = histogram.percentile(percent) as f64;
            assert!((found / expected - 1.0).abs() < 0.001, "p{percent}: {found}");
        }
        assert!((histogram.mean() / 5_000_500.0 - 1.0).abs() < 0.001);
        assert!((histogram.deviation() / 2_886_896.0 - 1.0).abs() < 0.002);
    }

    #[test]
    fn an_empty_histogram_has_no_times_and_no_nonsense() {
        let empty = Histogram::default().distribution();
        assert_eq!((empty.count, empty.min_us, empty.max_us), (0, 0, 0));
        assert_eq!((empty.mean_us, empty.deviation_us), (0.0, 0.0));
        assert!(empty.percentiles.iter().all(|(_, time)| *time == 0));
    }

    #[test]
    fn a_histogram_survives_being_written_down() {
        let mut histogram = Histogram::default();
        for time in [0, 17, 1_000, 40_000_000, 7_200_000_000_000] {
            histogram.record(time);
        }
        let back = Histogram::decode(&histogram.encode()).expect("our own");
        assert_eq!(
            back.values().collect::<Vec<_>>(),
            histogram.values().collect::<Vec<_>>()
        );
        assert_eq!(Histogram::decode("AAAA"), None);
        assert_eq!(Histogram::decode("not base64!"), None);
    }

    #[test]
    fn adding_is_the_same_as_recording_all_in_one() {
        let (mut left, mut right, mut both) = (Histogram::default(), Histogram::default(), Histogram::default());
        for time in 0..1000 {
            both.record(time * MS);
            if time % 3 == 0 { &mut left } else { &mut right }.record(time * MS);
        }
        left.add(&right);
        assert_eq!(left, both);
    }
}
