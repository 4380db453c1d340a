//! Range fields.

use haulier_proto::range::{ByteRange, Ranges, resolve};

/// Ranges lie inside the representation, are few, and together no longer than it.
pub fn check(data: &[u8]) {
    for length in [0, 1, 2, 10, 1000, 10_000, u64::MAX / 2, u64::MAX] {
        match resolve(data, length, 16) {
            Ranges::Whole => {}
            Ranges::Unsatisfiable => assert!(data.contains(&b'-')),
            Ranges::One(one) => check_ranges(&[one], length),
            Ranges::Many(many) => {
                assert!(many.len() > 1 && many.len() <= 16);
                check_ranges(&many, length);
                assert_eq!(
                    resolve(data, length, many.len() - 1),
                    Ranges::Whole,
                    "a lower limit holds too"
                );
            }
        }
    }
}

fn check_ranges(ranges: &[ByteRange], length: u64) {
    let mut sum = 0u128;
    for range in ranges {
        assert!(range.start <= range.end && range.end < length);
        let again = resolve(format!("bytes={}-{}", range.start, range.end).as_bytes(), length, 1);
        assert_eq!(again, Ranges::One(*range));
        sum += u128::from(range.length());
    }
    assert!(sum <= u128::from(length));
}
