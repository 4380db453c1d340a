//! Status lines and field lines as HTTP/1.1 bytes (RFC 9112 §4, §5).

use crate::field::Fields;
use crate::status::reason_phrase;

/// Appends `HTTP/1.1 200 OK` with its line end. The version is always HTTP/1.1 (RFC 9110 §2.5).
pub fn status_line(out: &mut Vec<u8>, status: u16) {
    if status == 200 {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        return;
    }
    out.extend_from_slice(b"HTTP/1.1 ");
    number(out, u64::from(status));
    out.push(b' ');
    out.extend_from_slice(reason_phrase(status).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends one field line. Name and value must be valid ([`crate::field::is_name`], [`crate::field::is_value`]).
pub fn field(out: &mut Vec<u8>, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
    out.extend_from_slice(name.as_ref());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value.as_ref());
    out.extend_from_slice(b"\r\n");
}

/// Appends all field lines, in their order.
pub fn fields(out: &mut Vec<u8>, fields: &Fields) {
    for (name, value) in fields.iter() {
        field(out, name, value);
    }
}

/// Appends a field line with a decimal number.
pub fn number_field(out: &mut Vec<u8>, name: &str, value: u64) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    number(out, value);
    out.extend_from_slice(b"\r\n");
}

/// Appends a decimal number.
pub fn number(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_the_standard_library_writes_them() {
        for value in [0, 9, 10, 99, 100, 4096, u64::MAX] {
            let mut out = Vec::new();
            number(&mut out, value);
            assert_eq!(out, value.to_string().as_bytes());
        }
    }

    #[test]
    fn a_status_without_a_phrase_keeps_its_space() {
        let mut out = Vec::new();
        status_line(&mut out, 299);
        assert_eq!(out, b"HTTP/1.1 299 \r\n");
    }
}
