//! The number of connections: another one is added only if a gain is measured.
//!
//! One connection fills a free link, and more of them only cost. Where the server or the path limits each connection,
//! the second brings as much as the first, and all that are allowed are of use. Where it brings less, the number
//! doubles as long as doubling gains, and goes back where it does not.

use super::throughput::{Measurement, Sample};

/// Files smaller than this come in one piece, bytes.
pub const SMALL: u64 = 8 * 1024 * 1024;
/// The gain that a step must bring to be kept.
const GAIN: f64 = 1.3;
/// A second connection that brings this much more shares no limit with the first.
const ALONE: f64 = 1.8;
/// Seconds left at the present rate below which another connection comes too late.
const WORTHWHILE: f64 = 1.0;

/// The change of the number of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Stay,
    Add(usize),
    /// The last ones brought no gain.
    Remove(usize),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum GrowthPhase {
    /// The first window says little: servers that limit send the bytes of a second at once.
    Starting,
    Measuring,
    /// The new connections need a moment to get going.
    Settling {
        before: f64,
        added: usize,
    },
    Judging {
        before: f64,
        added: usize,
    },
    Fixed,
}

/// Decides about the connections of one file, once in every window.
#[derive(Debug)]
pub struct Growth {
    most: usize,
    connections: usize,
    phase: GrowthPhase,
    measurement: Measurement,
}

impl Growth {
    /// `most` connections at most; it begins with one.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            most,
            connections: 1,
            phase: if most > 1 {
                GrowthPhase::Starting
            } else {
                GrowthPhase::Fixed
            },
            measurement: Measurement::begin(Sample::default()),
        }
    }

    /// Adds no further ones: a connection failed, or the server gives no ranges.
    pub fn stop(&mut self) {
        self.phase = GrowthPhase::Fixed;
    }

    /// Takes the sample after one more window; `left` bytes are still to come.
    pub fn step(&mut self, sample: Sample, left: u64) -> Change {
        match self.phase {
            GrowthPhase::Fixed => Change::Stay,
            GrowthPhase::Starting => self.measure(sample, GrowthPhase::Measuring),
            GrowthPhase::Settling { before, added } => self.measure(sample, GrowthPhase::Judging { before, added }),
            GrowthPhase::Measuring | GrowthPhase::Judging { .. } => match self.measurement.add(sample.clone()) {
                Some(rate) => {
                    self.measurement = Measurement::begin(sample);
                    self.judge(rate, left)
                }
                None => Change::Stay,
            },
        }
    }

    /// Starts a measurement.
    fn measure(&mut self, sample: Sample, phase: GrowthPhase) -> Change {
        self.measurement = Measurement::begin(sample);
        self.phase = phase;
        Change::Stay
    }

    fn judge(&mut self, rate: f64, left: u64) -> Change {
        match self.phase {
            GrowthPhase::Judging { before, added } if rate <= before * GAIN => {
                self.phase = GrowthPhase::Fixed;
                self.connections -= added;
                Change::Remove(added)
            }
            GrowthPhase::Judging { before, added } if added > self.connections - added => {
                self.cut_back(rate, before, added)
            }
            GrowthPhase::Judging { before, .. } if rate >= before * ALONE => self.maybe_add(rate, left, self.most),
            _ => self.maybe_add(rate, left, self.connections),
        }
    }

    /// Keeps as many connections as the rate is worth, after a jump to the most.
    fn cut_back(&mut self, rate: f64, before: f64, added: usize) -> Change {
        let had = self.connections - added;
        let worth = (rate * had as f64 / before).ceil() as usize;
        let surplus = self.connections - worth.clamp(had, self.connections);
        self.phase = GrowthPhase::Fixed;
        self.connections -= surplus;
        match surplus {
            0 => Change::Stay,
            surplus => Change::Remove(surplus),
        }
    }

    /// Adds connections, `wanted` at most.
    fn maybe_add(&mut self, rate: f64, left: u64, wanted: usize) -> Change {
        let added = wanted.min(self.most - self.connections);
        if added == 0 {
            self.phase = GrowthPhase::Fixed;
            return Change::Stay;
        }
        if rate <= 0.0 || (left as f64) < rate * WORTHWHILE {
            self.phase = GrowthPhase::Measuring;
            return Change::Stay;
        }
        self.connections += added;
        self.phase = GrowthPhase::Settling { before: rate, added };
        Change::Add(added)
    }
}

