//! ab's mode, compared with the real ab on the same server: both texts are read as scripts read them.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::program::{Ended, Place, end};
use crate::scripted::{Does, Server, page, with_status};

const AB: &str = "/usr/bin/ab";

fn has_ab(test: &str) -> bool {
    let there = Path::new(AB).exists();
    if !there {
        println!("SKIPPED {test}: needs ab (apache2-utils)");
    }
    there
}

/// Runs haulier by the name of ab.
fn ours(place: &Place, arguments: &[&str]) -> Ended {
    let name = place.path("ab");
    if !name.exists() {
        symlink(env!("CARGO_BIN_EXE_haulier"), &name).expect("a link");
    }
    end(Command::new(name).args(arguments))
}

/// Both outputs from the first fact on.
#[track_caller]
fn both(arguments: &[&str], script: fn(usize) -> Vec<u8>) -> (Vec<String>, Vec<String>) {
    let place = Place::new();
    let run = |is_ours: bool| {
        let server = Server::start(move |asked| Does::Answer(script(asked.number)));
        let url = server.url("/page?x=1");
        let arguments = [arguments, &[url.as_str()]].concat();
        let ended = if is_ours {
            ours(&place, &arguments)
        } else {
            end(Command::new(AB).args(&arguments))
        };
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let text = ended.stdout;
        let begin = text.find("Server Software:").unwrap_or_else(|| panic!("{text}"));
        let lines = text[begin..]
            .lines()
            .map(|line| line.replace(&server.address.port().to_string(), "PORT"));
        lines.map(|line| line.trim_end().to_owned()).collect::<Vec<_>>()
    };
    (run(false), run(true))
}

