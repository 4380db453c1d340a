//! The pool as the server sees it: start, send, status, stop.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use haulier_http::{Presence, is_live};
use haulier_proto::fastcgi::CgiHead;

use crate::error::{AttemptError, PoolError, StartError};
use crate::fastcgi_exchange::FastCgiExchange;
use crate::external::{ExternalServer, ping_params};
use crate::lease::Lease;
use crate::maintenance::Maintenance;
use crate::processes::Processes;
use crate::request::{Body, Request};
use crate::response::{Response, Silence};
use crate::running::{LISTED_AFTER, RunningRequest};
use crate::settings::PoolSettings;
use crate::shared_pool::SharedPool;
use crate::process_source::ProcessSource;
use crate::spawner::Spawner;
use crate::status::{PoolStatus, WorkerStatus, workers};

/// The script that [`Pool::warm`] requests; PHP answers 404.
const NO_SCRIPT: &str = "/haulier/is-this-on";

/// PHP workers and the queue in front of them. Shared by all threads; dropping it ends the workers.
#[derive(Debug)]
pub struct Pool {
    name: Arc<str>,
    shared: Arc<SharedPool>,
    source: ProcessSource,
    maintenance: Maintenance,
}

impl Pool {
    /// Starts php-cgi, or notes the external servers. Returns when php-cgi was started once, which takes milliseconds;
    /// the first requests wait while it loads.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(settings: PoolSettings) -> Result<Arc<Self>, StartError> {
        Self::start_by(settings, None)
    }

    /// Like [`start`](Self::start) through a spawner, as the account the settings name.
    ///
    /// # Errors
    /// See [`StartError`]; `NotAgreed` if these settings are not in the spawner's list.
    pub fn start_through(settings: PoolSettings, spawner: &Arc<Spawner>) -> Result<Arc<Self>, StartError> {
        Self::start_by(settings, Some(spawner))
    }

    fn start_by(settings: PoolSettings, spawner: Option<&Arc<Spawner>>) -> Result<Arc<Self>, StartError> {
        let (shared, source) = ProcessSource::start(settings, spawner)?;
        let maintenance = Maintenance::start(&shared).map_err(StartError::Thread)?;
        let name = shared.settings.name.as_str().into();
        Ok(Arc::new(Self {
            name,
            shared,
            source,
            maintenance,
        }))
    }

    /// The name of the pool, for logs that outlive it.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The settings the pool was started with.
    pub fn settings(&self) -> &PoolSettings {
        &self.shared.settings
    }

    /// The cookie whose values each belong to one of the servers.
    pub fn affinity_cookie(&self) -> Option<&str> {
        self.shared.settings.kind.affinity_cookie()
    }

    /// When it was started.
    pub fn started(&self) -> Instant {
        self.shared.started
    }

    /// The state of the pool now.
    pub fn status(&self) -> PoolStatus {
        PoolStatus::of(&self.shared)
    }

    /// The servers of a pool that another program runs; none for a pool of our own.
    pub fn servers(&self) -> Vec<ExternalServer> {
        self.source.servers(&self.shared)
    }

    /// Requests PHP has been at work on for a while, the longest-running first.
    pub fn running(&self) -> Vec<RunningRequest> {
        self.shared.running.list()
    }

    /// Status of every worker started so far: long-running first, idle last.
    pub fn workers(&self) -> Vec<WorkerStatus> {
        workers(&self.shared)
    }

    /// Memory of our own php-cgi processes, bytes, with what they share counted once; 0 while they start, and where the
    /// system does not tell. `None` for a pool that another program runs.
    pub fn memory(&self) -> Option<u64> {
        self.shared.processes.as_ref().map(Processes::memory)
    }

    /// Carries one request: waits for a worker, sends, and waits for the response head. Interim heads (103) are given
    /// to `on_interim` as they come. To be called in a tokio runtime with I/O and time.
    ///
    /// A request is sent again only if the worker was gone before: nothing of it was taken, or it is idempotent and no
    /// byte of a response came. Once, and where there are several servers once more on another one. A server that takes
    /// no connection is passed over for every request.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn send(
        &self,
        request: &Request<'_>,
        on_interim: &mut dyn FnMut(&CgiHead),
    ) -> Result<Response, PoolError> {
        let upstream = &self.shared.upstream;
        let lease = upstream.lease(request.lease_request(), Instant::now()).await?;
        let queued = lease.queued();
        let mut lease = Lease::new(Arc::clone(&self.shared), lease);
        let retries = self.source.retries(&self.shared);
        let mut sent = 0;
        loop {
            let mut exchange = self.source.exchange(&self.shared.settings);
            match attempt(&mut lease, &mut exchange, request, on_interim).await {
                Ok(head) => return Ok(response(head, exchange, lease, queued, request)),
                Err(error) if sent < retries && self.may_retry(&error, request, &exchange) => {
                    sent += 1;
                    self.note_retry(&lease, request);
                    let again = upstream.lease_again(lease.into_inner(), request.lease_request()).await?;
                    lease = Lease::new(Arc::clone(&self.shared), again);
                }
                Err(error) => {
                    let (stderr, label) = (exchange.take_stderr(), (request.label)());
                    return Err(lease.give_up(error, &stderr, &label));
                }
            }
        }
    }

    fn may_retry(&self, error: &AttemptError, request: &Request<'_>, exchange: &FastCgiExchange) -> bool {
        let is_harmless = match error {
            AttemptError::Unsent(_) => true,
            AttemptError::HungUp(_) => request.idempotent && !exchange.answered(),
            _ => false,
        };
        is_harmless && !self.shared.upstream.is_stopping()
    }

    fn note_retry(&self, lease: &Lease, request: &Request<'_>) {
        self.shared.count(|counts| counts.retries += 1);
        let (pool, request) = (self.shared.settings.name.as_str(), (request.label)());
        let (pid, ended) = lease.find_ended();
        let ended = ended.map(tracing::field::display);
        tracing::warn!(
            pool,
            pid,
            ended,
            request,
            "PHP worker was gone, the request is sent again"
        );
    }

    /// Waits until PHP answers one request for a script that does not exist, so that no script of the user runs. A pool that
    /// another program runs is not asked. To be called in a tokio runtime with I/O and time.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn warm(&self) -> Result<(), PoolError> {
        if !self.source.needs_warming() {
            return Ok(());
        }
        let params = ping_params(NO_SCRIPT).expect("a short path fits one record");
        let request = Request {
            params: &params,
            body: Body::Empty,
            idempotent: true,
            affinity: None,
            client: &|| Presence::Here,
            label: &|| "the first request, for a script that does not exist".to_owned(),
        };
        let mut response = self.send(&request, &mut |_| {}).await?;
        while response.body().await?.is_some() {}
        Ok(())
    }

    /// Ends the pool: waiting requests get `Stopped`, running requests have `grace` to finish, then the workers end.
    pub async fn stop(&self, grace: Duration) {
        let upstream = &self.shared.upstream;
        upstream.stop();
        if tokio::time::timeout(grace, upstream.drained()).await.is_err() {
            let (pool, left) = (self.shared.settings.name.as_str(), upstream.load().busy);
            tracing::warn!(pool, left, "requests were still running when the pool ended");
        }
        self.maintenance.stop();
        self.source.stop().await;
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.upstream.stop();
    }
}

