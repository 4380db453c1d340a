//! Messages between the server and a worker: one JSON object a packet, never with bytes of images.

use serde::{Deserialize, Serialize};

use crate::error::{Excess, ImageError};
use crate::format::Format;
use crate::limits::Limits;
use crate::options::Transform;
use crate::original::Original;

/// Longest packet, bytes; a transform has a few hundred.
pub(super) const LONGEST: usize = 8 * 1024;

/// From us to a worker. An original comes with it as a descriptor.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum WorkerOrder {
    /// Say what this is.
    Probe {
        /// The limits on its cost.
        limits: Limits,
    },
    /// Make a variant.
    Render {
        /// Which one.
        transform: Box<Transform>,
        /// The limits on its cost.
        limits: Limits,
    },
    /// The memory that was asked for is there.
    Go,
}

/// From a worker to us.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Report {
    /// It is ready to work. Named are the walls that this system cannot build.
    Ready {
        /// `landlock`, `seccomp`.
        without: Vec<String>,
    },
    /// It asks for memory before it goes on.
    Need {
        /// Bytes.
        memory: u64,
    },
    /// The properties of an original.
    Probed(Original),
    /// A variant lies in the result file.
    Rendered(Made),
    /// There is none.
    Failed(WorkerFailure),
}

/// A variant in the result file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Made {
    pub(super) format: Format,
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) frames: u32,
    /// Bytes.
    pub(super) length: u64,
    /// Resident memory of the worker afterwards, bytes.
    pub(super) resident: u64,
    /// Time of each part, microseconds: reading, the steps, writing.
    pub(super) times: [u64; 3],
}

/// The errors that happen in a worker.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum WorkerFailure {
    Unknown,
    Unsupported { format: Format, written: bool },
    Animated { format: Format },
    Malformed(String),
    TooLarge { what: Excess, found: u64, limit: u64 },
    Outside { width: u32, height: u32 },
    Crashed(String),
}

impl From<ImageError> for WorkerFailure {
    fn from(error: ImageError) -> Self {
        match error {
            ImageError::Unknown => Self::Unknown,
            ImageError::Unsupported { format, written } => Self::Unsupported { format, written },
            ImageError::Animated { format } => Self::Animated { format },
            ImageError::Malformed(why) => Self::Malformed(why.chars().take(200).collect()),
            ImageError::TooLarge { what, found, limit } => Self::TooLarge { what, found, limit },
            ImageError::Outside { width, height } => Self::Outside { width, height },
            ImageError::Crashed(why) => Self::Crashed(why),
            other => Self::Crashed(other.to_string()),
        }
    }
}

impl From<WorkerFailure> for ImageError {
    fn from(failure: WorkerFailure) -> Self {
        match failure {
            WorkerFailure::Unknown => Self::Unknown,
            WorkerFailure::Unsupported { format, written } => Self::Unsupported { format, written },
            WorkerFailure::Animated { format } => Self::Animated { format },
            WorkerFailure::Malformed(why) => Self::Malformed(why),
            WorkerFailure::TooLarge { what, found, limit } => Self::TooLarge { what, found, limit },
            WorkerFailure::Outside { width, height } => Self::Outside { width, height },
            WorkerFailure::Crashed(why) => Self::Crashed(why),
        }
    }
}
