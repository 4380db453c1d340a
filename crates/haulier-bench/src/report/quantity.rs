//! The figures of a target, each with its name, definition and form.
//!
//! The tables of `haulier bench` and those of a report take their figures from here, so that they agree. A figure covers
//! all slices together; comparisons use pairs of slices (`compare`).

use crate::result::{Distribution, Metric, Point, Run};

use super::document::Best;
use super::figures::{bytes, count, number, percent, time};

/// A figure of a point.
#[derive(Debug)]
pub struct Quantity {
    pub name: &'static str,
    /// Its value over all slices together.
    pub of: fn(&Point) -> Option<f64>,
    pub show: fn(f64) -> String,
    pub best: Best,
    pub metric: Option<Metric>,
    /// Shown in the second table of a report.
    pub minor: bool,
    /// True if the run tried to measure it: a missing value was not sampled then.
    tried: fn(&Point) -> bool,
    /// The remark beside it on a terminal.
    pub remark: &'static str,
}

impl Quantity {
    const fn new(name: &'static str, of: fn(&Point) -> Option<f64>, show: fn(f64) -> String) -> Self {
        Self {
            name,
            of,
            show,
            best: Best::None,
            metric: None,
            minor: false,
            tried: |_| false,
            remark: "",
        }
    }

    const fn of_metric(metric: Metric, of: fn(&Point) -> Option<f64>, show: fn(f64) -> String) -> Self {
        Self {
            metric: Some(metric),
            best: if metric.more_is_better() {
                Best::Most
            } else {
                Best::Least
            },
            ..Self::new(metric.label(), of, show)
        }
    }

    const fn least_is_best(self) -> Self {
        Self {
            best: Best::Least,
            ..self
        }
    }

    const fn minor(self) -> Self {
        Self { minor: true, ..self }
    }

    const fn remark(self, remark: &'static str) -> Self {
        Self { remark, ..self }
    }

    const fn tried(self, tried: fn(&Point) -> bool) -> Self {
        Self { tried, ..self }
    }

    /// The value as text: `not sampled` if sampling failed, `–` if it was not measured.
    pub fn text(&self, point: Option<&Point>) -> String {
        match point.and_then(self.of) {
            Some(value) => (self.show)(value),
            None if point.is_some_and(self.tried) => "not sampled".to_owned(),
            None => "–".to_owned(),
        }
    }

    /// True if one of the points has a value, or should have one.
    pub fn is_known(&self, points: &[Option<&Point>]) -> bool {
        let mut points = points.iter().flatten();
        points.any(|point| (self.of)(point).is_some() || (self.tried)(point))
    }
}

pub const RATE: Quantity = Quantity::of_metric(
    Metric::RequestsPerSecond,
    |point| Metric::RequestsPerSecond.of_all(point),
    number,
);
pub const MEDIAN: Quantity = Quantity::of_metric(Metric::LatencyP50, |point| Metric::LatencyP50.of_all(point), time);
pub const P99: Quantity = Quantity::of_metric(Metric::LatencyP99, |point| Metric::LatencyP99.of_all(point), time);
pub const SERVER_CPU: Quantity = Quantity::of_metric(Metric::ServerCpu, |point| Metric::ServerCpu.of_all(point), time);
pub const BODY: Quantity = Quantity::new("body/request", body_bytes, bytes).minor();
pub const FAILED: Quantity = Quantity::new("failed", |point| Some(point.total.failures.all() as f64), whole);

/// All figures, the most wanted first.
pub static QUANTITIES: [Quantity; 26] = [
    RATE,
    MEDIAN,
    Quantity::of_metric(Metric::LatencyP95, |point| Metric::LatencyP95.of_all(point), time),
    P99,
    Quantity::new("time, longest", |point| percentile(&point.total.latency, 100.0), time).minor(),
    Quantity::of_metric(Metric::FirstByte, |point| Metric::FirstByte.of_all(point), time),
    Quantity::new(
        "p99 from the sending",
        |point| percentile(point.total.service.as_ref()?, 99.0),
        time,
    )
    .minor()
    .remark("what a closed loop would have shown"),
    Quantity::new(
        "sent late by, p99",
        |point| percentile(point.total.sent_late.as_ref()?, 99.0),
        time,
    )
    .minor()
    .remark("the generator's own error"),
    Quantity::new(
        "no connection free",
        |point| point.total.waited_for_connection.map(|count| count as f64),
        whole,
    )
    .minor(),
    SERVER_CPU,
    Quantity::new("of it in PHP", |point| point.total.server?.php_cpu_us_per_request, time).least_is_best(),
    Quantity::new(
        "of it in the server",
        |point| {
            let server = point.total.server?;
            Some((server.cpu_us_per_request? - server.php_cpu_us_per_request?).max(0.0))
        },
        time,
    )
    .least_is_best(),
    Quantity::of_metric(Metric::WorkerTime, |point| Metric::WorkerTime.of_all(point), time),
    Quantity::new("peak PHP workers", peak_workers, whole).tried(asked_workers),
    Quantity::new(
        "peak queue for PHP",
        |point| point.total.server?.peak_queue.map(f64::from),
        whole,
    )
    .tried(asked_workers)
    .minor(),
    Quantity::new("server cores", |point| point.total.server?.cores, number).minor(),
    Quantity::new(
        "memory (PSS)",
        |point| point.total.server?.pss_bytes.map(|bytes| bytes as f64),
        bytes,
    )
    .least_is_best(),
    Quantity::new(
        "memory (RSS)",
        |point| point.total.server?.rss_bytes.map(|bytes| bytes as f64),
        bytes,
    )
    .minor(),
    BODY,
    Quantity::new(
        "connections opened",
        |point| Some(point.total.connections_opened as f64),
        whole,
    )
    .minor(),
    Quantity::new(
        "time to connect, median",
        |point| percentile(point.total.connect.as_ref()?, 50.0),
        time,
    )
    .minor(),
    Quantity::new("generator CPU", |point| Some(point.total.generator.cpu), percent).minor(),
    Quantity::new("generator CPU/request", generator_cpu, time).minor(),
    Quantity::new("others’ cores", Point::others_cores, number).minor(),
    Quantity::new("duration", |point| Some(1e6 * point.total.duration_s), time).minor(),
    FAILED,
];

