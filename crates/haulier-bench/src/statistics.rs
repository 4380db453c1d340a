//! The ratio of paired measurements, with its interval and a test against chance.
//!
//! The unit is a slice, never a request: requests of one slice share its conditions. Slices form pairs that ran close
//! together, so drift affects both of a pair. The mean is over the logarithms of their ratios. Its interval is a
//! bootstrap, widened for few pairs (Hesterberg 2015, §5.3, "expanded percentile"). The test swaps the two of every pair
//! in all ways (Fisher), which assumes nothing but equal targets.

use fastrand::Rng;

/// Resamples of the bootstrap, and of a test with too many pairs to try all swaps. Unit tests judge thousands of runs.
const RESAMPLES: usize = if cfg!(test) { 1_000 } else { 10_000 };
/// Up to this number of pairs the test tries all 2ⁿ swaps.
const MOST_EXACT: usize = 14;
/// Pairs below which no test can reach a level of 5 %: 2/2⁵ is 6.25 %.
pub const LEAST_PAIRS: usize = 6;

/// Quantiles of the normal distribution.
const Z_80: f64 = 0.841_621;
pub(crate) const Z_975: f64 = 1.959_964;
const Z_995: f64 = 2.575_829;

/// The ratio of the second to the first of paired positive measurements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    pub ratio: f64,
    /// 95 % interval.
    pub low: f64,
    pub high: f64,
    /// Probability of a mean as far from 1 by chance alone.
    pub p_value: f64,
    pub pairs: usize,
    /// The ratio above 1 that a run of this spread shows four times in five; `None` with fewer than two pairs.
    pub smallest_visible: Option<f64>,
}

/// The difference that an [`Estimate`] shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    Higher,
    Lower,
    None,
    TooFewPairs,
}

impl Estimate {
    /// Judges pairs of measurements; `None` if there is no pair of two positive ones.
    #[must_use]
    pub fn of(pairs: &[(f64, f64)], seed: u64) -> Option<Self> {
        let logs: Vec<f64> = pairs
            .iter()
            .filter(|(base, other)| *base > 0.0 && *other > 0.0 && base.is_finite() && other.is_finite())
            .map(|(base, other)| (other / base).ln())
            .collect();
        if logs.is_empty() {
            return None;
        }
        let mut random = Rng::with_seed(seed);
        let center = mean(&logs);
        let (low, high) = interval(&logs, &mut random);
        Some(Self {
            ratio: center.exp(),
            low: low.exp(),
            high: high.exp(),
            p_value: p_value(&logs, &mut random),
            pairs: logs.len(),
            smallest_visible: smallest_visible(&logs),
        })
    }

    /// Claims a difference if the interval excludes 1, the test agrees, and the ratio exceeds `floor`, the ratio above 1
    /// that two equal targets reached.
    ///
    /// The test's level is 1 %, because several quantities are judged at once. It is 5 % with 6 or 7 pairs, which cannot
    /// reach 1 %.
    #[must_use]
    pub fn finding(&self, floor: Option<f64>) -> Finding {
        if self.pairs < LEAST_PAIRS {
            return Finding::TooFewPairs;
        }
        let level = if self.pairs < LEAST_PAIRS + 2 { 0.05 } else { 0.01 };
        let is_above_floor = self.ratio.ln().abs() > floor.unwrap_or(1.0).ln().abs();
        let leaves_one_out = self.low > 1.0 || self.high < 1.0;
        if self.p_value > level || !leaves_one_out || !is_above_floor {
            Finding::None
        } else if self.ratio > 1.0 {
            Finding::Higher
        } else {
            Finding::Lower
        }
    }

    /// The largest ratio above 1 within the interval, in either direction: the noise floor if both targets are equal.
    #[must_use]
    pub fn reach(&self) -> f64 {
        self.low.ln().abs().max(self.high.ln().abs()).exp()
    }
}

