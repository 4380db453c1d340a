use super::*;
use crate::field::Known;
use crate::head::{Method, Version};

const GET: [(&str, &str); 4] = [
    (":method", "GET"),
    (":scheme", "https"),
    (":authority", "example.com:8443"),
    (":path", "/a%20b?c=d"),
];

fn head<'a>(lines: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<RequestHead, HeadError> {
    let lines = lines
        .into_iter()
        .map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    head_of_bytes(&Limits::default(), lines)
}

fn head_of_bytes<'a>(
    limits: &Limits,
    lines: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
) -> Result<RequestHead, HeadError> {
    let mut taken = RequestLines::new(limits, &mut Fields::new());
    for (name, value) in lines {
        taken.line(name, value);
    }
    taken.finish()
}

fn is_malformed(found: &Result<RequestHead, HeadError>) -> bool {
    matches!(found, Err(HeadError::Malformed(_)))
}

#[test]
fn a_request_reads_like_one_of_http_1() {
    let head = head(GET.into_iter().chain([("accept", "*/*"), ("x-mine", "")])).expect("a request");
    assert_eq!((head.method(), head.version()), (Method::Get, Version::Http2));
    assert_eq!((head.method_name(), head.target()), (&b"GET"[..], &b"/a%20b?c=d"[..]));
    assert_eq!((head.path(), head.query()), (&b"/a%20b"[..], Some(&b"c=d"[..])));
    assert_eq!(head.authority(), Some(&b"example.com:8443"[..]));
    assert_eq!(head.host(), Some(&b"example.com"[..]));
    assert_eq!(head.fields().known(Known::Host), Some(&b"example.com:8443"[..]));
    let names: Vec<_> = head.fields().iter().map(|(name, _)| name).collect();
    assert_eq!(names, [&b"accept"[..], b"x-mine", b"host"]);
}

#[test]
fn host_stands_in_for_the_authority_and_must_not_differ_from_it() {
    let without = [GET[0], GET[1], GET[3]];
    let found = head(without.into_iter().chain([("host", "other.example")])).expect("a request");
    assert_eq!(found.authority(), Some(&b"other.example"[..]));
    assert_eq!(found.fields().get_all("host").count(), 1);
    let found = head(GET.into_iter().chain([("host", "EXAMPLE.com:8443")])).expect("a request");
    assert_eq!(found.fields().get_all("host").count(), 1);
    assert!(is_malformed(&head(GET.into_iter().chain([("host", "other.example")]))));
    assert!(is_malformed(&head(
        GET.into_iter().chain([("host", "example.com:8443"); 2])
    )));
    assert!(is_malformed(&head(without)));
    assert!(is_malformed(&head(without.into_iter().chain([("host", "")]))));
}

#[test]
fn pseudo_fields_are_complete_single_known_and_first() {
    for line in GET {
        let others = GET.into_iter().filter(|(name, _)| *name != line.0);
        assert!(is_malformed(&head(others)), "without {}", line.0);
        assert!(is_malformed(&head(GET.into_iter().chain([line]))), "twice {}", line.0);
    }
    assert!(is_malformed(&head(GET.into_iter().chain([(":status", "200")]))));
    assert!(is_malformed(&head(GET.into_iter().chain([(":protocol", "websocket")]))));
    assert!(is_malformed(&head([("accept", "*/*")].into_iter().chain(GET))));
    assert!(is_malformed(&head([("cookie", "a=1")].into_iter().chain(GET))));
}

