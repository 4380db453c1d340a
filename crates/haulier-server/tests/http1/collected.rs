//! RFC 9112 §6 and §7 for an application that needs the body: it gets all of it, or is never started.

use std::time::Duration;

use crate::client::{Client, To};
use crate::site::{SMUGGLED, Site, at_some_pace, wait};

/// Shows what PHP received.
const ECHO: (&str, &str) = (
    "echo.php",
    r#"<?php
$body = file_get_contents('php://input');
header('Content-Type: text/plain');
echo $_SERVER['REQUEST_METHOD'], ' ', $_SERVER['CONTENT_LENGTH'] ?? 'none', ' ', strlen($body), ' ', md5($body), "\n";
foreach ($_SERVER as $name => $value) {
    if (str_starts_with($name, 'HTTP_') || str_starts_with($name, 'SERVER_NAME')) {
        echo "$name=$value\n";
    }
}
"#,
);

/// md5 of `hello world`.
const HELLO_WORLD: &str = "5eb63bbbe01eeed093cb22bb8f5acdc3";

fn site() -> Site {
    Site::with_php(&[ECHO], |_| {})
}

fn post(lines: &str) -> String {
    format!("POST /echo.php HTTP/1.1\r\nHost: a\r\n{lines}\r\n")
}

const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";

#[test]
fn a_body_of_known_length_reaches_the_application() {
    let site = site();
    let mut client = site.connect();
    for _ in 0..3 {
        let response = client.ask(post("Content-Length: 11\r\n") + "hello world");
        assert!(
            response.text().starts_with(&format!("POST 11 11 {HELLO_WORLD}\n")),
            "{}",
            response.text()
        );
    }
}

#[test]
fn chunks_reach_the_application_as_one_body_of_known_length() {
    let site = site();
    let mut client = site.connect();
    for body in [
        "b\r\nhello world\r\n0\r\n\r\n",
        "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n",
        "5;a=b\r\nhello\r\n1 ;c\r\n \r\n0005\r\nworld\r\n0;d\r\nX: y\r\n\r\n",
    ] {
        let response = client.ask(post(CHUNKED) + body);
        assert!(
            response.text().starts_with(&format!("POST 11 11 {HELLO_WORLD}\n")),
            "{body:?}: {}",
            response.text()
        );
        assert!(!response.text().contains("TRANSFER_ENCODING"), "{}", response.text());
    }
}

#[test]
fn a_body_may_come_byte_by_byte() {
    let site = site();
    for (framing, body) in [
        ("Content-Length: 11\r\n", "hello world"),
        (CHUNKED, "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"),
    ] {
        let mut client = site.connect();
        for byte in (post(framing) + body).bytes() {
            client.send([byte]);
        }
        assert!(client.response().text().contains(HELLO_WORLD), "{framing}");
    }
}

#[test]
fn a_body_larger_than_memory_keeps_is_whole() {
    let site = site();
    let body = "0123456789abcdef".repeat(256 * 1024);
    let md5 = "e230a73093573d16cc4d9a4f7373f4cb";
    let chunked: String = body
        .as_bytes()
        .chunks(10_000)
        .map(|chunk| format!("{:x}\r\n{}\r\n", chunk.len(), String::from_utf8_lossy(chunk)))
        .collect();
    for request in [
        post(&format!("Content-Length: {}\r\n", body.len())) + &body,
        post(CHUNKED) + &chunked + "0\r\n\r\n",
    ] {
        let response = site.ask(request);
        assert_eq!(
            response.text().lines().next(),
            Some(format!("POST {0} {0} {md5}", body.len()).as_str())
        );
    }
}

/// The body is read before the response is made, so the response is the refusal.
#[test]
fn a_malformed_chunk_is_refused_and_nothing_behind_it_is_executed() {
    let site = site();
    for body in [
        "0x5\r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "5_0\r\nhello\r\n0\r\n\r\n",
        " 5\r\nhello\r\n0\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        "00000000000000005\r\nhello\r\n0\r\n\r\n",
        "10000000000000005\r\nhello\r\n0\r\n\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "5\rhello\r\n0\r\n\r\n",
        "5;a\nhello\r\n0\r\n\r\n",
        "5;a\rb\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhello world\r\n0\r\n\r\n",
        "5\r\nhello\r\n0\n\r\n",
        "5\r\nhello\r\n0\r\n\n",
        "5\r\nhello\r\n0\r\nno field line\r\n\r\n",
        "5\r\nhello\r\n-1\r\n\r\n",
    ] {
        site.assert_refused(post(CHUNKED) + body, 400);
    }
    assert!(!site.log().contains("\"php\""), "PHP was asked: {}", site.log());
}

