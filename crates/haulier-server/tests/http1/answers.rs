//! RFC 9112 §6.3: whatever an application says about its response, the client's connection stays in step (row 19).

use std::time::Duration;

use crate::client::{Client, Response};
use crate::site::Site;

/// One case for each query; `out` writes at once.
const CASES: (&str, &str) = (
    "case.php",
    r#"<?php
function out(string $text): void { echo $text; flush(); }
header('Content-Type: text/plain');
switch ($_SERVER['QUERY_STRING']) {
    case 'plain': echo 'plain'; break;
    case 'exact': header('Content-Length: 5'); echo 'exact'; break;
    case 'long': header('Content-Length: 4'); echo 'longer than four'; break;
    case 'short': header('Content-Length: 100'); echo 'short'; break;
    case 'no_number': header('Content-Length: 5, 5'); echo 'hello'; break;
    case 'chunked': header('Transfer-Encoding: chunked'); echo "5\r\nhello\r\n0\r\n\r\n"; break;
    case 'hop': foreach (['Connection: close', 'Keep-Alive: timeout=5', 'Upgrade: x', 'TE: trailers', 'Trailer: X'] as $line) header($line); echo 'hop'; break;
    case 'no_content': http_response_code(204); echo 'none'; break;
    case 'not_modified': http_response_code(304); header('Content-Length: 9'); echo 'none'; break;
    case 'head': header('Content-Length: 100'); if ($_SERVER['REQUEST_METHOD'] !== 'HEAD') echo str_repeat('x', 100); break;
    case 'empty': break;
    case 'stream': header('X-Accel-Buffering: no'); foreach (['one', 'two', 'three'] as $word) { out($word); usleep(50000); } break;
    case 'large': echo str_repeat('0123456789abcdef', 65536); break;
    case 'redirect': header('Location: http://a/'); break;
}
"#,
);

const NEXT: &str = "GET /ten.txt HTTP/1.1\r\nHost: a\r\n\r\n";

fn site() -> Site {
    Site::with_php(&[CASES], |_| {})
}

fn get(case: &str) -> String {
    format!("GET /case.php?{case} HTTP/1.1\r\nHost: a\r\n\r\n")
}

/// The response to a case. The same connection must then answer for a file, or be closed.
fn ask(client: &mut Client, case: &str) -> Response {
    let response = client.ask(get(case));
    assert_eq!(client.ask(NEXT).text(), "0123456789", "behind {case}");
    response
}

#[test]
fn an_answer_is_framed_by_us() {
    let site = site();
    let mut client = site.connect();
    for (case, body) in [("plain", "plain"), ("exact", "exact"), ("empty", ""), ("hop", "hop")] {
        let response = ask(&mut client, case);
        assert_eq!((response.status, response.text()), (200, body), "{case}");
        assert_eq!(
            response.field("Content-Length"),
            Some(body.len().to_string().as_str()),
            "{case}"
        );
        for name in [
            "Connection",
            "Keep-Alive",
            "Upgrade",
            "TE",
            "Trailer",
            "Transfer-Encoding",
            "X-Powered-By",
        ] {
            assert_eq!(response.field(name), None, "{case}");
        }
    }
}

#[test]
fn a_large_answer_is_whole() {
    let site = site();
    let mut client = site.connect();
    for _ in 0..3 {
        let response = ask(&mut client, "large");
        assert!(response.text() == "0123456789abcdef".repeat(65_536));
    }
}

