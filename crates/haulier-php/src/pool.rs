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
use crate::health::{HealthChecks, ping_params};
use crate::keeper::Keeper;
use crate::lease::Lease;
use crate::memory;
use crate::request::{Body, Request, Wanted};
use crate::response::{Response, Silence};
use crate::running::{NOTED_AFTER, RunningRequest};
use crate::settings::{Balance, External, PoolKind, PoolSettings};
use crate::spawner::Spawner;
use crate::state::{Asked, PoolStatus, QueuePlace, ServerStatus, Shared, Turn, WorkerStatus};
use crate::supervisor::Supervisor;

/// How often a request in the queue is asked whether anybody still waits for its answer.
const LOOK: Duration = Duration::from_millis(500);

/// What [`Pool::warm`] asks for; PHP answers 404.
const NO_SCRIPT: &str = "/haulier/is-this-on";

/// PHP workers and the queue in front of them. Shared by all threads; dropping it ends the workers.
#[derive(Debug)]
pub struct Pool {
    name: Arc<str>,
    shared: Arc<Shared>,
    source: Source,
    keeper: Keeper,
}

/// Who looks after the processes.
#[derive(Debug)]
enum Source {
    /// We do.
    Own(Supervisor),
    /// Somebody else; we only ask.
    Others(HealthChecks),
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

    /// The same through a spawner, as the account the settings name.
    ///
    /// # Errors
    /// See [`StartError`]; `NotAgreed` if the spawner was not told of these settings when it was started.
    pub fn start_through(settings: PoolSettings, spawner: &Arc<Spawner>) -> Result<Arc<Self>, StartError> {
        Self::start_by(settings, Some(spawner))
    }

    fn start_by(settings: PoolSettings, spawner: Option<&Arc<Spawner>>) -> Result<Arc<Self>, StartError> {
        let (shared, source) = match settings.kind.clone() {
            PoolKind::Supervised(own) => {
                if own.workers == 0 {
                    return Err(StartError::Empty);
                }
                let (shared, supervisor) = Supervisor::start(settings, &own, spawner)?;
                (shared, Source::Own(supervisor))
            }
            PoolKind::External(external) => {
                if external.connections == 0 || external.servers.is_empty() {
                    return Err(StartError::Empty);
                }
                let shared = Shared::new(settings, external.servers.clone(), false, None);
                let shared = Arc::new(shared.map_err(StartError::Thread)?);
                let checks = HealthChecks::start(&shared, &external).map_err(StartError::Thread)?;
                (shared, Source::Others(checks))
            }
        };
        let keeper = Keeper::start(&shared).map_err(StartError::Thread)?;
        let name = shared.settings.name.as_str().into();
        Ok(Arc::new(Self {
            name,
            shared,
            source,
            keeper,
        }))
    }

    /// The name of the pool, for logs that outlive it.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// What the pool was started with.
    pub fn settings(&self) -> &PoolSettings {
        &self.shared.settings
    }

    /// The cookie whose values each belong to one of the servers.
    pub fn affinity_cookie(&self) -> Option<&str> {
        match &self.shared.settings.kind {
            PoolKind::External(External {
                balance: Balance::Cookie(name),
                ..
            }) => Some(name),
            _ => None,
        }
    }

    /// When it was started.
    pub fn started(&self) -> Instant {
        self.shared.started
    }

    /// What the pool is doing now.
    pub fn status(&self) -> PoolStatus {
        self.shared.status()
    }

    /// The servers of a pool that somebody else runs; none for a pool of our own.
    pub fn servers(&self) -> Vec<ServerStatus> {
        match self.source {
            Source::Own(_) => Vec::new(),
            Source::Others(_) => self.shared.servers(),
        }
    }

    /// Requests PHP has been at work on for a while, the longest first.
    pub fn running(&self) -> Vec<RunningRequest> {
        self.shared.running.list()
    }

    /// What each worker does that has been needed so far: requests that take long first, the longest first of all, idle
    /// ones last.
    pub fn workers(&self) -> Vec<WorkerStatus> {
        self.shared.workers()
    }

