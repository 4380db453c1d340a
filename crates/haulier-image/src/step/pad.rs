//! Puts the picture on its canvas, and adds the border.

use crate::error::ImageError;
use crate::options::Pad;
use crate::raster::Raster;
use crate::step::frame::Frame;

pub(super) fn apply(frame: &mut Frame<'_>) -> Result<(), ImageError> {
    let canvas = frame.plan().fitting.canvas;
    if canvas != frame.plan().fitting.scaled {
        // A rotated picture may be larger than its canvas, which is enlarged then.
        let width = canvas.0.max(frame.raster.width);
        let height = canvas.1.max(frame.raster.height);
        let (pull_x, pull_y) = frame.transform.gravity.anchor();
        let place = |slack: u32, pull: f64| (f64::from(slack) * pull) as u32;
        let left = place(width - frame.raster.width, pull_x);
        let top = place(height - frame.raster.height, pull_y);
        put(frame, width, height, left, top)?;
    }
    let Pad {
        top,
        right,
        bottom,
        left,
    } = frame.transform.pad;
    if frame.transform.pad != Pad::default() {
        let width = frame.raster.width.saturating_add(left).saturating_add(right);
        let height = frame.raster.height.saturating_add(top).saturating_add(bottom);
        put(frame, width, height, left, top)?;
    }
    Ok(())
}

fn put(frame: &mut Frame<'_>, width: u32, height: u32, left: u32, top: u32) -> Result<(), ImageError> {
    frame.limits.check_output(width, height)?;
    let fill = frame.fill();
    let mut canvas = Raster::filled(width, height, frame.raster.kind, &fill);
    let (row, channels) = (canvas.row(), fill.len());
    for (y, from) in frame.raster.rows().enumerate() {
        let start = (top as usize + y) * row + left as usize * channels;
        canvas.data[start..start + from.len()].copy_from_slice(from);
    }
    frame.raster = canvas;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ImageError;
    use crate::format::Format;
    use crate::options::{Background, Gravity, Mode, Size, Transform};
    use crate::raster::PixelKind;
    use crate::step::testing::{apply as run, grey, run as run_as};

    const BLACK: Option<Background> = Some(Background([0, 0, 0, 255]));

    #[test]
    fn a_border_is_added_at_each_side() {
        let transform = Transform {
            pad: Pad {
                top: 1,
                right: 2,
                bottom: 0,
                left: 1,
            },
            background: BLACK,
            ..Transform::default()
        };
        let padded = run(apply, grey(&[[7, 8]]), &transform);
        assert_eq!(padded, grey(&[[0, 0, 0, 0, 0], [0, 7, 8, 0, 0]]));
    }

    #[test]
    fn a_contained_picture_stands_where_gravity_pulls_it() {
        for (gravity, expected) in [
            (Gravity::Centre, [[255, 255], [7, 8], [255, 255]]),
            (Gravity::North, [[7, 8], [255, 255], [255, 255]]),
            (Gravity::South, [[255, 255], [255, 255], [7, 8]]),
        ] {
            let transform = Transform {
                size: Size {
                    width: 2,
                    height: 3,
                    ..Size::default()
                },
                mode: Mode::Contain,
                gravity,
                ..Transform::default()
            };
            assert_eq!(run(apply, grey(&[[7, 8]]), &transform), grey(&expected), "{gravity:?}");
        }
    }

    #[test]
    fn a_coloured_border_makes_a_grey_picture_coloured() {
        let transform = Transform {
            pad: Pad {
                left: 1,
                ..Pad::default()
            },
            background: Some(Background([200, 0, 0, 255])),
            ..Transform::default()
        };
        let padded = run(apply, grey(&[[7]]), &transform);
        assert_eq!(
            (padded.kind, &padded.data[..]),
            (PixelKind::Rgb, &[200, 0, 0, 7, 7, 7][..])
        );
    }

    #[test]
    fn a_border_beyond_the_limit_is_refused() {
        let transform = Transform {
            pad: Pad {
                left: 5000,
                ..Pad::default()
            },
            ..Transform::default()
        };
        let result = run_as(apply, grey(&[[7]]), &transform, Format::Png, 1);
        assert!(matches!(result, Err(ImageError::TooLarge { .. })));
    }
}
