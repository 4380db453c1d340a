//! RFC 9112 §5: field lines.

use crate::site::Site;

#[test]
fn malformed_field_lines_are_refused() {
    let site = Site::start();
    for line in [
        "Name : value",
        "Name\t: value",
        "Na me: value",
        "Name",
        ": value",
        "Name: a\0b",
        "Na\0me: value",
        "Name: a\x0bb",
        "Name: \x7f",
        "Na{}me: value",
        "N\u{e4}me: value",
        "Name: a\r\n b",
        "Name: a\r\n\tb",
        "Name: a\r\n ",
    ] {
        site.assert_refused(format!("GET /ten.txt HTTP/1.1\r\nHost: a\r\n{line}\r\n\r\n"), 400);
        site.assert_refused(format!("GET /ten.txt HTTP/1.1\r\n{line}\r\nHost: a\r\n\r\n"), 400);
    }
}

#[test]
fn names_ignore_case_and_values_lose_the_white_space_around_them() {
    let site = Site::start();
    let response = site.ask("GET /ten.txt HTTP/1.1\r\nhOST:\ta \t\r\nRANGE:bytes=2-3\t \r\n\r\n");
    assert_eq!((response.status, response.text()), (206, "23"));
}

#[test]
fn unknown_fields_and_bytes_above_ascii_are_accepted() {
    let site = Site::start();
    let response =
        site.ask(b"GET /ten.txt HTTP/1.1\r\nHost: a\r\nX-Unknown: \xff\xe9\r\nEmpty:\r\n!#$%&'*+.^_`|~9z: a\r\n\r\n");
    assert_eq!(response.status, 200);
}
