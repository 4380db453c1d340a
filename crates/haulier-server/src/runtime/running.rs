//! A server whose threads run: what is served is exchanged, roots are followed, sockets are handed over, all while
//! requests are answered.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;

use super::event_loop::{Control, ThreadReload, Start};
use super::{Server, asked, https_port, open_sites};
use crate::access_log::AccessLog;
use crate::clock::now;
use crate::io::Address;
use crate::io::Gate;
use crate::listen::{BindError, Endpoint, Inherited, Listener};
use crate::metrics::{Counters, Metrics};
use crate::settings::ServerSettings;
use crate::site::{Router, Site};
use crate::thread::Serving;
use crate::tls::Certificates;

/// How long a stop waits for logs that do not take their lines.
const LOG_PATIENCE: Duration = Duration::from_secs(1);
/// How long a change waits for a thread that is busy with something else; it will find the order afterwards.
const SWITCH_PATIENCE: Duration = Duration::from_secs(5);

/// Threads that serve.
#[derive(Debug)]
pub struct RunningServer {
    threads: Vec<JoinHandle<()>>,
    handle: Arc<ServerHandle>,
}

/// What can be done to a running server, from any thread.
#[derive(Debug)]
pub struct ServerHandle {
    control: Arc<Control>,
    orders: Vec<UnboundedSender<ThreadReload>>,
    gate: Arc<Gate>,
    metrics: Arc<Metrics>,
    state: Mutex<ServerState>,
}

/// What is served now.
#[derive(Debug)]
struct ServerState {
    settings: Arc<ServerSettings>,
    sites: Vec<Arc<Site>>,
    log: AccessLog,
    listeners: Vec<Listener>,
    /// Every log that something was written to, for the end.
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
        let (mut orders, mut handles) = (Vec::with_capacity(threads), Vec::with_capacity(threads));
        for (number, counters) in counters.into_iter().enumerate() {
            let (order, ordered) = Start::orders();
            let start = Start {
                serving: state.serving(&router, counters),
                gate: Arc::clone(&server.gate),
                metrics: Arc::clone(&server.metrics),
                control: Arc::clone(&control),
                sockets: sockets_of_thread(&state.listeners, number, threads)?,
                orders: ordered,
                number,
            };
            let thread = std::thread::Builder::new().name(format!("haulier-{number}"));
            handles.push(thread.spawn(move || start.run())?);
            orders.push(order);
        }
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

    /// For changes while it runs.
    #[must_use]
    pub fn handle(&self) -> Arc<ServerHandle> {
        Arc::clone(&self.handle)
    }

    /// Serves on, and says with every answer that the connection ends with it: balancers and clients have time to go
    /// elsewhere.
    pub fn announce_end(&self) {
        self.handle.control.leaving.store(true, Ordering::SeqCst);
    }

    /// Stops accepting; idle connections are closed, others after their current response.
    pub fn drain(&self) {
        self.handle.control.drain.store(true, Ordering::SeqCst);
        self.handle.close_listeners();
    }

    /// Open connections.
    #[must_use]
    pub fn active(&self) -> usize {
        self.handle.gate.open()
    }

    /// Whether every thread has ended: after [`RunningServer::drain`], once the last connection is closed.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Cuts what is left and ends.
    pub fn abort(self) {
        self.drain();
        self.handle.control.abort.store(true, Ordering::SeqCst);
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a serving thread had panicked");
            }
        }
        let end = now() + LOG_PATIENCE;
        for log in &self.handle.lock().logs {
            log.flush(end.saturating_duration_since(now()));
        }
    }
}

impl ServerHandle {
    fn lock(&self) -> MutexGuard<'_, ServerState> {
        // What is changed under the lock is changed at once, at its end.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bound addresses, with their real ports; those that want TLS last.
    #[must_use]
    pub fn addresses(&self) -> Vec<Address> {
        self.lock()
            .listeners
            .iter()
            .map(|listener| listener.address.clone())
            .collect()
    }

    /// How long ago the thread that is furthest behind last looked round; they all do ten times a second.
    #[must_use]
    pub fn lag(&self) -> Duration {
        self.control.lag()
    }

    /// Serves what these settings say, from the next request on; requests that run go on with what they began with, and
    /// no connection is closed. Addresses that are listened on already keep their sockets. The number of threads stays,
    /// and so does how sockets are bound that are there already.
    ///
    /// Returns when all threads have switched, which takes milliseconds; not to be called where blocking hurts.
    ///
    /// # Errors
    /// [`BindError`] with the first root or address that cannot be had; nothing has changed then.
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

