//! Goals of a plan for the first target of a table.
//!
//! A goal is one line, `FIGURE <= VALUE` or `FIGURE >= VALUE`, with the figures' names in tables. `of NAME`, `of the best
//! other` and `of its best` make the value a ratio. Several numbers of connections are judged at the highest.

use crate::result::{Metric, Point, Run};

use super::document::{Best, Judgement};
use super::figures::number;
use super::grid::{Level, levels, point};
use super::quantity::{self, FAILED, Quantity};

/// Units of a value, as factors to the figure's own: µs, bytes, a share.
const UNITS: [(&str, f64); 10] = [
    ("µs", 1.0),
    ("us", 1.0),
    ("ms", 1e3),
    ("s", 1e6),
    ("B", 1.0),
    ("KB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("%", 0.01),
    ("×", 1.0),
];

/// A goal for the first target of a run.
#[derive(Debug)]
pub struct Goal {
    text: String,
    quantity: &'static Quantity,
    bound: f64,
    is_least: bool,
    against: Against,
}

/// Divisor of the figure.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Against {
    Nothing,
    Target(String),
    /// The best of the other targets without failures.
    BestOther,
    /// Its own best figure at any number of connections.
    OwnBest,
}

/// The reason that a text is no goal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GoalError {
    #[error("it has neither `<=` nor `>=`")]
    NoBound,
    #[error("there is no figure `{0}`")]
    NoFigure(String),
    #[error("`{0}` is no value")]
    NoValue(String),
    #[error("{0} has no best value")]
    NoBest(&'static str),
}

impl Goal {
    /// Reads `CPU/request <= 0.75 of the best other`.
    ///
    /// # Errors
    /// [`GoalError`] with the part that is wrong.
    pub fn parse(text: &str) -> Result<Self, GoalError> {
        let (figure, rest, is_least) = match (text.split_once("<="), text.split_once(">=")) {
            (Some((figure, rest)), None) => (figure, rest, false),
            (None, Some((figure, rest))) => (figure, rest, true),
            _ => return Err(GoalError::NoBound),
        };
        let quantity = quantity::find(figure.trim()).ok_or_else(|| GoalError::NoFigure(figure.trim().to_owned()))?;
        let (value, against) = match rest.split_once(" of ") {
            None => (rest, Against::Nothing),
            Some((value, "the best other")) => (value, Against::BestOther),
            Some((value, "its best")) => (value, Against::OwnBest),
            Some((value, name)) => (value, Against::Target(name.trim().to_owned())),
        };
        let needs_best = matches!(against, Against::BestOther | Against::OwnBest);
        if needs_best && quantity.best == Best::None {
            return Err(GoalError::NoBest(quantity.name));
        }
        let bound = parse_value(value.trim()).ok_or_else(|| GoalError::NoValue(value.trim().to_owned()))?;
        Ok(Self {
            text: text.trim().to_owned(),
            quantity,
            bound,
            is_least,
            against,
        })
    }

    /// The target it is compared with, if it names one.
    #[must_use]
    pub fn named_target(&self) -> Option<&str> {
        match &self.against {
            Against::Target(name) => Some(name),
            Against::Nothing | Against::BestOther | Against::OwnBest => None,
        }
    }

    /// Judges a run.
    #[must_use]
    pub fn judge(&self, run: &Run) -> Judgement {
        let found = levels(run)
            .into_iter()
            .max_by_key(|level| level.connections)
            .and_then(|top| self.measured(run, top));
        let is_reached = found.as_ref().is_some_and(|(value, _)| match self.is_least {
            true => *value >= self.bound,
            false => *value <= self.bound,
        });
        Judgement {
            goal: self.text.clone(),
            measured: found.map_or("not measured".to_owned(), |(_, words)| words),
            is_reached,
        }
    }

    /// The figure or ratio to compare with the bound, and its text.
    fn measured(&self, run: &Run, top: Level) -> Option<(f64, String)> {
        match &self.against {
            Against::Nothing if self.quantity.name == FAILED.name => {
                let all: f64 = points_of_first(run).filter_map(self.quantity.of).sum();
                Some((all, (self.quantity.show)(all)))
            }
            Against::Nothing => {
                let value = (self.quantity.of)(point(run, 0, top)?)?;
                Some((value, (self.quantity.show)(value)))
            }
            Against::Target(name) => {
                let place = run.targets.iter().position(|target| target.name == *name)?;
                let ratio = self.ratio(run, place, top)?;
                Some((ratio, number(ratio)))
            }
            Against::BestOther => {
                let place = self.best_other(run, top)?;
                let ratio = self.ratio(run, place, top)?;
                Some((ratio, format!("{} ({})", number(ratio), run.targets[place].name)))
            }
            Against::OwnBest => {
                let all = points_of_first(run).filter_map(self.quantity.of);
                let best = all.reduce(|one, other| if self.is_better(one, other) { one } else { other })?;
                let ratio = (self.quantity.of)(point(run, 0, top)?)? / best;
                Some((ratio, number(ratio)))
            }
        }
    }

