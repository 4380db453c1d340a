//! Charts of a run: percentiles, slices, sweeps, the course of time.

use crate::result::{Comparison, Metric, Point, Run, RunKind, Second};

use super::document;
use super::figures::{bytes, number, ratio, tick, time, time_tick};
use super::grid::{Level, levels, point};
use super::histogram::{self, TimeCounts};
use haulier_charts::{Axis, Chart, Dash, Ink, Layer};

/// Most histograms in one chart; more could not be told apart.
const MOST_OVERLAID: usize = 3;
/// Steps of a histogram.
const STEPS: usize = 48;

/// A chart with title, legend and note.
#[derive(Debug, Clone)]
pub(crate) struct Figure {
    pub(crate) title: String,
    /// The `<svg>` element.
    pub(crate) svg: String,
    /// Meaning of each colour; empty if one legend serves all charts of the page.
    pub(crate) legend: Vec<Key>,
    pub(crate) note: String,
}

/// A line of a legend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) ink: Ink,
    pub(crate) dash: Dash,
    pub(crate) name: String,
}

/// Gives every chart of a page its own id.
#[derive(Debug, Default)]
pub(crate) struct Ids(usize);

impl Ids {
    fn next(&mut self) -> String {
        self.0 += 1;
        format!("c{}", self.0)
    }
}

/// Colour and dash of a target, the same in every chart of its run.
pub(crate) fn look(target: usize) -> (Ink, Dash) {
    let ink = Ink::ROW[target % Ink::ROW.len()];
    (ink, [Dash::None, Dash::Long, Dash::Short][target % 3])
}

/// Legend of a run's charts.
pub(crate) fn legend(run: &Run) -> Vec<Key> {
    let key = |(target, name): (usize, &str)| {
        let (ink, dash) = look(target);
        Key {
            ink,
            dash,
            name: name.to_owned(),
        }
    };
    let names = run.targets.iter().map(|target| target.name.as_str());
    names.enumerate().map(key).collect()
}

/// All charts of a run, in the order of the page.
pub(crate) fn of_run(run: &Run, ids: &mut Ids) -> Vec<Figure> {
    let levels = levels(run);
    let mut figures = Vec::new();
    if let [level] = levels.as_slice() {
        figures.extend(percentiles(run, *level, ids));
        figures.extend(rounds(run, *level, ids));
        figures.extend(histograms(run, *level, ids));
    } else if !levels.is_empty() {
        figures.extend(over_levels(run, &levels, ids));
        // Servers differ most at the highest load.
        figures.extend(percentiles(run, levels[levels.len() - 1], ids));
    }
    figures
}

/// Every target that was measured at a level, with colour and dash.
fn looks(run: &Run, level: Level) -> impl Iterator<Item = (&Point, Ink, Dash)> {
    (0..run.targets.len()).filter_map(move |target| {
        let (ink, dash) = look(target);
        Some((point(run, target, level)?, ink, dash))
    })
}

fn name<'r>(run: &'r Run, point: &Point) -> &'r str {
    &run.targets[point.target].name
}

fn percentiles(run: &Run, level: Level, ids: &mut Ids) -> Option<Figure> {
    let highest = highest_percentile(run, level);
    let mut layers = Vec::new();
    let mut times = Vec::new();
    let mut said = Vec::new();
    for (point, ink, dash) in looks(run, level).filter(|(point, ..)| point.total.latency.count > 0) {
        let latency = &point.total.latency;
        // Above the percentile of the slowest request there is nothing to show.
        let told = latency
            .percentiles
            .iter()
            .filter(|(percent, _)| *percent <= highest && (100.0 - percent) / 100.0 * latency.count as f64 >= 1.0);
        let line: Vec<(f64, f64)> = told.map(|&(percent, us)| (percent, us.max(1) as f64)).collect();
        times.extend(line.iter().map(|(_, us)| *us));
        let p99 = latency.percentile(99.0).map_or("–".to_owned(), |us| time(us as f64));
        said.push(format!("{}: 99 % within {p99}", name(run, point)));
        layers.push(Layer::line(ink, line).dashed(dash).tip(name(run, point)));
    }
    if times.is_empty() {
        return None;
    }
    let x = Axis::percentiles(50.0, highest, &[50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99]);
    let y = snug(&times);
    let title = match levels(run).len() {
        1 => "Time by percentile".to_owned(),
        _ => format!("Time by percentile, {}", level.words()),
    };
    let chart = Chart::new(ids.next(), title.clone(), x, y)
        .height(220)
        .description(said.join("; "));
    Some(Figure {
        title,
        svg: chart.with_all(layers).render(),
        legend: Vec::new(),
        note: "share of the requests that took at most this time; the slowest are on the right".to_owned(),
    })
}

