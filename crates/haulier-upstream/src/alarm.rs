//! An alarm between threads: an eventfd that a thread can poll together with other descriptors.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::EventfdFlags;

/// An alarm, readable from `ring` to [`reset`](Self::reset).
#[derive(Debug)]
pub struct Alarm(OwnedFd);

impl Alarm {
    /// An alarm that does not ring.
    ///
    /// # Errors
    /// No file descriptor is left.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(rustix::event::eventfd(
            0,
            EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
        )?))
    }

    pub(crate) fn ring(&self) {
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes()); // full: it rings already
    }

    /// Ends the ringing.
    pub fn reset(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]); // it does not block
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
