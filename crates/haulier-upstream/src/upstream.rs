//! The state that all threads share, behind one lock: servers, queue, rate of new connections, usage.
//!
//! A connection that becomes free goes to the first request in the queue, so no connection is idle while a request
//! waits.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::sync::{Notify, oneshot};

use crate::address::Address;
use crate::admission::Admission;
use crate::affinity::Affinity;
use crate::alarm::Alarm;
use crate::connection::Connection;
use crate::lease::Lease;
use crate::load::{UpstreamLoad, Usage};
use crate::open_rate::OpenRate;
use crate::queue::{Queue, Turn};
use crate::server::{Pooled, ServerPhase, ServerStatus};
use crate::servers::Servers;
use crate::settings::UpstreamSettings;

/// Servers that answer for us, with the connections to them and the queue in front. Shared by all threads.
#[derive(Debug)]
pub struct Upstream<C: Connection> {
    settings: UpstreamSettings,
    affinity: Affinity,
    /// One alarm per server, which wakes the owner of a parked server; empty if servers are never parked.
    alarms: Vec<Alarm>,
    /// Notified when the last lease ends while the upstream stops.
    drained: Notify,
    /// Rings when requests begin to be held back although a connection is free; `None` if none ever are.
    held_back: Option<Alarm>,
    state: Mutex<UpstreamState<C>>,
}

#[derive(Debug)]
struct UpstreamState<C: Connection> {
    servers: Servers<C>,
    queue: Queue<Lease<C>>,
    open_rate: OpenRate,
    admission: Admission,
    /// The owner was told that requests are held back, and looks after them.
    is_attended: bool,
    usage: Usage,
    is_stopping: bool,
}

