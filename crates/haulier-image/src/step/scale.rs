//! Cuts and scales in one go, with a Lanczos filter.

use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer, create_srgb_mapper};

use crate::codec::malformed;
use crate::error::ImageError;
use crate::geometry::Area;
use crate::raster::{Kind, Raster};
use crate::step::Frame;

pub(super) fn apply(frame: &mut Frame<'_>) -> Result<(), ImageError> {
    let plan = frame.plan();
    let original = frame.original;
    let stored = (frame.raster.width, frame.raster.height);
    let area = plan.area.stored(original.orientation, original.upright(), stored);
    let (width, height) = plan.shape.scaled;
    let (width, height) = if original.orientation.swaps() {
        (height, width)
    } else {
        (width, height)
    };
    let is_whole = area == Area::whole(stored);
    if is_whole && (width, height) == stored {
        return Ok(());
    }
    let linear = frame.transform.linear && frame.raster.kind != Kind::Cmyk;
    frame.raster = scaled(&frame.raster, area, width, height, linear)?;
    Ok(())
}

fn scaled(raster: &Raster, area: Area, width: u32, height: u32, linear: bool) -> Result<Raster, ImageError> {
    let (narrow, wide) = match raster.kind {
        Kind::Grey => (PixelType::U8, PixelType::U16),
        Kind::GreyAlpha => (PixelType::U8x2, PixelType::U16x2),
        Kind::Rgb => (PixelType::U8x3, PixelType::U16x3),
        Kind::Rgba | Kind::Cmyk => (PixelType::U8x4, PixelType::U16x4),
    };
    let source = ImageRef::new(raster.width, raster.height, &raster.data, narrow).map_err(malformed)?;
    // Rounding may leave the area a hair's breadth larger than the picture.
    let (across, down) = (f64::from(raster.width), f64::from(raster.height));
    let (x, y) = (area.x.clamp(0.0, across), area.y.clamp(0.0, down));
    let options = ResizeOptions::new()
        .resize_alg(ResizeAlg::Convolution(FilterType::Lanczos3))
        .crop(x, y, area.width.min(across - x), area.height.min(down - y))
        .use_alpha(raster.kind.has_alpha());
    let mut target = Image::new(width, height, narrow);
    let mut resizer = Resizer::new();
    if linear {
        let mapper = create_srgb_mapper();
        let mut light = Image::new(raster.width, raster.height, wide);
        mapper.forward_map(&source, &mut light).map_err(malformed)?;
        let mut scaled = Image::new(width, height, wide);
        resizer.resize(&light, &mut scaled, &options).map_err(malformed)?;
        mapper.backward_map(&scaled, &mut target).map_err(malformed)?;
    } else {
        resizer.resize(&source, &mut target, &options).map_err(malformed)?;
    }
    Raster::new(width, height, raster.kind, target.into_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::testing::{difference, waves};
    use crate::options::{Mode, Size, Transform};
    use crate::step::testing::{apply as run, run as run_as};

    fn to(width: u32, height: u32, linear: bool) -> Transform {
        Transform {
            size: Size {
                width,
                height,
                ..Size::default()
            },
            mode: Mode::Fill,
            linear,
            ..Transform::default()
        }
    }

    #[test]
    fn every_kind_is_scaled_to_the_size() {
        for kind in [Kind::Grey, Kind::GreyAlpha, Kind::Rgb, Kind::Rgba, Kind::Cmyk] {
            for linear in [false, true] {
                let raster = run(apply, waves(100, 80, kind), &to(50, 41, linear));
                assert_eq!((raster.width, raster.height, raster.kind), (50, 41, kind));
            }
        }
    }

    #[test]
    fn down_and_up_again_is_nearly_the_same() {
        let raster = waves(400, 300, Kind::Rgb);
        let small = run(apply, raster.clone(), &to(200, 150, false));
        let again = run(apply, small, &to(400, 300, false));
        assert!(difference(&raster, &again) < 1.0);
    }

    #[test]
    fn light_is_mixed_only_where_it_is_asked_for() {
        let mut raster = Raster::filled(64, 64, Kind::Grey, &[0]);
        for (index, pixel) in raster.data.iter_mut().enumerate() {
            *pixel = if (index + index / 64) % 2 == 0 { 255 } else { 0 };
        }
        let shade = |linear| run(apply, raster.clone(), &to(8, 8, linear)).pixel(4, 4)[0];
        assert!(shade(false).abs_diff(128) < 4, "{}", shade(false));
        // Half the light is 188 in sRGB.
        assert!(shade(true).abs_diff(188) < 4, "{}", shade(true));
    }

    #[test]
    fn what_is_transparent_lends_no_colour() {
        let mut raster = Raster::filled(64, 64, Kind::Rgba, &[0, 0, 0, 0]);
        for (index, pixel) in raster.data.chunks_exact_mut(4).enumerate() {
            if index % 64 < 32 {
                pixel.copy_from_slice(&[255, 255, 255, 255]);
            }
        }
        let small = run(apply, raster, &to(7, 7, false));
        for pixel in small.pixels().filter(|pixel| pixel[3] > 8) {
            assert!(pixel[0] > 240, "{pixel:?}");
        }
    }

    #[test]
    fn a_turned_original_is_scaled_as_it_is_stored() {
        let raster = run_as(
            apply,
            waves(100, 80, Kind::Rgb),
            &to(40, 30, false),
            crate::Format::Png,
            6,
        );
        let raster = raster.expect("it is scaled");
        assert_eq!((raster.width, raster.height), (30, 40));
    }
}
