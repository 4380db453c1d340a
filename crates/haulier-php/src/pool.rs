//! The pool as the server sees it: start, send, status, stop.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::{Duration, Instant};

use haulier_proto::fastcgi::CgiHead;

use crate::error::{PoolError, StartError};
use crate::exchange::{Exchange, Failure, StartFailure};
use crate::idle::IdleCloser;
use crate::lease::Lease;
use crate::memory;
use crate::request::Request;
use crate::response::Response;
use crate::running::{NOTED_AFTER, RunningRequest};
use crate::settings::{PoolKind, PoolSettings};
use crate::state::{Asked, PoolStatus, ServerStatus, Shared};
use crate::supervisor::Supervisor;

/// PHP workers and the queue in front of them. Shared by all threads; dropping it ends the workers.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<Shared>,
    keeper: Keeper,
}

/// What looks after the pool while no request does.
#[derive(Debug)]
enum Keeper {
    /// Watches our own php-cgi.
    Supervisor(Supervisor),
    /// Gives the children of somebody else's server back.
    IdleCloser(IdleCloser),
}

impl Pool {
    /// Starts php-cgi, or notes the external servers. Returns when php-cgi was started once, which takes milliseconds;
    /// the first requests wait while it loads.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(settings: PoolSettings) -> Result<Arc<Self>, StartError> {
        let (shared, keeper) = match settings.kind.clone() {
            PoolKind::Supervised(own) => {
                if own.workers == 0 {
                    return Err(StartError::Empty);
                }
                let (shared, supervisor) = Supervisor::start(settings, own)?;
                (shared, Keeper::Supervisor(supervisor))
            }
            PoolKind::External(external) => {
                if external.connections == 0 || external.servers.is_empty() {
                    return Err(StartError::Empty);
                }
                let shared = Arc::new(Shared::new(settings, external.servers));
                let closer =
                    IdleCloser::start(Arc::clone(&shared), external.idle_timeout).map_err(StartError::Thread)?;
                (shared, Keeper::IdleCloser(closer))
            }
        };
        Ok(Arc::new(Self { shared, keeper }))
    }

    /// What the pool was started with.
    pub fn settings(&self) -> &PoolSettings {
        &self.shared.settings
    }

    /// What the pool is doing now.
    pub fn status(&self) -> PoolStatus {
        self.shared.status()
    }

    /// The servers of a pool that somebody else runs; none for a pool of our own.
    pub fn servers(&self) -> Vec<ServerStatus> {
        match self.keeper {
            Keeper::Supervisor(_) => Vec::new(),
            Keeper::IdleCloser(_) => self.shared.servers(),
        }
    }

    /// Requests PHP has been at work on for a while, the longest first.
    pub fn running(&self) -> Vec<RunningRequest> {
        self.shared.running.list()
    }

    /// Memory of our own php-cgi processes, bytes, with what they share counted once; 0 while they start, and where the
    /// system does not tell. `None` for a pool that somebody else runs.
    pub fn memory(&self) -> Option<u64> {
        match self.keeper {
            Keeper::Supervisor(_) => {
                let master = self.shared.master.load(Ordering::Relaxed);
                Some(memory::of_tree(master).unwrap_or(0))
            }
            Keeper::IdleCloser(_) => None,
        }
    }

    /// Carries one request: waits for a worker, sends, and waits for the response head. Interim heads (103) are given
    /// to `on_interim` as they come. To be called in a tokio runtime with I/O and time.
    ///
    /// A request is sent twice only if the worker was gone before: nothing of it was taken, or it is idempotent and no
    /// byte of a response came.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn send(
        self: &Arc<Self>,
        request: &Request<'_>,
        on_interim: &mut dyn FnMut(&CgiHead),
    ) -> Result<Response, PoolError> {
        let (mut lease, mut reused, queued) = self.lease().await?;
        if !queued.is_zero() && !(request.is_wanted)() {
            return Err(PoolError::Abandoned { waited: queued });
        }
        loop {
            let mut exchange = Exchange::new(self.shared.settings.response_head);
            match attempt(
                &mut lease,
                &mut exchange,
                request,
                on_interim,
                self.shared.settings.timeout,
            )
            .await
            {
                Ok(head) => return Ok(response(head, exchange, lease, queued, request)),
                Err(trouble) if reused && trouble.may_be_repeated(request, &exchange) => {
                    reused = false;
                    self.note_retry(&lease, request);
                    lease.reconnect().await?;
                }
                Err(trouble) => return Err(trouble.into_error(lease, &mut exchange, request)),
            }
        }
    }

    /// A worker with a connection; whether that was used before; and how long the request had to wait.
    async fn lease(&self) -> Result<(Lease, bool, Duration), PoolError> {
        let mut refused = Vec::new();
        let (mut lease, queued) = self.queue(&refused).await?;
        loop {
            match lease.ready().await {
                Ok(reused) => return Ok((lease, reused, queued)),
                Err(error) => {
                    refused.push(lease.server);
                    drop(lease);
                    // A queue gives whichever worker comes free, so the same server may be refused more than once.
                    if refused.len() >= self.shared.addresses.len() {
                        return Err(error);
                    }
                    lease = self.queue(&refused).await?.0;
                }
            }
        }
    }

    /// Waits for the next worker in the order of arrival.
    async fn queue(&self, excluded: &[usize]) -> Result<(Lease, Duration), PoolError> {
        let mut place = match self.shared.ask(excluded) {
            Asked::Granted(lease) => return Ok((lease, Duration::ZERO)),
            Asked::Queued(place) => place,
            Asked::Full => return Err(PoolError::Exhausted { waited: Duration::ZERO }),
            Asked::Stopped => return Err(PoolError::Stopped),
        };
        let begun = Instant::now();
        let granted = match tokio::time::timeout(self.shared.settings.queue_timeout, &mut place.grant).await {
            Ok(granted) => granted.map_err(|_| PoolError::Stopped),
            // The grant may have come in this very moment.
            Err(_) => place.grant.try_recv().map_err(|_| self.exhausted(begun.elapsed())),
        };
        let waited = begun.elapsed();
        self.shared.count(|counts| counts.waits.note(waited));
        granted.map(|lease| (lease, waited))
    }

    fn exhausted(&self, waited: Duration) -> PoolError {
        self.shared.count(|counts| counts.exhausted += 1);
        PoolError::Exhausted { waited }
    }

    fn note_retry(&self, lease: &Lease, request: &Request<'_>) {
        self.shared.count(|counts| counts.retries += 1);
        let (pool, pid, request) = (self.shared.settings.name.as_str(), lease.pid(), (request.label)());
        tracing::warn!(pool, pid, request, "PHP worker was gone, the request is sent again");
    }

    /// Ends the pool: no new leases, whoever waits gets `Stopped`, running requests have `grace` to finish, then the
    /// workers end.
    pub async fn stop(&self, grace: Duration) {
        self.shared.begin_stop();
        if tokio::time::timeout(grace, self.shared.drained()).await.is_err() {
            let (pool, left) = (self.shared.settings.name.as_str(), self.status().busy);
            tracing::warn!(pool, left, "requests were still running when the pool ended");
        }
        match &self.keeper {
            Keeper::Supervisor(supervisor) => supervisor.stop().await,
            Keeper::IdleCloser(closer) => closer.stop(),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.begin_stop();
    }
}