    fn best_other(&self, run: &Run, top: Level) -> Option<usize> {
        let others = (1..run.targets.len()).filter_map(|place| {
            let point = point(run, place, top).filter(|point| point.total.failures.all() == 0)?;
            Some((place, (self.quantity.of)(point)?))
        });
        let best = others.reduce(|one, other| if self.is_better(one.1, other.1) { one } else { other });
        best.map(|(place, _)| place)
    }

    fn is_better(&self, one: f64, other: f64) -> bool {
        match self.quantity.best {
            Best::Most => one >= other,
            Best::Least | Best::None => one <= other,
        }
    }

    /// The first target's figure divided by that of another.
    fn ratio(&self, run: &Run, other: usize, top: Level) -> Option<f64> {
        if let Some(ratio) = self
            .quantity
            .metric
            .and_then(|metric| first_to_other(run, metric, other, top))
        {
            return Some(ratio);
        }
        let value = |place: usize| (self.quantity.of)(point(run, place, top)?);
        Some(value(0)? / value(other).filter(|value| *value > 0.0)?)
    }
}

fn points_of_first(run: &Run) -> impl Iterator<Item = &Point> {
    run.points.iter().filter(|point| point.target == 0)
}

/// The first target's figure divided by that of another, over pairs of slices.
pub(super) fn first_to_other(run: &Run, metric: Metric, other: usize, level: Level) -> Option<f64> {
    let found = run.comparisons.iter().find(|found| {
        let is_level = (found.connections, found.rate) == (level.connections, level.rate);
        (found.metric, found.base, found.other) == (metric, 0, other) && is_level
    })?;
    (found.ratio > 0.0).then(|| 1.0 / found.ratio)
}

/// `0.75`, `5 ms`, `1.5 KB`, `15 %`
fn parse_value(text: &str) -> Option<f64> {
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let unit = text[digits.len()..].trim();
    let factor = match unit {
        "" => 1.0,
        unit => UNITS.iter().find(|(name, _)| *name == unit)?.1,
    };
    let number: f64 = digits.replace([',', '_'], "").parse().ok()?;
    (number.is_finite()).then_some(number * factor)
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    fn judged(goal: &str, run: &Run) -> (bool, String) {
        let judgement = Goal::parse(goal).expect(goal).judge(run);
        (judgement.is_reached, judgement.measured)
    }

    #[test]
    fn a_figure_is_held_against_its_bound() {
        let run = samples::single(100.0);
        let (is_reached, measured) = judged("requests/s >= 50", &run);
        assert!(is_reached, "{measured}");
        assert!(!judged("requests/s >= 5_000", &run).0);
        assert!(judged("time, p99 <= 5 s", &run).0);
        assert!(!judged("time, p99 <= 1 µs", &run).0);
        assert_eq!(judged("failed <= 0", &run), (true, "0".to_owned()));
    }

    #[test]
    fn a_ratio_is_that_of_pairs_of_slices_where_there_are_any() {
        let run = samples::pair();
        // The second needs 0.31 of the first's CPU.
        let (is_reached, measured) = judged("CPU/request <= 0.75 of sendfile", &run);
        assert_eq!((is_reached, measured.as_str()), (false, "3.23"));
        let (_, measured) = judged("CPU/request <= 0.75 of the best other", &run);
        assert_eq!(measured, "3.23 (sendfile)");
        assert_eq!(judged("requests/s >= 0.9 of its best", &run), (true, "1.00".to_owned()));
    }

    #[test]
    fn the_best_other_is_one_that_failed_nothing_and_never_the_first() {
        let mut run = samples::many(3);
        run.points[2].total.failures.reset = 1;
        let (_, measured) = judged("requests/s >= 1 of the best other", &run);
        assert!(measured.ends_with("(server 1)"), "{measured}");
        assert_eq!(
            judged("CPU/request <= 1 of nobody", &run),
            (false, "not measured".to_owned())
        );
    }

    #[test]
    fn an_invalid_goal_is_refused_with_its_wrong_part() {
        assert_eq!(Goal::parse("failed 0").unwrap_err(), GoalError::NoBound);
        assert_eq!(
            Goal::parse("speed <= 1").unwrap_err(),
            GoalError::NoFigure("speed".to_owned())
        );
        assert_eq!(
            Goal::parse("failed <= none").unwrap_err(),
            GoalError::NoValue("none".to_owned())
        );
        assert_eq!(
            Goal::parse("time, p99 <= 5 miles").unwrap_err(),
            GoalError::NoValue("5 miles".to_owned())
        );
        assert_eq!(
            Goal::parse("duration <= 1 of its best").unwrap_err(),
            GoalError::NoBest("duration")
        );
    }
}
