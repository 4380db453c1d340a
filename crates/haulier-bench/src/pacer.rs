//! Due times of requests in an open loop: evenly spaced, random, or those of a log.
//!
//! A pacer knows nothing of connections. A request that could not be sent when it was due stays due: its latency counts
//! from that moment, whether the server or the generator was late.

use fastrand::Rng;
use serde::{Deserialize, Serialize};

/// Spacing of arrivals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Spacing {
    /// Equal distances.
    #[default]
    Constant,
    /// Independent arrivals: exponentially distributed distances.
    Poisson,
}

/// The arrivals of one thread, nanoseconds since its start.
#[derive(Debug)]
pub(super) struct Pacer {
    next: Option<u64>,
    kind: ArrivalTimes,
}

#[derive(Debug)]
enum ArrivalTimes {
    Constant { first: f64, distance: f64, count: u64 },
    Poisson { at: f64, mean: f64, random: Rng },
    Schedule { times: Vec<u64>, at: usize },
}

impl Pacer {
    /// Arrivals of thread `thread` of `threads`, `rate` a second for all of them together.
    pub(super) fn new(spacing: Spacing, rate: f64, thread: u32, threads: u32, seed: u64) -> Self {
        let mean = 1e9 / rate;
        let distance = mean * f64::from(threads);
        let kind = match spacing {
            Spacing::Constant => ArrivalTimes::Constant {
                first: mean * f64::from(thread),
                distance,
                count: 0,
            },
            Spacing::Poisson => ArrivalTimes::Poisson {
                at: 0.0,
                mean: distance,
                random: Rng::with_seed(seed ^ u64::from(thread).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            },
        };
        Self::begin(kind)
    }

    /// Arrivals at given times, ascending.
    pub(super) fn at(times: Vec<u64>) -> Self {
        Self::begin(ArrivalTimes::Schedule { times, at: 0 })
    }

    fn begin(kind: ArrivalTimes) -> Self {
        let mut pacer = Self { next: None, kind };
        pacer.advance();
        pacer
    }

    /// Due time of the next request; `None` at the end of the schedule.
    pub(super) fn next(&self) -> Option<u64> {
        self.next
    }

    /// Moves on to the request after the next one.
    pub(super) fn advance(&mut self) {
        self.next = match &mut self.kind {
            ArrivalTimes::Constant { first, distance, count } => {
                // Multiplied, not summed: rounding errors do not add up over a long run.
                let time = *first + *distance * *count as f64;
                *count += 1;
                Some(time as u64)
            }
            ArrivalTimes::Poisson { at, mean, random } => {
                *at -= *mean * (1.0 - random.f64()).ln();
                Some(*at as u64)
            }
            ArrivalTimes::Schedule { times, at } => {
                *at += 1;
                times.get(*at - 1).copied()
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(pacer: &mut Pacer, count: usize) -> Vec<u64> {
        let mut times = Vec::new();
        while let Some(time) = pacer.next().filter(|_| times.len() < count) {
            times.push(time);
            pacer.advance();
        }
        times
    }

    #[test]
    fn threads_share_a_constant_rate_in_turns() {
        let mut all: Vec<u64> = (0..4)
            .flat_map(|thread| take(&mut Pacer::new(Spacing::Constant, 1000.0, thread, 4, 1), 250))
            .collect();
        all.sort_unstable();
        let expected: Vec<u64> = (0..1000).map(|count| count * 1_000_000).collect();
        assert_eq!(all, expected);
    }

    #[test]
    fn random_arrivals_keep_the_rate_and_scatter_as_they_should() {
        let times = take(&mut Pacer::new(Spacing::Poisson, 5000.0, 0, 1, 7), 50_000);
        let seconds = *times.last().expect("many") as f64 / 1e9;
        assert!(
            (seconds / 10.0 - 1.0).abs() < 0.03,
            "{seconds} s for 50,000 at 5,000 a second"
        );
        let distances: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let mean = distances.iter().sum::<f64>() / distances.len() as f64;
        let variance = distances.iter().map(|distance| (distance - mean).powi(2)).sum::<f64>() / distances.len() as f64;
        // The deviation of an exponential distribution is its mean.
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.05);
    }

    #[test]
    fn the_same_seed_gives_the_same_arrivals() {
        let run = |seed| take(&mut Pacer::new(Spacing::Poisson, 100.0, 1, 2, seed), 100);
        assert_eq!(run(3), run(3));
        assert_ne!(run(3), run(4));
    }

    #[test]
    fn a_schedule_ends() {
        let mut pacer = Pacer::at(vec![5, 5, 90]);
        assert_eq!(take(&mut pacer, 10), [5, 5, 90]);
        assert_eq!(pacer.next(), None);
    }
}
