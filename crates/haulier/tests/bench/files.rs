//! Files of a run, and its exit codes.

use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::program::{Place, end};
use crate::scripted::{Does, Server, after, page};

#[test]
fn every_file_is_written_in_its_own_form() {
    let server = Server::start(|_| Does::Answer(page("x")));
    let place = Place::new();
    let ended = place.bench(&[
        "-n",
        "50",
        "-e",
        "p.csv",
        "-g",
        "g.tsv",
        "--hdr",
        "h.hlog",
        "--json",
        "r.json",
        &server.url("/"),
    ]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let read = |name: &str| fs::read_to_string(place.path(name)).expect(name);
    assert_eq!(read("p.csv").lines().count(), 102);
    let requests = read("g.tsv");
    assert_eq!(
        requests.lines().next(),
        Some("starttime\tseconds\tctime\tdtime\tttime\twait")
    );
    assert_eq!(requests.lines().count(), 51);
    let histogram = read("h.hlog");
    let line = histogram.lines().last().expect("a line");
    assert!(
        line.starts_with("Tag=http://127.0.0.1") && line.contains(",HISTFAAA"),
        "{line}"
    );
    let run: serde_json::Value = serde_json::from_str(&read("r.json")).expect("a document");
    assert_eq!(
        (run["schema"].as_u64(), run["kind"].as_str()),
        (Some(1), Some("single"))
    );
    assert_eq!(run["command"][1], "bench");
}

#[test]
fn a_missed_limit_has_its_own_exit_code() {
    let server = Server::start(|_| after(Duration::from_millis(20), "x"));
    let place = Place::new();
    assert_eq!(
        place.bench(&["-n", "10", "--max-p95", "1ms", &server.url("/")]).code,
        Some(3)
    );
    assert_eq!(
        place.bench(&["-n", "10", "--max-p95", "1m", &server.url("/")]).code,
        Some(0)
    );
}

#[test]
fn the_server_is_watched_by_its_process() {
    let server = Server::start(|_| Does::Answer(page("x")));
    let pid = std::process::id().to_string();
    let total = Place::new().total(&["-n", "3000", "-c", "4", "--pid", &pid, &server.url("/")]);
    let server = &total["server"];
    assert!(
        server["cpu_us_per_request"].as_f64().expect("watched") > 0.0,
        "{server}"
    );
    assert!(server["rss_bytes"].as_u64().expect("watched") > 1_000_000, "{server}");
    let gone = Place::new().bench(&["--pid", "4194305", "http://127.0.0.1:1/"]);
    assert!(gone.stderr.contains("there is no process"), "{}", gone.stderr);
}

#[test]
fn the_workers_of_php_are_watched_by_their_page() {
    let metrics = Server::start(|asked| {
        let seconds = asked.number as f64 * 0.5;
        Does::AnswerAndClose(page(&format!(
            "haulier_php_busy_seconds_total{{pool=\"php\"}} {seconds}\nhaulier_php_workers{{pool=\"php\",state=\"busy\"}} 3\n"
        )))
    });
    let server = Server::start(|_| after(Duration::from_millis(20), "x"));
    let watched = ["-c", "2", "--metrics", &metrics.url("/")];
    let total = Place::new().total(&[&watched[..], &["-n", "20", &server.url("/")]].concat());
    assert_eq!(total["server"]["peak_busy_workers"], 3);
    assert!(
        total["server"]["worker_us_per_request"].as_f64().expect("measured") >= 25_000.0,
        "{total}"
    );
}

#[test]
fn workers_without_a_sample_are_not_reported_as_zero() {
    // Busy in all, but never when somebody looks.
    let metrics = Server::start(|asked| {
        let seconds = asked.number as f64 * 0.5;
        Does::AnswerAndClose(page(&format!(
            "haulier_php_busy_seconds_total{{pool=\"php\"}} {seconds}\nhaulier_php_workers{{pool=\"php\",state=\"busy\"}} 0\n\
             haulier_build_info{{version=\"9.8.7\"}} 1\n"
        )))
    });
    let server = Server::start(|_| after(Duration::from_millis(20), "x"));
    let place = Place::new();
    let arguments = ["-n", "4", "-c", "2", "--metrics", &metrics.url("/"), &server.url("/")];
    let ended = place.bench(&[&arguments[..], &["-o", "page.md", "-o", "run.json"]].concat());
    let row = ended.stdout.lines().find(|line| line.starts_with("peak PHP workers"));
    assert!(row.is_some_and(|row| row.ends_with("not sampled")), "{}", ended.stdout);
    let markdown = fs::read_to_string(place.path("page.md")).expect("written");
    assert!(
        markdown.contains("not sampled") && markdown.contains("9.8.7"),
        "{markdown}"
    );
}

#[test]
fn an_interrupted_run_reports_its_result_so_far() {
    let server = Server::start(|_| after(Duration::from_millis(1), "x"));
    let place = Place::new();
    let child = place
        .command(&["--duration", "60s", "--warmup", "0", "-c", "2", &server.url("/")])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("the binary runs");
    while server.requests().len() < 20 {
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("requests/s"), "{text}");
}

/// With few descriptors, the load is spread over processes with as many each.
#[test]
fn more_connections_than_descriptors_are_spread_over_processes() {
    let server = Server::start(|_| Does::Answer(page("x")));
    let place = Place::new();
    let program = env!("CARGO_BIN_EXE_haulier");
    let url = server.url("/");
    let json = place.path("r.json").display().to_string();
    let script = format!("ulimit -n 128; exec '{program}' bench -n 300 -c 150 --json '{json}' '{url}'");
    let ended = end(Command::new("sh").args(["-c", &script]));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let run: serde_json::Value = serde_json::from_str(&fs::read_to_string(json).expect("written")).expect("a document");
    let total = &run["points"][0]["total"];
    assert_eq!(
        (total["requests"].as_u64(), run["load"]["processes"].as_u64()),
        (Some(300), Some(3))
    );
    assert_eq!(total["connections_opened"], 150);
}
