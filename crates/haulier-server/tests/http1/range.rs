//! RFC 9110 §14: ranges of a file.

use crate::client::Response;
use crate::site::{LARGE, Site, large};

const MODIFIED: &str = "Sun, 09 Sep 2001 01:46:40 GMT";

fn range(site: &Site, target: &str, value: &str) -> Response {
    site.get(target, &format!("Range: {value}\r\n"))
}

#[test]
fn a_range_is_answered_with_its_bytes() {
    let site = Site::start();
    assert_eq!(site.get("/ten.txt", "").field("Accept-Ranges"), Some("bytes"));
    for (value, content, place) in [
        ("bytes=0-0", "0", "bytes 0-0/10"),
        ("bytes=2-4", "234", "bytes 2-4/10"),
        ("bytes=7-", "789", "bytes 7-9/10"),
        ("bytes=-3", "789", "bytes 7-9/10"),
        ("bytes=-99", "0123456789", "bytes 0-9/10"),
        ("bytes=5-99999999999999999999999", "56789", "bytes 5-9/10"),
        ("bytes=0-1,20-", "01", "bytes 0-1/10"),
    ] {
        let response = range(&site, "/ten.txt", value);
        assert_eq!((response.status, response.text()), (206, content), "{value}");
        assert_eq!(response.field("Content-Range"), Some(place), "{value}");
        assert_eq!(response.field("Content-Type"), Some("text/plain; charset=utf-8"));
        assert!(response.field("ETag").is_some() && response.field("Last-Modified").is_some());
    }
}

#[test]
fn ranges_of_a_large_file_are_exact() {
    let site = Site::start();
    let content = large();
    for (start, end) in [
        (0, 0),
        (4095, 4096),
        (1, 300_000),
        (LARGE - 100_000, LARGE - 1),
        (0, LARGE - 1),
        (131_071, 131_072),
    ] {
        let response = range(&site, "/large.bin", &format!("bytes={start}-{end}"));
        assert_eq!(response.status, 206);
        assert!(response.body == content[start..=end], "{start}-{end}");
    }
}

/// RFC 9110 §15.5.17.
#[test]
fn a_range_beyond_the_end_is_not_satisfiable() {
    let site = Site::start();
    for (target, value, place) in [
        ("/ten.txt", "bytes=10-", "bytes */10"),
        ("/ten.txt", "bytes=99-100", "bytes */10"),
        ("/ten.txt", "bytes=-0", "bytes */10"),
        ("/empty.txt", "bytes=0-", "bytes */0"),
    ] {
        let response = range(&site, target, value);
        assert_eq!(
            (response.status, response.field("Content-Range")),
            (416, Some(place)),
            "{target} {value}"
        );
    }
}

/// RFC 9110 §14.2: a malformed range, or one of another unit, is ignored.
#[test]
fn a_range_that_is_none_is_ignored() {
    let site = Site::start();
    for value in [
        "bytes=",
        "bytes=-",
        "bytes=5-2",
        "bytes=a-b",
        "bytes 0-1",
        "lines=0-1",
        "bytes=0-1-2",
        "bytes=0-1\r\nRange: bytes=2-3",
    ] {
        let response = range(&site, "/ten.txt", value);
        assert_eq!((response.status, response.text()), (200, "0123456789"), "{value}");
    }
}

/// RFC 9110 §14.2: Range is defined for GET only.
#[test]
fn head_ignores_range() {
    let site = Site::start();
    let mut client = site.connect();
    client.send("HEAD /ten.txt HTTP/1.1\r\nHost: a\r\nRange: bytes=0-1\r\n\r\n");
    let response = client.response_to_head();
    assert_eq!((response.status, response.field("Content-Length")), (200, Some("10")));
}

/// RFC 9110 §14.6.
#[test]
fn several_ranges_come_as_parts() {
    let site = Site::start();
    let response = range(&site, "/ten.txt", "bytes=0-1, 4-5 ,-1");
    assert_eq!(response.status, 206);
    assert_eq!(response.field("Content-Range"), None);
    assert_eq!(
        parts(&response),
        [("bytes 0-1/10", "01"), ("bytes 4-5/10", "45"), ("bytes 9-9/10", "9")]
            .map(|(place, content)| (place.to_owned(), content.as_bytes().to_vec()))
    );
}