    /// Opens the sites anew whose document root is another directory by now; gives their names. A site whose new root
    /// cannot be opened keeps the old one until it can.
    ///
    /// Not to be called where blocking hurts.
    pub fn follow_roots(&self) -> Vec<String> {
        // A file system may take long to answer: the lock is taken only if there is something to change.
        let sites = self.lock().sites.clone();
        let moved: Vec<Arc<Site>> = sites.into_iter().filter(|site| site.has_moved()).collect();
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
                    tracing::debug!(site = site.settings.name, %error, "the new document root cannot be opened");
                }
            }
        }
        if !followed.is_empty() {
            self.switch(&state, &[], &[]);
        }
        followed
    }

    /// Has every thread serve what `state` says.
    fn switch(&self, state: &ServerState, new: &[Listener], leave: &[Address]) {
        let counters = self.metrics.serve(state.sites.clone(), certificates(&state.settings));
        let router = Arc::new(Router::new(&state.sites));
        let (done, all_done) = mpsc::channel();
        let threads = self.orders.len();
        for (number, (orders, counters)) in self.orders.iter().zip(counters).enumerate() {
            // Without descriptors the other threads listen there.
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
            // A thread that is gone has ended with the server.
            let _ = orders.send(order);
        }
        drop(done);
        // Nothing is sent: the channel closes when the last order is obeyed.
        if all_done.recv_timeout(SWITCH_PATIENCE) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("a serving thread is too busy to take the new configuration; it does so next");
        }
    }

    /// The sockets of every address, for another process to listen on as well.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn sockets(&self) -> io::Result<Vec<Inherited>> {
        let state = self.lock();
        let copy = |listener: &Listener| {
            let sockets = listener.sockets.iter().map(OwnedFd::try_clone);
            Ok(Inherited {
                address: listener.address.clone(),
                is_secure: Some(listener.is_secure),
                sockets: sockets.collect::<io::Result<_>>()?,
            })
        };
        state.listeners.iter().map(copy).collect()
    }

    /// The process that bound the inherited sockets has left them to this one.
    pub fn claim(&self) {
        for listener in &mut self.lock().listeners {
            if let Some(file) = &mut listener.file {
                file.claim();
            }
        }
    }

    /// Another process listens on the sockets: this one accepts no more and leaves them where they are. Connections
    /// that are being used get another answer, which says that it is the last.
    pub fn yield_sockets(&self) {
        for listener in &mut self.lock().listeners {
            if let Some(file) = listener.file.take() {
                file.give_away();
            }
        }
        self.control.gentle.store(true, Ordering::SeqCst);
    }

    /// Threads hold copies: a socket that is not closed here as well would go on taking connections.
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

/// Of a server with TLS.
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

/// Binds the addresses that nobody here listens on yet.
fn bind_new(listeners: &[Listener], settings: &ServerSettings) -> Result<Vec<Listener>, BindError> {
    let mut known: Vec<&Listener> = listeners.iter().collect();
    let mut new = Vec::new();
    for (address, is_secure) in asked(settings) {
        match known.iter().position(|listener| listener.is_for(address, is_secure)) {
            Some(place) => drop(known.swap_remove(place)),
            None => new.push((address, is_secure)),
        }
    }
    let port = |address: &Address| address.internet().map(|address| address.port());
    new.into_iter()
        .map(|(asked, is_secure)| {
            // With TLS from now on, or without: the address keeps its sockets, and with them who waits there.
            if let Some(listener) = known.iter().find(|listener| listener.is_at(asked)) {
                return listener.turned(asked, is_secure);
            }
            // What leaves may stand in the way of what comes: `127.0.0.1:80` of `:80`.
            let in_the_way = known.iter().any(|listener| port(&listener.address) == port(asked));
            Listener::bind(
                asked,
                is_secure,
                settings.reuse_port || in_the_way,
                settings,
                &mut Vec::new(),
            )
        })
        .collect()
}

/// The listeners that stay, and those whose address nobody asks for any more.
fn part(mut listeners: Vec<Listener>, settings: &ServerSettings) -> (Vec<Listener>, Vec<Listener>) {
    let mut stay = Vec::new();
    for (address, is_secure) in asked(settings) {
        if let Some(place) = listeners
            .iter()
            .position(|listener| listener.is_for(address, is_secure))
        {
            stay.push(listeners.remove(place));
        }
    }
    (stay, listeners)
}
