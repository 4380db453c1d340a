//! Files a run leaves: JSON, percentiles as CSV, lines for gnuplot, HdrHistogram logs.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use haulier_bench::campaign::Measured;
use haulier_bench::result::Kind;
use haulier_bench::sample::{RequestTimes, Tally};

use super::default_json;
use crate::cli::bench::BenchArgs;
use haulier_bench::report::{self, Report};

/// Writes what was asked for; gives what each file is and its name.
///
/// # Errors
/// The file that cannot be written, in words.
pub(super) fn write(measured: &Measured, arguments: &BenchArgs) -> Result<Vec<(&'static str, PathBuf)>, String> {
    let mut written = Vec::new();
    let run = &measured.run;
    let is_comparing = !arguments.ab && run.kind != Kind::Single;
    let json = arguments
        .json
        .clone()
        .or_else(|| is_comparing.then(|| default_json(&run.started)));
    if let Some(path) = json {
        let text = serde_json::to_string_pretty(run).map_err(|error| error.to_string())?;
        save("data", &path, &format!("{text}\n"), &mut written)?;
    }
    let mut reports = arguments.output.clone();
    if is_comparing && reports.is_empty() && arguments.json.is_none() {
        reports.push(default_json(&run.started).with_extension("html"));
    }
    if !reports.is_empty() {
        let document = Report::of_run(run.clone());
        for path in reports {
            report::write(&document, &path).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
            written.push(("report", path));
        }
    }
    if let Some(path) = &arguments.hdr {
        save("histograms", path, &hdr_log(measured), &mut written)?;
    }
    let first = &measured.tallies[0];
    if let Some(path) = &arguments.csv {
        save("percentiles", path, &csv(first), &mut written)?;
    }
    if let Some(path) = &arguments.gnuplot {
        let mut times: Vec<RequestTimes> = measured.tallies.iter().flat_map(|tally| tally.times.clone()).collect();
        save("requests", path, &gnuplot(&mut times), &mut written)?;
    }
    Ok(written)
}

fn save(what: &'static str, path: &Path, text: &str, written: &mut Vec<(&'static str, PathBuf)>) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    written.push((what, path.to_owned()));
    Ok(())
}

/// As ab writes it: the shortest time at 0, then every percent.
fn csv(tally: &Tally) -> String {
    let mut text = "Percentage served,Time in ms\n".to_owned();
    for percent in 0..=100u32 {
        let time = if percent == 0 {
            tally.latency.min()
        } else {
            tally.latency.percentile(f64::from(percent))
        };
        let _ = writeln!(text, "{percent},{:.3}", time as f64 / 1e3);
    }
    text
}

/// As ab writes it: a line a request, the shortest first; times in whole ms.
fn gnuplot(times: &mut [RequestTimes]) -> String {
    times.sort_by_key(|one| one.total);
    let mut text = "starttime\tseconds\tctime\tdtime\tttime\twait\n".to_owned();
    let ms = |microseconds: u64| (microseconds + 500) / 1000;
    for one in times {
        let seconds = one.started / 1_000_000;
        let processing = one.total.saturating_sub(one.connect);
        let _ = writeln!(
            text,
            "{}\t{seconds}\t{}\t{}\t{}\t{}",
            ctime(seconds),
            ms(one.connect),
            ms(processing),
            ms(one.total),
            ms(one.wait)
        );
    }
    text
}

/// `Sat Nov 21 17:00:57 2026`, UTC.
fn ctime(seconds: u64) -> String {
    let date = haulier_proto::date::format(seconds);
    let date = String::from_utf8_lossy(&date);
    // `Sat, 21 Nov 2026 17:00:57 GMT`
    let parts: Vec<&str> = date.split([' ', ',']).filter(|part| !part.is_empty()).collect();
    match parts.as_slice() {
        [weekday, day, month, year, time, _] => format!("{weekday} {month} {day} {time} {year}"),
        _ => date.into_owned(),
    }
}

/// One line a point in the format of HdrHistogram's log reader, values in µs; the longest in ms.
fn hdr_log(measured: &Measured) -> String {
    let run = &measured.run;
    let mut text = format!(
        "#[haulier bench, {}]\n#[Histogram log format version 1.3]\n#[values: microseconds]\n\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n",
        run.started
    );
    for (point, tally) in run.points.iter().zip(&measured.tallies) {
        let name: String = run.targets[point.target]
            .name
            .chars()
            .map(|letter| if ", \r\n\t".contains(letter) { '_' } else { letter })
            .collect();
        let start = point.slices.first().map_or(0.0, |slice| slice.start_s);
        let _ = writeln!(
            text,
            "Tag={name}:c{}{},{start:.3},{:.3},{:.3},{}",
            point.connections,
            point.rate.map_or_else(String::new, |rate| format!(":r{rate:.0}")),
            point.total.duration_s,
            tally.latency.max() as f64 / 1e3,
            tally.latency.encode()
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_ab() {
        let mut tally = Tally::default();
        for time in 1..=100 {
            tally.latency.record(time * 1_000_000);
        }
        let text = csv(&tally);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 102);
        assert_eq!((lines[0], lines[1]), ("Percentage served,Time in ms", "0,1.000"));
        assert!(lines[101].starts_with("100,100."), "{}", lines[101]);
    }

    #[test]
    fn requests_are_lines_for_gnuplot() {
        let mut times = [
            RequestTimes {
                started: 1_795_280_457_000_000,
                connect: 1_400,
                wait: 2_000,
                total: 9_600,
            },
            RequestTimes {
                started: 0,
                connect: 0,
                wait: 0,
                total: 100,
            },
        ];
        let text = gnuplot(&mut times);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "Thu Jan 01 00:00:00 1970\t0\t0\t0\t0\t0");
        assert_eq!(lines[2], "Sat Nov 21 17:00:57 2026\t1795280457\t1\t8\t10\t2");
    }
}
