//! What a pool does from time to time, in a thread of its own: closing what lies idle, replacing workers nobody asks
//! for, and noting what has kept a worker for too long.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::settings::{PoolKind, Supervised};
use crate::slow;
use crate::state::Shared;

/// Most and least time between two looks.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
/// Time between two looks where requests may wait for leave to put a worker to work.
const SPAWN_PAUSE: Duration = Duration::from_millis(100);

/// The thread; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Keeper {
    /// Nothing is ever sent: being dropped is the message. `None` if there is nothing to do.
    alive: Mutex<Option<Sender<()>>>,
}

impl Keeper {
    /// Starts the thread, if the pool's settings leave it something to do.
    ///
    /// # Errors
    /// The system has none to give.
    pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<Self> {
        let Some(look) = time_between_looks(shared) else {
            return Ok(Self {
                alive: Mutex::new(None),
            });
        };
        let (alive, ended) = mpsc::channel::<()>();
        let shared = Arc::clone(shared);
        thread::Builder::new().name("php-keeper".into()).spawn(move || {
            let mut pause = Duration::ZERO;
            while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let next = look_round(&shared).unwrap_or(look);
                pause = next.min(look).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
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

/// The shortest time after which something may be due, a quarter of it; `None` if nothing ever is.
fn time_between_looks(shared: &Shared) -> Option<Duration> {
    let slow = shared.settings.slow.as_ref().map(|slow| slow.after);
    let of_kind = match &shared.settings.kind {
        PoolKind::External(external) => Some(external.idle_timeout),
        PoolKind::Supervised(own) => {
            let age = Some(own.recycle.age).filter(|age| !age.is_zero());
            let idle = own.shrink.map(|shrink| shrink.idle);
            let spawns = own.spawn_rate.map(|_| 4 * SPAWN_PAUSE);
            age.into_iter().chain(idle).chain(spawns).min()
        }
    };
    slow.into_iter().chain(of_kind).min().map(|shortest| shortest / 4)
}

/// Does what is due; gives the time to the next look if that is known.
fn look_round(shared: &Arc<Shared>) -> Option<Duration> {
    if let Some(slow) = &shared.settings.slow {
        slow::note(shared, slow);
    }
    match &shared.settings.kind {
        PoolKind::External(external) => shared.close_idle(external.idle_timeout),
        PoolKind::Supervised(own) => {
            end_unneeded(shared, own);
            if own.spawn_rate.is_some() {
                shared.grant_due();
            }
            None
        }
    }
}

/// Ends idle workers that nobody needs as they are. The master, or the one that waits in reserve, replaces them.
fn end_unneeded(shared: &Shared, own: &Supervised) {
    for (connection, why) in shared.take_unneeded(own) {
        if connection.peer.end(Signal::TERM, shared.spawner.as_deref()) {
            shared.count_spent(why);
        }
    }
}
