//! Crops and scales in one pass, with a Lanczos filter.

use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::{U8, U8x2, U8x3, U8x4, U16x4};
use fast_image_resize::{FilterType, MulDiv, PixelTrait, ResizeAlg, ResizeOptions, Resizer};

use crate::error::{ImageError, malformed};
use crate::format::Format;
use crate::geometry::Area;
use crate::original::Original;
use crate::raster::{PixelKind, Raster};
use crate::step::frame::Frame;

pub(super) fn apply(frame: &mut Frame<'_>) -> Result<(), ImageError> {
    let plan = frame.plan();
    let original = frame.original;
    let stored = (frame.raster.width, frame.raster.height);
    let area = plan
        .area
        .stored(original.orientation, original.upright(), covered(original, stored));
    let (width, height) = plan.fitting.scaled;
    let (width, height) = if original.orientation.swaps() {
        (height, width)
    } else {
        (width, height)
    };
    let is_whole = area == Area::whole(stored);
    if is_whole && (width, height) == stored {
        return Ok(());
    }
    let raster = frame.raster.take();
    frame.raster = match raster.kind {
        PixelKind::Grey | PixelKind::Rgb | PixelKind::GreyAlpha | PixelKind::Rgba if frame.transform.linear => {
            in_linear_light(raster, area, width, height)?
        }
        PixelKind::Grey => in_srgb::<U8>(raster, area, width, height)?,
        PixelKind::GreyAlpha => in_srgb::<U8x2>(raster, area, width, height)?,
        PixelKind::Rgb => in_srgb::<U8x3>(raster, area, width, height)?,
        PixelKind::Rgba | PixelKind::Cmyk => in_srgb::<U8x4>(raster, area, width, height)?,
    };
    Ok(())
}

/// The size of the image within the stored picture, pixels. A JPEG that was reduced while decoding has its sides
/// rounded up, so its last row and column reach beyond the image.
fn covered(original: &Original, (width, height): (u32, u32)) -> (f64, f64) {
    let is_of =
        |divisor: &u32| (original.width.div_ceil(*divisor), original.height.div_ceil(*divisor)) == (width, height);
    match [8, 4, 2]
        .iter()
        .find(|divisor| original.format == Format::Jpeg && is_of(divisor))
    {
        Some(&divisor) => {
            let side = |side: u32| f64::from(side) / f64::from(divisor);
            (side(original.width), side(original.height))
        }
        None => (f64::from(width), f64::from(height)),
    }
}

/// Scales the sRGB values, as nearly all programs do.
fn in_srgb<P: PixelTrait>(mut raster: Raster, area: Area, width: u32, height: u32) -> Result<Raster, ImageError> {
    let (across, down, kind) = (raster.width, raster.height, raster.kind);
    if kind.has_alpha() {
        // In place, since the library would copy all pixels otherwise.
        let mut source = TypedImage::<P>::from_buffer(across, down, &mut raster.data).map_err(malformed)?;
        MulDiv::new()
            .multiply_alpha_inplace_typed(&mut source)
            .map_err(malformed)?;
    }
    let mut data = vec![0; width as usize * height as usize * kind.channels()];
    let source = TypedImageRef::<P>::from_buffer(across, down, &raster.data).map_err(malformed)?;
    let mut target = TypedImage::<P>::from_buffer(width, height, &mut data).map_err(malformed)?;
    let options = options(area, across, down);
    Resizer::new()
        .resize_typed(&source, &mut target, &options)
        .map_err(malformed)?;
    if kind.has_alpha() {
        MulDiv::new()
            .divide_alpha_inplace_typed(&mut target)
            .map_err(malformed)?;
    }
    Raster::new(width, height, kind, data)
}

