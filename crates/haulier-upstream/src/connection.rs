//! The connection of a protocol, as an upstream sees it.

use std::future::Future;
use std::io;

use tokio::runtime::Id;

use crate::address::Address;

/// A connection to one server. It stays registered with the runtime that used it last, so that the next lease on the same
/// thread needs no new registration.
pub trait Connection: Sized {
    /// Connects to a server. The upstream limits the time.
    ///
    /// # Errors
    /// The connection is refused, or the system has no descriptor left.
    fn open(address: &Address) -> impl Future<Output = io::Result<Self>>;

    /// Whether the connection is registered with this runtime.
    fn lives_on(&self, runtime: Id) -> bool;

    /// Registers the connection with the current runtime.
    ///
    /// # Errors
    /// The runtime does not take it; the connection is closed then.
    fn move_here(self) -> io::Result<Self>;

    /// True if the server has closed an idle connection, or has sent something unasked. Costs a system call.
    fn is_stale(&self) -> bool;

    /// The same as far as the runtime has noticed, mostly without a system call.
    fn seems_stale(&self) -> bool;
}
