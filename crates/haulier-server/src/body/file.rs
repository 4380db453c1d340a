//! Open files and parts of them.

use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use bytes::Bytes;

/// A file held open, with its content beside it if that is small.
#[derive(Debug)]
pub struct OpenFile {
    file: File,
    /// Bytes at the moment it was opened.
    length: u64,
    /// The whole content of a small file: it leaves in the same send as the head.
    content: Option<Bytes>,
}

impl OpenFile {
    /// Takes an open regular file of this length.
    #[must_use]
    pub fn new(file: File, length: u64) -> Self {
        Self { file, length, content: None }
    }

    /// With its content in memory; `content` is as long as the file.
    #[must_use]
    pub fn with_content(mut self, content: Bytes) -> Self {
        debug_assert_eq!(self.length, content.len() as u64);
        self.content = Some(content);
        self
    }

    /// Its length in bytes when it was opened.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Its content, if it is kept in memory.
    #[must_use]
    pub fn content(&self) -> Option<&Bytes> {
        self.content.as_ref()
    }

    /// The file itself.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A part of an open file.
#[derive(Debug, Clone)]
pub struct FileSlice {
    pub file: Arc<OpenFile>,
    /// Offsets in bytes; never beyond the file's length when it was opened.
    pub range: Range<u64>,
}

impl FileSlice {
    /// All of it.
    #[must_use]
    pub fn whole(file: Arc<OpenFile>) -> Self {
        let range = 0..file.length;
        Self { file, range }
    }

    /// Bytes left.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Whether nothing is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// These bytes, if the file's content is in memory.
    #[must_use]
    pub fn in_memory(&self) -> Option<&[u8]> {
        let content = self.file.content.as_ref()?;
        content.get(self.range.start as usize..self.range.end as usize)
    }
}
