//! Byte ranges: the parts that a Range field asks for, of a representation of known length (RFC 9110 §14).
//!
//! The result is a decision, not a response. A server may ignore Range at any time, so a malformed or greedy field gets
//! the whole representation. Only a well-formed range outside the representation is unsatisfiable.

/// A run of bytes, both ends inclusive, inside the representation it was resolved against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRange {
    /// The first byte.
    pub start: u64,
    /// The last byte; never less than `start`.
    pub end: u64,
}

impl ByteRange {
    /// Its length in bytes, never 0.
    pub const fn length(&self) -> u64 {
        self.end - self.start + 1
    }
}

/// The parts of the representation to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ranges {
    /// The whole, 200: the field is malformed, of another unit, or asks for too many ranges or bytes.
    Whole,
    /// No part, 416: no range overlaps the representation.
    Unsatisfiable,
    /// One run, 206.
    One(ByteRange),
    /// Several runs in the order asked for, 206 as multipart/byteranges.
    Many(Vec<ByteRange>),
}

/// One range-spec as written. Positions beyond 64 bits become their maximum: they are beyond any end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spec {
    From { first: u64, last: u64 },
    Suffix { length: u64 },
}

/// Resolves the value of a Range field against a representation of `length` bytes.
///
/// At most `most` ranges are accepted, and together they may not be longer than the representation: a small request
/// must not cause a huge response (CVE-2011-3192).
pub fn resolve(value: &[u8], length: u64, most: usize) -> Ranges {
    let Some(set) = strip_unit(value) else {
        return Ranges::Whole;
    };
    let mut found = Satisfiable::default();
    let mut count = 0;
    for element in set.split(|&byte| byte == b',') {
        let element = trim(element);
        // RFC 9110 §5.6.1.2: empty elements are read and ignored.
        if element.is_empty() {
            continue;
        }
        count += 1;
        if count > most {
            return Ranges::Whole;
        }
        let Some(spec) = parse_spec(element) else {
            return Ranges::Whole;
        };
        // RFC 9110 §14.1.2: a suffix of an empty representation is satisfiable, but no Content-Range can say it.
        if length == 0 && matches!(spec, Spec::Suffix { length: 1.. }) {
            return Ranges::Whole;
        }
        found.add(spec.within(length));
    }
    if count == 0 {
        Ranges::Whole
    } else {
        found.decide(length)
    }
}

/// The satisfiable ranges so far; the first one costs no allocation.
#[derive(Debug, Default)]
struct Satisfiable {
    first: Option<ByteRange>,
    all: Vec<ByteRange>,
    /// Bytes of all of them; a few lengths of 64 bits do not overflow it.
    sum: u128,
}

impl Satisfiable {
    fn add(&mut self, range: Option<ByteRange>) {
        let Some(range) = range else { return };
        self.sum += u128::from(range.length());
        match self.first {
            None => self.first = Some(range),
            Some(first) => {
                if self.all.is_empty() {
                    self.all.push(first);
                }
                self.all.push(range);
            }
        }
    }

    fn decide(self, length: u64) -> Ranges {
        match self.first {
            None => Ranges::Unsatisfiable,
            Some(_) if self.sum > u128::from(length) => Ranges::Whole,
            Some(only) if self.all.is_empty() => Ranges::One(only),
            Some(_) => Ranges::Many(self.all),
        }
    }
}

impl Spec {
    /// The part that it names of a representation of `length` bytes; `None` if that is empty.
    fn within(self, length: u64) -> Option<ByteRange> {
        let end = length.checked_sub(1)?;
        match self {
            Self::From { first, last } if first <= end => Some(ByteRange {
                start: first,
                end: last.min(end),
            }),
            Self::Suffix { length: suffix @ 1.. } => Some(ByteRange {
                start: length.saturating_sub(suffix),
                end,
            }),
            Self::From { .. } | Self::Suffix { .. } => None,
        }
    }
}

/// The value after `bytes=`; unit names ignore case (RFC 9110 §14.1).
fn strip_unit(value: &[u8]) -> Option<&[u8]> {
    let (unit, set) = value.split_at_checked(6)?;
    unit.eq_ignore_ascii_case(b"bytes=").then_some(set)
}

fn parse_spec(element: &[u8]) -> Option<Spec> {
    let dash = element.iter().position(|&byte| byte == b'-')?;
    match (&element[..dash], &element[dash + 1..]) {
        ([], suffix) => Some(Spec::Suffix {
            length: parse_position(suffix)?,
        }),
        (first, []) => Some(Spec::From {
            first: parse_position(first)?,
            last: u64::MAX,
        }),
        (first, last) => {
            let (first, last) = (parse_position(first)?, parse_position(last)?);
            (first <= last).then_some(Spec::From { first, last })
        }
    }
}

fn parse_position(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |position, &digit| {
        digit
            .is_ascii_digit()
            .then(|| position.saturating_mul(10).saturating_add(u64::from(digit - b'0')))
    })
}