/// The quantity of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Quantity> {
    QUANTITIES.iter().find(|quantity| quantity.name == name)
}

/// A column that a plan chooses for its table.
#[derive(Debug, Clone, Copy)]
pub enum TableColumn {
    Figure(&'static Quantity),
    /// The first target's value divided by that of the line; written `CPU/request ratio`.
    Ratio(&'static Quantity, Metric),
}

impl TableColumn {
    /// The column of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        if let Some(compared) = name.strip_suffix(" ratio") {
            let quantity = find(compared)?;
            return Some(Self::Ratio(quantity, quantity.metric?));
        }
        find(name).map(Self::Figure)
    }

    /// Every name that [`TableColumn::find`] knows.
    #[must_use]
    pub fn names() -> Vec<String> {
        let ratio = |quantity: &Quantity| quantity.metric.map(|_| format!("{} ratio", quantity.name));
        let figures = QUANTITIES.iter().map(|quantity| quantity.name.to_owned());
        figures.chain(QUANTITIES.iter().filter_map(ratio)).collect()
    }
}

/// A definition of the figures in a run's tables, if it has several slices.
pub fn definition(run: &Run) -> Option<&'static str> {
    if run.points.iter().all(|point| point.slices.len() < 2) {
        return None;
    }
    Some(match run.comparisons.is_empty() {
        true => "figures cover all slices together",
        false => "figures cover all slices together, ratios are means over pairs of slices",
    })
}

pub fn percentile(times: &Distribution, percent: f64) -> Option<f64> {
    let known = times.percentile(percent).filter(|_| times.count > 0);
    known.map(|us| us as f64)
}

/// Most busy workers. Older documents have a 0 if workers were busy between the samples only.
fn peak_workers(point: &Point) -> Option<f64> {
    let server = point.total.server?;
    let was_busy = server.worker_us_per_request.is_some_and(|us| us > 0.0);
    let peak = server.peak_busy_workers.filter(|peak| *peak > 0 || !was_busy)?;
    Some(f64::from(peak))
}

fn asked_workers(point: &Point) -> bool {
    let server = point.total.server.unwrap_or_default();
    server.workers_asked || server.worker_us_per_request.is_some()
}

/// CPU time of the generator's threads for a request.
fn generator_cpu(point: &Point) -> Option<f64> {
    let answered = point.total.requests + point.total.failures.all();
    (answered > 0).then_some(point.total.generator.cpu_us_per_request)
}

fn body_bytes(point: &Point) -> Option<f64> {
    let total = &point.total;
    (total.requests > 0).then(|| total.bytes.body as f64 / total.requests as f64)
}

fn whole(value: f64) -> String {
    count(value as u64)
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    fn peak() -> &'static Quantity {
        const PEAK: &str = "peak PHP workers";
        QUANTITIES
            .iter()
            .find(|quantity| quantity.name == PEAK)
            .expect("a quantity")
    }

    #[test]
    fn workers_without_a_sample_are_not_zero() {
        let mut point = samples::single(100.0).points.remove(0);
        let mut server = point.total.server.expect("watched");
        let mut shown = |peak_busy_workers, workers_asked, worker_us_per_request| {
            (server.peak_busy_workers, server.workers_asked) = (peak_busy_workers, workers_asked);
            server.worker_us_per_request = worker_us_per_request;
            point.total.server = Some(server);
            (peak().text(Some(&point)), peak().is_known(&[Some(&point)]))
        };
        assert_eq!(shown(Some(4), true, Some(12_300.0)), ("4".to_owned(), true));
        assert_eq!(shown(None, true, Some(12_300.0)), ("not sampled".to_owned(), true));
        assert_eq!(shown(Some(0), false, Some(12_300.0)), ("not sampled".to_owned(), true));
        assert_eq!(shown(Some(0), true, Some(0.0)), ("0".to_owned(), true));
        assert_eq!(shown(None, false, None), ("–".to_owned(), false));
    }
}
