//! Messages between the server and a worker: one JSON object per packet, without image bytes.

use serde::{Deserialize, Serialize};

use crate::error::{Excess, ImageError};
use crate::format::Format;
use crate::limits::Limits;
use crate::options::Transform;
use crate::original::Original;

/// Longest packet, bytes; a transform has a few hundred.
pub(super) const LONGEST: usize = 8 * 1024;

/// From the server to a worker. The original comes with it as a descriptor.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum WorkerOrder {
    /// Report the properties of the original.
    Probe {
        /// The limits on its cost.
        limits: Limits,
    },
    /// Render a variant.
    Render {
        /// The variant.
        transform: Box<Transform>,
        /// The limits on its cost.
        limits: Limits,
    },
    /// The requested memory is granted.
    Go,
}

/// From a worker to the server.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Report {
    /// The worker is ready.
    Ready {
        /// Parts of the sandbox that the kernel lacks: `landlock`, `seccomp`.
        without: Vec<String>,
    },
    /// The worker waits until this memory is granted.
    Need {
        /// Bytes.
        memory: u64,
    },
    /// The properties of an original.
    Probed(Original),
    /// The variant is in the result file.
    Rendered(Made),
    /// The order failed.
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
    /// Durations in microseconds: decoding, steps, encoding.
    pub(super) times: [u64; 3],
}

/// The errors that can occur in a worker.
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
