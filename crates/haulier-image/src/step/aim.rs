//! Decides which part of the picture is visible, and its size.

use crate::error::ImageError;
use crate::geometry::{Area, Fitting};
use crate::options::Gravity;
use crate::step::frame::{Frame, ScalePlan};
use crate::step::{interest, trim};

pub(super) fn apply(frame: &mut Frame<'_>) -> Result<(), ImageError> {
    if frame.plan.is_some() {
        return Ok(());
    }
    let transform = frame.transform;
    let mut area = match transform.trim {
        Some(tolerance) => trim::content(frame, tolerance),
        None => Area::whole(frame.original.upright()),
    };
    if let Some(region) = transform.region {
        area = area.cut(region)?;
    }
    let fitting = Fitting::of(area.width, area.height, transform);
    frame.limits.check_output(fitting.canvas.0, fitting.canvas.1)?;
    let (across, down) = fitting.scaled;
    let pixel = (fitting.seen.0 / f64::from(across), fitting.seen.1 / f64::from(down));
    let pull = match transform.gravity {
        Gravity::Entropy | Gravity::Attention => interest::pull(frame, area, fitting.seen),
        Gravity::Focal { x, y } => focal(area, fitting.seen, (f64::from(x) / 1000.0, f64::from(y) / 1000.0)),
        fixed => fixed.anchor(),
    };
    *frame.plan = Some(ScalePlan {
        area: area.part(fitting.seen, pull, pixel),
        fitting,
    });
    Ok(())
}

/// The position that centres a point, as far as the edges allow.
fn focal(area: Area, seen: (f64, f64), (x, y): (f64, f64)) -> (f64, f64) {
    let pull = |whole: f64, seen: f64, point: f64| {
        let slack = whole - seen;
        if slack <= 0.0 {
            0.5
        } else {
            ((point * whole - seen / 2.0) / slack).clamp(0.0, 1.0)
        }
    };
    (pull(area.width, seen.0, x), pull(area.height, seen.1, y))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Format;
    use crate::limits::Limits;
    use crate::options::{Mode, Region, Size, Transform};
    use crate::orientation::Orientation;
    use crate::original::Original;
    use crate::raster::{PixelKind, Raster};

    fn plan(transform: &Transform, limits: &Limits) -> Result<ScalePlan, ImageError> {
        let original = Original {
            format: Format::Png,
            width: 200,
            height: 100,
            orientation: Orientation::UPRIGHT,
            frames: 1,
            quality: None,
            alpha: false,
            channels: 1,
            progressive: false,
        };
        let mut plan = None;
        let mut frame = Frame {
            raster: Raster::filled(200, 100, PixelKind::Grey, &[9]),
            transform,
            original: &original,
            profile: None,
            limits,
            format: Format::Png,
            plan: &mut plan,
        };
        apply(&mut frame)?;
        Ok(plan.expect("it is made"))
    }

    fn square(mode: Mode, side: u32, gravity: Gravity) -> Transform {
        Transform {
            size: Size {
                width: side,
                height: side,
                ..Size::default()
            },
            mode,
            gravity,
            ..Transform::default()
        }
    }

    #[test]
    fn gravity_decides_what_is_seen() {
        for (gravity, x) in [
            (Gravity::Centre, 50.0),
            (Gravity::West, 0.0),
            (Gravity::SouthEast, 100.0),
            (Gravity::Focal { x: 0, y: 0 }, 0.0),
            (Gravity::Focal { x: 400, y: 0 }, 30.0),
            (Gravity::Focal { x: 1000, y: 0 }, 100.0),
        ] {
            let plan = plan(&square(Mode::Cover, 10, gravity), &Limits::default()).expect("a plan");
            assert_eq!(
                (plan.area.x, plan.area.y, plan.area.width),
                (x, 0.0, 100.0),
                "{gravity:?}"
            );
        }
    }

    #[test]
    fn what_is_not_scaled_is_cut_at_whole_pixels() {
        let plan = plan(&square(Mode::Crop, 33, Gravity::Centre), &Limits::default()).expect("a plan");
        assert_eq!((plan.area.x, plan.area.y), (83.0, 33.0));
    }

    #[test]
    fn a_region_is_cut_before_the_size_is_met() {
        let region = Some(Region {
            x: 150,
            y: 50,
            width: 0,
            height: 25,
        });
        let transform = Transform {
            region,
            ..square(Mode::Fit, 100, Gravity::Centre)
        };
        let plan = plan(&transform, &Limits::default()).expect("a plan");
        assert_eq!(
            (plan.area.width, plan.area.height, plan.fitting.scaled),
            (50.0, 25.0, (100, 50))
        );
    }

    #[test]
    fn an_answer_beyond_the_limit_is_refused() {
        let limits = Limits {
            output_side: 99,
            ..Limits::default()
        };
        let result = plan(&square(Mode::Fill, 100, Gravity::Centre), &limits);
        assert!(matches!(result, Err(ImageError::TooLarge { limit: 99, .. })));
    }
}
