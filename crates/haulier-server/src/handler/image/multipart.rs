//! Parser for `multipart/form-data` of browsers and upload scripts (RFC 7578), for a complete body.
//!
//! The body's length is limited before, and nothing is copied: a part is a slice of it.

use bytes::Bytes;

/// Most parts of an upload.
const MOST_PARTS: usize = 100;
/// Most bytes of the field lines of a part.
const MOST_HEAD: usize = 8 * 1024;

/// A part of a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FormPart {
    /// The client's name of the file; `None` for another field.
    pub(super) file_name: Option<String>,
    pub(super) content: Bytes,
}

/// The body is not multipart/form-data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a multipart/form-data body")]
pub(super) struct Malformed;

/// The boundary in a Content-Type, bare or quoted (RFC 2046 §5.1.1).
pub(super) fn boundary(content_type: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(content_type).ok()?;
    let value = parameter(text, "boundary")?;
    (1..=70).contains(&value.len()).then(|| value.into_bytes())
}

/// True if a Content-Type is that of a form with files.
pub(super) fn is_form(content_type: &[u8]) -> bool {
    let lower = content_type.to_ascii_lowercase();
    lower
        .windows(b"multipart/form-data".len())
        .any(|part| part == b"multipart/form-data")
}

/// Splits a body into its parts; a part may be empty.
pub(super) fn parts(body: &Bytes, boundary: &[u8]) -> Result<Vec<FormPart>, Malformed> {
    let delimiter = [b"\r\n--", boundary].concat();
    // The first delimiter may be at the very beginning, without a line end before it.
    let first = if body.starts_with(&delimiter[2..]) {
        delimiter.len() - 2
    } else {
        find(body, &delimiter).ok_or(Malformed)? + delimiter.len()
    };
    let mut parts = Vec::new();
    let mut rest = body.slice(first..);
    while !rest.starts_with(b"--") {
        if parts.len() == MOST_PARTS {
            return Err(Malformed);
        }
        // White space may follow a delimiter (RFC 2046 §5.1.1).
        let line = find(&rest[..rest.len().min(MOST_HEAD)], b"\r\n").ok_or(Malformed)?;
        if !rest[..line].iter().all(|byte| matches!(byte, b' ' | b'\t')) {
            return Err(Malformed);
        }
        let end = find(&rest[line..], &delimiter).ok_or(Malformed)? + line;
        parts.push(part(&rest.slice(line..end))?);
        rest = rest.slice(end + delimiter.len()..);
    }
    Ok(parts)
}

/// Parses a part: field lines and content, from the line end before them.
fn part(bytes: &Bytes) -> Result<FormPart, Malformed> {
    let head_end = find(&bytes[..bytes.len().min(MOST_HEAD)], b"\r\n\r\n").ok_or(Malformed)?;
    let head = String::from_utf8_lossy(&bytes[..head_end]);
    let disposition = head.split("\r\n").find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.trim().eq_ignore_ascii_case("Content-Disposition").then_some(value)
    });
    Ok(FormPart {
        file_name: disposition.and_then(|value| parameter(value, "filename")),
        content: bytes.slice(head_end + 4..),
    })
}

/// The value of a parameter, without its quotes.
fn parameter(text: &str, name: &str) -> Option<String> {
    let mut rest = text;
    loop {
        rest = &rest[rest.find(';')? + 1..];
        let (found, value) = rest.split_once('=')?;
        let value = value.trim_start();
        let is_it = found.trim().eq_ignore_ascii_case(name);
        let Some(quoted) = value.strip_prefix('"') else {
            if is_it {
                return Some(value.split(';').next().unwrap_or("").trim().to_owned());
            }
            continue;
        };
        let (value, behind) = unquoted(quoted);
        if is_it {
            return Some(value);
        }
        rest = behind;
    }
}

