//! The text of a single run, as `haulier bench` prints it: the load, a table, verdicts, and warnings.

use super::figures::{bytes, count, number};
use super::quantity::{self, BODY, FAILED, MEDIAN, P99, QUANTITIES, Quantity, RATE};
use crate::campaign::Measured;
use crate::result::{Comparison, Metric, Point, Run, RunKind, RunLoad, WarningKind};

/// A line of a table: its name, a cell for each target, a remark.
type TextRow = (String, Vec<String>, String);

/// The text of a run, with percentiles of a single target if `with_percentiles`.
#[must_use]
pub fn render(run: &Run, with_percentiles: bool, has_colours: bool) -> String {
    let mut text = format!("{}\n\n", load_words(run));
    let levels = levels(run);
    match run.kind {
        RunKind::Sweep | RunKind::Ladder => text.push_str(&by_level(run, &levels)),
        RunKind::Single | RunKind::Comparison | RunKind::Replay => {
            text.push_str(&side_by_side(run));
            if run.targets.len() == 1 && with_percentiles {
                text.push_str(&percentiles(&run.points[0]));
            }
        }
    }
    if let Some(definition) = quantity::definition(run) {
        text.push_str(&format!("\n{definition}\n"));
    }
    if !run.verdicts.is_empty() {
        text.push('\n');
        for verdict in &run.verdicts {
            text.push_str(&format!("{verdict}\n"));
        }
    }
    if !run.warnings.is_empty() {
        text.push('\n');
        for warning in &run.warnings {
            let word = if has_colours {
                colour(warning.kind)
            } else {
                "warning".to_owned()
            };
            text.push_str(&format!("{word}: {}\n", warning.text));
        }
    }
    if run.kind != RunKind::Single {
        text.push_str(&format!("\nseed of this run: --seed {}\n", run.seed));
    }
    text
}

/// Red for warnings that change the meaning of every figure, yellow for others.
fn colour(kind: WarningKind) -> String {
    let code = match kind {
        WarningKind::NotSameWork | WarningKind::GeneratorLimited | WarningKind::Failures => 31,
        _ => 33,
    };
    format!("\x1b[{code}mwarning\x1b[0m")
}

/// `5 rounds × 200 requests, 10 connections, HTTP/1.1, readers at 256 KB/s`.
fn load_words(run: &Run) -> String {
    let load = &run.load;
    let mut parts = vec![amount(load, run.kind)];
    let connections: Vec<String> = load
        .connections
        .iter()
        .map(|number| count(u64::from(*number)))
        .collect();
    let word = if connections == ["1"] {
        "connection"
    } else {
        "connections"
    };
    parts.push(format!("{} {word}", connections.join(", ")));
    parts.push(load.protocol.clone());
    if let Some(streams) = load.streams {
        parts.push(format!("{streams} streams on each"));
    }
    if let Some(rate) = load.rate {
        let spacing = load.arrivals.as_deref().unwrap_or_default();
        parts.push(format!("{} requests a second ({spacing})", number(rate)));
    }
    if !load.keep_alive {
        parts.push("a new connection for each request".to_owned());
    }
    if let Some(accept) = &load.accept {
        parts.push(format!("accepting {accept}"));
    }
    if let Some(rate) = load.read_rate {
        parts.push(format!("readers at {}/s", bytes(rate as f64)));
    }
    if let Some(rate) = load.send_rate {
        parts.push(format!("senders at {}/s", bytes(rate as f64)));
    }
    if load.processes > 1 {
        parts.push(format!("{} generator processes", load.processes));
    } else if load.threads > 1 {
        parts.push(format!("{} generator threads", load.threads));
    }
    parts.join(", ")
}

fn amount(load: &RunLoad, kind: RunKind) -> String {
    if kind == RunKind::Replay {
        return "replay of an access log".to_owned();
    }
    // A round of a comparison has two slices of every target.
    let slices = if kind == RunKind::Comparison { 2 } else { 1 };
    let requests = load.requests.map(|each| format!("{} requests", count(each * slices)));
    let time = load.slice_s.map(|seconds| match slices {
        1 => format!("{seconds:.3} s"),
        _ => format!("{slices} × {seconds:.3} s"),
    });
    let each = requests.into_iter().chain(time).collect::<Vec<_>>().join(" or ");
    let each = each.replace(".000 s", " s");
    match load.rounds {
        1 => each,
        rounds => format!("{rounds} rounds × {each}"),
    }
}

