//! Accept-Encoding: the codings that a client accepts, and their weights (RFC 9110 §12.5.3).
//!
//! An item with a malformed weight is ignored, and so is a coding that haulier does not have.

use crate::field::{Fields, Known};

/// A content coding of haulier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Coding {
    /// RFC 8878, with a window of at most 8 MiB (RFC 9659).
    Zstd,
    /// RFC 7932.
    Brotli,
    /// RFC 1952.
    Gzip,
    /// Zstandard with a dictionary the client holds (RFC 9842 §5).
    DictionaryZstd,
}

impl Coding {
    /// Those that need no dictionary.
    pub const PLAIN: [Self; 3] = [Self::Zstd, Self::Brotli, Self::Gzip];
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Zstd, Self::Brotli, Self::Gzip, Self::DictionaryZstd];

    /// Its name in Content-Encoding.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Brotli => "br",
            Self::Gzip => "gzip",
            Self::DictionaryZstd => "dcz",
        }
    }

    /// A number below 4, for tables.
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }

    fn of(name: &[u8]) -> Option<Self> {
        // RFC 9110 §8.4.1.3: x-gzip is gzip.
        if name.eq_ignore_ascii_case(b"x-gzip") {
            return Some(Self::Gzip);
        }
        Self::ALL
            .into_iter()
            .find(|coding| name.eq_ignore_ascii_case(coding.as_str().as_bytes()))
    }
}

/// The codings a client accepts: a weight from 0 (not at all) to 1000 for each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Accepted {
    weights: [u16; Coding::ALL.len()],
}

impl Accepted {
    /// Reads the Accept-Encoding lines of a request. Without such a line, or with an empty one, only the plain body is
    /// accepted. A list that refuses the plain body itself is ignored in that point: the client still wants an answer
    /// (RFC 9110 §12.5.3 leaves this to the server).
    #[must_use]
    pub fn of(fields: &Fields) -> Self {
        let Some(first) = fields.known(Known::AcceptEncoding) else {
            return Self::default();
        };
        let mut weights = [None; Coding::ALL.len()];
        let mut others = None;
        if fields.is_repeated(Known::AcceptEncoding) {
            for value in fields.get_all("accept-encoding") {
                read(value, &mut weights, &mut others);
            }
        } else {
            read(first, &mut weights, &mut others);
        }
        // `*` does not include dictionaries: the client names the coding it has a dictionary for.
        let default = |index: usize| {
            let named_only = index == Coding::DictionaryZstd.index();
            others.filter(|_| !named_only).unwrap_or(0)
        };
        Self {
            weights: std::array::from_fn(|index| weights[index].unwrap_or_else(|| default(index))),
        }
    }

    /// The weight of a coding: 0 = not accepted, 1000 = preferred.
    #[must_use]
    pub fn weight(&self, coding: Coding) -> u16 {
        self.weights[coding.index()]
    }

    /// True if no coding is accepted.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.weights == [0; Coding::ALL.len()]
    }

    /// The coding of `order` with the greatest weight; the first of those with the same.
    #[must_use]
    pub fn best(&self, order: &[Coding]) -> Option<Coding> {
        let mut best: Option<Coding> = None;
        for &coding in order {
            if self.weight(coding) > best.map_or(0, |best| self.weight(best)) {
                best = Some(coding);
            }
        }
        best
    }
}

/// Reads one line. If a coding is named twice, the first weight counts.
fn read(value: &[u8], weights: &mut [Option<u16>; Coding::ALL.len()], others: &mut Option<u16>) {
    for item in value.split(|&byte| byte == b',') {
        let mut parts = item.splitn(2, |&byte| byte == b';');
        let name = parts.next().unwrap_or_default().trim_ascii();
        let weight = match parts.next() {
            None => Some(1000),
            Some(parameter) => weight(parameter),
        };
        let Some(weight) = weight else { continue };
        let slot = if name == b"*" {
            &mut *others
        } else if let Some(coding) = Coding::of(name) {
            &mut weights[coding.index()]
        } else {
            continue;
        };
        slot.get_or_insert(weight);
    }
}