/// Scales in linear light with sixteen bits per channel.
fn in_linear_light(raster: Raster, area: Area, width: u32, height: u32) -> Result<Raster, ImageError> {
    let kind = raster.kind;
    let (across, down) = (raster.width, raster.height);
    let forward: Vec<u16> = (0..=255).map(|value| light_of(f64::from(value) / 255.0)).collect();
    let raster = raster.in_colour().with_alpha();
    let pixels = raster.pixels().map(|pixel| {
        let [red, green, blue] = [0, 1, 2].map(|channel| forward[usize::from(pixel[channel])]);
        U16x4::new([red, green, blue, u16::from(pixel[3]) * 257])
    });
    let mut source = TypedImage::from_pixels(across, down, pixels.collect()).map_err(malformed)?;
    drop(raster);
    MulDiv::new()
        .multiply_alpha_inplace_typed(&mut source)
        .map_err(malformed)?;
    let mut target = TypedImage::<U16x4>::new(width, height);
    let options = options(area, across, down);
    Resizer::new()
        .resize_typed(&source, &mut target, &options)
        .map_err(malformed)?;
    MulDiv::new()
        .divide_alpha_inplace_typed(&mut target)
        .map_err(malformed)?;
    let backward: Vec<u8> = (0..=u16::MAX).map(value_of).collect();
    let data = target.pixels().iter().flat_map(|pixel| {
        let [red, green, blue] = [0, 1, 2].map(|channel| backward[usize::from(pixel.0[channel])]);
        [red, green, blue, (pixel.0[3] / 257) as u8]
    });
    let scaled = Raster::new(width, height, PixelKind::Rgba, data.collect())?;
    Ok(match kind {
        PixelKind::Grey => scaled.map(kind, |pixel| [pixel[0]]),
        PixelKind::GreyAlpha => scaled.map(kind, |pixel| [pixel[0], pixel[3]]),
        PixelKind::Rgb => scaled.map(kind, |pixel| [pixel[0], pixel[1], pixel[2]]),
        PixelKind::Rgba | PixelKind::Cmyk => scaled,
    })
}

/// Linear light of an sRGB value from 0 to 1 (IEC 61966-2-1).
fn light_of(value: f64) -> u16 {
    let light = if value <= 0.04045 {
        value / 12.92
    } else {
        ((value + 0.055) / 1.055).powf(2.4)
    };
    (light * 65535.0).round() as u16
}

/// The sRGB value of a linear light, the inverse.
fn value_of(light: u16) -> u8 {
    let light = f64::from(light) / 65535.0;
    let value = if light <= 0.003_130_8 {
        light * 12.92
    } else {
        1.055 * light.powf(1.0 / 2.4) - 0.055
    };
    (value * 255.0).round() as u8
}

fn options(area: Area, across: u32, down: u32) -> ResizeOptions {
    // Rounding errors may make the area slightly larger than the picture.
    let (across, down) = (f64::from(across), f64::from(down));
    let (x, y) = (area.x.clamp(0.0, across), area.y.clamp(0.0, down));
    ResizeOptions::new()
        .resize_alg(ResizeAlg::Convolution(FilterType::Lanczos3))
        .crop(x, y, area.width.min(across - x), area.height.min(down - y))
        .use_alpha(false)
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
        for kind in [
            PixelKind::Grey,
            PixelKind::GreyAlpha,
            PixelKind::Rgb,
            PixelKind::Rgba,
            PixelKind::Cmyk,
        ] {
            for linear in [false, true] {
                let raster = run(apply, waves(100, 80, kind), &to(50, 41, linear));
                assert_eq!((raster.width, raster.height, raster.kind), (50, 41, kind));
            }
        }
    }

    #[test]
    fn a_picture_that_was_read_smaller_is_not_stretched_by_its_last_row() {
        let original = |format, width, height| Original {
            format,
            width,
            height,
            orientation: crate::orientation::Orientation::UPRIGHT,
            frames: 1,
            quality: None,
            alpha: false,
            channels: 3,
            progressive: false,
        };
        let jpeg = original(Format::Jpeg, 1680, 1050);
        assert_eq!(covered(&jpeg, (1680, 1050)), (1680.0, 1050.0));
        assert_eq!(covered(&jpeg, (420, 263)), (420.0, 262.5));
        assert_eq!(covered(&jpeg, (210, 132)), (210.0, 131.25));
        // libwebp brings all of the picture to the size.
        assert_eq!(covered(&original(Format::WebP, 1680, 1050), (210, 132)), (210.0, 132.0));
    }

    #[test]
    fn light_and_numbers_are_inverse() {
        for value in 0..=255 {
            assert_eq!(value_of(light_of(f64::from(value) / 255.0)), value);
        }
    }

    #[test]
    fn down_and_up_again_is_nearly_the_same() {
        let raster = waves(400, 300, PixelKind::Rgb);
        let small = run(apply, raster.clone(), &to(200, 150, false));
        let again = run(apply, small, &to(400, 300, false));
        assert!(difference(&raster, &again) < 1.0);
    }

    #[test]
    fn light_is_mixed_only_where_it_is_asked_for() {
        let mut raster = Raster::filled(64, 64, PixelKind::Grey, &[0]);
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
        let mut raster = Raster::filled(64, 64, PixelKind::Rgba, &[0, 0, 0, 0]);
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
            waves(100, 80, PixelKind::Rgb),
            &to(40, 30, false),
            Format::Png,
            6,
        );
        let raster = raster.expect("it is scaled");
        assert_eq!((raster.width, raster.height), (30, 40));
    }
}
