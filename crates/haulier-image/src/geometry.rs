//! Geometry: the part of an image that is shown, and its size in the answer.
//!
//! All of it is arithmetic on the upright image in pixels of the original, so it needs no decoded pixels.

use crate::error::ImageError;
use crate::options::{Mode, Region, Size, Transform, Unit};
use crate::orientation::Orientation;

/// A rectangle in an image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Area {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

impl Area {
    pub(crate) fn whole((width, height): (u32, u32)) -> Self {
        Self {
            x: 0.0,
            y: 0.0,
            width: f64::from(width),
            height: f64::from(height),
        }
    }

    /// The requested region within this area.
    ///
    /// # Errors
    /// The region begins outside.
    pub(crate) fn cut(self, region: Region) -> Result<Self, ImageError> {
        let (x, y) = (f64::from(region.x), f64::from(region.y));
        if x >= self.width || y >= self.height {
            return Err(ImageError::Outside {
                width: self.width as u32,
                height: self.height as u32,
            });
        }
        let up_to = |wanted: u32, left: f64| if wanted == 0 { left } else { left.min(f64::from(wanted)) };
        Ok(Self {
            x: self.x + x,
            y: self.y + y,
            width: up_to(region.width, self.width - x),
            height: up_to(region.height, self.height - y),
        })
    }

    /// A part of this size at a relative position: 0 is left and top, 1 right and bottom. It begins at a whole pixel of
    /// the answer, as if the whole were scaled and then cropped; `pixel` is the size of such a pixel.
    pub(crate) fn part(self, (width, height): (f64, f64), (pull_x, pull_y): (f64, f64), pixel: (f64, f64)) -> Self {
        // The constant absorbs rounding errors.
        let place = |slack: f64, pull: f64, pixel: f64| (slack.max(0.0) * pull / pixel + 1e-6).floor() * pixel;
        Self {
            x: self.x + place(self.width - width, pull_x, pixel.0),
            y: self.y + place(self.height - height, pull_y, pixel.1),
            width,
            height,
        }
    }

    /// The same part in the stored image. `from` is the upright size, `to` the size of the stored image, which the
    /// decoder may have reduced.
    pub(crate) fn stored(self, orientation: Orientation, from: (u32, u32), to: (f64, f64)) -> Self {
        let (width, height) = (f64::from(from.0), f64::from(from.1));
        let first = lay(orientation, (self.x / width, self.y / height));
        let second = lay(
            orientation,
            ((self.x + self.width) / width, (self.y + self.height) / height),
        );
        let (left, right) = (first.0.min(second.0), first.0.max(second.0));
        let (top, bottom) = (first.1.min(second.1), first.1.max(second.1));
        let (width, height) = to;
        Self {
            x: snapped(left * width),
            y: snapped(top * height),
            width: snapped((right - left) * width),
            height: snapped((bottom - top) * height),
        }
    }
}

/// Rounds a side that misses a whole number only by rounding errors, so that no needless scaling occurs.
fn snapped(side: f64) -> f64 {
    let whole = side.round();
    if (side - whole).abs() < 1e-6 { whole } else { side }
}

/// Maps a point of the upright image to the stored one; coordinates from 0 to 1.
pub(crate) fn lay(orientation: Orientation, (mut x, mut y): (f64, f64)) -> (f64, f64) {
    for _ in 0..orientation.quarters() {
        (x, y) = (y, 1.0 - x);
    }
    if orientation.mirrors() { (1.0 - x, y) } else { (x, y) }
}

/// The part of the image that is shown, and its size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Fitting {
    /// Size of the visible part, pixels of the original.
    pub(crate) seen: (f64, f64),
    /// Its size in the answer, pixels.
    pub(crate) scaled: (u32, u32),
    /// Size of the canvas: larger than `scaled` if background fills the rest.
    pub(crate) canvas: (u32, u32),
}

