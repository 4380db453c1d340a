//! Errors of rendering and of queries.

use std::fmt;
use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::format::Format;

/// A rendering that failed.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The bytes have no known format (415).
    #[error("not an image of a known format")]
    Unknown,
    /// This build does not read or write the format (415).
    #[error("{format} cannot be {} here", if *.written { "written" } else { "read" })]
    Unsupported {
        /// The format.
        format: Format,
        /// True for writing.
        written: bool,
    },
    /// The animation must be kept, and the format holds only one picture (415).
    #[error("the image is an animation, and {format} holds one picture")]
    Animated {
        /// The format.
        format: Format,
    },
    /// The bytes begin like an image but do not decode (422).
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
    /// The requested region lies outside the image (400; 404 for zimg).
    #[error("the region lies outside of the image of {width} × {height}")]
    Outside {
        /// Width of the image, pixels, upright.
        width: u32,
        /// Height of the image, pixels, upright.
        height: u32,
    },
    /// The image ended its worker process, by a crash or a resource limit (422; not to be retried soon).
    #[error("the image ended its worker: {0}")]
    Crashed(String),
    /// Two workers in a row were ended by a signal from outside (503 with Retry-After).
    #[error("the image's worker was ended from outside: {0}")]
    Killed(String),
    /// Rendering took too long, and the worker was ended (422; not to be retried soon).
    #[error("not done within {limit:?}")]
    Deadline {
        /// The deadline.
        limit: Duration,
    },
    /// Every worker is busy, and the queue is full or the wait was too long (503 with Retry-After).
    #[error("every image worker is busy")]
    Busy {
        /// Time after which a retry may succeed.
        retry_after: Duration,
    },
    /// The original cannot be read, or no worker can be started (500).
    #[error("the image worker cannot be used")]
    Worker(#[from] io::Error),
}

impl ImageError {
    /// True if the image itself is the cause, so the same request will fail again and can be cached.
    #[must_use]
    pub fn is_of_image(&self) -> bool {
        !matches!(self, Self::Busy { .. } | Self::Killed(_) | Self::Worker(_))
    }
}

/// Wraps a library's error about a broken image.
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
    /// Pixels of an AVIF, by the deadline.
    AvifPixels,
    /// Pixels of an AVIF, by those of its original.
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

/// An invalid parameter (400; 404 for zimg).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// An unknown name.
    #[error("unknown parameter `{0}`")]
    Unknown(String),
    /// The parameter occurs twice.
    #[error("`{0}` is given twice")]
    Twice(String),
    /// An invalid value.
    #[error("`{name}={value}`: {expected}")]
    Value {
        /// The parameter.
        name: String,
        /// The value in the query.
        value: String,
        /// The allowed values.
        expected: &'static str,
    },
    /// Parameters that contradict or require each other.
    #[error("{0}")]
    Together(&'static str),
}
