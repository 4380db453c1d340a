//! Client hints about the screen of a browser, for addresses without a size or density (RFC 8942, Responsive Image
//! Client Hints).
//!
//! The caller must add `Vary` to the response. Hints are rounded to a few steps, which limits the number of variants,
//! and never make a query fail.

use crate::limits::Limits;
use crate::options::{Mode, Size, Transform, Unit};

/// Pixel densities in hundredths. A higher one makes no visible difference.
const DENSITIES: [u16; 4] = [100, 150, 200, 300];
/// A width is rounded up to a multiple of this if there is no ladder, pixels.
const STEP: u32 = 160;
/// The largest plausible width, pixels.
const MOST_PIXELS: u32 = 100_000;

/// The hints of a browser.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hints {
    /// Pixel density: device pixels per CSS pixel, hundredths.
    pub density: Option<u16>,
    /// Width of the picture in device pixels.
    pub width: Option<u32>,
}

/// The hint that a variant depends on, besides its query.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Hinted {
    /// No hint.
    #[default]
    Nothing,
    /// The pixel density: the query has a size, but no density.
    Density,
    /// The width: the query has no size.
    Width,
}

impl Hints {
    /// Reads the values of `Sec-CH-DPR` and `Sec-CH-Width`, or of their older names `DPR` and `Width`. Malformed
    /// numbers are ignored.
    #[must_use]
    pub fn read(density: Option<&str>, width: Option<&str>) -> Self {
        let is_plain = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let density = density.map(str::trim).filter(is_plain);
        let density: Option<f64> = density.and_then(|text| text.parse().ok());
        let width: Option<u32> = width.map(str::trim).filter(is_plain).and_then(|text| text.parse().ok());
        Self {
            density: density
                .filter(|number| (0.1..=100.0).contains(number))
                .map(|number| (number * 100.0).round() as u16),
            width: width.filter(|width| (1..=MOST_PIXELS).contains(width)),
        }
    }
}

impl Transform {
    /// The hint that this variant depends on.
    #[must_use]
    pub fn hinted(&self) -> Hinted {
        let is_sized = self.size.width > 0 || self.size.height > 0;
        let is_cut_out = self.region.is_some() && !is_sized;
        if self.has_density || is_cut_out || self.size.unit == Unit::Percent {
            Hinted::Nothing
        } else if !is_sized {
            Hinted::Width
        } else if self.mode == Mode::Crop {
            // The size is in pixels of the original, whatever the screen.
            Hinted::Nothing
        } else {
            Hinted::Density
        }
    }

    /// Applies the hint that this variant depends on: the density, as far as the limits allow, or the width, which is
    /// rounded up to the ladder and does not enlarge the image. A side that follows from the ratio is not known here,
    /// so the variant may still exceed the limits although the one without the hint does not.
    pub fn follow(&mut self, hints: &Hints, ladder: &[u32], limits: &Limits) {
        match (self.hinted(), hints.density, hints.width) {
            (Hinted::Density, Some(density), _) => {
                let wanted = DENSITIES.into_iter().find(|&step| step >= density);
                let wanted = wanted.unwrap_or(DENSITIES[DENSITIES.len() - 1]);
                let steps = DENSITIES.into_iter().rev().filter(|&step| step <= wanted);
                let mut sized = steps.map(|step| {
                    let mut sized = self.clone();
                    sized.times(step);
                    sized
                });
                if let Some(sized) = sized.find(|sized| sized.check(limits).is_ok()) {
                    *self = sized;
                }
            }
            (Hinted::Width, _, Some(width)) => {
                let most = limits.output_side.saturating_sub(self.pad.left + self.pad.right);
                self.mode = Mode::Fit;
                self.size = Size {
                    width,
                    ..Size::default()
                };
                match ladder {
                    [] => self.size.width = width.next_multiple_of(STEP),
                    ladder => self.round_to(ladder),
                }
                self.size.width = self.size.width.min(most);
                self.enlarge = false;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{Defaults, Request, native};

    fn followed(query: &str, density: &str, width: &str, ladder: &[u32]) -> String {
        let Ok(Request::Transform(mut transform)) = native::parse(query, &Defaults::default(), &[]) else {
            panic!("{query}")
        };
        let hints = Hints::read(Some(density), Some(width));
        transform.follow(&hints, ladder, &Limits::default());
        transform.key()
    }

    #[test]
    fn only_plain_numbers_are_hints() {
        let read = |density, width| {
            let hints = Hints::read(density, width);
            (hints.density, hints.width)
        };
        assert_eq!(read(Some("2.0"), Some(" 640 ")), (Some(200), Some(640)));
        assert_eq!(read(Some("1.25"), None), (Some(125), None));
        for nonsense in ["", "x", "-1", "0", "1e3", "inf", "NaN", "1000000", "2;q=1", "."] {
            assert_eq!(read(Some(nonsense), Some(nonsense)), (None, None), "{nonsense}");
        }
    }

    #[test]
    fn a_denser_screen_gets_a_larger_picture_in_a_few_steps() {
        for (density, expected) in [
            ("0.8", "1,cover400x300,q75,keep"),
            ("1", "1,cover400x300,q75,keep"),
            ("1.25", "1,cover600x450,q75,keep"),
            ("2", "1,cover800x600,q75,keep"),
            ("2.6", "1,cover1200x900,q75,keep"),
            ("4", "1,cover1200x900,q75,keep"),
        ] {
            assert_eq!(followed("w=400&h=300", density, "50", &[]), expected, "{density}");
        }
        assert_eq!(followed("w=10&pad=3", "2", "", &[]), "1,cover20x0,pad6+6+6+6,q75,keep");
    }

    #[test]
    fn no_hint_asks_for_more_than_there_may_be() {
        assert_eq!(followed("w=2000", "3", "", &[]), "1,cover4000x0,q75,keep");
        assert_eq!(followed("w=4096", "3", "", &[]), "1,cover4096x0,q75,keep");
        assert_eq!(followed("q=80", "", "9999", &[]), "1,fit4096x0,small,q80,keep");
        let padded = "1,fit4076x0,small,pad10+10+10+10,q80,keep";
        for ladder in [&[][..], &[320, 4096], &[320]] {
            let expected = if ladder == [320] {
                &padded.replace("4076", "320")
            } else {
                padded
            };
            assert_eq!(followed("q=80&pad=10", "", "9999", ladder), expected, "{ladder:?}");
        }
    }

    #[test]
    fn a_picture_without_a_size_gets_the_width_it_is_shown_in() {
        assert_eq!(followed("q=80", "2", "500", &[]), "1,fit640x0,small,q80,keep");
        assert_eq!(followed("q=80", "2", "500", &[320, 900]), "1,fit900x0,small,q80,keep");
        assert_eq!(followed("q=80", "2", "", &[]), "1,q80,keep");
    }

    #[test]
    fn what_the_query_says_stays() {
        for query in [
            "w=400&dpr=1",
            "p=3&w=50",
            "x=1&y=2&w=3&h=4",
            "w=40&h=30&mode=crop",
            "dpr=2&q=80",
        ] {
            let plain = followed(query, "", "", &[]);
            assert_eq!(followed(query, "3", "900", &[]), plain, "{query}");
        }
    }
}