/// Text up to its closing quote, and what follows. Browsers write a quote in a name as `%22`; others as `\"`.
fn unquoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (value, &text[at + 1..]),
            // A path from Windows has bare backslashes.
            '\\' if text[at + 1..].starts_with('"') => {
                letters.next();
                value.push('"');
            }
            letter => value.push(letter),
        }
    }
    (value, "")
}

fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    let (&first, rest) = needle.split_first()?;
    let mut from = 0;
    loop {
        from += bytes[from..].iter().position(|&byte| byte == first)?;
        if bytes[from + 1..].starts_with(rest) {
            return Some(from);
        }
        from += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &str = "--XX\r\nContent-Disposition: form-data; name=\"note\"\r\n\r\nhello\r\n\
        --XX\r\ncontent-disposition: form-data; name=\"userfile\"; filename=\"a b.JPG\"\r\nContent-Type: image/jpeg\r\n\r\n\
        \u{1}\r\n--X\r\n\r\n--XX--\r\n";

    fn read(body: &str) -> Result<Vec<FormPart>, Malformed> {
        parts(&Bytes::copy_from_slice(body.as_bytes()), b"XX")
    }

    #[test]
    fn parts_are_told_apart_by_the_whole_boundary() {
        let parts = read(BODY).expect("a form");
        assert_eq!(parts.len(), 2);
        assert_eq!(
            (parts[0].file_name.as_deref(), &parts[0].content[..]),
            (None, &b"hello"[..])
        );
        assert_eq!(parts[1].file_name.as_deref(), Some("a b.JPG"));
        assert_eq!(&parts[1].content[..], b"\x01\r\n--X\r\n");
        assert_eq!(read("--XX--\r\n"), Ok(Vec::new()));
        assert_eq!(
            read("preamble\r\n--XX \r\n\r\nx\r\n--XX--").map(|parts| parts.len()),
            Ok(1)
        );
    }

    #[test]
    fn a_body_that_is_cut_is_refused_wherever_that_happens() {
        let whole = BODY.len() - "--\r\n".len();
        for length in 0..whole {
            if BODY.is_char_boundary(length) {
                assert_eq!(read(&BODY[..length]), Err(Malformed), "cut to {length}");
            }
        }
    }

    #[test]
    fn what_is_damaged_is_refused_and_never_a_panic() {
        for place in 0..BODY.len() {
            for byte in [0, b'\r', b'\n', b'-', b'"', b'X', 0xff] {
                let mut damaged = BODY.as_bytes().to_vec();
                damaged[place] = byte;
                let _ = parts(&damaged.into(), b"XX");
            }
        }
        let many = format!("{}--XX--", "--XX\r\n\r\nx\r\n".repeat(MOST_PARTS + 1));
        assert_eq!(read(&many), Err(Malformed));
    }

    #[test]
    fn boundaries_are_bare_or_quoted() {
        let of = |text: &str| boundary(text.as_bytes()).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert_eq!(of("multipart/form-data; boundary=XX").as_deref(), Some("XX"));
        assert_eq!(
            of("multipart/form-data; charset=utf-8; BOUNDARY=\"a;b\"; x=y").as_deref(),
            Some("a;b")
        );
        assert_eq!(of("multipart/form-data"), None);
        assert_eq!(of("multipart/form-data; boundary="), None);
        assert!(is_form(b"Multipart/Form-Data; boundary=x") && !is_form(b"image/jpeg"));
    }

    #[test]
    fn file_names_keep_their_quotes_and_backslashes() {
        let name = |value: &str| parameter(value, "filename");
        assert_eq!(
            name(r#"form-data; name="x"; filename="C:\dir\a.png""#).as_deref(),
            Some(r"C:\dir\a.png")
        );
        assert_eq!(name(r#"form-data; filename="a\"b.png""#).as_deref(), Some(r#"a"b.png"#));
        assert_eq!(name(r#"form-data; name="filename=no"; other=1"#), None);
        assert_eq!(name("form-data; filename=bare.png; x=1").as_deref(), Some("bare.png"));
    }
}
