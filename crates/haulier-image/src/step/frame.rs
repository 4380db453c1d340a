//! A picture between decoding and encoding, as the steps hand it on.

use crate::colour::{Profile, grey};
use crate::format::Format;
use crate::geometry::{Area, Fitting};
use crate::limits::Limits;
use crate::options::{Background, Transform};
use crate::original::Original;
use crate::raster::{PixelKind, Raster};

/// A picture on its way, and what the steps want to know.
pub(crate) struct Frame<'a> {
    /// The picture as it is now.
    pub(crate) raster: Raster,
    pub(crate) transform: &'a Transform,
    pub(crate) original: &'a Original,
    pub(crate) profile: Option<&'a Profile>,
    pub(crate) limits: &'a Limits,
    /// The format of the answer.
    pub(crate) format: Format,
    /// Decided by the first picture of an animation, for all of them.
    pub(crate) plan: &'a mut Option<ScalePlan>,
}

/// Which part of the picture becomes how large.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ScalePlan {
    /// The part, of the upright original.
    pub(crate) area: Area,
    pub(crate) fitting: Fitting,
}

impl Frame<'_> {
    /// The plan, which the first step has made.
    pub(super) fn plan(&self) -> ScalePlan {
        self.plan.expect("made by the first step")
    }

    /// The colour of corners and borders, in the bytes of a pixel. The picture gets transparency if the colour has it.
    pub(super) fn fill(&mut self) -> Vec<u8> {
        let Background([red, green, blue, alpha]) = self.transform.background.unwrap_or(Background::WHITE);
        if alpha != 255 {
            self.raster = self.raster.take().with_alpha();
        }
        let is_grey = red == green && green == blue;
        if !is_grey && !self.transform.grey {
            self.raster = self.raster.take().in_colour();
        }
        let shade = grey(&Raster::filled(1, 1, PixelKind::Rgb, &[red, green, blue])).data[0];
        match self.raster.kind {
            PixelKind::Grey => vec![shade],
            PixelKind::GreyAlpha => vec![shade, alpha],
            PixelKind::Rgb => vec![red, green, blue],
            PixelKind::Rgba | PixelKind::Cmyk => vec![red, green, blue, alpha],
        }
    }
}
