//! The local time of day, as log lines for people have it: `12:04:11+01`, `11:04:11Z`.
#![allow(unsafe_code)] // localtime_r, which the standard library lacks

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The offset of a zone changes at most this often, seconds.
const QUARTER: i64 = 900;
/// No offset was looked up so far.
const UNKNOWN: i64 = i64::MAX;

/// A time of day with its offset from UTC (ISO 8601).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeOfDay {
    /// Second of the local day.
    second: i64,
    /// Offset from UTC, seconds.
    offset: i64,
}

impl TimeOfDay {
    #[must_use]
    pub fn at(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let second = i64::try_from(since).unwrap_or_default();
        Self::with_offset(second, offset(second))
    }

    fn with_offset(second: i64, offset: i64) -> Self {
        Self {
            second: (second + offset).rem_euclid(86_400),
            offset,
        }
    }
}

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { second, offset } = *self;
        write!(f, "{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)?;
        let (sign, minutes) = (if offset < 0 { '-' } else { '+' }, offset.abs() / 60);
        match (minutes / 60, minutes % 60) {
            (0, 0) => f.write_str("Z"),
            (hours, 0) => write!(f, "{sign}{hours:02}"),
            (hours, minutes) => write!(f, "{sign}{hours:02}:{minutes:02}"),
        }
    }
}

/// The zone's offset at this second since 1970, looked up once in a quarter of an hour.
fn offset(second: i64) -> i64 {
    // The quarter and its offset share one number, so no thread sees one without the other.
    static KNOWN: AtomicI64 = AtomicI64::new(UNKNOWN);
    const DAY: i64 = 86_400;
    let quarter = second.div_euclid(QUARTER);
    let known = KNOWN.load(Ordering::Relaxed);
    if known != UNKNOWN && known.div_euclid(4 * DAY) == quarter {
        return known.rem_euclid(4 * DAY) - 2 * DAY;
    }
    let offset = look_up(second);
    KNOWN.store(quarter * 4 * DAY + offset + 2 * DAY, Ordering::Relaxed);
    offset
}

fn look_up(second: i64) -> i64 {
    let mut parts = std::mem::MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both pointers are to live values of the types localtime_r takes. Fields that it leaves unwritten are
    // zero, a valid value.
    let parts = unsafe {
        libc::localtime_r(&second, parts.as_mut_ptr());
        parts.assume_init()
    };
    parts.tm_gmtoff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_day_says_how_far_from_utc_it_is() {
        let shown = |second, offset| TimeOfDay::with_offset(second, offset).to_string();
        assert_eq!(shown(3661, 0), "01:01:01Z");
        assert_eq!(shown(86_399, 3600), "00:59:59+01");
        assert_eq!(shown(0, -12_600), "20:30:00-03:30");
        assert_eq!(shown(0, 20_700), "05:45:00+05:45");
    }

    #[test]
    fn an_offset_is_the_same_however_often_it_is_asked_for() {
        let now = TimeOfDay::at(SystemTime::UNIX_EPOCH);
        assert_eq!(now.offset, look_up(0));
        assert_eq!(TimeOfDay::at(SystemTime::UNIX_EPOCH), now);
    }
}
