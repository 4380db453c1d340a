//! `haulier bench report`, from stored runs.

use std::fs;
use std::time::Duration;

use serde_json::Value;

use crate::program::{Ended, Place};
use crate::scripted::{Does, Server, after, page};

const COMPARED: [&str; 8] = ["-n", "30", "-c", "3", "--rounds", "3", "--warmup", "10ms"];

/// Stores a comparison of two servers as `name.json`.
fn store(place: &Place, name: &str) -> Value {
    let quick = Server::start(|_| Does::Answer(page("the same page")));
    let slow = Server::start(|_| after(Duration::from_millis(4), "the same page"));
    let targets = [format!("quick={}", quick.url("/")), format!("slow={}", slow.url("/"))];
    let json = place.path(&format!("{name}.json")).display().to_string();
    let ended = place.bench(&[&COMPARED[..], &[&targets[0], &targets[1], "--json", &json]].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    serde_json::from_str(&fs::read_to_string(json).expect("stored")).expect("a document")
}

#[track_caller]
fn report(place: &Place, arguments: &[&str]) -> Ended {
    let ended = place.bench(&[&["report"], arguments].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended
}

#[test]
fn a_stored_run_becomes_a_page_and_the_page_is_a_stored_run() {
    let place = Place::new();
    let run = store(&place, "run");
    report(&place, &["run.json", "-o", "report.html", "-o", "report.md"]);
    let page = fs::read_to_string(place.path("report.html")).expect("written");
    assert!(
        page.starts_with("<!DOCTYPE html>") && page.len() < 150_000,
        "{} bytes",
        page.len()
    );
    assert!(page.contains("quick") && page.contains("Time by percentile"));
    let markdown = fs::read_to_string(place.path("report.md")).expect("written");
    assert!(markdown.contains("| requests/s"), "{markdown}");

    report(&place, &["report.html", "-o", "again.json"]);
    let again: Value =
        serde_json::from_str(&fs::read_to_string(place.path("again.json")).expect("written")).expect("JSON");
    assert_eq!(again, run);
}

#[test]
fn without_an_output_file_the_report_is_printed() {
    let place = Place::new();
    store(&place, "run");
    let text = report(&place, &["run.json"]).stdout;
    for part in [
        "slow is",
        "requests/s",
        "█",
        "slice by slice",
        "How often each time occurred",
    ] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
}

/// The cells of a table's row.
fn cells<'t>(text: &'t str, name: &str, between: &str) -> Vec<&'t str> {
    let row = text
        .lines()
        .map(|line| line.trim_matches(['|', ' ', '*']))
        .find(|line| line.starts_with(name));
    let row = row.unwrap_or_else(|| panic!("no row {name} in\n{text}"));
    let cells = row[name.len()..]
        .split(between)
        .map(|cell| cell.trim_matches(['*', ' ']));
    cells.filter(|cell| !cell.is_empty()).collect()
}

#[test]
fn terminal_and_report_have_the_same_figures() {
    let place = Place::new();
    // The first slice is slower than the others: a median over slices and all of them together differ.
    let server = || Server::start(|asked| after(Duration::from_millis(if asked.number < 20 { 15 } else { 2 }), "x"));
    let (first, second) = (server(), server());
    let targets = [format!("A={}", first.url("/")), format!("B={}", second.url("/"))];
    let ended = place.bench(&[&COMPARED[..], &[&targets[0], &targets[1], "-o", "page.md"]].concat());
    let markdown = fs::read_to_string(place.path("page.md")).expect("written");
    for name in [
        "requests/s",
        "time, median",
        "time, p95",
        "time, p99",
        "first byte, median",
        "failed",
    ] {
        let (terminal, report) = (cells(&ended.stdout, name, "  "), cells(&markdown, name, "|"));
        assert!(
            terminal.len() >= 2 && report.len() >= 2,
            "{name}: {terminal:?} {report:?}"
        );
        assert_eq!(terminal[..2], report[..2], "{name}");
    }
    for text in [&ended.stdout, &markdown] {
        assert!(text.contains("cover all slices together"), "{text}");
    }
}

#[test]
fn requests_over_time_are_per_second_in_short_slices() {
    let run = store(&Place::new(), "run");
    for point in run["points"].as_array().expect("points") {
        let (timeline, slices) = (&point["total"]["timeline"], point["slices"].as_array().expect("slices"));
        for (second, slice) in timeline.as_array().expect("a timeline").iter().zip(slices) {
            let rate = second["requests"].as_f64().expect("counted") / second["length_s"].as_f64().expect("known");
            let expected = slice["requests_per_second"].as_f64().expect("a rate");
            assert!(
                (rate / expected - 1.0).abs() < 0.1,
                "{rate} in the timeline, {expected} in the slice"
            );
        }
    }
}

#[test]
fn two_runs_are_merged_and_the_page_warns_that_they_were_not_interleaved() {
    let place = Place::new();
    store(&place, "monday");
    store(&place, "tuesday");
    report(
        &place,
        &["monday.json", "tuesday.json", "-o", "both.json", "-o", "both.html"],
    );
    let both: Value =
        serde_json::from_str(&fs::read_to_string(place.path("both.json")).expect("written")).expect("JSON");
    let names: Vec<&str> = both["targets"]
        .as_array()
        .expect("targets")
        .iter()
        .filter_map(|target| target["name"].as_str())
        .collect();
    assert_eq!(
        names,
        ["quick, monday", "slow, monday", "quick, tuesday", "slow, tuesday"]
    );
    assert_eq!(both["warnings"][0]["kind"], "not_interleaved");
    let between = both["comparisons"].as_array().expect("comparisons").iter();
    let between = between.filter(|found| found["base"] == 0 && found["other"] == 2);
    assert!(between.count() >= 4, "{}", both["comparisons"]);
    let page = fs::read_to_string(place.path("both.html")).expect("written");
    assert!(
        page.contains("were not interleaved"),
        "the page says that they were not interleaved"
    );
}

#[test]
fn a_comparison_writes_its_report_by_default() {
    let place = Place::new();
    let server = Server::start(|_| Does::Answer(page("x")));
    let targets = [format!("A={}", server.url("/a")), format!("B={}", server.url("/b"))];
    let ended = place.bench(&[&COMPARED[..], &[&targets[0], &targets[1]]].concat());
    assert!(ended.stderr.contains("report: bench-20"), "{}", ended.stderr);
    let ended = place.bench(&[&COMPARED[..], &[&targets[0], &targets[1], "-o", "mine.html"]].concat());
    assert!(ended.stderr.contains("report: mine.html"), "{}", ended.stderr);
    assert!(place.path("mine.html").exists());
}

#[test]
fn a_file_without_a_run_is_refused_by_name() {
    let place = Place::new();
    place.write("other.json", "{\"a\": 1}");
    place.write("other.html", "<p>hello</p>");
    place.write("newer.json", "{\"schema\": 99}");
    for (file, why) in [
        ("other.json", "other.json holds no run of haulier bench"),
        ("other.html", "other.html is HTML without the data of a report"),
        ("newer.json", "newer.json was written by a newer haulier"),
        ("nowhere.json", "cannot read nowhere.json"),
    ] {
        let ended = place.bench(&["report", file]);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stderr.contains(why), "{}", ended.stderr);
    }
    assert_eq!(place.bench(&["report"]).code, Some(2));
}
