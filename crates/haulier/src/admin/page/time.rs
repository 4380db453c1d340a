//! Values over time: the axis of the charts, points on it, times of day.

use std::time::{SystemTime, UNIX_EPOCH};

use haulier_charts::Axis;

use crate::admin::history::{Range, Sample};
use crate::admin::view::View;

/// The x axis of every chart over time: seconds before now.
pub(super) fn time_axis(range: Range) -> Axis {
    let span = range.span().as_secs_f64();
    let labels: &[(f64, &str)] = match range {
        Range::QuarterHour => &[(900.0, "−15 min"), (600.0, "−10 min"), (300.0, "−5 min"), (0.0, "now")],
        Range::Day => &[
            (86_400.0, "−24 h"),
            (64_800.0, "−18 h"),
            (43_200.0, "−12 h"),
            (21_600.0, "−6 h"),
            (0.0, "now"),
        ],
    };
    let labels = labels.iter().map(|&(seconds, label)| (-seconds, label.to_owned()));
    Axis::linear(-span, 0.0, 3, |_| String::new()).labelled(labels)
}

impl View {
    /// A value of each sample, by its position on the time axis.
    pub(super) fn points(&self, value: impl Fn(&Sample) -> f64) -> Vec<(f64, f64)> {
        let place = |sample: &Sample| -self.now.saturating_duration_since(sample.end).as_secs_f64();
        self.samples
            .iter()
            .map(|sample| (place(sample), value(sample)))
            .collect()
    }
}

/// `03:12:44`, UTC
pub(super) fn time_of_day(at: SystemTime) -> String {
    let second = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() % 86_400;
    let (hours, minutes, seconds) = (second / 3600, second / 60 % 60, second % 60);
    format!("{hours:02}:{minutes:02}:{seconds:02}")
}

/// The last, mean and highest value of a series, for the table below a chart.
pub(super) struct Summary {
    pub(super) last: f64,
    pub(super) mean: f64,
    pub(super) most: f64,
}

impl Summary {
    /// Leaves out values that are no number. All are zero if none is left.
    pub(super) fn of(points: &[(f64, f64)]) -> Self {
        let values: Vec<f64> = points
            .iter()
            .map(|point| point.1)
            .filter(|value| value.is_finite())
            .collect();
        Self {
            last: values.last().copied().unwrap_or(0.0),
            mean: values.iter().sum::<f64>() / values.len().max(1) as f64,
            most: values.iter().copied().fold(0.0, f64::max),
        }
    }
}