#[test]
fn what_could_become_another_line_or_word_is_refused() {
    for (place, values) in [
        (0, &["", "GET /", "GE\r\nT", "G\0T", "GET:", "\u{e9}"][..]),
        (1, &["", "HTTPS", "ftp", "http\n"]),
        (2, &["", "a b", "a\r\nx: y", "user@host", "a/b", "a:b", "[::1"]),
        (
            3,
            &[
                "",
                "a",
                "*",
                "/a b",
                "/\r\n",
                "/\0",
                "/\t",
                "/\u{7f}",
                "/#f",
                "http://a/",
            ],
        ),
    ] {
        for value in values {
            let mut lines = GET;
            lines[place].1 = value;
            assert!(is_malformed(&head(lines)), "{}: {value:?}", lines[place].0);
        }
    }
    for (name, value) in [
        ("", "1"),
        ("X-Capital", "1"),
        ("a b", "1"),
        ("a:", "1"),
        ("a\r\n", "1"),
        ("a\0", "1"),
        ("\u{e9}", "1"),
        ("x", "a\r\nb"),
        ("x", "a\0"),
        ("x", "a\n"),
        ("x", " a"),
        ("x", "a\t"),
        ("x", "\u{7f}"),
        ("connection", "close"),
        ("proxy-connection", "close"),
        ("keep-alive", "timeout=5"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("te", "gzip"),
        ("te", "trailers, gzip"),
    ] {
        assert!(
            is_malformed(&head(GET.into_iter().chain([(name, value)]))),
            "{name:?}: {value:?}"
        );
    }
    assert!(head(GET.into_iter().chain([("te", "trailers")])).is_ok());
    assert!(head(GET.into_iter().chain([("x", "a \t b\u{e9}")])).is_ok());
}

#[test]
fn options_may_ask_about_the_server_and_connect_has_an_authority_alone() {
    let mut lines = GET;
    (lines[0].1, lines[3].1) = ("OPTIONS", "*");
    let found = head(lines).expect("OPTIONS *");
    assert_eq!((found.target(), found.path()), (&b"*"[..], &b""[..]));
    let connect = [(":method", "CONNECT"), (":authority", "example.com:443")];
    let found = head(connect).expect("CONNECT");
    assert_eq!(
        (found.method(), found.target()),
        (Method::Connect, &b"example.com:443"[..])
    );
    assert!(is_malformed(&head(connect.into_iter().chain([(":path", "/")]))));
    assert!(is_malformed(&head([connect[0]])));
}

#[test]
fn the_pieces_of_a_cookie_are_joined() {
    let pieces = [("cookie", "a=1"), ("x", "y"), ("cookie", "b=2"), ("cookie", "c=3")];
    let found = head(GET.into_iter().chain(pieces)).expect("a request");
    assert_eq!(found.fields().known(Known::Cookie), Some(&b"a=1; b=2; c=3"[..]));
    assert!(!found.fields().is_repeated(Known::Cookie));
    let found = head(GET.into_iter().chain([pieces[0]])).expect("a request");
    assert_eq!(found.fields().known(Known::Cookie), Some(&b"a=1"[..]));
}

#[test]
fn lines_count_pieces_of_a_cookie_too() {
    let limits = Limits {
        fields: 10,
        ..Limits::default()
    };
    let get = GET.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    let with = |count| {
        get.into_iter()
            .chain(std::iter::repeat_n((&b"cookie"[..], &b"a"[..]), count))
    };
    assert!(head_of_bytes(&limits, with(10)).is_ok());
    assert_eq!(head_of_bytes(&limits, with(11)).err(), Some(HeadError::TooManyFields));
}

#[test]
fn every_line_weighs_32_bytes_more() {
    let get = GET.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    let size: usize = get.iter().map(|(name, value)| name.len() + value.len() + 32).sum();
    let limits = |header_list| Limits {
        header_list,
        ..Limits::default()
    };
    assert!(head_of_bytes(&limits(size as u32), get).is_ok());
    assert_eq!(
        head_of_bytes(&limits(size as u32 - 1), get).err(),
        Some(HeadError::TooLarge)
    );
}

#[test]
fn a_path_beyond_its_limit_is_another_error() {
    let path = format!("/{}", "a".repeat(16 * 1024));
    let mut lines = GET;
    lines[3].1 = &path;
    assert_eq!(head(lines).err(), Some(HeadError::LineTooLong));
    lines[3].1 = &path[..16 * 1024];
    assert!(head(lines).is_ok());
}

#[test]
fn nothing_is_stored_behind_a_fault() {
    let limits = Limits::default();
    let mut lines = RequestLines::new(&limits, &mut Fields::new());
    for _ in 0..100_000 {
        lines.line(b"x", &[b'v'; 4000]);
    }
    assert!(lines.fields.buffer().len() <= limits.header_list as usize);
    assert_eq!(lines.size(), limits.header_list);
    assert_eq!(lines.finish().err(), Some(HeadError::TooLarge));
}
