//! RFC 9110 §10.1.1: Expect.

use std::time::Duration;

use crate::site::{SMUGGLED, Site};

fn post(lines: &str) -> String {
    format!("POST /ten.txt HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n{lines}\r\n")
}

/// A server that responds without the body must not take the body for a request, sent or not.
#[test]
fn a_final_answer_instead_of_100_ends_the_connection() {
    let site = Site::start();
    for framing in [
        format!("Content-Length: {}\r\n", SMUGGLED.len()),
        "Transfer-Encoding: chunked\r\n".into(),
    ] {
        let mut client = site.connect();
        let response = client.ask(post(&framing));
        assert_eq!(response.status, 405, "{framing}");
        assert!(response.closes(), "{framing}");
        client.send(SMUGGLED);
        client.send(SMUGGLED);
        assert!(client.is_closed(), "{framing}");
        assert!(!site.log().contains("smuggled"), "{framing}");
    }
}

/// 0.CL and CL.0 by Expect.
#[test]
fn a_body_sent_without_waiting_is_not_a_request() {
    let site = Site::start();
    let mut client = site.connect();
    client.send(post(&format!("Content-Length: {}\r\n", SMUGGLED.len())));
    client.send(format!("{SMUGGLED}{SMUGGLED}"));
    assert_eq!(client.response().status, 405);
    assert!(client.is_closed());
    assert!(!site.log().contains("smuggled"));
}

/// RFC 9110 §10.1.1: no 100 where there is no body.
#[test]
fn without_a_body_there_is_nothing_to_continue() {
    let site = Site::start();
    let mut client = site.connect();
    let request = "GET /ten.txt HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n";
    for _ in 0..2 {
        let response = client.ask(request);
        assert_eq!((response.status, response.text()), (200, "0123456789"));
    }
    assert!(client.is_silent_for(Duration::from_millis(200)));
}

/// RFC 9110 §10.1.1: 417.
#[test]
fn an_unknown_expectation_fails() {
    let site = Site::start();
    for value in [
        "200-ok",
        "100-continue, x",
        "100-continue\r\nExpect: x",
        "100-contin\u{fc}e",
    ] {
        site.assert_refused(
            format!("GET /ten.txt HTTP/1.1\r\nHost: a\r\nExpect: {value}\r\n\r\n"),
            417,
        );
    }
}

/// RFC 9110 §10.1.1: an expectation in HTTP/1.0 is ignored.
#[test]
fn http_1_0_has_no_expectations() {
    let site = Site::start();
    let response = site.ask("GET /ten.txt HTTP/1.0\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!((response.status, response.text()), (200, "0123456789"));
    assert_eq!(site.ask("GET /ten.txt HTTP/1.0\r\nExpect: x\r\n\r\n").status, 200);
}
