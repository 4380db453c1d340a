//! The properties of an original, read from its header alone.
//!
//! Own readers of a few hundred lines that allocate nothing by what the header claims: a bomb is refused before any decoder
//! has seen it.

mod avif;
mod gif;
pub(crate) mod jpeg;
pub(crate) mod png;
pub(crate) mod webp;

use serde::{Deserialize, Serialize};

use crate::error::ImageError;
use crate::format::Format;
use crate::limits::Limits;

/// The header of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Original {
    /// Its format, by its bytes.
    pub format: Format,
    /// Width, pixels, as it is stored: before it is turned upright.
    pub width: u32,
    /// Height, likewise.
    pub height: u32,
    /// The rotation that makes it upright.
    pub orientation: Orientation,
    /// Pictures of an animation; 1 for a still.
    pub frames: u32,
    /// Quality of a JPEG, estimated by its quantisation: 1 to 100.
    pub quality: Option<u8>,
    /// True if pixels may be transparent.
    pub alpha: bool,
    /// Channels of a pixel as it is decoded, 1 to 4.
    pub channels: u8,
    /// True if it comes in scans that are held in memory together: a progressive JPEG.
    pub progressive: bool,
}

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

    /// Width and height when it is upright, pixels.
    #[must_use]
    pub fn upright(&self) -> (u32, u32) {
        if self.orientation.swaps() {
            (self.height, self.width)
        } else {
            (self.width, self.height)
        }
    }

    /// A still of this format with nothing special about it.
    fn still(format: Format, width: u32, height: u32, channels: u8) -> Self {
        Self {
            format,
            width,
            height,
            orientation: Orientation::UPRIGHT,
            frames: 1,
            quality: None,
            alpha: matches!(channels, 2 | 4) && format != Format::Jpeg,
            channels,
            progressive: false,
        }
    }
}

/// The rotation that makes a stored image upright: Exif's tag 274.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orientation(u8);

impl Orientation {
    /// As it is stored.
    pub const UPRIGHT: Self = Self(1);

    /// The orientation of this number; what is none is upright.
    #[must_use]
    pub fn of(number: u16) -> Self {
        match number {
            1..=8 => Self(number as u8),
            _ => Self::UPRIGHT,
        }
    }

    /// Exif's number, 1 to 8.
    #[must_use]
    pub fn number(self) -> u8 {
        self.0
    }

    /// True if width and height change places.
    #[must_use]
    pub fn swaps(self) -> bool {
        self.0 >= 5
    }

    /// Mirrored left to right before it is turned.
    pub(crate) fn mirrors(self) -> bool {
        matches!(self.0, 2 | 4 | 5 | 7)
    }

    /// Quarter turns clockwise, after mirroring.
    pub(crate) fn quarters(self) -> u8 {
        match self.0 {
            3 | 4 => 2,
            6 | 7 => 1,
            5 | 8 => 3,
            _ => 0,
        }
    }
}

/// Big-endian numbers at a place that may not be there.
fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_be_bytes([bytes[0], bytes[1]]))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

fn le16(bytes: &[u8], at: usize) -> Option<u16> {
    be16(bytes, at).map(u16::swap_bytes)
}

fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    be32(bytes, at).map(u32::swap_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orientations_are_eight() {
        for number in 1..=8 {
            assert_eq!(u16::from(Orientation::of(number).number()), number);
        }
        for number in [0, 9, 256, 274] {
            assert_eq!(Orientation::of(number), Orientation::UPRIGHT);
        }
        assert!(!Orientation::of(4).swaps());
        assert!(Orientation::of(5).swaps());
    }

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

    #[test]
    fn numbers_past_the_end_are_none() {
        assert_eq!(be32(&[1, 2, 3], 0), None);
        assert_eq!(be16(&[1, 2, 3], 1), Some(0x0203));
        assert_eq!(le16(&[1, 2, 3], 1), Some(0x0302));
        assert_eq!(be16(&[1, 2], usize::MAX), None);
        assert_eq!(le32(&[1, 2, 3, 4], 0), Some(0x0403_0201));
    }
}
