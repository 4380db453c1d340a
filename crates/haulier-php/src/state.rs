//! Who has a worker, who waits for one, and what lies idle: everything the threads share, behind one lock.
//!
//! Connections never outnumber workers. Idle ones are a stack, so that the rest stay cold; waiters are a queue. A
//! worker that becomes free goes to the first waiter, so nothing lies idle while somebody waits.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::EventfdFlags;
use tokio::runtime::{Handle, Id};
use tokio::sync::{Notify, oneshot};

use crate::affinity::Seeds;
use crate::connection::Connection;
use crate::fpm_status::FpmStatus;
use crate::heard::Heard;
use crate::lease::Lease;
use crate::running::Running;
use crate::settings::{Health, PoolKind, PoolSettings, Recycle, Server, Supervised};
use crate::spawner::Spawner;
use crate::wait_times::WaitTimes;
use crate::worker::{Spent, Worker, own_memory};

/// Longest time to connect to our own php-cgi: its queue of connections takes more than there are workers.
const OWN_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// What a pool is doing, and what it has done since it was started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolStatus {
    /// Most requests PHP works on at a time.
    pub workers: usize,
    /// Requests PHP is working on.
    pub busy: usize,
    /// Open connections without a request.
    pub idle: usize,
    /// Requests that wait for a worker.
    pub queued: usize,
    /// How long the first of them has waited.
    pub longest_wait: Duration,
    /// Requests answered to the end.
    pub served: u64,
    /// Requests turned away because no worker became free.
    pub exhausted: u64,
    /// Workers that went away with a request.
    pub crashes: u64,
    /// Workers ended because no response head came in time.
    pub timeouts: u64,
    /// Requests sent once more because the first worker was gone.
    pub retries: u64,
    /// Workers replaced between requests: the sum of the three below.
    pub recycled: u64,
    /// Of these, after their number of requests.
    pub recycled_requests: u64,
    /// Of these, because of the memory they had taken.
    pub recycled_memory: u64,
    /// Of these, because of their age.
    pub recycled_age: u64,
    /// Workers that gave their memory back because they had nothing to do.
    pub shrunk: u64,
    /// Requests that took longer than the slow log allows.
    pub slow: u64,
    /// Most requests PHP has worked on at a time.
    pub most_busy: usize,
    /// Most requests that have waited at a time.
    pub most_queued: usize,
    /// Times the last free worker was taken.
    pub full: u64,
    /// Times the php-cgi master ended unasked.
    pub exits: u64,
    /// PHP can be reached, as far as we know: php-cgi runs, or some server took the last connection made to it.
    pub is_live: bool,
    /// Time that workers spent on requests, those that still run included; all workers together.
    pub busy_time: Duration,
    /// How long requests waited for a worker, those that got none included.
    pub waits: WaitTimes,
}

impl PoolStatus {
    /// This status, with everything that `before` has counted and what it is still busy with. How many workers there
    /// are is this one's own.
    #[must_use]
    pub fn following(mut self, before: Self) -> Self {
        self.busy += before.busy;
        self.queued += before.queued;
        let counts = [
            (&mut self.served, before.served),
            (&mut self.exhausted, before.exhausted),
            (&mut self.crashes, before.crashes),
            (&mut self.timeouts, before.timeouts),
            (&mut self.retries, before.retries),
            (&mut self.recycled, before.recycled),
            (&mut self.recycled_requests, before.recycled_requests),
            (&mut self.recycled_memory, before.recycled_memory),
            (&mut self.recycled_age, before.recycled_age),
            (&mut self.shrunk, before.shrunk),
            (&mut self.slow, before.slow),
            (&mut self.exits, before.exits),
            (&mut self.full, before.full),
        ];
        for (count, earlier) in counts {
            *count += earlier;
        }
        self.most_busy = self.most_busy.max(before.most_busy);
        self.most_queued = self.most_queued.max(before.most_queued);
        self.busy_time += before.busy_time;
        self.waits = self.waits.and(before.waits);
        self
    }
}

