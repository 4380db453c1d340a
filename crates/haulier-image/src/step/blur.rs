//! Gaussian blur by three box blurs, so the cost does not depend on the strength.

use crate::error::ImageError;
use crate::raster::Raster;
use crate::step::frame::Frame;

/// Box blurs that approximate a Gaussian.
const PASSES: usize = 3;

pub(super) fn apply(frame: &mut Frame<'_>) -> Result<(), ImageError> {
    if frame.transform.blur > 0 {
        frame.raster = blurred(&frame.raster, f64::from(frame.transform.blur) / 100.0);
    }
    Ok(())
}

/// Blurs a picture with this standard deviation in pixels. At the edges, the outermost pixels are repeated.
pub(super) fn blurred(raster: &Raster, deviation: f64) -> Raster {
    let channels = raster.kind.channels();
    let alpha = raster.kind.has_alpha();
    let (width, height) = (raster.width as usize, raster.height as usize);
    let mut planes = Vec::with_capacity(channels);
    for channel in 0..channels {
        let plane = raster.pixels().map(|pixel| {
            let weight = if alpha && channel + 1 < channels {
                f32::from(pixel[channels - 1]) / 255.0
            } else {
                1.0
            };
            f32::from(pixel[channel]) * weight
        });
        let mut plane: Vec<f32> = plane.collect();
        smooth(&mut plane, width, height, deviation);
        planes.push(plane);
    }
    let mut data = Vec::with_capacity(raster.data.len());
    for index in 0..width * height {
        let seen = if alpha {
            planes[channels - 1][index] / 255.0
        } else {
            1.0
        };
        for (channel, plane) in planes.iter().enumerate() {
            let is_colour = !alpha || channel + 1 < channels;
            let value = if is_colour && seen > 0.0 {
                plane[index] / seen
            } else {
                plane[index]
            };
            data.push((value + 0.5).clamp(0.0, 255.0) as u8);
        }
    }
    Raster {
        data,
        ..Raster::filled(raster.width, raster.height, raster.kind, &vec![0; channels])
    }
}

fn smooth(plane: &mut [f32], width: usize, height: usize, deviation: f64) {
    // A box of width w has a variance of (w² - 1) / 12, and variances add up.
    let radius = (((12.0 * deviation * deviation / PASSES as f64 + 1.0).sqrt() - 1.0) / 2.0) as f32;
    let mut line = Vec::with_capacity(width.max(height));
    for _ in 0..PASSES {
        for row in plane.chunks_exact_mut(width) {
            line.clear();
            line.extend_from_slice(row);
            average(&line, radius, |index, value| row[index] = value);
        }
        for column in 0..width {
            line.clear();
            line.extend(plane.iter().skip(column).step_by(width));
            average(&line, radius, |index, value| plane[index * width + column] = value);
        }
    }
}

/// Passes the mean of each value's neighbours within a radius to `give`; the outermost neighbours count in part.
fn average(line: &[f32], radius: f32, mut give: impl FnMut(usize, f32)) {
    let whole = radius as isize;
    let part = radius - whole as f32;
    let last = line.len() as isize - 1;
    let at = |index: isize| line[index.clamp(0, last) as usize];
    let size = 2.0 * radius + 1.0;
    let mut sum: f32 = (-whole..=whole).map(at).sum();
    for index in 0..=last {
        let edges = (at(index - whole - 1) + at(index + whole + 1)) * part;
        give(index as usize, (sum + edges) / size);
        sum += at(index + whole + 1) - at(index - whole);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Transform;
    use crate::raster::PixelKind;
    use crate::step::testing::apply as run;

    #[test]
    fn a_point_becomes_a_bell_of_the_width_asked_for() {
        for deviation in [0.6, 1.5, 4.0, 9.0] {
            let mut raster = Raster::filled(101, 101, PixelKind::Grey, &[0]);
            // Bright enough to be seen when it is spread: a block of 11 × 11, whose own variance is 10.
            for y in 45..56 {
                raster.data[y * 101 + 45..y * 101 + 56].fill(255);
            }
            let found = blurred(&raster, deviation);
            let (mut sum, mut square) = (0.0, 0.0);
            for (index, &value) in found.data.iter().enumerate() {
                let away = (index % 101) as f64 - 50.0;
                sum += f64::from(value);
                square += f64::from(value) * away * away;
            }
            let expected = deviation * deviation + 10.0;
            assert!(
                (square / sum - expected).abs() < expected * 0.1,
                "{deviation}: {}",
                square / sum
            );
        }
    }

    #[test]
    fn an_even_picture_stays_even() {
        let transform = Transform {
            blur: 500,
            ..Transform::default()
        };
        let raster = Raster::filled(20, 3, PixelKind::Rgba, &[10, 20, 30, 200]);
        assert_eq!(run(apply, raster.clone(), &transform), raster);
    }

    #[test]
    fn what_is_transparent_lends_no_colour() {
        let mut raster = Raster::filled(20, 1, PixelKind::Rgba, &[0, 255, 0, 0]);
        raster.data[..40].copy_from_slice(&[200, 0, 0, 255].repeat(10));
        for pixel in blurred(&raster, 2.0).pixels().filter(|pixel| pixel[3] > 4) {
            assert!(pixel[0] > 190 && pixel[1] < 10, "{pixel:?}");
        }
    }
}
