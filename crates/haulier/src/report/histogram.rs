//! A stored histogram as steps of a logarithmic axis.

use haulier_client::bench::histogram::Histogram;

/// Steps from one power of ten to the next: as fine as a chart shows well.
const STEPS: f64 = 20.0;

/// Each step that has samples, and those between, as `(from, to, share)`: microseconds, and a part of all samples.
///
/// `None` for what is no histogram, or an empty one.
pub(super) fn shares(stored: &str) -> Option<Vec<(f64, f64, f64)>> {
    let histogram = Histogram::decode(stored)?;
    let mut counts: Vec<(i32, u64)> = Vec::new();
    for (us, count) in histogram.values() {
        let step = ((us.max(1) as f64).log10() * STEPS).floor() as i32;
        match counts.last_mut() {
            Some((last, sum)) if *last == step => *sum += count,
            _ => counts.push((step, count)),
        }
    }
    let (first, last) = (counts.first()?.0, counts.last()?.0);
    let all = histogram.count() as f64;
    let edge = |step: i32| 10_f64.powf(f64::from(step) / STEPS);
    let share = |step: i32| counts.iter().find(|(known, _)| *known == step).map_or(0.0, |(_, count)| *count as f64 / all);
    Some((first..=last).map(|step| (edge(step), edge(step + 1), share(step))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_and_gaps_are_steps_of_nothing() {
        let mut histogram = Histogram::default();
        for us in [1000, 1010, 1020, 20_000] {
            histogram.record(us * 1000);
        }
        let shares = shares(&histogram.encode()).expect("our own");
        let sum: f64 = shares.iter().map(|(.., share)| share).sum();
        assert!((sum - 1.0).abs() < 1e-9);
        assert_eq!(shares[0].2, 0.75);
        assert!(shares.len() > 20 && shares[5].2 == 0.0);
        assert!(shares.windows(2).all(|pair| (pair[0].1 - pair[1].0).abs() < 1e-6));
    }

    #[test]
    fn what_is_no_histogram_has_no_shares() {
        assert_eq!(shares(""), None);
        assert_eq!(shares(&Histogram::default().encode()), None);
    }
}
