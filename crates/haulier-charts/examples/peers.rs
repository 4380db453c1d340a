//! Draws the chart of README.md from the results of `make bench`: CPU time of a request, for haulier and its peers.
//!
//! `cargo run -p haulier-charts --example peers -- bench/results.json docs/images` writes one file for light and
//! one for dark.

use std::error::Error;
use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

use haulier_charts::{Axis, Chart, Ink, Layer, STYLE};
use serde_json::Value;

/// The workloads from top to bottom, and their names in the chart.
const WORKLOADS: [(&str, &str); 9] = [
    ("hello", "10 bytes, new connections"),
    ("keepalive", "10 bytes, kept connections"),
    ("10k", "10 KB"),
    ("500k", "500 KB"),
    ("100m", "100 MiB"),
    ("h2-10k", "10 KB, HTTP/2"),
    ("tls-10k", "10 KB, TLS"),
    ("hello.php", "PHP, one line"),
    ("symfony", "PHP, a Symfony page"),
];

/// The peers: their names in the chart, their names in the results, and their colours.
const PEERS: [(&str, &[&str], Ink); 5] = [
    ("nginx", &["nginx", "nginx-h2"], Ink::Two),
    ("lighttpd", &["lighttpd"], Ink::Three),
    ("h2o", &["h2o"], Ink::Four),
    ("Apache", &["apache", "apache-php"], Ink::Five),
    ("Caddy", &["caddy"], Ink::Six),
];

const WIDTH: u32 = 860;
const LEFT: u32 = 190;
const TOP: u32 = 64;
const ROW: u32 = 32;
const DARK: &str = "@media(prefers-color-scheme:dark){";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [results, directory] = arguments.as_slice() else {
        return Err("usage: peers RESULTS.json DIRECTORY".into());
    };
    let results: Value = serde_json::from_str(&fs::read_to_string(results)?)?;
    for is_dark in [false, true] {
        let name = if is_dark { "peers-dark.svg" } else { "peers-light.svg" };
        fs::write(Path::new(directory).join(name), picture(&results, is_dark))?;
    }
    Ok(())
}

/// The whole SVG document, in one of the two colour schemes.
fn picture(results: &Value, is_dark: bool) -> String {
    let plot = ROW * WORKLOADS.len() as u32;
    let height = TOP + plot + 84;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\">\
         <style>{}text{{font-family:system-ui,sans-serif;font-size:13px;fill:var(--soft)}}.head{{fill:var(--ink);font-weight:600;\
         font-size:15px}}.chart text{{font-size:13px}}.dot{{r:5.5px}}</style>\
         <text class=\"head\" x=\"8\" y=\"20\">CPU time of a request, as a multiple of haulier’s</text>",
        style(is_dark)
    );
    write_legend(&mut out);
    // A viewport of its own, since a chart takes all the width it gets.
    let width = WIDTH - LEFT - 24;
    let chart = chart(results, plot);
    let _ = write!(
        out,
        "<g transform=\"translate({LEFT},{TOP})\"><svg width=\"{width}\" overflow=\"visible\">{chart}</svg></g>"
    );
    for (line, below) in source(results).into_iter().zip([32, 12]) {
        let _ = write!(out, "<text x=\"8\" y=\"{}\">{line}</text>", height - below);
    }
    out + "</svg>\n"
}

/// The style sheet of all charts, bound to one scheme: README.md chooses the file by the reader's scheme.
fn style(is_dark: bool) -> String {
    let lines = STYLE.lines().filter_map(|line| match line.strip_prefix(DARK) {
        Some(rules) => is_dark.then(|| rules.trim_end_matches('}').to_owned() + "}"),
        None => Some(line.to_owned()),
    });
    lines.collect()
}

fn write_legend(out: &mut String) {
    out.push_str("<path class=\"line k1\" d=\"M14 34v14\"/><text x=\"24\" y=\"45\">haulier</text>");
    for (x, (name, _, ink)) in (0..).map(|number| 92 + 84 * number).zip(PEERS) {
        let (class, text) = (ink.class(), x + 16);
        let _ = write!(
            out,
            "<circle class=\"dot {class}\" cx=\"{}\" cy=\"41\" r=\"5.5\"/><text x=\"{text}\" y=\"45\">{name}</text>",
            x + 6
        );
    }
}

