//! Request heads and their framing.

use haulier_proto::field::{Fields, Known, is_name, is_value};
use haulier_proto::framing;
use haulier_proto::head::{HeadError, HeadLimits, RequestHead, Version};

const LIMITS: HeadLimits = HeadLimits {
    request_line: 1024,
    header: 2048,
    fields: 20,
};

/// An accepted head is unambiguous, survives printing, and does not depend on how it arrives.
pub fn check(data: &[u8]) {
    let mut buffer = data.to_vec();
    let parsed = RequestHead::parse(&mut buffer, &LIMITS, &mut Fields::new());
    match &parsed {
        Ok(None) => assert_eq!(buffer, data, "an incomplete head changes nothing"),
        Ok(Some(head)) => {
            assert!(
                data.ends_with(&buffer) && buffer.len() < data.len(),
                "the rest is a proper end of the input"
            );
            check_line_ends(&data[..data.len() - buffer.len()]);
            check_parts(head);
            check_framing(head);
            let again = print(head);
            let mut buffer = again.clone();
            let printed =
                RequestHead::parse(&mut buffer, &LIMITS, &mut Fields::new()).expect("what was accepted before");
            assert_eq!(print(&printed.expect("a complete head")), again);
        }
        Err(error) => assert!(matches!(error.status(), 400 | 414 | 431 | 505)),
    }
    check_pieces(data, &parsed, &buffer);
}

/// CR and LF come in pairs only, and the head ends at its first empty line.
fn check_line_ends(head: &[u8]) {
    let pairs = head.windows(2).filter(|pair| pair == b"\r\n").count();
    assert_eq!(head.iter().filter(|&&byte| byte == b'\r').count(), pairs);
    assert_eq!(head.iter().filter(|&&byte| byte == b'\n').count(), pairs);
    let leading = head.iter().take_while(|byte| b"\r\n".contains(byte)).count();
    let end = head[leading..].windows(4).position(|end| end == b"\r\n\r\n");
    assert_eq!(end, Some(head.len() - leading - 4));
}

fn check_parts(head: &RequestHead) {
    let target = head.target();
    assert!(!target.iter().any(|&byte| byte <= b' ' || byte == 0x7f || byte == b'#'));
    assert!(is_name(head.method_name()));
    assert!(head.path().is_empty() || head.path().starts_with(b"/"));
    assert!(!head.path().contains(&b'?'));
    assert!(head.fields().len() <= LIMITS.fields);
    for (name, value) in head.fields().iter() {
        assert!(is_name(name) && is_value(value));
        assert_eq!(value, value.trim_ascii());
    }
    let hosts = head.fields().get_all("host").count();
    assert!(hosts == 1 || (hosts == 0 && head.version() == Version::Http10));
    if let Some(authority) = head.authority() {
        assert!(!authority.iter().any(|byte| b"/?#@\\ \"<>".contains(byte)));
    }
}

fn check_framing(head: &RequestHead) {
    let lengths = head.fields().get_all("content-length").count();
    let codings = head.fields().get_all("transfer-encoding").count();
    let length = framing::body_length(head);
    if lengths + codings > 1 || (codings > 0 && head.version() == Version::Http10) {
        assert!(length.is_err(), "two framings are none");
    }
    if lengths + codings == 0 {
        assert_eq!(length, Ok(framing::BodyLength::Known(0)));
    }
    let closes = head
        .fields()
        .known(Known::Connection)
        .is_some_and(|value| value.eq_ignore_ascii_case(b"close"));
    assert!(!(closes && framing::wants_keep_alive(head)));
}

fn print(head: &RequestHead) -> Vec<u8> {
    let version = head.version().as_str().as_bytes();
    let mut text = [head.method_name(), b" ", head.target(), b" ", version, b"\r\n"].concat();
    for (name, value) in head.fields().iter() {
        text.extend_from_slice(&[name, b":", value, b"\r\n"].concat());
    }
    text.extend_from_slice(b"\r\n");
    text
}

/// Fewer bytes first may show another fault first, but the verdict is the same.
fn check_pieces(data: &[u8], whole: &Result<Option<RequestHead>, HeadError>, rest: &[u8]) {
    for pieces in super::cuts(data) {
        let mut buffer = Vec::new();
        let mut found = Ok(None);
        for piece in pieces {
            buffer.extend_from_slice(piece);
            if matches!(found, Ok(None)) {
                found = RequestHead::parse(&mut buffer, &LIMITS, &mut Fields::new());
            }
        }
        match (&found, whole) {
            (Ok(Some(head)), Ok(Some(expected))) => {
                assert_eq!(print(head), print(expected));
                assert_eq!(buffer, rest);
            }
            (Ok(None), Ok(None)) | (Err(_), Err(_)) => {}
            other => panic!("pieces give another verdict than the whole: {other:?}"),
        }
    }
}
