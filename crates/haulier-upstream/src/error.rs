//! Errors of a request that got no connection.

use std::io;
use std::time::Duration;

/// A request got no connection. No byte of it has reached a server.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// All connections stayed busy for the whole wait, or the queue was full (then `waited` is 0).
    #[error("no free connection")]
    Exhausted {
        /// Time in the queue.
        waited: Duration,
    },
    /// The client disconnected while the request was in the queue.
    #[error("the client left the queue")]
    Abandoned {
        /// Time in the queue.
        waited: Duration,
    },
    /// No server accepted a connection.
    #[error("cannot connect to {server}")]
    Connect {
        /// The last server tried.
        server: String,
        /// The system error.
        source: io::Error,
    },
    /// The upstream is being stopped.
    #[error("the upstream is stopping")]
    Stopped,
}
