//! The trait by which an upstream uses a connection of any protocol.

use std::future::Future;
use std::io;

use tokio::runtime::Id;

use crate::address::Address;

/// A connection to one server. It stays registered with the runtime that last used it, so a further lease on the same
/// thread needs no new registration.
pub trait Connection: Sized {
    /// Connects to a server. The upstream applies the timeout.
    ///
    /// # Errors
    /// The server refuses the connection, or no file descriptor is left.
    fn open(address: &Address) -> impl Future<Output = io::Result<Self>>;

    /// True if the connection is registered with this runtime.
    fn lives_on(&self, runtime: Id) -> bool;

    /// Registers the connection with the current runtime.
    ///
    /// # Errors
    /// The runtime refuses it; the connection is closed then.
    fn move_here(self) -> io::Result<Self>;

    /// True if the server has closed the idle connection or sent unexpected data. Costs a system call.
    fn is_stale(&self) -> bool;

    /// As [`is_stale`](Self::is_stale), but by the runtime's readiness state, mostly without a system call.
    fn seems_stale(&self) -> bool;
}