/// One server of a pool that somebody else runs.
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
    /// How long the last connection took to open: over a network about one round trip. `None` before the first.
    pub connect_time: Option<Duration>,
    /// What it told of itself when it was last asked. `None` if it is not to be asked, or did not answer.
    pub told: Option<FpmStatus>,
    /// It is to be asked.
    pub is_asked: bool,
}

/// A worker at one moment; those that were never needed are in no list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerStatus {
    /// What it does.
    pub work: Work,
    /// The process, where it is known.
    pub pid: Option<u32>,
    /// Requests it has answered, as far as we have seen; `None` where we do not know which worker it is.
    pub served: Option<u64>,
    /// Bytes it shares with no other process, where the system tells.
    pub memory: Option<u64>,
}

/// What a worker does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// A request that takes long: in a few words, and how long it has had the worker.
    Long(String, Duration),
    /// A request it got within the last tenth of a second or so.
    Short,
    /// Nothing.
    Idle,
}

/// The part of a pool that leases, responses and the supervisor hold on to.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) settings: PoolSettings,
    /// Where to connect: the servers of others, or the socket of each of our own php-cgi programs, mostly one.
    pub(crate) addresses: Vec<Server>,
    pub(crate) connect_timeout: Duration,
    /// Process ids of our php-cgi programs, one an address; 0 while there is none.
    pub(crate) masters: Vec<AtomicU32>,
    /// They are no masters: every worker is a program of its own.
    pub(crate) separate: bool,
    /// Who starts them as another account; `None` if we do.
    pub(crate) spawner: Option<Arc<Spawner>>,
    /// What PHP said outside of requests.
    pub(crate) heard: Arc<Heard>,
    /// Requests that take long.
    pub(crate) running: Arc<Running>,
    /// How the servers of others are checked.
    health: Option<Health>,
    /// Most connections to each server.
    connections: usize,
    /// The servers, for requests that are to go to the same one.
    seeds: Seeds,
    /// Wake the supervisors of php-cgi programs that rest, one an address; none if they never do.
    alarms: Vec<OwnedFd>,
    pub(crate) started: Instant,
    /// Told when the last lease ends while the pool stops.
    drained: Notify,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    servers: Vec<ServerState>,
    waiters: VecDeque<Waiter>,
    next_ticket: u64,
    stopping: bool,
    /// Workers whose connection closed while they live on, by process id; for `recycle` only.
    workers: HashMap<u32, Worker>,
    counts: PoolStatus,
    /// How many workers may be put to work within a second.
    spawn_rate: Option<u32>,
    /// When the running second of that began, and how many there were in it.
    spawned: (Instant, u32),
    /// Up to when `counts.busy_time` is right.
    settled: Instant,
}

#[derive(Debug, Default)]
struct ServerState {
    /// New connections make sense: php-cgi runs.
    available: bool,
    /// Start of php-cgi that new connections belong to; older ones are closed when they come back.
    generation: u64,
    /// The process, where every worker is one of its own.
    process: Option<Arc<OwnedFd>>,
    /// php-cgi has ended because nobody asked for it, and nobody has since.
    rests: bool,
    /// When the last request ended, or php-cgi began to run.
    unused_since: Option<Instant>,
    /// It is left out while others are well.
    down: bool,
    /// How long the last connection took to open.
    connect_time: Option<Duration>,
    /// Health checks of the same outcome in a row.
    streak: u32,
    /// What it told of itself.
    told: Option<FpmStatus>,
    /// Requests it works on for others, or that wait there: as much as we know.
    elsewhere: usize,
    /// Connections, open or about to be: `idle` and those leased.
    open: usize,
    busy: usize,
    idle: Vec<Connection>,
}

#[derive(Debug)]
struct Waiter {
    ticket: u64,
    /// The runtime that waits.
    runtime: Id,
    since: Instant,
    /// The server it belongs to.
    wants: Option<usize>,
    turn: Turn,
    grant: oneshot::Sender<Lease>,
}

/// When a request in the queue has its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// In the order of arrival.
    Usual,
    /// When nobody of these waits: its client may have gone.
    Last,
}