/// `weight = OWS ";" OWS "q=" qvalue`, at most three decimals (RFC 9110 §12.4.2); in thousandths.
fn weight(parameter: &[u8]) -> Option<u16> {
    let parameter = parameter.trim_ascii();
    let value = parameter
        .strip_prefix(b"q=")
        .or_else(|| parameter.strip_prefix(b"Q="))?;
    let (&whole, rest) = value.split_first()?;
    let decimals = match rest {
        [] => rest,
        [b'.', decimals @ ..] if decimals.len() <= 3 => decimals,
        _ => return None,
    };
    if !matches!(whole, b'0' | b'1') || !decimals.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let thousandths = [100, 10, 1]
        .iter()
        .zip(decimals)
        .map(|(place, digit)| place * u16::from(digit - b'0'))
        .sum::<u16>();
    let weight = u16::from(whole - b'0') * 1000 + thousandths;
    (weight <= 1000).then_some(weight)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ORDER: [Coding; 3] = [Coding::Zstd, Coding::Brotli, Coding::Gzip];

    fn accepted(lines: &[&str]) -> Accepted {
        let mut fields = Fields::new();
        for line in lines {
            fields.append("Accept-Encoding", line);
        }
        Accepted::of(&fields)
    }

    fn best(line: &str) -> Option<&'static str> {
        accepted(&[line]).best(&ORDER).map(Coding::as_str)
    }

    /// RFC 9110 §12.5.3, row by row.
    #[test]
    fn the_gladly_taken_coding_wins_and_ours_among_equals() {
        for (line, expected) in [
            ("", None),
            ("identity", None),
            ("gzip", Some("gzip")),
            ("GZIP", Some("gzip")),
            ("x-gzip", Some("gzip")),
            ("gzip, deflate", Some("gzip")),
            ("gzip, deflate, br", Some("br")),
            ("gzip, deflate, br, zstd", Some("zstd")),
            ("gzip;q=1.0, br;q=0.9, zstd;q=0.8", Some("gzip")),
            ("br ; q=0.5 ,gzip;Q=0.501", Some("gzip")),
            ("gzip;q=0", None),
            ("gzip;q=0.000, br;q=0.001", Some("br")),
            ("*", Some("zstd")),
            ("*;q=0", None),
            ("zstd;q=0, *", Some("br")),
            ("*;q=0.1, gzip", Some("gzip")),
            ("identity;q=0", None),
            ("identity;q=0, gzip;q=0.1", Some("gzip")),
            (",, gzip ,,", Some("gzip")),
            ("gzip;q=0, gzip", None),
            ("compress, deflate, lzma", None),
            ("gzipx, xgzip", None),
        ] {
            assert_eq!(best(line), expected, "{line:?}");
        }
    }

    #[test]
    fn a_malformed_weight_makes_its_item_absent() {
        for item in [
            "gzip;q=",
            "gzip;q=2",
            "gzip;q=1.001",
            "gzip;q=0.1234",
            "gzip;q=.5",
            "gzip;q=-1",
            "gzip;q=a",
            "gzip;x=1",
            "gzip;",
            "gzip;q=1;q=0",
            "gzip;q = 1",
            "gzip;q=0,5",
            "gzip;q=1e0",
        ] {
            assert_eq!(best(item), None, "{item:?}");
            assert_eq!(best(&format!("{item}, br;q=0.3")), Some("br"), "{item:?}");
        }
    }

    #[test]
    fn several_lines_are_one_list_and_no_line_accepts_nothing() {
        assert_eq!(accepted(&["gzip;q=0.5", "br"]).best(&ORDER), Some(Coding::Brotli));
        assert!(accepted(&[]).is_none());
        assert!(!accepted(&["gzip;q=0.001"]).is_none());
    }

    #[test]
    fn a_dictionary_coding_is_accepted_by_name_only() {
        assert_eq!(accepted(&["*"]).weight(Coding::DictionaryZstd), 0);
        assert_eq!(accepted(&["gzip, dcz"]).weight(Coding::DictionaryZstd), 1000);
    }

    proptest! {
        #[test]
        fn any_value_is_read_and_weights_stay_in_their_range(value in "[a-z*;=,. 0-9\\x80-\\xff-]{0,60}") {
            let accepted = accepted(&[&value]);
            for coding in Coding::ALL {
                prop_assert!(accepted.weight(coding) <= 1000);
            }
        }

        #[test]
        fn what_is_written_is_what_is_read(
            weights in proptest::array::uniform3(0..=1000u16), order in Just([2usize, 0, 1]),
        ) {
            let written = |weight: u16| format!("{}.{:03}", weight / 1000, weight % 1000);
            let line: Vec<_> = order
                .iter()
                .map(|&index| format!("{};q={}", ORDER[index].as_str(), written(weights[index])))
                .collect();
            let accepted = accepted(&[&line.join(", ")]);
            for (coding, weight) in ORDER.into_iter().zip(weights) {
                prop_assert_eq!(accepted.weight(coding), weight);
            }
            let most = weights.iter().max().copied().unwrap_or(0);
            let expected = ORDER.into_iter().zip(weights).find(|&(_, weight)| weight == most && most > 0);
            prop_assert_eq!(accepted.best(&ORDER), expected.map(|(coding, _)| coding));
        }
    }
}
