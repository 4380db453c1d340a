//! The rate at which bytes come, even from a server that sends them in bursts.
//!
//! A server that limits a connection often sends the bytes of a second at once and pauses until the next. Between two
//! samples such a connection brings nothing or twice its rate. Therefore each connection is measured from its last
//! arrival before the interval to its last arrival within it: these are whole periods, wherever the samples fall.

/// Two windows that differ by no more than this are a measurement.
const EVEN: f64 = 1.15;
/// As many windows are a measurement even if they differ: a second, since most servers limit by the second.
const MOST_WINDOWS: usize = 4;
/// As many are a measurement even if a connection has brought nothing in them.
const MOST_SILENT: usize = 2 * MOST_WINDOWS;

/// The bytes that one connection has brought so far.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Flow {
    pub bytes: u64,
    /// The arrival of the last of them, seconds since the beginning.
    pub at: f64,
}

/// The bytes that all connections have brought up to a moment. Each sample has the connections of the one before, in
/// the same order, and new ones after them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sample {
    /// Seconds since the beginning.
    pub at: f64,
    pub connections: Vec<Flow>,
}

impl Sample {
    /// Bytes a second between two samples.
    #[must_use]
    pub fn rate_since(&self, earlier: &Self) -> f64 {
        let bytes = |sample: &Self| {
            sample
                .connections
                .iter()
                .map(|connection| connection.bytes)
                .sum::<u64>()
        };
        (bytes(self) - bytes(earlier)) as f64 / (self.at - earlier.at).max(0.001)
    }

    /// Bytes a second of all connections, with the pauses of each counted as often as its bursts.
    fn flow_since(&self, earlier: &Self) -> f64 {
        let elapsed = self.at - earlier.at;
        let rate = |(now, then): (&Flow, Flow)| {
            // A sample may fall into a burst, and the rest of a burst alone is no period.
            let period = (now.at - then.at).max(elapsed / 2.0);
            (now.bytes - then.bytes) as f64 / period.max(0.001)
        };
        self.pairs(earlier).map(rate).sum()
    }

    /// True if every connection has brought bytes.
    fn has_all_since(&self, earlier: &Self) -> bool {
        self.pairs(earlier).all(|(now, then)| now.bytes > then.bytes)
    }

    /// Every connection, now and then.
    fn pairs<'a>(&'a self, earlier: &'a Self) -> impl Iterator<Item = (&'a Flow, Flow)> {
        let silent = Flow {
            bytes: 0,
            at: earlier.at,
        };
        let before = move |number: usize| {
            earlier
                .connections
                .get(number)
                .copied()
                .filter(|connection| connection.bytes > 0)
        };
        let pair = move |(number, now)| (now, before(number).unwrap_or(silent));
        self.connections.iter().enumerate().map(pair)
    }
}

/// A measurement of a rate over several windows.
#[derive(Debug)]
pub struct Measurement {
    begun: Sample,
    last: Sample,
    windows: usize,
    least: f64,
    most: f64,
    /// Every connection has brought something in every window. Bursts of several connections by turns sample even in
    /// their sum.
    is_steady: bool,
}

impl Measurement {
    #[must_use]
    pub fn begin(sample: Sample) -> Self {
        Self {
            begun: sample.clone(),
            last: sample,
            windows: 0,
            least: f64::MAX,
            most: 0.0,
            is_steady: true,
        }
    }

    /// Another window has passed. The rate, bytes a second, once there are enough of them.
    pub fn add(&mut self, sample: Sample) -> Option<f64> {
        let rate = sample.rate_since(&self.last);
        self.is_steady &= sample.has_all_since(&self.last);
        self.last = sample;
        self.windows += 1;
        self.least = self.least.min(rate);
        self.most = self.most.max(rate);
        if self.windows >= 2 && self.is_steady && self.most <= self.least * EVEN {
            return Some(self.last.rate_since(&self.begun));
        }
        let is_enough = self.windows >= MOST_WINDOWS && self.last.has_all_since(&self.begun);
        (is_enough || self.windows >= MOST_SILENT).then(|| self.last.flow_since(&self.begun))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: f64 = 0.25;

    /// A connection that brings 1 MB at `first` and then once a second, as it is seen at `at`.
    fn burst_each_second(first: f64, at: f64) -> Flow {
        let bursts = ((at - first).floor() + 1.0).max(0.0);
        Flow {
            bytes: bursts as u64 * 1_000_000,
            at: first + (bursts - 1.0).max(0.0),
        }
    }

    fn sample(at: f64, firsts: &[f64]) -> Sample {
        let connections = firsts.iter().map(|&first| burst_each_second(first, at)).collect();
        Sample { at, connections }
    }

    /// The rate that samples from `from` on show, and after how many windows.
    fn measured(from: f64, firsts: &[f64]) -> (f64, usize) {
        let mut measurement = Measurement::begin(sample(from, firsts));
        let windows = (1..).find_map(|number| {
            let rate = measurement.add(sample(from + WINDOW * number as f64, firsts));
            rate.map(|rate| (rate, number))
        });
        windows.expect("patience ends")
    }

    #[test]
    fn bursts_show_their_rate_wherever_the_looks_fall() {
        for step in 0..200 {
            let shift = f64::from(step) * 0.0101;
            let (rate, windows) = measured(1.0 + shift, &[0.003]);
            assert!((rate - 1e6).abs() < 1e3, "{rate} bytes a second at {shift}");
            assert!(windows <= MOST_WINDOWS + 1, "{windows} windows at {shift}");
            let (rate, _) = measured(2.0 + shift, &[0.003, 1.254]);
            assert!(
                (rate - 2e6).abs() < 2e3,
                "{rate} bytes a second of two connections at {shift}"
            );
        }
    }

    #[test]
    fn a_burst_that_a_look_cuts_in_two_is_not_a_rate() {
        let seen = |at, bytes, last| Sample {
            at,
            connections: vec![Flow { bytes, at: last }],
        };
        let mut measurement = Measurement::begin(seen(1.0, 500_000, 1.0));
        // The rest of the burst comes at once, and the next one a moment after the fourth window.
        let rates: Vec<Option<f64>> = (1..=4)
            .map(|number| measurement.add(seen(1.0 + WINDOW * f64::from(number), 1_000_000, 1.002)))
            .collect();
        assert_eq!(rates, [None, None, None, Some(1e6)]);
    }

    #[test]
    fn an_even_flow_is_measured_in_two_windows() {
        let seen = |number: u64| Sample {
            at: WINDOW * number as f64,
            connections: vec![Flow {
                bytes: 1000 * number,
                at: WINDOW * number as f64,
            }],
        };
        let mut measurement = Measurement::begin(seen(1));
        assert_eq!(measurement.add(seen(2)), None);
        assert_eq!(measurement.add(seen(3)), Some(4000.0));
    }

    #[test]
    fn a_connection_that_brings_nothing_is_waited_for_and_then_counts_for_nothing() {
        let seen = |number: u64| Sample {
            at: WINDOW * number as f64,
            // Uneven, so that nothing is settled early.
            connections: vec![burst_each_second(0.0, WINDOW * number as f64), Flow::default()],
        };
        let mut measurement = Measurement::begin(seen(0));
        let rates: Vec<Option<f64>> = (1..=MOST_SILENT as u64)
            .map(|number| measurement.add(seen(number)))
            .collect();
        assert!(rates[..MOST_SILENT - 1].iter().all(Option::is_none), "{rates:?}");
        assert_eq!(rates[MOST_SILENT - 1], Some(1e6));
    }
}
