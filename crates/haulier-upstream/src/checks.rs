//! The thread of the health checks, with one task per server.

use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::task::LocalSet;

use crate::connection::Connection;
use crate::upstream::Upstream;

/// Interval between attempts to connect to a server that is down, where no health checks are configured.
const RETRY: Duration = Duration::from_millis(250);

/// The running thread; it ends when this is dropped.
#[derive(Debug)]
pub struct HealthChecks {
    /// Carries no values: the thread ends when the channel closes.
    alive: Mutex<Option<oneshot::Sender<()>>>,
}

impl HealthChecks {
    /// Starts the thread and runs `check` for each of the servers, which never returns.
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

    /// No health checks: there is only one server.
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

/// Tries periodically to connect to a server while it is down, where no health checks are configured.
pub async fn probe_while_down<C: Connection>(upstream: Arc<Upstream<C>>, server: usize) {
    loop {
        tokio::time::sleep(RETRY).await;
        let begun = Instant::now();
        if upstream.is_down(server) && upstream.open(server).await.is_ok() {
            upstream.note_connect(server, Some(begun.elapsed()));
        }
    }
}
