//! The fields of compression dictionaries (RFC 9842): the one that a client has, and the offer of a response as one.
//!
//! Both are structured fields (RFC 9651); of those only the byte sequence is read here, and two parameters written.

/// SHA-256 of a dictionary.
pub type Hash = [u8; 32];

/// Longest pattern that is announced, bytes.
const MOST_PATTERN: usize = 1024;

/// Reads `Available-Dictionary`: one byte sequence of 32 bytes (RFC 9842 §2.2). Anything else names no dictionary.
#[must_use]
pub fn available(value: &[u8]) -> Option<Hash> {
    let value = value.trim_ascii();
    // Parameters may follow, and are ignored (RFC 9651 §3.1.2).
    let value = value.strip_prefix(b":")?;
    let end = value.iter().position(|&byte| byte == b':')?;
    let rest = value[end + 1..].trim_ascii_start();
    if !rest.is_empty() && !rest.starts_with(b";") {
        return None;
    }
    decode(&value[..end])
}

/// 32 bytes in base64: 43 characters and one `=`, which RFC 9651 §4.2.7 lets a sender leave out.
fn decode(text: &[u8]) -> Option<Hash> {
    let text = text.strip_suffix(b"=").unwrap_or(text);
    if text.len() != 43 {
        return None;
    }
    let mut hash = [0; 32];
    let (mut bits, mut count, mut at) = (0_u32, 0, 0);
    for &byte in text {
        bits = (bits << 6) | u32::from(sextet(byte)?);
        count += 6;
        if count >= 8 {
            count -= 8;
            hash[at] = (bits >> count) as u8;
            at += 1;
        }
    }
    Some(hash)
}

fn sextet(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

/// Writes `Use-As-Dictionary` (RFC 9842 §2.1) for the paths of `pattern`, in which `*` stands for any text; `documents`
/// limits it to pages. `None` if the pattern has characters with another meaning in a URL Pattern or a structured
/// string: such a path gets no dictionary.
#[must_use]
pub fn use_as(pattern: &str, documents: bool) -> Option<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/*-._~!$&',;=@%".contains(&byte);
    if !pattern.starts_with('/') || pattern.len() > MOST_PATTERN || !pattern.bytes().all(is_plain) {
        return None;
    }
    let destination = if documents { ", match-dest=(\"document\")" } else { "" };
    Some(format!("match=\"{pattern}\"{destination}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The example of RFC 9842 §2.2.
    const EXAMPLE: &[u8] = b":pZGm1Av0IEBKARczz7exkNYsZb8LzaMrV7J32a2fFG4=:";

    #[test]
    fn the_rfcs_example_is_read() {
        let hash = available(EXAMPLE).expect("a hash");
        assert_eq!(hash[..4], [0xa5, 0x91, 0xa6, 0xd4]);
        assert_eq!(hash[31], 0x6e);
    }

    #[test]
    fn spaces_parameters_and_missing_padding_change_nothing() {
        let bare = std::str::from_utf8(EXAMPLE).expect("ASCII");
        for value in [
            format!("  {bare} "),
            format!("{bare};a=1"),
            format!("{bare} ; a"),
            bare.replace('=', ""),
        ] {
            assert_eq!(available(value.as_bytes()), available(EXAMPLE), "{value}");
        }
    }

    #[test]
    fn what_is_no_hash_names_no_dictionary() {
        for value in [
            "",
            ":",
            "::",
            ":AAAA:",
            "pZGm1Av0IEBKARczz7exkNYsZb8LzaMrV7J32a2fFG4=",
            ":pZGm1Av0IEBKARczz7exkNYsZb8LzaMrV7J32a2fFG4=",
            ":pZGm1Av0IEBKARczz7exkNYsZb8LzaMrV7J32a2fFG4==:",
            ":pZGm1Av0IEBKARczz7exkNYsZb8LzaMrV7J32a2fFG4=: x",
            ":pZGm1Av0IEBKARczz7exkNYsZb8LzaMrV7J32a2fF_4=:",
            "\"pZGm1Av0IEBKARczz7exkNYsZb8LzaMrV7J32a2fFG4=\"",
        ] {
            assert_eq!(available(value.as_bytes()), None, "{value:?}");
        }
    }

    #[test]
    fn a_pattern_is_announced_unless_it_would_be_read_otherwise() {
        assert_eq!(use_as("/app.*.js", false).as_deref(), Some("match=\"/app.*.js\""));
        assert_eq!(
            use_as("/wiki/*", true).as_deref(),
            Some("match=\"/wiki/*\", match-dest=(\"document\")")
        );
        for pattern in [
            "app.js", "/a\"b", "/a(b)", "/a:b", "/a?b", "/a{b}", "/a+", "/a\\b", "/ä", "/a b",
        ] {
            assert_eq!(use_as(pattern, false), None, "{pattern}");
        }
        assert_eq!(use_as(&format!("/{}", "a".repeat(1024)), false), None);
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(value in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = available(&value);
        }

        #[test]
        fn every_hash_is_read_back(hash in any::<[u8; 32]>()) {
            const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
            let mut text = vec![b':'];
            for piece in hash.chunks(3) {
                let bits = piece.iter().fold(0_u32, |bits, &byte| (bits << 8) | u32::from(byte)) << (8 * (3 - piece.len()));
                for place in 0..=piece.len() {
                    text.push(ALPHABET[(bits >> (18 - 6 * place)) as usize & 63]);
                }
            }
            text.extend_from_slice(b"=:");
            prop_assert_eq!(available(&text), Some(hash));
        }
    }
}
