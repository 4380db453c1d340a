//! The right to use one worker, returned when dropped.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::at_work::AtWork;
use crate::connection::Connection;
use crate::ended::Ended;
use crate::error::{AttemptError, BadResponse, PoolError};
use crate::fastcgi_exchange::FastCgiExchange;
use crate::peer::Peer;
use crate::processes::Processes;
use crate::running::RunningGuard;
use crate::shared_pool::SharedPool;
use crate::shown_duration::ShownDuration;

/// One worker, with a connection to it.
#[derive(Debug)]
pub(crate) struct Lease {
    shared: Arc<SharedPool>,
    inner: haulier_upstream::Lease<Connection>,
    /// Keeps the request in the list of running ones.
    listed: Option<RunningGuard>,
    /// Counts the script among those at work.
    at_work: Option<AtWork>,
}

impl Lease {
    pub(crate) fn new(shared: Arc<SharedPool>, inner: haulier_upstream::Lease<Connection>) -> Self {
        Self {
            shared,
            inner,
            listed: None,
            at_work: None,
        }
    }

    /// Takes the lease out, for another attempt.
    pub(crate) fn into_inner(self) -> haulier_upstream::Lease<Connection> {
        self.inner
    }

    /// The time of the lease.
    pub(crate) fn taken(&self) -> Instant {
        self.inner.taken()
    }

    /// The connection, marked as in the middle of a request from now on.
    pub(crate) fn begin_use(&mut self) -> &Connection {
        self.inner.begin_use()
    }

    pub(crate) fn connection(&self) -> &Connection {
        self.inner.connection()
    }

    /// Watches for writability as well.
    ///
    /// # Errors
    /// The system error.
    pub(crate) fn watch_writes(&mut self) -> io::Result<()> {
        self.inner.map_connection(Connection::watch_writes)
    }

    /// Searches the worker for the last time: a worker that is not found now stays unknown for this connection.
    pub(crate) fn find_peer_finally(&mut self) {
        self.find_peer();
        if let Some(connection) = self.inner.get_mut()
            && connection.peer.may_be_found()
        {
            connection.peer = Peer::Untold;
        }
    }

    /// Searches the worker at the other end, if the pool is supervised and the worker is not known yet. To be called as
    /// soon as a request was sent, while PHP is working: after a crash has closed the connection, its process cannot be
    /// found. A child that has not accepted the connection yet is searched again.
    pub(crate) fn find_peer(&mut self) {
        let Some(processes) = &self.shared.processes else {
            return;
        };
        let server = self.inner.server();
        let Some(connection) = self.inner.get_mut() else { return };
        if !connection.peer.may_be_found() {
            return;
        }
        let Some(found) = processes.find_peer(server, &connection.peer, &*connection) else {
            return;
        };
        connection.peer = found;
        if let Some(before) = self.shared.recycling.take(connection.peer.pid()) {
            connection.worker.served += before.served;
            connection.worker.since = before.since;
        }
    }

    /// Counts the script among those at work, until the end of the lease.
    pub(crate) fn begin_work(&mut self) {
        if let Some(scripts) = &self.shared.at_work {
            self.at_work = Some(scripts.add(self.taken(), self.pid()));
        }
    }

    /// Puts the request into the list of running ones, once.
    pub(crate) fn list(&mut self, label: impl FnOnce() -> String) {
        if self.listed.is_none() {
            self.find_peer_finally();
            let served = self.inner.get().map_or(0, |connection| connection.worker.served);
            let listed = self.shared.running.add(label(), self.taken(), self.pid(), served);
            self.listed = Some(listed);
        }
    }

    pub(crate) fn is_listed(&self) -> bool {
        self.listed.is_some()
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.inner.get().and_then(|connection| connection.peer.pid())
    }

    /// The process whose end closed the connection, with its exit status if the system reports that.
    pub(crate) fn find_ended(&self) -> (Option<u32>, Option<Ended>) {
        match self.inner.get().and_then(|connection| connection.peer.find_ended()) {
            Some((pid, ended)) => (Some(pid), ended),
            None => (self.pid(), None),
        }
    }

    /// Returns the worker after the end of the exchange, with the connection if that is reusable.
    pub(crate) fn finish(mut self, exchange: &FastCgiExchange) {
        let reusable = exchange.is_reusable();
        if let Some(connection) = self.inner.get_mut() {
            connection.worker.served += 1;
            if let Some(bytes) = exchange.kept_memory() {
                self.shared.note_memory(bytes, connection.worker.memory.note(bytes));
            }
        }
        let stays = !self.replace_if_spent();
        if stays
            && !reusable
            && let Some(connection) = self.inner.get()
        {
            self.shared.recycling.keep(connection.peer.pid(), connection.worker);
        }
        self.shared.count(|counts| counts.served += 1);
        self.inner.finish(stays && reusable);
    }

