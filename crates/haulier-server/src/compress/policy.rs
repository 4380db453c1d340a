//! The choice of coding and level, by the client's preferences, the length of the body and the load.
//!
//! Brotli is best for small bodies, thanks to its dictionary of web vocabulary; zstd for long ones, as it is three
//! times as fast at the same size. A choice is a value; others act on it.

use haulier_proto::accept::{Accepted, Coding};

use super::load::CpuLoad;
use super::settings::{CompressLevel, CompressSettings};

/// A coding with the parameters of its coder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) coding: Coding,
    pub(crate) level: i32,
    /// Largest window, as a power of two; `None` leaves it to the level.
    pub(crate) window: Option<u32>,
}

/// The length of a body, as far as known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyExtent {
    /// Complete: its bytes.
    Whole(u64),
    /// Not complete; its length, if announced.
    Long(Option<u64>),
    /// An event stream.
    Endless,
}

/// Window for output of PHP: enough for any page, at 2 MiB each.
pub(crate) const DYNAMIC_WINDOW: u32 = 21;
/// Window for streams that may stay open for hours.
const ENDLESS_WINDOW: u32 = 17;
/// From this zstd level on the default window would exceed [`DYNAMIC_WINDOW`].
const WIDE_LEVEL: i32 = 9;

/// Below this length brotli wins.
const SMALL: u64 = 16 * 1024;
/// From this length on a page is unusually long.
const LONG: u64 = 256 * 1024;

const BY_SIZE: [Coding; 3] = [Coding::Brotli, Coding::Zstd, Coding::Gzip];
const BY_SPEED: [Coding; 3] = [Coding::Zstd, Coding::Brotli, Coding::Gzip];

/// Chooses for a body; `None` if the client accepts none of the site's codings.
#[must_use]
pub(crate) fn choose(
    settings: &CompressSettings,
    accepted: &Accepted,
    extent: BodyExtent,
    load: CpuLoad,
) -> Option<Choice> {
    let order = match extent {
        BodyExtent::Whole(length) if length < SMALL => BY_SIZE,
        BodyExtent::Whole(length) if length < LONG && load == CpuLoad::Idle => BY_SIZE,
        _ => BY_SPEED,
    };
    let coding = best(settings, accepted, order)?;
    let level = explicit(settings, coding).unwrap_or_else(|| level(settings.level, coding, extent, load));
    let level = if extent == BodyExtent::Endless {
        level.min(1)
    } else {
        level
    };
    Some(Choice {
        coding,
        level: level.max(i32::from(coding != Coding::Brotli)),
        window: window(coding, level, extent),
    })
}

/// Chooses again for a client that holds a dictionary of the site: content shared with it is not sent, whatever the
/// body is. `plain` is the choice without it.
#[must_use]
pub(crate) fn with_dictionary(plain: Option<Choice>, accepted: &Accepted) -> Option<Choice> {
    let weight = plain.map_or(0, |choice| accepted.weight(choice.coding));
    if accepted.weight(Coding::DictionaryZstd) < weight.max(1) {
        return None;
    }
    Some(Choice {
        coding: Coding::DictionaryZstd,
        level: 3,
        window: None,
    })
}

/// Above this length brotli takes seconds at level 11 and gains little over level 9.
const BROTLI_11: u64 = 1 << 20;

/// Parameters for the compressed copy of a file of this length. RFC 9659 limits the window.
#[must_use]
pub(crate) fn stored(coding: Coding, length: u64) -> Choice {
    let level = match coding {
        Coding::Zstd | Coding::DictionaryZstd => 19,
        Coding::Brotli if length <= BROTLI_11 => 11,
        Coding::Brotli => 9,
        Coding::Gzip => 12,
    };
    let window = match coding {
        Coding::Brotli => None,
        // Level 19 stays at 2^23 by default; this states the limit.
        _ => (length > 1 << 23).then_some(23),
    };
    Choice { coding, level, window }
}

fn best(settings: &CompressSettings, accepted: &Accepted, order: [Coding; 3]) -> Option<Coding> {
    let allowed = |coding: &Coding| settings.algorithms.contains(coding);
    let mut used = [Coding::Gzip; 3];
    let mut count = 0;
    for coding in order.into_iter().filter(allowed) {
        used[count] = coding;
        count += 1;
    }
    accepted.best(&used[..count])
}

fn explicit(settings: &CompressSettings, coding: Coding) -> Option<i32> {
    settings.explicit.get(coding.index()).copied().flatten().map(i32::from)
}

/// Levels for an idle, busy and overloaded machine, as in docs/compression.md.
fn level(level: CompressLevel, coding: Coding, extent: BodyExtent, load: CpuLoad) -> i32 {
    let middle = matches!(extent, BodyExtent::Whole(length) if (SMALL..LONG).contains(&length));
    let whole = matches!(extent, BodyExtent::Whole(_));
    let steps = match (level, coding) {
        (CompressLevel::Fast | CompressLevel::Off, Coding::Gzip) if !whole => [2, 2, 2],
        (CompressLevel::Fast | CompressLevel::Off, _) => [1, 1, 1],
        (CompressLevel::Balanced, Coding::Zstd | Coding::DictionaryZstd) if middle => [6, 3, 1],
        (CompressLevel::Balanced, Coding::Zstd | Coding::DictionaryZstd) => [3, 3, 1],
        (CompressLevel::Balanced, Coding::Brotli) if whole => [5, 5, 1],
        (CompressLevel::Balanced, Coding::Brotli) => [4, 2, 1],
        (CompressLevel::Balanced, Coding::Gzip) if whole => [6, 4, 1],
        (CompressLevel::Balanced, Coding::Gzip) => [6, 4, 3],
        (CompressLevel::Small, Coding::Zstd | Coding::DictionaryZstd) => [9, 5, 3],
        (CompressLevel::Small, Coding::Brotli) => [6, 5, 2],
        (CompressLevel::Small, Coding::Gzip) => [9, 6, 4],
    };
    steps[load as usize]
}

