//! Rotates the picture by any angle.

use crate::error::ImageError;
use crate::raster::Raster;
use crate::step::frame::Frame;

pub(super) fn apply(frame: &mut Frame<'_>) -> Result<(), ImageError> {
    match frame.transform.rotate {
        angle if angle % 90 == 0 => frame.raster = quarters(&frame.raster, (angle / 90) as u8),
        angle => {
            let fill = frame.fill();
            let (width, height) = turned_size(&frame.raster, angle);
            frame.limits.check_output(width, height)?;
            frame.raster = turned(&frame.raster, angle, width, height, &fill);
        }
    }
    Ok(())
}

/// Rotates clockwise by this many quarter turns.
pub(super) fn quarters(raster: &Raster, quarters: u8) -> Raster {
    let (width, height) = (raster.width, raster.height);
    let from: &dyn Fn(u32, u32) -> (u32, u32) = match quarters % 4 {
        0 => return raster.clone(),
        1 => &|x, y| (y, height - 1 - x),
        2 => &|x, y| (width - 1 - x, height - 1 - y),
        _ => &|x, y| (width - 1 - y, x),
    };
    let (across, down) = if quarters % 2 == 1 {
        (height, width)
    } else {
        (width, height)
    };
    let mut data = Vec::with_capacity(raster.data.len());
    for y in 0..down {
        for x in 0..across {
            let (x, y) = from(x, y);
            data.extend_from_slice(raster.pixel(x, y));
        }
    }
    Raster {
        width: across,
        height: down,
        kind: raster.kind,
        data,
    }
}

/// The size of the bounding box of the rotated picture.
fn turned_size(raster: &Raster, angle: u16) -> (u32, u32) {
    let (sine, cosine) = f64::from(angle).to_radians().sin_cos();
    let (width, height) = (f64::from(raster.width), f64::from(raster.height));
    let side = |side: f64| (side - 1e-6).ceil() as u32;
    (
        side((width * cosine).abs() + (height * sine).abs()),
        side((width * sine).abs() + (height * cosine).abs()),
    )
}

/// Rotates by bilinear interpolation; pixels outside have the fill colour.
fn turned(raster: &Raster, angle: u16, width: u32, height: u32, fill: &[u8]) -> Raster {
    let (sine, cosine) = f64::from(angle).to_radians().sin_cos();
    let middle = (f64::from(raster.width) / 2.0, f64::from(raster.height) / 2.0);
    let mut data = Vec::with_capacity(width as usize * height as usize * fill.len());
    for y in 0..height {
        for x in 0..width {
            let right = f64::from(x) + 0.5 - f64::from(width) / 2.0;
            let down = f64::from(y) + 0.5 - f64::from(height) / 2.0;
            let from_x = right * cosine + down * sine + middle.0 - 0.5;
            let from_y = down * cosine - right * sine + middle.1 - 0.5;
            mix(raster, from_x, from_y, fill, &mut data);
        }
    }
    Raster {
        width,
        height,
        kind: raster.kind,
        data,
    }
}

fn mix(raster: &Raster, x: f64, y: f64, fill: &[u8], data: &mut Vec<u8>) {
    let (left, top) = (x.floor(), y.floor());
    let (across, down) = (x - left, y - top);
    let pixel = |x: f64, y: f64| {
        let inside = x >= 0.0 && y >= 0.0 && x < f64::from(raster.width) && y < f64::from(raster.height);
        if inside { raster.pixel(x as u32, y as u32) } else { fill }
    };
    let corners = [
        (pixel(left, top), (1.0 - across) * (1.0 - down)),
        (pixel(left + 1.0, top), across * (1.0 - down)),
        (pixel(left, top + 1.0), (1.0 - across) * down),
        (pixel(left + 1.0, top + 1.0), across * down),
    ];
    // Colours are weighted by their opacity.
    let opacity = |pixel: &[u8]| {
        if raster.kind.has_alpha() {
            f64::from(pixel[pixel.len() - 1]) / 255.0
        } else {
            1.0
        }
    };
    let seen: f64 = corners.iter().map(|(pixel, weight)| weight * opacity(pixel)).sum();
    let colours = fill.len() - usize::from(raster.kind.has_alpha());
    for channel in 0..colours {
        let sum: f64 = corners
            .iter()
            .map(|(pixel, weight)| weight * opacity(pixel) * f64::from(pixel[channel]))
            .sum();
        data.push(if seen > 0.0 { (sum / seen + 0.5) as u8 } else { 0 });
    }
    if raster.kind.has_alpha() {
        data.push((seen * 255.0 + 0.5) as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{Background, Transform};
    use crate::raster::PixelKind;
    use crate::step::testing::{apply as run, grey};

    fn by(rotate: u16) -> Transform {
        Transform {
            rotate,
            ..Transform::default()
        }
    }

    #[test]
    fn quarters_are_exact() {
        let raster = grey(&[[1, 2, 3], [4, 5, 6]]);
        assert_eq!(run(apply, raster.clone(), &by(0)), raster);
        assert_eq!(run(apply, raster.clone(), &by(90)), grey(&[[4, 1], [5, 2], [6, 3]]));
        assert_eq!(run(apply, raster.clone(), &by(180)), grey(&[[6, 5, 4], [3, 2, 1]]));
        assert_eq!(run(apply, raster, &by(270)), grey(&[[3, 6], [2, 5], [1, 4]]));
    }

    #[test]
    fn the_canvas_grows_and_its_corners_are_background() {
        let turned = run(apply, Raster::filled(100, 134, PixelKind::Grey, &[10]), &by(45));
        assert_eq!((turned.width, turned.height), (166, 166));
        assert_eq!(turned.pixel(0, 0), [255]);
        assert_eq!(turned.pixel(83, 83), [10]);
        let black = Transform {
            background: Some(Background([0, 0, 0, 255])),
            ..by(45)
        };
        assert_eq!(
            run(apply, Raster::filled(10, 10, PixelKind::Grey, &[10]), &black).pixel(0, 0),
            [0]
        );
    }

    #[test]
    fn transparent_corners_need_transparency() {
        let clear = Transform {
            background: Some(Background([255, 255, 255, 0])),
            ..by(45)
        };
        let turned = run(apply, Raster::filled(10, 10, PixelKind::Rgb, &[1, 2, 3]), &clear);
        assert_eq!((turned.kind, turned.pixel(0, 0)[3]), (PixelKind::Rgba, 0));
        // At the edge the picture fades, but its colour stays.
        for pixel in turned.pixels().filter(|pixel| pixel[3] > 0) {
            assert_eq!(pixel[..3], [1, 2, 3]);
        }
    }

    #[test]
    fn once_around_in_small_steps_is_nearly_the_same() {
        let raster = crate::codec::testing::waves(60, 60, PixelKind::Grey);
        let mut turned = raster.clone();
        for _ in 0..2 {
            turned = run(apply, turned, &by(180));
        }
        assert_eq!(turned, raster);
    }
}