    /// Sends SIGTERM to a worker that has reached a limit, so it ends as soon as the connection closes; true if sent.
    fn replace_if_spent(&self) -> bool {
        let (Some(processes), Some(connection)) = (&self.shared.processes, self.inner.get()) else {
            return false;
        };
        let why = self.shared.recycling.judge(connection.worker, connection.peer.pid());
        let why = why.filter(|_| processes.end(&connection.peer, Signal::TERM));
        if let Some(why) = why {
            self.shared.count_replaced(why);
            self.note_ending();
        }
        why.is_some()
    }

    /// Notes that the worker was told to end. A separate worker's address accepts no connections until the next one
    /// runs.
    fn note_ending(&self) {
        if self
            .shared
            .processes
            .as_ref()
            .is_some_and(|processes| processes.separate)
        {
            self.inner.note_server_ending();
        }
    }

    /// Ends the lease of a failed request, and reports the error to the log and to the caller.
    pub(crate) fn give_up(self, error: AttemptError, stderr: &[u8], label: &str) -> PoolError {
        match error {
            AttemptError::Unsent(error) => self.hung_up(Some(error), stderr, label),
            AttemptError::HungUp(error) => self.hung_up(error, stderr, label),
            AttemptError::BadResponse(why) => self.bad_response(why, stderr, label),
            AttemptError::TimedOut => {
                let limit = self.timeout();
                self.time_out(limit, stderr, label)
            }
            AttemptError::RequestBody(error) => PoolError::RequestBody(error),
            AttemptError::Connection(error) => PoolError::Connection(error),
        }
    }

    /// The worker closed the connection: a crash, unless the pool is stopping.
    fn hung_up(self, source: Option<io::Error>, stderr: &[u8], label: &str) -> PoolError {
        if self.shared.upstream.is_stopping() {
            return PoolError::Stopped;
        }
        let (shared, after) = (Arc::clone(&self.shared), self.taken().elapsed());
        let tail = shared.stderr.tail(stderr, self.taken());
        let (pid, ended) = self.find_ended();
        drop(self);
        shared.count(|counts| counts.crashes += 1);
        let (pool, stderr) = (shared.settings.name.as_str(), String::from_utf8_lossy(stderr));
        let (how, span) = (ended.map(tracing::field::display), ShownDuration(after));
        tracing::error!(pool, pid, ended = how, after = %span, request = label, %stderr, "PHP worker crashed");
        PoolError::Crashed {
            pid,
            ended,
            after,
            source,
            stderr: tail,
        }
    }

    fn bad_response(self, why: BadResponse, stderr: &[u8], label: &str) -> PoolError {
        let (shared, pid, after) = (
            Arc::clone(&self.shared),
            self.pid(),
            ShownDuration(self.taken().elapsed()),
        );
        drop(self);
        let (pool, stderr) = (shared.settings.name.as_str(), String::from_utf8_lossy(stderr));
        tracing::error!(pool, pid, %after, request = label, %stderr, %why, "malformed response from PHP");
        PoolError::BadResponse { why }
    }

    /// Timeout of the response head.
    pub(crate) fn timeout(&self) -> Duration {
        self.shared.settings.timeout
    }

    /// Timeout of a pause in the response body.
    pub(crate) fn body_timeout(&self) -> Duration {
        self.shared.settings.body_timeout
    }

    /// Ends the worker in the middle of its request, after this timeout.
    pub(crate) fn time_out(self, after: Duration, stderr: &[u8], label: &str) -> PoolError {
        self.end_worker(after, stderr, label, "PHP did not answer within the timeout")
    }

    /// Ends the worker whose script continued for this time after its response.
    pub(crate) fn time_out_in_background(self, after: Duration, stderr: &[u8], label: &str) -> PoolError {
        let why = "a script did not end within `timeout` after fastcgi_finish_request()";
        self.end_worker(after, stderr, label, why)
    }

    fn end_worker(mut self, after: Duration, stderr: &[u8], label: &str, why: &str) -> PoolError {
        self.find_peer_finally();
        let shared = Arc::clone(&self.shared);
        // After SIGTERM php-cgi would first finish the request that hangs.
        let end = |processes: &Processes| processes.end(&self.connection().peer, Signal::KILL);
        let pid = self.pid();
        let trace = shared.trace(pid, label);
        let killed = shared.processes.as_ref().is_some_and(end);
        let mut tail = shared.stderr.tail(stderr, self.taken());
        if let Some(trace) = &trace {
            let separator = if tail.is_empty() { "" } else { "\n" };
            tail.push_str(&format!("{separator}PHP was at {trace}"));
        }
        if killed {
            self.note_ending();
        }
        drop(self);
        shared.count(|counts| counts.timeouts += 1);
        let (pool, stderr) = (shared.settings.name.as_str(), String::from_utf8_lossy(stderr));
        let limit = ShownDuration(after);
        let trace = trace.as_ref().map(tracing::field::display);
        tracing::error!(pool, pid, killed, after = %limit, request = label, %stderr, trace, "{why}");
        PoolError::Timeout {
            pid,
            after,
            stderr: tail,
        }
    }
}
