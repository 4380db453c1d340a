//! One thread and one event loop per core.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::task::{JoinSet as LocalTasks, LocalSet};

use crate::access_log::AccessLog;
use crate::filter::compress::dictionary::shell;
use crate::handler::static_files::FileCache;
use crate::listen::{self, Address, BindError, Endpoint, Gate, Listener, SocketFile};
use crate::metrics::Metrics;
use crate::route::{Router, Site};
use crate::settings::{ServerSettings, SiteSettings};
use crate::thread::{Clock, Thread, now};

/// A server whose sockets are bound. Connections wait in the kernel until [`Server::run`].
#[derive(Debug)]
pub struct Server {
    settings: Arc<ServerSettings>,
    router: Arc<Router>,
    gate: Arc<Gate>,
    metrics: Arc<Metrics>,
    listeners: Vec<Listener>,
    log: AccessLog,
}

impl Server {
    /// Opens the document roots and binds all addresses.
    ///
    /// # Errors
    /// [`BindError`] with the first root or address that cannot be had.
    pub fn bind(mut settings: ServerSettings, log: AccessLog) -> Result<Self, BindError> {
        let sites = open_sites(std::mem::take(&mut settings.sites))?;
        let plain = settings.listen.iter().map(|address| Listener::bind(address, &settings));
        let secure = settings
            .listen_tls
            .iter()
            .map(|address| Listener::bind(address, &settings).map(Listener::secured));
        let listeners: Vec<Listener> = plain.chain(secure).collect::<Result<_, _>>()?;
        settings.https_port = listeners
            .iter()
            .filter(|listener| listener.is_secure)
            .find_map(|listener| Some(listener.address.internet()?.port()));
        let router = Arc::new(Router::new(&sites));
        let gate = Gate::new(settings.limits.connections, settings.limits.connections_per_ip);
        let certificates = settings.tls.as_ref().map(|tls| Arc::clone(tls.acceptor.certificates()));
        let metrics = Metrics::new(sites, Arc::clone(&gate), certificates, settings.threads.max(1));
        Ok(Self {
            router,
            gate,
            metrics,
            settings: Arc::new(settings),
            listeners,
            log,
        })
    }

    /// The bound addresses, with their real ports; those that want TLS last.
    #[must_use]
    pub fn addresses(&self) -> Vec<Address> {
        self.listeners.iter().map(|listener| listener.address.clone()).collect()
    }

    /// Those of them whose connections begin with TLS.
    #[must_use]
    pub fn secure_addresses(&self) -> Vec<Address> {
        let secure = self.listeners.iter().filter(|listener| listener.is_secure);
        secure.map(|listener| listener.address.clone()).collect()
    }

    /// What the server will have counted; it may outlive the server.
    #[must_use]
    pub fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.metrics)
    }

    /// Starts the threads.
    ///
    /// # Errors
    /// A thread or its event loop could not be made.
    pub fn run(mut self) -> std::io::Result<RunningServer> {
        let control = Arc::new(Control::default());
        let mut threads = Vec::with_capacity(self.settings.threads);
        for number in 0..self.settings.threads.max(1) {
            let start = Start {
                settings: Arc::clone(&self.settings),
                router: Arc::clone(&self.router),
                gate: Arc::clone(&self.gate),
                log: self.log.clone(),
                metrics: Arc::clone(&self.metrics),
                control: Arc::clone(&control),
                sockets: self.sockets_of_a_thread(),
                number,
            };
            let thread = std::thread::Builder::new().name(format!("haulier-{number}"));
            threads.push(thread.spawn(move || start.run())?);
        }
        let logs = self.router.sites().filter_map(|site| site.settings.log.clone());
        Ok(RunningServer {
            threads,
            control,
            gate: self.gate,
            logs: logs.chain([self.log]).collect(),
            _socket_files: self
                .listeners
                .into_iter()
                .filter_map(|listener| listener.file)
                .collect(),
        })
    }

    fn sockets_of_a_thread(&mut self) -> Vec<Endpoint> {
        self.listeners
            .iter_mut()
            .filter_map(|listener| {
                Some(Endpoint {
                    socket: listener.sockets.pop()?,
                    address: listener.address.clone(),
                    is_secure: listener.is_secure,
                })
            })
            .collect()
    }
}