/// A logarithmic axis of times with a little room at both ends, a factor of four at least.
fn snug(times: &[f64]) -> Axis {
    let (low, high) = times.iter().fold((f64::INFINITY, 0.0_f64), |(low, high), time| {
        (low.min(*time), high.max(*time))
    });
    let missing = (4.0 / (high / low)).max(1.0).sqrt();
    Axis::log_between(0.9 * low / missing, 1.1 * high * missing, time_tick)
}

/// The highest percentile that at least one request of a target exceeds.
fn highest_percentile(run: &Run, level: Level) -> f64 {
    let most = looks(run, level)
        .map(|(point, ..)| point.total.latency.count)
        .max()
        .unwrap_or(0);
    let told = [90.0, 95.0, 99.0, 99.9, 99.99];
    let seen = told
        .into_iter()
        .rev()
        .find(|percent| (100.0 - percent) / 100.0 * most as f64 >= 1.0);
    seen.unwrap_or(90.0)
}

fn rounds(run: &Run, level: Level, ids: &mut Ids) -> Option<Figure> {
    let most = looks(run, level).map(|(point, ..)| point.slices.len()).max()?;
    if most < 2 {
        return None;
    }
    let count = run.targets.len() as f64;
    let (mut layers, mut all, mut said) = (Vec::new(), Vec::new(), Vec::new());
    for (number_of, (point, ink, dash)) in looks(run, level).enumerate() {
        // Side by side, so that dots do not hide each other.
        let beside = 0.5 * ((number_of as f64 + 0.5) / count - 0.5);
        let rates: Vec<f64> = point.slices.iter().map(|slice| slice.requests_per_second).collect();
        let middle = median(&rates);
        let dots = rates.iter().enumerate();
        let dots: Vec<(f64, f64)> = dots.map(|(round, rate)| (round as f64 + 1.0 + beside, *rate)).collect();
        let tip = format!("{}, median of the slices {}/s", name(run, point), number(middle));
        layers.push(Layer::rule(ink, middle).dashed(dash).tip(tip.clone()));
        layers.push(Layer::dots(ink, dots).tip(tip.clone()));
        said.push(tip);
        all.extend(rates);
    }
    let (y, cut) = spread_axis(&all);
    let every = most.div_ceil(12);
    let labels = (1..=most).step_by(every).map(|round| (round as f64, round.to_string()));
    let x = Axis::linear(0.5, most as f64 + 0.5, most, |_| String::new()).labelled(labels);
    let chart = Chart::new(ids.next(), "Requests a second, slice by slice", x, y).height(220);
    Some(Figure {
        title: "Requests a second, slice by slice".to_owned(),
        svg: chart.description(said.join("; ")).with_all(layers).render(),
        legend: Vec::new(),
        note: match cut {
            true => {
                "each dot is a slice, each line the median of a target; the scale does not begin at zero".to_owned()
            }
            false => "each dot is a slice, each line the median of a target".to_owned(),
        },
    })
}

/// An axis that shows the spread of values. The second value is true if it leaves out zero.
fn spread_axis(values: &[f64]) -> (Axis, bool) {
    let known = || values.iter().copied().filter(|value| value.is_finite());
    let (low, high) = (known().fold(f64::INFINITY, f64::min), known().fold(0.0, f64::max));
    if !low.is_finite() || low < 0.5 * high {
        return (Axis::fitted(known(), 1.0, 4, tick), false);
    }
    let margin = (high - low).max(0.02 * high);
    (Axis::linear(low - margin, high + margin, 4, tick), true)
}

