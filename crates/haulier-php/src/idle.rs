//! Closes connections to external servers that nobody has used for a while: each holds one of their children.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::state::Shared;

/// Most and least time between two looks.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);

/// The thread that closes idle connections; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct IdleCloser {
    /// Nothing is ever sent: being dropped is the message.
    alive: Mutex<Option<Sender<()>>>,
}

impl IdleCloser {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has none to give.
    pub(crate) fn start(shared: Arc<Shared>, limit: Duration) -> io::Result<Self> {
        let (alive, ended) = mpsc::channel::<()>();
        thread::Builder::new().name("php-idle".into()).spawn(move || {
            let mut pause = Duration::ZERO;
            while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let next = shared.close_idle(limit).unwrap_or(LONGEST_PAUSE);
                pause = next.min(limit).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
            }
        })?;
        Ok(Self {
            alive: Mutex::new(Some(alive)),
        })
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        self.alive.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}
