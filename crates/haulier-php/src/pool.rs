//! The pool: start, send, status, stop.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use haulier_http::{Presence, is_live};
use haulier_proto::fastcgi::CgiHead;

use crate::error::{AttemptError, BadResponse, PoolError, StartError};
use crate::external::{ExternalServer, ping_params};
use crate::fastcgi_exchange::FastCgiExchange;
use crate::lease::Lease;
use crate::maintenance::Maintenance;
use crate::process_source::ProcessSource;
use crate::processes::Processes;
use crate::request::{Body, Request};
use crate::response::{Response, Silence};
use crate::running::{LISTED_AFTER, RunningRequest};
use crate::settings::PoolSettings;
use crate::shared_pool::{SharedPool, TracedRequest};
use crate::spawner::Spawner;
use crate::status::{PoolStatus, WorkerStatus, workers};

/// The script that [`Pool::warm`] requests; PHP answers 404.
const NO_SCRIPT: &str = "/haulier/is-this-on";

/// FCGI_OVERLOADED (FastCGI 5.5): the application has not begun the request.
const OVERLOADED: u8 = 2;

/// PHP workers with the queue in front of them, shared by all threads. Dropping it ends the workers.
#[derive(Debug)]
pub struct Pool {
    name: Arc<str>,
    shared: Arc<SharedPool>,
    source: ProcessSource,
    maintenance: Maintenance,
}

impl Pool {
    /// Starts php-cgi, or registers the external servers. Returns once php-cgi was started, which takes milliseconds;
    /// the first requests wait while it loads.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(settings: PoolSettings) -> Result<Arc<Self>, StartError> {
        Self::start_by(settings, None)
    }

    /// Like [`start`](Self::start), but through a spawner, which uses the account of the settings.
    ///
    /// # Errors
    /// See [`StartError`]; `NotAgreed` if the spawner's list does not have these settings.
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

    /// The name of the pool, shared for logs that outlive it.
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

    /// The time of the start.
    pub fn started(&self) -> Instant {
        self.shared.started
    }

    /// Status of the pool.
    pub fn status(&self) -> PoolStatus {
        PoolStatus::of(&self.shared)
    }

    /// The external servers of the pool; empty for supervised PHP.
    pub fn servers(&self) -> Vec<ExternalServer> {
        self.source.servers(&self.shared)
    }

    /// Requests that have been running for a while, the longest-running first.
    pub fn running(&self) -> Vec<RunningRequest> {
        self.shared.running.list()
    }

    /// The last slow requests whose calls were read, oldest first.
    pub fn traced(&self) -> Vec<TracedRequest> {
        self.shared.traced()
    }

    /// Status of every worker used so far: long-running first, idle last.
    pub fn workers(&self) -> Vec<WorkerStatus> {
        workers(&self.shared)
    }

    /// Memory of the supervised php-cgi processes in bytes, shared memory counted once; 0 while they start, or if the
    /// system does not report it. `None` for external servers.
    pub fn memory(&self) -> Option<u64> {
        self.shared.processes.as_ref().map(Processes::memory)
    }

    /// The last lines that PHP has written to its stderr outside of requests, as while it booted a script.
    pub fn last_words(&self) -> String {
        self.shared.stderr.tail(&[], self.shared.started)
    }

    /// Sends one request: waits for a worker, sends, and waits for the response head. Interim heads (103) go to
    /// `on_interim` as they arrive. To be called in a tokio runtime with I/O and time.
    ///
    /// A request is repeated only if the worker had gone: it had taken no byte of the request, or the request is
    /// idempotent and no byte of a response arrived. It is repeated once, and with several servers once more on another
    /// one. A server that refuses the connection is skipped for every request.
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
                    self.note_retry(&error, &lease, request);
                    let again = upstream
                        .lease_again(lease.into_inner(), request.lease_request())
                        .await?;
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
            AttemptError::BadResponse(BadResponse::Refused(status)) => *status == OVERLOADED,
            _ => false,
        };
        is_harmless && !self.shared.upstream.is_stopping()
    }

    fn note_retry(&self, error: &AttemptError, lease: &Lease, request: &Request<'_>) {
        self.shared.count(|counts| counts.retries += 1);
        let (pool, request) = (self.shared.settings.name.as_str(), (request.label)());
        if matches!(error, AttemptError::BadResponse(_)) {
            tracing::debug!(
                pool,
                pid = lease.pid(),
                request,
                "the PHP worker ends, another one gets the request"
            );
            return;
        }
        let (pid, ended) = lease.find_ended();
        let ended = ended.map(tracing::field::display);
        tracing::warn!(
            pool,
            pid,
            ended,
            request,
            "the PHP worker had gone, the request is repeated"
        );
    }

    /// Waits until PHP answers one request, for a script that does not exist, so that no script of the user runs. If
    /// workers boot a script, each of them must answer one. External servers get no such request. To be called in a
    /// tokio runtime with I/O and time.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn warm(&self) -> Result<(), PoolError> {
        if !self.source.needs_warming() {
            return Ok(());
        }
        let own = self.shared.settings.kind.supervised();
        let booting = own.filter(|own| own.boots_script()).map_or(1, |own| own.workers);
        let mut questions: Vec<_> = (0..booting).map(|_| Box::pin(self.ask())).collect();
        // All at a time: one worker could answer them all one after the other.
        poll_fn(|context| {
            let mut number = 0;
            while let Some(question) = questions.get_mut(number) {
                match question.as_mut().poll(context) {
                    Poll::Ready(Ok(())) => drop(questions.swap_remove(number)),
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => number += 1,
                }
            }
            if questions.is_empty() {
                Poll::Ready(Ok(()))
            } else {
                Poll::Pending
            }
        })
        .await
    }

    /// Sends a request for a script that does not exist.
    async fn ask(&self) -> Result<(), PoolError> {
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
        while response.piece().await?.is_some() {}
        Ok(())
    }

    /// Stops the pool: waiting requests get `Stopped`, running requests have `grace` to finish, then the workers are
    /// ended.
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
    lease.begin_work();
    let mut begun = tokio::time::Instant::now();
    // One timer serves twice: first to list a slow request, then to end it.
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
            // The timeout counts from the last byte that PHP took.
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

fn response(
    head: CgiHead,
    exchange: FastCgiExchange,
    mut lease: Lease,
    queued: Duration,
    request: &Request<'_>,
) -> Response {
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
