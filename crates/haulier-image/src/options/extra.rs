//! Parameters beyond zimg's. Both kinds of queries have them, and read them strictly.

use crate::error::OptionError;
use crate::options::query::{bad, hundredths, number, switch};
use crate::options::{Background, Flip, Gravity, Mode, Pad, Region, Transform};

/// Widest border, pixels.
const MOST_PAD: u32 = 4096;
/// Largest accepted `bytes`, above the length of any answer.
const MOST_BYTES: u32 = 1 << 30;
/// Largest accepted coordinate, above the side of any image.
const MOST_PIXELS: u32 = 1_000_000;

/// Values that are applied together at the end.
#[derive(Debug, Default)]
pub(super) struct Extra {
    /// True if the query has any of them.
    pub(super) any: bool,
    mode: Option<Mode>,
    gravity: Option<Gravity>,
    focal: Option<Gravity>,
    dpr: Option<u16>,
    still: Option<bool>,
}

impl Extra {
    /// Reads the parameter if it is one of these; otherwise returns false.
    pub(super) fn read(&mut self, transform: &mut Transform, name: &str, value: &str) -> Result<bool, OptionError> {
        match name {
            "mode" => self.mode = Some(mode(value)?),
            "gravity" => self.gravity = Some(gravity(value)?),
            "focal" => self.focal = Some(focal(value)?),
            "dpr" => self.dpr = Some(hundredths(name, value, 100, 500)?),
            "still" => self.still = Some(switch(name, value)?),
            "crop" => transform.region = Some(region(value)?),
            "bytes" => transform.bytes = number(name, value, MOST_BYTES)?,
            "trim" => transform.trim = Some(trim(value)?),
            "enlarge" => transform.enlarge &= switch(name, value)?,
            "linear" => transform.linear = switch(name, value)?,
            "flip" => transform.flip = flip(value)?,
            "blur" => transform.blur = hundredths(name, value, 0, 10_000)?,
            "sharpen" => transform.sharpen = hundredths(name, value, 0, 1_000)?,
            "pad" => transform.pad = pad(value)?,
            "bg" => transform.background = Some(background(value)?),
            _ => return Ok(false),
        }
        self.any = true;
        Ok(true)
    }

    /// Applies the values that depend on each other. `mode_given` if another parameter has set the mode.
    pub(super) fn apply(self, transform: &mut Transform, mode_given: bool) -> Result<(), OptionError> {
        if let Some(mode) = self.mode {
            if mode_given {
                return Err(OptionError::Together("`mode` and `p` are two names of one thing"));
            }
            transform.mode = mode;
        }
        transform.gravity = match (self.gravity, self.focal) {
            (Some(_), Some(_)) => return Err(OptionError::Together("`gravity` and `focal` exclude each other")),
            (gravity, focal) => gravity.or(focal).unwrap_or(Gravity::Centre),
        };
        transform.still = self.still.unwrap_or(transform.still);
        if let Some(dpr) = self.dpr {
            transform.times(dpr);
            transform.has_density = true;
        }
        Ok(())
    }
}

fn mode(value: &str) -> Result<Mode, OptionError> {
    Mode::ALL
        .into_iter()
        .find(|mode| mode.as_str() == value)
        .ok_or_else(|| bad("mode", value, "cover, contain, fit, fill, scale-down or crop"))
}

fn gravity(value: &str) -> Result<Gravity, OptionError> {
    let short = match value {
        "n" => "north",
        "ne" => "northeast",
        "e" => "east",
        "se" => "southeast",
        "s" => "south",
        "sw" => "southwest",
        "w" => "west",
        "nw" => "northwest",
        "centre" | "c" => "center",
        "smart" => "attention",
        long => long,
    };
    Gravity::NAMED
        .into_iter()
        .find(|gravity| gravity.as_str() == short)
        .ok_or_else(|| bad("gravity", value, "a compass point, center, entropy or attention"))
}

fn focal(value: &str) -> Result<Gravity, OptionError> {
    let wrong = || bad("focal", value, "two numbers from 0 to 1: from the left, from the top");
    let (x, y) = value.split_once(',').ok_or_else(wrong)?;
    let thousandths = |text: &str| {
        let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let number: Option<f64> = if plain { text.parse().ok() } else { None };
        let number = number.filter(|number| (0.0..=1.0).contains(number));
        number.map(|number| (number * 1000.0).round() as u16).ok_or_else(wrong)
    };
    Ok(Gravity::Focal {
        x: thousandths(x)?,
        y: thousandths(y)?,
    })
}

fn region(value: &str) -> Result<Region, OptionError> {
    let numbers: Result<Vec<u32>, _> = value.split(',').map(|part| number("crop", part, MOST_PIXELS)).collect();
    match numbers.as_deref() {
        Ok(&[x, y, width, height]) => Ok(Region { x, y, width, height }),
        _ => Err(bad("crop", value, "x,y,width,height in pixels")),
    }
}

fn trim(value: &str) -> Result<u8, OptionError> {
    if value.is_empty() {
        return Ok(10);
    }
    Ok(number("trim", value, 255)? as u8)
}

