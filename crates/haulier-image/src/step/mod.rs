//! The steps between decoding and encoding.
//!
//! The order is written once, here, and each step knows by itself whether there is something to do.

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
    aim::apply,        // first: what is cut off costs nothing any more
    scale::apply,      // then small, for all that follows
    colour::apply,     // sRGB, before colours are mixed with others
    orient::apply,     // upright: from here on sides mean what a query means
    rotate::apply,     // as asked for, on top of that
    flip::apply,       // zimg's order: turned, then mirrored
    grey::apply,       // before the costly ones: a third of the bytes
    blur::apply,       //
    sharpen::apply,    // after blur, which would undo it
    pad::apply,        // around the finished picture, so that its edge is not blurred into the background
    background::apply, // last: what is transparent until here shows it
];

/// Does all of them.
///
/// # Errors
/// A region outside of the picture, or a size beyond the limits.
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

    /// Runs one step on a picture that came as it is.
    pub(crate) fn apply(step: Step, raster: Raster, transform: &Transform) -> Raster {
        run(step, raster, transform, Format::Png, 1).expect("it can be done")
    }

    /// Runs one step on a picture of this orientation that becomes a file of this format.
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