fn window(coding: Coding, level: i32, extent: BodyExtent) -> Option<u32> {
    match (coding, extent) {
        (Coding::Gzip, _) => None,
        (_, BodyExtent::Endless) => Some(ENDLESS_WINDOW),
        // Its coder picks a window by level and length, and a smaller one than this if both are unknown.
        (Coding::Brotli, BodyExtent::Long(None)) if level > 5 => Some(DYNAMIC_WINDOW),
        (Coding::Brotli, _) => None,
        (Coding::Zstd | Coding::DictionaryZstd, _) => (level >= WIDE_LEVEL).then_some(DYNAMIC_WINDOW),
    }
}

#[cfg(test)]
mod tests {
    use haulier_proto::field::Fields;

    use super::*;

    fn accepted(value: &str) -> Accepted {
        let mut fields = Fields::new();
        fields.append("Accept-Encoding", value);
        Accepted::of(&fields)
    }

    fn chosen(accept: &str, extent: BodyExtent, load: CpuLoad) -> Option<(&'static str, i32)> {
        let choice = choose(&CompressSettings::default(), &accepted(accept), extent, load)?;
        Some((choice.coding.as_str(), choice.level))
    }

    const BROWSER: &str = "gzip, deflate, br, zstd";

    #[test]
    fn size_load_and_client_decide() {
        use BodyExtent::{Endless, Long, Whole};
        use CpuLoad::{Busy, Idle, Overloaded};
        for (accept, extent, load, expected) in [
            (BROWSER, Whole(4403), Idle, Some(("br", 5))),
            (BROWSER, Whole(4403), Busy, Some(("br", 5))),
            (BROWSER, Whole(4403), Overloaded, Some(("br", 1))),
            (BROWSER, Whole(48_000), Idle, Some(("br", 5))),
            (BROWSER, Whole(48_000), Busy, Some(("zstd", 3))),
            (BROWSER, Whole(48_000), Overloaded, Some(("zstd", 1))),
            (BROWSER, Whole(4_000_000), Idle, Some(("zstd", 3))),
            (BROWSER, Long(None), Idle, Some(("zstd", 3))),
            (BROWSER, Endless, Idle, Some(("zstd", 1))),
            ("gzip, br", Long(None), Idle, Some(("br", 4))),
            ("zstd", Whole(48_000), Idle, Some(("zstd", 6))),
            ("gzip", Whole(4_000_000), Idle, Some(("gzip", 6))),
            ("gzip", Whole(4_000_000), Busy, Some(("gzip", 4))),
            ("gzip", Long(None), Overloaded, Some(("gzip", 3))),
            ("gzip, br;q=0.1", Whole(100), Idle, Some(("gzip", 6))),
            ("deflate", Whole(48_000), Idle, None),
        ] {
            assert_eq!(chosen(accept, extent, load), expected, "{accept} {extent:?} {load:?}");
        }
    }

    #[test]
    fn an_explicit_level_holds_under_any_load() {
        let settings = CompressSettings {
            explicit: [Some(9), None, None],
            ..CompressSettings::default()
        };
        for load in [CpuLoad::Idle, CpuLoad::Busy, CpuLoad::Overloaded] {
            let choice = choose(&settings, &accepted("zstd"), BodyExtent::Long(None), load).expect("zstd");
            assert_eq!((choice.level, choice.window), (9, Some(DYNAMIC_WINDOW)));
        }
    }

    #[test]
    fn a_coding_the_site_does_not_use_is_not_chosen() {
        let settings = CompressSettings {
            algorithms: vec![Coding::Gzip],
            ..CompressSettings::default()
        };
        let choice = choose(&settings, &accepted(BROWSER), BodyExtent::Whole(1000), CpuLoad::Idle);
        assert_eq!(choice.map(|choice| choice.coding), Some(Coding::Gzip));
        assert_eq!(
            choose(&settings, &accepted("br"), BodyExtent::Whole(1000), CpuLoad::Idle),
            None
        );
    }

    #[test]
    fn a_dictionary_wins_unless_the_client_prefers_another_coding() {
        for (accept, expected) in [
            ("gzip, br, zstd, dcz", true),
            ("dcz", true),
            ("br;q=0.5, dcz;q=0.5", true),
            ("br, dcz;q=0.5", false),
            ("br, dcz;q=0", false),
            ("*", false),
        ] {
            let accepted = accepted(accept);
            let plain = choose(
                &CompressSettings::default(),
                &accepted,
                BodyExtent::Whole(1000),
                CpuLoad::Idle,
            );
            assert_eq!(with_dictionary(plain, &accepted).is_some(), expected, "{accept}");
        }
    }
}
