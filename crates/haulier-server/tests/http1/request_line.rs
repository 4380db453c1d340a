//! RFC 9112 §3: method, target, version.

use crate::site::Site;

#[test]
fn a_malformed_request_line_is_refused() {
    let site = Site::start();
    for line in [
        "GET",
        "GET /ten.txt",
        "GET  /ten.txt HTTP/1.1",
        "GET /ten.txt  HTTP/1.1",
        "GET /ten.txt HTTP/1.1 ",
        "GET /ten.txt HTTP/1.1 x",
        " GET /ten.txt HTTP/1.1",
        "GET\t/ten.txt\tHTTP/1.1",
        "GET /ten.txt\0 HTTP/1.1",
        "GET /a b.txt HTTP/1.1",
        "G\"T /ten.txt HTTP/1.1",
        "GET /ten.txt http/1.1",
        "GET /ten.txt HTTP/1",
        "GET /ten.txt XTTP/1.1",
    ] {
        site.assert_refused(format!("{line}\r\nHost: a\r\n\r\n"), 400);
    }
}

#[test]
fn versions_other_than_1_0_and_1_1_are_not_supported() {
    let site = Site::start();
    for version in ["HTTP/0.9", "HTTP/2.0", "HTTP/1.2", "HTTP/9.9"] {
        site.assert_refused(format!("GET /ten.txt {version}\r\nHost: a\r\n\r\n"), 505);
    }
}

/// RFC 9112 §3.2.1.
#[test]
fn the_query_is_no_part_of_the_path() {
    let site = Site::start();
    for target in ["/ten.txt?", "/ten.txt?a=b", "/ten.txt?/../x", "/ten.txt??"] {
        assert_eq!(site.get(target, "").text(), "0123456789", "{target}");
    }
}

/// RFC 9112 §3.2.2.
#[test]
fn the_absolute_form_is_answered() {
    let site = Site::start();
    for target in [
        "http://a/ten.txt",
        "HTTP://a:80/ten.txt?x",
        "https://a/ten.txt",
        "http://[::1]/ten.txt",
    ] {
        assert_eq!(site.get(target, "").text(), "0123456789", "{target}");
    }
    assert_eq!(site.get("http://a", "").text(), "<title>index</title>");
}

/// RFC 9112 §3.2, RFC 3986.
#[test]
fn targets_of_no_known_form_are_refused() {
    let site = Site::start();
    for target in [
        "*",
        "ten.txt",
        "?x",
        "/ten.txt#x",
        "ftp://a/ten.txt",
        "http:///ten.txt",
        "http://u@a/ten.txt",
        "a:80",
    ] {
        site.assert_refused(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
    }
}

/// The path is decoded once, and never leaves the root.
#[test]
fn a_path_means_one_thing_in_every_spelling() {
    let site = Site::start();
    for (target, status) in [
        ("/a%20b.txt", 200),
        ("/caf%C3%A9.txt", 200),
        ("/%74en.txt", 200),
        ("//ten.txt", 200),
        ("/./ten.txt", 200),
        ("/sub/../ten.txt", 200),
        ("/sub/%2e%2E/ten.txt", 200),
        ("/%2574en.txt", 404),
        ("/ten.txt/", 404),
        ("/ten.txt%20", 404),
        ("/ten.txt.", 404),
        ("/TEN.TXT", 404),
        ("/%c0%af../etc/passwd", 404),
        ("/sub\\..\\ten.txt", 404),
        ("/..", 400),
        ("/../etc/passwd", 400),
        ("/%2e%2e/etc/passwd", 400),
        ("/sub/../../etc/passwd", 400),
        ("/..%2f..%2fetc/passwd", 400),
        ("/ten.txt%00", 400),
        ("/ten.txt%00.html", 400),
        ("/ten.txt%0a", 400),
        ("/ten.txt%0d%0aX:y", 400),
        ("/%", 400),
        ("/%zz", 400),
    ] {
        assert_eq!(site.get(target, "").status, status, "{target}");
    }
}

/// A Location names only paths of the site.
#[test]
fn a_directory_without_its_slash_is_redirected_within_the_site() {
    let site = Site::start();
    for (target, location) in [
        ("/sub", "/sub/"),
        ("/sub?a=b", "/sub/?a=b"),
        ("//sub", "/sub/"),
        ("//sub/..//sub", "/sub/"),
        ("/%73ub", "/sub/"),
        ("http://other.example/sub", "/sub/"),
    ] {
        let response = site.get(target, "");
        assert_eq!(
            (response.status, response.field("Location")),
            (308, Some(location)),
            "{target}"
        );
    }
}
