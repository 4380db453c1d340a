//! Finds the most interesting part of a picture.
//!
//! It examines a few thousand samples instead of all pixels. Along the side that is cropped, `entropy` chooses the part
//! whose brightness varies most (Shannon's entropy of its histogram), `attention` the part with most edges, saturated
//! colours and skin colours.

use crate::geometry::{Area, lay};
use crate::options::Gravity;
use crate::raster::{PixelKind, Raster};
use crate::step::frame::Frame;

/// Samples along each side.
const SIDE: usize = 96;
/// Positions that are tried.
const PLACES: usize = 48;
/// Brightness classes of the histogram.
const SHADES: usize = 64;

/// The position of the best part of this size, from 0 to 1 in both directions.
pub(super) fn pull(frame: &Frame<'_>, area: Area, seen: (f64, f64)) -> (f64, f64) {
    let samples = Samples::of(frame, area);
    let along = |whole: f64, seen: f64, lines: &dyn Fn(usize) -> Vec<[u8; 3]>| {
        if whole - seen < 1.0 {
            return 0.5;
        }
        best(&|line| lines(line), seen / whole, frame.transform.gravity)
    };
    (
        along(area.width, seen.0, &|column| samples.column(column)),
        along(area.height, seen.1, &|row| samples.row(row)),
    )
}

/// Samples of the upright area in colour.
struct Samples(Vec<[u8; 3]>);

impl Samples {
    fn of(frame: &Frame<'_>, area: Area) -> Self {
        let upright = frame.original.upright();
        let (width, height) = (f64::from(upright.0), f64::from(upright.1));
        let raster = &frame.raster;
        let mut samples = Vec::with_capacity(SIDE * SIDE);
        for y in 0..SIDE {
            for x in 0..SIDE {
                let place = |index: usize, from: f64, length: f64| from + (index as f64 + 0.5) / SIDE as f64 * length;
                let point = (
                    place(x, area.x, area.width) / width,
                    place(y, area.y, area.height) / height,
                );
                let (x, y) = lay(frame.original.orientation, point);
                samples.push(colour(raster, x, y));
            }
        }
        Self(samples)
    }

    fn row(&self, row: usize) -> Vec<[u8; 3]> {
        self.0[row * SIDE..][..SIDE].to_vec()
    }

    fn column(&self, column: usize) -> Vec<[u8; 3]> {
        self.0.iter().skip(column).step_by(SIDE).copied().collect()
    }
}

/// Red, green and blue at a position from 0 to 1; black where transparent.
fn colour(raster: &Raster, x: f64, y: f64) -> [u8; 3] {
    let at = |place: f64, side: u32| ((place * f64::from(side)) as u32).min(side - 1);
    let pixel = raster.pixel(at(x, raster.width), at(y, raster.height));
    match raster.kind {
        PixelKind::Grey => [pixel[0]; 3],
        PixelKind::GreyAlpha if pixel[1] == 0 => [0; 3],
        PixelKind::GreyAlpha => [pixel[0]; 3],
        PixelKind::Rgba if pixel[3] == 0 => [0; 3],
        PixelKind::Rgb | PixelKind::Rgba => [pixel[0], pixel[1], pixel[2]],
        PixelKind::Cmyk => [0, 1, 2].map(|ink| (u16::from(255 - pixel[ink]) * u16::from(255 - pixel[3]) / 255) as u8),
    }
}

/// The position of the window with the best score; of equal ones the nearest to the middle. `part` is the window's
/// share of all lines.
fn best(line: &dyn Fn(usize) -> Vec<[u8; 3]>, part: f64, gravity: Gravity) -> f64 {
    let lines: Vec<Vec<[u8; 3]>> = (0..SIDE).map(line).collect();
    let length = ((part * SIDE as f64).round() as usize).clamp(1, SIDE);
    let interest: Vec<f64> = lines.windows(2).map(|pair| attention(&pair[0], &pair[1])).collect();
    let score = |start: usize| match gravity {
        Gravity::Entropy => entropy(&lines[start..start + length]),
        _ => interest[start..(start + length).min(interest.len())].iter().sum(),
    };
    let slack = (SIDE - length) as f64;
    let places = (0..=PLACES).map(|place| place as f64 / PLACES as f64);
    let scored: Vec<(f64, f64)> = places
        .map(|pull| (pull, score((pull * slack).round() as usize)))
        .collect();
    let most = scored.iter().map(|&(_, score)| score).fold(f64::MIN, f64::max);
    let from_middle = |pull: f64| (pull - 0.5).abs();
    scored
        .into_iter()
        .filter(|&(_, score)| score >= most - most.abs() * 1e-3)
        .map(|(pull, _)| pull)
        .min_by(|one, other| from_middle(*one).total_cmp(&from_middle(*other)))
        .unwrap_or(0.5)
}

