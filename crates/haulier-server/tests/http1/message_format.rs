//! RFC 9112 §2: lines, and bytes that are no message at all.

use crate::site::Site;

#[test]
fn a_request_is_answered_with_status_line_fields_and_body() {
    let site = Site::start();
    let response = site.get("/ten.txt", "");
    assert_eq!(response.status, 200);
    assert!(response.head.starts_with("HTTP/1.1 200 OK\r\n"));
    assert_eq!(response.field("Content-Length"), Some("10"));
    assert_eq!(response.field("Content-Type"), Some("text/plain; charset=utf-8"));
    assert_eq!(response.field("Server"), Some("haulier"));
    let date = response.field("Date").expect("RFC 9110 §6.6.1 wants a Date");
    assert!(
        haulier_proto::date::parse(date.as_bytes()).is_some_and(|seconds| seconds > 1_700_000_000),
        "{date}"
    );
    assert_eq!(response.text(), "0123456789");
}

#[test]
fn a_request_that_comes_byte_by_byte_is_the_same_request() {
    let site = Site::start();
    let mut client = site.connect();
    for byte in b"GET /ten.txt HTTP/1.1\r\nHost: a\r\nX-Y: z\r\n\r\n" {
        client.send([*byte]);
    }
    assert_eq!(client.response().text(), "0123456789");
    assert_eq!(client.ask("GET /empty.txt HTTP/1.1\r\nHost: a\r\n\r\n").status, 200);
}

/// RFC 9112 §2.2: an empty line before the request line is ignored.
#[test]
fn an_empty_line_before_the_request_line_is_ignored() {
    let site = Site::start();
    let mut client = site.connect();
    assert_eq!(
        client.ask("\r\nGET /ten.txt HTTP/1.1\r\nHost: a\r\n\r\n").text(),
        "0123456789"
    );
    assert_eq!(
        client.ask("\r\n\r\nGET /ten.txt HTTP/1.1\r\nHost: a\r\n\r\n").text(),
        "0123456789"
    );
}

/// RFC 9112 §2.2.
#[test]
fn line_ends_other_than_cr_lf_are_refused() {
    let site = Site::start();
    for request in [
        "GET /ten.txt HTTP/1.1\nHost: a\r\n\r\n",
        "GET /ten.txt HTTP/1.1\nHost: a\n\n",
        "GET /ten.txt HTTP/1.1\r\nHost: a\n\r\n",
        "GET /ten.txt HTTP/1.1\r\nHost: a\r\n\n",
        "GET /ten.txt HTTP/1.1\rHost: a\r\n\r\n",
        "GET /ten.txt HTTP/1.1\r\nHost: a\rX: y\r\n\r\n",
        "GET /ten.txt HTTP/1.1\r\nHost: a\r\n\rX: y\r\n\r\n",
        "\nGET /ten.txt HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        site.assert_refused(request, 400);
    }
}

/// RFC 9112 §2.2: white space between the request line and the first field.
#[test]
fn white_space_before_the_first_field_is_refused() {
    let site = Site::start();
    site.assert_refused("GET /ten.txt HTTP/1.1\r\n Host: a\r\nHost: a\r\n\r\n", 400);
    site.assert_refused("GET /ten.txt HTTP/1.1\r\n\tX: y\r\nHost: a\r\n\r\n", 400);
}

#[test]
fn another_protocol_is_refused() {
    let site = Site::start();
    // SOCKS, SSH, FastCGI, noise.
    site.assert_refused(b"\x05\x01\x00", 400);
    site.assert_refused("SSH-2.0-OpenSSH_9.2\r\n", 400);
    site.assert_refused(b"\x01\x01\x00\x01\x00\x08\x00\x00", 400);
    site.assert_refused(b"\xff\xfe\x00\x00\r\n\r\n", 400);
}

/// The preface of HTTP/2 with HTTP/2 turned off; RFC 9113 §3.4 designed it to fail.
#[test]
fn the_preface_of_http_2_is_refused_where_that_is_not_spoken() {
    let site = Site::start_with(|settings| settings.http2 = false);
    site.assert_refused("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505);
}

/// RFC 8446 §6: a TLS client gets a TLS alert.
#[test]
fn tls_is_told_that_it_is_not_spoken_here() {
    const GREETING: &[u8] = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    const ALERT: &[u8] = b"\x15\x03\x01\x00\x02\x02\x28";
    let site = Site::start();
    let mut client = site.connect();
    client.send(GREETING);
    assert_eq!(client.rest(), ALERT);
    let mut late = site.connect();
    // Connections are accepted in order, so this one was accepted before, with nothing to read.
    assert_eq!(site.get("/ten.txt", "").status, 200);
    late.send(GREETING);
    assert_eq!(late.rest(), ALERT);
}
