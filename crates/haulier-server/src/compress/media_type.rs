//! Media types that gain by coding.

/// Compressible types not covered by `text/*`, `*+json`, `*+xml` and `*+text`.
const COMPRESSIBLE: [&str; 29] = [
    "application/atom+xml",
    "application/dash+xml",
    "application/eot",
    "application/geo+json",
    "application/graphql-response+json",
    "application/javascript",
    "application/json",
    "application/ld+json",
    "application/manifest+json",
    "application/mathml+xml",
    "application/rss+xml",
    "application/rtf",
    "application/vnd.apple.mpegurl",
    "application/vnd.ms-fontobject",
    "application/wasm",
    "application/x-javascript",
    "application/x-ndjson",
    "application/x-sh",
    "application/x-tex",
    "application/xhtml+xml",
    "application/xml",
    "application/xml-dtd",
    "application/yaml",
    "font/otf",
    "font/ttf",
    "image/bmp",
    "image/svg+xml",
    "image/vnd.microsoft.icon",
    "image/x-icon",
];

/// True if a body of this Content-Type gains by coding. The patterns of `types` replace the built-in list.
#[must_use]
pub(crate) fn is_compressible(content_type: &[u8], types: Option<&[String]>) -> bool {
    let essence = essence(content_type);
    match types {
        Some(types) => types.iter().any(|pattern| matches(pattern.as_bytes(), essence)),
        None => is_text(essence),
    }
}

/// True for `text/html`, with or without a charset.
pub(crate) fn is_html(content_type: &[u8]) -> bool {
    essence(content_type).eq_ignore_ascii_case(b"text/html")
}

/// The media type without its parameters (RFC 9110 §8.3.1).
fn essence(content_type: &[u8]) -> &[u8] {
    let end = content_type.iter().position(|&byte| byte == b';');
    content_type[..end.unwrap_or(content_type.len())].trim_ascii()
}

fn is_text(essence: &[u8]) -> bool {
    starts_with(essence, b"text/")
        || [&b"+json"[..], b"+xml", b"+text"]
            .iter()
            .any(|end| ends_with(essence, end))
        || COMPRESSIBLE
            .iter()
            .any(|known| essence.eq_ignore_ascii_case(known.as_bytes()))
}

/// `text/html`, or with one `*`: `text/*`, `*/*+json`.
fn matches(pattern: &[u8], essence: &[u8]) -> bool {
    match pattern.iter().position(|&byte| byte == b'*') {
        None => essence.eq_ignore_ascii_case(pattern),
        Some(star) => {
            let (before, after) = (&pattern[..star], &pattern[star + 1..]);
            essence.len() >= before.len() + after.len() && starts_with(essence, before) && ends_with(essence, after)
        }
    }
}

fn starts_with(text: &[u8], start: &[u8]) -> bool {
    text.get(..start.len())
        .is_some_and(|part| part.eq_ignore_ascii_case(start))
}

fn ends_with(text: &[u8], end: &[u8]) -> bool {
    text.len() >= end.len() && text[text.len() - end.len()..].eq_ignore_ascii_case(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_coded_and_compressed_types_are_not() {
        for (content_type, expected) in [
            ("text/html; charset=utf-8", true),
            ("TEXT/HTML", true),
            ("text/event-stream", true),
            ("application/json", true),
            ("application/problem+json", true),
            ("image/svg+xml", true),
            ("application/wasm", true),
            ("font/ttf", true),
            ("font/woff2", false),
            ("image/png", false),
            ("video/mp4", false),
            ("application/zip", false),
            ("application/octet-stream", false),
            ("", false),
            (";text/html", false),
            ("texthtml", false),
        ] {
            assert_eq!(
                is_compressible(content_type.as_bytes(), None),
                expected,
                "{content_type:?}"
            );
        }
    }

    #[test]
    fn the_list_of_a_site_replaces_the_built_in_one() {
        let types = ["text/*".to_owned(), "application/x-log".to_owned(), "*+cbor".to_owned()];
        for (content_type, expected) in [
            ("text/plain;x=y", true),
            ("application/x-log", true),
            ("application/senml+cbor", true),
            ("application/json", false),
        ] {
            assert_eq!(
                is_compressible(content_type.as_bytes(), Some(&types)),
                expected,
                "{content_type}"
            );
        }
    }
}