// ── one level ────────────────────────────────────────────────────────────────────────────────────────────────────────

fn side_by_side(run: &Run) -> String {
    let points: Vec<Option<&Point>> = run.points.iter().map(Some).collect();
    let mut rows: Vec<TextRow> = Vec::new();
    for quantity in QUANTITIES.iter().filter(|quantity| quantity.is_known(&points)) {
        let remark = match quantity.metric {
            Some(metric) => remark(run, metric),
            None if quantity.name == BODY.name => same_body(run),
            None => quantity.remark.to_owned(),
        };
        let cells = points.iter().map(|point| quantity.text(*point));
        rows.push((quantity.name.to_owned(), cells.collect(), remark));
        if quantity.name == BODY.name {
            rows.extend(coding_rows(run));
        }
    }
    let names: Vec<String> = match run.targets.as_slice() {
        [_] => vec![String::new()],
        targets => targets.iter().map(|target| target.name.clone()).collect(),
    };
    layout(&names, &rows)
}

/// The comparison of two targets; with more it would not be clear which two it compares.
fn remark(run: &Run, metric: Metric) -> String {
    let is_of = |comparison: &&Comparison| comparison.metric == metric;
    match run.targets.len() {
        2 => run
            .comparisons
            .iter()
            .find(is_of)
            .map_or_else(String::new, |found| found.words.clone()),
        _ => String::new(),
    }
}

/// Content coding and decoded size, if one of the bodies was coded.
fn coding_rows(run: &Run) -> Vec<TextRow> {
    let answers: Option<Vec<_>> = run.targets.iter().map(|target| target.answer.as_ref()).collect();
    let Some(answers) = answers.filter(|answers| answers.iter().any(|answer| answer.encoding != "identity")) else {
        return Vec::new();
    };
    let encodings = answers.iter().map(|answer| answer.encoding.clone()).collect();
    let decoded = answers.iter().map(|answer| bytes(answer.decoded_bytes as f64));
    vec![
        ("encoding".to_owned(), encodings, String::new()),
        ("body decoded".to_owned(), decoded.collect(), String::new()),
    ]
}

/// `same body (sha256 5f18…)`.
fn same_body(run: &Run) -> String {
    let mut answers = run.targets.iter().filter_map(|target| target.answer.as_ref());
    let Some(first) = answers.next() else {
        return String::new();
    };
    let short = &first.sha256[..4];
    match run.targets.len() {
        1 => String::new(),
        _ if run.targets.iter().any(|target| target.varies) => "bodies vary".to_owned(),
        _ if answers.all(|answer| answer.sha256 == first.sha256) => format!("same body (sha256 {short}…)"),
        _ => "different bodies".to_owned(),
    }
}

/// Percentiles in ms with three decimals, for fast servers.
fn percentiles(point: &Point) -> String {
    let mut text = "\npercent of the requests within a time (ms)\n".to_owned();
    for (percent, time) in &point.total.latency.percentiles {
        text.push_str(&format!("{percent:>7} %  {:>12.3}\n", *time as f64 / 1e3));
    }
    text
}

// ── several levels ───────────────────────────────────────────────────────────────────────────────────────────────────

/// Connections and rate of every level, in their order.
fn levels(run: &Run) -> Vec<(u32, Option<f64>)> {
    let mut found: Vec<(u32, Option<f64>)> = Vec::new();
    for point in &run.points {
        if !found.contains(&(point.connections, point.rate)) {
            found.push((point.connections, point.rate));
        }
    }
    found
}

/// The columns of a target if there are several levels.
const BY_LEVEL: [&Quantity; 4] = [&RATE, &MEDIAN, &P99, &FAILED];