fn histograms(run: &Run, level: Level, ids: &mut Ids) -> Option<Figure> {
    if run.targets.len() > MOST_OVERLAID {
        return None;
    }
    let all: Vec<_> = looks(run, level)
        .filter_map(|(point, ink, dash)| {
            Some((
                name(run, point),
                ink,
                dash,
                TimeCounts::of(&point.total.latency.histogram)?,
            ))
        })
        .collect();
    let (low, high) = histogram::range(all.iter().map(|(.., times)| times))?;
    let edge = |step: usize| low * (high / low).powf(step as f64 / STEPS as f64);
    let x = Axis::log_between(low, high, time_tick);
    let shares: Vec<Vec<f64>> = all.iter().map(|(.., times)| times.shares(low, high, STEPS)).collect();
    let y = Axis::fitted(shares.iter().flatten().copied(), 0.01, 4, |share| {
        format!("{} %", tick(100.0 * share))
    });
    let mut chart = Chart::new(ids.next(), "How often each time occurred", x, y)
        .height(220)
        .description("Histograms of the time of a request on one logarithmic axis");
    for ((name, ink, dash, _), shares) in all.into_iter().zip(shares) {
        let stairs = shares.iter().enumerate();
        let fill = stairs
            .clone()
            .flat_map(|(step, &share)| [(edge(step), 0.0, share), (edge(step + 1), 0.0, share)]);
        let mut outline: Vec<(f64, f64)> = stairs.map(|(step, &share)| (edge(step), share)).collect();
        outline.push((high, 0.0));
        chart = chart
            .with(Layer::band(ink, fill.collect()).tip(name))
            .with(Layer::steps(ink, outline).dashed(dash).tip(name));
    }
    Some(Figure {
        title: "How often each time occurred".to_owned(),
        svg: chart.render(),
        legend: Vec::new(),
        note: "share of the requests in each step of the scale; the first and last step include all beyond".to_owned(),
    })
}

/// A figure drawn for every second.
struct Course {
    title: &'static str,
    of: fn(&Second) -> Option<f64>,
    label: fn(f64) -> String,
    height: u32,
}

const COURSES: [Course; 6] = [
    Course {
        title: "Requests a second",
        of: |second| second.each_second(second.requests),
        label: tick,
        height: 110,
    },
    Course {
        title: "p99",
        of: |second| (second.requests > 0).then_some(second.p99_us as f64),
        label: time_tick,
        height: 110,
    },
    Course {
        title: "Failed requests a second",
        of: |second| second.each_second(second.failed),
        label: tick,
        height: 80,
    },
    Course {
        title: "Cores of the server",
        of: |second| second.server_cores,
        label: tick,
        height: 80,
    },
    Course {
        title: "Memory of the server (RSS)",
        of: |second| second.server_rss_bytes.map(|bytes| bytes as f64),
        label: bytes,
        height: 80,
    },
    Course {
        title: "Busy PHP workers",
        of: |second| second.busy_workers.map(f64::from),
        label: tick,
        height: 80,
    },
];

/// The course of time, all charts over the same seconds.
pub(crate) fn course(run: &Run, level: Level, ids: &mut Ids) -> Vec<Figure> {
    let seconds = looks(run, level).flat_map(|(point, ..)| &point.total.timeline);
    let longest = looks(run, level).map(|(point, ..)| point.total.timeline.len()).max();
    let (first, last) = seconds.fold((f64::INFINITY, 0.0_f64), |(first, last), second| {
        (first.min(second.at_s), last.max(second.end_s()))
    });
    if longest.unwrap_or(0) < 4 {
        return Vec::new();
    }
    let mut figures = Vec::new();
    for course in &COURSES {
        let lines: Vec<_> = looks(run, level)
            .map(|(point, ink, dash)| (name(run, point), ink, dash, with_gaps(&point.total.timeline, course.of)))
            .collect();
        let values = || lines.iter().flat_map(|(.., line)| line.iter().map(|(_, value)| *value));
        // A chart of zeros says nothing.
        if !values().any(|value| value > 0.0) {
            continue;
        }
        let x = Axis::linear(first, last, 6, |at| format!("{} s", tick(at)));
        let y = Axis::fitted(values(), 1e-9, 3, course.label);
        let layers = lines.iter().flat_map(|(name, ink, dash, line)| {
            let lonely = Layer::dots(*ink, alone(line)).tip(*name);
            [Layer::line(*ink, line.clone()).dashed(*dash).tip(*name), lonely]
        });
        let chart = Chart::new(ids.next(), format!("{}, over time", course.title), x, y);
        figures.push(Figure {
            title: course.title.to_owned(),
            svg: chart
                .height(course.height)
                .with_all(layers.collect::<Vec<_>>())
                .render(),
            legend: Vec::new(),
            note: String::new(),
        });
    }
    figures
}

