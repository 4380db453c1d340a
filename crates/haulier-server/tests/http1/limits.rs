//! Limits on requests (row 11).

use crate::site::Site;

#[test]
fn a_long_request_line_is_refused() {
    let site = Site::start();
    let get = |length: usize| format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(length));
    // RFC 9112 §3: at least 8000 bytes should be supported.
    assert_eq!(site.ask(get(8000)).status, 404);
    site.assert_refused(get(17_000), 414);
    site.assert_refused(format!("GET /?{}", "a".repeat(100_000)), 414);
}

#[test]
fn a_long_header_section_is_refused() {
    let site = Site::start();
    let get = |length: usize| format!("GET /ten.txt HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "a".repeat(length));
    assert_eq!(site.ask(get(30_000)).status, 200);
    site.assert_refused(get(40_000), 431);
    site.assert_refused(
        format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "a".repeat(1_000_000)),
        431,
    );
}

#[test]
fn many_fields_are_refused() {
    let site = Site::start();
    let get = |count: usize| {
        format!(
            "GET /ten.txt HTTP/1.1\r\nHost: a\r\n{}\r\n",
            "X: y\r\n".repeat(count - 1)
        )
    };
    assert_eq!(site.ask(get(100)).status, 200);
    site.assert_refused(get(101), 431);
    site.assert_refused(get(5000), 431);
}

/// Empty lines before a request line are ignored, but not without limit.
#[test]
fn endless_empty_lines_are_refused() {
    let site = Site::start();
    let mut client = site.connect();
    client.send("\r\n".repeat(100_000));
    assert!(matches!(client.response().status, 400 | 414 | 431));
    assert!(client.is_closed());
}

#[test]
fn limits_are_what_the_settings_say() {
    let site = Site::with_limits(|limits| {
        limits.request_line = 100;
        limits.header = 200;
        limits.header_fields = 3;
    });
    assert_eq!(site.get("/ten.txt", "A: b\r\nC: d\r\n").status, 200);
    site.assert_refused(format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(100)), 414);
    site.assert_refused(
        format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "a".repeat(200)),
        431,
    );
    site.assert_refused("GET / HTTP/1.1\r\nHost: a\r\nA: b\r\nC: d\r\nE: f\r\n\r\n", 431);
}

/// A head in many small pieces is parsed again with each; the cost must not be the square of its length.
#[test]
fn a_large_head_in_small_pieces_is_answered() {
    let site = Site::start();
    let mut client = site.connect();
    let head = format!(
        "GET /ten.txt HTTP/1.1\r\nHost: a\r\n{}\r\n",
        format!("X: {}\r\n", "a".repeat(300)).repeat(95)
    );
    for piece in head.as_bytes().chunks(16) {
        client.send(piece);
    }
    assert_eq!(client.response().text(), "0123456789");
}
