//! Requests per second by handler, and response times.

use std::time::Duration;

use super::table::legend;
use super::time::{Summary, time_axis};
use crate::admin::history::Sample;
use crate::admin::view::View;
use crate::quantity::{milliseconds, rate};
use haulier_charts::{Axis, Chart, Dash, Ink, Layer, stacked, swatch};

pub(super) fn section(view: &View) -> String {
    format!(
        "<section id=\"traffic\" data-live><h2>Traffic</h2><div class=\"two\">{}{}</div></section>",
        requests(view),
        latency(view)
    )
}

/// The colour of a handler, the same wherever it appears.
pub(super) fn ink(handler: &str) -> Ink {
    match handler {
        "php" => Ink::One,
        "static" => Ink::Two,
        "handed" => Ink::Three,
        "offloaded" => Ink::Four,
        "image" => Ink::Five,
        "denied" => Ink::Seven,
        "error" => Ink::Bad,
        _ => Ink::Six,
    }
}

/// The order of the handlers in the stack, from the bottom up.
const ORDER: [&str; 8] = [
    "php",
    "static",
    "handed",
    "offloaded",
    "image",
    "redirect",
    "denied",
    "error",
];

fn requests(view: &View) -> String {
    let numbers = ORDER
        .iter()
        .filter_map(|name| view.handlers.iter().position(|handler| handler == name));
    let series = numbers.map(|number| {
        let of = |sample: &Sample| sample.rate(sample.requests.get(number).copied().unwrap_or(0));
        (view.handlers[number], view.points(of))
    });
    // A handler without requests needs no colour.
    let series: Vec<_> = series
        .filter(|(_, points)| points.iter().any(|point| point.1 > 0.0))
        .collect();
    let tops = stacked(&series.iter().map(|(_, points)| points.clone()).collect::<Vec<_>>());
    let all = tops.last().map(Vec::as_slice).unwrap_or_default();
    let y = Axis::fitted(all.iter().map(|point| point.1), 1.0, 4, short);
    let whole = Summary::of(all);
    let described = format!(
        "On average {} requests a second, at most {}.",
        rate(whole.mean),
        rate(whole.most)
    );
    // From the top of the stack down: each area starts at zero, and the next covers its lower part.
    let layers = series.iter().zip(&tops).rev();
    let layers = layers.map(|((name, _), top)| Layer::area(ink(name), top.clone()).tip(*name));
    let svg = Chart::new(
        "requests-chart",
        "Requests per second by handler",
        time_axis(view.range),
        y,
    )
    .description(described)
    .empty("no request yet")
    .with_all(layers)
    .render();
    let rows = series.iter().map(|(name, points)| {
        let summary = Summary::of(points);
        let figures = [summary.last, summary.mean, summary.most].map(rate);
        (swatch(ink(name), None), (*name).to_owned(), figures)
    });
    let legend = legend("Requests per second by handler", rows);
    format!("<figure><figcaption>Requests per second, by handler</figcaption>{svg}{legend}</figure>")
}

/// `12k`, because `12000` would not fit beside the axis.
fn short(value: f64) -> String {
    match value {
        value if value >= 1e15 => format!("{value:.0e}"),
        value if value >= 1e9 => format!("{}G", value / 1e9),
        value if value >= 1e6 => format!("{}M", value / 1e6),
        value if value >= 1e4 => format!("{}k", value / 1e3),
        value => format!("{}", (value * 1000.0).round() / 1000.0),
    }
}

/// `1 ms`, `10 s`
fn tick(time: f64) -> String {
    if time < 1000.0 {
        format!("{time:.0} ms")
    } else {
        format!("{:.0} s", time / 1000.0)
    }
}

/// The percentiles that are shown, with their line styles.
const QUANTILES: [(f64, &str, Ink, Dash); 3] = [
    (0.5, "median", Ink::Two, Dash::None),
    (0.95, "95 of 100", Ink::One, Dash::Long),
    (0.99, "99 of 100", Ink::Five, Dash::Short),
];

fn latency(view: &View) -> String {
    // The histogram's first class ends at a millisecond: shorter times are not known.
    let known = |time: Duration| (time.as_secs_f64() * 1000.0).max(1.0);
    let series = QUANTILES.map(|(share, name, ink, dash)| {
        let points = view.points(|sample| sample.times.quantile(share).map_or(f64::NAN, known));
        (name, ink, dash, points)
    });
    let values = series
        .iter()
        .flat_map(|(.., points)| points.iter().map(|point| point.1));
    let y = Axis::log(values, 1.0, tick);
    let slowest = Summary::of(&series[2].3);
    let described = format!(
        "Half of all requests take {} on average, 99 of 100 take at most {}.",
        milliseconds(Some(Summary::of(&series[0].3).mean)),
        milliseconds(Some(slowest.most))
    );
    let layers = series
        .iter()
        .map(|(name, ink, dash, points)| Layer::line(*ink, points.clone()).dashed(*dash).tip(*name));
    let svg = Chart::new("latency-chart", "Response time", time_axis(view.range), y)
        .description(described)
        .empty("no request yet")
        .with_all(layers)
        .render();
    let rows = series
        .iter()
        .filter(|(.., points)| points.iter().any(|point| point.1.is_finite()));
    let rows = rows.map(|(name, ink, dash, points)| {
        let summary = Summary::of(points);
        let figures = [summary.last, summary.mean, summary.most].map(|time| milliseconds(Some(time)));
        (swatch(*ink, Some(*dash)), (*name).to_owned(), figures)
    });
    let legend = legend("Response time", rows);
    format!("<figure><figcaption>Time to the last byte sent</figcaption>{svg}{legend}</figure>")
}
