//! Comparison of targets by their slices: ratios, verdicts and sentences.

use std::collections::BTreeMap;

use super::probe::differences;
use super::result::{Comparison, Distribution, Metric, Noise, Point, Slice, Target, Verdict};
use super::statistics::{Estimate, Finding};

/// All compared metrics, in the order of tables.
pub const METRICS: [Metric; 7] = [
    Metric::RequestsPerSecond,
    Metric::LatencyP50,
    Metric::LatencyP95,
    Metric::LatencyP99,
    Metric::FirstByte,
    Metric::ServerCpu,
    Metric::WorkerTime,
];

/// Share of failed requests beyond which targets are not compared.
const MOST_FAILED: f64 = 0.01;

impl Metric {
    /// Its value in a slice, if it was measured there.
    #[must_use]
    pub fn of(self, slice: &Slice) -> Option<f64> {
        let time = |microseconds: u64| (slice.requests > 0).then_some(microseconds as f64);
        match self {
            Self::RequestsPerSecond => Some(slice.requests_per_second),
            Self::LatencyP50 => time(slice.p50_us),
            Self::LatencyP95 => time(slice.p95_us),
            Self::LatencyP99 => time(slice.p99_us),
            Self::FirstByte => time(slice.first_byte_us),
            Self::ServerCpu => slice.server?.cpu_us_per_request,
            Self::WorkerTime => slice.server?.worker_us_per_request,
        }
    }

    /// Its value over all slices together, as terminal and report show it.
    ///
    /// Comparisons use [`Metric::of`] instead: the slices of a pair met the same conditions.
    #[must_use]
    pub fn of_all(self, point: &Point) -> Option<f64> {
        let total = &point.total;
        let time = |times: &Distribution, percent: f64| {
            let known = times.percentile(percent).filter(|_| times.count > 0);
            known.map(|microseconds| microseconds as f64)
        };
        match self {
            Self::RequestsPerSecond => Some(total.requests_per_second),
            Self::LatencyP50 => time(&total.latency, 50.0),
            Self::LatencyP95 => time(&total.latency, 95.0),
            Self::LatencyP99 => time(&total.latency, 99.0),
            Self::FirstByte => time(&total.first_byte, 50.0),
            Self::ServerCpu => total.server?.cpu_us_per_request,
            Self::WorkerTime => total.server?.worker_us_per_request,
        }
    }
}

/// Compares every target with the first one, level by level.
#[must_use]
pub fn compare(targets: &[Target], points: &[Point], noise: Option<&Noise>, seed: u64) -> Vec<Comparison> {
    let mut found = Vec::new();
    for base in points.iter().filter(|point| point.target == 0) {
        let others = points
            .iter()
            .filter(|other| other.target > 0 && other.connections == base.connections && other.rate == base.rate);
        for other in others {
            for metric in METRICS {
                let floor = noise.and_then(|noise| noise.floor.get(&metric)).copied();
                found.extend(of_points(metric, base, other, targets, floor, seed));
            }
        }
    }
    found
}

fn of_points(
    metric: Metric,
    base: &Point,
    other: &Point,
    targets: &[Target],
    floor: Option<f64>,
    seed: u64,
) -> Option<Comparison> {
    let estimate = Estimate::of(&pairs(metric, &base.slices, &other.slices), seed)?;
    let verdict = if is_comparable(targets, base, other) {
        match (estimate.finding(floor), metric.more_is_better()) {
            (Finding::TooFewPairs, _) => Verdict::TooFew,
            (Finding::None, _) => Verdict::NoDifference,
            (Finding::Higher, true) | (Finding::Lower, false) => Verdict::Better,
            (Finding::Lower, true) | (Finding::Higher, false) => Verdict::Worse,
        }
    } else {
        Verdict::NotComparable
    };
    Some(Comparison {
        metric,
        base: base.target,
        other: other.target,
        connections: base.connections,
        rate: base.rate,
        ratio: estimate.ratio,
        low: estimate.low,
        high: finite(estimate.high),
        p_value: estimate.p_value,
        pairs: u32::try_from(estimate.pairs).unwrap_or(u32::MAX),
        smallest_visible: estimate.smallest_visible.map(finite),
        verdict,
        words: words(metric, &estimate, verdict),
    })
}

