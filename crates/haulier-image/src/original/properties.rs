//! The properties of an original.

use serde::{Deserialize, Serialize};

use crate::format::Format;
use crate::orientation::Orientation;

/// The properties of an original, as its header states them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Original {
    /// Its format, by its bytes.
    pub format: Format,
    /// Width in pixels as stored, before it is rotated upright.
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
    /// True for a progressive JPEG, whose scans are held in memory together.
    pub progressive: bool,
}

impl Original {
    /// Width and height of the upright image, pixels.
    #[must_use]
    pub fn upright(&self) -> (u32, u32) {
        if self.orientation.swaps() {
            (self.height, self.width)
        } else {
            (self.width, self.height)
        }
    }

    /// Memory of its pixels as they are decoded, bytes.
    pub(crate) fn decoded_size(&self) -> u64 {
        u64::from(self.width) * u64::from(self.height) * u64::from(self.channels)
    }

    /// An upright still of this format, for a reader to complete.
    pub(super) fn still(format: Format, width: u32, height: u32, channels: u8) -> Self {
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
