//! The trait of all codecs, and the pictures that they read and write.
//!
//! Pixels always have eight bits per channel. A writer gets pixels and, if configured, the copyright; no other metadata
//! of an original reaches a variant.

use crate::copyright::Copyright;
use crate::error::ImageError;
use crate::original::Original;
use crate::raster::Raster;

/// Options of decoding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ReadOptions {
    /// Factor by which the decoder may reduce both sides, at least 1; the rest is left to the scaling step.
    pub(crate) reduction: f64,
    /// Read the brightness only.
    pub(crate) grey: bool,
    /// Read all pictures, not only the first.
    pub(crate) animated: bool,
}

/// A picture with its display time.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Picture {
    pub(crate) raster: Raster,
    /// Display time in milliseconds; 0 for a still.
    pub(crate) delay: u32,
}

/// The pictures of a variant: at least one, all of the same size and kind.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pictures {
    pub(crate) frames: Vec<Picture>,
    /// Repetitions of an animation; 0 is endless.
    pub(crate) loops: u16,
    /// Author and copyright, if the variant keeps them.
    pub(crate) copyright: Option<Copyright>,
}

impl Pictures {
    /// The only picture of a still, or the first of an animation.
    pub(super) fn first(&self) -> &Raster {
        &self.frames[0].raster
    }
}

/// Receives each picture as it is decoded.
pub(crate) type Each<'a> = dyn FnMut(Picture) -> Result<(), ImageError> + 'a;

/// A codec.
pub(crate) trait Codec: Sync {
    /// The ICC profile of an original, without decoding its pixels.
    fn profile(&self, bytes: &[u8]) -> Option<Vec<u8>>;

    /// Most memory that reading takes, bytes.
    fn memory(&self, original: &Original, options: &ReadOptions) -> u64;

    /// Reads the first picture or all of them, and returns the number of repetitions.
    ///
    /// # Errors
    /// [`ImageError::Malformed`], and the errors of `each`.
    fn read(
        &self,
        bytes: &[u8],
        original: &Original,
        options: &ReadOptions,
        each: &mut Each<'_>,
    ) -> Result<u16, ImageError>;

    /// Writes a variant in a quality from 1 to 100, if the format has one.
    ///
    /// # Errors
    /// The encoder refuses, for example a size that the format cannot express.
    fn write(&self, pictures: &Pictures, quality: u8) -> Result<Vec<u8>, ImageError>;
}
