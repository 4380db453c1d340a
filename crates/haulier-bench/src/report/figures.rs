//! Numbers as text: three significant digits, with their unit.

/// A whole number with thousands separators.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A quantity with at least three significant digits: `161,759`, `1,240`, `45.2`, `0.097`.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    if value < 0.0 {
        return format!("−{}", number(-value));
    }
    match value {
        0.0 => "0".to_owned(),
        _ if value >= 99.95 => count(value.round() as u64),
        _ if value >= 9.995 => format!("{value:.1}"),
        _ if value >= 0.9995 => format!("{value:.2}"),
        _ if value >= 0.0005 => format!("{value:.3}"),
        _ => "under 0.001".to_owned(),
    }
}

/// Microseconds as µs, ms or s.
pub fn time(us: f64) -> String {
    match us {
        _ if !us.is_finite() => "–".to_owned(),
        _ if us < 999.5 => format!("{} µs", digits(us)),
        _ if us < 999_500.0 => format!("{} ms", digits(us / 1e3)),
        _ => format!("{} s", digits(us / 1e6)),
    }
}

/// Bytes in thousands: `487 KB`.
pub fn bytes(value: f64) -> String {
    const UNITS: [&str; 4] = ["KB", "MB", "GB", "TB"];
    if !value.is_finite() {
        return "–".to_owned();
    }
    let (mut amount, mut unit) = (value, "B");
    for larger in UNITS {
        if amount < 999.5 {
            break;
        }
        (amount, unit) = (amount / 1e3, larger);
    }
    format!("{} {unit}", digits(amount))
}

/// A share as percent.
pub fn percent(share: f64) -> String {
    match share.is_finite() {
        true => format!("{} %", number(100.0 * share)),
        false => "–".to_owned(),
    }
}

/// A ratio: `0.97×`, `2.9×`, `485×`.
pub fn ratio(value: f64) -> String {
    match value {
        _ if !value.is_finite() => "–".to_owned(),
        _ if value >= 99.5 => format!("{}×", count(value.round() as u64)),
        _ if value >= 9.95 => format!("{value:.0}×"),
        _ if value >= 1.995 => format!("{value:.1}×"),
        _ => format!("{value:.2}×"),
    }
}

/// A value on an axis, as short as possible.
pub fn tick(value: f64) -> String {
    match value {
        _ if value >= 1e9 => format!("{} G", trimmed(value / 1e9)),
        _ if value >= 1e6 => format!("{} M", trimmed(value / 1e6)),
        _ if value >= 1e4 => format!("{} k", trimmed(value / 1e3)),
        _ => trimmed(value),
    }
}

/// The same for microseconds.
pub fn time_tick(us: f64) -> String {
    match us {
        _ if us >= 1e6 => format!("{} s", trimmed(us / 1e6)),
        _ if us >= 1e3 => format!("{} ms", trimmed(us / 1e3)),
        _ => format!("{} µs", trimmed(us)),
    }
}

/// At most three decimals, without trailing zeros.
fn trimmed(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn digits(amount: f64) -> String {
    match amount {
        _ if amount >= 99.95 || amount == amount.trunc() => format!("{amount:.0}"),
        _ if amount >= 9.995 => format!("{amount:.1}"),
        _ => format!("{amount:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_that_matter() {
        let shown: Vec<String> = [
            161_759.4,
            1240.0,
            99.96,
            45.23,
            5.101,
            0.0971,
            0.0,
            -3.0,
            f64::NAN,
            1e-9,
        ]
        .into_iter()
        .map(number)
        .collect();
        assert_eq!(
            shown,
            [
                "161,759",
                "1,240",
                "100",
                "45.2",
                "5.10",
                "0.097",
                "0",
                "−3.00",
                "–",
                "under 0.001"
            ]
        );
    }

    #[test]
    fn times_and_sizes_choose_their_unit() {
        let times: Vec<String> = [3.0, 450.0, 999.7, 31_200.0, 1_950_000.0]
            .into_iter()
            .map(time)
            .collect();
        assert_eq!(times, ["3 µs", "450 µs", "1.00 ms", "31.2 ms", "1.95 s"]);
        let sizes: Vec<String> = [0.0, 45.0, 487_213.0, 4_039_229.0, 2e12]
            .into_iter()
            .map(bytes)
            .collect();
        assert_eq!(sizes, ["0 B", "45 B", "487 KB", "4.04 MB", "2 TB"]);
    }

    #[test]
    fn ratios_and_ticks_are_short() {
        let ratios: Vec<String> = [0.974, 1.0, 2.93, 31.4, 485.2].into_iter().map(ratio).collect();
        assert_eq!(ratios, ["0.97×", "1.00×", "2.9×", "31×", "485×"]);
        let ticks: Vec<String> = [0.0, 0.25, 5000.0, 20_000.0, 1.5e6].into_iter().map(tick).collect();
        assert_eq!(ticks, ["0", "0.25", "5000", "20 k", "1.5 M"]);
        assert_eq!(time_tick(2e6), "2 s");
        assert_eq!(time_tick(500.0), "500 µs");
    }
}
