//! Queries as zimg 3 reads them: numbers as by C's atoi, the first of repeated parameters counts, unknown ones are
//! ignored.
//!
//! The parameters of the module `extra` are read strictly. An error is a 404, as in zimg.

use crate::error::OptionError;
use crate::format::Format;
use crate::options::extra::Extra;
use crate::options::query::{bad, raw_pairs};
use crate::options::{Defaults, FormatChoice, Mode, Quality, Region, Request, Size, Transform, Unit};

/// The parameters of zimg, not parsed.
#[derive(Debug, Default)]
struct Written<'a> {
    w: Option<&'a str>,
    h: Option<&'a str>,
    p: Option<&'a str>,
    g: Option<&'a str>,
    x: Option<&'a str>,
    y: Option<&'a str>,
    r: Option<&'a str>,
    q: Option<&'a str>,
    f: Option<&'a str>,
    t: Option<&'a str>,
}

/// Reads a query without its `?`. An empty one asks for the whole image in the default format.
///
/// # Errors
/// A number out of range, or an unknown format.
pub fn parse(query: &str, defaults: &Defaults) -> Result<Request, OptionError> {
    let mut written = Written::default();
    let mut transform = Transform {
        enlarge: defaults.enlarge,
        still: true,
        copyright: defaults.copyright,
        ..Transform::default()
    };
    let mut extra = Extra::default();
    for (name, value) in raw_pairs(query) {
        let name = name.to_ascii_lowercase();
        match written.slot(&name) {
            Some(slot) => {
                slot.get_or_insert(value);
            }
            None => {
                extra.read(&mut transform, &name, value)?;
            }
        }
    }
    if let Some(name) = written.t.filter(|name| !name.is_empty()) {
        return Ok(Request::Preset(name.to_owned()));
    }
    let size = (side(written.w, "w")?, side(written.h, "h")?);
    let mode = written.p.map_or(1, atoi);
    if mode == 0 && size == (0, 0) && !extra.any {
        return Ok(Request::Original);
    }
    match corner(&written) {
        Some((x, y)) if size != (0, 0) => {
            let (width, height) = size;
            transform.region = Some(Region { x, y, width, height });
        }
        _ => scaled(&mut transform, mode, size, defaults)?,
    }
    transform.grey = written.g.map_or(0, atoi) == 1;
    transform.rotate = written.r.map_or(0, atoi).rem_euclid(360) as u16;
    transform.quality = quality(written.q.map_or(0, atoi), defaults);
    transform.format = if defaults.first_version {
        FormatChoice::As(Format::Jpeg)
    } else {
        written.f.map_or(Ok(defaults.format), format)?
    };
    extra.apply(&mut transform, written.p.is_some())?;
    Ok(Request::Transform(transform))
}

impl<'a> Written<'a> {
    fn slot(&mut self, name: &str) -> Option<&mut Option<&'a str>> {
        Some(match name {
            "w" => &mut self.w,
            "h" => &mut self.h,
            "p" => &mut self.p,
            "g" => &mut self.g,
            "x" => &mut self.x,
            "y" => &mut self.y,
            "r" => &mut self.r,
            "q" => &mut self.q,
            "f" => &mut self.f,
            "t" => &mut self.t,
            _ => return None,
        })
    }
}

/// Reads leading white space, a sign and digits, and ignores the rest; 0 without digits.
fn atoi(text: &str) -> i64 {
    let text = text.trim_start();
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let number = digits
        .bytes()
        .take_while(u8::is_ascii_digit)
        .fold(0_i64, |number, digit| {
            number.saturating_mul(10).saturating_add(i64::from(digit - b'0'))
        })
        .min(i64::from(i32::MAX));
    if negative { -number } else { number }
}

fn side(value: Option<&str>, name: &str) -> Result<u32, OptionError> {
    let value = value.unwrap_or("0");
    u32::try_from(atoi(value)).map_err(|_| bad(name, value, "a size that is not negative"))
}

/// The corner of the region, if x or y is given; -1 counts as absent.
fn corner(written: &Written<'_>) -> Option<(u32, u32)> {
    let (x, y) = (written.x.map_or(-1, atoi), written.y.map_or(-1, atoi));
    let clamped = |number: i64| number.max(0) as u32;
    (x != -1 || y != -1).then(|| (clamped(x), clamped(y)))
}

fn scaled(
    transform: &mut Transform,
    mode: i64,
    (width, height): (u32, u32),
    defaults: &Defaults,
) -> Result<(), OptionError> {
    let mut size = Size {
        width,
        height,
        unit: Unit::Pixels,
    };
    transform.mode = match mode {
        0 if (width == 0) != (height == 0) => return Err(OptionError::Together("`p=0` takes both `w` and `h`")),
        0 => Mode::Fill,
        1 if defaults.first_version => {
            // The height decides, and the width follows from it.
            size.width = if height > 0 { 0 } else { width };
            Mode::ScaleDown
        }
        1 => Mode::Cover,
        2 => Mode::Crop,
        3 => {
            size = percent(width, height);
            Mode::Fill
        }
        4 => Mode::Fit,
        _ => return Err(bad("p", &mode.to_string(), "0, 1, 2, 3 or 4")),
    };
    transform.size = size;
    Ok(())
}

/// A single percentage applies to both sides.
pub(super) fn percent(width: u32, height: u32) -> Size {
    let either = width.max(height);
    Size {
        width: if width == 0 { either } else { width },
        height: if height == 0 { either } else { height },
        unit: Unit::Percent,
    }
}

