//! Field lines to field blocks (RFC 7541 §6), with the static table only.
//!
//! It puts no entry into the peer's dynamic table, so a block made once is right on every connection, at any time.

use super::huffman;
use super::table::{STATIC, static_name};
use crate::field::Fields;

/// A size update to zero (RFC 7541 §6.3), for the first block after the peer made its table smaller.
pub const EMPTY_TABLE: u8 = 0x20;

/// The static entry of `content-length`.
const CONTENT_LENGTH: u32 = 28;
/// Literal without indexing, and literal that no proxy may index either (RFC 7541 §6.2.2, §6.2.3).
pub(super) const LITERAL: u8 = 0x00;
pub(super) const SECRET: u8 = 0x10;

/// The block of a response: `:status` and all fields. Names become lower case; fields of the connection
/// alone (RFC 9113 §8.2.2) are left out.
#[must_use]
pub fn block(status: u16, fields: &Fields) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    self::status(&mut out, status);
    self::fields(&mut out, fields);
    out
}

/// Appends `:status`, three digits.
pub fn status(out: &mut Vec<u8>, status: u16) {
    let row = match status {
        200 => 8,
        204 => 9,
        206 => 10,
        304 => 11,
        400 => 12,
        404 => 13,
        500 => 14,
        _ => {
            out.extend_from_slice(&[LITERAL | 8, 3]);
            let digit = |place: u16| b'0' + (status / place % 10) as u8;
            out.extend_from_slice(&[digit(100), digit(10), digit(1)]);
            return;
        }
    };
    out.push(0x80 | row);
}

/// Appends `content-length`, bytes.
pub fn content_length(out: &mut Vec<u8>, length: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = length;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    let digits = &digits[at..];
    integer(out, LITERAL, 4, CONTENT_LENGTH);
    out.push(digits.len() as u8);
    out.extend_from_slice(digits);
}

/// Appends all lines but those of the connection alone.
pub fn fields(out: &mut Vec<u8>, fields: &Fields) {
    for (name, value) in fields.iter() {
        field(out, name, value);
    }
}

/// Appends one line, unless it is of the connection alone. The name becomes lower case.
pub fn field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    with_lower_case(name, |name| lower_case_field(out, name, value));
}

/// Gives the name in lower case to `write`.
pub(super) fn with_lower_case(name: &[u8], write: impl FnOnce(&[u8])) {
    let mut lower = [0; 64];
    match lower.get_mut(..name.len()) {
        Some(lower) => {
            lower.copy_from_slice(name);
            lower.make_ascii_lowercase();
            write(lower);
        }
        None => write(&name.to_ascii_lowercase()),
    }
}

fn lower_case_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    if is_connection_specific(name) {
        return;
    }
    let index = static_name(name);
    if let Some(whole) = index.and_then(|index| whole_entry(index, name, value)) {
        integer(out, 0x80, 7, whole);
        return;
    }
    let kind = if is_secret(name) { SECRET } else { LITERAL };
    integer(out, kind, 4, index.unwrap_or(0));
    if index.is_none() {
        string(out, name);
    }
    string(out, value);
}

/// True for fields that HTTP/2 forbids (RFC 9113 §8.2.2).
#[must_use]
pub fn is_connection_specific(name: &[u8]) -> bool {
    matches!(
        name,
        b"connection" | b"proxy-connection" | b"keep-alive" | b"transfer-encoding" | b"upgrade"
    )
}

/// True for secrets, which must not be compressed together with text that others can guess (RFC 7541 §7.1.3).
pub(super) fn is_secret(name: &[u8]) -> bool {
    matches!(
        name,
        b"set-cookie" | b"cookie" | b"authorization" | b"proxy-authorization"
    )
}

/// The static entry that has this very value; entries of one name follow each other.
pub(super) fn whole_entry(index: u32, name: &[u8], value: &[u8]) -> Option<u32> {
    (index..)
        .zip(&STATIC[index as usize - 1..])
        .take_while(|(_, (found, _))| *found == name)
        .find(|(_, (_, found))| *found == value)
        .map(|(index, _)| index)
}

/// Huffman-coded where that is shorter.
pub(super) fn string(out: &mut Vec<u8>, text: &[u8]) {
    let coded = huffman::encoded_length(text);
    if coded < text.len() {
        integer(out, 0x80, 7, coded as u32);
        huffman::encode(text, out);
    } else {
        integer(out, 0, 7, text.len() as u32);
        out.extend_from_slice(text);
    }
}

/// An integer in the low `prefix` bits of a byte whose other bits are `first` (RFC 7541 §5.1).
pub(super) fn integer(out: &mut Vec<u8>, first: u8, prefix: u32, value: u32) {
    let most = (1u32 << prefix) - 1;
    if value < most {
        out.push(first | value as u8);
        return;
    }
    out.push(first | most as u8);
    let mut rest = value - most;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::super::decode::Decoder;
    use super::*;

    fn decoded(block: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut lines = Vec::new();
        Decoder::new(0)
            .decode(block, |name, value| lines.push((name.to_vec(), value.to_vec())))
            .expect("our own block");
        lines
    }

    #[test]
    fn a_response_comes_back_in_lower_case_and_without_its_connection() {
        let mut fields = Fields::new();
        for (name, value) in [
            ("Content-Type", "text/html; charset=utf-8"),
            ("Connection", "keep-alive"),
            ("Transfer-Encoding", "chunked"),
            ("X-Mine", "\u{e9}"),
            ("Accept-Encoding", "gzip, deflate"),
            ("Set-Cookie", "secret=1"),
        ] {
            fields.append(name, value);
        }
        let block = block(200, &fields);
        let expected: Vec<(Vec<u8>, Vec<u8>)> = [
            (":status", "200"),
            ("content-type", "text/html; charset=utf-8"),
            ("x-mine", "\u{e9}"),
            ("accept-encoding", "gzip, deflate"),
            ("set-cookie", "secret=1"),
        ]
        .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
        .to_vec();
        assert_eq!(decoded(&block), expected);
        assert_eq!(block[0], 0x88, "one byte for 200");
    }

    #[test]
    fn every_status_is_three_digits() {
        for status in [100, 103, 200, 206, 304, 404, 418, 500, 599, 999] {
            let mut out = Vec::new();
            self::status(&mut out, status);
            assert_eq!(decoded(&out), [(b":status".to_vec(), status.to_string().into_bytes())]);
        }
    }

    #[test]
    fn a_length_is_its_decimal_digits() {
        for length in [0, 7, 10, 1_000_000, u64::MAX] {
            let mut out = Vec::new();
            content_length(&mut out, length);
            let line = (b"content-length".to_vec(), length.to_string().into_bytes());
            assert_eq!(decoded(&out), [line]);
        }
    }

    #[test]
    fn a_cookie_is_marked_as_never_to_be_indexed() {
        let mut out = Vec::new();
        field(&mut out, b"Set-Cookie", b"a=1");
        assert_eq!(out[0] & 0xf0, SECRET);
    }

    #[test]
    fn names_and_values_of_any_length_come_back() {
        for length in [1, 63, 64, 65, 126, 127, 128, 255, 16_383, 16_384, 40_000] {
            let (name, value) = (vec![b'N'; length.min(300)], vec![b'{'; length]);
            let mut out = Vec::new();
            field(&mut out, &name, &value);
            assert_eq!(decoded(&out), [(name.to_ascii_lowercase(), value)]);
        }
    }
}
