//! Unsharp mask: adds the difference between the picture and its blur.

use crate::error::ImageError;
use crate::step::blur;
use crate::step::frame::Frame;

/// Standard deviation of the blur, pixels.
const DEVIATION: f64 = 1.0;

pub(super) fn apply(frame: &mut Frame<'_>) -> Result<(), ImageError> {
    if frame.transform.sharpen == 0 {
        return Ok(());
    }
    let amount = i32::from(frame.transform.sharpen);
    let soft = blur::blurred(&frame.raster, DEVIATION);
    let channels = frame.raster.kind.channels();
    let colours = channels - usize::from(frame.raster.kind.has_alpha());
    let pixels = frame.raster.data.chunks_exact_mut(channels);
    for (pixel, soft) in pixels.zip(soft.data.chunks_exact(channels)) {
        for (value, soft) in pixel.iter_mut().zip(soft).take(colours) {
            let detail = i32::from(*value) - i32::from(*soft);
            *value = (i32::from(*value) + detail * amount / 100).clamp(0, 255) as u8;
        }
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
    fn edges_become_steeper_and_areas_stay() {
        let mut raster = Raster::filled(20, 5, PixelKind::GreyAlpha, &[100, 255]);
        for pixel in raster
            .data
            .chunks_exact_mut(2)
            .enumerate()
            .filter(|(index, _)| index % 20 >= 10)
        {
            pixel.1[0] = 150;
        }
        let transform = Transform {
            sharpen: 100,
            ..Transform::default()
        };
        let sharp = run(apply, raster, &transform);
        assert!(sharp.pixel(9, 2)[0] < 95 && sharp.pixel(10, 2)[0] > 155);
        assert_eq!(
            (sharp.pixel(2, 2), sharp.pixel(17, 2)),
            (&[100, 255][..], &[150, 255][..])
        );
    }
}
