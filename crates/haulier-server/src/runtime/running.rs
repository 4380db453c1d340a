//! A running server: reload, change of document roots, hand-over of sockets and shutdown, while requests are answered.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;

use super::event_loop::{Control, ThreadReload, ThreadStart};
use super::{Server, configured, https_port, open_sites};
use crate::access_log::AccessLog;
use crate::clock::now;
use crate::io::Address;
use crate::io::Gate;
use crate::listen::{BindError, Endpoint, InheritedSockets, Listener};
use crate::metrics::{Counters, Metrics};
use crate::settings::ServerSettings;
use crate::site::{Router, Site};
use crate::thread::Serving;
use crate::tls::Certificates;

/// Longest wait of a shutdown for access logs that do not take their lines.
const LOG_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest wait of a reload for a busy thread, which switches later.
const SWITCH_TIMEOUT: Duration = Duration::from_secs(5);

/// The serving threads.
#[derive(Debug)]
pub struct RunningServer {
    threads: Vec<JoinHandle<()>>,
    handle: Arc<ServerHandle>,
}

/// Controls a running server, from any thread.
#[derive(Debug)]
pub struct ServerHandle {
    control: Arc<Control>,
    orders: Vec<UnboundedSender<ThreadReload>>,
    gate: Arc<Gate>,
    metrics: Arc<Metrics>,
    state: Mutex<ServerState>,
}

/// The current settings, sites and sockets.
#[derive(Debug)]
struct ServerState {
    settings: Arc<ServerSettings>,
    sites: Vec<Arc<Site>>,
    log: AccessLog,
    listeners: Vec<Listener>,
    /// Every log with lines of this server, to be flushed at the end.
    logs: Vec<AccessLog>,
}

impl RunningServer {
    pub(super) fn start(server: Server) -> io::Result<Self> {
        let threads = server.settings.threads;
        let counters = server
            .metrics
            .serve(server.sites.clone(), certificates(&server.settings));
        let router = Arc::new(Router::new(&server.sites));
        let control = Arc::new(Control::new(threads));
        let mut state = ServerState {
            settings: server.settings,
            sites: server.sites,
            log: server.log,
            listeners: server.listeners,
            logs: Vec::new(),
        };
        state.note_logs();
        let (mut orders, mut starts) = (Vec::with_capacity(threads), Vec::with_capacity(threads));
        for (number, counters) in counters.into_iter().enumerate() {
            let (order, ordered) = ThreadStart::orders();
            let start = ThreadStart {
                serving: state.serving(&router, counters),
                gate: Arc::clone(&server.gate),
                metrics: Arc::clone(&server.metrics),
                control: Arc::clone(&control),
                sockets: sockets_of_thread(&state.listeners, number, threads)?,
                orders: ordered,
                number,
            };
            // Made before any thread accepts connections, which could take the last descriptors.
            starts.push((start, ThreadStart::event_loop()?));
            orders.push(order);
        }
        let spawn = |(start, event_loop): (ThreadStart, _)| {
            let thread = std::thread::Builder::new().name(format!("haulier-{}", start.number));
            thread.spawn(move || start.run(&event_loop))
        };
        let handles = starts.into_iter().map(spawn).collect::<io::Result<_>>()?;
        let handle = Arc::new(ServerHandle {
            control,
            orders,
            gate: server.gate,
            metrics: server.metrics,
            state: Mutex::new(state),
        });
        Ok(Self {
            threads: handles,
            handle,
        })
    }

    /// A handle for changes at run time.
    #[must_use]
    pub fn handle(&self) -> Arc<ServerHandle> {
        Arc::clone(&self.handle)
    }

    /// Announces in every response that its connection will be closed, and goes on serving: balancers and clients have
    /// time to move.
    pub fn announce_end(&self) {
        self.handle.control.leaving.store(true, Ordering::SeqCst);
    }

    /// Stops accepting. Idle connections are closed, others after their current response.
    pub fn drain(&self) {
        self.handle.control.drain.store(true, Ordering::SeqCst);
        self.handle.close_listeners();
    }

    /// Number of open connections.
    #[must_use]
    pub fn active(&self) -> usize {
        self.handle.gate.open()
    }

