//! The thread that checks servers, one task a server.

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

/// The running thread; it ends when this is dropped.
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
