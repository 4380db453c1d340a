//! RFC 9110 §9: methods, for files.

use crate::site::Site;

#[test]
fn head_is_get_without_the_body() {
    let site = Site::start();
    for target in ["/ten.txt", "/", "/missing", "/sub", "/large.bin", "/empty.txt"] {
        let get = site.get(target, "");
        let mut client = site.connect();
        client.send(format!(
            "HEAD {target} HTTP/1.1\r\nHost: a\r\n\r\nGET /ten.txt HTTP/1.1\r\nHost: a\r\n\r\n"
        ));
        let head = client.response_to_head();
        assert_eq!(head.status, get.status, "{target}");
        for name in ["Content-Length", "Content-Type", "ETag", "Last-Modified", "Location"] {
            assert_eq!(head.field(name), get.field(name), "{target} {name}");
        }
        assert_eq!(
            client.response().text(),
            "0123456789",
            "what follows a HEAD of {target}"
        );
    }
}

/// RFC 9110 §15.5.6: 405 lists the allowed methods.
#[test]
fn files_can_only_be_read() {
    let site = Site::start();
    for method in ["POST", "PUT", "DELETE", "PATCH", "PROPFIND", "get", "TRACE", "X"] {
        let response = site.ask(format!("{method} /ten.txt HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(response.status, 405, "{method}");
        assert!(
            response
                .field("Allow")
                .is_some_and(|allow| allow.contains("GET") && allow.contains("HEAD")),
            "{method}"
        );
    }
    let content = std::fs::read(site.root().join("ten.txt")).expect("the file is still there");
    assert_eq!(content, b"0123456789");
}

/// RFC 9110 §9.3.7.
#[test]
fn options_says_what_is_allowed() {
    let site = Site::start();
    for target in ["/ten.txt", "*"] {
        let response = site.ask(format!("OPTIONS {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!((response.status, response.body.len()), (204, 0), "{target}");
        // RFC 9110 §8.6: no Content-Length with 204.
        assert_eq!(response.field("Content-Length"), None);
        assert!(
            response.field("Allow").is_some_and(|allow| allow.contains("GET")),
            "{target}"
        );
    }
}

/// RFC 9110 §9.3.6: haulier is no proxy; bytes for the tunnel are ignored.
#[test]
fn connect_opens_no_tunnel() {
    let site = Site::start();
    for target in ["127.0.0.1:80", "a:443"] {
        let mut client = site.connect();
        client.send(format!("CONNECT {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let status = client.response().status;
        assert!((400..=501).contains(&status), "{target}: {status}");
    }
}