    /// True once every thread has ended: after [`RunningServer::drain`] and the last connection.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Cuts the remaining connections off and ends.
    pub fn abort(self) {
        self.drain();
        self.handle.control.abort.store(true, Ordering::SeqCst);
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a serving thread had panicked");
            }
        }
        let end = now() + LOG_TIMEOUT;
        for log in &self.handle.lock().logs {
            log.flush(end.saturating_duration_since(now()));
        }
    }
}

impl ServerHandle {
    fn lock(&self) -> MutexGuard<'_, ServerState> {
        // Changes under the lock are single assignments at its end, so a panic leaves no half of one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bound addresses with their real ports; TLS addresses last.
    #[must_use]
    pub fn addresses(&self) -> Vec<Address> {
        self.lock()
            .listeners
            .iter()
            .map(|listener| listener.address.clone())
            .collect()
    }

    /// Time since the slowest thread last ran its tick, due ten times a second.
    #[must_use]
    pub fn lag(&self) -> Duration {
        self.control.lag()
    }

    /// Serves new settings from the next request on. Active requests keep the old ones, and no connection is closed.
    /// Addresses that stay keep their sockets, bound as they were. The number of threads stays, too.
    ///
    /// Returns when all threads have switched, which takes milliseconds; blocks until then.
    ///
    /// # Errors
    /// [`BindError`] with the first root that cannot be opened or address that cannot be bound; nothing has changed
    /// then.
    pub fn reload(&self, mut settings: ServerSettings, log: AccessLog) -> Result<(), BindError> {
        let mut state = self.lock();
        settings.threads = state.settings.threads;
        let sites = open_sites(&mut settings, &self.metrics)?;
        let mut new = bind_new(&state.listeners, &settings)?;
        let (stay, mut leave) = part(std::mem::take(&mut state.listeners), &settings);
        for listener in &mut leave {
            if let Some(heir) = new.iter_mut().find(|heir| heir.address == listener.address) {
                heir.file = listener.file.take();
            }
        }
        settings.https_port = https_port(stay.iter().chain(&new));
        let leave_addresses: Vec<Address> = leave.iter().map(|listener| listener.address.clone()).collect();
        self.gate
            .set_limits(settings.limits.connections, settings.limits.connections_per_ip);
        state.settings = Arc::new(settings);
        state.sites = sites;
        state.log = log;
        state.note_logs();
        self.switch(&state, &new, &leave_addresses);
        state.listeners = stay.into_iter().chain(new).collect();
        state.listeners.sort_by_key(|listener| listener.is_secure);
        Ok(())
    }

    /// Reopens the sites whose document root has become another directory; returns their names. A site whose new root
    /// cannot be opened keeps the old one until it can.
    ///
    /// Blocks.
    pub fn follow_roots(&self) -> Vec<String> {
        // The file system may be slow, so the lock is taken only if something changes.
        let sites = self.lock().sites.clone();
        let sites = sites.into_iter().filter(|site| !site.is_booted());
        let moved: Vec<Arc<Site>> = sites.filter(|site| site.has_moved()).collect();
        if moved.is_empty() {
            return Vec::new();
        }
        let mut state = self.lock();
        let settings = Arc::clone(&state.settings);
        let mut followed = Vec::new();
        for site in &mut state.sites {
            if !moved.iter().any(|moved| Arc::ptr_eq(moved, site)) {
                continue;
            }
            match Site::open(site.settings.clone(), super::shared_parts(&settings), site.series) {
                Ok(opened) => {
                    followed.push(opened.settings.name.clone());
                    *site = Arc::new(opened);
                }
                Err(error) => {
                    tracing::debug!(site = site.settings.name, %error, "cannot open the new document root");
                }
            }
        }
        if !followed.is_empty() {
            self.switch(&state, &[], &[]);
        }
        followed
    }

    /// Makes every thread serve `state`.
    fn switch(&self, state: &ServerState, new: &[Listener], leave: &[Address]) {
        let counters = self.metrics.serve(state.sites.clone(), certificates(&state.settings));
        let router = Arc::new(Router::new(&state.sites));
        let (done, all_done) = mpsc::channel();
        let threads = self.orders.len();
        for (number, (orders, counters)) in self.orders.iter().zip(counters).enumerate() {
            // If descriptors run out here, the other threads still listen there.
            let listen = sockets_of_thread(new, number, threads).unwrap_or_else(|error| {
                tracing::error!(%error, thread = number, "this thread does not listen on the new addresses");
                Vec::new()
            });
            let order = ThreadReload {
                serving: state.serving(&router, counters),
                listen,
                leave: leave.to_vec(),
                done: done.clone(),
            };
            // A thread that has ended did so with the server.
            let _ = orders.send(order);
        }
        drop(done);
        // Nothing is sent: the channel closes when the last order is done.
        if all_done.recv_timeout(SWITCH_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("a serving thread is too busy to take the new configuration; it does so next");
        }
    }

