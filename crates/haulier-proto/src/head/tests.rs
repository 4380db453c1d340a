//! Request heads in the order of RFC 9112: message format, request line, target, fields, limits.

use proptest::prelude::*;

use super::*;

const LIMITS: HeadLimits = HeadLimits {
    request_line: 16 * 1024,
    header: 32 * 1024,
    fields: 100,
};

/// The head and what is left in the buffer.
fn parse_with(input: &[u8], limits: &HeadLimits) -> Result<Option<(RequestHead, Vec<u8>)>, HeadError> {
    let mut buffer = input.to_vec();
    let head = RequestHead::parse(&mut buffer, limits, &mut Fields::new())?;
    Ok(head.map(|head| (head, buffer)))
}

fn parse(input: &str) -> Result<RequestHead, HeadError> {
    parse_with(input.as_bytes(), &LIMITS).map(|parsed| parsed.expect("a complete head").0)
}

fn status(input: &str) -> u16 {
    parse(input).map_or_else(HeadError::status, |_| 200)
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("ASCII")
}

fn optional_text(bytes: Option<&[u8]>) -> Option<&str> {
    bytes.map(text)
}

#[test]
fn a_request_comes_apart_into_its_parts() {
    let head =
        parse("POST /a%20b/c.php?x=1&y=?z HTTP/1.1\r\nHost: example.com:8080\r\nX-A:\t one \r\nx-a:two\r\nE:\r\n\r\n")
            .expect("a good head");
    assert_eq!(head.method(), Method::Post);
    assert_eq!(text(head.method_name()), "POST");
    assert_eq!(text(head.target()), "/a%20b/c.php?x=1&y=?z");
    assert_eq!(text(head.path()), "/a%20b/c.php");
    assert_eq!(optional_text(head.query()), Some("x=1&y=?z"));
    assert_eq!(head.version(), Version::Http11);
    assert_eq!(optional_text(head.authority()), Some("example.com:8080"));
    assert_eq!(optional_text(head.host()), Some("example.com"));
    let lines: Vec<_> = head
        .fields()
        .iter()
        .map(|(name, value)| (text(name), text(value)))
        .collect();
    assert_eq!(
        lines,
        [("Host", "example.com:8080"), ("X-A", "one"), ("x-a", "two"), ("E", "")]
    );
}

#[test]
fn an_incomplete_head_changes_nothing() {
    let whole = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    for length in 0..whole.len() {
        let mut buffer = whole[..length].to_vec();
        let parsed = RequestHead::parse(&mut buffer, &LIMITS, &mut Fields::new());
        assert!(matches!(parsed, Ok(None)), "{length} bytes");
        assert_eq!(buffer, &whole[..length]);
    }
}