impl Fitting {
    /// Fits an image, or a part of one, of this size.
    pub(crate) fn of(width: f64, height: f64, transform: &Transform) -> Self {
        let whole = (width, height);
        let (wanted_width, wanted_height) = wanted(whole, transform);
        if wanted_width == 0.0 && wanted_height == 0.0 {
            return Self::unscaled(whole);
        }
        if transform.mode == Mode::Crop {
            let side = |wanted: f64, has: f64| if wanted == 0.0 { has } else { wanted.min(has) };
            return Self::unscaled((side(wanted_width, width), side(wanted_height, height)));
        }
        if wanted_width == 0.0 || wanted_height == 0.0 {
            let scale = (wanted_width / width).max(wanted_height / height);
            return Self::fitted(whole, if transform.may_enlarge() { scale } else { scale.min(1.0) });
        }
        let (across, down) = (wanted_width / width, wanted_height / height);
        match transform.mode {
            Mode::Cover => {
                let scale = across.max(down);
                // As in zimg: the whole image is scaled to whole pixels, and then cropped.
                let pixel = |side: f64| side / f64::from(rounded(side * scale));
                let seen = (wanted_width * pixel(width), wanted_height * pixel(height));
                Self {
                    seen: (seen.0.min(width), seen.1.min(height)),
                    ..Self::to(whole, (wanted_width, wanted_height))
                }
            }
            Mode::Fit | Mode::ScaleDown | Mode::Contain => {
                let scale = across.min(down);
                let fitted = Self::fitted(whole, if transform.may_enlarge() { scale } else { scale.min(1.0) });
                let Size { width, height, .. } = transform.size;
                match transform.mode {
                    Mode::Contain => Self {
                        canvas: (width, height),
                        ..fitted
                    },
                    _ => fitted,
                }
            }
            Mode::Fill | Mode::Crop => Self::to(whole, (wanted_width, wanted_height)),
        }
    }

    fn unscaled(seen: (f64, f64)) -> Self {
        Self::to(seen, seen)
    }

    fn fitted((width, height): (f64, f64), scale: f64) -> Self {
        Self::to((width, height), (width * scale, height * scale))
    }

    fn to(seen: (f64, f64), (width, height): (f64, f64)) -> Self {
        let scaled = (rounded(width), rounded(height));
        Self {
            seen,
            scaled,
            canvas: scaled,
        }
    }

    /// The reduction factor in the direction of the smaller reduction.
    pub(crate) fn reduction(&self) -> f64 {
        let across = self.seen.0 / f64::from(self.scaled.0);
        let down = self.seen.1 / f64::from(self.scaled.1);
        across.min(down)
    }
}

impl Transform {
    fn may_enlarge(&self) -> bool {
        self.enlarge && self.mode != Mode::ScaleDown
    }
}

/// The requested size in pixels. As in zimg, it is at most the image's size if that may not be enlarged.
fn wanted((width, height): (f64, f64), transform: &Transform) -> (f64, f64) {
    let Size {
        width: across,
        height: down,
        unit,
    } = transform.size;
    let side = |wanted: u32, has: f64| {
        let wanted = f64::from(wanted);
        let pixels = if unit == Unit::Percent {
            wanted * has / 100.0
        } else {
            wanted
        };
        let clamped = matches!(transform.mode, Mode::Cover | Mode::Fill) && !transform.may_enlarge();
        if clamped { pixels.min(has) } else { pixels }
    };
    (side(across, width), side(down, height))
}

