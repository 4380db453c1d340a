//! The files a configuration is read from, and places in them.

use std::ops::Range;
use std::path::{Path, PathBuf};

/// A stretch of bytes in one of the sources of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// Index into the sources of the report.
    pub(crate) source: usize,
    /// Byte range.
    pub(crate) span: Range<usize>,
}

/// A value and where it was written; `None` when it came from the command line.
#[derive(Debug, Clone)]
pub(crate) struct Placed<T> {
    /// The value.
    pub(crate) value: T,
    /// Where it stands.
    pub(crate) place: Option<Place>,
}

impl<T> Placed<T> {
    /// A value that no file says.
    pub(crate) fn unplaced(value: T) -> Self {
        Self { value, place: None }
    }

    /// The same place with another value.
    pub(crate) fn with<U>(&self, value: U) -> Placed<U> {
        Placed {
            value,
            place: self.place.clone(),
        }
    }
}

/// One file as read.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    /// The name shown in messages, as the user wrote it.
    pub(crate) path: PathBuf,
    /// Its text.
    pub(crate) text: String,
}

impl Source {
    /// The directory relative paths of this file start from.
    pub(crate) fn directory(&self) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).to_owned()
    }
}