/// A line for each level, four columns for each target.
fn by_level(run: &Run, levels: &[(u32, Option<f64>)]) -> String {
    let is_ladder = run.kind == RunKind::Ladder;
    let has_names = run.targets.len() > 1;
    let titles: Vec<String> = run
        .targets
        .iter()
        .flat_map(|target| {
            let name = if has_names {
                format!("{} ", target.name)
            } else {
                String::new()
            };
            BY_LEVEL.map(|quantity| format!("{name}{}", quantity.name))
        })
        .collect();
    let rows: Vec<TextRow> = levels
        .iter()
        .map(|(connections, rate)| {
            let of_level = |point: &&Point| point.connections == *connections && point.rate == *rate;
            let of_points = run.points.iter().filter(of_level);
            let cells = of_points.flat_map(|point| BY_LEVEL.map(|quantity| quantity.text(Some(point))));
            let name = match rate {
                Some(rate) if is_ladder => number(*rate),
                _ => count(u64::from(*connections)),
            };
            (name, cells.collect(), String::new())
        })
        .collect();
    let corner = if is_ladder { "offered rate" } else { "connections" };
    layout_with(corner, &titles, &rows)
}

// ── layout ───────────────────────────────────────────────────────────────────────────────────────────────────────────

fn layout(titles: &[String], rows: &[TextRow]) -> String {
    layout_with("", titles, rows)
}

/// Aligns names to the left and cells to the right, followed by the remarks.
fn layout_with(corner: &str, titles: &[String], rows: &[TextRow]) -> String {
    let width = |text: &str| text.chars().count();
    let first = rows
        .iter()
        .map(|(name, ..)| width(name))
        .chain([width(corner)])
        .max()
        .unwrap_or(0);
    let widths: Vec<usize> = titles
        .iter()
        .enumerate()
        .map(|(place, title)| {
            let cells = rows
                .iter()
                .filter_map(|(_, cells, _)| cells.get(place))
                .map(|cell| width(cell));
            cells.chain([width(title)]).max().unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    let mut line = |name: &str, cells: &[String], remark: &str| {
        let mut line = format!("{name}{}", " ".repeat(first - width(name)));
        for (cell, room) in cells.iter().zip(&widths) {
            line.push_str(&format!("  {}{cell}", " ".repeat(room - width(cell))));
        }
        if !remark.is_empty() {
            line.push_str(&format!("   {remark}"));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    };
    if titles.iter().any(|title| !title.is_empty()) {
        line(corner, titles, "");
    }
    for (name, cells, remark) in rows {
        line(name, cells, remark);
    }
    text
}

/// The first request and its answer, as they travelled; with its body from verbosity 4 on.
#[must_use]
pub fn first_exchange(measured: &Measured, verbosity: u8) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut out = format!("INFO: the request\n---\n{}\n---\n", text(&measured.request).trim_end());
    if let Some(first) = &measured.first {
        out.push_str(&format!("LOG: header received:\n{}\n", text(&first.head)));
        if verbosity >= 4 {
            out.push_str(&text(&first.body));
            out.push('\n');
        }
        out.push_str(&format!("LOG: Response code = {}\n", first.status));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_each_other() {
        let row = |name: &str, cells: [&str; 2], remark: &str| {
            (name.to_owned(), cells.map(str::to_owned).to_vec(), remark.to_owned())
        };
        let rows = [
            row("requests/s", ["5.10", "12,345"], "no difference shown (0.99–1.01×)"),
            row("time", ["4.2 µs", "1.95 s"], ""),
        ];
        let expected = "                 A  sendfile\nrequests/s    5.10    12,345   no difference shown (0.99–1.01×)\ntime        4.2 µs    1.95 s\n";
        assert_eq!(layout(&["A".to_owned(), "sendfile".to_owned()], &rows), expected);
    }

    #[test]
    fn the_first_line_names_the_load() {
        let load = RunLoad {
            requests: Some(100),
            rounds: 5,
            ..RunLoad::default()
        };
        assert_eq!(amount(&load, RunKind::Comparison), "5 rounds × 200 requests");
        let timed = RunLoad {
            slice_s: Some(3.0),
            rounds: 1,
            ..RunLoad::default()
        };
        assert_eq!(amount(&timed, RunKind::Single), "3 s");
        let whichever_ends_first = RunLoad {
            requests: Some(50_000),
            ..timed
        };
        assert_eq!(amount(&whichever_ends_first, RunKind::Single), "50,000 requests or 3 s");
        assert_eq!(
            amount(&whichever_ends_first, RunKind::Comparison),
            "100,000 requests or 2 × 3 s"
        );
    }
}
