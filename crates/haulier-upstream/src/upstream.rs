//! The state that all threads share, behind one lock: servers, queue, rate of new connections, usage.
//!
//! A connection that becomes free goes to the first request in the queue, so none is idle while a request waits.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::sync::{Notify, oneshot};

use crate::address::Address;
use crate::affinity::Affinity;
use crate::alarm::Alarm;
use crate::connection::Connection;
use crate::lease::Lease;
use crate::load::{UpstreamLoad, Usage};
use crate::open_rate::OpenRate;
use crate::queue::{Queue, Turn};
use crate::server::{ServerPhase, Pooled, ServerStatus};
use crate::servers::Servers;
use crate::settings::UpstreamSettings;

/// Servers that answer for us, with the connections to them and the queue in front. Shared by all threads.
#[derive(Debug)]
pub struct Upstream<C: Connection> {
    settings: UpstreamSettings,
    affinity: Affinity,
    /// Wake the owner of a parked server, one a server; empty if servers are never parked.
    alarms: Vec<Alarm>,
    /// Told when the last lease ends while the upstream stops.
    drained: Notify,
    state: Mutex<UpstreamState<C>>,
}

#[derive(Debug)]
struct UpstreamState<C: Connection> {
    servers: Servers<C>,
    queue: Queue<Lease<C>>,
    open_rate: OpenRate,
    usage: Usage,
    is_stopping: bool,
}

/// The immediate answer to a request for a connection.
pub(crate) enum Grant<C: Connection> {
    Lease(Lease<C>),
    /// All connections are busy: the ticket of the place in the queue, and where the lease will come.
    Queued(u64, oneshot::Receiver<Lease<C>>),
    /// All connections are busy and the queue is full.
    Full,
    Stopped,
}