/// RFC 9110 §6.5: the time that PHP took for a body is known at its end.
#[test]
fn a_client_that_takes_trailers_is_told_behind_the_body_how_long_php_took() {
    let site = Site::with_php(&[CASES], |settings| settings.sites[0].development = true);
    let mut client = site.connect();
    let request = "GET /case.php?stream HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: TE\r\n\r\n";
    let response = client.ask(request);
    assert_eq!(response.text(), "onetwothree");
    assert_eq!(response.field("Trailer"), Some("Server-Timing"));
    let [line] = &response.trailers[..] else {
        panic!("not one line: {response:?}")
    };
    assert!(
        line.starts_with("Server-Timing: queue;dur=") && line.contains(", php;dur="),
        "{line}"
    );
    assert_eq!(client.ask(NEXT).text(), "0123456789", "behind trailers");
    let response = ask(&mut client, "stream");
    assert_eq!((response.field("Trailer"), response.trailers.len()), (None, 0));
}

/// Bytes beyond the announced length are dropped, or the length is.
#[test]
fn more_than_was_announced_does_not_reach_the_next_answer() {
    let site = site();
    let mut client = site.connect();
    let response = ask(&mut client, "long");
    assert!(response.status == 502 || response.text() == "long" || response.text() == "longer than four");
}

/// The client must not take a part for the whole body.
#[test]
fn less_than_was_announced_is_no_complete_answer() {
    let site = site();
    let mut client = site.connect();
    client.send(get("short"));
    client.send(NEXT);
    let rest = String::from_utf8_lossy(&client.rest_within(Duration::from_secs(1))).into_owned();
    let complete = rest.contains("HTTP/1.1 200") && rest.contains("Content-Length: 100\r\n");
    assert!(
        !complete || !rest.contains("0123456789"),
        "the next answer became part of this one: {rest}"
    );
}

#[test]
fn a_length_that_is_no_number_is_a_bad_gateway() {
    let site = site();
    let mut client = site.connect();
    assert_eq!(ask(&mut client, "no_number").status, 502);
}

/// The application's own transfer coding is ignored: its bytes are the body.
#[test]
fn a_transfer_coding_of_the_application_is_not_believed() {
    let site = site();
    let mut client = site.connect();
    let response = ask(&mut client, "chunked");
    assert!(
        response.status == 502 || response.text() == "5\r\nhello\r\n0\r\n\r\n",
        "{response:?}"
    );
}

/// RFC 9110 §15.3.5, §15.4.5.
#[test]
fn answers_without_a_body_have_none() {
    let site = site();
    let mut client = site.connect();
    for (case, status) in [("no_content", 204), ("not_modified", 304)] {
        let response = ask(&mut client, case);
        assert_eq!(response.status, status);
        assert_eq!(response.field("Transfer-Encoding"), None);
    }
    assert_eq!(ask(&mut client, "redirect").status, 302);
}

#[test]
fn head_of_an_application_has_no_body() {
    let site = site();
    let mut client = site.connect();
    for case in ["plain", "exact", "large", "stream", "empty", "head"] {
        client.send(format!("HEAD /case.php?{case} HTTP/1.1\r\nHost: a\r\n\r\n{NEXT}"));
        assert_eq!(client.response_to_head().status, 200, "{case}");
        assert_eq!(client.response().text(), "0123456789", "{case}");
    }
}

#[test]
fn a_stream_is_chunked_for_http_1_1_and_ends_with_the_connection_for_1_0() {
    let site = site();
    let mut client = site.connect();
    let response = ask(&mut client, "stream");
    assert_eq!(
        (response.text(), response.field("Transfer-Encoding")),
        ("onetwothree", Some("chunked"))
    );
    let mut client = site.connect();
    let response = client.ask("GET /case.php?stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(
        (response.text(), response.field("Transfer-Encoding")),
        ("onetwothree", None)
    );
    assert!(response.field("Content-Length").is_some() || response.closes());
}

/// Clients that leave do not keep the others waiting.
#[test]
fn clients_that_leave_in_the_middle_leave_the_workers() {
    let site = site();
    for case in ["stream", "large"] {
        for _ in 0..10 {
            site.connect_narrow().send(get(case));
        }
    }
    for _ in 0..5 {
        assert_eq!(site.ask(get("plain")).text(), "plain");
    }
    site.assert_connections_fall_to(0);
}