/// The median; 0 of nothing.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.len(), sorted.len() / 2) {
        (0, _) => 0.0,
        (length, half) if length % 2 == 1 => sorted[half],
        (_, half) => f64::midpoint(sorted[half - 1], sorted[half]),
    }
}

pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The standard deviation of a sample.
fn deviation(values: &[f64]) -> f64 {
    let center = mean(values);
    let squares: f64 = values.iter().map(|value| (value - center).powi(2)).sum();
    (squares / (values.len() as f64 - 1.0)).sqrt()
}

/// 95 % bootstrap interval of the mean.
fn interval(logs: &[f64], random: &mut Rng) -> (f64, f64) {
    let (count, center) = (logs.len(), mean(logs));
    if count < 2 {
        return (f64::NEG_INFINITY, f64::INFINITY);
    }
    let mut means: Vec<f64> = (0..RESAMPLES)
        .map(|_| (0..count).map(|_| logs[random.usize(..count)]).sum::<f64>() / count as f64)
        .collect();
    means.sort_by(f64::total_cmp);
    let at = |share: f64| means[((RESAMPLES - 1) as f64 * share).round() as usize];
    // The bootstrap of a few values is too narrow by these two factors.
    let freedom = count as f64 - 1.0;
    let wider = (count as f64 / freedom).sqrt() * student(Z_975, freedom) / Z_975;
    let stretch = |bound: f64| center + (bound - center) * wider;
    (stretch(at(0.025)), stretch(at(0.975)))
}

/// Share of all swaps within pairs that give a mean at least as far from 0.
fn p_value(logs: &[f64], random: &mut Rng) -> f64 {
    let observed = logs.iter().sum::<f64>().abs() - 1e-12;
    let sum = |swaps: u64| -> f64 {
        let signed = logs.iter().enumerate();
        signed
            .map(|(place, log)| if swaps >> place & 1 == 1 { -log } else { *log })
            .sum()
    };
    if logs.len() <= MOST_EXACT {
        let ways = 1u64 << logs.len();
        let as_far = (0..ways).filter(|swaps| sum(*swaps).abs() >= observed).count();
        return as_far as f64 / ways as f64;
    }
    let as_far = (0..RESAMPLES)
        .filter(|_| {
            let total: f64 = logs.iter().map(|log| if random.bool() { -log } else { *log }).sum();
            total.abs() >= observed
        })
        .count();
    // Counting the observed way itself keeps the test honest (Phipson and Smyth 2010).
    (as_far + 1) as f64 / (RESAMPLES + 1) as f64
}

fn smallest_visible(logs: &[f64]) -> Option<f64> {
    if logs.len() < 2 {
        return None;
    }
    let freedom = logs.len() as f64 - 1.0;
    let error = deviation(logs) / (logs.len() as f64).sqrt();
    Some(((student(Z_995, freedom) + student(Z_80, freedom)) * error).exp())
}

