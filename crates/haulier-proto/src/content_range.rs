//! The Content-Range field of a 206 or 416 response (RFC 9110 §14.4).
//!
//! A download writes bytes at the position in this field, so only the strict grammar is accepted: no sign, no white
//! space inside, no end beyond the total.

use crate::range::ByteRange;

/// The value of the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentRange {
    /// `bytes 0-99/1000`: the enclosed part, and the length of the whole if it is known.
    Part { range: ByteRange, total: Option<u64> },
    /// `bytes */1000`: no part; the length of the whole, in bytes.
    Unsatisfied { total: u64 },
}

/// Reads the value; `None` for another unit, a malformed value, an end before its start or beyond the total.
#[must_use]
pub fn parse(value: &[u8]) -> Option<ContentRange> {
    let (unit, rest) = split(value, b' ')?;
    if !unit.eq_ignore_ascii_case(b"bytes") {
        return None;
    }
    let (range, total) = split(rest.trim_ascii(), b'/')?;
    if range == b"*" {
        return number(total).map(|total| ContentRange::Unsatisfied { total });
    }
    let (start, end) = split(range, b'-')?;
    let range = ByteRange {
        start: number(start)?,
        end: number(end)?,
    };
    let total = if total == b"*" { None } else { Some(number(total)?) };
    let fits = range.start <= range.end && total.is_none_or(|total| range.end < total);
    fits.then_some(ContentRange::Part { range, total })
}

fn split(value: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let place = value.iter().position(|&byte| byte == at)?;
    Some((&value[..place], &value[place + 1..]))
}

/// Digits only, below 2^63: the sum of a start and a length never overflows.
fn number(digits: &[u8]) -> Option<u64> {
    let good = !digits.is_empty() && digits.len() <= 18 && digits.iter().all(u8::is_ascii_digit);
    good.then(|| digits.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_part_with_and_without_a_known_total_is_read() {
        let range = ByteRange { start: 42, end: 1233 };
        let known = ContentRange::Part {
            range,
            total: Some(1234),
        };
        assert_eq!(parse(b"bytes 42-1233/1234"), Some(known));
        assert_eq!(parse(b"BYTES 42-1233/1234"), Some(known));
        assert_eq!(
            parse(b"bytes 42-1233/*"),
            Some(ContentRange::Part { range, total: None })
        );
    }

    #[test]
    fn an_unsatisfied_range_gives_the_total() {
        assert_eq!(parse(b"bytes */1234"), Some(ContentRange::Unsatisfied { total: 1234 }));
    }

    #[test]
    fn whatever_bends_the_grammar_is_not_read() {
        for value in [
            "",
            "bytes",
            "bytes 0-1",
            "bytes 0-/2",
            "bytes -1/2",
            "bytes 5-4/10",
            "bytes 0-10/10",
            "bytes +0-1/2",
            "bytes 0 - 1/2",
            "bytes */*",
            "items 0-1/2",
            "bytes=0-1/2",
            "bytes 0-1/99999999999999999999",
        ] {
            assert_eq!(parse(value.as_bytes()), None, "{value}");
        }
    }

    proptest! {
        #[test]
        fn what_is_read_lies_inside_the_total(start in 0u64..1000, end in 0u64..1000, total in 0u64..1000) {
            let read = parse(format!("bytes {start}-{end}/{total}").as_bytes());
            prop_assert_eq!(read.is_some(), start <= end && end < total);
        }

        #[test]
        fn any_bytes_are_read_without_panic(value in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = parse(&value);
        }
    }
}
