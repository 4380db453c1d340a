//! The framing of requests in the order of RFC 9112 §6 and §9.3, and every disagreement smuggling lives on.

use proptest::prelude::*;

use super::*;
use crate::head::HeadLimits;

fn head(version: &str, lines: &[&str]) -> Option<RequestHead> {
    let limits = HeadLimits {
        request_line: 1024,
        header: 8192,
        fields: 100,
    };
    let mut text = format!("POST / {version}\r\nHost: a\r\n");
    for line in lines {
        text.push_str(line);
        text.push_str("\r\n");
    }
    text.push_str("\r\n");
    RequestHead::parse(&mut text.into_bytes(), &limits, &mut Fields::new())
        .ok()
        .flatten()
}

fn http11(lines: &[&str]) -> RequestHead {
    head("HTTP/1.1", lines).expect("a good head")
}

fn http10(lines: &[&str]) -> RequestHead {
    head("HTTP/1.0", lines).expect("a good head")
}

/// The status of the refusal; a head that cannot even be parsed counts as 400.
fn refusal(version: &str, lines: &[&str]) -> Option<u16> {
    match head(version, lines) {
        None => Some(400),
        Some(head) => body_length(&head).err().map(FramingError::status),
    }
}

#[test]
fn the_length_is_zero_known_or_chunked() {
    assert_eq!(body_length(&http11(&[])), Ok(BodyLength::Known(0)));
    assert_eq!(body_length(&http11(&["Content-Length: 0"])), Ok(BodyLength::Known(0)));
    assert_eq!(
        body_length(&http11(&["content-length:  42 "])),
        Ok(BodyLength::Known(42))
    );
    assert_eq!(
        body_length(&http11(&["Content-Length: 0042"])),
        Ok(BodyLength::Known(42))
    );
    assert_eq!(
        body_length(&http11(&["Content-Length: 9999999999999999999"])),
        Ok(BodyLength::Known(9_999_999_999_999_999_999))
    );
    assert_eq!(
        body_length(&http11(&["Transfer-Encoding: chunked"])),
        Ok(BodyLength::Chunked)
    );
    assert_eq!(
        body_length(&http11(&["transfer-encoding:\tCHUNKED\t"])),
        Ok(BodyLength::Chunked)
    );
    assert_eq!(body_length(&http10(&["Content-Length: 1"])), Ok(BodyLength::Known(1)));
}

/// RFC 9112 §6.3 and reliability: a length that two readers could read differently.
#[test]
fn a_doubtful_content_length_is_refused() {
    for lines in [
        &["Content-Length:"][..],
        &["Content-Length: +5"],
        &["Content-Length: -5"],
        &["Content-Length: 5 5"],
        &["Content-Length: 5, 5"],
        &["Content-Length: 5,"],
        &["Content-Length: 0x5"],
        &["Content-Length: 5_0"],
        &["Content-Length: 5.0"],
        &["Content-Length: 5e1"],
        &["Content-Length: \"5\""],
        &["Content-Length: \u{ff15}"],
        &["Content-Length: 18446744073709551616"],
        &["Content-Length: 00000000000000000005"],
        &["Content-Length: 5", "Content-Length: 5"],
        &["Content-Length: 5", "content-length: 6"],
        &["Content-Length: 5", "X: y", "CONTENT-LENGTH: 0"],
        &["Content-Length : 5"],
        &["Content-Length\t: 5"],
    ] {
        assert_eq!(refusal("HTTP/1.1", lines), Some(400), "{lines:?}");
    }
}

/// RFC 9112 §6.1: both is how smuggling begins.
#[test]
fn transfer_encoding_with_content_length_is_refused() {
    for lines in [
        ["Transfer-Encoding: chunked", "Content-Length: 5"],
        ["Content-Length: 5", "Transfer-Encoding: chunked"],
        ["Content-Length: 0", "transfer-encoding: x"],
        ["Content-Length: 5", "Transfer-Encoding:"],
    ] {
        assert_eq!(refusal("HTTP/1.1", &lines), Some(400), "{lines:?}");
    }
}

/// Every spelling that one server takes for chunked and another does not.
#[test]
fn an_obfuscated_transfer_encoding_is_refused() {
    for lines in [
        &["Transfer-Encoding:"][..],
        &["Transfer-Encoding: identity"],
        &["Transfer-Encoding: xchunked"],
        &["Transfer-Encoding: chunkedx"],
        &["Transfer-Encoding: chunked, identity"],
        &["Transfer-Encoding: chunked, chunked"],
        &["Transfer-Encoding: chunked,"],
        &["Transfer-Encoding: ,chunked"],
        &["Transfer-Encoding: \"chunked\""],
        &["Transfer-Encoding: 'chunked'"],
        &["Transfer-Encoding: chunked;q=1"],
        &["Transfer-Encoding: chunked gzip"],
        &["Transfer-Encoding: \u{b}chunked"],
        &["Transfer-Encoding: chunked\u{c}"],
        &["Transfer-Encoding: \u{a0}chunked"],
        &["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"],
        &["Transfer-Encoding: chunked", "Transfer-Encoding: identity"],
        &["Transfer-Encoding: identity", "Transfer-Encoding: chunked"],
        &["Transfer-Encoding: gzip", "Transfer-Encoding: chunked"],
        &["Transfer-Encoding : chunked"],
        &[" Transfer-Encoding: chunked"],
        &["X: y", " Transfer-Encoding: chunked"],
        &["Transfer-Encoding:\r\n chunked"],
        &["Transfer-Encoding\0: chunked"],
    ] {
        assert_eq!(refusal("HTTP/1.1", lines), Some(400), "{lines:?}");
    }
}

