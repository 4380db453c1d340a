//! The right to use one connection, given back when dropped.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use crate::connection::Connection;
use crate::error::LeaseError;
use crate::server::Pooled;
use crate::upstream::Upstream;

/// A connection to one server, or the right to open one.
#[derive(Debug)]
pub struct Lease<C: Connection> {
    /// `None` once the lease was given back.
    upstream: Option<Arc<Upstream<C>>>,
    server: usize,
    connection: Option<Pooled<C>>,
    /// The connection is one that was idle before.
    is_reused: bool,
    /// A request is on the connection: it can be kept only after the end of the response.
    in_use: bool,
    taken: Instant,
    /// Time that the request waited for it.
    pub(crate) queued: Duration,
}

impl<C: Connection> Lease<C> {
    pub(crate) fn new(upstream: Arc<Upstream<C>>, server: usize, connection: Option<Pooled<C>>) -> Self {
        Self {
            upstream: Some(upstream),
            server,
            connection,
            is_reused: false,
            in_use: false,
            taken: Instant::now(),
            queued: Duration::ZERO,
        }
    }

    /// Takes the connection out without returning the lease to the upstream.
    pub(crate) fn defuse(mut self) -> Option<Pooled<C>> {
        self.upstream = None;
        self.connection.take()
    }

    fn upstream(&self) -> &Arc<Upstream<C>> {
        self.upstream.as_ref().expect("a lease is given back only as it ends")
    }

    /// Number of the server.
    pub fn server(&self) -> usize {
        self.server
    }

    /// Start of the lease, or the moment its connection was opened again.
    pub fn taken(&self) -> Instant {
        self.taken
    }

    /// Time that the request waited for the lease.
    pub fn queued(&self) -> Duration {
        self.queued
    }

    /// True if the connection has carried requests before.
    pub(crate) fn is_reused(&self) -> bool {
        self.is_reused
    }

    /// Makes the connection usable on this thread, or opens one.
    ///
    /// # Errors
    /// `Connect` if a new one is needed and cannot be opened.
    pub(crate) async fn connect(&mut self) -> Result<(), LeaseError> {
        if let Some(idle) = self.connection.take() {
            let moves = !idle.connection.lives_on(Handle::current().id());
            let is_fresh = |here: &C| !if moves { here.is_stale() } else { here.seems_stale() };
            let here = idle.connection.move_here().ok().filter(is_fresh);
            self.connection = here.map(|connection| Pooled { connection, ..idle });
        }
        self.is_reused = self.connection.is_some();
        if self.is_reused {
            return Ok(());
        }
        self.reconnect().await
    }

    /// Replaces the connection by a new one.
    ///
    /// # Errors
    /// `Connect`.
    pub(crate) async fn reconnect(&mut self) -> Result<(), LeaseError> {
        self.connection = None;
        (self.is_reused, self.in_use) = (false, false);
        self.taken = Instant::now();
        let upstream = Arc::clone(self.upstream());
        let generation = upstream.generation(self.server);
        let begun = Instant::now();
        let opened = upstream.open(self.server).await;
        upstream.note_connect(self.server, opened.is_ok().then(|| begun.elapsed()));
        let connection = opened.map_err(|source| LeaseError::Connect {
            server: upstream.address(self.server).to_string(),
            source,
        })?;
        self.connection = Some(Pooled::new(connection, generation));
        Ok(())
    }

    /// The connection.
    ///
    /// # Panics
    /// [`map_connection`](Self::map_connection) has failed before.
    pub fn connection(&self) -> &C {
        self.get().expect("a lease that was handed out has a connection")
    }

    /// The connection; `None` after [`map_connection`](Self::map_connection) has failed.
    pub fn get(&self) -> Option<&C> {
        self.connection.as_ref().map(|pooled| &pooled.connection)
    }

    /// The connection, mutable; `None` as for [`get`](Self::get).
    pub fn get_mut(&mut self) -> Option<&mut C> {
        self.connection.as_mut().map(|pooled| &mut pooled.connection)
    }

    /// Marks the connection as in the middle of a request.
    pub fn begin_use(&mut self) -> &C {
        self.in_use = true;
        self.connection()
    }

    /// Replaces the connection by the result of `change`.
    ///
    /// # Errors
    /// That of `change`; the connection is closed then.
    pub fn map_connection(&mut self, change: impl FnOnce(C) -> io::Result<C>) -> io::Result<()> {
        if let Some(pooled) = self.connection.take() {
            let connection = change(pooled.connection)?;
            self.connection = Some(Pooled { connection, ..pooled });
        }
        Ok(())
    }

    /// Reports that the process at the other end will end, so the upstream opens no further connections to it.
    pub fn note_server_ending(&self) {
        if let Some(pooled) = &self.connection {
            self.upstream().server_ending(self.server, pooled.generation);
        }
    }

    /// Gives the connection back after the end of the response; a connection that is not `reusable` is closed.
    pub fn finish(mut self, reusable: bool) {
        self.in_use = !reusable;
    }
}

impl<C: Connection> Drop for Lease<C> {
    fn drop(&mut self) {
        if let Some(upstream) = self.upstream.take() {
            // A connection in the middle of a request cannot be reused.
            let connection = self.connection.take().filter(|_| !self.in_use);
            upstream.release(self.server, connection);
        }
    }
}