fn open_sites(settings: Vec<SiteSettings>) -> Result<Vec<Arc<Site>>, BindError> {
    let numbered = settings.into_iter().zip(0..);
    numbered
        .map(|(settings, number)| {
            let (site, root) = (settings.name.clone(), settings.root.clone());
            Site::open(settings, number)
                .map(Arc::new)
                .map_err(|source| BindError::Root { site, root, source })
        })
        .collect()
}

/// What the threads are told from outside.
#[derive(Debug, Default)]
struct Control {
    drain: AtomicBool,
    abort: AtomicBool,
}

/// Threads that serve.
#[derive(Debug)]
pub struct RunningServer {
    threads: Vec<JoinHandle<()>>,
    control: Arc<Control>,
    gate: Arc<Gate>,
    logs: Vec<AccessLog>,
    /// Removed with the server.
    _socket_files: Vec<SocketFile>,
}

impl RunningServer {
    /// Stops accepting; idle connections are closed, others after their current response.
    pub fn drain(&self) {
        self.control.drain.store(true, Ordering::SeqCst);
    }

    /// Open connections.
    #[must_use]
    pub fn active(&self) -> usize {
        self.gate.open()
    }

    /// Whether every thread has ended: after [`RunningServer::drain`], once the last connection is closed.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Waits for the threads, at most `grace`; `false` if connections were cut then.
    pub fn join_within(self, grace: Duration) -> bool {
        let end = now() + grace;
        while !self.is_finished() && now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        let finished = self.is_finished();
        self.abort();
        finished
    }

    /// Cuts what is left and ends.
    pub fn abort(self) {
        self.control.drain.store(true, Ordering::SeqCst);
        self.control.abort.store(true, Ordering::SeqCst);
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a serving thread had panicked");
            }
        }
        let end = now() + LOG_PATIENCE;
        for log in &self.logs {
            log.flush(end.saturating_duration_since(now()));
        }
    }
}

/// How long a stop waits for logs that do not take their lines.
const LOG_PATIENCE: Duration = Duration::from_secs(1);

/// What a thread needs to begin.
struct Start {
    settings: Arc<ServerSettings>,
    router: Arc<Router>,
    gate: Arc<Gate>,
    log: AccessLog,
    metrics: Arc<Metrics>,
    control: Arc<Control>,
    sockets: Vec<Endpoint>,
    number: usize,
}

/// Threads for calls that may block: reading cold files.
const BLOCKING_THREADS: usize = 4;

impl Start {
    fn run(self) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(BLOCKING_THREADS)
            .thread_keep_alive(Duration::from_secs(10))
            .build();
        match runtime {
            Ok(runtime) => LocalSet::new().block_on(&runtime, self.serve()),
            Err(error) => tracing::error!(%error, "cannot make an event loop"),
        }
    }

    async fn serve(self) {
        let thread = Thread::new(
            self.settings,
            self.router,
            self.gate,
            self.log,
            self.metrics,
            self.number,
        );
        let mut accepting = LocalTasks::new();
        for endpoint in self.sockets {
            accepting.spawn_local(listen::accept(Rc::clone(&thread), endpoint));
        }
        if self.number == 0 {
            tokio::task::spawn_local(shell::keep_fresh(Rc::clone(&thread)));
        }
        let mut aged = now();
        let mut ticks = tokio::time::interval(Clock::TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            thread.clock.tick();
            thread.deadlines.scan(thread.clock.coarse(), &thread.settings.limits);
            if thread.clock.coarse().saturating_duration_since(aged) > FileCache::AGE {
                aged = thread.clock.coarse();
                thread.files.age();
            }
            if self.control.abort.load(Ordering::SeqCst) {
                return;
            }
            if self.control.drain.load(Ordering::SeqCst) {
                thread.drain();
                while accepting.try_join_next().is_some() {}
                if accepting.is_empty() && thread.deadlines.is_empty() {
                    return;
                }
            }
        }
    }
}