/// Why one attempt came to nothing.
enum Trouble {
    /// Nothing of the request was taken.
    Unsent(io::Error),
    /// The exchange failed.
    Failed(Failure),
    /// No head in time.
    TimedOut,
    /// Our own side of the connection.
    Ours(io::Error),
}

impl Trouble {
    fn may_be_repeated(&self, request: &Request<'_>, exchange: &Exchange) -> bool {
        match self {
            Self::Unsent(_) => true,
            Self::Failed(Failure::HungUp(_)) => request.idempotent && !exchange.answered(),
            _ => false,
        }
    }

    fn into_error(self, lease: Lease, exchange: &mut Exchange, request: &Request<'_>) -> PoolError {
        let (stderr, label) = (exchange.take_stderr(), (request.label)());
        match self {
            Self::Unsent(error) => lease.give_up(Failure::HungUp(Some(error)), &stderr, &label),
            Self::Failed(failure) => lease.give_up(failure, &stderr, &label),
            Self::TimedOut => lease.time_out(&stderr, &label),
            Self::Ours(error) => PoolError::Connection(error),
        }
    }
}

/// Sends the request and waits for the final head.
async fn attempt(
    lease: &mut Lease,
    exchange: &mut Exchange,
    request: &Request<'_>,
    on_interim: &mut dyn FnMut(&CgiHead),
    timeout: Duration,
) -> Result<CgiHead, Trouble> {
    exchange
        .start(lease.begin_use(), request)
        .map_err(|failure| match failure {
            StartFailure::Send(error) => Trouble::Unsent(error),
            StartFailure::RequestBody(error) => Trouble::Failed(Failure::RequestBody(error)),
        })?;
    if exchange.has_unsent() {
        lease.watch_writes().map_err(Trouble::Ours)?;
    }
    let mut begun = tokio::time::Instant::now();
    // One timer serves twice: first to note what takes long, then to end it.
    let mut deadline = pin!(tokio::time::sleep(timeout.min(NOTED_AFTER)));
    loop {
        let sending = exchange.has_unsent();
        let step = poll_fn(|cx| match exchange.poll_step(cx, lease.connection()) {
            Poll::Ready(step) => Poll::Ready(step.map_err(Trouble::Failed)),
            Poll::Pending => deadline.as_mut().poll(cx).map(|()| Err(Trouble::TimedOut)),
        });
        match step.await {
            Err(Trouble::TimedOut) if begun.elapsed() < timeout => {
                lease.note(request.label);
                deadline.as_mut().reset(begun + timeout);
                continue;
            }
            step => step?,
        }
        if sending {
            // The time runs from the last byte that PHP took.
            begun = tokio::time::Instant::now();
            let next = if lease.is_noted() {
                timeout
            } else {
                timeout.min(NOTED_AFTER)
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

fn response(head: CgiHead, exchange: Exchange, mut lease: Lease, queued: Duration, request: &Request<'_>) -> Response {
    lease.learn_peer();
    let label = if exchange.is_complete() {
        String::new()
    } else {
        let label = (request.label)();
        lease.note(|| label.clone());
        label
    };
    let (taken, pid) = (lease.taken, lease.pid());
    let mut response = Response {
        head,
        exchange,
        lease: Some(lease),
        label,
        queued,
        taken,
        worker_time: None,
        pid,
    };
    response.finish_if_complete();
    response
}
