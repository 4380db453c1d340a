//! Queries as pairs of names and values.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use crate::error::OptionError;

/// The pairs of a query, not decoded.
pub(super) fn raw_pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

/// The pairs of a query, percent-decoded; `+` is a space, as in forms.
pub(super) fn pairs(query: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    raw_pairs(query).map(|(name, value)| (decoded(name), decoded(value)))
}

fn decoded(text: &str) -> Cow<'_, str> {
    if text.contains('+') {
        let spaced = text.replace('+', " ");
        return Cow::Owned(percent_decode_str(&spaced).decode_utf8_lossy().into_owned());
    }
    percent_decode_str(text).decode_utf8_lossy()
}

/// The error for an invalid value.
pub(super) fn bad(name: &str, value: &str, expected: &'static str) -> OptionError {
    OptionError::Value {
        name: name.to_owned(),
        value: value.chars().take(40).collect(),
        expected,
    }
}

/// Reads a decimal number of at most `most`.
pub(super) fn number(name: &str, value: &str, most: u32) -> Result<u32, OptionError> {
    let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let number = if digits { value.parse().ok() } else { None };
    number
        .filter(|&number| number <= most)
        .ok_or_else(|| bad(name, value, "a whole number that is not too large"))
}

/// Reads a decimal fraction in the range, in hundredths.
pub(super) fn hundredths(name: &str, value: &str, least: u16, most: u16) -> Result<u16, OptionError> {
    let plain = value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let number: Option<f64> = if plain { value.parse().ok() } else { None };
    number
        .map(|number| (number * 100.0).round())
        .filter(|number| (f64::from(least)..=f64::from(most)).contains(number))
        .map(|number| number as u16)
        .ok_or_else(|| bad(name, value, "a number in the range that the documentation gives"))
}

/// Reads a switch: true for `1`, `true`, `yes` and an empty value, false for `0`, `false` and `no`.
pub(super) fn switch(name: &str, value: &str) -> Result<bool, OptionError> {
    match value {
        "" | "1" | "true" | "yes" => Ok(true),
        "0" | "false" | "no" => Ok(false),
        _ => Err(bad(name, value, "1 or 0")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_split_and_decoded() {
        let of = |query| pairs(query).map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>();
        assert_eq!(of("w=1&&h&bg=%23fff&t=a+b"), ["w=1", "h=", "bg=#fff", "t=a b"]);
        assert_eq!(
            raw_pairs("w=%31&h=2=3").collect::<Vec<_>>(),
            [("w", "%31"), ("h", "2=3")]
        );
    }

    #[test]
    fn numbers_are_plain_digits() {
        assert_eq!(number("w", "0100", 4096), Ok(100));
        for wrong in ["", "-1", "+1", "1.0", "4097", "99999999999999999999", "١"] {
            assert!(number("w", wrong, 4096).is_err(), "{wrong}");
        }
    }

    #[test]
    fn decimal_numbers_are_kept_in_hundredths() {
        assert_eq!(hundredths("dpr", "1.5", 100, 500), Ok(150));
        assert_eq!(hundredths("dpr", "2", 100, 500), Ok(200));
        for wrong in ["", "0.5", "5.01", "inf", "1e2", "NaN", "-1"] {
            assert!(hundredths("dpr", wrong, 100, 500).is_err(), "{wrong}");
        }
    }
}