impl<C: Connection> Upstream<C> {
    /// An upstream without open connections.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new(settings: UpstreamSettings) -> io::Result<Arc<Self>> {
        let number = settings.addresses.len();
        let phase = if settings.is_running {
            ServerPhase::Running
        } else {
            ServerPhase::Starting
        };
        let state = UpstreamState {
            servers: Servers::new(number, phase, settings.connections),
            queue: Queue::new(),
            open_rate: OpenRate::new(settings.open_rate),
            usage: Usage::new(settings.connections * number),
            is_stopping: false,
        };
        let alarms = if settings.may_park { number } else { 0 };
        Ok(Arc::new(Self {
            affinity: Affinity::of(&settings.addresses),
            alarms: (0..alarms).map(|_| Alarm::new()).collect::<Result<_, _>>()?,
            drained: Notify::new(),
            state: Mutex::new(state),
            settings,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, UpstreamState<C>> {
        // Nothing under the lock leaves the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of servers.
    pub fn servers(&self) -> usize {
        self.settings.addresses.len()
    }

    /// Address of a server.
    pub fn address(&self, server: usize) -> &Address {
        &self.settings.addresses[server]
    }

    pub(crate) fn queue_timeout(&self) -> Duration {
        self.settings.queue_timeout
    }

    /// Opens a connection outside of the pooled ones, as for a health check.
    ///
    /// # Errors
    /// That of the system; `TimedOut` when the server takes too long.
    pub async fn open(&self, server: usize) -> io::Result<C> {
        let opening = C::open(self.address(server));
        match tokio::time::timeout(self.settings.connect_timeout, opening).await {
            Ok(opened) => opened,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// Requests come and go.
impl<C: Connection> Upstream<C> {
    /// Requests a connection to any server but those `excluded`, for this thread; to the one that `affinity` belongs to.
    pub(crate) fn request(self: &Arc<Self>, excluded: &[usize], affinity: Option<&[u8]>, turn: Turn) -> Grant<C> {
        let mut state = self.lock();
        if state.is_stopping {
            return Grant::Stopped;
        }
        let runtime = Handle::current().id();
        let may_have = |server| state.servers.is_usable(server) && !excluded.contains(&server);
        let wanted = affinity.and_then(|key| self.affinity.find(key, may_have));
        if let Some((server, connection)) = state.take(excluded, wanted, runtime) {
            state.usage.counts.waits.record(Duration::ZERO);
            drop(state);
            return Grant::Lease(Lease::new(Arc::clone(self), server, connection));
        }
        if state.queue.len() >= self.settings.queue_length && !state.servers.has_parked() {
            state.usage.counts.exhausted += 1;
            state.usage.counts.waits.record(Duration::ZERO);
            return Grant::Full;
        }
        let (ticket, granted) = state.queue.push(runtime, wanted, turn);
        let queued = state.queue.len();
        state.usage.note_queued(queued);
        if let Some(server) = state.servers.unpark() {
            self.alarms[server].ring();
        }
        Grant::Queued(ticket, granted)
    }

    pub(crate) fn leave_queue(&self, ticket: u64) {
        self.lock().queue.remove(ticket);
    }

    pub(crate) fn defer(&self, ticket: u64) {
        self.lock().queue.defer(ticket);
    }

    pub(crate) fn has_usual_waiters(&self) -> bool {
        self.lock().queue.has_usual()
    }

    pub(crate) fn note_wait(&self, waited: Duration) {
        self.lock().usage.counts.waits.record(waited);
    }

    pub(crate) fn note_exhausted(&self) {
        self.lock().usage.counts.exhausted += 1;
    }

    /// Takes back a lease, with its connection if that can carry another request.
    pub(crate) fn release(self: &Arc<Self>, server: usize, mut connection: Option<Pooled<C>>) {
        loop {
            let mut state = self.lock();
            let generation = state.servers[server].generation;
            let is_current = connection.as_ref().is_none_or(|found| found.generation == generation);
            if state.is_stopping || !is_current {
                // Closed outside the lock: closing a socket is a system call.
                drop(state);
                connection = None;
                state = self.lock();
            }
            let Some(grant) = state.next_in_queue(server, connection.as_ref()) else {
                return self.end_lease(state, server, connection);
            };
            drop(state);
            let lease = Lease::new(Arc::clone(self), server, connection);
            match grant.send(lease) {
                Ok(()) => return,
                Err(unwanted) => connection = unwanted.defuse(),
            }
        }
    }

    fn end_lease(&self, mut state: MutexGuard<'_, UpstreamState<C>>, server: usize, connection: Option<Pooled<C>>) {
        state.settle();
        state.servers[server].end_lease(connection);
        if state.is_stopping && state.servers.busy() == 0 {
            self.drained.notify_waiters();
        }
    }

    /// Gives the connections that a server may have beyond its open ones to the queue.
    fn grant_new(self: &Arc<Self>, server: usize) {
        let granted = self.lock().reserve_new(server);
        for _ in 0..granted {
            self.release(server, None);
        }
    }

    /// Gives the idle connections of this server to the queue, then new ones.
    fn grant_all(self: &Arc<Self>, server: usize) {
        let offered = self.lock().reserve_idle(server);
        for connection in offered {
            self.release(server, Some(connection));
        }
        self.grant_new(server);
    }
}

/// Servers start, end, and are parked; their owner reports it.
impl<C: Connection> Upstream<C> {
    pub(crate) fn generation(&self, server: usize) -> u64 {
        self.lock().servers[server].generation
    }

    /// The server runs: connections can be opened.
    pub fn server_started(self: &Arc<Self>, server: usize) {
        self.lock().servers[server].note_started();
        self.grant_new(server);
    }

    /// The server has ended: requests wait until it is back. Connections to what outlives it carry no further request.
    pub fn server_ended(&self, server: usize) {
        let orphaned = self.lock().servers[server].note_ended();
        drop(orphaned);
    }

    /// The server's process of this start will end. The next start may have been reported already.
    pub(crate) fn server_ending(&self, server: usize, generation: u64) {
        self.lock().servers[server].note_ending(generation);
    }

    /// Parks a server that no request has needed for `idle`: the next request rings its [`alarm`](Self::alarm), and waits
    /// until the server is started again.
    ///
    /// # Errors
    /// It is in use, or was too recently: the time after which to try again.
    pub fn park(&self, server: usize, idle: Duration) -> Result<(), Duration> {
        let mut state = self.lock();
        if !state.queue.is_empty() || state.is_stopping {
            return Err(idle);
        }
        let closed = state.servers[server].park(idle)?;
        drop(state);
        drop(closed);
        Ok(())
    }

    /// Rings when a request needs a parked server.
    pub fn alarm(&self, server: usize) -> Option<&Alarm> {
        self.alarms.get(server)
    }

    /// Whether requests wait or have a connection.
    pub fn is_needed(&self) -> bool {
        let state = self.lock();
        !state.queue.is_empty() || state.servers.busy() > 0
    }
}

/// Health.
impl<C: Connection> Upstream<C> {
    /// Notes the time in which a server took a connection; `None` if it refused. A refusal takes the server out at once;
    /// without health checks the next connection brings it back.
    pub fn note_connect(self: &Arc<Self>, server: usize, took: Option<Duration>) {
        let mut state = self.lock();
        let found = &mut state.servers[server];
        let was_down = found.health.is_down();
        if took.is_none() {
            found.health.note_refused();
        } else if self.settings.thresholds.is_none() {
            found.health.note_connected();
        }
        found.connect_time = took.or(found.connect_time);
        let is_down = found.health.is_down();
        drop(state);
        self.report_change(server, was_down, is_down);
    }

    /// Notes the time in which a server took the connection of a health check.
    pub fn note_connect_time(&self, server: usize, took: Duration) {
        self.lock().servers[server].connect_time = Some(took);
    }

    /// Notes the outcome of a health check. Nothing changes without [`thresholds`](UpstreamSettings::thresholds).
    pub fn note_check(self: &Arc<Self>, server: usize, is_well: bool) {
        let Some(thresholds) = self.settings.thresholds else {
            return;
        };
        let mut state = self.lock();
        let health = &mut state.servers[server].health;
        let was_down = health.is_down();
        health.note_check(is_well, thresholds);
        let is_down = health.is_down();
        drop(state);
        self.report_change(server, was_down, is_down);
    }

    /// Notes the number of requests that a server works on or has waiting, ours included: the choice between servers
    /// counts those of others. `None` if the server does not tell.
    pub fn note_server_load(&self, server: usize, requests: Option<usize>) {
        let found = &mut self.lock().servers[server];
        found.foreign_load = requests.map_or(0, |requests| requests.saturating_sub(found.open()));
    }

    pub(crate) fn is_down(&self, server: usize) -> bool {
        self.lock().servers[server].health.is_down()
    }

    fn report_change(self: &Arc<Self>, server: usize, was_down: bool, is_down: bool) {
        let (pool, kind) = (self.settings.name.as_str(), self.settings.server_kind);
        let address = self.address(server);
        match (was_down, is_down) {
            (false, true) => {
                tracing::warn!(pool, server = %address, "{kind} does not answer and is left out");
                // Requests that wait for this server may go to another one now.
                let others = (0..self.servers()).filter(|&other| other != server && !self.is_down(other));
                others.for_each(|other| self.grant_all(other));
            }
            (true, false) => {
                tracing::info!(pool, server = %address, "{kind} answers again");
                self.grant_all(server);
            }
            _ => {}
        }
    }
}

/// Maintenance.
impl<C: Connection> Upstream<C> {
    /// Grants the connections that had to wait for the next second of the open rate.
    pub fn grant_due(self: &Arc<Self>) {
        for server in 0..self.servers() {
            if self.lock().servers.can_open(server) {
                self.grant_new(server);
            }
        }
    }

    /// Closes connections that have been idle for `limit`. Gives the time until the next one will have been.
    pub fn close_idle(&self, limit: Duration) -> Option<Duration> {
        let mut state = self.lock();
        let closed = state.servers.take_idle(|idle| idle.idle_since.elapsed() >= limit);
        let idle = state.servers.iter().flat_map(|server| &server.idle);
        let oldest = idle.map(|idle| idle.idle_since).min();
        drop(state);
        drop(closed);
        oldest.map(|since| limit.saturating_sub(since.elapsed()))
    }

    /// Takes out the idle connections that `select` names.
    pub fn take_idle(&self, select: impl Fn(&C) -> bool) -> Vec<C> {
        let taken = self.lock().servers.take_idle(|idle| select(&idle.connection));
        taken.into_iter().map(|idle| idle.connection).collect()
    }

    /// Takes out connections that have been idle for `idle` beyond `least` open ones, the longest idle first.
    pub fn take_surplus(&self, least: usize, idle: Duration) -> Vec<C> {
        let mut state = self.lock();
        let mut surplus = state.servers.open().saturating_sub(least);
        // Each stack begins with the connections that are idle longest.
        let taken = state.servers.take_idle(|connection| {
            let goes = surplus > 0 && connection.idle_since.elapsed() >= idle;
            surplus -= usize::from(goes);
            goes
        });
        drop(state);
        taken.into_iter().map(|idle| idle.connection).collect()
    }
}

/// The end.
impl<C: Connection> Upstream<C> {
    /// Grants no further leases: waiting requests get `Stopped`, idle connections are closed.
    pub fn stop(&self) {
        let mut state = self.lock();
        state.is_stopping = true;
        let waiting = state.queue.take_all();
        let idle = state.servers.take_idle(|_| true);
        drop(state);
        drop((waiting, idle));
    }

    /// Whether [`stop`](Self::stop) was called.
    pub fn is_stopping(&self) -> bool {
        self.lock().is_stopping
    }

    /// Waits for the end of the last lease after [`stop`](Self::stop).
    pub async fn drained(&self) {
        loop {
            let told = self.drained.notified();
            if self.lock().servers.busy() == 0 {
                return;
            }
            told.await;
        }
    }
}

/// Status.
impl<C: Connection> Upstream<C> {
    /// How busy it is now, and has been.
    pub fn load(&self) -> UpstreamLoad {
        let mut state = self.lock();
        state.settle();
        UpstreamLoad {
            busy: state.servers.busy(),
            idle: state.servers.iter().map(|server| server.idle.len()).sum(),
            queued: state.queue.len(),
            longest_wait: state.queue.longest_wait(),
            is_live: state.servers.is_live(),
            ..state.usage.counts
        }
    }

    /// The condition of every server.
    pub fn status(&self) -> Vec<ServerStatus> {
        let state = self.lock();
        let servers = self.settings.addresses.iter().zip(state.servers.iter());
        servers
            .map(|(address, server)| ServerStatus {
                name: address.to_string(),
                is_up: !server.health.is_down(),
                connections: server.open(),
                busy: server.busy,
                connect_time: server.connect_time,
            })
            .collect()
    }

    /// Number of leases, and a fact of each idle connection, the one used last first.
    pub fn connections<T>(&self, fact: impl Fn(&C) -> T) -> (usize, Vec<T>) {
        let state = self.lock();
        let idle = state.servers.iter().flat_map(|server| server.idle.iter().rev());
        (state.servers.busy(), idle.map(|idle| fact(&idle.connection)).collect())
    }
}

impl<C: Connection> UpstreamState<C> {
    /// Brings the busy time up to date; to be called before the number of leases changes.
    fn settle(&mut self) {
        self.usage.settle(self.servers.busy());
    }

    /// Takes a connection of the chosen server, or the right to open one.
    fn take(&mut self, excluded: &[usize], wanted: Option<usize>, runtime: Id) -> Option<(usize, Option<Pooled<C>>)> {
        self.settle();
        let may_open = self.open_rate.left() > 0;
        let number = self.servers.choose(excluded, wanted, may_open)?;
        let server = &mut self.servers[number];
        server.busy += 1;
        let connection = server.take_idle(runtime);
        self.open_rate.count(usize::from(connection.is_none()));
        self.usage.note_more_busy(self.servers.busy());
        Some((number, connection))
    }

    /// Takes out of the queue the request that gets this connection, or the right to open one.
    fn next_in_queue(&mut self, server: usize, connection: Option<&Pooled<C>>) -> Option<oneshot::Sender<Lease<C>>> {
        if self.is_stopping || (connection.is_none() && !self.servers.can_open(server)) {
            return None;
        }
        let servers = &self.servers;
        let fits =
            |wanted: Option<usize>| wanted.is_none_or(|wanted| wanted == server || servers[wanted].health.is_down());
        let is_home = |runtime| connection.is_none_or(|found| found.connection.lives_on(runtime));
        self.queue.pop(fits, is_home)
    }

    /// Takes the right to open as many connections to a server as the queue, its limit and the open rate allow.
    fn reserve_new(&mut self, server: usize) -> usize {
        self.settle();
        let most = self.queue.len().min(self.open_rate.left());
        let granted = self.servers.room(server).min(most);
        self.open_rate.count(granted);
        self.servers[server].busy += granted;
        if granted > 0 {
            self.usage.note_more_busy(self.servers.busy());
        }
        granted
    }

    /// Takes as many idle connections of a server as the queue needs.
    fn reserve_idle(&mut self, server: usize) -> Vec<Pooled<C>> {
        self.settle();
        let needed = self.queue.len();
        let found = &mut self.servers[server];
        let kept = found.idle.len().saturating_sub(needed);
        let offered = found.idle.split_off(kept);
        found.busy += offered.len();
        offered
    }
}
