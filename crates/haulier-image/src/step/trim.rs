//! Finds the picture inside a border of one colour.

use crate::geometry::Area;
use crate::raster::Raster;
use crate::step::frame::Frame;

/// The upright original without its border: the pixels that differ from the upper left one by at most the tolerance in
/// every channel. A picture that is all border stays whole.
pub(super) fn content(frame: &Frame<'_>, tolerance: u8) -> Area {
    let whole = Area::whole(frame.original.upright());
    let Some([left, top, right, bottom]) = bounds(&frame.raster, tolerance) else {
        return whole;
    };
    // The bounds are in the stored picture; their corners are mapped to the upright one.
    let (width, height) = (f64::from(frame.raster.width), f64::from(frame.raster.height));
    let corners = [
        (f64::from(left) / width, f64::from(top) / height),
        (f64::from(right) / width, f64::from(bottom) / height),
    ];
    let [first, second] = corners.map(|corner| upright(frame, corner));
    let (x, y) = (
        first.0.min(second.0) * whole.width,
        first.1.min(second.1) * whole.height,
    );
    Area {
        x: x.round(),
        y: y.round(),
        width: ((first.0 - second.0).abs() * whole.width).round().max(1.0),
        height: ((first.1 - second.1).abs() * whole.height).round().max(1.0),
    }
}

/// Maps a point of the stored picture to the upright one; coordinates from 0 to 1.
fn upright(frame: &Frame<'_>, (x, y): (f64, f64)) -> (f64, f64) {
    let orientation = frame.original.orientation;
    let (mut x, mut y) = if orientation.mirrors() { (1.0 - x, y) } else { (x, y) };
    for _ in 0..orientation.quarters() {
        (x, y) = (1.0 - y, x);
    }
    (x, y)
}

/// Left, top, and the pixels after right and bottom; `None` if all is border.
fn bounds(raster: &Raster, tolerance: u8) -> Option<[u32; 4]> {
    let border = raster.pixel(0, 0).to_vec();
    let differs = |pixel: &[u8]| pixel.iter().zip(&border).any(|(a, b)| a.abs_diff(*b) > tolerance);
    let channels = raster.kind.channels();
    let busy = |row: &[u8]| row.chunks_exact(channels).any(differs);
    let top = raster.rows().position(busy)? as u32;
    let below = raster.rows().rev().position(busy)? as u32;
    let (mut left, mut right) = (raster.width, 0);
    for row in raster.rows() {
        let mut pixels = row.chunks_exact(channels);
        if let Some(first) = pixels.position(differs) {
            left = left.min(first as u32);
        }
        if let Some(last) = row.chunks_exact(channels).rposition(differs) {
            right = right.max(last as u32 + 1);
        }
    }
    Some([left, top, right, raster.height - below])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{Mode, Size, Transform};
    use crate::step::testing::{grey, run};

    #[test]
    fn a_border_of_one_colour_is_told_from_the_picture() {
        let raster = grey(&[[5, 5, 5, 5], [5, 9, 200, 5], [5, 200, 5, 5], [5, 5, 5, 7]]);
        assert_eq!(bounds(&raster, 10), Some([1, 1, 3, 3]));
        assert_eq!(bounds(&raster, 1), Some([1, 1, 4, 4]));
        assert_eq!(bounds(&raster, 255), None);
    }

    #[test]
    fn the_content_is_found_upright() {
        // Seen upright (turned clockwise by a quarter), the dot is in the upper right.
        let raster = grey(&[[5, 200, 5, 5], [5, 5, 5, 5]]);
        let transform = Transform {
            trim: Some(10),
            size: Size::default(),
            mode: Mode::Cover,
            ..Transform::default()
        };
        let step = |frame: &mut Frame<'_>| {
            let area = content(frame, 10);
            assert_eq!((area.x, area.y, area.width, area.height), (1.0, 1.0, 1.0, 1.0));
            Ok(())
        };
        run(step, raster, &transform, crate::Format::Png, 6).expect("it is found");
    }
}
