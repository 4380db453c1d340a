//! The maintenance thread of a pool: it closes idle connections, replaces idle workers, and logs slow requests.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::process_source::{maintain, maintenance_interval};
use crate::shared_pool::SharedPool;
use crate::slow;

/// Longest pause between two rounds, and the shortest.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);

/// The thread; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Maintenance {
    /// Carries no values: the thread ends when the channel closes. `None` if the pool needs no maintenance.
    alive: Mutex<Option<Sender<()>>>,
}

impl Maintenance {
    /// Starts the thread, if the pool's settings require it.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(crate) fn start(shared: &Arc<SharedPool>) -> io::Result<Self> {
        let Some(interval) = interval(shared) else {
            return Ok(Self {
                alive: Mutex::new(None),
            });
        };
        let (alive, ended) = mpsc::channel::<()>();
        let shared = Arc::clone(shared);
        thread::Builder::new().name("php-maintenance".into()).spawn(move || {
            let mut pause = Duration::ZERO;
            while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let next = run_once(&shared).unwrap_or(interval);
                pause = next.min(interval).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
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

/// A quarter of the shortest time after which maintenance may be due; `None` if no maintenance is needed.
fn interval(shared: &SharedPool) -> Option<Duration> {
    let slow = shared.settings.slow.as_ref().map(|slow| slow.after);
    let of_kind = maintenance_interval(&shared.settings.kind);
    slow.into_iter().chain(of_kind).min().map(|shortest| shortest / 4)
}

/// Does the maintenance that is due. Returns the time to the next round, if that is known.
fn run_once(shared: &Arc<SharedPool>) -> Option<Duration> {
    if let Some(slow) = &shared.settings.slow {
        slow::log_new(shared, slow);
    }
    maintain(shared)
}