/// The quantile of Student's distribution that belongs to a quantile of the normal one (Cornish and Fisher).
pub(crate) fn student(z: f64, freedom: f64) -> f64 {
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let third = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    z + first / freedom + second / freedom.powi(2) + third / freedom.powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// About normal: the sum of twelve even ones.
    fn normal(random: &mut Rng) -> f64 {
        (0..12).map(|_| random.f64()).sum::<f64>() - 6.0
    }

    /// Pairs of a true ratio, each measurement off by so much (a share), and a drift over the run.
    fn pairs(random: &mut Rng, count: usize, ratio: f64, noise: f64) -> Vec<(f64, f64)> {
        (0..count)
            .map(|place| {
                let drift = 1000.0 * (1.0 + 0.3 * place as f64 / count as f64);
                let mut one = |scale: f64| drift * scale * (noise * normal(random)).exp();
                (one(1.0), one(ratio))
            })
            .collect()
    }

    #[test]
    fn equal_targets_are_called_equal() {
        let mut random = Rng::with_seed(1);
        let found = (0..400)
            .filter(|seed| {
                let estimate = Estimate::of(&pairs(&mut random, 10, 1.0, 0.03), *seed).expect("pairs");
                estimate.finding(None) != Finding::None
            })
            .count();
        assert!(found <= 10, "{found} of 400 called different");
    }

    #[test]
    fn a_tenth_less_is_found() {
        let mut random = Rng::with_seed(2);
        let found = (0..200)
            .filter(|seed| {
                let estimate = Estimate::of(&pairs(&mut random, 10, 0.9, 0.03), *seed).expect("pairs");
                estimate.finding(None) == Finding::Lower
            })
            .count();
        assert!(found >= 196, "{found} of 200 found");
    }

    #[test]
    fn the_interval_holds_the_truth_as_often_as_it_says() {
        let mut random = Rng::with_seed(3);
        let held = (0..1000)
            .filter(|seed| {
                let estimate = Estimate::of(&pairs(&mut random, 10, 1.2, 0.05), *seed).expect("pairs");
                estimate.low <= 1.2 && 1.2 <= estimate.high
            })
            .count();
        assert!((925..=975).contains(&held), "{held} of 1000");
    }

    #[test]
    fn the_smallest_visible_difference_is_seen_about_four_times_in_five() {
        let mut random = Rng::with_seed(4);
        let visible = Estimate::of(&pairs(&mut random, 10_000, 1.0, 0.02), 1).expect("pairs");
        assert!(visible.smallest_visible.expect("many pairs") < 1.002);
        let sizes: Vec<f64> = (0..200)
            .filter_map(|seed| Estimate::of(&pairs(&mut random, 10, 1.0, 0.02), seed)?.smallest_visible)
            .collect();
        let typical = median(&sizes);
        let seen = (0..400)
            .filter(|seed| {
                let estimate = Estimate::of(&pairs(&mut random, 10, typical, 0.02), *seed).expect("pairs");
                estimate.finding(None) == Finding::Higher
            })
            .count();
        assert!((260..=380).contains(&seen), "{seen} of 400 at {typical}");
    }

    #[test]
    fn the_exact_test_counts_all_ways() {
        let estimate = Estimate::of(&[(1.0, 2.0); 8], 1).expect("pairs");
        // Of 256 ways only two give as much: as it was, and all swapped.
        assert!((estimate.p_value - 2.0 / 256.0).abs() < 1e-12);
        assert_eq!(estimate.finding(None), Finding::Higher);
        let balanced = [(1.0, 2.0), (2.0, 1.0), (1.0, 2.0), (2.0, 1.0), (1.0, 2.0), (2.0, 1.0)];
        let none = Estimate::of(&balanced, 1).expect("pairs");
        assert!((none.p_value - 1.0).abs() < 1e-12);
        assert_eq!(none.finding(None), Finding::None);
    }

    #[test]
    fn few_pairs_say_nothing_and_none_is_no_estimate() {
        let few = Estimate::of(&[(1.0, 2.0); 5], 1).expect("pairs");
        assert_eq!(few.finding(None), Finding::TooFewPairs);
        let one = Estimate::of(&[(1.0, 2.0)], 1).expect("a pair");
        assert_eq!((one.low, one.high, one.smallest_visible), (0.0, f64::INFINITY, None));
        assert_eq!(Estimate::of(&[(0.0, 1.0)], 1), None);
    }

    #[test]
    fn nothing_below_the_noise_floor_is_a_difference() {
        let estimate = Estimate::of(&[(100.0, 103.0); 10], 1).expect("pairs");
        assert_eq!(estimate.finding(Some(1.02)), Finding::Higher);
        assert_eq!(estimate.finding(Some(1.05)), Finding::None);
        assert!((estimate.reach() - 1.03).abs() < 1e-9);
    }

    #[test]
    fn quantiles_of_student_are_those_of_the_tables() {
        for (freedom, expected) in [(5.0, 2.571), (9.0, 2.262), (19.0, 2.093), (1e6, 1.960)] {
            assert!((student(Z_975, freedom) - expected).abs() < 0.01, "{freedom}");
        }
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
    }
}