fn flip(value: &str) -> Result<Flip, OptionError> {
    let (horizontal, vertical) = match value {
        "h" => (true, false),
        "v" => (false, true),
        "hv" | "vh" => (true, true),
        _ => return Err(bad("flip", value, "h, v or hv")),
    };
    Ok(Flip { horizontal, vertical })
}

/// As in CSS: one number for all sides, two for top and sides, or four clockwise from the top.
fn pad(value: &str) -> Result<Pad, OptionError> {
    let numbers: Result<Vec<u32>, _> = value.split(',').map(|part| number("pad", part, MOST_PAD)).collect();
    let (top, right, bottom, left) = match numbers.as_deref() {
        Ok(&[all]) => (all, all, all, all),
        Ok(&[vertical, horizontal]) => (vertical, horizontal, vertical, horizontal),
        Ok(&[top, right, bottom, left]) => (top, right, bottom, left),
        _ => return Err(bad("pad", value, "one, two or four numbers of pixels")),
    };
    Ok(Pad {
        top,
        right,
        bottom,
        left,
    })
}

fn background(value: &str) -> Result<Background, OptionError> {
    match value {
        "transparent" => return Ok(Background([255, 255, 255, 0])),
        "white" => return Ok(Background::WHITE),
        "black" => return Ok(Background([0, 0, 0, 255])),
        _ => {}
    }
    let wrong = || bad("bg", value, "three, six or eight hexadecimal digits, or transparent");
    let digits: Option<Vec<u8>> = value
        .strip_prefix('#')
        .unwrap_or(value)
        .chars()
        .map(|digit| digit.to_digit(16).map(|digit| digit as u8))
        .collect();
    match digits.as_deref() {
        Some(&[r, g, b]) => Ok(Background([r * 17, g * 17, b * 17, 255])),
        Some(&[r, s, g, h, b, c]) => Ok(Background([r * 16 + s, g * 16 + h, b * 16 + c, 255])),
        Some(&[r, s, g, h, b, c, a, d]) => Ok(Background([r * 16 + s, g * 16 + h, b * 16 + c, a * 16 + d])),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, value: &str) -> Result<Transform, OptionError> {
        let mut transform = Transform::default();
        transform.size.width = 100;
        let mut extra = Extra::default();
        assert!(extra.read(&mut transform, name, value)?, "{name} is known");
        extra.apply(&mut transform, false)?;
        Ok(transform)
    }

    #[test]
    fn every_value_has_its_meaning() {
        for (name, value, key) in [
            ("mode", "scale-down", "1,scale-down100x0,q75,keep"),
            ("gravity", "ne", "1,cover100x0,northeast,q75,keep"),
            ("gravity", "smart", "1,cover100x0,attention,q75,keep"),
            ("focal", "0.25,1", "1,cover100x0,at250+1000,q75,keep"),
            ("dpr", "1.5", "1,cover150x0,q75,keep"),
            ("still", "1", "1,cover100x0,q75,still,keep"),
            ("crop", "1,2,3,0", "1,cut1+2+3x0,cover100x0,q75,keep"),
            ("bytes", "20000", "1,cover100x0,q75,most20000,keep"),
            ("trim", "", "1,trim10,cover100x0,q75,keep"),
            ("enlarge", "0", "1,cover100x0,small,q75,keep"),
            ("linear", "1", "1,cover100x0,linear,q75,keep"),
            ("flip", "vh", "1,cover100x0,flip11,q75,keep"),
            ("blur", "2.5", "1,cover100x0,blur250,q75,keep"),
            ("sharpen", "1", "1,cover100x0,sharpen100,q75,keep"),
            ("pad", "1,2", "1,cover100x0,pad1+2+1+2,q75,keep"),
            ("bg", "#0fc", "1,cover100x0,on00ffccff,q75,keep"),
            ("bg", "11223344", "1,cover100x0,on11223344,q75,keep"),
            ("bg", "transparent", "1,cover100x0,onffffff00,q75,keep"),
        ] {
            assert_eq!(read(name, value).expect(value).key(), key);
        }
    }

    #[test]
    fn what_means_nothing_is_refused() {
        for (name, value) in [
            ("mode", "Cover"),
            ("gravity", "up"),
            ("focal", "0.5"),
            ("focal", "0.5,1.1"),
            ("dpr", "0.5"),
            ("crop", "1,2,3"),
            ("crop", "1,2,3,-4"),
            ("bytes", "20k"),
            ("trim", "256"),
            ("flip", ""),
            ("blur", "101"),
            ("pad", "1,2,3"),
            ("pad", "4097"),
            ("bg", "red"),
            ("bg", "12345"),
            ("enlarge", "2"),
        ] {
            assert!(read(name, value).is_err(), "{name}={value}");
        }
    }

    #[test]
    fn a_name_of_somebody_else_is_left_alone() {
        let mut transform = Transform::default();
        let mut extra = Extra::default();
        assert_eq!(extra.read(&mut transform, "w", "1"), Ok(false));
        assert!(!extra.any);
    }
}