    /// Copies of the sockets of every address, for another process.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn sockets(&self) -> io::Result<Vec<InheritedSockets>> {
        let state = self.lock();
        let copy = |listener: &Listener| {
            let sockets = listener.sockets.iter().map(OwnedFd::try_clone);
            Ok(InheritedSockets {
                address: listener.address.clone(),
                is_secure: Some(listener.is_secure),
                sockets: sockets.collect::<io::Result<_>>()?,
            })
        };
        state.listeners.iter().map(copy).collect()
    }

    /// Takes over the socket files, since the process that bound them has left.
    pub fn claim(&self) {
        for listener in &mut self.lock().listeners {
            if let Some(file) = &mut listener.file {
                file.claim();
            }
        }
    }

    /// Stops accepting and leaves the sockets to another process. Connections in use get one more response, which
    /// announces their end.
    pub fn yield_sockets(&self) {
        for listener in &mut self.lock().listeners {
            if let Some(file) = listener.file.take() {
                file.give_away();
            }
        }
        self.control.gentle.store(true, Ordering::SeqCst);
    }

    /// Threads hold copies: a socket left open here would keep queueing connections.
    fn close_listeners(&self) {
        for listener in &mut self.lock().listeners {
            listener.sockets.clear();
        }
    }
}

impl ServerState {
    fn serving(&self, router: &Arc<Router>, counters: Arc<Counters>) -> Serving {
        Serving {
            settings: Arc::clone(&self.settings),
            router: Arc::clone(router),
            log: self.log.clone(),
            counters,
        }
    }

    fn note_logs(&mut self) {
        let of_sites = self.sites.iter().filter_map(|site| site.settings.log.as_ref());
        let now: Vec<AccessLog> = of_sites.chain([&self.log]).cloned().collect();
        for log in now {
            if !self.logs.iter().any(|known| known.is_same_place(&log)) {
                self.logs.push(log);
            }
        }
    }
}

/// The certificates of a server with TLS.
fn certificates(settings: &ServerSettings) -> Option<Arc<Certificates>> {
    let tls = settings.tls.as_ref()?;
    Some(Arc::clone(tls.acceptor.certificates()))
}

fn sockets_of_thread(listeners: &[Listener], number: usize, threads: usize) -> io::Result<Vec<Endpoint>> {
    let mut sockets = Vec::new();
    for listener in listeners {
        sockets.extend(listener.of_thread(number, threads)?);
    }
    Ok(sockets)
}

/// Binds the new addresses.
fn bind_new(listeners: &[Listener], settings: &ServerSettings) -> Result<Vec<Listener>, BindError> {
    let mut known: Vec<&Listener> = listeners.iter().collect();
    let mut new = Vec::new();
    for (address, is_secure) in configured(settings) {
        match known.iter().position(|listener| listener.is_for(address, is_secure)) {
            Some(place) => drop(known.swap_remove(place)),
            None => new.push((address, is_secure)),
        }
    }
    let port = |address: &Address| address.internet().map(|address| address.port());
    new.into_iter()
        .map(|(configured, is_secure)| {
            // A change of TLS keeps the sockets, and the connections in their queues.
            if let Some(listener) = known.iter().find(|listener| listener.is_at(configured)) {
                return listener.with_tls(configured, is_secure);
            }
            // An address that is leaving may conflict with a new one: `127.0.0.1:80` with `:80`.
            let in_the_way = known.iter().any(|listener| port(&listener.address) == port(configured));
            Listener::bind(
                configured,
                is_secure,
                settings.reuse_port || in_the_way,
                settings,
                &mut Vec::new(),
            )
        })
        .collect()
}

/// The listeners that stay, and those that leave.
fn part(mut listeners: Vec<Listener>, settings: &ServerSettings) -> (Vec<Listener>, Vec<Listener>) {
    let mut stay = Vec::new();
    for (address, is_secure) in configured(settings) {
        if let Some(place) = listeners
            .iter()
            .position(|listener| listener.is_for(address, is_secure))
        {
            stay.push(listeners.remove(place));
        }
    }
    (stay, listeners)
}
