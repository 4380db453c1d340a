//! Waits for a message of a worker on the runtime of the request.
#![allow(unsafe_code)] // AsyncFd::register_with_interest requires that the type always returns the same descriptor

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A socket, registered with the runtime of this thread until dropped.
pub(super) struct Watched<'a>(AsyncFd<Borrowed<'a>>);

struct Borrowed<'a>(&'a OwnedFd);

impl std::os::fd::AsRawFd for Borrowed<'_> {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.0.as_raw_fd()
    }
}

impl<'a> Watched<'a> {
    pub(super) fn new(socket: &'a OwnedFd) -> io::Result<Self> {
        // SAFETY: the borrow keeps the descriptor open for as long as it is registered.
        let watched = unsafe { AsyncFd::register_with_interest(Borrowed(socket), Interest::READABLE) };
        Ok(Self(watched.map_err(|error| error.into_parts().1)?))
    }

    /// Repeats `attempt` until it no longer returns `WouldBlock`.
    pub(super) async fn until<T>(&self, mut attempt: impl FnMut(&OwnedFd) -> io::Result<T>) -> io::Result<T> {
        loop {
            let mut ready = self.0.readable().await?;
            match attempt(self.0.get_ref().0) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                done => return done,
            }
        }
    }
}
