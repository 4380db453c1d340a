//! Converts the colours to sRGB.

use crate::colour::to_srgb;
use crate::error::ImageError;
use crate::raster::PixelKind;
use crate::step::frame::Frame;

pub(super) fn apply(frame: &mut Frame<'_>) -> Result<(), ImageError> {
    if frame.profile.is_some() || frame.raster.kind == PixelKind::Cmyk {
        frame.raster = to_srgb(frame.raster.take(), frame.profile);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Transform;
    use crate::raster::Raster;
    use crate::step::testing::apply as run;

    #[test]
    fn inks_become_colours() {
        let raster = run(
            apply,
            Raster::filled(2, 2, PixelKind::Cmyk, &[0, 255, 255, 0]),
            &Transform::default(),
        );
        assert_eq!((raster.kind, raster.pixel(1, 1)), (PixelKind::Rgb, &[255, 0, 0][..]));
    }

    #[test]
    fn colours_without_a_profile_stay() {
        let raster = Raster::filled(2, 2, PixelKind::Rgb, &[1, 2, 3]);
        assert_eq!(run(apply, raster.clone(), &Transform::default()), raster);
    }
}
