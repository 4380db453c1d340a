//! Registers a socket with the current runtime's reactor.
#![allow(unsafe_code)] // AsyncFd::register_with_interest requires that the type always returns the same descriptor

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers `socket`, which must be non-blocking.
///
/// # Errors
/// The reactor refuses it; the socket is closed then.
pub(crate) fn watch(socket: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd is the same open descriptor as long as it lives, and the AsyncFd owns it.
    let watched = unsafe { AsyncFd::register_with_interest(socket, interest) };
    watched.map_err(|error| error.into_parts().1)
}