/// The limits are 4 KiB an extension and 32 KiB of trailers.
#[test]
fn endless_extensions_and_trailers_are_refused() {
    let site = site();
    site.assert_refused(post(CHUNKED) + "5;" + &"e".repeat(5000), 400);
    site.assert_refused(post(CHUNKED) + "0\r\n" + &"Trailer: value\r\n".repeat(2100), 400);
}

/// CVE-2025-12642.
#[test]
fn trailers_are_not_merged_into_the_fields() {
    let site = site();
    let trailers = "X-Trailer: a\r\nHost: evil\r\nAuthorization: Basic eA==\r\nContent-Length: 0\r\n";
    let response = site.ask(post(CHUNKED) + "5\r\nhello\r\n0\r\n" + trailers + "\r\n");
    assert_eq!(response.status, 200);
    assert!(response.text().contains("HTTP_HOST=a\n"), "{}", response.text());
    for name in ["TRAILER", "AUTHORIZATION", "evil"] {
        assert!(!response.text().contains(name), "{}", response.text());
    }
}

/// The application sees the host by which the site was found.
#[test]
fn the_application_is_told_the_authority_of_the_target() {
    let site = site();
    let response = site.ask("GET http://right.example:81/echo.php HTTP/1.1\r\nHost: wrong.example\r\n\r\n");
    assert!(
        response.text().contains("HTTP_HOST=right.example:81\n"),
        "{}",
        response.text()
    );
    assert!(!response.text().contains("wrong.example"), "{}", response.text());
}

/// RFC 9110 §10.1.1.
#[test]
fn a_client_that_waits_is_told_to_continue() {
    let site = site();
    let mut client = site.connect();
    for (framing, body) in [
        ("Content-Length: 11\r\n", "hello world"),
        (CHUNKED, "b\r\nhello world\r\n0\r\n\r\n"),
    ] {
        let interim = client.ask(post(&format!("Expect: 100-continue\r\n{framing}")));
        assert_eq!(
            (interim.status, interim.head.as_str()),
            (100, "HTTP/1.1 100 Continue\r\n\r\n")
        );
        assert!(
            client.is_silent_for(Duration::from_millis(200)),
            "nothing is answered before the body"
        );
        assert!(client.ask(body).text().contains(HELLO_WORLD));
    }
}

/// RFC 9110 §10.1.1: 100 may be left out once the body is there.
#[test]
fn a_client_that_does_not_wait_gets_at_most_one_100() {
    let site = site();
    let mut client = site.connect();
    client.send(post("Expect: 100-continue\r\nContent-Length: 11\r\n") + "hello world");
    let mut response = client.response();
    if response.status == 100 {
        response = client.response();
    }
    assert!(response.text().contains(HELLO_WORLD));
    assert!(
        client
            .ask(post("Content-Length: 11\r\n") + "hello world")
            .text()
            .contains(HELLO_WORLD)
    );
}

/// The response is 413, before the client is told to continue.
#[test]
fn a_body_beyond_the_limit_is_refused_before_it_is_sent() {
    let site = Site::with_php(&[ECHO], |settings| settings.sites[0].limits.body = 1000);
    assert!(
        site.ask(post("Content-Length: 1000\r\n") + &"x".repeat(1000))
            .text()
            .starts_with("POST 1000 1000 ")
    );
    for lines in [
        "Content-Length: 1001\r\n",
        "Expect: 100-continue\r\nContent-Length: 1001\r\n",
        "Content-Length: 9999999999999\r\n",
    ] {
        let mut client = site.connect();
        let response = client.ask(post(lines));
        assert_eq!(response.status, 413, "{lines}");
        client.send(SMUGGLED.repeat(40));
        if response.closes() {
            assert!(client.is_closed(), "{lines}");
        }
    }
    assert!(!site.log().contains("smuggled"));
}

