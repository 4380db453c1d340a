//! The path of a request target: from the spelling of the client to the one name it means, and back.
//!
//! A path is decoded exactly once (RFC 3986 §2.4), and its dot segments are resolved after decoding, so no spelling of
//! `..` survives. A path that two servers could read differently is refused, not repaired. The result is bytes, not
//! text: file names need not be UTF-8, and an overlong `/` is merely a name that does not exist.

use std::borrow::Cow;

/// A fault in a path. The client made it, and the answer is 400.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It does not begin with `/`.
    #[error("path does not begin with a slash")]
    NotAbsolute,
    /// A `%` that two hexadecimal digits do not follow.
    #[error("percent sign without two hexadecimal digits")]
    BadEscape,
    /// `%2F`: some programs take it for a slash, others do not (RFC 3986 §2.2).
    #[error("percent-encoded slash")]
    EncodedSlash,
    /// A zero byte: for the system, a file name ends there.
    #[error("zero byte in path")]
    Nul,
    /// Another control byte, 0x01–0x1F or 0x7F. A line break in a name ends up in a field, a log or a pattern that
    /// stops at it (CVE-2019-11043).
    #[error("control byte in path")]
    Control,
    /// More `..` than directories.
    #[error("path leads above its root")]
    AboveRoot,
}

/// Percent-decodes a path once and resolves dot segments and repeated slashes.
///
/// `raw` is the path as sent, without its query. The result begins with `/`, has no segment `.` or `..`, no `//`, no
/// control byte, and keeps a trailing slash (`/a/.` and `/a/b/..` become `/a/`). It borrows `raw` if
/// nothing changes. A backslash is a byte like any other.
pub fn normalize(raw: &[u8]) -> Result<Cow<'_, [u8]>, PathError> {
    if raw.first() != Some(&b'/') {
        return Err(PathError::NotAbsolute);
    }
    if is_normal(raw) {
        return Ok(Cow::Borrowed(raw));
    }
    let mut path = Vec::with_capacity(raw.len());
    path.push(b'/');
    let mut segments = raw[1..].split(|&byte| byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        let start = path.len();
        decode(segment, &mut path)?;
        match &path[start..] {
            b"" => {}
            b"." => path.truncate(start),
            b".." => {
                path.truncate(start);
                pop_segment(&mut path)?;
            }
            _ if segments.peek().is_some() => path.push(b'/'),
            _ => {}
        }
    }
    Ok(Cow::Owned(path))
}

/// Appends a path as it may stand in a Location or a link: everything outside `pchar` and `/` is percent-encoded
/// (RFC 3986 §3.3), so nothing in it can end a field or an attribute.
///
/// A result that begins with `//` would name another host (RFC 3986 §4.2); leading slashes become one. A relative
/// name with a colon needs `./` before it.
pub fn encode(path: &[u8], out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let repeated = path.iter().take_while(|&&byte| byte == b'/').count().saturating_sub(1);
    for &byte in &path[repeated..] {
        if byte == b'/' || is_pchar(byte) {
            out.push(byte);
        } else {
            out.extend_from_slice(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
    }
}

/// True if nothing has to be decoded, resolved or refused. Every request passes here, so the usual path costs two
/// passes without a branch per byte, which the compiler turns into vector instructions.
fn is_normal(raw: &[u8]) -> bool {
    let has_special = raw.iter().fold(false, |found, &byte| {
        found | (byte < b' ') | (byte == b'%') | (byte == 0x7f)
    });
    let neighbours = raw.iter().zip(raw.get(1..).unwrap_or_default());
    let may_resolve = neighbours.fold(false, |found, (&byte, &next)| {
        found | ((byte == b'/') & ((next == b'/') | (next == b'.')))
    });
    !has_special && (!may_resolve || !has_segment_to_resolve(raw))
}

/// An empty segment before the last, or `.` or `..`.
fn has_segment_to_resolve(raw: &[u8]) -> bool {
    let mut segments = raw.split(|&byte| byte == b'/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        if matches!(segment, b"." | b"..") || (segment.is_empty() && segments.peek().is_some()) {
            return true;
        }
    }
    false
}

/// Appends one segment, decoded.
fn decode(segment: &[u8], path: &mut Vec<u8>) -> Result<(), PathError> {
    let mut rest = segment;
    while let [byte, after @ ..] = rest {
        let mut byte = *byte;
        rest = after;
        if byte == b'%' {
            let [high, low, after @ ..] = rest else {
                return Err(PathError::BadEscape);
            };
            byte = hex(*high)? << 4 | hex(*low)?;
            rest = after;
        }
        match byte {
            // A bare slash has ended the segment before.
            b'/' => return Err(PathError::EncodedSlash),
            0 => return Err(PathError::Nul),
            0x01..=0x1f | 0x7f => return Err(PathError::Control),
            _ => path.push(byte),
        }
    }
    Ok(())
}

/// Takes the last segment off a path that ends with a slash.
fn pop_segment(path: &mut Vec<u8>) -> Result<(), PathError> {
    let parent = path[..path.len() - 1]
        .iter()
        .rposition(|&byte| byte == b'/')
        .ok_or(PathError::AboveRoot)?;
    path.truncate(parent + 1);
    Ok(())
}

const fn hex(digit: u8) -> Result<u8, PathError> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        b'A'..=b'F' => Ok(digit - b'A' + 10),
        _ => Err(PathError::BadEscape),
    }
}

