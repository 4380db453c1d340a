//! The end of certificates, in words.

use std::time::Duration;

/// Time before the end of a certificate within which its renewal is overdue.
pub(crate) const SOON: Duration = Duration::from_secs(7 * 86_400);

/// `3 days`, `5 hours`
pub(crate) fn days(span: Duration) -> String {
    let hours = span.as_secs() / 3600;
    let (count, unit) = if hours < 48 {
        (hours, "hour")
    } else {
        (hours / 24, "day")
    };
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {unit}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_in_hours_or_days() {
        let words = |hours: u64| days(Duration::from_secs(hours * 3600));
        assert_eq!(
            [words(1), words(47), words(48), words(90 * 24)],
            ["1 hour", "47 hours", "2 days", "90 days"]
        );
    }
}
