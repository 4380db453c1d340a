//! RFC 9112 §6: the end of a request. Every doubt is a refusal, and nothing after it is executed.

use crate::site::{SMUGGLED, Site};

fn post(lines: &str) -> String {
    format!("POST /ten.txt HTTP/1.1\r\nHost: a\r\n{lines}\r\n")
}

/// CL.TE and TE.CL (RFC 9112 §6.3).
#[test]
fn transfer_encoding_with_content_length_is_refused() {
    let site = Site::start();
    for lines in [
        "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 6\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
        "Content-Length: 4\r\nTransfer-Encoding: identity\r\n",
        "Content-Length: 4\r\nX: y\r\ntransfer-encoding: chunked\r\n",
    ] {
        site.assert_refused(format!("{}0\r\n\r\n", post(lines)), 400);
    }
}

/// TE.TE, in every spelling known to split two servers (RFC 9112 §6.1).
#[test]
fn an_obfuscated_transfer_encoding_is_refused() {
    let site = Site::start();
    for line in [
        "Transfer-Encoding:",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: x",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: identity, chunked, identity",
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: chunked,",
        "Transfer-Encoding: ,chunked",
        "Transfer-Encoding: \"chunked\"",
        "Transfer-Encoding: chunked;a=b",
        "Transfer-Encoding: \x0bchunked",
        "Transfer-Encoding: chunked\x0c",
        "Transfer-Encoding: \u{a0}chunked",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding\t: chunked",
        " Transfer-Encoding: chunked",
        "X: y\r\n Transfer-Encoding: chunked",
        "Transfer-Encoding:\r\n chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: x",
        "Transfer-Encoding: x\r\ntransfer-encoding: chunked",
        "X: y\nTransfer-Encoding: chunked",
        "X: y\rTransfer-Encoding: chunked",
        "Transfer\0-Encoding: chunked",
    ] {
        site.assert_refused(format!("{}0\r\n\r\n", post(&format!("{line}\r\n"))), 400);
    }
}

/// RFC 9112 §6.1: 501 for an unknown coding.
#[test]
fn a_well_formed_unknown_coding_is_not_implemented() {
    Site::start().assert_refused(
        format!("{}0\r\n\r\n", post("Transfer-Encoding: gzip, chunked\r\n")),
        501,
    );
}

#[test]
fn a_doubtful_content_length_is_refused() {
    let site = Site::start();
    for line in [
        "Content-Length:",
        "Content-Length: +4",
        "Content-Length: -4",
        "Content-Length: 4 4",
        "Content-Length: 4, 4",
        "Content-Length: 4,5",
        "Content-Length: 0x4",
        "Content-Length: 4_0",
        "Content-Length: 4.0",
        "Content-Length: \"4\"",
        "Content-Length: 99999999999999999999",
        "Content-Length: 18446744073709551620",
        "Content-Length: 4\r\nContent-Length: 4",
        "Content-Length: 4\r\nContent-Length: 5",
        "Content-Length: 0\r\ncontent-length: 4",
        "Content-Length : 4",
        "Content-Length\t: 4",
        "X: y\r\n Content-Length: 4",
    ] {
        site.assert_refused(format!("{}abcd", post(&format!("{line}\r\n"))), 400);
    }
}

/// CVE-2026-2835.
#[test]
fn transfer_encoding_in_http_1_0_is_refused() {
    let site = Site::start();
    for connection in ["", "Connection: keep-alive\r\n"] {
        let request = format!("POST /ten.txt HTTP/1.0\r\n{connection}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
        site.assert_refused(request, 400);
    }
}

/// A refused framing closes the connection for GET as well: the method does not limit the body.
#[test]
fn a_get_with_two_framings_is_refused() {
    let site = Site::start();
    let request =
        "GET /ten.txt HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    site.assert_refused(request, 400);
}

/// RFC 9110 §9.3.1: a GET may carry a body without meaning; its bytes are not another request.
#[test]
fn the_body_of_a_get_is_not_the_next_request() {
    let site = Site::start();
    let mut client = site.connect();
    let length = SMUGGLED.len();
    client.send(format!(
        "GET /ten.txt HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{SMUGGLED}"
    ));
    client.send("GET /empty.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(client.response().text(), "0123456789");
    assert_eq!(client.response().text(), "");
    assert!(client.is_closed());
    assert!(!site.log().contains("smuggled"));
}

/// CVE-2025-4366: the response does not wait for the body, and the body is not taken for a request.
#[test]
fn a_body_nobody_reads_is_drained_before_the_next_request() {
    let site = Site::start();
    let mut client = site.connect();
    let body = SMUGGLED.repeat(100);
    client.send(post(&format!("Content-Length: {}\r\n", body.len())));
    assert_eq!(client.response().status, 405);
    for piece in body.as_bytes().chunks(700) {
        client.send(piece);
    }
    assert_eq!(
        client.ask("GET /ten.txt HTTP/1.1\r\nHost: a\r\n\r\n").text(),
        "0123456789"
    );
    assert!(!site.log().contains("smuggled"));
}

/// A body too long to be worth reading ends the connection.
#[test]
fn a_long_body_nobody_reads_closes_the_connection() {
    let site = Site::start();
    let mut client = site.connect();
    client.send(post("Content-Length: 100000000\r\n"));
    client.send(SMUGGLED.repeat(1000));
    let response = client.response();
    assert_eq!(response.status, 405);
    assert!(response.closes());
    assert!(client.is_closed());
    assert!(!site.log().contains("smuggled"));
}

/// A client that leaves inside a body leaves nothing behind.
#[test]
fn a_body_that_ends_early_ends_the_connection() {
    let site = Site::start();
    let mut client = site.connect();
    client.send(post("Content-Length: 100\r\n"));
    client.send("only this");
    client.finish();
    assert_eq!(client.response().status, 405);
    assert!(client.is_closed());
    drop(client);
    site.assert_connections_fall_to(0);
}