/// `pchar` without percent-encoding: unreserved, sub-delims, `:` and `@`.
const fn is_pchar(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'-' | b'.' | b'_' | b'~' | b'!' | b'$' | b'&'..=b',' | b';' | b'=' | b':' | b'@'
        )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn normal(raw: &str) -> Result<String, PathError> {
        normalize(raw.as_bytes()).map(|path| String::from_utf8_lossy(&path).into_owned())
    }

    #[test]
    fn a_path_with_nothing_to_do_is_borrowed() {
        for raw in [
            "/",
            "/index.php",
            "/a/b/",
            "/.well-known/acme",
            "/..a",
            "/a..",
            "/a/...",
            "/a.b/c",
            "/a\\b",
            "/é",
            "/a=b;c,d@e:f",
        ] {
            let path = normalize(raw.as_bytes()).expect("a plain path");
            assert!(matches!(path, Cow::Borrowed(_)), "{raw}");
            assert_eq!(path, raw.as_bytes());
        }
    }

    #[test]
    fn escapes_are_decoded_once() {
        for (raw, path) in [
            ("/%41", "/A"),
            ("/caf%C3%a9", "/café"),
            ("/a%20b", "/a b"),
            ("/%2541", "/%41"),
            ("/%252e%252e/x", "/%2e%2e/x"),
            ("/100%25", "/100%"),
            ("/%3Fq", "/?q"),
            ("/a%5Cb", "/a\\b"),
        ] {
            assert_eq!(normal(raw).as_deref(), Ok(path), "{raw}");
        }
    }

    #[test]
    fn dot_segments_and_repeated_slashes_are_resolved() {
        for (raw, path) in [
            ("//", "/"),
            ("//evil.example/x", "/evil.example/x"),
            ("/a//b", "/a/b"),
            ("/a/./b", "/a/b"),
            ("/a/../b", "/b"),
            ("/a/b/../../c", "/c"),
            ("/a/b/..", "/a/"),
            ("/a/b/../", "/a/"),
            ("/a/.", "/a/"),
            ("/.", "/"),
            ("/a/..", "/"),
            ("/a/%2e%2E/b", "/b"),
            ("/a/%2e/b", "/a/b"),
            ("/a/.%2e/b", "/b"),
            ("/a//../b", "/b"),
            ("/a///", "/a/"),
        ] {
            assert_eq!(normal(raw).as_deref(), Ok(path), "{raw}");
        }
    }

    #[test]
    fn what_two_readers_could_read_differently_is_refused() {
        for (raw, error) in [
            ("", PathError::NotAbsolute),
            ("*", PathError::NotAbsolute),
            ("a/b", PathError::NotAbsolute),
            ("%2fa", PathError::NotAbsolute),
            ("/%", PathError::BadEscape),
            ("/%4", PathError::BadEscape),
            ("/%4/1", PathError::BadEscape),
            ("/%zz", PathError::BadEscape),
            ("/%+1", PathError::BadEscape),
            ("/%u0041", PathError::BadEscape),
            ("/a%2fb", PathError::EncodedSlash),
            ("/..%2F..%2Fetc/passwd", PathError::EncodedSlash),
            ("/echo.php%00.txt", PathError::Nul),
            ("/a\0b", PathError::Nul),
            ("/a%0d%0aX: y", PathError::Control),
            ("/index.php/PATH%0AINFO", PathError::Control),
            ("/a\tb", PathError::Control),
            ("/%7f", PathError::Control),
            ("/..", PathError::AboveRoot),
            ("/../etc/passwd", PathError::AboveRoot),
            ("/a/../../b", PathError::AboveRoot),
            ("/%2e%2e/", PathError::AboveRoot),
            ("//..", PathError::AboveRoot),
        ] {
            assert_eq!(normal(raw), Err(error), "{raw:?}");
        }
    }

    #[test]
    fn an_overlong_slash_stays_two_strange_bytes() {
        assert_eq!(normalize(b"/a%c0%afb").as_deref(), Ok(&b"/a\xc0\xafb"[..]));
    }

    #[test]
    fn encoding_leaves_nothing_that_ends_a_field_or_names_a_host() {
        for (path, encoded) in [
            ("/a/b", "/a/b"),
            ("/a b", "/a%20b"),
            ("/é", "/%C3%A9"),
            ("/x\r\nSet-Cookie: a=b", "/x%0D%0ASet-Cookie:%20a=b"),
            ("/100%", "/100%25"),
            ("/a?b#c", "/a%3Fb%23c"),
            ("//evil.example/", "/evil.example/"),
            ("///x//y", "/x//y"),
            ("/\\evil.example/", "/%5Cevil.example/"),
            ("/\"<>`", "/%22%3C%3E%60"),
            ("", ""),
            ("name", "name"),
        ] {
            let mut out = Vec::new();
            encode(path.as_bytes(), &mut out);
            assert_eq!(String::from_utf8(out).expect("ASCII"), encoded, "{path:?}");
        }
    }

    proptest! {
        #[test]
        fn a_normal_path_never_leaves_the_root(raw in "/([a./]|%2e|%2E|%41|%25|[^a./%]){0,20}") {
            if let Ok(path) = normalize(raw.as_bytes()) {
                check(&path)?;
            }
        }

        #[test]
        fn any_bytes_are_refused_or_made_normal(raw in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(path) = normalize(&raw) {
                check(&path)?;
            }
        }

        #[test]
        fn an_encoded_path_decodes_to_itself(raw in proptest::collection::vec(any::<u8>(), 0..40)) {
            let raw = [&b"/"[..], &raw].concat();
            if let Ok(path) = normalize(&raw) {
                let mut encoded = Vec::new();
                encode(&path, &mut encoded);
                prop_assert!(!encoded.starts_with(b"//"));
                let again = normalize(&encoded);
                prop_assert_eq!(again.as_deref(), Ok(&*path));
            }
        }
    }

    fn check(path: &[u8]) -> Result<(), TestCaseError> {
        prop_assert_eq!(path.first(), Some(&b'/'));
        prop_assert!(!path.iter().any(|&byte| byte < 0x20 || byte == 0x7f));
        let segments: Vec<&[u8]> = path[1..].split(|&byte| byte == b'/').collect();
        prop_assert!(!segments.iter().any(|segment| matches!(*segment, b"." | b"..")));
        prop_assert!(segments[..segments.len() - 1].iter().all(|segment| !segment.is_empty()));
        Ok(())
    }
}
