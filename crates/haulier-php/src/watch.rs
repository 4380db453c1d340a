//! Puts a socket under the eyes of the current runtime's reactor.
#![allow(unsafe_code)] // AsyncFd cannot be made without: a type could hand out another descriptor each time

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Watches `socket`, which must be non-blocking.
///
/// # Errors
/// The reactor does not take it; the socket is closed then.
pub(crate) fn watch(socket: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd is one open descriptor as long as it lives, and the AsyncFd owns it.
    let watched = unsafe { AsyncFd::register_with_interest(socket, interest) };
    watched.map_err(|error| error.into_parts().1)
}
