//! Bars of several targets: rates, and the CPU time of a request.

use crate::result::{Metric, Run};

use super::charts::look;
use super::figures::{number, time};
use super::grid::{Level, point};
use haulier_charts::Ink;

/// A set of bars over one scale that begins at zero.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Bars {
    pub(crate) title: String,
    pub(crate) rows: Vec<Bar>,
    pub(crate) note: String,
    /// Legend of the parts of a bar, if it has several.
    pub(crate) parts: Vec<(Ink, String)>,
}

/// One bar.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Bar {
    pub(crate) name: String,
    /// Its parts, as shares of the scale.
    pub(crate) parts: Vec<(Ink, f64)>,
    pub(crate) text: String,
}

/// Colours of the server's own CPU time and of PHP's.
const SERVER: Ink = Ink::One;
const PHP: Ink = Ink::Three;

/// The bars of several targets at one level: rates, and CPU time if it was sampled.
pub(crate) fn of_run(run: &Run, level: Level) -> Vec<Bars> {
    if run.targets.len() < 2 {
        return Vec::new();
    }
    [rates(run, level), costs(run, level)].into_iter().flatten().collect()
}

/// A target, the parts of its bar in their own unit, and its text.
type MeasuredBar = (usize, Vec<(Ink, f64)>, String);

fn rates(run: &Run, level: Level) -> Option<Bars> {
    let rows = (0..run.targets.len()).filter_map(|target| {
        let rate = Metric::RequestsPerSecond.of_all(point(run, target, level)?)?;
        let (ink, _) = look(target);
        Some((target, vec![(ink, rate)], format!("{}/s", number(rate))))
    });
    bars(run, "Requests a second", "longer is better", rows.collect())
}

fn costs(run: &Run, level: Level) -> Option<Bars> {
    let mut is_parted = false;
    let rows: Vec<_> = (0..run.targets.len())
        .filter_map(|target| {
            let server = point(run, target, level)?.total.server?;
            let cpu = server.cpu_us_per_request?;
            let php = server.php_cpu_us_per_request.unwrap_or(0.0).min(cpu);
            is_parted |= php > 0.0;
            Some((target, vec![(SERVER, cpu - php), (PHP, php)], time(cpu)))
        })
        .collect();
    let mut bars = bars(run, "CPU time of a request", "shorter is better", rows)?;
    if is_parted {
        bars.parts = vec![(SERVER, "the server".to_owned()), (PHP, "PHP".to_owned())];
    }
    Some(bars)
}

fn bars(run: &Run, title: &str, note: &str, rows: Vec<MeasuredBar>) -> Option<Bars> {
    let whole = |parts: &[(Ink, f64)]| {
        parts
            .iter()
            .map(|(_, value)| *value)
            .filter(|value| value.is_finite())
            .sum::<f64>()
    };
    let most = rows.iter().map(|(_, parts, _)| whole(parts)).fold(0.0, f64::max);
    if most <= 0.0 {
        return None;
    }
    let share = |value: f64| {
        if value.is_finite() {
            (value / most).clamp(0.0, 1.0)
        } else {
            0.0
        }
    };
    let rows = rows.into_iter().map(|(target, parts, text)| Bar {
        name: run.targets[target].name.clone(),
        parts: parts.into_iter().map(|(ink, value)| (ink, share(value))).collect(),
        text,
    });
    Some(Bars {
        title: title.to_owned(),
        rows: rows.collect(),
        note: note.to_owned(),
        parts: Vec::new(),
    })
}
