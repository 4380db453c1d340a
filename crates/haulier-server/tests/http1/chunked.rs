//! RFC 9112 §7.1: chunked request bodies. The site does not need the body, so it is discarded (row 5). The request that
//! the server sees next shows if the body was parsed correctly.

use crate::site::{SMUGGLED, Site};

const POST: &str = "POST /ten.txt HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
const NEXT: &str = "GET /ten.txt HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn the_next_request_begins_behind_the_last_chunk() {
    let site = Site::start();
    let smuggled = format!("{:x}\r\n{SMUGGLED}\r\n0\r\n\r\n", SMUGGLED.len());
    for body in [
        "0\r\n\r\n",
        "5\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n006\r\n world\r\n000\r\n\r\n",
        "5;name=value;q=\"a b\"\r\nhello\r\n0;last\r\n\r\n",
        "5 ; name\r\nhello\r\n0\r\n\r\n",
        "A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n",
        "2\r\n\r\n\r\n0\r\n\r\n",
        "4\r\n0\r\n\r\r\n0\r\n\r\n",
        &smuggled,
    ] {
        let mut client = site.connect();
        client.send(format!("{POST}{body}{NEXT}"));
        assert_eq!(client.response().status, 405, "{body:?}");
        assert_eq!(client.response().text(), "0123456789", "{body:?}");
    }
    assert!(!site.log().contains("smuggled"));
}

#[test]
fn chunks_may_come_byte_by_byte() {
    let site = Site::start();
    let mut client = site.connect();
    client.send(POST);
    for byte in b"5;a=b\r\nhello\r\n0\r\nTrailer: x\r\n\r\n" {
        client.send([*byte]);
    }
    assert_eq!(client.response().status, 405);
    assert_eq!(client.ask(NEXT).text(), "0123456789");
}

/// CVE-2025-12642: trailers are not fields of this request, nor of the next.
#[test]
fn trailers_are_dropped() {
    let site = Site::start();
    let mut client = site.connect();
    let trailers = "Host: evil\r\nContent-Length: 1000\r\nConnection: close\r\nRange: bytes=0-0\r\n";
    client.send(format!("{POST}1\r\nx\r\n0\r\n{trailers}\r\n{NEXT}"));
    assert_eq!(client.response().status, 405);
    let next = client.response();
    assert_eq!((next.status, next.text()), (200, "0123456789"));
}

/// CVE-2025-55315 among them. The response may be sent before the whole body has come, but no byte after the error may
/// be executed.
#[test]
fn behind_a_malformed_chunk_nothing_is_executed() {
    let site = Site::start();
    for body in [
        "0x5\r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "1_0\r\nhello\r\n0\r\n\r\n",
        " 0\r\n\r\n",
        "0 \r\n\r\n",
        "\r\n0\r\n\r\n",
        "g\r\n\r\n",
        ";ext\r\n\r\n",
        "00000000000000000\r\n\r\n",
        "ffffffffffffffff1\r\n\r\n",
        "10000000000000000\r\n\r\n",
        "0\n\n",
        "0\r\r\n\r\n",
        "0\n\r\n",
        "0\r\n\n",
        "0;a\nb\r\n\r\n",
        "0;a\n\r\n",
        "0;a\r\r\n\r\n",
        "0;a\0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhello\r0\r\n\r\n",
        "5\r\nhello!\r\n0\r\n\r\n",
        "0\r\nno field line\r\n\r\n",
        "0\r\nName : value\r\n\r\n",
        "0\r\nName: a\r\n b\r\n\r\n",
        "0\r\nName: a\0\r\n\r\n",
        "0\r\nName: a\n\r\n",
        "0\r\n\rX",
    ] {
        let mut client = site.connect();
        client.send(format!("{POST}{body}{SMUGGLED}{SMUGGLED}"));
        let status = client.response().status;
        assert!(matches!(status, 400 | 405), "{body:?}: {status}");
        assert!(client.is_closed(), "{body:?} is followed by something");
        assert!(!site.log().contains("smuggled"), "{body:?}");
    }
}

/// The part of a body that came with the head is checked before a file is sent.
#[test]
fn a_malformed_chunk_that_came_with_the_head_is_refused_before_a_file_is_sent() {
    let site = Site::start();
    let get = POST.replace("POST", "GET");
    for body in [
        "0_2e\r\n",
        "5;\r\nhello\r\n0\r\n\r\n",
        "5;bad[=x\r\nhello\r\n0\r\n\r\n",
        "5\nhello",
    ] {
        let mut client = site.connect();
        client.send(format!("{get}{body}{SMUGGLED}"));
        assert_eq!(client.response().status, 400, "{body:?}");
        assert!(client.is_closed(), "{body:?}");
    }
    assert!(!site.log().contains("smuggled"));
    let mut client = site.connect();
    client.send(format!("{get}5;a=\"b\"\r\nhello\r\n0\r\n\r\n{NEXT}"));
    assert_eq!(client.response().text(), "0123456789");
    assert_eq!(client.response().text(), "0123456789");
}

/// A file does not wait for an unwanted body: an error that comes later ends the connection.
#[test]
fn a_malformed_chunk_that_comes_behind_the_answer_ends_the_connection() {
    let site = Site::start();
    let mut client = site.connect();
    client.send(POST.replace("POST", "GET"));
    assert_eq!(client.response().status, 200);
    client.send(format!("0_2e\r\n{SMUGGLED}"));
    assert!(client.is_closed());
    assert!(!site.log().contains("smuggled"));
}

/// An endless extension or trailer section.
#[test]
fn endless_extensions_and_trailers_end_the_connection() {
    let site = Site::start();
    for (begin, more) in [
        ("0;", "e".repeat(5000)),
        ("0", " ".repeat(5000)),
        ("0\r\n", "Trailer: value\r\n".repeat(2100)),
    ] {
        let mut client = site.connect();
        client.send(format!("{POST}{begin}{more}\r\n\r\n{SMUGGLED}"));
        assert!(matches!(client.response().status, 400 | 405));
        assert!(client.is_closed(), "{begin:?}");
    }
    assert!(!site.log().contains("smuggled"));
}

/// An endless chunked body is not drained forever.
#[test]
fn an_endless_chunked_body_nobody_reads_ends_the_connection() {
    let site = Site::start();
    let mut client = site.connect();
    client.send(POST);
    client.send(format!("10000\r\n{}\r\n", "x".repeat(0x10000)).repeat(100));
    client.send(format!("0\r\n\r\n{SMUGGLED}"));
    assert_eq!(client.response().status, 405);
    assert!(client.is_closed());
    assert!(!site.log().contains("smuggled"));
}