#[test]
fn what_follows_the_head_stays_in_the_buffer() {
    let (head, rest) = parse_with(b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\n", &LIMITS)
        .expect("a good head")
        .expect("a complete head");
    assert_eq!(text(head.path()), "/1");
    assert_eq!(rest, b"GET /2 HTTP/1.1\r\n");
}

#[test]
fn memory_of_an_earlier_head_brings_none_of_its_fields() {
    let mut buffer = b"GET / HTTP/1.1\r\nHost: a\r\nCookie: secret\r\nHost-X: 1\r\n\r\n".to_vec();
    let first = RequestHead::parse(&mut buffer, &LIMITS, &mut Fields::new())
        .expect("good")
        .expect("complete");
    let mut storage = first.into_storage();
    let mut buffer = b"GET /2 HTTP/1.1\r\nHost: b\r\n\r\n".to_vec();
    let second = RequestHead::parse(&mut buffer, &LIMITS, &mut storage)
        .expect("good")
        .expect("complete");
    assert_eq!(second.fields().len(), 1);
    assert_eq!(second.fields().known(Known::Cookie), None);
    assert_eq!(optional_text(second.host()), Some("b"));
}

/// RFC 9112 §2.2: a server should ignore at least one empty line before the request line.
#[test]
fn an_empty_line_before_the_request_line_is_ignored() {
    assert_eq!(status("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), 200);
}

/// RFC 9112 §2.2: bare CR is never a line end; a bare LF may be, and we say no.
#[test]
fn line_ends_other_than_cr_lf_are_refused() {
    for head in [
        "GET / HTTP/1.1\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\n",
        "GET / HTTP/1.1\r\nHost: a\n\n",
        "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\rHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\rX: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\rX: b\r\n\r\n",
    ] {
        assert_eq!(status(head), 400, "{head:?}");
    }
}

#[test]
fn every_method_keeps_its_name_and_case() {
    for (name, method) in [
        ("GET", Method::Get),
        ("HEAD", Method::Head),
        ("POST", Method::Post),
        ("PUT", Method::Put),
        ("DELETE", Method::Delete),
        ("OPTIONS", Method::Options),
        ("PATCH", Method::Patch),
        ("TRACE", Method::Trace),
        ("get", Method::Other),
        ("PROPFIND", Method::Other),
        ("M-SEARCH", Method::Other),
    ] {
        let head = parse(&format!("{name} / HTTP/1.1\r\nHost: a\r\n\r\n")).expect("a token");
        assert_eq!(head.method(), method, "{name}");
        assert_eq!(text(head.method_name()), name);
    }
}

/// RFC 9112 §3.
#[test]
fn a_malformed_request_line_is_refused() {
    for line in [
        "GET",
        "GET /",
        "GET  / HTTP/1.1",
        "GET /  HTTP/1.1",
        "GET / a HTTP/1.1",
        " GET / HTTP/1.1",
        "GET\t/\tHTTP/1.1",
        "GET / HTTP/1.1 ",
        "GET / HTTP/1.1x",
        "GET / http/1.1",
        "GET / HTTP/11",
        "GET / HTTP /1.1",
        "G(T / HTTP/1.1",
        "G\0T / HTTP/1.1",
        "GET /\0 HTTP/1.1",
        "GET /\x7f HTTP/1.1",
        "/ HTTP/1.1",
    ] {
        assert_eq!(status(&format!("{line}\r\nHost: a\r\n\r\n")), 400, "{line:?}");
    }
}

/// RFC 9110 §15.6.6.
#[test]
fn another_major_version_is_not_supported() {
    for version in ["HTTP/2.0", "HTTP/0.9", "HTTP/3.0", "HTTP/1.2"] {
        assert_eq!(status(&format!("GET / {version}\r\nHost: a\r\n\r\n")), 505, "{version}");
    }
}

/// RFC 9112 §3.2.1, §3.2.4.
#[test]
fn targets_that_are_no_form_of_rfc_9112_are_refused() {
    for line in [
        "GET * HTTP/1.1",
        "GET index.html HTTP/1.1",
        "GET ?a=b HTTP/1.1",
        "GET /a#b HTTP/1.1",
        "GET example.com:80 HTTP/1.1",
        "GET ftp://a/ HTTP/1.1",
        "GET http:///x HTTP/1.1",
        "GET http:// HTTP/1.1",
        "GET http://user@a/ HTTP/1.1",
        "GET http://a:b/ HTTP/1.1",
        "GET http://a:123456/ HTTP/1.1",
        "GET http:/a HTTP/1.1",
        "CONNECT / HTTP/1.1",
        "CONNECT http://a/ HTTP/1.1",
    ] {
        assert_eq!(status(&format!("{line}\r\nHost: a\r\n\r\n")), 400, "{line}");
    }
}

/// RFC 9112 §3.2.2: the authority of the target wins over Host.
#[test]
fn an_absolute_target_names_the_authority() {
    for (target, authority, path, query) in [
        ("http://example.com/x?y", "example.com", "/x", Some("y")),
        ("HTTP://Example.com:8080/", "Example.com:8080", "/", None),
        ("https://a/b?c?d", "a", "/b", Some("c?d")),
        ("http://example.com", "example.com", "/", None),
        ("http://[::1]:80/", "[::1]:80", "/", None),
        ("http://a//b", "a", "//b", None),
    ] {
        let head = parse(&format!("GET {target} HTTP/1.1\r\nHost: other\r\n\r\n")).expect(target);
        assert_eq!(optional_text(head.authority()), Some(authority), "{target}");
        assert_eq!(text(head.path()), path, "{target}");
        assert_eq!(optional_text(head.query()), query, "{target}");
    }
}

#[test]
fn asterisk_and_authority_forms_have_no_path() {
    let options = parse("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n").expect("the asterisk form");
    assert_eq!((options.path(), options.query()), (&b""[..], None));
    let connect = parse("CONNECT example.com:443 HTTP/1.1\r\nHost: example.com\r\n\r\n").expect("the authority form");
    assert_eq!(
        (connect.path(), optional_text(connect.authority())),
        (&b""[..], Some("example.com:443"))
    );
}

#[test]
fn an_empty_query_is_not_a_missing_one() {
    let query = |target: &str| {
        let head = parse(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")).expect("a good target");
        head.query().map(<[u8]>::to_vec)
    };
    assert_eq!(query("/x?"), Some(Vec::new()));
    assert_eq!(query("/x"), None);
}

/// RFC 9112 §3.2.
#[test]
fn host_must_stand_once_and_be_an_authority() {
    for (lines, expected) in [
        ("", 400),
        ("X: y\r\n", 400),
        ("Host: a\r\nHost: a\r\n", 400),
        ("Host: a\r\nhost: b\r\n", 400),
        ("Host: a b\r\n", 400),
        ("Host: a,b\r\n", 200),
        ("Host: a/b\r\n", 400),
        ("Host: http://a\r\n", 400),
        ("Host: user@a\r\n", 400),
        ("Host: a:80:80\r\n", 400),
        ("Host: a:x\r\n", 400),
        ("Host: a:-1\r\n", 400),
        ("Host: :80\r\n", 400),
        ("Host: [::1\r\n", 400),
        ("Host: [x]\r\n", 400),
        ("Host: a\"b\r\n", 400),
        ("Host: a<b\r\n", 400),
        ("Host: \u{e9}\r\n", 400),
        ("Host:\r\n", 200),
        ("Host: a\r\n", 200),
        ("Host: a_b.example:65535\r\n", 200),
        ("Host: a:\r\n", 200),
        ("Host: 127.0.0.1:80\r\n", 200),
        ("Host: [2001:db8::1]:80\r\n", 200),
    ] {
        assert_eq!(status(&format!("GET / HTTP/1.1\r\n{lines}\r\n")), expected, "{lines:?}");
    }
}

#[test]
fn http_1_0_needs_no_host() {
    let head = parse("GET / HTTP/1.0\r\n\r\n").expect("a good head");
    assert_eq!((head.version(), head.authority()), (Version::Http10, None));
    assert_eq!(status("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n"), 400);
}

/// RFC 9112 §5.
#[test]
fn malformed_field_lines_are_refused() {
    for line in [
        "Name : value",
        "Name\t: value",
        " Name: value",
        "Na me: value",
        "Name",
        ": value",
        "Na\0me: value",
        "Name: va\0lue",
        "Name: va\x7flue",
        "Name: va\x1blue",
        "Näme: value",
        "Na(me: value",
        "Name: value\r\n folded",
        "Name: value\r\n\tfolded",
    ] {
        assert_eq!(
            status(&format!("GET / HTTP/1.1\r\nHost: a\r\n{line}\r\n\r\n")),
            400,
            "{line:?}"
        );
        assert_eq!(
            status(&format!("GET / HTTP/1.1\r\n{line}\r\nHost: a\r\n\r\n")),
            400,
            "{line:?} first"
        );
    }
}

#[test]
fn field_values_may_hold_tabs_and_bytes_above_ascii() {
    let input = b"GET / HTTP/1.1\r\nHost: a\r\nX: a\tb\xe9\xff\r\n\r\n";
    let (head, _) = parse_with(input, &LIMITS)
        .expect("a good head")
        .expect("a complete head");
    assert_eq!(head.fields().get("x"), Some(&b"a\tb\xe9\xff"[..]));
}

#[test]
fn limits_are_exact() {
    let limits = HeadLimits {
        request_line: 64,
        header: 100,
        fields: 4,
    };
    let outcome = |input: &str| match parse_with(input.as_bytes(), &limits) {
        Ok(Some(_)) => 200,
        Ok(None) => 0,
        Err(error) => error.status(),
    };
    let line = |length: usize| format!("GET /{} HTTP/1.1\r\n", "a".repeat(length - 16));
    assert_eq!(outcome(&format!("{}Host: a\r\n\r\n", line(64))), 200);
    assert_eq!(outcome(&format!("{}Host: a\r\n\r\n", line(65))), 414);
    let header = |length: usize| format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "b".repeat(length - 16));
    assert_eq!(outcome(&header(100)), 200);
    assert_eq!(outcome(&header(101)), 431);
    let fields = |count: usize| format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "A: b\r\n".repeat(count - 1));
    assert_eq!(outcome(&fields(4)), 200);
    assert_eq!(outcome(&fields(5)), 431);
}

#[test]
fn a_head_that_will_be_too_large_is_refused_before_it_is_complete() {
    let refused = |input: String| parse_with(input.as_bytes(), &LIMITS).map(|parsed| parsed.is_some());
    assert_eq!(
        refused(format!("GET /{}", "a".repeat(16 * 1024))),
        Err(HeadError::LineTooLong)
    );
    assert_eq!(refused("A".repeat(16 * 1024 + 1)), Err(HeadError::LineTooLong));
    assert_eq!(
        refused(format!("GET / HTTP/1.1\r\nX: {}", "a".repeat(32 * 1024))),
        Err(HeadError::TooLarge)
    );
    assert_eq!(
        refused(format!("GET / HTTP/1.1\r\n{}", "a:b\r\n".repeat(101))),
        Err(HeadError::TooManyFields)
    );
    assert_eq!(refused("\r\n".repeat(32 * 1024)), Err(HeadError::TooLarge));
}

#[test]
fn more_fields_than_the_stack_holds_may_be_allowed() {
    let limits = HeadLimits { fields: 1000, ..LIMITS };
    let input = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "A: b\r\n".repeat(999));
    let (head, _) = parse_with(input.as_bytes(), &limits)
        .expect("a good head")
        .expect("a complete head");
    assert_eq!(head.fields().len(), 1000);
}

/// Compares two results of parsing, field by field.
fn outcome(buffer: &mut Vec<u8>) -> Result<Option<String>, HeadError> {
    let head = RequestHead::parse(buffer, &LIMITS, &mut Fields::new())?;
    Ok(head.map(|head| {
        format!(
            "{:?} {:?} {:?}",
            head.target(),
            head.authority(),
            head.fields().iter().collect::<Vec<_>>()
        )
    }))
}

proptest! {
    #[test]
    fn what_is_printed_is_parsed(
        method in "[A-Z]{1,8}",
        path in "(/[a-z0-9%.]{0,6}){1,4}",
        query in proptest::option::of("[a-z=&?/]{0,10}"),
        fields in proptest::collection::vec(("X-[A-Za-z0-9-]{1,10}", "([!-~]([ -~]{0,10}[!-~])?)?"), 0..20),
    ) {
        prop_assume!(method != "CONNECT");
        let target = query.as_ref().map_or_else(|| path.clone(), |query| format!("{path}?{query}"));
        let lines: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let head = parse(&format!("{method} {target} HTTP/1.1\r\nHost: a\r\n{lines}\r\n")).expect("a good head");
        prop_assert_eq!(text(head.method_name()), method);
        prop_assert_eq!(text(head.path()), path);
        prop_assert_eq!(optional_text(head.query()), query.as_deref());
        let read: Vec<_> = head.fields().iter().skip(1).map(|(name, value)| (text(name).into(), text(value).into())).collect();
        prop_assert_eq!(read, fields);
    }

    #[test]
    fn any_split_gives_the_same_result(
        input in "(GET|POST|\\*)? ?(/|http://a/|\\*)(a|\\?|#){0,3} HTTP/1\\.[01]\r?\n(Host: a\r\n)?(X-[a-c]{1,3} ?:\t?[ -~]{0,4}\r\n|\n| ){0,4}\r\n(rest)?",
        at in any::<prop::sample::Index>(),
    ) {
        let mut whole = input.clone().into_bytes();
        let expected = outcome(&mut whole);
        let cut = at.index(input.len() + 1);
        let mut buffer = input.as_bytes()[..cut].to_vec();
        match outcome(&mut buffer) {
            Ok(None) => {
                prop_assert_eq!(&buffer[..], &input.as_bytes()[..cut]);
                buffer.extend_from_slice(&input.as_bytes()[cut..]);
                prop_assert_eq!(outcome(&mut buffer), expected);
            }
            Ok(found) => prop_assert_eq!(Ok(found), expected),
            // Fewer bytes may show another fault first; but it is a fault.
            Err(_) => prop_assert!(expected.is_err()),
        }
    }

    #[test]
    fn any_bytes_are_parsed_without_panic(input in proptest::collection::vec(any::<u8>(), 0..80)) {
        let mut buffer = input.clone();
        if let Ok(None) = outcome(&mut buffer) {
            prop_assert_eq!(buffer, input);
        }
    }
}
