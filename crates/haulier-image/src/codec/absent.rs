//! A format that this build neither reads nor writes.

use crate::codec::{Codec, Each, Pictures, ReadOptions};
use crate::error::ImageError;
use crate::format::Format;
use crate::original::Original;

/// AVIF in a build without the feature `avif`.
pub(super) struct Absent;

impl Codec for Absent {
    fn profile(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn memory(&self, original: &Original, _: &ReadOptions) -> u64 {
        original.decoded_size()
    }

    fn read(&self, _: &[u8], original: &Original, _: &ReadOptions, _: &mut Each<'_>) -> Result<u16, ImageError> {
        Err(ImageError::Unsupported {
            format: original.format,
            written: false,
        })
    }

    fn write(&self, _: &Pictures, _: u8) -> Result<Vec<u8>, ImageError> {
        Err(ImageError::Unsupported {
            format: Format::Avif,
            written: true,
        })
    }
}