fn brightness([red, green, blue]: [u8; 3]) -> u32 {
    (u32::from(red) * 77 + u32::from(green) * 150 + u32::from(blue) * 29) >> 8
}

/// Entropy of the samples' brightness, bits per sample.
fn entropy(lines: &[Vec<[u8; 3]>]) -> f64 {
    let mut counts = [0_u32; SHADES];
    for &sample in lines.iter().flatten() {
        counts[brightness(sample) as usize * SHADES / 256] += 1;
    }
    let total = f64::from(counts.iter().sum::<u32>());
    let bits = |&count: &u32| {
        let share = f64::from(count) / total;
        if count == 0 { 0.0 } else { -share * share.log2() }
    };
    counts.iter().map(bits).sum()
}

/// The score of a line, compared with the next one.
fn attention(line: &[[u8; 3]], next: &[[u8; 3]]) -> f64 {
    let mut sum = 0.0;
    for (index, (&sample, &beside)) in line.iter().zip(next).enumerate() {
        let before = line[index.saturating_sub(1)];
        let edge = brightness(sample).abs_diff(brightness(beside)) + brightness(sample).abs_diff(brightness(before));
        let (most, least) = (sample.iter().max(), sample.iter().min());
        let saturation = most.zip(least).map_or(0, |(most, least)| most - least);
        let lit = brightness(sample) > 20;
        sum += f64::from(edge.min(128));
        sum += if lit { f64::from(saturation) * 0.3 } else { 0.0 };
        sum += if is_skin(sample) { 60.0 } else { 0.0 };
    }
    sum
}

/// A common rule for skin of all shades: red dominates by some margin, and the colour is not too dark.
fn is_skin([red, green, blue]: [u8; 3]) -> bool {
    let (red, green, blue) = (i32::from(red), i32::from(green), i32::from(blue));
    red > 70
        && green > 40
        && blue > 20
        && red - green > 12
        && red > blue
        && red - green.min(blue) > 15
        && green >= blue - 10
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{Mode, Size, Transform};
    use crate::step::testing::run;

    /// Where a square window lands in a picture of 300 × 100 whose third part is drawn by `paint`.
    fn place(gravity: Gravity, orientation: u16, paint: impl Fn(u32, u32) -> [u8; 3]) -> f64 {
        let mut raster = Raster::filled(300, 100, PixelKind::Rgb, &[90, 90, 90]);
        for y in 0..100 {
            for x in 200..300 {
                let at = (y as usize * 300 + x as usize) * 3;
                raster.data[at..at + 3].copy_from_slice(&paint(x, y));
            }
        }
        let transform = Transform {
            size: Size {
                width: 10,
                height: 10,
                ..Size::default()
            },
            mode: Mode::Cover,
            gravity,
            ..Transform::default()
        };
        let found = std::cell::Cell::new(0.5);
        let area = Area::whole(if orientation >= 5 { (100, 300) } else { (300, 100) });
        thread_local!(static FOUND: std::cell::Cell<f64> = const { std::cell::Cell::new(0.0) });
        let step = |frame: &mut Frame<'_>| {
            let area = Area::whole(frame.original.upright());
            let pull = pull(frame, area, (100.0, 100.0));
            FOUND.set(if area.width > area.height { pull.0 } else { pull.1 });
            Ok(())
        };
        run(step, raster, &transform, crate::Format::Png, orientation).expect("it is found");
        assert_eq!(area.width + area.height, 400.0);
        found.set(FOUND.get());
        found.get()
    }

    #[test]
    fn entropy_finds_the_part_that_varies() {
        let noise = |x: u32, y: u32| [((x * 7919 + y * 104_729) % 251) as u8; 3];
        assert!(place(Gravity::Entropy, 1, noise) > 0.9);
        assert!(place(Gravity::Entropy, 3, noise) < 0.1);
    }

    #[test]
    fn attention_finds_skin_and_colour() {
        assert!(place(Gravity::Attention, 1, |_, _| [224, 172, 140]) > 0.9);
        assert!(place(Gravity::Attention, 8, |_, _| [224, 172, 140]) < 0.1);
        assert!(place(Gravity::Attention, 6, |_, _| [20, 60, 230]) > 0.9);
    }

    #[test]
    fn where_all_is_alike_the_middle_is_shown() {
        for gravity in [Gravity::Entropy, Gravity::Attention] {
            assert_eq!(place(gravity, 1, |_, _| [90, 90, 90]), 0.5);
        }
    }
}