/// A line without its figures, if they depend on the clock.
fn shape(line: &str) -> String {
    let timed = [
        "Time taken",
        "Requests per second",
        "Time per request",
        "Transfer rate",
        "Connect:",
        "Processing:",
        "Waiting:",
        "Total:",
    ];
    let is_percentile = line
        .trim_start()
        .split_once('%')
        .is_some_and(|(number, _)| number.parse::<u32>().is_ok());
    let is_rate = line.contains(" kb/s ");
    if !is_percentile && !is_rate && !timed.iter().any(|name| line.starts_with(name)) {
        return line.to_owned();
    }
    let words = line.split_whitespace().map(|word| match word.parse::<f64>() {
        Ok(_) => "#",
        Err(_) => word,
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Lines without ab's doubts, which depend on the figures.
fn shapes(lines: &[String]) -> Vec<String> {
    let is_doubt = |line: &&String| {
        line.starts_with("WARNING: ")
            || line.starts_with("ERROR: ")
            || line.starts_with("        These")
            || line.starts_with("       deviation")
    };
    lines
        .iter()
        .filter(|line| !is_doubt(line))
        .map(|line| shape(line))
        .collect()
}

#[track_caller]
fn assert_alike(arguments: &[&str], script: fn(usize) -> Vec<u8>) {
    let (theirs, ours) = both(arguments, script);
    assert_eq!(shapes(&theirs), shapes(&ours), "with {arguments:?}");
}

fn hello(_: usize) -> Vec<u8> {
    page("hello, world")
}

#[test]
fn a_run_with_kept_connections_reads_like_abs() {
    if has_ab("a_run_with_kept_connections_reads_like_abs") {
        assert_alike(&["-k", "-n", "40", "-c", "4"], hello);
    }
}

#[test]
fn a_run_with_new_connections_reads_like_abs() {
    if has_ab("a_run_with_new_connections_reads_like_abs") {
        assert_alike(&["-n", "20", "-c", "2"], hello);
        assert_alike(&["-n", "1"], hello);
    }
}

#[test]
fn failed_lengths_and_statuses_are_counted_as_ab_counts_them() {
    if has_ab("failed_lengths_and_statuses_are_counted_as_ab_counts_them") {
        let varying = |number: usize| page(&"x".repeat(if number % 4 == 3 { 9 } else { 5 }));
        assert_alike(&["-k", "-n", "40", "-c", "1"], varying);
        assert_alike(&["-k", "-l", "-n", "40", "-c", "1"], varying);
        let missing = |_| with_status("404 Not Found", "", "nothing here");
        assert_alike(&["-n", "10"], missing);
    }
}

#[test]
fn every_form_of_its_text_is_abs() {
    if has_ab("every_form_of_its_text_is_abs") {
        assert_alike(&["-S", "-n", "10"], hello);
        assert_alike(&["-d", "-n", "10"], hello);
        assert_alike(&["-q", "-k", "-n", "300", "-c", "3"], hello);
        assert_alike(&["-i", "-k", "-n", "10"], |_| {
            b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 12\r\n\r\n".to_vec()
        });
    }
}

#[test]
fn a_posted_file_reads_like_abs_and_arrives_whole() {
    if has_ab("a_posted_file_reads_like_abs_and_arrives_whole") {
        let place = Place::new();
        let file = place.write("form", "a=1&b=2");
        assert_alike(
            &["-p", &file, "-T", "application/x-www-form-urlencoded", "-n", "6"],
            |_| page("taken"),
        );
        let server = Server::start(|_| Does::Answer(page("taken")));
        let ended = ours(&place, &["-p", &file, "-n", "3", &server.url("/form")]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let requests = server.requests();
        assert_eq!(requests.len(), 3, "not one more than asked for");
        for asked in requests {
            assert_eq!(
                (asked.line.as_str(), asked.body.as_slice()),
                ("POST /form HTTP/1.0", &b"a=1&b=2"[..])
            );
            assert!(asked.head.contains("content-type: text/plain\r\n"), "{}", asked.head);
        }
    }
}

#[test]
fn the_figures_that_scripts_read_are_consistent() {
    let place = Place::new();
    let server = Server::start(|_| Does::Answer(page("hello")));
    let ended = ours(&place, &["-k", "-n", "200", "-c", "5", &server.url("/")]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let value = |name: &str| -> f64 {
        let line = ended.stdout.lines().find(|line| line.starts_with(name));
        let line = line.unwrap_or_else(|| panic!("no {name} in {}", ended.stdout));
        let words: Vec<&str> = line[name.len()..].split_whitespace().collect();
        words[0].parse().unwrap_or_else(|_| panic!("{line}"))
    };
    assert_eq!(value("Complete requests:"), 200.0);
    assert_eq!(value("Keep-Alive requests:"), 200.0);
    assert_eq!(value("HTML transferred:"), 1000.0);
    let (rate, mean) = (value("Requests per second:"), value("Time per request:"));
    assert!((rate * mean / 1000.0 / 5.0 - 1.0).abs() < 0.01, "{rate} and {mean}");
    assert!(ended.stderr.contains("Completed 100 requests\n") && ended.stderr.contains("Finished 200 requests\n"));
    assert_eq!(server.connections(), 5);
}

#[test]
fn its_html_is_a_table() {
    let place = Place::new();
    let server = Server::start(|_| Does::Answer(page("hello")));
    let ended = ours(&place, &["-w", "-x", "border=1", "-n", "3", &server.url("/a&b")]);
    let rows = ended.stdout.matches("<tr ").count();
    assert!(
        ended.stdout.contains("<table border=1>\n") && rows >= 14,
        "{}",
        ended.stdout
    );
    assert!(
        ended.stdout.contains("<td colspan=2 bgcolor=white>/a&amp;b</td>"),
        "{}",
        ended.stdout
    );
}

/// Compares output and exit code of both, against a server that fails after three answers.
#[track_caller]
fn assert_ends_alike(arguments: &[&str], does: fn() -> Does) {
    let place = Place::new();
    let run = |is_ours: bool| {
        let server = Server::start(move |asked| {
            let fine = Does::Answer(page("hello"));
            if asked.number < 3 { fine } else { does() }
        });
        let url = server.url("/");
        let arguments = [&["-q", "-n", "6"], arguments, &[url.as_str()]].concat();
        let ended = if is_ours {
            ours(&place, &arguments)
        } else {
            end(Command::new(AB).args(&arguments))
        };
        let said = ended
            .stdout
            .split_once("(be patient)...")
            .map(|(_, said)| said.to_owned());
        let said = said.unwrap_or_else(|| panic!("{ended:?}"));
        let facts = [
            "Complete requests",
            "Document Length",
            "LOG",
            "WARNING",
            "INFO",
            "Total of",
            "HTTP/",
        ];
        // What the times of this run were like is no fact.
        let is_luck = |line: &str| line.starts_with("WARNING: The median");
        let is_fact = |line: &&str| facts.iter().any(|fact| line.starts_with(fact)) && !is_luck(line);
        let said: Vec<String> = said
            .lines()
            .filter(is_fact)
            .map(|line| line.trim_end().to_owned())
            .collect();
        (ended.code, ended.stderr, said)
    };
    assert_eq!(run(false), run(true), "with {arguments:?}");
}

#[test]
fn a_socket_error_ends_the_run_as_in_ab() {
    if has_ab("a_socket_error_ends_the_run_as_in_ab") {
        assert_ends_alike(&[], || Does::Reset);
        assert_ends_alike(&["-r"], || Does::Reset);
        assert_ends_alike(&["-r", "-v", "1"], || Does::Reset);
        assert_ends_alike(&["-s", "1"], || Does::AnswerAndHang(Vec::new()));
        assert_ends_alike(&["-r", "-s", "1"], || Does::AnswerAndHang(Vec::new()));
        assert_ends_alike(&[], || Does::AnswerAndClose(Vec::new()));
    }
    let gone = ours(&Place::new(), &["-n", "3", "http://127.0.0.1:1/"]);
    assert_eq!(
        (gone.code, gone.stderr.as_str()),
        (Some(111), "apr_socket_recv: Connection refused (111)\n")
    );
    assert!(gone.stdout.ends_with("(be patient)..."), "{}", gone.stdout);
    let patient = ours(&Place::new(), &["-r", "-n", "3", "http://127.0.0.1:1/"]);
    assert_eq!(patient.code, Some(0), "{patient:?}");
}

#[test]
fn verbose_output_is_that_of_ab() {
    if has_ab("verbose_output_is_that_of_ab") {
        for level in ["1", "2", "3", "4"] {
            assert_ends_alike(&["-v", level], || Does::Answer(page("hello")));
            assert_ends_alike(&["-v", level], || {
                Does::Answer(with_status("404 Not Found", "", "none"))
            });
        }
    }
}

#[test]
fn more_connections_than_requests_are_refused_as_ab_refuses_them() {
    let ended = Place::new().bench(&["--ab", "-n", "1", "-c", "2", "http://127.0.0.1:1/"]);
    assert_eq!(ended.code, Some(2));
    assert!(
        ended.stderr.starts_with("ab: Cannot use concurrency level"),
        "{}",
        ended.stderr
    );
}
