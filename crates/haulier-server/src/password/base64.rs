//! Base64 (RFC 4648 §4), as Basic credentials and `{SHA}` hashes use it.

/// The bytes; `None` for what is no base64. Padding may be missing: some clients leave it out.
pub(crate) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let end = text.iter().rposition(|&byte| byte != b'=').map_or(0, |at| at + 1);
    if text.len() - end > 2 || end % 4 == 1 {
        return None;
    }
    let mut bytes = Vec::with_capacity(end / 4 * 3 + 2);
    let (mut bits, mut count) = (0_u32, 0);
    for &letter in &text[..end] {
        bits = bits << 6 | u32::from(value(letter)?);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes)
}

fn value(letter: u8) -> Option<u8> {
    Some(match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_vectors_of_rfc_4648_decode() {
        let rows = [
            ("", "", true),
            ("Zg==", "f", true),
            ("Zm8=", "fo", true),
            ("Zm9v", "foo", true),
            ("Zm9vYg", "foob", true),
            ("Zm9vYmE=", "fooba", true),
            ("Zm9vYmFy", "foobar", true),
            ("Zm9vY", "", false),
            ("Zm9v===", "", false),
            ("Zm=v", "", false),
            ("Zm-v", "", false),
        ];
        for (text, expected, is_base64) in rows {
            let expected = is_base64.then(|| expected.as_bytes().to_vec());
            assert_eq!(decode(text.as_bytes()), expected, "{text}");
        }
    }
}
