//! One server: its phase, its health, and its connections.

use std::time::{Duration, Instant};

use tokio::runtime::Id;

use crate::connection::Connection;
use crate::health::Health;

/// Status of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerStatus {
    /// As in the configuration: `unix:/path` or `host:port`.
    pub name: String,
    /// True if it gets requests, and before the first one.
    pub is_up: bool,
    /// Open connections.
    pub connections: usize,
    /// Requests in progress.
    pub busy: usize,
    /// Time that the last connection took to open, about one network round trip. `None` before the first.
    pub connect_time: Option<Duration>,
}

/// State of a server's process, as its owner reports it. Health is separate: a running server may be down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerPhase {
    /// It runs, so connections can be opened.
    Running,
    /// It is being started, or is about to be replaced. Requests wait unless there is an idle connection.
    Starting,
    /// It has ended because no requests came. The next request rings its alarm, which makes it `Starting`.
    Parked,
}

/// A connection that the upstream keeps.
#[derive(Debug)]
pub(crate) struct Pooled<C> {
    pub(crate) connection: C,
    /// Generation of the server's process that it leads to. One of an earlier generation is closed on its return.
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
    /// Number of process starts.
    pub(crate) generation: u64,
    pub(crate) health: Health,
    pub(crate) connect_time: Option<Duration>,
    /// Requests of other clients that it processes or queues, if it reports them.
    pub(crate) foreign_load: usize,
    /// Leases: connections in use, and those about to be opened.
    pub(crate) busy: usize,
    /// A stack: the connection used last is used next, so workers at the bottom stay unused.
    pub(crate) idle: Vec<Pooled<C>>,
    /// End of the last request, or start of the server.
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

    /// Connections that are open or being opened.
    pub(crate) fn open(&self) -> usize {
        self.busy + self.idle.len()
    }

    /// Takes the connection last used on this runtime, which needs no new registration, otherwise the one last used.
    pub(crate) fn take_idle(&mut self, runtime: Id) -> Option<Pooled<C>> {
        let here = |idle: &Pooled<C>| idle.connection.lives_on(runtime);
        match self.idle.iter().rposition(here) {
            Some(position) => Some(self.idle.remove(position)),
            None => self.idle.pop(),
        }
    }

    /// Notes the end of a lease, whose connection is now idle or closed.
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

    /// Notes that the process has ended, and returns its idle connections for the caller to close.
    pub(crate) fn note_ended(&mut self) -> Vec<Pooled<C>> {
        if self.phase == ServerPhase::Running {
            self.phase = ServerPhase::Starting;
        }
        self.generation += 1;
        std::mem::take(&mut self.idle)
    }

    /// Notes that the process of this generation will end: no further connections are opened to it.
    pub(crate) fn note_ending(&mut self, generation: u64) {
        if self.phase == ServerPhase::Running && self.generation == generation {
            self.phase = ServerPhase::Starting;
        }
    }

    /// Parks the server if it has been unused for `idle`. Returns its idle connections for the caller to close.
    ///
    /// # Errors
    /// It is in use, or was used too recently: the time after which to try again.
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
