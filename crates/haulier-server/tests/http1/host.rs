//! RFC 9110 §7.2, RFC 9112 §3.2: the host of a request (row 8).

use tempfile::TempDir;

use crate::site::{Site, site};

#[test]
fn host_must_stand_once_and_be_an_authority() {
    let server = Site::start();
    for lines in [
        "",
        "X: y\r\n",
        "Host: a\r\nHost: a\r\n",
        "Host: a\r\nX: y\r\nhOsT: b\r\n",
        "Host: a b\r\n",
        "Host: a/b\r\n",
        "Host: a?b\r\n",
        "Host: u@a\r\n",
        "Host: http://a\r\n",
        "Host: a:80:80\r\n",
        "Host: a:port\r\n",
        "Host: [::1\r\n",
        "Host: [::g]\r\n",
        "Host: \"a\"\r\n",
        "Host: a\u{e9}\r\n",
    ] {
        server.assert_refused(format!("GET /ten.txt HTTP/1.1\r\n{lines}\r\n"), 400);
    }
}

#[test]
fn every_form_of_authority_is_accepted() {
    let server = Site::start();
    for host in [
        "a",
        "a:80",
        "a:",
        "A.example.",
        "127.0.0.1",
        "[::1]",
        "[2001:db8::1]:8080",
        "a-b_c.example",
    ] {
        let response = server.ask(format!("GET /ten.txt HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(response.status, 200, "{host}");
    }
}

#[test]
fn http_1_0_needs_no_host() {
    let server = Site::start();
    assert_eq!(server.ask("GET /ten.txt HTTP/1.0\r\n\r\n").status, 200);
    server.assert_refused("GET /ten.txt HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", 400);
}

/// RFC 9112 §3.2.2: the target's authority wins over Host, and both must be well-formed.
#[test]
fn the_site_is_found_by_authority() {
    let roots: Vec<TempDir> = ["one", "two", "wild"]
        .map(|content| {
            let root = TempDir::new().expect("a temporary directory");
            std::fs::write(root.path().join("index.html"), content).expect("a file");
            root
        })
        .into();
    let server = Site::start_with(|settings| {
        settings.sites = vec![
            site("one", &["one.example", "1.example"], roots[0].path()),
            site("two", &["two.example"], roots[1].path()),
            site("wild", &["*.wild.example"], roots[2].path()),
        ];
    });
    for (target, host, expected) in [
        ("/", "one.example", Some("one")),
        ("/", "ONE.Example", Some("one")),
        ("/", "one.example:8080", Some("one")),
        ("/", "one.example.", Some("one")),
        ("/", "1.example", Some("one")),
        ("/", "two.example", Some("two")),
        ("/", "a.wild.example", Some("wild")),
        ("/", "a.b.wild.example", Some("wild")),
        ("http://two.example/", "one.example", Some("two")),
        ("http://two.example:80/", "one.example", Some("two")),
        ("/", "wild.example", None),
        ("/", "xone.example", None),
        ("/", "one.example.evil", None),
        ("/", "", None),
    ] {
        let response = server.ask(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        match expected {
            Some(content) => assert_eq!((response.status, response.text()), (200, content), "{target} {host}"),
            // RFC 9110 §15.5.20.
            None => assert_eq!(response.status, 421, "{target} {host}"),
        }
    }
    server.assert_refused("GET http://two.example/ HTTP/1.1\r\nHost: a b\r\n\r\n", 400);
    server.assert_refused("GET http://two.example/ HTTP/1.1\r\n\r\n", 400);
}
