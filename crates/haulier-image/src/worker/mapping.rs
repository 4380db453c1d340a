//! Maps the bytes of an original into a worker's memory, without a copy.
#![allow(unsafe_code)] // mmap: the file may change beneath the slice

use std::io;
use std::os::fd::AsFd;
use std::ptr;
use std::slice;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A mapped file. If another process truncates it, the worker ends by SIGBUS, and its request fails.
pub(super) struct Mapping {
    start: *mut core::ffi::c_void,
    length: usize,
}

impl Mapping {
    /// Maps a whole file.
    pub(super) fn of(file: impl AsFd) -> io::Result<Self> {
        let length = usize::try_from(rustix::fs::fstat(&file)?.st_size).map_err(io::Error::other)?;
        if length == 0 {
            return Ok(Self {
                start: ptr::null_mut(),
                length,
            });
        }
        // SAFETY: a new private mapping at an address that the system chooses; no other code knows it.
        let start = unsafe { mmap(ptr::null_mut(), length, ProtFlags::READ, MapFlags::PRIVATE, file, 0)? };
        Ok(Self { start, length })
    }

    /// Its bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        if self.length == 0 {
            return &[];
        }
        // SAFETY: the mapping has this length and lives as long as `self`. Another process may write to the file
        // meanwhile: decoders treat the bytes as untrusted, and run in a separate process.
        unsafe { slice::from_raw_parts(self.start.cast(), self.length) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.length > 0 {
            // SAFETY: the mapping is ours, and no slice of it is left.
            let _ = unsafe { munmap(self.start, self.length) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_file_is_mapped_whole() {
        let mut file = tempfile::tempfile().expect("a file");
        assert_eq!(Mapping::of(&file).expect("an empty one").bytes(), b"");
        file.write_all(&[7; 10_000]).expect("it is written");
        assert_eq!(Mapping::of(&file).expect("a mapping").bytes(), [7; 10_000]);
    }
}
