//! The files a configuration is read from, and places in them.

use std::ops::Range;
use std::path::{Path, PathBuf};

/// A stretch of bytes in one of the sources of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Index into the sources of the report.
    pub source: usize,
    /// Byte range.
    pub span: Range<usize>,
}

/// A value and where it was written; `None` when it came from the command line.
#[derive(Debug, Clone, Default)]
pub struct Placed<T> {
    /// The value.
    pub value: T,
    /// Where it stands.
    pub place: Option<Place>,
}

impl<T> Placed<T> {
    /// A value that no file says.
    pub fn unplaced(value: T) -> Self {
        Self { value, place: None }
    }

    /// The same place with another value.
    pub fn with<U>(&self, value: U) -> Placed<U> {
        Placed {
            value,
            place: self.place.clone(),
        }
    }
}

/// One file as read.
#[derive(Debug, Clone)]
pub struct Source {
    /// The name shown in messages, as the user wrote it.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
}

impl Source {
    /// The directory relative paths of this file start from.
    pub fn directory(&self) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).to_owned()
    }
}
