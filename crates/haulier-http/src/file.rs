//! Open files and parts of them.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use rustix::io::{Errno, ReadWriteFlags};

use crate::budget::Charge;

/// An open file, with its content in memory if it is small.
#[derive(Debug)]
pub struct OpenFile {
    file: File,
    /// Bytes when it was opened.
    length: u64,
    /// The whole content of a small file, sent together with the head.
    content: Option<Bytes>,
    /// A spool file's share of its site's budget, returned with it.
    charge: Option<Charge>,
}

impl OpenFile {
    /// Takes an open regular file of this length.
    #[must_use]
    pub fn new(file: File, length: u64) -> Self {
        Self {
            file,
            length,
            content: None,
            charge: None,
        }
    }

    /// Ties a share of a site's spool budget to the file.
    #[must_use]
    pub fn charged(mut self, charge: Charge) -> Self {
        self.charge = Some(charge);
        self
    }

    /// Cuts the length down to `most` bytes.
    pub fn truncate(&mut self, most: u64) {
        self.length = self.length.min(most);
    }

    /// Returns the file alone.
    #[must_use]
    pub fn into_file(self) -> File {
        self.file
    }

    /// Adds its content, which is as long as the file.
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

/// Result of [`FileSlice::read_now`].
#[derive(Debug)]
pub enum ReadNow {
    /// This number of bytes, at least one.
    Bytes(usize),
    /// The bytes are not in the page cache.
    Cold,
    Broken(io::Error),
}

/// A part of an open file.
#[derive(Debug, Clone)]
pub struct FileSlice {
    pub file: Arc<OpenFile>,
    /// Offsets in bytes; never beyond the length the file had when it was opened.
    pub range: Range<u64>,
}

impl FileSlice {
    /// The whole file.
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

    /// True if no bytes are left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Its bytes, if the file's content is in memory.
    #[must_use]
    pub fn in_memory(&self) -> Option<&[u8]> {
        let content = self.file.content.as_ref()?;
        content.get(self.range.start as usize..self.range.end as usize)
    }

    /// The same without a copy, for use beyond the life of the slice.
    #[must_use]
    pub fn in_memory_bytes(&self) -> Option<Bytes> {
        let content = self.file.content.as_ref()?;
        Some(content.slice(self.range.start as usize..self.range.end as usize))
    }

    /// Reads from the start of the slice into `place`, which is not empty, what the page cache holds. With `may_wait`,
    /// the rest too.
    pub fn read_now(&self, place: &mut [u8], may_wait: bool) -> ReadNow {
        let flags = if may_wait {
            ReadWriteFlags::empty()
        } else {
            ReadWriteFlags::NOWAIT
        };
        let mut places = [io::IoSliceMut::new(place)];
        let read = || rustix::io::preadv2(self.file.as_fd(), &mut places, self.range.start, flags);
        match rustix::io::retry_on_intr(read) {
            Ok(0) => ReadNow::Broken(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "file was truncated while it was sent",
            )),
            Ok(count) => ReadNow::Bytes(count),
            Err(Errno::AGAIN) => ReadNow::Cold,
            // File systems without the flag (tmpfs) never wait.
            Err(Errno::OPNOTSUPP) if !may_wait => self.read_now(place, true),
            Err(error) => ReadNow::Broken(error.into()),
        }
    }

    /// True if the page cache holds the end of the next `most` bytes, so that sending them does not wait for the disk.
    /// One byte is probed: the kernel reads ahead, so those before it are cached too.
    #[must_use]
    pub fn is_cached(&self, most: u64) -> bool {
        let last = (self.range.start + most).min(self.range.end).saturating_sub(1);
        let mut byte = [0];
        let read = rustix::io::preadv2(
            self.file.as_fd(),
            &mut [io::IoSliceMut::new(&mut byte)],
            last,
            ReadWriteFlags::NOWAIT,
        );
        // File systems without the flag (tmpfs) never wait.
        !matches!(read, Err(Errno::AGAIN))
    }

    /// Reads the next `most` bytes into the page cache. Blocks.
    pub fn read_ahead(&self, most: u64) {
        let end = (self.range.start + most).min(self.range.end);
        let mut buffer = vec![0; 64 * 1024];
        let mut at = self.range.start;
        while at < end {
            match self.file.file().read_at(&mut buffer, at) {
                Ok(0) | Err(_) => return,
                Ok(count) => at += count as u64,
            }
        }
    }
}
