//! Limits on the cost of an image.

use serde::{Deserialize, Serialize};

use crate::error::{Excess, ImageError};

/// Limits of one original and its variants. All but `frames` are checked by the header, before decoding; `frames` once
/// they are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Most bytes of an original.
    pub file: u64,
    /// Most pixels of an original; of an animation, of all its frames together.
    pub pixels: u64,
    /// Longest side of an original, pixels.
    pub side: u32,
    /// Most frames of an animation.
    pub frames: u32,
    /// Longest side of an answer, pixels.
    pub output_side: u32,
    /// Most memory for the pixels of one image, bytes.
    pub memory: u64,
    /// Most pixels of an AVIF: more cannot be encoded within the deadline.
    pub avif_pixels: u64,
}

/// Pixels of an AVIF that a worker encodes per second on a processor of 2026. An AVIF that would miss the deadline is
/// refused at once.
pub const AVIF_PIXELS_A_SECOND: u64 = 2_000_000;
/// Pixels of an AVIF that are always allowed, however small the original is.
const ENLARGED: u64 = 1_000_000;
/// Most enlargement of an AVIF in pixels: twice the sides.
const ENLARGED_BY: u64 = 4;

impl Default for Limits {
    /// The limits for public uploads.
    fn default() -> Self {
        Self {
            file: 32 << 20,
            pixels: 40_000_000,
            side: 16_384,
            frames: 100,
            output_side: 4096,
            memory: 256 << 20,
            avif_pixels: 5 * AVIF_PIXELS_A_SECOND,
        }
    }
}

impl Limits {
    /// Checks an original by its header.
    pub(crate) fn check_original(&self, length: u64, width: u32, height: u32) -> Result<(), ImageError> {
        Excess::Bytes.check(length, self.file)?;
        Excess::Side.check(u64::from(width.max(height)), u64::from(self.side))?;
        Excess::Pixels.check(u64::from(width) * u64::from(height), self.pixels)
    }

    /// Checks an animation by its number of frames and the size of its canvas.
    pub(crate) fn check_frames(&self, frames: u32, width: u32, height: u32) -> Result<(), ImageError> {
        Excess::Frames.check(u64::from(frames), u64::from(self.frames))?;
        let pixels = u64::from(width) * u64::from(height) * u64::from(frames);
        Excess::Pixels.check(pixels, self.pixels)
    }

    /// Checks the size of an answer.
    pub(crate) fn check_output(&self, width: u32, height: u32) -> Result<(), ImageError> {
        Excess::Output.check(u64::from(width.max(height)), u64::from(self.output_side))
    }

    /// Checks an AVIF of this size that shows a part of that size of the original.
    pub(crate) fn check_avif(&self, (width, height): (u32, u32), (across, down): (f64, f64)) -> Result<(), ImageError> {
        let pixels = u64::from(width) * u64::from(height);
        Excess::AvifPixels.check(pixels, self.avif_pixels)?;
        let seen = (across * down) as u64;
        Excess::Enlarged.check(pixels, ENLARGED.max(seen.saturating_mul(ENLARGED_BY)))
    }

    /// Checks the memory for pixels.
    pub(crate) fn check_memory(&self, bytes: u64) -> Result<(), ImageError> {
        Excess::Memory.check(bytes, self.memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excess(result: Result<(), ImageError>) -> Option<Excess> {
        result.err().and_then(|error| match error {
            ImageError::TooLarge { what, .. } => Some(what),
            _ => None,
        })
    }

    #[test]
    fn each_limit_is_kept_exactly() {
        let limits = Limits::default();
        assert_eq!(excess(limits.check_original(32 << 20, 10_000, 4_000)), None);
        assert_eq!(
            excess(limits.check_original((32 << 20) + 1, 10, 10)),
            Some(Excess::Bytes)
        );
        assert_eq!(excess(limits.check_original(1, 10_001, 4_000)), Some(Excess::Pixels));
        assert_eq!(excess(limits.check_original(1, 16_385, 1)), Some(Excess::Side));
        assert_eq!(excess(limits.check_original(1, u32::MAX, u32::MAX)), Some(Excess::Side));
        assert_eq!(excess(limits.check_frames(100, 632, 632)), None);
        assert_eq!(excess(limits.check_frames(101, 1, 1)), Some(Excess::Frames));
        assert_eq!(excess(limits.check_frames(100, 633, 633)), Some(Excess::Pixels));
        assert_eq!(excess(limits.check_output(4096, 4096)), None);
        assert_eq!(excess(limits.check_output(1, 4097)), Some(Excess::Output));
        let seen = (4096.0, 4096.0);
        assert_eq!(excess(limits.check_avif((4000, 2500), seen)), None);
        assert_eq!(excess(limits.check_avif((4000, 2501), seen)), Some(Excess::AvifPixels));
        assert_eq!(excess(limits.check_avif((1000, 1000), (1.0, 1.0))), None);
        assert_eq!(
            excess(limits.check_avif((1001, 1000), (1.0, 1.0))),
            Some(Excess::Enlarged)
        );
        assert_eq!(excess(limits.check_avif((2000, 2000), (1000.0, 1000.0))), None);
        assert_eq!(excess(limits.check_memory((256 << 20) + 1)), Some(Excess::Memory));
    }
}