/// A longer pause, s, interrupts a line: another target was measured then.
const TURN: f64 = 0.6;

/// A value in the middle of every entry. The line is interrupted while another target was measured.
fn with_gaps(timeline: &[Second], of: fn(&Second) -> Option<f64>) -> Vec<(f64, f64)> {
    let mut line = Vec::with_capacity(timeline.len());
    let mut before = None;
    for second in timeline {
        if before.is_some_and(|end| second.at_s - end > TURN) {
            line.push((second.at_s, f64::NAN));
        }
        let middle = f64::midpoint(second.at_s, second.end_s());
        line.push((middle, of(second).unwrap_or(f64::NAN)));
        before = Some(second.end_s());
    }
    line
}

/// Points of a line without a neighbour, which only a dot can show.
fn alone(line: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let is_there = |place: Option<usize>| {
        place
            .and_then(|place| line.get(place))
            .is_some_and(|point| point.1.is_finite())
    };
    let lonely = (0..line.len())
        .filter(|&place| is_there(Some(place)) && !is_there(place.checked_sub(1)) && !is_there(place.checked_add(1)));
    lonely.map(|place| line[place]).collect()
}

/// A figure drawn over the levels of a sweep or a ladder.
struct Curve {
    title: &'static str,
    of: fn(&Point) -> Option<f64>,
    label: fn(f64) -> String,
    log: bool,
    /// Left out if it is zero everywhere.
    only_if_any: bool,
}

const CURVES: [Curve; 4] = [
    Curve {
        title: "Requests a second",
        of: |point| Metric::RequestsPerSecond.of_all(point),
        label: tick,
        log: false,
        only_if_any: false,
    },
    Curve {
        title: "p99",
        of: |point| above_zero(Metric::LatencyP99.of_all(point)),
        label: time_tick,
        log: true,
        only_if_any: false,
    },
    Curve {
        title: "Time, median",
        of: |point| above_zero(Metric::LatencyP50.of_all(point)),
        label: time_tick,
        log: true,
        only_if_any: false,
    },
    Curve {
        title: "Failed requests",
        of: |point| {
            let failed = point.total.failures.all() as f64;
            let all = failed + point.total.requests as f64;
            (all > 0.0).then(|| 100.0 * failed / all)
        },
        label: |share| format!("{} %", tick(share)),
        log: false,
        only_if_any: true,
    },
];

/// A time of at least 1 µs, for a logarithmic axis.
fn above_zero(us: Option<f64>) -> Option<f64> {
    us.map(|us| us.max(1.0))
}

fn over_levels(run: &Run, levels: &[Level], ids: &mut Ids) -> Vec<Figure> {
    let by_rate = run.kind == RunKind::Ladder;
    let at = |level: Level| match (by_rate, level.rate) {
        (true, Some(rate)) => rate,
        _ => f64::from(level.connections),
    };
    let mut places: Vec<f64> = levels.iter().map(|level| at(*level)).collect();
    places.sort_by(f64::total_cmp);
    let wide = places
        .first()
        .zip(places.last())
        .is_some_and(|(first, last)| *last > 10.0 * first.max(1.0));
    let x = || match wide {
        true => Axis::log(places.iter().copied(), 1.0, tick),
        false => Axis::fitted(places.iter().copied(), 1.0, 6, tick),
    };
    let mut figures = Vec::new();
    for curve in &CURVES {
        let lines: Vec<(usize, Vec<(f64, f64)>)> = (0..run.targets.len())
            .map(|target| {
                let mut line: Vec<(f64, f64)> = levels
                    .iter()
                    .filter_map(|level| Some((at(*level), (curve.of)(point(run, target, *level)?)?)))
                    .collect();
                line.sort_by(|one, other| one.0.total_cmp(&other.0));
                (target, line)
            })
            .collect();
        let values = || lines.iter().flat_map(|(_, line)| line.iter().map(|(_, value)| *value));
        if values().next().is_none() || (curve.only_if_any && !values().any(|value| value > 0.0)) {
            continue;
        }
        let y = match curve.log {
            true => Axis::log(values(), 1000.0, curve.label),
            false => Axis::fitted(values(), 1e-9, 4, curve.label),
        };
        let against = if by_rate { "by offered rate" } else { "by connections" };
        let title = format!("{} {against}", curve.title);
        let mut chart = Chart::new(ids.next(), title.clone(), x(), y).height(200);
        for (target, line) in lines {
            let (ink, dash) = look(target);
            let name = run.targets[target].name.as_str();
            chart = chart
                .with(Layer::line(ink, line.clone()).dashed(dash).tip(name))
                .with(Layer::dots(ink, line).tip(name));
        }
        figures.push(Figure {
            title,
            svg: chart.render(),
            legend: Vec::new(),
            note: String::new(),
        });
    }
    figures
}