#[test]
fn a_name_that_only_looks_like_transfer_encoding_means_nothing() {
    assert_eq!(
        body_length(&http11(&["Transfer_Encoding: chunked"])),
        Ok(BodyLength::Known(0))
    );
    assert_eq!(
        body_length(&http11(&["Xransfer-Encoding: chunked"])),
        Ok(BodyLength::Known(0))
    );
}

/// RFC 9112 §6.1: 501 for a coding not understood.
#[test]
fn a_well_formed_unknown_coding_is_not_implemented() {
    assert_eq!(refusal("HTTP/1.1", &["Transfer-Encoding: gzip, chunked"]), Some(501));
}

/// RFC 9112 §6.1, CVE-2026-2835.
#[test]
fn transfer_encoding_in_http_1_0_is_refused() {
    assert_eq!(refusal("HTTP/1.0", &["Transfer-Encoding: chunked"]), Some(400));
    assert_eq!(refusal("HTTP/1.0", &["Transfer-Encoding: gzip, chunked"]), Some(400));
}

/// RFC 9112 §9.3.
#[test]
fn the_connection_goes_on_as_version_and_options_say() {
    for (version, lines, expected) in [
        ("HTTP/1.1", &[][..], true),
        ("HTTP/1.1", &["Connection: close"], false),
        ("HTTP/1.1", &["connection: CLOSE"], false),
        ("HTTP/1.1", &["Connection: keep-alive"], true),
        ("HTTP/1.1", &["Connection: Upgrade, close"], false),
        ("HTTP/1.1", &["Connection: keep-alive", "Connection: close"], false),
        ("HTTP/1.1", &["Connection: closed"], true),
        ("HTTP/1.0", &[], false),
        ("HTTP/1.0", &["Connection: keep-alive"], true),
        ("HTTP/1.0", &["Connection: te", "Connection: Keep-Alive"], true),
        ("HTTP/1.0", &["Connection: keep-alive, close"], false),
        ("HTTP/1.0", &["Connection: upgrade"], false),
    ] {
        let head = head(version, lines).expect("a good head");
        assert_eq!(wants_keep_alive(&head), expected, "{version} {lines:?}");
    }
}

/// RFC 9110 §10.1.1.
#[test]
fn only_100_continue_is_an_expectation_we_know() {
    assert_eq!(expectation(&http11(&[])), Expectation::None);
    assert_eq!(expectation(&http11(&["Expect: 100-continue"])), Expectation::Continue);
    assert_eq!(expectation(&http11(&["Expect: 100-Continue"])), Expectation::Continue);
    assert_eq!(expectation(&http11(&["Expect: 100-continue, x"])), Expectation::Unknown);
    assert_eq!(expectation(&http11(&["Expect: x"])), Expectation::Unknown);
    assert_eq!(
        expectation(&http11(&["Expect: 100-continue", "Expect: x"])),
        Expectation::Unknown
    );
    assert_eq!(expectation(&http10(&["Expect: 100-continue"])), Expectation::None);
}

proptest! {
    #[test]
    fn a_length_is_read_back(length in 0..10_000_000_000_000_000_000u64) {
        let line = format!("Content-Length: {length}");
        prop_assert_eq!(body_length(&http11(&[&line])), Ok(BodyLength::Known(length)));
    }

    #[test]
    fn whatever_has_two_framings_is_refused(one in "[ -~]{0,12}", other in "[ -~]{0,12}") {
        let (length, coding) = (format!("Content-Length: {one}"), format!("Transfer-Encoding: {other}"));
        prop_assert!(refusal("HTTP/1.1", &[&length, &coding]).is_some());
        prop_assert!(refusal("HTTP/1.1", &[&length, &length]).is_some());
        prop_assert!(refusal("HTTP/1.1", &[&coding, &coding]).is_some());
    }

    #[test]
    fn a_coding_is_chunked_or_refused(value in "[ \t,]{0,2}(chunked|CHUNKED|gzip|x)?[ \t,;]{0,2}(chunked)?") {
        let line = format!("Transfer-Encoding: {value}");
        let refused = refusal("HTTP/1.1", &[&line]).is_some();
        prop_assert_eq!(refused, !value.trim().eq_ignore_ascii_case("chunked"));
    }
}