fn trim(mut element: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = element {
        element = rest;
    }
    element
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn range(start: u64, end: u64) -> ByteRange {
        ByteRange { start, end }
    }

    fn ranges(value: &str, length: u64) -> Ranges {
        resolve(value.as_bytes(), length, 16)
    }

    /// The examples of RFC 9110 §14.1.2, for 10,000 bytes.
    #[test]
    fn examples_of_rfc_9110() {
        for (value, start, end) in [
            ("bytes=0-499", 0, 499),
            ("bytes=500-999", 500, 999),
            ("bytes=-500", 9500, 9999),
            ("bytes=9500-", 9500, 9999),
        ] {
            assert_eq!(ranges(value, 10_000), Ranges::One(range(start, end)), "{value}");
        }
        assert_eq!(
            ranges("bytes=0-0,-1", 10_000),
            Ranges::Many(vec![range(0, 0), range(9999, 9999)])
        );
        assert_eq!(
            ranges("bytes= 0-999, 4500-5499, -1000", 10_000),
            Ranges::Many(vec![range(0, 999), range(4500, 5499), range(9000, 9999)])
        );
    }

    #[test]
    fn ends_beyond_the_length_are_cut() {
        assert_eq!(ranges("bytes=2-99", 10), Ranges::One(range(2, 9)));
        assert_eq!(ranges("bytes=-99", 10), Ranges::One(range(0, 9)));
        assert_eq!(ranges("bytes=0-18446744073709551616", 10), Ranges::One(range(0, 9)));
        assert_eq!(
            ranges("bytes=-99999999999999999999999999", 10),
            Ranges::One(range(0, 9))
        );
        assert_eq!(ranges("bytes=0-", u64::MAX), Ranges::One(range(0, u64::MAX - 1)));
    }

    #[test]
    fn a_range_of_nothing_is_unsatisfiable() {
        for value in [
            "bytes=10-",
            "bytes=10-20",
            "bytes=-0",
            "bytes=99999999999999999999999-",
            "bytes=10-,-0",
        ] {
            assert_eq!(ranges(value, 10), Ranges::Unsatisfiable, "{value}");
        }
        assert_eq!(ranges("bytes=0-", 0), Ranges::Unsatisfiable);
        assert_eq!(ranges("bytes=-0", 0), Ranges::Unsatisfiable);
    }

    #[test]
    fn a_suffix_of_an_empty_representation_is_the_whole_of_it() {
        assert_eq!(ranges("bytes=-5", 0), Ranges::Whole);
    }

    #[test]
    fn an_unsatisfiable_range_among_others_is_left_out() {
        assert_eq!(ranges("bytes=0-1,50-", 10), Ranges::One(range(0, 1)));
    }

    #[test]
    fn a_malformed_value_is_ignored() {
        for value in [
            "",
            "bytes",
            "bytes=",
            "bytes= , ",
            "bytes=-",
            "bytes=a-b",
            "bytes=5",
            "bytes=5-4",
            "bytes=1-2-3",
            "bytes=--1",
            "bytes=+1-2",
            "bytes=0x1-2",
            "bytes=1 - 2",
            "bytes =0-1",
            "bytes=0-1;2-3",
            "items=0-1",
            "0-1",
            "bytes:0-1",
            "bytes=0-1,x",
        ] {
            assert_eq!(ranges(value, 10), Ranges::Whole, "{value}");
        }
    }

    #[test]
    fn the_unit_ignores_case() {
        assert_eq!(ranges("Bytes=0-1", 10), Ranges::One(range(0, 1)));
    }

    #[test]
    fn empty_elements_are_ignored() {
        assert_eq!(ranges("bytes=,0-1,\t,", 10), Ranges::One(range(0, 1)));
    }

    #[test]
    fn more_ranges_than_allowed_are_answered_with_the_whole() {
        let sixteen: Vec<String> = (0..16).map(|n| format!("{n}-{n}")).collect();
        let Ranges::Many(many) = ranges(&format!("bytes={}", sixteen.join(",")), 100) else {
            panic!("16 are allowed")
        };
        assert_eq!(many.len(), 16);
        assert_eq!(
            ranges(&format!("bytes={},17-17", sixteen.join(",")), 100),
            Ranges::Whole
        );
        assert_eq!(resolve(b"bytes=0-1", 10, 0), Ranges::Whole);
    }

    #[test]
    fn ranges_longer_than_the_representation_in_sum_are_answered_with_the_whole() {
        assert_eq!(
            ranges("bytes=0-4,5-9", 10),
            Ranges::Many(vec![range(0, 4), range(5, 9)])
        );
        assert_eq!(ranges("bytes=0-5,5-9", 10), Ranges::Whole);
        assert_eq!(ranges("bytes=0-,0-", u64::MAX), Ranges::Whole);
    }

    proptest! {
        #[test]
        fn resolved_ranges_lie_inside_the_representation(value in "bytes=[0-9,\\- ]{0,40}", length in any::<u64>()) {
            check(&resolve(value.as_bytes(), length, 16), length)?;
        }

        #[test]
        fn resolved_ranges_of_small_representations_lie_inside(
            value in "bytes=([0-9]{0,2}-[0-9]{0,2},?){0,18}",
            length in 0u64..60,
        ) {
            check(&resolve(value.as_bytes(), length, 16), length)?;
        }

        #[test]
        fn a_printed_range_is_found_again(start in 0u64..1000, more in 0u64..1000, beyond in 1u64..1000) {
            let end = start + more;
            let found = resolve(format!("bytes={start}-{end}").as_bytes(), end + beyond, 16);
            prop_assert_eq!(found, Ranges::One(range(start, end)));
        }
    }

    fn check(found: &Ranges, length: u64) -> Result<(), TestCaseError> {
        let all: &[ByteRange] = match found {
            Ranges::Whole | Ranges::Unsatisfiable => &[],
            Ranges::One(one) => std::slice::from_ref(one),
            Ranges::Many(many) => many,
        };
        for one in all {
            prop_assert!(one.start <= one.end && one.end < length);
        }
        let sum: u128 = all.iter().map(|one| u128::from(one.length())).sum();
        prop_assert!(sum <= u128::from(length));
        prop_assert!(all.len() <= 16);
        Ok(())
    }
}
