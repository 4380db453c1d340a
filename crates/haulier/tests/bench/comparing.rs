//! Several targets: their order, verdicts, and the same work.

use std::time::Duration;

use serde_json::Value;

use crate::program::Place;
use crate::scripted::{Does, Server, after, page, with_status};

fn waiting(milliseconds: u64) -> Server {
    Server::start(move |_| after(Duration::from_millis(milliseconds), "x"))
}

fn compare(base: &Server, other: &Server, more: &[&str]) -> Value {
    let targets = [format!("A={}", base.url("/")), format!("B={}", other.url("/"))];
    let targets = [targets[0].as_str(), &targets[1]];
    Place::new().measure(&[more, &targets].concat())
}

const SHORT: [&str; 8] = ["-n", "48", "-c", "4", "--rounds", "5", "--warmup", "50ms"];

/// Servers of known speed: equal ones, and one that is a tenth slower. Needs a quiet machine:
/// `cargo test --release --package haulier --test bench -- --ignored verdicts`.
#[test]
#[ignore = "takes minutes on a quiet machine"]
fn verdicts_are_right_in_nine_of_ten_runs() {
    const RUNS: usize = 100;
    let answering_in = |delay: Duration| Server::start(move |_| after(delay, "x"));
    let fast = Duration::from_millis(5);
    let (base, same, slower) = (answering_in(fast), answering_in(fast), answering_in(fast.div_f64(0.9)));
    let flags = ["-q", "-n", "200", "-c", "4", "--rounds", "5", "--warmup", "100ms"];
    let count = |other: &Server, verdict: &str| {
        let is_right = |_: &usize| compare(&base, other, &flags)["comparisons"][0]["verdict"] == verdict;
        (0..RUNS).filter(is_right).count()
    };
    let (equal, found) = (count(&same, "no_difference"), count(&slower, "worse"));
    println!("no difference between equal servers in {equal} runs, a slower one found in {found}, of {RUNS}");
    assert!(equal * 100 >= RUNS * 95 && found * 100 >= RUNS * 90);
}

/// A few runs, with a difference that a loaded machine does not hide.
#[test]
fn equal_servers_show_no_difference_and_a_slower_one_does() {
    let (mut equal, mut slower) = (0, 0);
    for _ in 0..4 {
        let same = compare(&waiting(4), &waiting(4), &SHORT);
        equal += usize::from(same["comparisons"][0]["verdict"] == "no_difference");
        let worse = compare(&waiting(2), &waiting(60), &SHORT);
        let found = &worse["comparisons"][0];
        slower += usize::from(found["verdict"] == "worse");
    }
    assert!(equal >= 3, "{equal} of 4 equal pairs were called equal");
    assert!(slower >= 3, "{slower} of 4 slower servers were found");
}

#[test]
fn the_text_names_the_slower_target_with_an_interval() {
    let (fast, slow) = (waiting(2), waiting(20));
    let ended = Place::new().bench(
        &[
            &SHORT[..],
            &[&format!("fast={}", fast.url("/")), &format!("slow={}", slow.url("/"))],
        ]
        .concat(),
    );
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let text = ended.stdout;
    assert!(
        text.starts_with("5 rounds × 48 requests, 4 connections, HTTP/1.1\n"),
        "{text}"
    );
    assert!(
        text.contains("\nslow is ") && text.contains("× slower than fast (95 % sure: "),
        "{text}"
    );
    assert!(text.contains("same body (sha256 "), "{text}");
    assert!(ended.stderr.contains("data: bench-20"), "{}", ended.stderr);
}

