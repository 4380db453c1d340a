//! The name of a downloaded file (RFC 6266). The server may choose it, but not its directory.
//!
//! A name comes from Content-Disposition, else from the address. It always becomes one visible name inside the
//! directory: no path, no leading dot, no control bytes.

use std::path::{Path, PathBuf};

use haulier_proto::text::is_unseen;
use percent_encoding::percent_decode;

/// The longest name, bytes: file systems take 255, and `.part.json` is added to it.
const MOST_BYTES: usize = 200;
/// The name of a file that the server does not name.
const NAMELESS: &str = "download";

/// The name of the file: the server's, else the last part of the address.
#[must_use]
pub fn choose(disposition: Option<&[u8]>, from_url: &str) -> String {
    let given = disposition.and_then(from_disposition);
    [given.as_deref().unwrap_or_default(), from_url]
        .into_iter()
        .map(safe)
        .find(|name| !name.is_empty())
        .unwrap_or_else(|| NAMELESS.to_owned())
}

/// The file name of a Content-Disposition field; `filename*` wins over `filename` (RFC 6266 §4.3).
fn from_disposition(value: &[u8]) -> Option<String> {
    let mut plain = None;
    for (name, value) in parameters(value) {
        if name.eq_ignore_ascii_case(b"filename*") {
            if let Some(decoded) = extended(&value) {
                return Some(decoded);
            }
        } else if name.eq_ignore_ascii_case(b"filename") && plain.is_none() {
            plain = Some(text(&value));
        }
    }
    plain
}

/// The parameters after the disposition type; quoted strings are unquoted.
fn parameters(value: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    let mut parts = vec![Vec::new()];
    let (mut quoted, mut escaped) = (false, false);
    for &byte in value {
        let part = parts.last_mut().expect("there is always one");
        match byte {
            _ if escaped => {
                part.push(byte);
                escaped = false;
            }
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b';' if !quoted => parts.push(Vec::new()),
            _ => part.push(byte),
        }
    }
    for part in parts.into_iter().skip(1) {
        if let Some(at) = part.iter().position(|&byte| byte == b'=') {
            let (name, value) = (part[..at].trim_ascii(), part[at + 1..].trim_ascii());
            found.push((name.to_vec(), value.to_vec()));
        }
    }
    found
}

/// `UTF-8''na%C3%AFve` (RFC 8187).
fn extended(value: &[u8]) -> Option<String> {
    let mut parts = value.splitn(3, |&byte| byte == b'\'');
    let (charset, _language, coded) = (parts.next()?, parts.next()?, parts.next()?);
    let bytes: Vec<u8> = percent_decode(coded).collect();
    if charset.eq_ignore_ascii_case(b"utf-8") {
        String::from_utf8(bytes).ok()
    } else if charset.eq_ignore_ascii_case(b"iso-8859-1") {
        Some(bytes.into_iter().map(char::from).collect())
    } else {
        None
    }
}

/// Decodes bytes beyond ASCII as UTF-8, which servers send, else as ISO-8859-1 (RFC 2616).
fn text(value: &[u8]) -> String {
    std::str::from_utf8(value).map_or_else(|_| value.iter().copied().map(char::from).collect(), str::to_owned)
}

/// One visible name without a path; empty if nothing is left of it.
fn safe(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let visible: String = last.chars().filter(|&letter| !is_unseen(letter)).collect();
    let name = visible.trim_start_matches(['.', ' ']).trim_end();
    if name.len() <= MOST_BYTES {
        return name.to_owned();
    }
    let (stem, extension) = split_extension(name);
    let room = MOST_BYTES - extension.len();
    let cut = (0..=room).rev().find(|&at| stem.is_char_boundary(at)).unwrap_or(0);
    format!("{}{extension}", &stem[..cut])
}

/// Stem and extension with its dot; an extension is short.
fn split_extension(name: &str) -> (&str, &str) {
    match name.rfind('.') {
        Some(at) if at > 0 && name.len() - at <= 16 => name.split_at(at),
        _ => (name, ""),
    }
}

/// `name.ext`, `name.1.ext`, `name.2.ext`, …
#[must_use]
pub fn numbered(path: &Path, number: usize) -> PathBuf {
    if number == 0 {
        return path.to_owned();
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (stem, extension) = split_extension(&name);
    path.with_file_name(format!("{stem}.{number}{extension}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn named(disposition: &str) -> String {
        choose(Some(disposition.as_bytes()), "fallback.bin")
    }

    #[test]
    fn the_name_of_content_disposition_is_read_in_all_its_forms() {
        for (value, expected) in [
            ("attachment; filename=a.zip", "a.zip"),
            ("attachment; filename=\"a b;c.zip\"", "a b;c.zip"),
            ("attachment; filename=\"a \\\"b\\\".zip\"", "a \"b\".zip"),
            (
                "attachment; filename=plain.zip; filename*=UTF-8''na%C3%AFve.zip",
                "naïve.zip",
            ),
            ("attachment; FILENAME*=iso-8859-1'en'%A3.txt; filename=x", "£.txt"),
            ("attachment; filename*=UTF-8''%ff; filename=plain.zip", "plain.zip"),
            ("inline", "fallback.bin"),
            ("", "fallback.bin"),
        ] {
            assert_eq!(named(value), expected, "{value}");
        }
    }

    #[test]
    fn a_server_chooses_neither_the_place_nor_a_hidden_name() {
        for (value, expected) in [
            ("attachment; filename=\"../../etc/passwd\"", "passwd"),
            ("attachment; filename=\"..\\\\..\\\\evil.exe\"", "evil.exe"),
            ("attachment; filename*=UTF-8''%2e%2e%2f.bashrc", "bashrc"),
            ("attachment; filename=\"..\"", "fallback.bin"),
            ("attachment; filename=\"/\"", "fallback.bin"),
            ("attachment; filename*=UTF-8''a%00b%0a.txt", "ab.txt"),
            ("attachment; filename*=UTF-8''a%E2%80%AEgpj.exe", "agpj.exe"),
        ] {
            assert_eq!(named(value), expected, "{value}");
        }
    }

    #[test]
    fn an_address_without_a_name_is_a_download() {
        assert_eq!(choose(None, ""), "download");
        assert_eq!(choose(None, ".."), "download");
        assert_eq!(choose(None, "a.iso"), "a.iso");
    }

    #[test]
    fn a_number_goes_before_the_extension() {
        assert_eq!(numbered(Path::new("/x/a.tar.gz"), 2), Path::new("/x/a.tar.2.gz"));
        assert_eq!(numbered(Path::new("a"), 1), Path::new("a.1"));
        assert_eq!(numbered(Path::new("a.b"), 0), Path::new("a.b"));
    }

    proptest! {
        #[test]
        fn no_server_and_no_address_leaves_the_directory(disposition in "\\PC{0,300}", url in "\\PC{0,300}") {
            let name = choose(Some(format!("attachment; filename=\"{disposition}\"").as_bytes()), &url);
            prop_assert!(!name.is_empty() && name.len() <= MOST_BYTES);
            prop_assert!(!name.starts_with('.') && !name.contains('/') && !name.contains('\0'));
            let path = Path::new("/d").join(&name);
            prop_assert_eq!(path.parent(), Some(Path::new("/d")));
        }
    }
}