#[cfg(test)]
mod tests {
    use super::super::throughput::Flow;
    use super::*;

    const MUCH: u64 = 1 << 40;

    /// A link seen once in a window: what its connections have brought.
    #[derive(Default)]
    struct Link {
        sample: Sample,
    }

    impl Link {
        /// A quarter of a second at this rate, shared by `connections`.
        fn pass(&mut self, rate: f64, connections: usize) -> Sample {
            self.sample.at += 0.25;
            self.sample
                .connections
                .resize(connections.max(self.sample.connections.len()), Flow::default());
            for connection in self
                .sample
                .connections
                .iter_mut()
                .take(connections)
                .filter(|_| rate > 0.0)
            {
                connection.bytes += (rate / connections as f64 / 4.0) as u64;
                connection.at = self.sample.at;
            }
            self.sample.clone()
        }
    }

    /// Runs windows against a link; the number of connections at the end, and the most there were.
    fn connections_on(rate: impl Fn(usize) -> f64, most: usize) -> (usize, usize) {
        let mut growth = Growth::new(most);
        let mut link = Link::default();
        let (mut connections, mut peak) = (1, 1);
        for _ in 0..50 {
            match growth.step(link.pass(rate(connections), connections), MUCH) {
                Change::Add(more) => connections += more,
                Change::Remove(fewer) => connections -= fewer,
                Change::Stay => {}
            }
            peak = peak.max(connections);
        }
        (connections, peak)
    }

    #[test]
    fn a_link_limited_for_each_connection_is_filled() {
        assert_eq!(connections_on(|connections| connections as f64 * 1e6, 16), (16, 16));
        assert_eq!(connections_on(|connections| connections as f64 * 1e6, 6), (6, 6));
    }

    #[test]
    fn a_link_that_limits_nothing_else_is_filled_at_the_second_step() {
        let mut growth = Growth::new(16);
        let mut link = Link::default();
        let (mut connections, mut windows) = (1, 0);
        while connections < 16 && windows < 50 {
            if let Change::Add(more) = growth.step(link.pass(connections as f64 * 1e6, connections), MUCH) {
                connections += more;
            }
            windows += 1;
        }
        assert_eq!((connections, windows), (16, 6));
    }

    #[test]
    fn a_free_link_is_left_to_one_connection() {
        assert_eq!(connections_on(|_| 1e8, 16), (1, 2));
    }

    #[test]
    fn growth_ends_where_the_gain_does() {
        assert_eq!(
            connections_on(|connections| connections.min(4) as f64 * 1e6, 16),
            (4, 16)
        );
        // A link that others use too: each further connection takes a smaller share.
        assert_eq!(
            connections_on(|connections| 1e7 * connections as f64 / (connections + 2) as f64, 16),
            (4, 8)
        );
    }

    #[test]
    fn one_connection_stays_one_and_a_short_rest_is_not_worth_another() {
        assert_eq!(connections_on(|connections| connections as f64 * 1e6, 1), (1, 1));
        let mut growth = Growth::new(4);
        let mut link = Link::default();
        assert_eq!(growth.step(link.pass(9e6, 1), MUCH), Change::Stay);
        assert_eq!(growth.step(link.pass(1e6, 1), MUCH), Change::Stay);
        assert_eq!(growth.step(link.pass(1e6, 1), 900_000), Change::Stay);
        assert_eq!(growth.step(link.pass(1e6, 1), MUCH), Change::Stay);
        assert_eq!(growth.step(link.pass(1e6, 1), 1_100_000), Change::Add(1));
    }

    #[test]
    fn a_limit_that_lets_through_once_a_second_is_measured_over_the_second() {
        let window = std::cell::Cell::new(0);
        let bursts = |connections: usize| {
            window.set(window.get() + 1);
            if window.get() % 4 == 0 {
                connections as f64 * 4e6
            } else {
                0.0
            }
        };
        assert_eq!(connections_on(bursts, 4), (4, 4));
        // The first burst comes at once, and the next one within the same four windows.
        window.set(0);
        let at_once = |connections: usize| {
            let burst = bursts(connections);
            if window.get() == 1 { 4e6 } else { burst }
        };
        assert_eq!(connections_on(at_once, 16), (16, 16));
    }
}