fn quality(number: i64, defaults: &Defaults) -> Quality {
    match number {
        0 if defaults.first_version => Quality::OfOriginal(75),
        0 => Quality::Fixed(defaults.quality),
        1..=100 => Quality::Fixed(number as u8),
        _ => Quality::Fixed(100),
    }
}

/// Reads a format name; `none` keeps the original's format.
pub(super) fn format(name: &str) -> Result<FormatChoice, OptionError> {
    if name.eq_ignore_ascii_case("none") {
        return Ok(FormatChoice::Keep);
    }
    if name.eq_ignore_ascii_case("auto") {
        return Ok(FormatChoice::Auto);
    }
    Format::of_name(name)
        .map(FormatChoice::As)
        .ok_or_else(|| bad("f", name, "jpeg, png, gif, webp, avif, auto or none"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zimg() -> Defaults {
        Defaults {
            format: FormatChoice::As(Format::Jpeg),
            ..Defaults::default()
        }
    }

    /// The key of a variant, or what else is asked for.
    fn meaning(query: &str, defaults: &Defaults) -> String {
        match parse(query, defaults) {
            Ok(Request::Transform(transform)) => transform.key(),
            Ok(Request::Original) => "original".into(),
            Ok(Request::Preset(name)) => format!("preset {name}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn queries_mean_what_they_mean_in_zimg() {
        for (query, expected) in [
            ("", "1,q75,still,jpeg"),
            ("w=100&h=100&g=1", "1,cover100x100,grey,q75,still,jpeg"),
            ("W=0100&H=100x&G=1", "1,cover100x100,grey,q75,still,jpeg"),
            ("w=100&w=200", "1,cover100x0,q75,still,jpeg"),
            ("w=%31%30", "1,q75,still,jpeg"),
            ("w=abc&nothing=1", "1,q75,still,jpeg"),
            ("p=0", "original"),
            ("p=0&g=1&q=5&r=90&f=png", "original"),
            ("p=0&w=10&h=20", "1,fill10x20,q75,still,jpeg"),
            ("p=2&w=10", "1,crop10x0,q75,still,jpeg"),
            ("p=3&w=50", "1,fill50x50%,q75,still,jpeg"),
            ("p=3&w=50&h=25", "1,fill50x25%,q75,still,jpeg"),
            ("p=4&w=10&h=20", "1,fit10x20,q75,still,jpeg"),
            ("x=5&w=10&h=20&p=3", "1,cut5+0+10x20,q75,still,jpeg"),
            ("x=-7&y=3&w=10", "1,cut0+3+10x0,q75,still,jpeg"),
            ("x=5&y=5", "1,q75,still,jpeg"),
            ("r=45", "1,turn45,q75,still,jpeg"),
            ("r=-90", "1,turn270,q75,still,jpeg"),
            ("r=720", "1,q75,still,jpeg"),
            ("q=101", "1,q100,still,jpeg"),
            ("q=-1", "1,q100,still,jpeg"),
            ("q=40", "1,q40,still,jpeg"),
            ("f=JPG", "1,q75,still,jpeg"),
            ("f=none", "1,q75,still,keep"),
            ("f=auto", "1,q75,still,auto"),
            ("g=2", "1,q75,still,jpeg"),
            ("t=thumb300&w=10&f=nonsense", "preset thumb300"),
            ("t=&w=10", "1,cover10x0,q75,still,jpeg"),
        ] {
            assert_eq!(meaning(query, &zimg()), expected, "{query}");
        }
    }

    #[test]
    fn what_zimg_answers_with_404_is_an_error() {
        for query in ["w=-1", "h=-5", "p=5", "p=-1", "p=0&w=10", "p=0&h=10", "f=txt", "f="] {
            assert!(parse(query, &zimg()).is_err(), "{query}");
        }
    }

    #[test]
    fn numbers_are_read_like_atoi() {
        for (text, number) in [
            ("12", 12),
            (" +7px", 7),
            ("-3", -3),
            ("", 0),
            ("x", 0),
            ("99999999999999999999999", i64::from(i32::MAX)),
        ] {
            assert_eq!(atoi(text), number, "{text}");
        }
    }

    #[test]
    fn what_zimg_never_had_is_understood() {
        assert_eq!(
            meaning("w=100&h=50&mode=contain&bg=000", &zimg()),
            "1,contain100x50,on000000ff,q75,still,jpeg"
        );
        assert_eq!(meaning("w=100&still=0&f=gif", &zimg()), "1,cover100x0,q75,gif");
        assert!(parse("w=100&mode=nonsense", &zimg()).is_err());
        assert!(parse("w=100&p=1&mode=fit", &zimg()).is_err());
    }

    #[test]
    fn zimg_without_zooming_up_enlarges_nothing() {
        let defaults = Defaults {
            enlarge: false,
            ..zimg()
        };
        assert_eq!(meaning("w=100", &defaults), "1,cover100x0,small,q75,still,jpeg");
    }

    #[test]
    fn in_the_first_version_the_height_rules() {
        let first = Defaults {
            first_version: true,
            ..zimg()
        };
        for (query, expected) in [
            ("w=100&h=100&g=1", "1,scale-down0x100,grey,q75%,still,jpeg"),
            ("w=100", "1,scale-down100x0,q75%,still,jpeg"),
            ("w=100&f=png", "1,scale-down100x0,q75%,still,jpeg"),
            ("p=0&w=100&h=50", "1,fill100x50,q75%,still,jpeg"),
        ] {
            assert_eq!(meaning(query, &first), expected, "{query}");
        }
    }
}