/// Rounds half a pixel up; the result is at least 1.
fn rounded(side: f64) -> u32 {
    ((side + 0.5).floor() as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(width: u32, height: u32, mode: Mode, enlarge: bool) -> Fitting {
        let transform = Transform {
            size: Size {
                width,
                height,
                unit: Unit::Pixels,
            },
            mode,
            enlarge,
            ..Transform::default()
        };
        Fitting::of(640.0, 856.0, &transform)
    }

    #[test]
    fn every_mode_meets_the_size_in_its_way() {
        for (mode, (width, height), scaled, seen) in [
            (Mode::Cover, (0, 0), (640, 856), (640.0, 856.0)),
            (Mode::Cover, (100, 0), (100, 134), (640.0, 856.0)),
            (Mode::Cover, (0, 100), (75, 100), (640.0, 856.0)),
            (Mode::Cover, (100, 100), (100, 100), (640.0, 100.0 * (856.0 / 134.0))),
            (Mode::Fit, (100, 100), (75, 100), (640.0, 856.0)),
            (Mode::Fit, (1280, 0), (1280, 1712), (640.0, 856.0)),
            (Mode::ScaleDown, (1280, 0), (640, 856), (640.0, 856.0)),
            (Mode::ScaleDown, (320, 4000), (320, 428), (640.0, 856.0)),
            (Mode::Contain, (100, 100), (75, 100), (640.0, 856.0)),
            (Mode::Fill, (100, 300), (100, 300), (640.0, 856.0)),
            (Mode::Crop, (100, 300), (100, 300), (100.0, 300.0)),
            (Mode::Crop, (100, 0), (100, 856), (100.0, 856.0)),
            (Mode::Crop, (1000, 300), (640, 300), (640.0, 300.0)),
            (Mode::Fit, (1, 0), (1, 1), (640.0, 856.0)),
        ] {
            let shape = shape(width, height, mode, true);
            assert_eq!((shape.scaled, shape.seen), (scaled, seen), "{mode:?} {width}×{height}");
        }
    }

    #[test]
    fn contain_stands_in_a_canvas() {
        assert_eq!(shape(100, 100, Mode::Contain, true).canvas, (100, 100));
        let small = shape(2000, 2000, Mode::Contain, false);
        assert_eq!((small.scaled, small.canvas), ((640, 856), (2000, 2000)));
    }

    #[test]
    fn what_may_not_be_enlarged_is_not() {
        for (mode, expected) in [
            (Mode::Cover, (640, 856)),
            (Mode::Fit, (640, 856)),
            (Mode::Fill, (640, 856)),
        ] {
            assert_eq!(shape(2000, 2000, mode, false).scaled, expected, "{mode:?}");
        }
        assert_eq!(shape(2000, 100, Mode::Cover, false).scaled, (640, 100));
    }

    #[test]
    fn percentages_are_of_each_side() {
        let of = |width, height, enlarge| {
            let transform = Transform {
                size: Size {
                    width,
                    height,
                    unit: Unit::Percent,
                },
                mode: Mode::Fill,
                enlarge,
                ..Transform::default()
            };
            Fitting::of(640.0, 856.0, &transform).scaled
        };
        assert_eq!(of(50, 50, true), (320, 428));
        assert_eq!(of(50, 200, true), (320, 1712));
        assert_eq!(of(200, 200, false), (640, 856));
    }

    #[test]
    fn a_region_ends_at_the_edge_and_begins_inside() {
        let whole = Area::whole((640, 856));
        let region = |x, y, width, height| Region { x, y, width, height };
        let cut = whole.cut(region(600, 800, 100, 0)).expect("inside");
        assert_eq!((cut.x, cut.y, cut.width, cut.height), (600.0, 800.0, 40.0, 56.0));
        assert!(matches!(
            whole.cut(region(640, 0, 1, 1)),
            Err(ImageError::Outside {
                width: 640,
                height: 856
            })
        ));
        assert!(whole.cut(region(0, 856, 0, 0)).is_err());
    }

    #[test]
    fn a_part_is_pulled_to_its_side() {
        let whole = Area::whole((101, 50));
        let one = (1.0, 1.0);
        assert_eq!(whole.part((50.0, 50.0), (0.5, 0.5), one).x, 25.0);
        assert_eq!(whole.part((50.0, 50.0), (0.5, 0.5), (0.25, 1.0)).x, 25.5);
        assert_eq!(whole.part((50.0, 50.0), (0.5, 0.5), (8.0, 1.0)).x, 24.0);
        assert_eq!(whole.part((50.0, 50.0), (1.0, 0.5), one).x, 51.0);
    }

    #[test]
    fn the_upper_left_corner_lies_where_exif_says() {
        // Where the stored first row and first column are, seen upright: Exif 2.32 §4.6.4.
        for (number, expected) in [
            (1, (0.0, 0.0)),
            (2, (1.0, 0.0)),
            (3, (1.0, 1.0)),
            (4, (0.0, 1.0)),
            (5, (0.0, 0.0)),
            (6, (0.0, 1.0)),
            (7, (1.0, 1.0)),
            (8, (1.0, 0.0)),
        ] {
            assert_eq!(lay(Orientation::of(number), (0.0, 0.0)), expected, "{number}");
        }
    }

    #[test]
    fn an_area_is_found_in_a_smaller_stored_image() {
        let area = Area {
            x: 10.0,
            y: 20.0,
            width: 30.0,
            height: 40.0,
        };
        let stored = area.stored(Orientation::of(6), (100, 200), (100.0, 50.0));
        // Upright 100 × 200, stored 200 × 100 at half size.
        assert_eq!((stored.x, stored.y), (10.0, 30.0));
        assert_eq!((stored.width, stored.height), (20.0, 15.0));
    }
}