#[test]
fn parts_of_a_large_file_are_exact_and_the_connection_goes_on() {
    let site = Site::start();
    let content = large();
    let mut client = site.connect();
    for _ in 0..2 {
        let request = "GET /large.bin HTTP/1.1\r\nHost: a\r\nRange: bytes=0-299999,5000000-5999999,-10\r\n\r\n";
        let found = parts(&client.ask(request));
        let expected = [
            &content[..300_000],
            &content[5_000_000..6_000_000],
            &content[LARGE - 10..],
        ];
        assert_eq!(found.len(), 3);
        assert!(
            found
                .iter()
                .zip(expected)
                .all(|((_, found), expected)| found == expected)
        );
    }
    assert_eq!(
        client.ask("GET /ten.txt HTTP/1.1\r\nHost: a\r\n\r\n").text(),
        "0123456789"
    );
}

/// CVE-2011-3192: a small request does not cause a huge response.
#[test]
fn many_or_overlapping_ranges_get_the_whole_file() {
    let site = Site::start();
    let single = |count: usize| {
        (0..count)
            .map(|place| format!("{0}-{0}", place * 2))
            .collect::<Vec<_>>()
            .join(",")
    };
    assert_eq!(range(&site, "/large.bin", &format!("bytes={}", single(16))).status, 206);
    for value in [
        single(17),
        single(1000),
        "0-,".repeat(10),
        "0-9,5-9999999,0-9999999".into(),
        "0-8388608,8388608-".into(),
    ] {
        let response = range(&site, "/large.bin", &format!("bytes={value}"));
        assert_eq!(
            (response.status, response.body.len()),
            (200, LARGE),
            "{}",
            &value[..value.len().min(60)]
        );
    }
}

/// RFC 9110 §13.1.5.
#[test]
fn if_range_names_the_version_the_range_is_of() {
    let site = Site::start();
    let whole = site.get("/ten.txt", "");
    let tag = whole.field("ETag").expect("an entity tag");
    for (value, status) in [
        (tag, 206),
        (MODIFIED, 206),
        ("\"x\"", 200),
        (&format!("W/{tag}"), 200),
        ("Sun, 09 Sep 2001 01:46:41 GMT", 200),
        ("Sun, 09 Sep 2001 01:46:39 GMT", 200),
        ("nonsense", 200),
    ] {
        let response = site.get("/ten.txt", &format!("Range: bytes=0-1\r\nIf-Range: {value}\r\n"));
        assert_eq!(response.status, status, "{value}");
    }
    assert_eq!(site.get("/ten.txt", &format!("If-Range: {tag}\r\n")).status, 200);
}

/// The parts of a multipart/byteranges response: Content-Range and content.
fn parts(response: &Response) -> Vec<(String, Vec<u8>)> {
    let kind = response.field("Content-Type").expect("a type");
    let boundary = kind
        .strip_prefix("multipart/byteranges; boundary=")
        .unwrap_or_else(|| panic!("not multipart: {kind}"));
    let mut rest = response
        .body
        .strip_prefix(format!("--{boundary}\r\n").as_bytes())
        .expect("a first boundary");
    let mut parts = Vec::new();
    loop {
        let head_end = rest
            .windows(4)
            .position(|end| end == b"\r\n\r\n")
            .expect("a part's head");
        let head = std::str::from_utf8(&rest[..head_end]).expect("a head of text");
        let place = head
            .split("\r\n")
            .find_map(|line| line.strip_prefix("Content-Range: "))
            .expect("a Content-Range");
        let (first, last) = place
            .strip_prefix("bytes ")
            .and_then(|place| place.split_once('/')?.0.split_once('-'))
            .expect("bytes a-b/c");
        let length = last.parse::<usize>().expect("a number") - first.parse::<usize>().expect("a number") + 1;
        let (content, after) = rest[head_end + 4..].split_at(length);
        parts.push((place.to_owned(), content.to_vec()));
        let after = after
            .strip_prefix(format!("\r\n--{boundary}").as_bytes())
            .expect("a boundary behind the part");
        if after == b"--\r\n" {
            return parts;
        }
        rest = after.strip_prefix(b"\r\n").expect("another part");
    }
}
