//! The trait of all formats, and the pictures that go in and out.
//!
//! Pixels always come as eight bits a channel. Nothing of an original's metadata reaches a variant but its copyright,
//! where that is wanted: a writer gets pixels.

use crate::copyright::Copyright;
use crate::error::ImageError;
use crate::original::Original;
use crate::raster::Raster;

/// Options of decoding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ReadOptions {
    /// So many times smaller it may become while it is read, at least 1; what is left to scale is taken off already.
    pub(crate) reduction: f64,
    /// Only its brightness is wanted.
    pub(crate) grey: bool,
    /// All pictures are wanted, not only the first.
    pub(crate) animated: bool,
}

/// A picture, and how long it is shown.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Picture {
    pub(crate) raster: Raster,
    /// Milliseconds; 0 for a still.
    pub(crate) delay: u32,
}

/// The pictures of a variant, at least one, all of one size and kind.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pictures {
    pub(crate) frames: Vec<Picture>,
    /// Repetitions of an animation; 0 is for ever.
    pub(crate) loops: u16,
    /// Author and copyright, if the variant is to name them.
    pub(crate) copyright: Option<Copyright>,
}

impl Pictures {
    /// The picture of a still.
    pub(super) fn first(&self) -> &Raster {
        &self.frames[0].raster
    }
}

/// Takes pictures as they come.
pub(crate) type Each<'a> = dyn FnMut(Picture) -> Result<(), ImageError> + 'a;

/// A format.
pub(crate) trait Codec: Sync {
    /// The ICC profile of an original, without decoding its pixels.
    fn profile(&self, bytes: &[u8]) -> Option<Vec<u8>>;

    /// Bytes of memory that reading takes, at most.
    fn memory(&self, original: &Original, options: &ReadOptions) -> u64;

    /// Reads the first picture, or all of them; gives the number of loops.
    ///
    /// # Errors
    /// [`ImageError::Malformed`], and the errors of `each`.
    fn read(&self, bytes: &[u8], original: &Original, options: &ReadOptions, each: &mut Each<'_>) -> Result<u16, ImageError>;

    /// Writes a variant in a quality from 1 to 100, where the format has one.
    ///
    /// # Errors
    /// The encoder refuses, which happens for sizes that the format cannot say.
    fn write(&self, pictures: &Pictures, quality: u8) -> Result<Vec<u8>, ImageError>;
}