/// The limit holds for a body of unknown length, too.
#[test]
fn a_chunked_body_beyond_the_limit_is_refused_once_it_is() {
    let site = Site::with_php(&[ECHO], |settings| settings.sites[0].limits.body = 1000);
    let chunk = format!("64\r\n{}\r\n", "x".repeat(100));
    assert!(
        site.ask(post(CHUNKED) + &chunk.repeat(10) + "0\r\n\r\n")
            .text()
            .starts_with("POST 1000 1000 ")
    );
    let mut client = site.connect();
    client.send(post(CHUNKED) + &chunk.repeat(2000) + "0\r\n\r\n" + SMUGGLED);
    let response = client.response();
    assert_eq!(response.status, 413);
    assert!(response.closes() && client.is_closed());
    assert!(!site.log().contains("smuggled"));
}

/// CVE-2022-41556: half a body and a closed side are no request, and hold no worker.
#[test]
fn a_body_that_breaks_off_never_reaches_the_application() {
    let site = site();
    for request in [
        post("Content-Length: 11\r\n") + "hello",
        post(CHUNKED) + "b\r\nhello",
        post(CHUNKED) + "5\r\nhello\r\n",
    ] {
        for _ in 0..5 {
            let mut client = site.connect();
            client.send(&request);
            client.finish();
            let answer = client.try_response(To::Get);
            assert!(answer.is_none_or(|answer| answer.status == 400), "{request:?}");
            assert!(client.is_closed());
        }
    }
    site.assert_connections_fall_to(0);
    assert!(!site.log().contains("php_ms"), "PHP was asked: {}", site.log());
    assert_eq!(site.ask(post("Content-Length: 0\r\n")).status, 200);
}

/// A slow POST.
#[test]
fn a_body_that_stalls_is_answered_408() {
    let site = Site::with_php(&[ECHO], |settings| {
        settings.limits.body_timeout = Duration::from_millis(400);
    });
    for request in [
        post("Content-Length: 11\r\n") + "hello",
        post(CHUNKED) + "b\r\nhello",
        post("Expect: 100-continue\r\nContent-Length: 9\r\n"),
    ] {
        let mut client = site.connect();
        client.send(&request);
        let mut response = client.response();
        if response.status == 100 {
            response = client.response();
        }
        assert_eq!(response.status, 408, "{request:?}");
        assert!(response.closes() && client.is_closed(), "{request:?}");
    }
    site.assert_connections_fall_to(0);
}

/// A body is slow only if it stalls: each byte restarts the timeout.
#[test]
fn a_body_with_pauses_is_whole() {
    at_some_pace(Duration::from_millis(500), |step| {
        let site = Site::with_php(&[ECHO], |settings| settings.limits.body_timeout = 3 * step);
        let mut client = site.connect();
        client.send(post("Content-Length: 11\r\n"));
        for piece in ["hello", " ", "wor", "ld"] {
            wait(step);
            client.send(piece);
        }
        assert!(client.response().text().contains(HELLO_WORLD));
    });
}

/// Several requests with bodies, cut at any place.
#[test]
fn pipelined_bodies_are_told_apart() {
    let site = site();
    let one = post("Content-Length: 11\r\n") + "hello world";
    let other = post(CHUNKED) + "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n";
    let row = [
        one.as_str(),
        &other,
        "GET /ten.txt HTTP/1.1\r\nHost: a\r\n\r\n",
        &other,
        &one,
    ]
    .concat();
    for length in [1, 7, 64, row.len()] {
        let mut client = site.connect();
        for piece in row.as_bytes().chunks(length) {
            client.send(piece);
        }
        let is_echo = |client: &mut Client| client.response().text().contains(HELLO_WORLD);
        assert!(is_echo(&mut client) && is_echo(&mut client), "pieces of {length}");
        assert_eq!(client.response().text(), "0123456789", "pieces of {length}");
        assert!(is_echo(&mut client) && is_echo(&mut client), "pieces of {length}");
    }
}
