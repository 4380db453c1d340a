//! Durations in messages: `5.3 ms`, `60 s`.

use std::fmt;
use std::time::Duration;

/// A duration that is shown with its unit and at most one decimal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShownDuration(pub(crate) Duration);

impl fmt::Display for ShownDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.as_micros();
        let (tenths, unit) = match micros {
            0..1_000 => (micros * 10, "µs"),
            1_000..1_000_000 => (micros / 100, "ms"),
            _ => (micros / 100_000, "s"),
        };
        match tenths % 10 {
            0 => write!(f, "{} {unit}", tenths / 10),
            tenth => write!(f, "{}.{tenth} {unit}", tenths / 10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_a_unit_and_few_digits() {
        for (micros, text) in [
            (0, "0 µs"),
            (340, "340 µs"),
            (5_342, "5.3 ms"),
            (999_999, "999.9 ms"),
            (1_000_000, "1 s"),
            (2_550_000, "2.5 s"),
            (60_000_000, "60 s"),
        ] {
            assert_eq!(ShownDuration(Duration::from_micros(micros)).to_string(), text);
        }
    }
}
