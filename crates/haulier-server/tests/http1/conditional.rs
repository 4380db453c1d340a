//! RFC 9110 §13: conditional requests, for a file.

use crate::site::Site;

const MODIFIED: &str = "Sun, 09 Sep 2001 01:46:40 GMT";
const EARLIER: &str = "Sun, 09 Sep 2001 01:46:39 GMT";
const LATER: &str = "Sun, 09 Sep 2001 01:46:41 GMT";

fn etag(site: &Site) -> String {
    site.get("/ten.txt", "")
        .field("ETag")
        .expect("an entity tag")
        .to_owned()
}

#[test]
fn a_file_has_validators() {
    let site = Site::start();
    let response = site.get("/ten.txt", "");
    assert_eq!(response.field("Last-Modified"), Some(MODIFIED));
    let tag = response.field("ETag").expect("an entity tag");
    assert!(tag.starts_with('"') && tag.ends_with('"') && tag.len() > 2, "{tag}");
    assert_ne!(site.get("/empty.txt", "").field("ETag"), Some(tag));
}

/// RFC 9110 §13.1.2, §15.4.5.
#[test]
fn if_none_match_saves_the_body() {
    let site = Site::start();
    let tag = etag(&site);
    for value in [
        tag.clone(),
        format!("W/{tag}"),
        format!("\"x\", {tag}"),
        format!("\"x\"\r\nIf-None-Match: {tag}"),
        "*".into(),
    ] {
        let response = site.get("/ten.txt", &format!("If-None-Match: {value}\r\n"));
        assert_eq!(
            (response.status, response.field("ETag")),
            (304, Some(tag.as_str())),
            "{value}"
        );
        assert_eq!(response.field("Content-Length"), None, "{value}");
        assert!(response.field("Date").is_some());
    }
    for value in ["\"x\"", "W/\"x\"", "x", &tag[1..]] {
        assert_eq!(
            site.get("/ten.txt", &format!("If-None-Match: {value}\r\n")).status,
            200,
            "{value}"
        );
    }
}

#[test]
fn a_304_leaves_the_connection_in_step() {
    let site = Site::start();
    let mut client = site.connect();
    let conditional = format!(
        "GET /ten.txt HTTP/1.1\r\nHost: a\r\nIf-None-Match: {}\r\n\r\n",
        etag(&site)
    );
    client.send(format!(
        "{conditional}GET /ten.txt HTTP/1.1\r\nHost: a\r\n\r\n{conditional}"
    ));
    let statuses: Vec<u16> = (0..3).map(|_| client.response().status).collect();
    assert_eq!(statuses, [304, 200, 304]);
}

/// RFC 9110 §13.1.3.
#[test]
fn if_modified_since_compares_with_the_files_date() {
    let site = Site::start();
    for (date, status) in [
        (MODIFIED, 304),
        (LATER, 304),
        ("Sunday, 09-Sep-01 01:46:40 GMT", 304),
        ("Sun Sep  9 01:46:40 2001", 304),
        (EARLIER, 200),
        ("2001-09-09", 200),
        ("", 200),
    ] {
        assert_eq!(
            site.get("/ten.txt", &format!("If-Modified-Since: {date}\r\n")).status,
            status,
            "{date}"
        );
    }
}

/// RFC 9110 §13.1.1, §13.1.4.
#[test]
fn a_condition_for_another_version_fails() {
    let site = Site::start();
    let tag = etag(&site);
    for (line, status) in [
        (format!("If-Match: {tag}"), 200),
        ("If-Match: *".into(), 200),
        (format!("If-Match: \"x\", {tag}"), 200),
        ("If-Match: \"x\"".into(), 412),
        (format!("If-Match: W/{tag}"), 412),
        (format!("If-Unmodified-Since: {MODIFIED}"), 200),
        (format!("If-Unmodified-Since: {EARLIER}"), 412),
        ("If-Unmodified-Since: never".into(), 200),
    ] {
        assert_eq!(site.get("/ten.txt", &format!("{line}\r\n")).status, status, "{line}");
    }
}

/// RFC 9110 §13.2.2.
#[test]
fn conditions_are_judged_in_their_order() {
    let site = Site::start();
    let tag = etag(&site);
    for (lines, status) in [
        (
            format!("If-None-Match: \"x\"\r\nIf-Modified-Since: {MODIFIED}\r\n"),
            200,
        ),
        (format!("If-None-Match: {tag}\r\nIf-Modified-Since: {EARLIER}\r\n"), 304),
        (format!("If-Match: {tag}\r\nIf-Unmodified-Since: {EARLIER}\r\n"), 200),
        (format!("If-Match: \"x\"\r\nIf-None-Match: {tag}\r\n"), 412),
        (format!("If-None-Match: {tag}\r\nRange: bytes=0-1\r\n"), 304),
        ("If-Match: \"x\"\r\nRange: bytes=0-1\r\n".into(), 412),
    ] {
        assert_eq!(site.get("/ten.txt", &lines).status, status, "{lines}");
    }
}

/// RFC 9110 §13.2.1: a request that would not be answered with 2xx has no conditions.
#[test]
fn a_missing_file_stays_missing() {
    let site = Site::start();
    assert_eq!(site.get("/missing", "If-None-Match: *\r\n").status, 404);
    assert_eq!(site.get("/missing", "If-Match: \"x\"\r\n").status, 404);
}

#[test]
fn a_changed_file_has_another_tag() {
    let site = Site::start();
    let before = etag(&site);
    let path = site.root().join("ten.txt");
    std::fs::write(site.root().join("new"), "replaced!!").expect("a file");
    std::fs::rename(site.root().join("new"), path).expect("a replaced file");
    // The open-file cache may answer with the old version for a moment, but consistently.
    for _ in 0..200 {
        let response = site.get("/ten.txt", "");
        let is_old = response.field("ETag") == Some(before.as_str());
        assert_eq!(response.text(), if is_old { "0123456789" } else { "replaced!!" });
        if !is_old {
            return;
        }
        crate::site::wait(std::time::Duration::from_millis(50));
    }
    panic!("the new file never appears");
}
