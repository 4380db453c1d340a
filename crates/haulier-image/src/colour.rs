//! Colours: the ICC profile of an original, and the conversion to sRGB.

use moxcms::{ColorProfile, DataColorSpace, Layout, ProfileText, TransformOptions};

use crate::raster::{PixelKind, Raster};

/// The colour profile of an original.
pub(crate) struct Profile(ColorProfile);

impl Profile {
    /// Reads an ICC profile; a broken one is ignored.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        ColorProfile::new_from_slice(bytes).ok().map(Self)
    }

    /// True if it is sRGB by its description, so no conversion is needed.
    pub(crate) fn is_srgb(&self) -> bool {
        self.0.color_space == DataColorSpace::Rgb && self.description().is_some_and(|name| name.contains("sRGB"))
    }

    fn description(&self) -> Option<&str> {
        match self.0.description.as_ref()? {
            ProfileText::PlainString(text) => Some(text),
            ProfileText::Localizable(texts) => texts.first().map(|text| text.value.as_str()),
            ProfileText::Description(text) => Some(&text.ascii_string),
        }
    }

    /// Converts the image to sRGB, if the profile fits its pixels.
    fn convert(&self, raster: &Raster) -> Option<Raster> {
        let (from, to, kind) = match (self.0.color_space, raster.kind) {
            (DataColorSpace::Rgb, PixelKind::Rgb) => (Layout::Rgb, Layout::Rgb, PixelKind::Rgb),
            (DataColorSpace::Rgb, PixelKind::Rgba) => (Layout::Rgba, Layout::Rgba, PixelKind::Rgba),
            (DataColorSpace::Gray, PixelKind::Grey) => (Layout::Gray, Layout::Rgb, PixelKind::Rgb),
            (DataColorSpace::Gray, PixelKind::GreyAlpha) => (Layout::GrayAlpha, Layout::Rgba, PixelKind::Rgba),
            (DataColorSpace::Cmyk, PixelKind::Cmyk) => (Layout::Rgba, Layout::Rgb, PixelKind::Rgb),
            _ => return None,
        };
        let srgb = ColorProfile::new_srgb();
        let transform = self
            .0
            .create_transform_8bit(from, &srgb, to, TransformOptions::default())
            .ok()?;
        let mut data = vec![0; raster.pixels().len() * kind.channels()];
        transform.transform(&raster.data, &mut data).ok()?;
        let converted = Raster::new(raster.width, raster.height, kind, data).ok()?;
        Some(if matches!(from, Layout::Gray | Layout::GrayAlpha) {
            grey(&converted)
        } else {
            converted
        })
    }
}

/// Converts an image to sRGB by its profile. Inks without a profile are mixed as in a browser.
pub(crate) fn to_srgb(raster: Raster, profile: Option<&Profile>) -> Raster {
    let converted = profile
        .filter(|profile| !profile.is_srgb())
        .and_then(|profile| profile.convert(&raster));
    match converted {
        Some(converted) => converted,
        None if raster.kind == PixelKind::Cmyk => mixed(&raster),
        None => raster,
    }
}

/// Converts inks to RGB: each ink absorbs its part of the light that black leaves.
fn mixed(raster: &Raster) -> Raster {
    raster.map(PixelKind::Rgb, |inks| {
        let light = |ink: u8| {
            let product = u32::from(255 - ink) * u32::from(255 - inks[3]);
            ((product + 127) / 255) as u8
        };
        [light(inks[0]), light(inks[1]), light(inks[2])]
    })
}

/// Converts to grey: luma of ITU-R BT.601, as in JPEG.
pub(crate) fn grey(raster: &Raster) -> Raster {
    let luma = |pixel: &[u8]| {
        let sum = u32::from(pixel[0]) * 19_595 + u32::from(pixel[1]) * 38_470 + u32::from(pixel[2]) * 7_471;
        ((sum + 0x8000) >> 16) as u8
    };
    match raster.kind {
        PixelKind::Rgb => raster.map(PixelKind::Grey, |pixel| [luma(pixel)]),
        PixelKind::Rgba => raster.map(PixelKind::GreyAlpha, |pixel| [luma(pixel), pixel[3]]),
        _ => raster.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(kind: PixelKind, pixel: &[u8]) -> Raster {
        Raster::filled(4, 4, kind, pixel)
    }

    #[test]
    fn a_wide_profile_is_converted() {
        let profile = ColorProfile::new_display_p3().encode().expect("a profile");
        let profile = Profile::read(&profile).expect("the same profile");
        assert!(!profile.is_srgb());
        // Display P3's (200, 100, 50) is redder than anything sRGB can say with the same numbers.
        let converted = to_srgb(one(PixelKind::Rgb, &[200, 100, 50]), Some(&profile));
        let pixel = converted.pixel(0, 0);
        assert!(pixel[0] > 208 && pixel[1] < 99 && pixel[2] < 45, "{pixel:?}");
        let alpha = to_srgb(one(PixelKind::Rgba, &[200, 100, 50, 7]), Some(&profile));
        assert_eq!(alpha.pixel(0, 0)[3], 7);
    }

    #[test]
    fn srgb_is_left_alone() {
        let profile = ColorProfile::new_srgb().encode().expect("a profile");
        let profile = Profile::read(&profile).expect("the same profile");
        assert!(profile.is_srgb());
        let raster = one(PixelKind::Rgb, &[200, 100, 50]);
        assert_eq!(to_srgb(raster.clone(), Some(&profile)), raster);
    }

    #[test]
    fn a_profile_for_other_pixels_or_a_broken_one_changes_nothing() {
        let profile = ColorProfile::new_display_p3().encode().expect("a profile");
        let profile = Profile::read(&profile).expect("the same profile");
        let raster = one(PixelKind::Grey, &[100]);
        assert_eq!(to_srgb(raster.clone(), Some(&profile)), raster);
        assert!(Profile::read(b"no profile").is_none());
    }

    #[test]
    fn inks_without_a_profile_are_mixed() {
        for (inks, expected) in [
            ([0, 0, 0, 0], [255, 255, 255]),
            ([0, 0, 0, 255], [0, 0, 0]),
            ([255, 0, 0, 0], [0, 255, 255]),
            ([0, 128, 0, 128], [127, 63, 127]),
        ] {
            let found = to_srgb(one(PixelKind::Cmyk, &inks), None);
            assert_eq!((found.kind, found.pixel(3, 3)), (PixelKind::Rgb, &expected[..]));
        }
    }

    #[test]
    fn grey_weighs_the_colours_as_jpeg_does() {
        assert_eq!(grey(&one(PixelKind::Rgb, &[255, 0, 0])).pixel(0, 0), [76]);
        assert_eq!(grey(&one(PixelKind::Rgb, &[0, 255, 0])).pixel(0, 0), [150]);
        assert_eq!(grey(&one(PixelKind::Rgba, &[0, 0, 255, 9])).pixel(0, 0), [29, 9]);
        assert_eq!(grey(&one(PixelKind::Grey, &[5])).pixel(0, 0), [5]);
    }
}
