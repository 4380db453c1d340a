//! Errors of rendering and of queries.

use std::fmt;
use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::format::Format;

/// A rendering that failed.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The bytes are none of the formats we know (415).
    #[error("not an image of a known format")]
    Unknown,
    /// A format this build does not read or write (415).
    #[error("{format} cannot be {} here", if *.written { "written" } else { "read" })]
    Unsupported {
        /// The format.
        format: Format,
        /// True if it was to be written.
        written: bool,
    },
    /// An animation, for a format that would show its first picture only, where it is to stay one (415).
    #[error("the image is an animation, and {format} holds one picture")]
    Animated {
        /// The format.
        format: Format,
    },
    /// The bytes begin like an image and are none (422).
    #[error("the image does not decode: {0}")]
    Malformed(String),
    /// More than the limits allow (413 for bytes of the original, else 422).
    #[error("{what}: {found}, the limit is {limit}")]
    TooLarge {
        /// The quantity.
        what: Excess,
        /// Its value.
        found: u64,
        /// Its limit.
        limit: u64,
    },
    /// The region asked for lies outside of the image (400; zimg's 404).
    #[error("the region lies outside of the image of {width} × {height}")]
    Outside {
        /// Width of the image, pixels, upright.
        width: u32,
        /// Height of the image, pixels, upright.
        height: u32,
    },
    /// The worker process died of this image: by a crash, or by one of its own limits (422; do not try again soon).
    #[error("the image ended its worker: {0}")]
    Crashed(String),
    /// Two workers in a row were ended by a signal from outside, and not by the image (503 with Retry-After).
    #[error("the image's worker was ended from outside: {0}")]
    Killed(String),
    /// It took too long, and the worker was ended (422; do not try again soon).
    #[error("not done within {limit:?}")]
    Deadline {
        /// The deadline.
        limit: Duration,
    },
    /// Every worker is busy and enough wait already, or the wait was too long (503 with Retry-After).
    #[error("every image worker is busy")]
    Busy {
        /// When it may be worth trying again.
        retry_after: Duration,
    },
    /// The original cannot be read, or no worker can be started (500).
    #[error("the image worker cannot be used")]
    Worker(#[from] io::Error),
}

impl ImageError {
    /// True if the image itself is at fault, so that the same request fails again: worth a negative cache.
    #[must_use]
    pub fn is_of_image(&self) -> bool {
        !matches!(self, Self::Busy { .. } | Self::Killed(_) | Self::Worker(_))
    }
}

/// The message of a library about a broken image.
pub(crate) fn malformed(error: impl fmt::Display) -> ImageError {
    ImageError::Malformed(error.to_string())
}

/// A limited quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Excess {
    /// Bytes of the original.
    Bytes,
    /// Pixels of the original, in all frames.
    Pixels,
    /// Pixels of its longest side.
    Side,
    /// Frames of an animation.
    Frames,
    /// Pixels of the answer's longest side.
    Output,
    /// Bytes of memory.
    Memory,
    /// Pixels of an AVIF, for the time there is.
    AvifPixels,
    /// Pixels of an AVIF, for those of its original.
    Enlarged,
}

impl Excess {
    pub(crate) fn check(self, found: u64, limit: u64) -> Result<(), ImageError> {
        if found <= limit {
            return Ok(());
        }
        Err(ImageError::TooLarge {
            what: self,
            found,
            limit,
        })
    }
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bytes => "too many bytes",
            Self::Pixels => "too many pixels",
            Self::Side => "a side is too long",
            Self::Frames => "too many frames",
            Self::Output => "the answer would be too large",
            Self::Memory => "the image needs too much memory",
            Self::AvifPixels => "too many pixels for an AVIF in the time there is",
            Self::Enlarged => "too many pixels for an AVIF of so small an original",
        })
    }
}

/// A parameter that means nothing (400; zimg's 404).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// Its name is not known.
    #[error("unknown parameter `{0}`")]
    Unknown(String),
    /// It stands in the query twice.
    #[error("`{0}` is given twice")]
    Twice(String),
    /// Its value means nothing.
    #[error("`{name}={value}`: {expected}")]
    Value {
        /// The parameter.
        name: String,
        /// The value in the query.
        value: String,
        /// The allowed values.
        expected: &'static str,
    },
    /// Parameters that contradict each other, or want another.
    #[error("{0}")]
    Together(&'static str),
}
