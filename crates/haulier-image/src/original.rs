//! Reads the properties of an original from its header alone.
//!
//! The readers allocate nothing that the header asks for, so a decompression bomb is refused before a decoder sees it.

mod avif;
mod gif;
pub(crate) mod jpeg;
mod number;
pub(crate) mod png;
mod properties;
pub(crate) mod webp;

pub use self::properties::Original;

use crate::error::ImageError;
use crate::format::Format;
use crate::limits::Limits;

impl Original {
    /// Reads the header of an image, and counts the frames of an animation.
    ///
    /// # Errors
    /// [`ImageError::Unknown`], [`ImageError::Malformed`], or [`ImageError::TooLarge`] if it exceeds the limits.
    pub fn read(bytes: &[u8], limits: &Limits) -> Result<Self, ImageError> {
        let format = Format::of_bytes(bytes).ok_or(ImageError::Unknown)?;
        let found = match format {
            Format::Jpeg => jpeg::read(bytes),
            Format::Png => png::read(bytes),
            Format::Gif => gif::read(bytes, limits.frames),
            Format::WebP => webp::read(bytes),
            Format::Avif => avif::read(bytes),
        };
        let original = found.ok_or_else(|| ImageError::Malformed(format!("no complete {format} header")))?;
        if original.width == 0 || original.height == 0 {
            return Err(ImageError::Malformed("an image of no size".into()));
        }
        limits.check_original(bytes.len() as u64, original.width, original.height)?;
        Ok(original)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_image_is_unknown() {
        for bytes in [
            &b""[..],
            b"<svg/>",
            b"%!PS-Adobe",
            b"push graphic-context",
            b"RIFF1234WAVE",
        ] {
            assert!(matches!(
                Original::read(bytes, &Limits::default()),
                Err(ImageError::Unknown)
            ));
        }
    }

    #[test]
    fn a_header_cut_short_is_malformed() {
        for bytes in [
            &b"\xff\xd8\xff"[..],
            b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
            b"GIF89a\x01",
            b"RIFF\0\0\0\0WEBPVP8X",
            b"\0\0\0\x0cftypavif",
        ] {
            let result = Original::read(bytes, &Limits::default());
            assert!(matches!(result, Err(ImageError::Malformed(_))), "{result:?}");
        }
    }
}
