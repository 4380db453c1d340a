//! RFC 9112 §9.3.2: several requests before the first response.

use crate::site::{Site, large};

fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")
}

#[test]
fn answers_come_in_the_order_of_the_requests() {
    let site = Site::start();
    let mut client = site.connect();
    let targets = ["/ten.txt", "/missing", "/sub/", "/empty.txt", "/sub"].repeat(40);
    client.send(targets.iter().map(|target| get(target)).collect::<String>());
    for target in targets {
        let response = client.response();
        let (status, body) = match target {
            "/ten.txt" => (200, Some("0123456789")),
            "/sub/" => (200, Some("<title>sub</title>")),
            "/empty.txt" => (200, Some("")),
            "/missing" => (404, None),
            _ => (308, None),
        };
        assert_eq!(response.status, status, "{target}");
        assert!(body.is_none_or(|body| response.text() == body), "{target}");
    }
}

/// Pieces may end at any byte, also within the next request.
#[test]
fn pipelined_requests_may_be_cut_anywhere() {
    let site = Site::start();
    let requests = [get("/ten.txt"), get("/sub/"), get("/ten.txt")].concat();
    for length in [1, 2, 3, 7, 30, 50, 64, 100] {
        let mut client = site.connect();
        for piece in requests.as_bytes().chunks(length) {
            client.send(piece);
        }
        assert_eq!(client.response().text(), "0123456789", "pieces of {length}");
        assert_eq!(client.response().text(), "<title>sub</title>", "pieces of {length}");
        assert_eq!(client.response().text(), "0123456789", "pieces of {length}");
    }
}

#[test]
fn a_large_body_does_not_overtake_or_swallow_its_neighbours() {
    let site = Site::start();
    let mut client = site.connect();
    client.send([get("/ten.txt"), get("/large.bin"), get("/large.bin"), get("/ten.txt")].concat());
    assert_eq!(client.response().text(), "0123456789");
    assert!(client.response().body == *large());
    assert!(client.response().body == *large());
    assert_eq!(client.response().text(), "0123456789");
}

#[test]
fn a_refusal_ends_the_row_and_what_came_before_is_answered() {
    let site = Site::start();
    let mut client = site.connect();
    client.send(
        [
            get("/ten.txt"),
            "GET / HTTP/1.1\r\nBad header\r\n\r\n".into(),
            get("/smuggled.txt"),
        ]
        .concat(),
    );
    assert_eq!(client.response().text(), "0123456789");
    let refusal = client.response();
    assert_eq!(refusal.status, 400);
    assert!(refusal.closes() && client.is_closed());
    assert!(!site.log().contains("smuggled"));
}

#[test]
fn bodies_and_heads_may_alternate_in_one_piece() {
    let site = Site::start();
    let mut client = site.connect();
    let post = "POST /ten.txt HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
    let chunked = "POST /ten.txt HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    client.send([post, &get("/ten.txt"), chunked, &get("/ten.txt"), post, chunked].concat());
    let statuses: Vec<u16> = (0..6).map(|_| client.response().status).collect();
    assert_eq!(statuses, [405, 200, 405, 200, 405, 405]);
}
