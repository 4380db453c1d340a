//! Axes: scale, range, and the values with a label.

/// Scale of an axis.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Scale {
    Linear,
    /// Equal factors are equal distances. Only positive values have a position.
    Log,
    /// Percentiles, 0 to below 100: each further nine is one step to the right.
    Percentile,
}

/// One axis of a chart. It accepts every value, even NaN and infinities.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    ticks: Vec<Tick>,
}

/// A value with a label.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tick {
    /// Share of the axis, 0 to 1.
    pub(super) place: f64,
    pub(super) label: String,
}

impl Axis {
    /// From `low` to `high`, with about `count` round values between them. An invalid range is replaced.
    pub fn linear(low: f64, high: f64, count: usize, label: impl Fn(f64) -> String) -> Self {
        let (low, high) = usable(low, high);
        Self::new(Scale::Linear, low, high).with_ticks(round_values(low, high, count), label)
    }

    /// From zero to a round value that none of `values` exceeds, at least `least`, with about `count` labels.
    pub fn fitted(
        values: impl IntoIterator<Item = f64>,
        least: f64,
        count: usize,
        label: impl Fn(f64) -> String,
    ) -> Self {
        let most = values
            .into_iter()
            .filter(|value| value.is_finite())
            .fold(least, f64::max);
        let (_, most) = usable(0.0, most);
        let count = count.max(1);
        // Of the steps with a fitting number of labels, the one that leaves the least room above the values.
        let finest = round_step(most / (count + 2) as f64);
        let steps = [finest, round_step(finest * 1.5), round_step(finest * 3.0)];
        let tops = steps
            .into_iter()
            .map(|step| (step, (most / step * 0.999_999).ceil() * step));
        let (step, top) = tops.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((most, most));
        Self::new(Scale::Linear, 0.0, top).with_ticks(multiples(0.0, top, step), label)
    }

    /// Logarithmic, over whole decades around all positive `values`, with a label at every decade, or where there are
    /// few of them at 2 and 5 as well. Without values it is the decade below and the one above `least`.
    pub fn log(values: impl IntoIterator<Item = f64>, least: f64, label: impl Fn(f64) -> String) -> Self {
        let positive = values.into_iter().filter(|value| value.is_finite() && *value > 0.0);
        let range = positive.map(moderate).fold(None, |range: Option<(f64, f64)>, value| {
            Some(range.map_or((value, value), |(low, high)| (low.min(value), high.max(value))))
        });
        let (low, high) = range.unwrap_or((least, least));
        let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
        let last = last.max(first + 1);
        let power = |exponent: i32| 10_f64.powi(exponent);
        let decades = last - first;
        let within: &[f64] = match decades {
            ..=2 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        let every = (decades / 6 + 1) as usize;
        let values = (first..=last).step_by(every).flat_map(|exponent| {
            let within = within.iter().map(move |digit| digit * power(exponent));
            within.filter(move |&value| value <= power(last) * 1.000_001)
        });
        Self::new(Scale::Log, power(first), power(last)).with_ticks(values, label)
    }

    /// Logarithmic, exactly from `low` to `high`, with labels at 1, 2 and 5 in every decade, or at the decades where
    /// there are many. An invalid range becomes a decade.
    pub fn log_between(low: f64, high: f64, label: impl Fn(f64) -> String) -> Self {
        let positive = |value: f64| (value.is_finite() && value > 0.0).then(|| moderate(value));
        let low = positive(low).unwrap_or(1.0);
        let high = positive(high)
            .filter(|high| *high > low * 1.000_001)
            .unwrap_or(low * 10.0);
        let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
        let within: &[f64] = if high / low > 300.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let every = ((last - first) / 6 + 1) as usize;
        let decades = (first..=last).step_by(every);
        let values = decades.flat_map(|exponent| within.iter().map(move |digit| digit * 10_f64.powi(exponent)));
        Self::new(Scale::Log, low, high).with_ticks(values, label)
    }

    /// Percentiles from `low` to `high`, both below 100: 50, 90, 99 and 99.9 stand equally far apart.
    pub fn percentiles(low: f64, high: f64, labelled: &[f64]) -> Self {
        let high = if high.is_finite() {
            high.clamp(1.0, 99.9999)
        } else {
            99.9999
        };
        let low = if low.is_finite() {
            low.clamp(0.0, high * 0.99)
        } else {
            0.0
        };
        Self::new(Scale::Percentile, low, high).with_ticks(labelled.iter().copied(), |value| format!("{value}"))
    }

    /// With exactly these labels. Values beyond the ends have none.
    pub fn labelled(mut self, labels: impl IntoIterator<Item = (f64, String)>) -> Self {
        let within = labels
            .into_iter()
            .filter(|(value, _)| (self.low..=self.high).contains(value));
        self.ticks = within
            .filter_map(|(value, label)| self.place(value).map(|place| Tick { place, label }))
            .collect();
        self
    }

    fn new(scale: Scale, low: f64, high: f64) -> Self {
        Self {
            scale,
            low,
            high,
            ticks: Vec::new(),
        }
    }

    fn with_ticks(self, values: impl IntoIterator<Item = f64>, label: impl Fn(f64) -> String) -> Self {
        self.labelled(values.into_iter().map(|value| (value, label(value))))
    }

    /// The least value it shows.
    pub(super) fn low(&self) -> f64 {
        self.low
    }

    pub(super) fn ticks(&self) -> &[Tick] {
        &self.ticks
    }

    /// Position of a value, 0 to 1; values beyond an end are at the end. `None` for NaN, infinities, and values of 0 and
    /// below on a logarithmic axis.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        if !value.is_finite() || (self.scale == Scale::Log && value <= 0.0) {
            return None;
        }
        let value = value.clamp(self.low, self.high);
        let along = |value: f64| match self.scale {
            Scale::Linear => value,
            Scale::Log => value.log10(),
            Scale::Percentile => -(1.0 - value / 100.0).log10(),
        };
        let (low, high) = (along(self.low), along(self.high));
        Some(((along(value) - low) / (high - low)).clamp(0.0, 1.0))
    }
}

