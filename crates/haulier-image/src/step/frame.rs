//! A picture between decoding and encoding, with the inputs of the steps.

use crate::colour::{Profile, grey};
use crate::format::Format;
use crate::geometry::{Area, Fitting};
use crate::limits::Limits;
use crate::options::{Background, Transform};
use crate::original::Original;
use crate::raster::{PixelKind, Raster};

/// A picture between decoding and encoding, with the inputs of the steps.
pub(crate) struct Frame<'a> {
    /// The current pixels.
    pub(crate) raster: Raster,
    pub(crate) transform: &'a Transform,
    pub(crate) original: &'a Original,
    pub(crate) profile: Option<&'a Profile>,
    pub(crate) limits: &'a Limits,
    /// The format of the answer.
    pub(crate) format: Format,
    /// Made for the first picture of an animation, and used for all.
    pub(crate) plan: &'a mut Option<ScalePlan>,
}

/// The visible part of the picture, and its size in the answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ScalePlan {
    /// The visible part of the upright original.
    pub(crate) area: Area,
    pub(crate) fitting: Fitting,
}

impl Frame<'_> {
    /// The plan that the first step has made.
    pub(super) fn plan(&self) -> ScalePlan {
        self.plan.expect("made by the first step")
    }

    /// The fill colour of corners and borders, as the bytes of a pixel. The picture gets an opacity channel if the
    /// colour needs it.
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
