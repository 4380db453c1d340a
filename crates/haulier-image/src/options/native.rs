//! Queries of the native mode and presets: zimg's parameters and more, all read strictly.
//!
//! Unknown names, repeated names and invalid values are errors, so a mistake in a template shows at once, and a client
//! cannot fill a cache with many spellings of one variant.

use std::collections::HashSet;

use crate::error::OptionError;
use crate::options::extra::Extra;
use crate::options::query::{number, pairs, switch};
use crate::options::zimg::{format, percent};
use crate::options::{Defaults, Mode, Quality, Region, Request, Size, Transform};

/// Largest accepted size, above the side of any image.
const MOST_PIXELS: u32 = 1_000_000;

/// The parameters of zimg.
#[derive(Debug, Default)]
struct Written {
    width: u32,
    height: u32,
    p: Option<u32>,
    x: Option<u32>,
    y: Option<u32>,
}

/// Reads a query without its `?`. Names in `others` belong to other parts, such as the signature, and are skipped. An
/// empty query asks for the original.
///
/// # Errors
/// An unknown or repeated parameter, an invalid value, or contradicting parameters.
pub fn parse(query: &str, defaults: &Defaults, others: &[&str]) -> Result<Request, OptionError> {
    let mut seen = HashSet::new();
    let mut preset = None;
    let mut written = Written::default();
    let mut extra = Extra::default();
    let mut transform = Transform {
        enlarge: defaults.enlarge,
        format: defaults.format,
        quality: Quality::Fixed(defaults.quality),
        copyright: defaults.copyright,
        ..Transform::default()
    };
    for (name, value) in pairs(query).filter(|(name, _)| !others.contains(&name.as_ref())) {
        if !seen.insert(name.to_string()) {
            return Err(OptionError::Twice(shortened(&name)));
        }
        match name.as_ref() {
            "w" => written.width = number("w", &value, MOST_PIXELS)?,
            "h" => written.height = number("h", &value, MOST_PIXELS)?,
            "p" => written.p = Some(number("p", &value, 4)?),
            "x" => written.x = Some(number("x", &value, MOST_PIXELS)?),
            "y" => written.y = Some(number("y", &value, MOST_PIXELS)?),
            "g" => transform.grey = switch("g", &value)?,
            "r" => transform.rotate = (number("r", &value, 3600)? % 360) as u16,
            "q" => transform.quality = Quality::Fixed(number("q", &value, 100)?.max(1) as u8),
            "f" => transform.format = format(&value)?,
            "t" => preset = Some(value.into_owned()),
            other => {
                if !extra.read(&mut transform, other, &value)? {
                    return Err(OptionError::Unknown(shortened(other)));
                }
            }
        }
    }
    if let Some(name) = preset {
        if seen.len() > 1 {
            return Err(OptionError::Together("`t` names a preset, which says everything"));
        }
        return Ok(Request::Preset(name));
    }
    let nothing = written.p == Some(0) && seen.len() == 1;
    if seen.is_empty() || nothing {
        return Ok(Request::Original);
    }
    written.apply(&mut transform)?;
    extra.apply(&mut transform, written.p.is_some())?;
    Ok(Request::Transform(transform))
}

fn shortened(name: &str) -> String {
    name.chars().take(40).collect()
}

impl Written {
    fn apply(&self, transform: &mut Transform) -> Result<(), OptionError> {
        let (width, height) = (self.width, self.height);
        if self.x.is_some() || self.y.is_some() {
            if self.p.is_some() || transform.region.is_some() {
                return Err(OptionError::Together(
                    "`x` and `y` cut without scaling: no `p` and no `crop` beside them",
                ));
            }
            let (x, y) = (self.x.unwrap_or(0), self.y.unwrap_or(0));
            transform.region = Some(Region { x, y, width, height });
            return Ok(());
        }
        transform.mode = match self.p {
            Some(0) if width == 0 || height == 0 => {
                return Err(OptionError::Together(
                    "`p=0` takes both `w` and `h`, or nothing beside it",
                ));
            }
            Some(0 | 3) => Mode::Fill,
            Some(2) => Mode::Crop,
            Some(4) => Mode::Fit,
            _ => Mode::Cover,
        };
        transform.size = match self.p {
            Some(3) => percent(width, height),
            _ => Size {
                width,
                height,
                ..Size::default()
            },
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meaning(query: &str) -> String {
        match parse(query, &Defaults::default(), &["s"]) {
            Ok(Request::Transform(transform)) => transform.key(),
            Ok(Request::Original) => "original".into(),
            Ok(Request::Preset(name)) => format!("preset {name}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn queries_have_their_meaning() {
        for (query, expected) in [
            ("", "original"),
            ("p=0", "original"),
            ("s=signature", "original"),
            ("w=100&h=50&s=signature", "1,cover100x50,q75,keep"),
            ("h=50&w=100", "1,cover100x50,q75,keep"),
            ("w=100&h=50&mode=scale-down&f=auto", "1,scale-down100x50,q75,auto"),
            ("p=3&h=50", "1,fill50x50%,q75,keep"),
            ("x=1&y=2&w=3&h=4", "1,cut1+2+3x4,q75,keep"),
            ("x=1", "1,cut1+0+0x0,q75,keep"),
            ("crop=1,2,30,40&w=10", "1,cut1+2+30x40,cover10x0,q75,keep"),
            ("w=10&dpr=2&pad=3", "1,cover20x0,pad6+6+6+6,q75,keep"),
            ("bg=%23000", "1,on000000ff,q75,keep"),
            ("q=0", "1,q1,keep"),
            ("t=thumb", "preset thumb"),
        ] {
            assert_eq!(meaning(query), expected, "{query}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (query, expected) in [
            ("width=100", "unknown parameter `width`"),
            ("w=100&w=100", "`w` is given twice"),
            ("w=10x", "`w=10x`: a whole number that is not too large"),
            ("q=101", "`q=101`: a whole number that is not too large"),
            ("p=0&w=10", "`p=0` takes both `w` and `h`, or nothing beside it"),
            ("p=1&mode=fit", "`mode` and `p` are two names of one thing"),
            ("gravity=north&focal=0,0", "`gravity` and `focal` exclude each other"),
            ("t=thumb&w=1", "`t` names a preset, which says everything"),
            ("f=svg", "`f=svg`: jpeg, png, gif, webp, avif, auto or none"),
        ] {
            assert_eq!(meaning(query), expected, "{query}");
        }
    }

    #[test]
    fn a_long_mistake_is_not_echoed_in_full() {
        let error = parse(&"n".repeat(5000), &Defaults::default(), &[]).expect_err("unknown");
        assert!(error.to_string().len() < 100);
    }
}
