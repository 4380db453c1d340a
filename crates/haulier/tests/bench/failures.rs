//! Every way to fail has its class, and a failure is never an answer.

use serde_json::Value;

use crate::program::Place;
use crate::scripted::{Asked, Does, Server, page, with_status};

/// Fails after the two requests before the run.
const LOOKS: usize = 2;

fn later(asked: &Asked, does: impl Fn() -> Does) -> Does {
    if asked.number < LOOKS {
        Does::Answer(page("right"))
    } else {
        does()
    }
}

/// Failures of a run against a server that fails after the requests before the run.
#[track_caller]
fn failures(arguments: &[&str], does: impl Fn() -> Does + Send + Sync + 'static) -> Value {
    let server = Server::start(move |asked| later(asked, &does));
    let total = Place::new().total(&[&["-n", "6", "-c", "2"], arguments, &[&server.url("/")]].concat());
    total["failures"].clone()
}

#[track_caller]
fn assert_only(failures: &Value, class: &str) {
    for (name, count) in failures.as_object().expect("classes") {
        let expected = if name == class { 6 } else { 0 };
        assert_eq!(count.as_u64(), Some(expected), "{name} in {failures}");
    }
}

#[test]
fn connections_that_are_reset() {
    assert_only(&failures(&[], || Does::Reset), "reset");
}

#[test]
fn bodies_shorter_than_their_length_say() {
    let short = || Does::AnswerAndClose(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort".to_vec());
    assert_only(&failures(&[], short), "short_body");
}

#[test]
fn chunked_bodies_without_an_end() {
    let cut = || Does::AnswerAndClose(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n".to_vec());
    assert_only(&failures(&[], cut), "short_body");
}

#[test]
fn answers_that_are_not_http() {
    assert_only(
        &failures(&[], || Does::AnswerAndClose(b"SSH-2.0-OpenSSH_9.2\r\n\r\n".to_vec())),
        "protocol",
    );
}

#[test]
fn statuses_other_than_the_first_one() {
    assert_only(
        &failures(&[], || Does::Answer(with_status("503 Busy", "", "no"))),
        "status",
    );
}

#[test]
fn answers_that_never_begin() {
    assert_only(
        &failures(&["--timeout", "300ms"], || Does::AnswerAndHang(Vec::new())),
        "first_byte_timeout",
    );
}

#[test]
fn answers_that_never_end() {
    let half = || Does::AnswerAndHang(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf".to_vec());
    assert_only(&failures(&["--timeout", "300ms"], half), "body_timeout");
}

#[test]
fn different_lengths_with_strict_lengths() {
    let server = Server::start(|asked| Does::Answer(page(if asked.number == LOOKS { "first" } else { "longer" })));
    let total = Place::new().total(&["-n", "7", "-c", "1", "--strict-length", &server.url("/")]);
    assert_only(&total["failures"], "length");
    let lenient = Place::new().total(&["-n", "7", "-c", "1", &server.url("/")]);
    assert_eq!(lenient["requests"], 7);
}

#[test]
fn another_body_with_the_same_validator() {
    let server = Server::start(|asked| {
        let body = if asked.number < LOOKS { "right" } else { "wrong" };
        Does::Answer(with_status("200 OK", "ETag: \"1\"\r\n", body))
    });
    let total = Place::new().total(&["-n", "6", "-c", "2", &server.url("/")]);
    assert_only(&total["failures"], "body");
}

#[test]
fn a_server_that_is_gone() {
    let server = Server::start(|asked| {
        let answer = page("last");
        if asked.number < LOOKS {
            Does::Answer(answer)
        } else {
            Does::Reset
        }
    });
    let url = server.url("/");
    let place = Place::new();
    let ended = place.bench(&["-n", "3", "-c", "1", &url]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended.stdout.contains("3 of 3 requests failed: 3 reset"),
        "{}",
        ended.stdout
    );
    server.stop();
    let gone = place.bench(&["-n", "3", &url]);
    assert_eq!(gone.code, Some(1));
    assert!(gone.stderr.contains("does not answer: refused"), "{}", gone.stderr);
}

#[test]
fn tls_on_a_plain_port() {
    let server = Server::start(|_| Does::Answer(page("plain")));
    let url = server.url("/").replace("http:", "https:");
    let ended = Place::new().bench(&["-n", "3", "--timeout", "5s", &url]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("does not answer"), "{}", ended.stderr);
}

#[test]
fn the_first_failure_ends_a_run_with_stop_on_error() {
    let server = Server::start(|asked| later(asked, || Does::Reset));
    let ended = Place::new().bench(&["-n", "1000", "-c", "1", "--stop-on-error", &server.url("/")]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(server.requests().len() < 10, "{}", server.requests().len());
}
