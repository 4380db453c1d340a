//! When a further connection helps: only where it has been measured to.
//!
//! One connection fills a free link, and more of them only cost. Where the server or the path limits each connection,
//! the second brings as much as the first: then all that are allowed are of use. Where it brings less, the number doubles as
//! long as doubling gains, and goes back where it does not.

use super::gauge::{Look, Measurement};

/// Files smaller than this come in one piece, bytes.
pub const SMALL: u64 = 8 * 1024 * 1024;
/// What a step must gain to be kept.
const GAIN: f64 = 1.3;
/// A second connection that brings so much more is held back by nothing but itself.
const ALONE: f64 = 1.8;
/// With less than this left at the present rate, seconds, another connection comes too late.
const WORTHWHILE: f64 = 1.0;

/// What to do with the lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Stay,
    Add(usize),
    /// The last ones did not gain.
    Remove(usize),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// The first window says little: servers that limit let a second's worth through at once.
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

/// Decides about the lanes of one file, once in every window.
#[derive(Debug)]
pub struct Growth {
    most: usize,
    lanes: usize,
    phase: Phase,
    measurement: Measurement,
}

impl Growth {
    /// `most` lanes at most; it begins with one.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            most,
            lanes: 1,
            phase: if most > 1 { Phase::Starting } else { Phase::Fixed },
            measurement: Measurement::begin(Look::default()),
        }
    }

    /// A lane failed, or the server gives no ranges: no further ones.
    pub fn stop(&mut self) {
        self.phase = Phase::Fixed;
    }

    /// One window has passed, and this is what is seen; `left` bytes are still to come.
    pub fn step(&mut self, look: Look, left: u64) -> Change {
        match self.phase {
            Phase::Fixed => Change::Stay,
            Phase::Starting => self.measure(look, Phase::Measuring),
            Phase::Settling { before, added } => self.measure(look, Phase::Judging { before, added }),
            Phase::Measuring | Phase::Judging { .. } => match self.measurement.add(look.clone()) {
                Some(rate) => {
                    self.measurement = Measurement::begin(look);
                    self.judge(rate, left)
                }
                None => Change::Stay,
            },
        }
    }

    /// From here on it is measured.
    fn measure(&mut self, look: Look, phase: Phase) -> Change {
        self.measurement = Measurement::begin(look);
        self.phase = phase;
        Change::Stay
    }

    fn judge(&mut self, rate: f64, left: u64) -> Change {
        match self.phase {
            Phase::Judging { before, added } if rate <= before * GAIN => {
                self.phase = Phase::Fixed;
                self.lanes -= added;
                Change::Remove(added)
            }
            Phase::Judging { before, added } if added > self.lanes - added => self.cut_back(rate, before, added),
            Phase::Judging { before, .. } if rate >= before * ALONE => self.maybe_add(rate, left, self.most),
            _ => self.maybe_add(rate, left, self.lanes),
        }
    }

    /// After a jump to the most: as many lanes stay as the rate is worth.
    fn cut_back(&mut self, rate: f64, before: f64, added: usize) -> Change {
        let had = self.lanes - added;
        let worth = (rate * had as f64 / before).ceil() as usize;
        let surplus = self.lanes - worth.clamp(had, self.lanes);
        self.phase = Phase::Fixed;
        self.lanes -= surplus;
        match surplus {
            0 => Change::Stay,
            surplus => Change::Remove(surplus),
        }
    }

    /// Adds lanes, `wanted` at most.
    fn maybe_add(&mut self, rate: f64, left: u64, wanted: usize) -> Change {
        let added = wanted.min(self.most - self.lanes);
        if added == 0 {
            self.phase = Phase::Fixed;
            return Change::Stay;
        }
        if rate <= 0.0 || (left as f64) < rate * WORTHWHILE {
            self.phase = Phase::Measuring;
            return Change::Stay;
        }
        self.lanes += added;
        self.phase = Phase::Settling { before: rate, added };
        Change::Add(added)
    }
}

#[cfg(test)]
mod tests {
    use super::super::gauge::Flow;
    use super::*;

    const MUCH: u64 = 1 << 40;

    /// A link seen once in a window: what its lanes have brought.
    #[derive(Default)]
    struct Link {
        look: Look,
    }

    impl Link {
        /// A quarter of a second at this rate, shared by so many lanes.
        fn pass(&mut self, rate: f64, lanes: usize) -> Look {
            self.look.at += 0.25;
            self.look
                .lanes
                .resize(lanes.max(self.look.lanes.len()), Flow::default());
            for lane in self.look.lanes.iter_mut().take(lanes).filter(|_| rate > 0.0) {
                lane.bytes += (rate / lanes as f64 / 4.0) as u64;
                lane.at = self.look.at;
            }
            self.look.clone()
        }
    }

    /// Runs windows against a link; the number of lanes at the end, and the most there were.
    fn lanes_on(rate: impl Fn(usize) -> f64, most: usize) -> (usize, usize) {
        let mut growth = Growth::new(most);
        let mut link = Link::default();
        let (mut lanes, mut peak) = (1, 1);
        for _ in 0..50 {
            match growth.step(link.pass(rate(lanes), lanes), MUCH) {
                Change::Add(more) => lanes += more,
                Change::Remove(fewer) => lanes -= fewer,
                Change::Stay => {}
            }
            peak = peak.max(lanes);
        }
        (lanes, peak)
    }

    #[test]
    fn a_link_limited_for_each_connection_is_filled() {
        assert_eq!(lanes_on(|lanes| lanes as f64 * 1e6, 16), (16, 16));
        assert_eq!(lanes_on(|lanes| lanes as f64 * 1e6, 6), (6, 6));
    }

    #[test]
    fn a_link_that_limits_nothing_else_is_filled_at_the_second_step() {
        let mut growth = Growth::new(16);
        let mut link = Link::default();
        let (mut lanes, mut windows) = (1, 0);
        while lanes < 16 && windows < 50 {
            if let Change::Add(more) = growth.step(link.pass(lanes as f64 * 1e6, lanes), MUCH) {
                lanes += more;
            }
            windows += 1;
        }
        assert_eq!((lanes, windows), (16, 6));
    }

    #[test]
    fn a_free_link_is_left_to_one_connection() {
        assert_eq!(lanes_on(|_| 1e8, 16), (1, 2));
    }

    #[test]
    fn growth_ends_where_the_gain_does() {
        assert_eq!(lanes_on(|lanes| lanes.min(4) as f64 * 1e6, 16), (4, 16));
        // A link that others use too: each further connection takes a smaller share.
        assert_eq!(lanes_on(|lanes| 1e7 * lanes as f64 / (lanes + 2) as f64, 16), (4, 8));
    }

    #[test]
    fn one_connection_stays_one_and_a_short_rest_is_not_worth_another() {
        assert_eq!(lanes_on(|lanes| lanes as f64 * 1e6, 1), (1, 1));
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
        let bursts = |lanes: usize| {
            window.set(window.get() + 1);
            if window.get() % 4 == 0 { lanes as f64 * 4e6 } else { 0.0 }
        };
        assert_eq!(lanes_on(bursts, 4), (4, 4));
        // The first burst comes at once, and the next one within the same four windows.
        window.set(0);
        let at_once = |lanes: usize| {
            let burst = bursts(lanes);
            if window.get() == 1 { 4e6 } else { burst }
        };
        assert_eq!(lanes_on(at_once, 16), (16, 16));
    }
}
