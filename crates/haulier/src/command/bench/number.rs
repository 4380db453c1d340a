//! Numbers as people read them.

/// `161,759`, `22.6`, `0.05`: three digits that matter, more where they stand before the point.
pub(super) fn rate(value: f64) -> String {
    match value {
        _ if value >= 1000.0 => count(value.round() as u64),
        _ if value >= 100.0 => format!("{value:.0}"),
        _ if value >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// `12,345,678`.
pub(super) fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `0.031 ms`, `31.2 ms`, `1.95 s`, of microseconds; `4.2 µs` below 10.
pub(super) fn time_us(microseconds: f64) -> String {
    match microseconds {
        _ if microseconds < 10.0 => format!("{microseconds:.1} µs"),
        _ if microseconds < 10_000.0 => format!("{:.3} ms", microseconds / 1e3),
        _ if microseconds < 100_000.0 => format!("{:.1} ms", microseconds / 1e3),
        _ if microseconds < 1_000_000.0 => format!("{:.0} ms", microseconds / 1e3),
        _ => format!("{:.2} s", microseconds / 1e6),
    }
}

/// `487 KB`, `1.25 MB`.
pub(super) fn bytes(amount: f64) -> String {
    match amount {
        _ if amount < 1e4 => format!("{} B", count(amount.round() as u64)),
        _ if amount < 1e6 => format!("{:.1} KB", amount / 1e3),
        _ if amount < 1e9 => format!("{:.2} MB", amount / 1e6),
        _ => format!("{:.2} GB", amount / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_matter() {
        assert_eq!(rate(161_759.3), "161,759");
        assert_eq!(
            (rate(22.6), rate(0.0512), rate(999.4)),
            ("22.6".to_owned(), "0.05".to_owned(), "999".to_owned())
        );
        assert_eq!(
            (count(0), count(999), count(12_345_678)),
            ("0".to_owned(), "999".to_owned(), "12,345,678".to_owned())
        );
    }

    #[test]
    fn times_and_sizes_choose_their_unit() {
        let times = [4.25, 390.0, 31_240.0, 612_000.0, 1_950_000.0].map(time_us);
        assert_eq!(times, ["4.2 µs", "0.390 ms", "31.2 ms", "612 ms", "1.95 s"]);
        let sizes = [236.0, 487_000.0, 4_039_229.0].map(bytes);
        assert_eq!(sizes, ["236 B", "487.0 KB", "4.04 MB"]);
    }
}