/// Sends the request and waits for the final head.
async fn attempt(
    lease: &mut Lease,
    exchange: &mut FastCgiExchange,
    request: &Request<'_>,
    on_interim: &mut dyn FnMut(&CgiHead),
) -> Result<CgiHead, AttemptError> {
    let timeout = lease.timeout();
    exchange.start(lease.begin_use(), request)?;
    if exchange.has_unsent() {
        lease.watch_writes().map_err(AttemptError::Connection)?;
    }
    lease.find_peer();
    let mut begun = tokio::time::Instant::now();
    // One timer serves twice: first to list a request that takes long, then to end it.
    let mut deadline = pin!(tokio::time::sleep(timeout.min(LISTED_AFTER)));
    loop {
        let sending = exchange.has_unsent();
        let step = poll_fn(|cx| match exchange.poll_step(cx, lease.connection(), None) {
            Poll::Pending => deadline.as_mut().poll(cx).map(|()| Err(AttemptError::TimedOut)),
            step => step,
        });
        match step.await {
            Err(AttemptError::TimedOut) if begun.elapsed() < timeout => {
                lease.find_peer();
                lease.list(request.label);
                deadline.as_mut().reset(begun + timeout);
                continue;
            }
            step => _ = step?,
        }
        if sending {
            // The timeout runs from the last byte that PHP took.
            begun = tokio::time::Instant::now();
            let next = if lease.is_listed() {
                timeout
            } else {
                timeout.min(LISTED_AFTER)
            };
            deadline.as_mut().reset(begun + next);
        }
        for head in exchange.take_heads() {
            if !head.is_interim() {
                return Ok(head);
            }
            on_interim(&head);
        }
    }
}

fn response(head: CgiHead, exchange: FastCgiExchange, mut lease: Lease, queued: Duration, request: &Request<'_>) -> Response {
    lease.find_peer_finally();
    let label = if exchange.is_complete() {
        String::new()
    } else {
        let label = (request.label)();
        lease.list(|| label.clone());
        label
    };
    let (taken, pid) = (lease.taken(), lease.pid());
    let may_stall = !exchange.is_complete() && !head.fields().any(|(name, value)| is_live(name, value));
    let silence = may_stall.then(|| Silence::new(lease.body_timeout()));
    let mut response = Response {
        head,
        exchange,
        lease: Some(lease),
        label,
        queued,
        taken,
        worker_time: None,
        silence,
        pid,
        length: None,
        error: None,
    };
    response.settle();
    response
}
