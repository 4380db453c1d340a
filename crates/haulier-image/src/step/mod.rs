//! The steps between decoding and encoding.
//!
//! The order is written here only. Each step decides itself whether it applies.

mod aim;
mod background;
mod blur;
mod colour;
mod flip;
pub(crate) mod frame;
mod grey;
mod interest;
mod orient;
mod pad;
mod rotate;
mod scale;
mod sharpen;
mod trim;

use crate::error::ImageError;
use crate::step::frame::Frame;

type Step = fn(&mut Frame<'_>) -> Result<(), ImageError>;

const STEPS: [Step; 11] = [
    aim::apply,        // first: cropped parts cost no further work
    scale::apply,      // early: the following steps work on fewer pixels
    colour::apply,     // sRGB, before colours are mixed with others
    orient::apply,     // from here on the sides are those of the query
    rotate::apply,     // after the orientation, which it adds to
    flip::apply,       // zimg's order: rotate, then mirror
    grey::apply,       // before the costly steps: a third of the bytes
    blur::apply,       // after scaling: its radius is in pixels of the answer
    sharpen::apply,    // after blur, which would undo it
    pad::apply,        // around the finished picture, whose edge must not be blurred into the background
    background::apply, // last: replaces the remaining transparency
];

/// Applies all steps in their order.
///
/// # Errors
/// The region lies outside the picture, or a size exceeds the limits.
pub(crate) fn all(frame: &mut Frame<'_>) -> Result<(), ImageError> {
    STEPS.iter().try_for_each(|step| step(frame))
}

#[cfg(test)]
pub(crate) mod testing {
    //! A frame to try a step on.

    use super::*;
    use crate::format::Format;
    use crate::geometry::{Area, Fitting};
    use crate::limits::Limits;
    use crate::options::Transform;
    use crate::original::Original;
    use crate::raster::{PixelKind, Raster};
    use crate::step::frame::ScalePlan;

    /// Runs one step on an upright picture.
    pub(crate) fn apply(step: Step, raster: Raster, transform: &Transform) -> Raster {
        run(step, raster, transform, Format::Png, 1).expect("it can be done")
    }

    /// Runs one step on a picture of this orientation, for a variant of this format.
    pub(crate) fn run(
        step: Step,
        raster: Raster,
        transform: &Transform,
        format: Format,
        orientation: u16,
    ) -> Result<Raster, ImageError> {
        let original = Original {
            format: Format::Png,
            width: raster.width,
            height: raster.height,
            orientation: crate::orientation::Orientation::of(orientation),
            frames: 1,
            quality: None,
            alpha: raster.kind.has_alpha(),
            channels: raster.kind.channels() as u8,
            progressive: false,
        };
        let area = Area::whole(original.upright());
        let fitting = Fitting::of(area.width, area.height, transform);
        let mut plan = Some(ScalePlan { area, fitting });
        let mut frame = Frame {
            raster,
            transform,
            original: &original,
            profile: None,
            limits: &Limits::default(),
            format,
            plan: &mut plan,
        };
        step(&mut frame)?;
        Ok(frame.raster)
    }

    /// A grey picture of these rows.
    pub(crate) fn grey<const N: usize>(rows: &[[u8; N]]) -> Raster {
        Raster::new(N as u32, rows.len() as u32, PixelKind::Grey, rows.concat()).expect("it fits")
    }
}
