//! Which servers are up: refused connections take one out at once, health checks after some failures in a row.

use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::task::LocalSet;

use crate::connection::Connection;
use crate::upstream::Upstream;

/// Without health checks: time between two attempts to connect to a server that is down.
const RETRY: Duration = Duration::from_millis(250);

/// Number of health checks that change the condition of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    /// Failures in a row that take a server out.
    pub fail: u32,
    /// Successes in a row that bring it back.
    pub recover: u32,
}

/// Whether a server gets requests while others are up.
#[derive(Debug, Default)]
pub(crate) struct Health {
    is_down: bool,
    /// Checks in a row that contradict `is_down`.
    streak: u32,
}

impl Health {
    pub(crate) fn is_down(&self) -> bool {
        self.is_down
    }

    /// The server has refused a connection.
    pub(crate) fn note_refused(&mut self) {
        (self.is_down, self.streak) = (true, 0);
    }

    /// The server has taken a connection, which is proof enough where no checks are made.
    pub(crate) fn note_connected(&mut self) {
        self.is_down = false;
    }

    pub(crate) fn note_check(&mut self, is_well: bool, thresholds: Thresholds) {
        self.streak = if is_well == self.is_down { self.streak + 1 } else { 0 };
        let needed = if is_well { thresholds.recover } else { thresholds.fail };
        if self.streak >= needed {
            (self.is_down, self.streak) = (!is_well, 0);
        }
    }
}

/// The thread of the health checks, one task a server; it ends when this is dropped.
#[derive(Debug)]
pub struct HealthChecks {
    /// Nothing is ever sent: the thread ends when the channel closes.
    alive: Mutex<Option<oneshot::Sender<()>>>,
}

impl HealthChecks {
    /// Starts the thread, in which `check` looks after one of `servers` for ever.
    ///
    /// # Errors
    /// The system has no thread or no descriptors left.
    pub fn start<F>(servers: usize, name: &str, check: impl Fn(usize) -> F + Send + 'static) -> io::Result<Self>
    where
        F: Future<Output = ()> + 'static,
    {
        let (alive, ended) = oneshot::channel::<()>();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name(name.into()).spawn(move || {
            let checks = LocalSet::new();
            for server in 0..servers {
                checks.spawn_local(check(server));
            }
            checks.block_on(&runtime, async {
                let _ = ended.await; // an error: the sender was dropped
            });
        })?;
        Ok(Self {
            alive: Mutex::new(Some(alive)),
        })
    }

    /// No checks: there is no choice between servers.
    pub fn none() -> Self {
        Self {
            alive: Mutex::new(None),
        }
    }

    /// Ends the thread.
    pub fn stop(&self) {
        self.alive.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// Looks after a server without health checks: connects now and then while it is down.
pub async fn probe_while_down<C: Connection>(upstream: Arc<Upstream<C>>, server: usize) {
    loop {
        tokio::time::sleep(RETRY).await;
        let begun = Instant::now();
        if upstream.is_down(server) && upstream.open(server).await.is_ok() {
            upstream.note_connect(server, Some(begun.elapsed()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_change_the_condition_after_so_many_in_a_row() {
        let thresholds = Thresholds { fail: 3, recover: 2 };
        let mut health = Health::default();
        let mut seen = Vec::new();
        for is_well in [false, false, true, false, false, false, true, false, true, true] {
            health.note_check(is_well, thresholds);
            seen.push(health.is_down());
        }
        let expected = [false, false, false, false, false, true, true, true, true, false];
        assert_eq!(seen, expected);
        health.note_refused();
        assert!(health.is_down(), "a refused connection counts at once");
    }
}
