//! Files of a configuration, and places in them.

use std::ops::Range;
use std::path::{Path, PathBuf};

/// A byte range in one of the sources of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcePlace {
    /// Index into the sources of the report.
    pub source: usize,
    /// Byte range.
    pub span: Range<usize>,
}

/// A value with its place.
#[derive(Debug, Clone, Default)]
pub struct Placed<T> {
    /// The value.
    pub value: T,
    /// Its place; `None` from the command line.
    pub place: Option<SourcePlace>,
}

impl<T> Placed<T> {
    /// A value that stands in no file.
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

/// A file as read.
#[derive(Debug, Clone)]
pub struct SourceFile {
    /// The name shown in messages, as the user wrote it.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
}

impl SourceFile {
    /// The directory that relative paths of this file start from.
    pub fn directory(&self) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).to_owned()
    }
}
