//! The client of a request as proxies report it: `X-Forwarded-For`, `-Proto`, `-Host`, `-Port`, and `Forwarded`
//! (RFC 7239).
//!
//! Every proxy appends at the right, so lists are read from there. The first address that is not trusted may have
//! written everything to its left. The caller decides which addresses are trusted.

use std::net::{IpAddr, SocketAddr};

/// The elements of a list of `Forwarded`, the last one first, without those that are empty. Commas within quotes do not
/// count; where a quote is never closed they all do, so that a client cannot hide the element that a proxy appends.
pub fn from_the_right(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let parts = match split_outside_quotes(value, b',') {
        Some(parts) => parts,
        None => value.split(|&byte| byte == b',').collect(),
    };
    backwards(parts)
}

/// The elements of `X-Forwarded-For` and similar lists, which have no quotes, the last one first.
pub fn plain_from_the_right(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    backwards(value.split(|&byte| byte == b',').collect())
}

fn backwards(parts: Vec<&[u8]>) -> impl Iterator<Item = &[u8]> {
    parts
        .into_iter()
        .rev()
        .map(<[u8]>::trim_ascii)
        .filter(|element| !element.is_empty())
}

/// The parameter `name` of one element of `Forwarded` (RFC 7239 §4), without its quotes; the name in any case.
/// `None` if it is not there, or holds an escaped character, which no address or host needs.
#[must_use]
pub fn parameter<'v>(element: &'v [u8], name: &str) -> Option<&'v [u8]> {
    let pairs = split_outside_quotes(element, b';').unwrap_or_default();
    pairs.into_iter().find_map(|pair| {
        let at = pair.iter().position(|&byte| byte == b'=')?;
        if !pair[..at].trim_ascii().eq_ignore_ascii_case(name.as_bytes()) {
            return None;
        }
        let value = pair[at + 1..].trim_ascii();
        let plain = match value {
            [b'"', inner @ .., b'"'] => inner,
            _ => value,
        };
        (!plain.iter().any(|byte| matches!(byte, b'"' | b'\\'))).then_some(plain)
    })
}

/// The address in an element: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]:80`. `None` for names,
/// `unknown` and everything else.
#[must_use]
pub fn address(element: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(element).ok()?;
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Some(ip.to_canonical());
    }
    if let Some(literal) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return literal.parse().ok().map(|ip: std::net::Ipv6Addr| ip.to_canonical());
    }
    text.parse().ok().map(|address: SocketAddr| address.ip().to_canonical())
}

/// The parts of `value` between the separators that stand outside of quotes; `None` if a quote is not closed.
fn split_outside_quotes(value: &[u8], separator: u8) -> Option<Vec<&[u8]>> {
    let (mut parts, mut start, mut quoted, mut escaped) = (Vec::new(), 0, false, false);
    for (at, &byte) in value.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if byte == separator && !quoted => {
                parts.push(&value[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&value[start..]);
    (!quoted).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_from_the_right() {
        let read = |value: &'static str| from_the_right(value.as_bytes()).collect::<Vec<_>>();
        assert_eq!(read("a, b ,c"), [b"c", b"b", b"a"]);
        assert_eq!(read(" , a,,"), [b"a"]);
        assert!(read("").is_empty());
        assert_eq!(read("for=\"a,b\", for=c"), [&b"for=c"[..], b"for=\"a,b\""]);
        assert_eq!(read("\"a\\\",b\",c"), [&b"c"[..], b"\"a\\\",b\""]);
        assert_eq!(
            read("for=\", for=c"),
            [&b"for=c"[..], b"for=\""],
            "an open quote hides nothing"
        );
        let plain = |value: &'static str| plain_from_the_right(value.as_bytes()).collect::<Vec<_>>();
        assert_eq!(plain("\", c"), [&b"c"[..], b"\""]);
        assert_eq!(plain("\"a, b\" ,c,"), [&b"c"[..], b"b\"", b"\"a"]);
    }

    #[test]
    fn parameters_are_found_by_name_in_any_case() {
        let element = b"For=\"[2001:db8::1]:80\" ;proto=https; host=\"a;b\";by=x";
        assert_eq!(parameter(element, "for"), Some(&b"[2001:db8::1]:80"[..]));
        assert_eq!(parameter(element, "proto"), Some(&b"https"[..]));
        assert_eq!(parameter(element, "host"), Some(&b"a;b"[..]));
        assert_eq!(parameter(element, "port"), None);
        assert_eq!(parameter(b"for=\"a\\\"b\"", "for"), None);
        assert_eq!(parameter(b"for", "for"), None);
    }

    #[test]
    fn addresses_come_with_and_without_port_and_brackets() {
        let rows = [
            ("192.0.2.1", Some("192.0.2.1")),
            ("192.0.2.1:8080", Some("192.0.2.1")),
            ("2001:db8::1", Some("2001:db8::1")),
            ("[2001:db8::1]", Some("2001:db8::1")),
            ("[2001:db8::1]:8080", Some("2001:db8::1")),
            ("::ffff:192.0.2.1", Some("192.0.2.1")),
            ("unknown", None),
            ("_hidden", None),
            ("192.0.2.1:x", None),
            ("[192.0.2.1]", None),
            ("", None),
            ("\u{fffd}", None),
        ];
        for (text, expected) in rows {
            let expected = expected.map(|ip| ip.parse::<IpAddr>().expect("a literal"));
            assert_eq!(address(text.as_bytes()), expected, "{text:?}");
        }
    }
}