/// The immediate result of a request for a connection.
pub(crate) enum Grant<C: Connection> {
    Lease(Lease<C>),
    /// All connections are busy: the ticket of the place in the queue, and the receiver of the lease.
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
            admission: Admission::new(settings.at_once),
            is_attended: false,
            usage: Usage::new(settings.connections * number),
            is_stopping: false,
        };
        let alarms = if settings.may_park { number } else { 0 };
        Ok(Arc::new(Self {
            affinity: Affinity::of(&settings.addresses),
            alarms: (0..alarms).map(|_| Alarm::new()).collect::<Result<_, _>>()?,
            drained: Notify::new(),
            held_back: settings.at_once.map(|_| Alarm::new()).transpose()?,
            state: Mutex::new(state),
            settings,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, UpstreamState<C>> {
        // No code under the lock can panic with the state half changed.
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

    /// Opens a connection that is not pooled, for a health check for example.
    ///
    /// # Errors
    /// The system error; `TimedOut` if the connect timeout expires.
    pub async fn open(&self, server: usize) -> io::Result<C> {
        let opening = C::open(self.address(server));
        match tokio::time::timeout(self.settings.connect_timeout, opening).await {
            Ok(opened) => opened,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// Requests: grant, queue, release.
impl<C: Connection> Upstream<C> {
    /// Requests a connection for this thread to a server that is not `excluded`, or to the one that the affinity key
    /// belongs to.
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
        if state.queue.len() >= self.queue_room(&state) && !state.servers.has_parked() {
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
        self.attend(&mut state);
        Grant::Queued(ticket, granted)
    }

    /// Tells the owner, once, that requests are held back.
    fn attend(&self, state: &mut UpstreamState<C>) {
        if !state.is_attended && self.holds_back(state) {
            state.is_attended = true;
            self.held_back.iter().for_each(Alarm::ring);
        }
    }

    /// Most requests in the queue. Those that are held back although a connection is free do not count.
    fn queue_room(&self, state: &UpstreamState<C>) -> usize {
        let held = match state.admission.room(state.servers.busy()) {
            0 => self.free(state),
            _ => 0,
        };
        self.settings.queue_length + held
    }

    /// Connections that are idle, or may be opened.
    fn free(&self, state: &UpstreamState<C>) -> usize {
        (self.settings.connections * self.servers()).saturating_sub(state.servers.busy())
    }

    /// True if requests wait only because others compute.
    fn holds_back(&self, state: &UpstreamState<C>) -> bool {
        let busy = state.servers.busy();
        !state.queue.is_empty() && state.admission.room(busy) == 0 && self.free(state) > 0
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

    /// Takes back a lease, with its connection if that is reusable.
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

    /// Grants to the queue the connections that may still be opened to a server.
    fn grant_new(self: &Arc<Self>, server: usize) {
        let granted = self.lock().reserve_new(server);
        for _ in 0..granted {
            self.release(server, None);
        }
        if self.held_back.is_some() {
            self.attend(&mut self.lock());
        }
    }

    /// Grants to the queue the idle connections of this server, then new ones.
    fn grant_all(self: &Arc<Self>, server: usize) {
        let offered = self.lock().reserve_idle(server);
        for connection in offered {
            self.release(server, Some(connection));
        }
        self.grant_new(server);
    }
}

/// Requests in progress that compute, and those that wait for something, as the owner finds them.
impl<C: Connection> Upstream<C> {
    /// Rings when requests begin to be held back because [`at_once`](UpstreamSettings::at_once) others are in progress.
    /// The owner then calls [`set_exempt`](Self::set_exempt) until that returns false.
    pub fn held_back(&self) -> Option<&Alarm> {
        self.held_back.as_ref()
    }

    /// Notes how many requests in progress do not count, and grants what that allows. False if none is held back and all
    /// count: the alarm is set then.
    pub fn set_exempt(self: &Arc<Self>, exempt: usize) -> bool {
        self.lock().admission.set_exempt(exempt);
        for server in 0..self.servers() {
            self.grant_all(server);
        }
        let mut state = self.lock();
        state.is_attended = exempt > 0 || self.holds_back(&state);
        state.is_attended
    }
}

/// Starts, ends and parking of servers, as their owner reports them.
impl<C: Connection> Upstream<C> {
    pub(crate) fn generation(&self, server: usize) -> u64 {
        self.lock().servers[server].generation
    }

    /// Notes that the server runs: connections can be opened.
    pub fn server_started(self: &Arc<Self>, server: usize) {
        self.lock().servers[server].note_started();
        self.grant_new(server);
    }

    /// Notes that the server has ended: requests wait until it is back. Its connections carry no further request, even
    /// if a child process still serves them.
    pub fn server_ended(&self, server: usize) {
        let orphaned = self.lock().servers[server].note_ended();
        drop(orphaned);
    }

    /// Notes that the process of this generation will end. The next start may have been reported already.
    pub(crate) fn server_ending(&self, server: usize, generation: u64) {
        self.lock().servers[server].note_ending(generation);
    }

    /// Parks a server that has been unused for `idle`. The next request rings its [`alarm`](Self::alarm) and waits
    /// until the server is started again.
    ///
    /// # Errors
    /// It is in use, or was used too recently: the time after which to try again.
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

    /// The alarm that rings when a request needs the parked server.
    pub fn alarm(&self, server: usize) -> Option<&Alarm> {
        self.alarms.get(server)
    }

    /// True if requests wait or have a connection.
    pub fn is_needed(&self) -> bool {
        let state = self.lock();
        !state.queue.is_empty() || state.servers.busy() > 0
    }
}

/// Health.
impl<C: Connection> Upstream<C> {
    /// Notes the time in which a server accepted a connection; `None` if it refused. A refusal takes the server out at
    /// once. Without health checks the next accepted connection brings it back.
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

    /// Notes the time in which a server accepted the connection of a health check.
    pub fn note_connect_time(&self, server: usize, took: Duration) {
        self.lock().servers[server].connect_time = Some(took);
    }

    /// Notes the result of a health check; ignored without [`thresholds`](UpstreamSettings::thresholds).
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

    /// Notes the number of requests that a server processes or queues, ours included. The balancing counts those of
    /// other clients. `None` if the server does not report it.
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
                // Requests that wait for this server may go to another one.
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
    /// Grants the connections that were delayed by the open rate.
    pub fn grant_due(self: &Arc<Self>) {
        for server in 0..self.servers() {
            if self.lock().servers.can_open(server) {
                self.grant_new(server);
            }
        }
    }

    /// Closes connections that have been idle for `limit`. Returns the time until the next one is due.
    pub fn close_idle(&self, limit: Duration) -> Option<Duration> {
        let mut state = self.lock();
        let closed = state.servers.take_idle(|idle| idle.idle_since.elapsed() >= limit);
        let idle = state.servers.iter().flat_map(|server| &server.idle);
        let oldest = idle.map(|idle| idle.idle_since).min();
        drop(state);
        drop(closed);
        oldest.map(|since| limit.saturating_sub(since.elapsed()))
    }

    /// Removes the idle connections that `select` accepts.
    pub fn take_idle(&self, select: impl Fn(&C) -> bool) -> Vec<C> {
        let taken = self.lock().servers.take_idle(|idle| select(&idle.connection));
        taken.into_iter().map(|idle| idle.connection).collect()
    }

    /// Removes connections that have been idle for `idle`, the longest idle first, as long as more than `least` are
    /// open.
    pub fn take_surplus(&self, least: usize, idle: Duration) -> Vec<C> {
        let mut state = self.lock();
        let mut surplus = state.servers.open().saturating_sub(least);
        // Each stack begins with the connections that have been idle longest.
        let taken = state.servers.take_idle(|connection| {
            let goes = surplus > 0 && connection.idle_since.elapsed() >= idle;
            surplus -= usize::from(goes);
            goes
        });
        drop(state);
        taken.into_iter().map(|idle| idle.connection).collect()
    }
}

/// Stopping.
impl<C: Connection> Upstream<C> {
    /// Stops granting leases: waiting requests get `Stopped`, idle connections are closed.
    pub fn stop(&self) {
        let mut state = self.lock();
        state.is_stopping = true;
        let waiting = state.queue.take_all();
        let idle = state.servers.take_idle(|_| true);
        drop(state);
        drop((waiting, idle));
    }

    /// True after [`stop`](Self::stop).
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
    /// The load, now and since the start.
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

    /// Status of every server.
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

    /// Number of leases, and `fact` of each idle connection, the last used first.
    pub fn connections<T>(&self, fact: impl Fn(&C) -> T) -> (usize, Vec<T>) {
        let state = self.lock();
        let idle = state.servers.iter().flat_map(|server| server.idle.iter().rev());
        (state.servers.busy(), idle.map(|idle| fact(&idle.connection)).collect())
    }
}

impl<C: Connection> UpstreamState<C> {
    /// Adds the busy time so far; to be called before the number of leases changes.
    fn settle(&mut self) {
        self.usage.settle(self.servers.busy());
    }

    /// Takes a connection of the chosen server, or the right to open one.
    fn take(&mut self, excluded: &[usize], wanted: Option<usize>, runtime: Id) -> Option<(usize, Option<Pooled<C>>)> {
        self.settle();
        if self.admission.room(self.servers.busy()) == 0 {
            return None;
        }
        let may_open = self.open_rate.left() > 0;
        let number = self.servers.choose(excluded, wanted, may_open)?;
        let server = &mut self.servers[number];
        server.busy += 1;
        let connection = server.take_idle(runtime);
        self.open_rate.count(usize::from(connection.is_none()));
        self.usage.note_more_busy(self.servers.busy());
        Some((number, connection))
    }

    /// Removes from the queue the request that gets this connection, or the right to open one.
    fn next_in_queue(&mut self, server: usize, connection: Option<&Pooled<C>>) -> Option<oneshot::Sender<Lease<C>>> {
        if self.is_stopping || (connection.is_none() && !self.servers.can_open(server)) {
            return None;
        }
        // The lease that is passed on counts as in progress.
        if self.admission.room(self.servers.busy() - 1) == 0 {
            return None;
        }
        let servers = &self.servers;
        let fits =
            |wanted: Option<usize>| wanted.is_none_or(|wanted| wanted == server || servers[wanted].health.is_down());
        let is_home = |runtime| connection.is_none_or(|found| found.connection.lives_on(runtime));
        self.queue.pop(fits, is_home)
    }

    /// Requests of the queue that may begin.
    fn wanted(&self) -> usize {
        self.queue.len().min(self.admission.room(self.servers.busy()))
    }

    /// Reserves as many new connections to a server as the queue needs, and its limit and the open rate allow.
    fn reserve_new(&mut self, server: usize) -> usize {
        self.settle();
        let most = self.wanted().min(self.open_rate.left());
        let granted = self.servers.room(server).min(most);
        self.open_rate.count(granted);
        self.servers[server].busy += granted;
        if granted > 0 {
            self.usage.note_more_busy(self.servers.busy());
        }
        granted
    }

    /// Reserves as many idle connections of a server as the queue needs.
    fn reserve_idle(&mut self, server: usize) -> Vec<Pooled<C>> {
        self.settle();
        let needed = self.wanted();
        let found = &mut self.servers[server];
        let kept = found.idle.len().saturating_sub(needed);
        let offered = found.idle.split_off(kept);
        found.busy += offered.len();
        offered
    }
}