    /// Memory of our own php-cgi processes, bytes, with what they share counted once; 0 while they start, and where the
    /// system does not tell. `None` for a pool that somebody else runs.
    pub fn memory(&self) -> Option<u64> {
        match self.source {
            Source::Own(_) => {
                let masters = self.shared.masters.iter().map(|master| master.load(Ordering::Relaxed));
                let of_tree = |master| match &self.shared.spawner {
                    Some(spawner) if master != 0 => spawner.memory(master),
                    _ => memory::of_tree(master),
                };
                Some(masters.filter_map(of_tree).sum())
            }
            Source::Others(_) => None,
        }
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
        self: &Arc<Self>,
        request: &Request<'_>,
        on_interim: &mut dyn FnMut(&CgiHead),
    ) -> Result<Response, PoolError> {
        let begun = Instant::now();
        let (mut lease, mut reused) = self.lease(&mut Vec::new(), request, begun).await?;
        let queued = lease.queued;
        // A request that finds an old connection closed may find its server gone too, but not another one.
        let most = match self.source {
            Source::Own(_) => 1,
            Source::Others(_) => self.shared.addresses.len().min(2),
        };
        let mut sent = 0;
        loop {
            let mut exchange = self.exchange();
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
                Err(trouble) if sent < most && self.may_repeat(&trouble, request, &exchange) => {
                    sent += 1;
                    self.note_retry(&lease, request);
                    (lease, reused) = self.lease_again(lease, reused, request).await?;
                }
                Err(trouble) => return Err(trouble.into_error(lease, &mut exchange, request)),
            }
        }
    }

    fn exchange(&self) -> Exchange {
        let settings = &self.shared.settings;
        let exchange = Exchange::new(settings.response_head, settings.kind.keeps_connections());
        match self.source {
            Source::Own(_) => exchange.may_finish(),
            // php-fpm has its own way to say so.
            Source::Others(_) => exchange,
        }
    }

    fn may_repeat(&self, trouble: &Trouble, request: &Request<'_>, exchange: &Exchange) -> bool {
        trouble.may_be_repeated(request, exchange) && !self.shared.is_stopping()
    }

    /// A fresh connection in the place of one that failed: an old one may simply have been closed, but a server that
    /// hangs up on a new one is passed over if there is another.
    async fn lease_again(
        &self,
        mut lease: Lease,
        reused: bool,
        request: &Request<'_>,
    ) -> Result<(Lease, bool), PoolError> {
        let (begun, only) = (Instant::now(), self.shared.addresses.len() == 1);
        if reused || only {
            match lease.reconnect().await {
                Err(_) if !only => {}
                connected => return connected.map(|()| (lease, false)),
            }
        }
        let mut refused = vec![lease.server];
        drop(lease);
        self.lease(&mut refused, request, begun).await
    }

    /// A worker with a connection, and whether that was used before. Servers that do not answer are passed over.
    async fn lease(
        &self,
        refused: &mut Vec<usize>,
        request: &Request<'_>,
        begun: Instant,
    ) -> Result<(Lease, bool), PoolError> {
        let servers = self.shared.addresses.len();
        let mut attempts = 0;
        loop {
            let mut lease = self.queue(refused, request, begun).await?;
            match lease.ready().await {
                Ok(reused) => return Ok((lease, reused)),
                Err(error) => {
                    attempts += 1;
                    if !refused.contains(&lease.server) {
                        refused.push(lease.server);
                    }
                    // A queue gives whichever worker comes free, so the same server may be refused more than once.
                    if refused.len() >= servers || attempts >= 2 * servers {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Waits for the next worker in the order of arrival; `begun` is when the request came.
    async fn queue(&self, excluded: &[usize], request: &Request<'_>, begun: Instant) -> Result<Lease, PoolError> {
        let mut turn = Turn::Usual;
        loop {
            let mut place = match self.shared.ask(excluded, request.affinity, turn) {
                Asked::Granted(lease) => return Ok(lease),
                Asked::Queued(place) => place,
                Asked::Full => return Err(PoolError::Exhausted { waited: Duration::ZERO }),
                Asked::Stopped => return Err(PoolError::Stopped),
            };
            let granted = self.wait(&mut place, request, begun).await;
            let waited = begun.elapsed();
            self.shared.count(|counts| counts.waits.note(waited));
            let mut lease = granted?;
            match (request.wanted)() {
                Wanted::No => return Err(PoolError::Abandoned { waited }),
                // Its worker goes to one whose client is there; it asks again, behind all of them.
                Wanted::Perhaps if turn == Turn::Usual && self.shared.has_waiters() => turn = Turn::Last,
                Wanted::Perhaps | Wanted::Yes => {
                    lease.queued = waited;
                    return Ok(lease);
                }
            }
        }
    }

    /// Waits at a place in the queue, and leaves it when nobody waits for the answer any more.
    async fn wait(&self, place: &mut QueuePlace, request: &Request<'_>, begun: Instant) -> Result<Lease, PoolError> {
        loop {
            let left = self.shared.settings.queue_timeout.saturating_sub(begun.elapsed());
            let is_last = left <= LOOK;
            if let Ok(granted) = tokio::time::timeout(left.min(LOOK), &mut place.grant).await {
                return granted.map_err(|_| PoolError::Stopped);
            }
            // The grant may have come in this very moment.
            if let Ok(lease) = place.grant.try_recv() {
                return Ok(lease);
            }
            let waited = begun.elapsed();
            if is_last {
                return Err(self.exhausted(waited));
            }
            match (request.wanted)() {
                Wanted::Yes => {}
                Wanted::Perhaps => place.give_way(),
                Wanted::No => return Err(PoolError::Abandoned { waited }),
            }
        }
    }

    fn exhausted(&self, waited: Duration) -> PoolError {
        self.shared.count(|counts| counts.exhausted += 1);
        PoolError::Exhausted { waited }
    }

    fn note_retry(&self, lease: &Lease, request: &Request<'_>) {
        self.shared.count(|counts| counts.retries += 1);
        let (pool, request) = (self.shared.settings.name.as_str(), (request.label)());
        let (pid, ended) = lease.who_ended();
        let ended = ended.map(tracing::field::display);
        tracing::warn!(
            pool,
            pid,
            ended,
            request,
            "PHP worker was gone, the request is sent again"
        );
    }

    /// Waits until PHP answers: one request for a script that does not exist, so that nothing of the user's runs. The
    /// servers of others are taken at their word. To be called in a tokio runtime with I/O and time.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn warm(self: &Arc<Self>) -> Result<(), PoolError> {
        if matches!(self.source, Source::Others(_)) {
            return Ok(());
        }
        let params = ping_params(NO_SCRIPT).expect("a short path fits one record");
        let request = Request {
            params: &params,
            body: Body::Empty,
            idempotent: true,
            affinity: None,
            wanted: &|| Wanted::Yes,
            label: &|| "the first request of all, which asks for nothing".to_owned(),
        };
        let mut response = self.send(&request, &mut |_| {}).await?;
        while response.body().await?.is_some() {}
        Ok(())
    }

    /// Ends the pool: no new leases, whoever waits gets `Stopped`, running requests have `grace` to finish, then the
    /// workers end.
    pub async fn stop(&self, grace: Duration) {
        self.shared.begin_stop();
        if tokio::time::timeout(grace, self.shared.drained()).await.is_err() {
            let (pool, left) = (self.shared.settings.name.as_str(), self.status().busy);
            tracing::warn!(pool, left, "requests were still running when the pool ended");
        }
        self.keeper.stop();
        match &self.source {
            Source::Own(supervisor) => supervisor.stop().await,
            Source::Others(checks) => checks.stop(),
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
            Self::TimedOut => {
                let limit = lease.timeout();
                lease.time_out(limit, &stderr, &label)
            }
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
    lease.look_for_peer();
    let mut begun = tokio::time::Instant::now();
    // One timer serves twice: first to note what takes long, then to end it.
    let mut deadline = pin!(tokio::time::sleep(timeout.min(NOTED_AFTER)));
    loop {
        let sending = exchange.has_unsent();
        let step = poll_fn(|cx| match exchange.poll_step(cx, lease.connection(), None) {
            Poll::Ready(step) => Poll::Ready(step.map_err(Trouble::Failed)),
            Poll::Pending => deadline.as_mut().poll(cx).map(|()| Err(Trouble::TimedOut)),
        });
        match step.await {
            Err(Trouble::TimedOut) if begun.elapsed() < timeout => {
                lease.look_for_peer();
                lease.note(request.label);
                deadline.as_mut().reset(begun + timeout);
                continue;
            }
            step => _ = step?,
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
    let may_stall = !exchange.is_complete() && !passes_at_once(&head);
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
    };
    response.settle();
    response
}

/// True for what the script sends when it has something to say, and which may be silent for ever in between.
fn passes_at_once(head: &CgiHead) -> bool {
    let is = |name, value: &str| {
        head.field(name).is_some_and(|found| {
            found.len() >= value.len() && found[..value.len()].eq_ignore_ascii_case(value.as_bytes())
        })
    };
    is("content-type", "text/event-stream") || is("x-accel-buffering", "no")
}
