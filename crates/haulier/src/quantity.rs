//! Numbers as text for people, the same on a terminal and in a page.

use std::time::Duration;

use haulier_settings::Report;

/// Per second: `142`, `1.4`.
pub(crate) fn rate(per_second: f64) -> String {
    if per_second >= 9.95 || per_second == 0.0 {
        format!("{per_second:.0}")
    } else {
        format!("{per_second:.1}")
    }
}

/// A time; `<1 ms` within the first class of the histogram, which has no finer values, and `–` if it is unknown.
pub(crate) fn milliseconds(time: Option<f64>) -> String {
    match time {
        None => "–".to_owned(),
        Some(time) if time <= 1.0 => "<1 ms".to_owned(),
        Some(time) if time < 1000.0 => format!("{time:.0} ms"),
        Some(time) => format!("{:.1} s", time / 1000.0),
    }
}

/// `412 MB`
pub(crate) fn size(bytes: f64) -> String {
    match bytes {
        bytes if bytes < 1e3 => format!("{bytes:.0} B"),
        bytes if bytes < 1e6 => format!("{:.0} KB", bytes / 1e3),
        bytes if bytes < 1e9 => format!("{:.0} MB", bytes / 1e6),
        bytes => format!("{:.1} GB", bytes / 1e9),
    }
}

/// `3 d 4 h`, `1 h 52 min`, `40 s`, `2.1 s`
pub(crate) fn span(seconds: f64) -> String {
    let whole = Duration::try_from_secs_f64(seconds.max(0.0)).map_or(u64::MAX, |span| span.as_secs());
    let (days, hours, minutes) = (whole / 86_400, whole / 3600 % 24, whole / 60 % 60);
    match whole {
        0..60 if seconds < 10.0 => format!("{seconds:.1} s"),
        0..60 => format!("{whole} s"),
        60..3600 => format!("{minutes} min {} s", whole % 60),
        3600..86_400 => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// A number that counts things: `1 234 567`, in groups of three.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 2);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push('\u{202f}'); // a narrow space that does not break
        }
        text.push(digit);
    }
    text
}

/// `1 request`, `2 requests`
pub(crate) fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// `2 errors, 1 warning`
pub(crate) fn findings(report: &Report) -> String {
    let counted = [(report.errors(), "error"), (report.warnings(), "warning")];
    let words = counted
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| plural(*count, what));
    words.collect::<Vec<_>>().join(", ")
}

/// `1 site`, `2 sites`
pub(crate) fn plural(count: usize, what: &str) -> String {
    if count == 1 {
        format!("{count} {what}")
    } else {
        format!("{count} {what}s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_sizes_and_rates_read_well() {
        let spans = [0.0, 2.14, 40.0, 61.0, 6720.0, 273_600.0].map(span);
        assert_eq!(spans, ["0.0 s", "2.1 s", "40 s", "1 min 1 s", "1 h 52 min", "3 d 4 h"]);
        assert_eq!(
            [0.0, 999.0, 412e6, 5.25e9].map(size),
            ["0 B", "999 B", "412 MB", "5.2 GB"]
        );
        assert_eq!(
            [0.0, 0.04, 1.44, 9.96, 142.4].map(rate),
            ["0", "0.0", "1.4", "10", "142"]
        );
        let times = [None, Some(0.3), Some(21.2), Some(1234.0)].map(milliseconds);
        assert_eq!(times, ["–", "<1 ms", "21 ms", "1.2 s"]);
    }

    #[test]
    fn large_numbers_are_grouped() {
        let shown = |number| count(number).replace('\u{202f}', " ");
        assert_eq!([0, 999, 1000, 1_234_567].map(shown), ["0", "999", "1 000", "1 234 567"]);
        assert_eq!(counted(1, "request", "requests"), "1 request");
        assert_eq!(counted(0, "request", "requests"), "0 requests");
    }
}
