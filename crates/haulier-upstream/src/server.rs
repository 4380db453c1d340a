//! One server: its phase, its health, and its connections.

use std::time::{Duration, Instant};

use tokio::runtime::Id;

use crate::connection::Connection;
use crate::health::Health;

/// The condition of one server at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerStatus {
    /// As in the configuration: `unix:/path` or `host:port`.
    pub name: String,
    /// It takes requests; true before the first one.
    pub is_up: bool,
    /// Open connections.
    pub connections: usize,
    /// Requests it is working on.
    pub busy: usize,
    /// Time that the last connection took to open: over a network about one round trip. `None` before the first.
    pub connect_time: Option<Duration>,
}

/// The life of a server's process, as far as its owner reports it. Health is a second matter: a running server may be down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerPhase {
    /// It runs: connections can be opened.
    Running,
    /// It is being started, or is about to be replaced: requests wait, those with an idle connection excepted.
    Starting,
    /// It has ended for want of requests. The next one rings its alarm and makes it `Starting`.
    Parked,
}

/// A connection in the hands of the upstream.
#[derive(Debug)]
pub(crate) struct Pooled<C> {
    pub(crate) connection: C,
    /// The start of the server that it belongs to. One of an earlier start is closed when it comes back.
    pub(crate) generation: u64,
    pub(crate) idle_since: Instant,
}

impl<C> Pooled<C> {
    pub(crate) fn new(connection: C, generation: u64) -> Self {
        Self {
            connection,
            generation,
            idle_since: Instant::now(),
        }
    }
}

/// A server. Its open connections are `busy` and `idle` together.
#[derive(Debug)]
pub(crate) struct Server<C> {
    pub(crate) phase: ServerPhase,
    /// Number of its starts.
    pub(crate) generation: u64,
    pub(crate) health: Health,
    pub(crate) connect_time: Option<Duration>,
    /// Requests that it works on for other clients than us, or that wait there, as far as it tells.
    pub(crate) foreign_load: usize,
    /// Leases: connections in use, and those about to be opened.
    pub(crate) busy: usize,
    /// A stack: the connection used last is used next, so that the workers at the bottom stay cold.
    pub(crate) idle: Vec<Pooled<C>>,
    /// When the last request ended, or the server was started.
    pub(crate) unused_since: Option<Instant>,
}

impl<C: Connection> Server<C> {
    pub(crate) fn new(phase: ServerPhase) -> Self {
        Self {
            phase,
            generation: 0,
            health: Health::default(),
            connect_time: None,
            foreign_load: 0,
            busy: 0,
            idle: Vec::new(),
            unused_since: None,
        }
    }

    /// Connections, open or about to be.
    pub(crate) fn open(&self) -> usize {
        self.busy + self.idle.len()
    }

    /// The connection last used on this runtime, which needs no new registration; otherwise the one last used at all.
    pub(crate) fn take_idle(&mut self, runtime: Id) -> Option<Pooled<C>> {
        let here = |idle: &Pooled<C>| idle.connection.lives_on(runtime);
        match self.idle.iter().rposition(here) {
            Some(position) => Some(self.idle.remove(position)),
            None => self.idle.pop(),
        }
    }

    /// A lease has ended: its connection is idle now, or closed.
    pub(crate) fn end_lease(&mut self, connection: Option<Pooled<C>>) {
        let now = Instant::now();
        self.busy -= 1;
        self.unused_since = Some(now);
        if let Some(mut connection) = connection {
            connection.idle_since = now;
            self.idle.push(connection);
        }
    }

    pub(crate) fn note_started(&mut self) {
        (self.phase, self.unused_since) = (ServerPhase::Running, Some(Instant::now()));
    }

    /// The process has ended. Gives its idle connections, for the caller to close.
    pub(crate) fn note_ended(&mut self) -> Vec<Pooled<C>> {
        if self.phase == ServerPhase::Running {
            self.phase = ServerPhase::Starting;
        }
        self.generation += 1;
        std::mem::take(&mut self.idle)
    }

    /// The process of this start will end: it gets no further connections.
    pub(crate) fn note_ending(&mut self, generation: u64) {
        if self.phase == ServerPhase::Running && self.generation == generation {
            self.phase = ServerPhase::Starting;
        }
    }

    /// Parks the server if no request has needed it for `idle`. Gives its idle connections, for the caller to close.
    ///
    /// # Errors
    /// It is in use, or was too recently: the time after which to try again.
    pub(crate) fn park(&mut self, idle: Duration) -> Result<Vec<Pooled<C>>, Duration> {
        let unused = self.unused_since.map_or(Duration::ZERO, |since| since.elapsed());
        if self.busy > 0 {
            return Err(idle);
        }
        if unused < idle {
            return Err(idle - unused);
        }
        self.phase = ServerPhase::Parked;
        Ok(std::mem::take(&mut self.idle))
    }
}
