//! Converts the picture to grey.

use crate::colour::grey;
use crate::error::ImageError;
use crate::step::frame::Frame;

pub(super) fn apply(frame: &mut Frame<'_>) -> Result<(), ImageError> {
    if frame.transform.grey {
        frame.raster = grey(&frame.raster);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Transform;
    use crate::raster::{PixelKind, Raster};
    use crate::step::testing::apply as run;

    #[test]
    fn colours_go_and_transparency_stays() {
        let transform = Transform {
            grey: true,
            ..Transform::default()
        };
        let raster = run(
            apply,
            Raster::filled(2, 2, PixelKind::Rgba, &[255, 255, 255, 7]),
            &transform,
        );
        assert_eq!((raster.kind, raster.pixel(0, 0)), (PixelKind::GreyAlpha, &[255, 7][..]));
        let colour = Raster::filled(2, 2, PixelKind::Rgb, &[1, 2, 3]);
        assert_eq!(run(apply, colour.clone(), &Transform::default()), colour);
    }
}
