//! Files of a run: JSON, reports, CSV, lines for gnuplot, HdrHistogram logs.

use std::fs;
use std::path::{Path, PathBuf};

use haulier_bench::campaign::Measured;
use haulier_bench::report::{self, Report, exports};
use haulier_bench::result::RunKind;
use haulier_bench::sample::RequestTimes;

use crate::cli::bench::BenchArgs;

/// Writes the wanted files; gives the kind and name of each.
///
/// # Errors
/// A message with the file that cannot be written.
pub(super) fn write(measured: &Measured, arguments: &BenchArgs) -> Result<Vec<(&'static str, PathBuf)>, String> {
    let mut written = Vec::new();
    let run = &measured.run;
    let is_comparing = !arguments.ab && run.kind != RunKind::Single;
    let default = default_name(&run.started);
    let json = arguments.json.clone().or_else(|| is_comparing.then(|| default.clone()));
    if let Some(path) = json {
        let text = serde_json::to_string_pretty(run).map_err(|error| error.to_string())?;
        save("data", &path, &format!("{text}\n"), &mut written)?;
    }
    let mut reports = arguments.output.clone();
    if is_comparing && reports.is_empty() && arguments.json.is_none() {
        reports.push(default.with_extension("html"));
    }
    if !reports.is_empty() {
        let document = Report::of_run(run.clone());
        for path in reports {
            report::write(&document, &path).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
            written.push(("report", path));
        }
    }
    if let Some(path) = &arguments.hdr {
        save("histograms", path, &exports::hdr_log(measured), &mut written)?;
    }
    if let Some(path) = &arguments.csv {
        save("percentiles", path, &exports::csv(&measured.tallies[0]), &mut written)?;
    }
    if let Some(path) = &arguments.gnuplot {
        let mut times: Vec<RequestTimes> = measured.tallies.iter().flat_map(|tally| tally.times.clone()).collect();
        save("requests", path, &exports::gnuplot(&mut times), &mut written)?;
    }
    Ok(written)
}

fn save(what: &'static str, path: &Path, text: &str, written: &mut Vec<(&'static str, PathBuf)>) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    written.push((what, path.to_owned()));
    Ok(())
}

/// Default name of the JSON file, unique for each run.
fn default_name(started: &str) -> PathBuf {
    let name: String = started.replace('T', "-").replace([':', 'Z'], "");
    PathBuf::from(format!("bench-{name}.json"))
}