fn chart(results: &Value, height: u32) -> String {
    let last = WORKLOADS.len() as f64 - 1.0;
    let y_of = |row: usize| last - row as f64;
    let rows = WORKLOADS.iter().enumerate();
    let names = rows.map(|(row, (_, name))| (y_of(row), (*name).to_owned()));
    let y = Axis::linear(-0.5, last + 0.5, 1, |_| String::new()).labelled(names);
    let x = Axis::log_between(0.8, 16.0, |factor| format!("{factor}×"));
    let mut chart = Chart::new("peers", "CPU time of a request", x, y)
        .description(
            "One row a workload: the CPU time that each server needs for a request, as a multiple of haulier’s.",
        )
        .height(height)
        .with(Layer::marks(Ink::One, vec![(1.0, "haulier".to_owned())]));
    for (peer, names, ink) in PEERS {
        for (row, (workload, _)) in WORKLOADS.iter().enumerate() {
            let ratio = names.iter().find_map(|name| ratio(part(results, workload), name));
            let dot = ratio.map(|ratio| Layer::dots(ink, vec![(ratio, y_of(row))]).tip(format!("{peer}: {ratio:.2}×")));
            chart = chart.with_all(dot);
        }
    }
    chart.render()
}

/// The part of a workload.
fn part<'r>(results: &'r Value, workload: &str) -> &'r Value {
    let parts = results["pages"][0]["parts"].as_array().into_iter().flatten();
    let found = parts.into_iter().find(|part| part["title"] == workload);
    found.unwrap_or(&Value::Null)
}

/// A server's CPU time for a request as a multiple of haulier's: the inverse of the figure in docs/benchmarks.md.
fn ratio(part: &Value, server: &str) -> Option<f64> {
    match &part["run"] {
        Value::Null => Some(1.0 / of_table(&part["outcome"]["tables"][0], server)?),
        run => of_run(run, server),
    }
}

/// Of a run that `haulier bench` measured: the other's figure divided by that of the first target.
fn of_run(run: &Value, server: &str) -> Option<f64> {
    let place = run["targets"]
        .as_array()?
        .iter()
        .position(|target| target["name"] == server)?;
    let compared = run["comparisons"].as_array()?;
    let found = compared
        .iter()
        .find(|one| one["metric"] == "server_cpu" && one["other"] == place)?;
    found["ratio"].as_f64()
}

/// Of a table that was measured by other generators, in 2026.
fn of_table(table: &Value, server: &str) -> Option<f64> {
    let columns = table["columns"].as_array()?;
    let column = columns
        .iter()
        .position(|column| column["name"] == "CPU/request, haulier : it")?;
    let row = table["rows"].as_array()?.iter().find(|row| row["name"] == server)?;
    row["cells"][column].as_f64()
}

/// The lines below the chart: how to read it, and the date and machine of the runs that it shows.
fn source(results: &Value) -> [String; 2] {
    let shown = WORKLOADS.iter().map(|(workload, _)| part(results, workload));
    let mut dates: Vec<&str> = shown.filter_map(|part| part["measured"].as_str()?.get(..10)).collect();
    dates.sort_unstable();
    let dates = match (dates.first(), dates.last()) {
        (Some(first), Some(last)) if first != last => format!("{first} and {last}"),
        (Some(first), _) => (*first).to_owned(),
        _ => String::new(),
    };
    let machine = machine(&results["machine"]);
    [
        "Further right needs more CPU. Logarithmic scale. All figures: docs/benchmarks.md".to_owned(),
        format!("Measured {dates}: {machine}, one core for the server"),
    ]
}

/// The processor, memory and kernel.
fn machine(known: &Value) -> String {
    let text = |name: &str| known[name].as_str().unwrap_or_default();
    let memory = known["memory_bytes"].as_f64().unwrap_or_default() / f64::from(1 << 30);
    let cores = &known["cores"];
    format!("{}, {cores} cores, {memory:.0} GiB, {}", text("cpu"), text("kernel"))
}
