//! Files between haulier and a worker of its own: the opened file is sent in place of its content.
//!
//! A record says which part of the file takes its place in the body, and the descriptor comes with it (SCM_RIGHTS,
//! unix(7)). In a response the worker's PHP has opened the file, so its account and its `open_basedir` have decided. A
//! request body in a file goes to the worker in the same way.

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use haulier_http::{FileSlice, OpenFile, Piece};
use haulier_proto::fastcgi::FilePart;
use rustix::fs::{FileType, Mode, OFlags};

use crate::error::BadResponse;

/// Most descriptors of one response. A worker copies the content of further files (embed/request.c has the same
/// number).
const MOST_FILES: usize = 32;

/// Descriptors that have arrived and whose records have not.
#[derive(Debug, Default)]
pub(crate) struct HandedFiles {
    waiting: VecDeque<OwnedFd>,
    /// Descriptors of the response so far.
    received: usize,
}

impl HandedFiles {
    /// Keeps a descriptor for its record.
    pub(crate) fn push(&mut self, descriptor: Option<OwnedFd>) -> Result<(), BadResponse> {
        let Some(descriptor) = descriptor else { return Ok(()) };
        if self.received == MOST_FILES {
            return Err(BadResponse::TooManyFiles(MOST_FILES));
        }
        self.received += 1;
        self.waiting.push_back(descriptor);
        Ok(())
    }

    /// The part that a record describes, of the first descriptor that waits.
    pub(crate) fn open(&mut self, part: FilePart) -> Result<FileSlice, BadResponse> {
        let descriptor = self.waiting.pop_front().ok_or(BadResponse::NoDescriptor)?;
        let is_regular = rustix::fs::fstat(&descriptor)
            .is_ok_and(|status| FileType::from_raw_mode(status.st_mode) == FileType::RegularFile);
        // Reading anything else could block the server.
        let end = part.start.checked_add(part.length).filter(|_| is_regular);
        let end = end.ok_or(BadResponse::NotAFile)?;
        Ok(FileSlice {
            file: Arc::new(OpenFile::new(descriptor.into(), end)),
            range: part.start..end,
        })
    }
}

/// The same file for the worker, which may only read it. `None` without /proc: its content is sent then.
pub(crate) fn read_only(file: &File) -> Option<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// Body pieces in the order of their arrival.
#[derive(Debug, Default)]
pub(crate) struct ArrivedBody {
    /// In front of all files.
    pub(crate) bytes: Vec<u8>,
    /// Each with the bytes after it.
    files: VecDeque<(FileSlice, Vec<u8>)>,
}

impl ArrivedBody {
    /// The bytes that the next ones follow.
    pub(crate) fn end(&mut self) -> &mut Vec<u8> {
        match self.files.back_mut() {
            Some((_, bytes)) => bytes,
            None => &mut self.bytes,
        }
    }

    pub(crate) fn push_file(&mut self, slice: FileSlice) {
        self.files.push_back((slice, Vec::new()));
    }

    /// The next piece, not empty.
    pub(crate) fn take(&mut self) -> Option<Piece> {
        if !self.bytes.is_empty() {
            return Some(Piece::Bytes(std::mem::take(&mut self.bytes).into()));
        }
        let (slice, bytes) = self.files.pop_front()?;
        self.bytes = bytes;
        Some(Piece::File(slice))
    }
}