/// As long as the first in the queue waits no longer than this, a connection goes to somebody of its own thread: nobody
/// can tell who came first within a millisecond, and a move to another thread costs a third of a small request.
const PATIENCE: Duration = Duration::from_millis(1);
/// How far from the front such a waiter may stand.
const NEAR: usize = 16;

/// The time in which no more than `spawn_rate` workers are put to work.
const SPAWN_TIME: Duration = Duration::from_secs(1);

/// What became of asking for a worker.
pub(crate) enum Asked {
    /// Here it is.
    Granted(Lease),
    /// All are busy; this one stands in the queue.
    Queued(QueuePlace),
    /// The queue is full.
    Full,
    /// No more leases.
    Stopped,
}

/// A place in the queue, given up when dropped. A grant that is already in `grant` goes back to the pool with it.
#[derive(Debug)]
pub(crate) struct QueuePlace {
    shared: Arc<Shared>,
    ticket: u64,
    pub(crate) grant: oneshot::Receiver<Lease>,
}

impl QueuePlace {
    /// From now on everybody whose turn is the usual one comes first.
    pub(crate) fn give_way(&self) {
        let mut state = self.shared.lock();
        if let Ok(place) = state.waiters.binary_search_by_key(&self.ticket, |waiter| waiter.ticket) {
            state.waiters[place].turn = Turn::Last;
        }
    }
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        if let Ok(place) = state.waiters.binary_search_by_key(&self.ticket, |waiter| waiter.ticket) {
            state.waiters.remove(place);
        }
    }
}