/// JSON knows no infinity.
fn finite(value: f64) -> f64 {
    value.min(f64::MAX)
}

/// Pairs of slices of the same round: the first of both targets, the second of both.
#[must_use]
pub fn pairs(metric: Metric, base: &[Slice], other: &[Slice]) -> Vec<(f64, f64)> {
    let mut by_round: BTreeMap<u32, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    for slice in base {
        by_round.entry(slice.round).or_default().0.extend(metric.of(slice));
    }
    for slice in other {
        by_round.entry(slice.round).or_default().1.extend(metric.of(slice));
    }
    by_round
        .into_values()
        .flat_map(|(base, other)| base.into_iter().zip(other))
        .collect()
}

fn is_comparable(targets: &[Target], base: &Point, other: &Point) -> bool {
    let status = |point: &Point| targets.get(point.target)?.answer.as_ref().map(|answer| answer.status);
    let is_whole = |point: &Point| {
        let (good, failed) = (point.total.requests as f64, point.total.failures.all() as f64);
        good > 0.0 && failed <= (good + failed) * MOST_FAILED
    };
    let has_same_status = match (status(base), status(other)) {
        (Some(base), Some(other)) => base == other,
        _ => true,
    };
    has_same_status && is_whole(base) && is_whole(other)
}

/// The comparison in a cell of a table.
fn words(metric: Metric, estimate: &Estimate, verdict: Verdict) -> String {
    match verdict {
        Verdict::TooFew => format!(
            "{}× in {} pairs: too few to tell",
            ratio(estimate.ratio),
            estimate.pairs
        ),
        Verdict::NotComparable => "not comparable".to_owned(),
        Verdict::NoDifference => format!("no difference shown ({})", range(estimate.low, estimate.high)),
        Verdict::Better | Verdict::Worse => {
            let (times, low, high) = above_one(estimate.ratio, estimate.low, estimate.high);
            let word = match (metric, estimate.ratio > 1.0) {
                (Metric::RequestsPerSecond, true) => "more",
                (Metric::RequestsPerSecond, false) => "fewer",
                (Metric::ServerCpu | Metric::WorkerTime, true) => "more",
                (Metric::ServerCpu | Metric::WorkerTime, false) => "less",
                (_, true) => "longer",
                (_, false) => "shorter",
            };
            format!("{}× {word} ({})", ratio(times), range(low, high))
        }
    }
}

/// The ratio and its interval, inverted below 1: "3× less" reads more easily than "0.33×".
fn above_one(ratio: f64, low: f64, high: f64) -> (f64, f64, f64) {
    if ratio >= 1.0 {
        (ratio, low, high)
    } else {
        (1.0 / ratio, 1.0 / high, 1.0 / low)
    }
}

/// `0.97–1.04×`.
fn range(low: f64, high: f64) -> String {
    format!("{}–{}×", ratio(low), ratio(high))
}

