//! When a further connection helps: only where it has been measured to.
//!
//! One connection fills a free link, and more of them only cost. Where the server or the path limits each connection,
//! the second brings as much as the first: then all that are allowed are of use. Where it brings less, the number doubles as
//! long as doubling gains, and goes back where it does not.

/// Files smaller than this come in one piece, bytes.
pub const SMALL: u64 = 8 * 1024 * 1024;
/// What a step must gain to be kept.
const GAIN: f64 = 1.3;
/// A second connection that brings so much more is held back by nothing but itself.
const ALONE: f64 = 1.8;
/// With less than this left at the present rate, seconds, another connection comes too late.
const WORTHWHILE: f64 = 1.0;

/// Two windows that differ by no more than this are a measurement.
const EVEN: f64 = 1.15;
/// So many windows are one whatever they say: a second, since servers that limit often do it by the second.
const MOST_WINDOWS: usize = 4;

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
    rates: Vec<f64>,
}

impl Growth {
    /// `most` lanes at most; it begins with one.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            most,
            lanes: 1,
            phase: if most > 1 { Phase::Starting } else { Phase::Fixed },
            rates: Vec::new(),
        }
    }

    /// A lane failed, or the server gives no ranges: no further ones.
    pub fn stop(&mut self) {
        self.phase = Phase::Fixed;
    }

    /// One window has passed at `rate` bytes a second; `left` bytes are still to come.
    pub fn step(&mut self, rate: f64, left: u64) -> Change {
        match self.phase {
            Phase::Fixed => Change::Stay,
            Phase::Starting => {
                self.phase = Phase::Measuring;
                Change::Stay
            }
            Phase::Settling { before, added } => {
                self.phase = Phase::Judging { before, added };
                Change::Stay
            }
            Phase::Measuring | Phase::Judging { .. } => match self.mean_with(rate) {
                Some(mean) => self.judge(mean, left),
                None => Change::Stay,
            },
        }
    }

    /// The rate over the last windows, once there are enough of them.
    fn mean_with(&mut self, rate: f64) -> Option<f64> {
        self.rates.push(rate);
        let (least, most) = self.rates.iter().fold((f64::MAX, 0f64), |(least, most), &rate| {
            (least.min(rate), most.max(rate))
        });
        let is_even = self.rates.len() >= 2 && least > 0.0 && most <= least * EVEN;
        if !is_even && self.rates.len() < MOST_WINDOWS {
            return None;
        }
        let mean = self.rates.iter().sum::<f64>() / self.rates.len() as f64;
        self.rates.clear();
        Some(mean)
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
    use super::*;

    const MUCH: u64 = 1 << 40;

    /// Runs windows against a link; the number of lanes at the end, and the most there were.
    fn lanes_on(rate: impl Fn(usize) -> f64, most: usize) -> (usize, usize) {
        let mut growth = Growth::new(most);
        let (mut lanes, mut peak) = (1, 1);
        for _ in 0..50 {
            match growth.step(rate(lanes), MUCH) {
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
        let (mut lanes, mut windows) = (1, 0);
        while lanes < 16 && windows < 50 {
            if let Change::Add(more) = growth.step(lanes as f64 * 1e6, MUCH) {
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
        assert_eq!(growth.step(9e6, MUCH), Change::Stay);
        assert_eq!(growth.step(1e6, MUCH), Change::Stay);
        assert_eq!(growth.step(1e6, 900_000), Change::Stay);
        assert_eq!(growth.step(1e6, MUCH), Change::Stay);
        assert_eq!(growth.step(1e6, 1_100_000), Change::Add(1));
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