#[test]
fn slices_are_in_mirrored_order_and_the_seed_repeats_it() {
    let (base, other) = (waiting(1), waiting(1));
    let order = |seed: &str| {
        let run = compare(&base, &other, &[&SHORT[..], &["--seed", seed]].concat());
        assert_eq!(run["seed"].to_string(), seed);
        let mut slices: Vec<(u64, u64)> = Vec::new();
        for point in run["points"].as_array().expect("points") {
            for slice in point["slices"].as_array().expect("slices") {
                slices.push((
                    slice["order"].as_u64().expect("a place"),
                    point["target"].as_u64().expect("a target"),
                ));
                assert_eq!(slice["requests"], 24, "a round has two slices of every target");
            }
        }
        slices.sort_unstable();
        slices.into_iter().map(|(_, target)| target).collect::<Vec<u64>>()
    };
    let first = order("11");
    assert_eq!(first.len(), 20);
    for block in first.chunks(4) {
        assert!(block == [0, 1, 1, 0] || block == [1, 0, 0, 1], "{block:?}");
    }
    assert_eq!(first, order("11"));
}

#[test]
fn different_work_is_the_first_thing_reported() {
    let page_of = |body: &'static str| Server::start(move |_| Does::Answer(page(body)));
    let run = compare(&page_of("one"), &page_of("other"), &SHORT);
    assert!(
        run["verdicts"][0]
            .as_str()
            .expect("a sentence")
            .starts_with("not the same work (bodies of 3 and 5 bytes)")
    );
    let elsewhere = Server::start(|_| Does::Answer(with_status("302 Found", "Location: /x\r\n", "")));
    let run = compare(&page_of("one"), &elsewhere, &SHORT);
    assert_eq!(run["comparisons"][0]["verdict"], "not_comparable");
    assert!(
        run["warnings"]
            .to_string()
            .contains("B answers 302 — you are measuring redirects")
    );
}

#[test]
fn a_target_against_itself_gives_the_noise_floor() {
    let (base, other) = (waiting(4), waiting(4));
    let run = compare(&base, &other, &[&SHORT[..], &["--aa"]].concat());
    assert_eq!(run["noise"]["target"], 0);
    assert!(run["noise"]["floor"]["requests_per_second"].as_f64().expect("a floor") >= 1.0);
    assert_eq!(
        run["points"].as_array().map(Vec::len),
        Some(2),
        "the control is no target of its own"
    );
    assert!(run["verdicts"].to_string().contains("noise floor: A against itself"));
    let alone = Place::new().measure(&[&SHORT[..], &["--aa", &base.url("/")]].concat());
    assert_eq!(
        (alone["kind"].as_str(), alone["points"].as_array().map(Vec::len)),
        (Some("comparison"), Some(1))
    );
}

#[test]
fn a_list_of_connections_makes_a_table_with_a_line_for_each() {
    let server = waiting(1);
    let place = Place::new();
    let ended = place.bench(&[
        "-n",
        "20",
        "-c",
        "1,3,9",
        "--rounds",
        "2",
        "--warmup",
        "0",
        &server.url("/"),
    ]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let lines: Vec<&str> = ended
        .stdout
        .lines()
        .skip_while(|line| !line.starts_with("connections"))
        .collect();
    assert!(
        lines[0].contains("requests/s") && lines[0].contains("failed"),
        "{lines:?}"
    );
    for (line, connections) in lines[1..4].iter().zip(["1 ", "3 ", "9 "]) {
        assert!(line.starts_with(connections) && line.ends_with(" 0"), "{line}");
    }
}

#[test]
fn a_ladder_has_tenths_of_the_slower_targets_rate() {
    let (base, other) = (waiting(5), waiting(10));
    let run = compare(
        &base,
        &other,
        &["--ladder", "-c", "4", "--slice", "300ms", "--warmup", "0"],
    );
    let rates: Vec<f64> = run["points"]
        .as_array()
        .expect("points")
        .iter()
        .filter(|point| point["target"] == 0)
        .map(|point| point["rate"].as_f64().expect("a rate"))
        .collect();
    assert_eq!(rates.len(), 9);
    assert!((rates[8] / rates[0] - 9.0).abs() < 0.01, "{rates:?}");
    assert!(
        rates[8] < 400.0,
        "the slower one cannot do more than 400 a second: {rates:?}"
    );
}