/// A chart of a script.
pub(crate) fn of_script(chart: &document::Chart, ids: &mut Ids) -> Figure {
    let all = |of: fn(&(f64, f64)) -> f64| chart.series.iter().flat_map(move |series| series.points.iter().map(of));
    let axis = |scale: &document::Scale, values: Vec<f64>| match scale.log {
        true => Axis::log(values, 1.0, unit_tick(scale.unit)),
        false => Axis::fitted(values, 1e-9, 5, unit_tick(scale.unit)),
    };
    let x = axis(&chart.x, all(|point| point.0).collect());
    let y = axis(&chart.y, all(|point| point.1).collect());
    let mut drawn = Chart::new(ids.next(), chart.title.clone(), x, y)
        .height(300)
        .description(format!("{} against {}", chart.y.name, chart.x.name));
    for (number, series) in chart.series.iter().enumerate() {
        let (ink, dash) = look(number);
        drawn = drawn
            .with(
                Layer::line(ink, series.points.clone())
                    .dashed(dash)
                    .tip(series.name.as_str()),
            )
            .with(Layer::dots(ink, series.points.clone()).tip(series.name.as_str()));
    }
    let key = |(number, series): (usize, &document::Series)| {
        let (ink, dash) = look(number);
        Key {
            ink,
            dash,
            name: series.name.clone(),
        }
    };
    Figure {
        title: chart.title.clone(),
        svg: drawn.render(),
        legend: chart.series.iter().enumerate().map(key).collect(),
        note: format!("horizontal: {}; vertical: {}", chart.x.name, chart.y.name),
    }
}

fn unit_tick(unit: document::Unit) -> fn(f64) -> String {
    match unit {
        document::Unit::Number => tick,
        document::Unit::Time => time_tick,
        document::Unit::Bytes => bytes,
        document::Unit::Share => |share| format!("{} %", tick(100.0 * share)),
    }
}

/// Ratios with their intervals over one scale.
#[derive(Debug, Clone)]
pub(crate) struct Strips {
    pub(crate) rows: Vec<Strip>,
    /// The `<svg>` element of the scale.
    pub(crate) scale: String,
}

/// A ratio with its interval, drawn beside its text.
#[derive(Debug, Clone)]
pub(crate) struct Strip {
    pub(crate) name: String,
    pub(crate) svg: String,
    pub(crate) words: String,
}

/// Largest ratio of a scale; larger ones are drawn at its end.
const MOST_RATIO: f64 = 8.0;

/// Every ratio between two targets at a level, over one scale that has 1 in its middle.
pub(crate) fn strips(run: &Run, base: usize, other: usize, level: Level) -> Strips {
    let between: Vec<&Comparison> = run
        .comparisons
        .iter()
        .filter(|found| (found.base, found.other) == (base, other))
        .filter(|found| (found.connections, found.rate) == (level.connections, level.rate))
        .collect();
    // A ratio far out would press the others together, so the scale has an end.
    let far = |found: &&Comparison| {
        let ends = [found.low, found.high, found.ratio]
            .into_iter()
            .filter(|end| end.is_finite() && *end > 0.0);
        ends.map(|end| end.ln().abs()).fold(0.0, f64::max)
    };
    let reach = between.iter().map(far).fold(0.05_f64, f64::max).min(MOST_RATIO.ln()) * 1.1;
    let strip = |found: &&Comparison| Strip {
        name: found.metric.label().to_owned(),
        svg: strip(found, reach, floor(run, found.metric)),
        words: format!("{} ({}–{})", ratio(found.ratio), ratio(found.low), ratio(found.high)),
    };
    Strips {
        rows: between.iter().map(strip).collect(),
        scale: scale(reach),
    }
}