impl Shared {
    /// A pool without connections. A supervised one is not available before [`master_started`](Self::master_started).
    ///
    /// `separate` if each address is that of one worker of our own.
    ///
    /// # Errors
    /// No descriptor is left.
    pub(crate) fn new(
        settings: PoolSettings,
        addresses: Vec<Server>,
        separate: bool,
        spawner: Option<Arc<Spawner>>,
    ) -> io::Result<Self> {
        let (connections, connect_timeout, available) = match &settings.kind {
            PoolKind::Supervised(own) => (own.workers / addresses.len(), OWN_CONNECT_TIMEOUT, false),
            PoolKind::External(external) => (external.connections, external.connect_timeout, true),
        };
        let health = match &settings.kind {
            PoolKind::Supervised(_) => None,
            PoolKind::External(external) => external.health.clone(),
        };
        let own = match &settings.kind {
            PoolKind::Supervised(own) => Some(own),
            PoolKind::External(_) => None,
        };
        let spawn_rate = own.and_then(|own| own.spawn_rate);
        let rests = own.is_some_and(|own| own.rests_after().is_some());
        let alarm = |_| rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let alarms = addresses
            .iter()
            .filter(|_| rests)
            .map(alarm)
            .collect::<Result<_, _>>()?;
        let server = |_| ServerState {
            available,
            ..ServerState::default()
        };
        let servers = addresses.iter().map(server).collect();
        let masters = addresses.iter().map(|_| AtomicU32::new(0)).collect();
        let state = State {
            servers,
            waiters: VecDeque::new(),
            next_ticket: 0,
            stopping: false,
            workers: HashMap::new(),
            counts: PoolStatus {
                workers: connections * addresses.len(),
                ..PoolStatus::default()
            },
            spawn_rate,
            spawned: (Instant::now(), 0),
            settled: Instant::now(),
        };
        Ok(Self {
            settings,
            connect_timeout,
            masters,
            separate,
            spawner,
            heard: Arc::default(),
            running: Arc::default(),
            health,
            connections,
            seeds: Seeds::of(&addresses),
            alarms,
            started: Instant::now(),
            drained: Notify::new(),
            state: Mutex::new(state),
            addresses,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock leaves the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a worker on any server but those `excluded`, for this thread; on the one that `affinity` belongs to.
    pub(crate) fn ask(self: &Arc<Self>, excluded: &[usize], affinity: Option<&[u8]>, turn: Turn) -> Asked {
        let mut state = self.lock();
        if state.stopping {
            return Asked::Stopped;
        }
        let wants = affinity.and_then(|key| self.seeds.find(key, |server| state.is_usable(server, excluded)));
        if let Some((server, connection)) = state.take(self.connections, excluded, wants, Handle::current().id()) {
            state.counts.waits.note(Duration::ZERO);
            drop(state);
            return Asked::Granted(Lease::new(Arc::clone(self), server, connection));
        }
        let resting = state.servers.iter().position(|server| server.rests);
        if state.waiters.len() >= self.settings.queue_length && resting.is_none() {
            state.counts.exhausted += 1;
            state.counts.waits.note(Duration::ZERO);
            return Asked::Full;
        }
        let (sender, grant) = oneshot::channel();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.waiters.push_back(Waiter {
            ticket,
            runtime: Handle::current().id(),
            since: Instant::now(),
            wants,
            turn,
            grant: sender,
        });
        state.counts.most_queued = state.counts.most_queued.max(state.waiters.len());
        if let Some(server) = resting {
            state.servers[server].rests = false;
            let _ = rustix::io::write(&self.alarms[server], &1_u64.to_ne_bytes()); // full: it rings already
        }
        Asked::Queued(QueuePlace {
            shared: Arc::clone(self),
            ticket,
            grant,
        })
    }

    /// Whether PHP has anything to do.
    pub(crate) fn is_needed(&self) -> bool {
        let state = self.lock();
        !state.waiters.is_empty() || state.busy() > 0
    }

    /// Whether requests wait whose turn is the usual one.
    pub(crate) fn has_waiters(&self) -> bool {
        self.lock().waiters.iter().any(|waiter| waiter.turn == Turn::Usual)
    }

    /// Takes a lease back, with the connection if it can carry another request.
    pub(crate) fn put_back(self: &Arc<Self>, server: usize, mut connection: Option<Connection>) {
        loop {
            let mut state = self.lock();
            let current = connection
                .as_ref()
                .is_none_or(|found| found.generation == state.servers[server].generation);
            if state.stopping || !current {
                // Closed outside the lock: closing a socket is a system call.
                drop(state);
                connection = None;
                state = self.lock();
            }
            let may_serve = !state.stopping && (connection.is_some() || state.may_open(server));
            let Some(waiter) = may_serve
                .then(|| state.next_waiter(server, connection.as_ref()))
                .flatten()
            else {
                return self.keep(state, server, connection);
            };
            drop(state);
            let lease = Lease::new(Arc::clone(self), server, connection);
            match waiter.grant.send(lease) {
                Ok(()) => return,
                Err(unwanted) => connection = unwanted.defuse(),
            }
        }
    }

    /// Nobody waits: the connection lies idle, or is one less.
    fn keep(&self, mut state: MutexGuard<'_, State>, server: usize, connection: Option<Connection>) {
        state.settle();
        let place = &mut state.servers[server];
        place.busy -= 1;
        place.unused_since = Some(Instant::now());
        match connection {
            Some(mut connection) => {
                connection.idle_since = Instant::now();
                place.idle.push(connection);
            }
            None => place.open -= 1,
        }
        if state.stopping && state.busy() == 0 {
            self.drained.notify_waiters();
        }
    }

    /// php-cgi runs: connections may be opened.
    pub(crate) fn master_started(self: &Arc<Self>, server: usize, pid: u32, process: Option<OwnedFd>) {
        self.masters[server].store(pid, Ordering::Relaxed);
        let mut state = self.lock();
        let place = &mut state.servers[server];
        (place.available, place.unused_since) = (true, Some(Instant::now()));
        place.process = process.map(Arc::new);
        drop(state);
        self.grant_free(server);
    }

    /// Lets a php-cgi rest that nobody has asked for a worker for this long: requests wait until it has been started
    /// again.
    ///
    /// # Errors
    /// It is needed; so long from now it may not be any more.
    pub(crate) fn rest(&self, server: usize, idle: Duration) -> Result<(), Duration> {
        let mut state = self.lock();
        let is_wanted = !state.waiters.is_empty() || state.stopping;
        let place = &mut state.servers[server];
        let unused = place.unused_since.map_or(Duration::ZERO, |since| since.elapsed());
        if is_wanted || place.busy > 0 {
            return Err(idle);
        }
        if unused < idle {
            return Err(idle - unused);
        }
        (place.available, place.rests) = (false, true);
        // Their workers end now; whoever comes next is to wait for new ones.
        let idle = std::mem::take(&mut place.idle);
        place.open -= idle.len();
        drop(state);
        drop(idle);
        Ok(())
    }

    /// Rings when somebody asks for a php-cgi that rests.
    pub(crate) fn alarm(&self, server: usize) -> Option<&OwnedFd> {
        self.alarms.get(server)
    }

    /// Puts workers to work that had to wait for the next second.
    pub(crate) fn grant_due(self: &Arc<Self>) {
        for server in 0..self.addresses.len() {
            if self.lock().may_open(server) {
                self.grant_free(server);
            }
        }
    }

    /// Gives the connections that a server may have beyond its open ones to those who wait.
    fn grant_free(self: &Arc<Self>, server: usize) {
        let mut state = self.lock();
        state.settle();
        let most = state.waiters.len().min(state.spawns_left());
        let place = &mut state.servers[server];
        let free = self.connections.saturating_sub(place.open).min(most);
        state.spawned.1 += u32::try_from(free).unwrap_or(u32::MAX);
        let place = &mut state.servers[server];
        place.open += free;
        place.busy += free;
        if free > 0 {
            state.note_most();
        }
        drop(state);
        for _ in 0..free {
            self.put_back(server, None);
        }
    }

    /// Lets whoever waits have the idle connections of this server, and further ones.
    fn offer(self: &Arc<Self>, server: usize) {
        let mut state = self.lock();
        state.settle();
        let most = state.waiters.len();
        let place = &mut state.servers[server];
        let kept = place.idle.len().saturating_sub(most);
        let offered = place.idle.split_off(kept);
        place.busy += offered.len();
        drop(state);
        for connection in offered {
            self.put_back(server, Some(connection));
        }
        self.grant_free(server);
    }

    /// php-cgi is gone: requests wait until it is back. Connections to children that outlive it carry no further one.
    /// `asked` if it was one worker that we have ended ourselves.
    pub(crate) fn master_ended(&self, server: usize, asked: bool) {
        let pid = self.masters[server].swap(0, Ordering::Relaxed);
        let mut state = self.lock();
        state.workers.retain(|&worker, _| self.separate && worker != pid);
        state.counts.exits += u64::from(!state.stopping && !asked);
        let place = &mut state.servers[server];
        (place.available, place.process) = (false, None);
        place.generation += 1;
        let orphaned = std::mem::take(&mut place.idle);
        place.open -= orphaned.len();
        drop(state);
        drop(orphaned);
    }

    /// A worker was asked to end: where it is a program of its own, nothing more goes to its address until the next one
    /// runs. That may be the case already, hence the `generation` of the connection to the one that ends.
    pub(crate) fn note_ending(&self, server: usize, generation: u64) {
        if self.separate {
            let place = &mut self.lock().servers[server];
            place.available &= place.generation != generation;
        }
    }

    /// The one process behind an address, where every worker is one of its own.
    pub(crate) fn process(&self, server: usize) -> Option<Arc<OwnedFd>> {
        self.lock().servers[server].process.clone()
    }

    /// Closes connections that have been idle for `limit`; gives the time until the next one will have been.
    pub(crate) fn close_idle(&self, limit: Duration) -> Option<Duration> {
        let mut state = self.lock();
        let closed = state.drain_idle(|connection| connection.idle_since.elapsed() >= limit);
        let oldest = state
            .servers
            .iter()
            .flat_map(|server| &server.idle)
            .map(|idle| idle.idle_since)
            .min();
        drop(state);
        drop(closed);
        oldest.map(|since| limit.saturating_sub(since.elapsed()))
    }

    /// Takes out the idle workers that are to be replaced: those that have lived their time, and of those that had
    /// nothing to do for long all but the least.
    pub(crate) fn take_unneeded(&self, own: &Supervised) -> Vec<(Connection, Spent)> {
        let mut state = self.lock();
        let is_old = |connection: &Connection| {
            let pid = connection.peer.pid();
            pid.is_some_and(|pid| connection.worker.is_old(&own.recycle, pid))
        };
        let mut taken: Vec<_> = state
            .drain_idle(is_old)
            .into_iter()
            .map(|old| (old, Spent::Age))
            .collect();
        if let Some(shrink) = own.shrink {
            let mut surplus = state
                .servers
                .iter()
                .map(|server| server.open)
                .sum::<usize>()
                .saturating_sub(shrink.least);
            // The stack begins with those that lie idle longest.
            let unused = state.drain_idle(|connection| {
                let goes = surplus > 0 && connection.idle_since.elapsed() >= shrink.idle;
                surplus -= usize::from(goes);
                goes
            });
            taken.extend(unused.into_iter().map(|unused| (unused, Spent::Idle)));
        }
        taken
    }

    /// No more leases; whoever waits is told so, idle connections are closed.
    pub(crate) fn begin_stop(&self) {
        let mut state = self.lock();
        state.stopping = true;
        let waiters = std::mem::take(&mut state.waiters);
        let idle = state.drain_idle(|_| true);
        drop(state);
        drop((waiters, idle));
    }

    /// Waits for the last lease after [`begin_stop`](Self::begin_stop).
    pub(crate) async fn drained(&self) {
        loop {
            let told = self.drained.notified();
            if self.lock().busy() == 0 {
                return;
            }
            told.await;
        }
    }

    /// Which start of php-cgi a new connection belongs to.
    pub(crate) fn generation(&self, server: usize) -> u64 {
        self.lock().servers[server].generation
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.lock().stopping
    }

    /// When our workers are replaced; never, if they are not ours.
    pub(crate) fn recycle(&self) -> Recycle {
        match &self.settings.kind {
            PoolKind::Supervised(own) => own.recycle,
            PoolKind::External(_) => Recycle::default(),
        }
    }

    /// Changes the counters.
    pub(crate) fn count(&self, change: impl FnOnce(&mut PoolStatus)) {
        change(&mut self.lock().counts);
    }

    /// Counts a worker that is replaced.
    pub(crate) fn count_spent(&self, why: Spent) {
        self.count(|counts| {
            let of_kind = match why {
                Spent::Requests => &mut counts.recycled_requests,
                Spent::Memory => &mut counts.recycled_memory,
                Spent::Age => &mut counts.recycled_age,
                Spent::Idle => &mut counts.shrunk,
            };
            *of_kind += 1;
            counts.recycled += u64::from(why != Spent::Idle);
        });
    }

    /// What is known of a worker from connections that are closed by now; forgets it.
    pub(crate) fn take_worker(&self, pid: u32) -> Option<Worker> {
        self.lock().workers.remove(&pid)
    }

    /// Remembers a worker whose connection closes.
    pub(crate) fn put_worker(&self, pid: u32, worker: Worker) {
        let mut state = self.lock();
        // Workers that died leave their entry behind; more than this many are not alive.
        if state.workers.len() > 4 * self.connections {
            state.workers.clear();
        }
        state.workers.insert(pid, worker);
    }

    /// Notes whether a server took a connection, and in what time. A refusal takes it out at once; without health
    /// checks the next connection takes it in again.
    pub(crate) fn note_connect(self: &Arc<Self>, server: usize, taken: Option<Duration>) {
        let mut state = self.lock();
        let place = &mut state.servers[server];
        let was_down = place.down;
        if taken.is_none() {
            (place.down, place.streak) = (true, 0);
        } else if self.health.is_none() {
            place.down = false;
        }
        place.connect_time = taken.or(place.connect_time);
        let is_down = place.down;
        drop(state);
        self.tell_of_change(server, was_down, is_down);
    }

    /// Notes how long a connection to a server took to open.
    pub(crate) fn note_round_trip(&self, server: usize, took: Duration) {
        self.lock().servers[server].connect_time = Some(took);
    }

    /// Notes the outcome of a health check.
    pub(crate) fn note_health(self: &Arc<Self>, server: usize, well: bool, health: &Health) {
        let mut state = self.lock();
        let place = &mut state.servers[server];
        let was_down = place.down;
        // What confirms the state of the server begins the count anew.
        place.streak = if well == was_down { place.streak + 1 } else { 0 };
        let needed = if well { health.recover } else { health.fail };
        if place.streak >= needed {
            (place.down, place.streak) = (!well, 0);
        }
        let is_down = place.down;
        drop(state);
        self.tell_of_change(server, was_down, is_down);
    }

    /// Notes what a server told of itself.
    pub(crate) fn note_status(&self, server: usize, told: Option<FpmStatus>) {
        let place = &mut self.lock().servers[server];
        place.elsewhere = told.map_or(0, |told| told.elsewhere(place.open));
        place.told = told;
    }

    fn tell_of_change(self: &Arc<Self>, server: usize, was_down: bool, is_down: bool) {
        let (pool, address) = (self.settings.name.as_str(), &self.addresses[server]);
        match (was_down, is_down) {
            (false, true) => {
                tracing::warn!(pool, server = %address, "FastCGI server does not answer and is left out");
                // Who waits for it may go to another one now.
                let others = (0..self.addresses.len()).filter(|&other| other != server && !self.is_down(other));
                others.for_each(|other| self.offer(other));
            }
            (true, false) => {
                tracing::info!(pool, server = %address, "FastCGI server answers again");
                self.offer(server);
            }
            _ => {}
        }
    }

    pub(crate) fn is_down(&self, server: usize) -> bool {
        self.lock().servers[server].down
    }

    /// Every server with the name it has in messages.
    pub(crate) fn servers(&self) -> Vec<ServerStatus> {
        let state = self.lock();
        let servers = self.addresses.iter().zip(&state.servers);
        servers
            .map(|(address, server)| ServerStatus {
                name: address.to_string(),
                is_up: !server.down,
                connections: server.open,
                busy: server.busy,
                connect_time: server.connect_time,
                told: server.told,
                is_asked: self.health.as_ref().is_some_and(|health| health.status.is_some()),
            })
            .collect()
    }

    /// The workers that have been needed so far: those with a request that takes long, then the other busy ones, then
    /// the idle ones, the last used first.
    pub(crate) fn workers(&self) -> Vec<WorkerStatus> {
        let long = self.running.list();
        let state = self.lock();
        let short = state.busy().saturating_sub(long.len());
        let idle = state.servers.iter().flat_map(|server| server.idle.iter().rev());
        let idle: Vec<_> = idle.map(|idle| (idle.peer.pid(), idle.worker.served)).collect();
        drop(state);
        // /proc is read outside the lock.
        let worker = |work, pid: Option<u32>, served| WorkerStatus {
            work,
            pid,
            served,
            memory: pid.and_then(own_memory),
        };
        let long = long.into_iter().map(|request| {
            let work = Work::Long(request.label, request.running);
            worker(work, request.pid, request.pid.map(|_| request.served))
        });
        let short = (0..short).map(|_| worker(Work::Short, None, None));
        let idle = idle
            .into_iter()
            .map(|(pid, served)| worker(Work::Idle, pid, Some(served)));
        long.chain(short).chain(idle).collect()
    }

    pub(crate) fn status(&self) -> PoolStatus {
        let mut state = self.lock();
        state.settle();
        let idle = state.servers.iter().map(|server| server.idle.len()).sum();
        PoolStatus {
            busy: state.busy(),
            idle,
            queued: state.waiters.len(),
            longest_wait: state
                .waiters
                .front()
                .map_or(Duration::ZERO, |first| first.since.elapsed()),
            is_live: state
                .servers
                .iter()
                .any(|server| (server.available || server.rests) && !server.down),
            ..state.counts
        }
    }
}

impl State {
    /// Who gets a worker that has become free: the first in the queue, or within [`PATIENCE`] one of the connection's
    /// own thread.
    fn next_waiter(&mut self, server: usize, connection: Option<&Connection>) -> Option<Waiter> {
        let servers = &self.servers;
        let accepts = |waiter: &Waiter, turn| {
            let fits = |wanted: usize| wanted == server || servers[wanted].down;
            waiter.turn == turn && waiter.wants.is_none_or(fits)
        };
        let first_of = |turn| self.waiters.iter().position(|waiter| accepts(waiter, turn));
        let first = first_of(Turn::Usual).or_else(|| first_of(Turn::Last))?;
        let turn = self.waiters[first].turn;
        let at_home = |waiter: &Waiter| connection.is_none_or(|found| found.lives_on(waiter.runtime));
        if at_home(&self.waiters[first]) || self.waiters[first].since.elapsed() > PATIENCE {
            return self.waiters.remove(first);
        }
        let near = self.waiters.iter().skip(first).take(NEAR);
        let place = near
            .into_iter()
            .position(|waiter| accepts(waiter, turn) && at_home(waiter));
        self.waiters.remove(first + place.unwrap_or(0))
    }

    /// Whether a server may get requests: it is well, or none is.
    fn is_usable(&self, server: usize, excluded: &[usize]) -> bool {
        let is_well = !self.servers[server].down || self.servers.iter().all(|server| server.down);
        is_well && !excluded.contains(&server)
    }

    /// To be called when more workers are busy than before.
    fn note_most(&mut self) {
        let busy = self.busy();
        self.counts.full += u64::from(busy == self.counts.workers);
        self.counts.most_busy = self.counts.most_busy.max(busy);
    }

    /// How many workers may be put to work now.
    fn spawns_left(&mut self) -> usize {
        let Some(rate) = self.spawn_rate else {
            return usize::MAX;
        };
        if self.spawned.0.elapsed() >= SPAWN_TIME {
            self.spawned = (Instant::now(), 0);
        }
        rate.saturating_sub(self.spawned.1) as usize
    }

    fn busy(&self) -> usize {
        self.servers.iter().map(|server| server.busy).sum()
    }

    /// Whether a new connection to this server makes sense: it is well, or none is.
    fn may_open(&self, server: usize) -> bool {
        let place = &self.servers[server];
        place.available && (!place.down || self.servers.iter().all(|server| server.down))
    }

    /// Brings the busy time up to date; to be called before the number of busy workers changes.
    fn settle(&mut self) {
        let now = Instant::now();
        let busy = u32::try_from(self.busy()).unwrap_or(u32::MAX);
        self.counts.busy_time += now.saturating_duration_since(self.settled) * busy;
        self.settled = now;
    }

    /// A connection of the server that is wanted, else of the one that does least, for us and for others; or leave to
    /// open one.
    fn take(
        &mut self,
        most: usize,
        excluded: &[usize],
        wants: Option<usize>,
        runtime: Id,
    ) -> Option<(usize, Option<Connection>)> {
        self.settle();
        let may_spawn = self.spawns_left() > 0;
        let any_up = self.servers.iter().any(|server| !server.down);
        let candidates = self.servers.iter_mut().enumerate().filter(|(number, server)| {
            let usable = !server.down || !any_up;
            usable
                && !excluded.contains(number)
                && wants.is_none_or(|wanted| wanted == *number)
                && (!server.idle.is_empty() || (may_spawn && server.available && server.open < most))
        });
        let (number, server) = candidates.min_by_key(|(_, server)| server.busy + server.elsewhere)?;
        server.busy += 1;
        // The last one used on this thread needs no new registration; else the last one used at all.
        let here = server.idle.iter().rposition(|connection| connection.lives_on(runtime));
        let connection = match here {
            Some(place) => Some(server.idle.remove(place)),
            None => server.idle.pop(),
        };
        let spawns = connection.is_none();
        server.open += usize::from(spawns);
        self.spawned.1 = self.spawned.1.saturating_add(u32::from(spawns));
        self.note_most();
        Some((number, connection))
    }

    /// Takes out the idle connections that `which` names, for the caller to close.
    fn drain_idle(&mut self, mut which: impl FnMut(&Connection) -> bool) -> Vec<Connection> {
        let mut taken = Vec::new();
        for server in &mut self.servers {
            let (out, stay) = std::mem::take(&mut server.idle).into_iter().partition(&mut which);
            server.idle = stay;
            server.open -= Vec::len(&out);
            taken.extend::<Vec<_>>(out);
        }
        taken
    }
}