/// A value far enough from the limits of a float to calculate with.
fn moderate(value: f64) -> f64 {
    match value.abs() {
        0.0 => 0.0,
        size => size.clamp(1e-290, 1e290).copysign(value),
    }
}

/// A valid range: `high` is above `low`.
fn usable(low: f64, high: f64) -> (f64, f64) {
    let low = if low.is_finite() { moderate(low) } else { 0.0 };
    let high = if high.is_finite() { moderate(high) } else { high };
    // A step that the float can tell apart from `low`.
    let least = low + low.abs().max(1.0) * 1e-9;
    match high.is_finite() && high >= least {
        true => (low, high),
        false => (low, low + low.abs().max(1.0)),
    }
}

/// The nearest of 1, 2, 5 times a power of ten that is not below `step`.
fn round_step(step: f64) -> f64 {
    let power = 10_f64.powf(step.log10().floor());
    let digits = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|digit| digit * power >= step * 0.999_999);
    digits.unwrap_or(10.0) * power
}

/// About `count` round values from `low` to `high`.
fn round_values(low: f64, high: f64, count: usize) -> Vec<f64> {
    multiples(low, high, round_step((high - low) / count.max(1) as f64))
}

/// The multiples of `step` from `low` to `high`; no more than a chart can show.
fn multiples(low: f64, high: f64, step: f64) -> Vec<f64> {
    let first = (low / step).ceil();
    // Counted, not added up: sums of tenths drift.
    let values = (0..=20).map(|number| (first + f64::from(number)) * step);
    values.take_while(|&value| value <= high + step * 1e-6).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks().iter().map(|tick| tick.label.as_str()).collect()
    }

    fn plain(value: f64) -> String {
        format!("{value}")
    }

    #[test]
    fn a_fitted_axis_ends_at_a_round_value_above_all_others() {
        for (most, top) in [
            (101.0, "120"),
            (99.0, "100"),
            (24.0, "25"),
            (7.0, "8"),
            (51.0, "60"),
            (1.0, "1"),
        ] {
            let axis = Axis::fitted([most], 0.0, 4, plain);
            assert_eq!(labels(&axis).last(), Some(&top), "{most}");
            assert!((4..=7).contains(&labels(&axis).len()), "{axis:?}");
        }
        let axis = Axis::fitted([3.0, 17.0, f64::NAN, f64::INFINITY], 1.0, 4, plain);
        assert_eq!(labels(&axis), ["0", "5", "10", "15", "20"]);
        assert_eq!(
            (axis.place(0.0), axis.place(20.0), axis.place(10.0)),
            (Some(0.0), Some(1.0), Some(0.5))
        );
        assert_eq!(labels(&Axis::fitted([], 4.0, 4, plain)), ["0", "1", "2", "3", "4"]);
        assert_eq!(
            labels(&Axis::fitted([0.3], 0.0, 3, plain)),
            ["0", "0.1", "0.2", "0.30000000000000004"]
        );
    }

    #[test]
    fn a_log_axis_has_whole_decades_and_no_place_for_zero() {
        let axis = Axis::log([0.004, 2.5, 0.0, -1.0], 1.0, plain);
        assert_eq!(labels(&axis), ["0.001", "0.01", "0.1", "1", "10"]);
        assert_eq!(axis.place(0.0), None);
        assert!((axis.place(0.1).expect("inside") - 0.5).abs() < 1e-9);
        let short = Axis::log([3.0], 1.0, plain);
        assert_eq!(labels(&short), ["1", "2", "5", "10"]);
        assert_eq!(labels(&Axis::log([], 1.0, plain)), ["1", "2", "5", "10"]);
    }

    #[test]
    fn a_log_axis_may_begin_and_end_anywhere() {
        let axis = Axis::log_between(8.0, 180.0, plain);
        assert_eq!(labels(&axis), ["10", "20", "50", "100"]);
        assert_eq!(
            (axis.place(8.0), axis.place(180.0), axis.place(0.0)),
            (Some(0.0), Some(1.0), None)
        );
        assert_eq!(
            labels(&Axis::log_between(0.5, 5000.0, plain)),
            ["1", "10", "100", "1000"]
        );
    }

    #[test]
    fn each_nine_of_a_percentile_is_one_step() {
        let axis = Axis::percentiles(0.0, 99.9, &[90.0, 99.0, 99.9, 99.99]);
        let places: Vec<f64> = axis.ticks().iter().map(|tick| tick.place).collect();
        assert_eq!(labels(&axis), ["90", "99", "99.9"]);
        for (place, expected) in places.iter().zip([1.0 / 3.0, 2.0 / 3.0, 1.0]) {
            assert!((place - expected).abs() < 1e-6, "{places:?}");
        }
        assert_eq!(Axis::percentiles(50.0, 100.0, &[50.0]).place(100.0), Some(1.0));
    }

    #[test]
    fn no_range_and_no_value_breaks_an_axis() {
        let odd = [
            0.0,
            -0.0,
            1.0,
            -5.0,
            1e-300,
            1e300,
            f64::MAX,
            f64::MIN,
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
        ];
        for low in odd {
            for high in odd {
                let axes = [
                    Axis::linear(low, high, 4, plain),
                    Axis::fitted([low, high], 1.0, 4, plain),
                    Axis::log([low, high], 1.0, plain),
                    Axis::log_between(low, high, plain),
                    Axis::percentiles(low, high, &odd),
                ];
                for axis in axes {
                    assert!(axis.ticks().len() < 30, "{low} to {high}: {axis:?}");
                    let places = odd.iter().filter_map(|&value| axis.place(value));
                    let all = places.chain(axis.ticks().iter().map(|tick| tick.place));
                    all.for_each(|place| assert!((0.0..=1.0).contains(&place), "{low} to {high}: {place}"));
                }
            }
        }
    }
}