/// Labels of a strip: in the middle and near the ends.
fn scale(reach: f64) -> String {
    let marks = [-0.9_f64, 0.0, 0.9].map(|along| {
        let at = 50.0 + 48.0 * along;
        format!(
            "<text x=\"{at:.1}%\" y=\"11\" text-anchor=\"middle\">{}</text>",
            ratio((along * reach).exp())
        )
    });
    format!(
        "<svg class=\"strip scale\" height=\"14\" aria-hidden=\"true\">{}</svg>",
        marks.concat()
    )
}

fn floor(run: &Run, metric: Metric) -> Option<f64> {
    run.noise.as_ref()?.floor.get(&metric).copied()
}

fn strip(found: &Comparison, reach: f64, floor: Option<f64>) -> String {
    let is_beyond = found.ratio <= 0.0 || found.ratio.ln().abs() > reach;
    let dot = if is_beyond { "dot beyond" } else { "dot" };
    let place = |value: f64| {
        let along = if value > 0.0 { value.ln() / reach } else { -1.0 };
        format!("{:.1}%", 50.0 + 48.0 * along.clamp(-1.0, 1.0))
    };
    let noise = floor.filter(|floor| floor.is_finite() && *floor > 1.0).map_or(String::new(), |floor| {
        let half = 48.0 * (floor.ln() / reach).clamp(0.0, 1.0);
        format!(
            "<rect class=\"band km\" x=\"{:.1}%\" width=\"{:.1}%\" y=\"2\" height=\"16\"><title>difference between equal targets</title></rect>",
            50.0 - half,
            2.0 * half
        )
    });
    let (ink, _) = look(found.other);
    let ink = ink.class();
    format!(
        "<svg class=\"strip\" height=\"20\" aria-hidden=\"true\">{noise}<line class=\"way\" x1=\"0\" x2=\"100%\" y1=\"10\" y2=\"10\"/>\
         <line class=\"one\" x1=\"50%\" x2=\"50%\" y2=\"20\"/><line class=\"reach {ink}\" x1=\"{}\" x2=\"{}\" y1=\"10\" y2=\"10\"/>\
         <circle class=\"{dot} {ink}\" cx=\"{}\" cy=\"10\" r=\"4\"/></svg>",
        place(found.low),
        place(found.high),
        place(found.ratio)
    )
}

/// The median; NaN without values.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[odd / 2],
        even => f64::midpoint(sorted[even / 2 - 1], sorted[even / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    fn second(at_s: f64, length_s: f64, requests: u64) -> Second {
        Second {
            at_s,
            length_s,
            requests,
            ..Second::default()
        }
    }

    #[test]
    fn rates_over_time_are_per_second_for_entries_of_any_length() {
        let timeline = [second(0.0, 0.02, 30), second(0.1, 0.01, 30), second(5.0, 4.0, 8000)];
        let line = with_gaps(&timeline, COURSES[0].of);
        let shown: Vec<(f64, f64)> = line.iter().copied().filter(|(_, rate)| rate.is_finite()).collect();
        assert_eq!(
            shown.iter().map(|(_, rate)| *rate).collect::<Vec<_>>(),
            [1500.0, 3000.0, 2000.0]
        );
        assert_eq!(shown[2].0, 7.0, "a value stands in the middle of its entry");
        assert_eq!(line.len(), 4, "a turn of another target interrupts the line");
        assert_eq!(alone(&line), [(7.0, 2000.0)]);
    }

    #[test]
    fn entries_of_several_seconds_are_one_line() {
        let timeline: Vec<Second> = (0..6).map(|place| second(4.0 * f64::from(place), 4.0, 4000)).collect();
        let line = with_gaps(&timeline, COURSES[0].of);
        assert!(line.iter().all(|(_, rate)| *rate == 1000.0), "{line:?}");
    }

    #[test]
    fn the_course_of_a_run_of_short_slices_shows_its_rate() {
        let mut run = samples::single(5000.0);
        for second in &mut run.points[0].total.timeline {
            (second.length_s, second.requests) = (0.02, 30);
        }
        let level = Level::of(&run.points[0]);
        let figures = course(&run, level, &mut Ids::default());
        assert_eq!(figures[0].title, "Requests a second");
        assert!(
            figures[0].svg.contains(">2000<") || figures[0].svg.contains(">1500<"),
            "{}",
            figures[0].svg
        );
    }
}
