//! Idle connections, by origin.
//!
//! The last one given back is taken first: the server is least likely to have closed it.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use crate::connection::Connection;
use crate::url::Origin;

/// Idle connections kept in all.
const MOST_IDLE: usize = 32;
/// Servers close idle connections after 5 s (Apache) to 75 s (nginx); [`Connection::is_reusable`] finds those that did.
const MOST_AGE: Duration = Duration::from_secs(60);

/// Idle connections of one thread.
#[derive(Debug, Default)]
pub struct Pool {
    idle: RefCell<Vec<(Connection, Instant)>>,
}

impl Pool {
    /// A connection to `origin` that looks alive.
    pub fn take(&self, origin: &Origin) -> Option<Connection> {
        let mut idle = self.idle.borrow_mut();
        while let Some(at) = idle.iter().rposition(|(connection, _)| connection.origin() == origin) {
            let (mut connection, since) = idle.remove(at);
            if since.elapsed() < MOST_AGE && connection.is_reusable() {
                return Some(connection);
            }
        }
        None
    }

    /// Keeps a connection whose exchange is complete.
    pub fn give(&self, connection: Connection) {
        let mut idle = self.idle.borrow_mut();
        if idle.len() == MOST_IDLE {
            idle.remove(0);
        }
        idle.push((connection, Instant::now()));
    }
}