/// Three significant digits.
fn ratio(value: f64) -> String {
    match value {
        _ if value >= 99.95 => format!("{value:.0}"),
        _ if value >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// The result in sentences: one for each comparison of the main metric, and the noise floor.
#[must_use]
pub fn sentences(targets: &[Target], comparisons: &[Comparison], noise: Option<&Noise>) -> Vec<String> {
    let is_open_loop = comparisons.iter().any(|comparison| comparison.rate.is_some());
    let headline = if is_open_loop {
        Metric::LatencyP99
    } else {
        Metric::RequestsPerSecond
    };
    let levels: Vec<(u32, Option<u64>)> = comparisons.iter().map(level).collect();
    let has_levels = levels.windows(2).any(|pair| pair[0] != pair[1]);
    let mut found: Vec<String> = comparisons
        .iter()
        .filter(|comparison| comparison.metric == headline)
        .map(|comparison| sentence(targets, comparison, has_levels))
        .collect();
    if let Some(noise) = noise {
        let floor = noise.floor.get(&headline).copied().unwrap_or(1.0);
        let name = &targets[noise.target].name;
        let what = headline.label();
        found.push(format!(
            "noise floor: {name} against itself differs by up to {:.1} % in {what}",
            (floor - 1.0) * 100.0
        ));
    }
    found
}

fn level(comparison: &Comparison) -> (u32, Option<u64>) {
    (comparison.connections, comparison.rate.map(f64::to_bits))
}

fn sentence(targets: &[Target], comparison: &Comparison, has_levels: bool) -> String {
    let (base, other) = (&targets[comparison.base], &targets[comparison.other]);
    let at = match (has_levels, comparison.rate) {
        (false, _) => String::new(),
        (true, Some(rate)) => format!(" at {rate:.0} requests/s"),
        (true, None) => format!(" at {} connections", comparison.connections),
    };
    let work = match (&base.answer, &other.answer) {
        (Some(base_answer), Some(other_answer)) => {
            differences(base_answer, other_answer, base.varies || other.varies).join(", ")
        }
        _ => String::new(),
    };
    let not_same = if work.is_empty() {
        String::new()
    } else {
        format!("not the same work ({work}): ")
    };
    let (times, low, high) = above_one(comparison.ratio, comparison.low, comparison.high);
    let (name, base_name) = (&other.name, &base.name);
    let said = match comparison.verdict {
        Verdict::NotComparable => format!("{name} and {base_name} cannot be compared{at}"),
        Verdict::TooFew => format!("{name} against {base_name}{at}: {}", comparison.words),
        Verdict::NoDifference => {
            let smallest = comparison.smallest_visible.map_or_else(String::new, |visible| {
                format!(
                    "; a difference of {:.1} % would have been seen",
                    (visible - 1.0) * 100.0
                )
            });
            format!("{name} against {base_name}{at}: {}{smallest}", comparison.words)
        }
        Verdict::Better | Verdict::Worse => {
            let faster = match (comparison.metric, comparison.verdict) {
                (Metric::RequestsPerSecond, Verdict::Better) => "faster than",
                (Metric::RequestsPerSecond, _) => "slower than",
                (_, Verdict::Better) => "faster at p99 than",
                (_, _) => "slower at p99 than",
            };
            let sure = range(low, high);
            format!(
                "{name} is {}× {faster} {base_name}{at} (95 % sure: {sure})",
                ratio(times)
            )
        }
    };
    format!("{not_same}{said}")
}

/// Noise floor: the differences between two equal targets.
#[must_use]
pub fn noise(target: usize, once: &[Slice], again: &[Slice], seed: u64) -> Noise {
    let floor = METRICS.into_iter().filter_map(|metric| {
        let estimate = Estimate::of(&pairs(metric, once, again), seed)?;
        let reach = estimate.reach();
        reach.is_finite().then_some((metric, reach))
    });
    Noise {
        target,
        floor: floor.collect(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::histogram::Histogram;
    use crate::result::{Failures, Total};

    pub(in super::super) fn slice(round: u32, rate: f64, p50_us: u64) -> Slice {
        Slice {
            round,
            order: 0,
            start_s: 0.0,
            duration_s: 1.0,
            requests: rate as u64,
            failed: 0,
            requests_per_second: rate,
            p50_us,
            p95_us: p50_us,
            p99_us: p50_us,
            max_us: p50_us,
            first_byte_us: p50_us,
            connections_opened: 1,
            generator_cpu: 0.1,
            server: None,
            kernel: Default::default(),
            others_cpu_s: None,
        }
    }

    pub(in super::super) fn point(target: usize, slices: Vec<Slice>) -> Point {
        let times = Histogram::default().distribution();
        let total = Total {
            duration_s: 1.0,
            requests: 1000,
            requests_per_second: 1000.0,
            failures: Failures::default(),
            statuses: BTreeMap::new(),
            connections_opened: 1,
            bytes: Default::default(),
            latency: times.clone(),
            service: None,
            first_byte: times,
            connect: None,
            sent_late: None,
            waited_for_connection: None,
            generator: Default::default(),
            server: None,
            timeline: Vec::new(),
        };
        Point {
            target,
            connections: 10,
            rate: None,
            slices,
            total,
        }
    }

    fn targets() -> Vec<Target> {
        ["A", "B"]
            .map(|name| Target {
                name: name.to_owned(),
                url: String::new(),
                answer: None,
                varies: false,
                version: None,
            })
            .to_vec()
    }

    /// Five rounds of two slices each; `B` serves `ratio` as many.
    fn run(ratio: f64) -> Vec<Point> {
        let slices = |factor: f64| {
            (0..10)
                .map(|place| {
                    let wobble = 1.0 + 0.01 * f64::from(place % 3);
                    slice(place / 2, 1000.0 * factor * wobble, (10_000.0 / factor / wobble) as u64)
                })
                .collect()
        };
        vec![point(0, slices(1.0)), point(1, slices(ratio))]
    }

    #[test]
    fn more_requests_and_less_time_are_both_better() {
        let points = run(1.3);
        let found = compare(&targets(), &points, None, 1);
        let of = |metric| found.iter().find(|one| one.metric == metric).expect("measured");
        assert_eq!(of(Metric::RequestsPerSecond).words, "1.30× more (1.30–1.30×)");
        assert_eq!(of(Metric::LatencyP50).words, "1.30× shorter (1.30–1.30×)");
        assert!(found.iter().all(|one| one.verdict == Verdict::Better));
        let said = sentences(&targets(), &found, None);
        assert_eq!(said, ["B is 1.30× faster than A (95 % sure: 1.30–1.30×)"]);
    }

    #[test]
    fn fewer_is_said_the_other_way_round() {
        let said = sentences(&targets(), &compare(&targets(), &run(0.5), None, 1), None);
        assert_eq!(said, ["B is 2.00× slower than A (95 % sure: 2.00–2.00×)"]);
    }

    #[test]
    fn equal_targets_show_no_difference_in_words() {
        let said = sentences(&targets(), &compare(&targets(), &run(1.0), None, 1), None);
        assert!(
            said[0].starts_with("B against A: no difference shown (1.00–1.00×)"),
            "{said:?}"
        );
    }

    #[test]
    fn pairs_are_of_the_same_round_and_place() {
        let base = [slice(0, 1.0, 1), slice(0, 2.0, 1), slice(1, 3.0, 1)];
        let other = [slice(0, 10.0, 1), slice(1, 30.0, 1), slice(1, 40.0, 1)];
        assert_eq!(
            pairs(Metric::RequestsPerSecond, &base, &other),
            [(1.0, 10.0), (3.0, 30.0)]
        );
    }

    #[test]
    fn many_failures_make_figures_incomparable() {
        let mut points = run(1.3);
        points[1].total.failures.refused = 500;
        let found = compare(&targets(), &points, None, 1);
        assert!(found.iter().all(|one| one.verdict == Verdict::NotComparable));
    }

    #[test]
    fn nothing_below_the_noise_floor_is_called_a_difference() {
        let points = run(1.05);
        let once: Vec<Slice> = (0..10).map(|place| slice(place / 2, 1000.0, 10)).collect();
        let again: Vec<Slice> = (0..10)
            .map(|place| slice(place / 2, if place % 2 == 0 { 1100.0 } else { 920.0 }, 10))
            .collect();
        let noise = noise(0, &once, &again, 1);
        assert!(noise.floor[&Metric::RequestsPerSecond] > 1.05, "{noise:?}");
        let found = compare(&targets(), &points, Some(&noise), 1);
        assert_eq!(found[0].verdict, Verdict::NoDifference);
    }
}
