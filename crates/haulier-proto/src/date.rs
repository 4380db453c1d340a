//! HTTP dates (RFC 9110 §5.6.7), as seconds since 1970.
//!
//! Dates are written as IMF-fixdate only; the two obsolete forms are read as well. The server formats a date once a
//! second or once a file, so this is no hot path, and httpdate does the arithmetic.

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use httpdate::HttpDate;

/// The last second of the year 9999: a year has four digits.
const LAST: u64 = 253_402_300_799;

/// Seconds since 1970 as IMF-fixdate, `Sun, 06 Nov 1994 08:49:37 GMT`. Beyond the year 9999 it is its last second.
pub fn format(unix_seconds: u64) -> [u8; 29] {
    let date = HttpDate::from(UNIX_EPOCH + Duration::from_secs(unix_seconds.min(LAST)));
    let mut text = [b' '; 29];
    write!(&mut text[..], "{date}").expect("an IMF-fixdate has 29 bytes");
    text
}

/// Seconds since 1970 of a date in any of the three forms; `None` for anything else, a date that does not exist, a
/// weekday that is not the date's, and years before 1970.
///
/// RFC 9110 §5.6.7 reads two-digit years relative to now; without a clock 70–99 are 19xx and 00–69 are 20xx.
pub fn parse(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?;
    let time = SystemTime::from(text.parse::<HttpDate>().ok()?);
    time.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_date_is_written_as_imf_fixdate() {
        assert_eq!(&format(0), b"Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(&format(784_111_777), b"Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(&format(951_782_400), b"Tue, 29 Feb 2000 00:00:00 GMT");
    }

    #[test]
    fn dates_beyond_four_digit_years_stop_at_the_last_second() {
        assert_eq!(&format(LAST), b"Fri, 31 Dec 9999 23:59:59 GMT");
        assert_eq!(format(LAST + 1), format(LAST));
        assert_eq!(format(u64::MAX), format(LAST));
    }

    #[test]
    fn all_three_forms_of_rfc_9110_are_read() {
        for form in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            assert_eq!(parse(form.as_bytes()), Some(784_111_777), "{form}");
        }
    }

    #[test]
    fn what_is_no_date_is_none() {
        for not_a_date in [
            "",
            "0",
            "784111777",
            "1994-11-06T08:49:37Z",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 06 Nov 1994 08:49:37 GMT; length=5",
            "Mon, 06 Nov 1994 08:49:37 GMT",
            "Wed, 30 Feb 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:49:37 GMT",
            "Wed, 31 Dec 1969 23:59:59 GMT",
            "Sün, 06 Nov 1994 08:49:37 GMT",
        ] {
            assert_eq!(parse(not_a_date.as_bytes()), None, "{not_a_date}");
        }
        assert_eq!(parse(b"Sun, 06 Nov 1994 08:49:37 \xff\xff\xff"), None);
    }

    proptest! {
        #[test]
        fn what_is_formatted_is_read_back(seconds in 0..=LAST) {
            prop_assert_eq!(parse(&format(seconds)), Some(seconds));
        }

        #[test]
        fn any_bytes_are_read_without_panic(value in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Some(seconds) = parse(&value) {
                prop_assert!(seconds <= LAST);
            }
        }
    }
}
