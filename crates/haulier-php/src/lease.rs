//! The right to use one worker, given back when dropped.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::connection::Connection;
use crate::ended::Ended;
use crate::error::PoolError;
use crate::exchange::Failure;
use crate::peer::Peer;
use crate::running::Noted;
use crate::span::Span;
use crate::state::Shared;

/// One worker, or leave to connect to one.
#[derive(Debug)]
pub(crate) struct Lease {
    /// `None` once the worker was given back.
    shared: Option<Arc<Shared>>,
    pub(crate) server: usize,
    connection: Option<Connection>,
    /// Something was sent, so the connection is worth keeping only after the answer's end.
    used: bool,
    pub(crate) taken: Instant,
    /// How long the request had to wait for it.
    pub(crate) queued: Duration,
    /// The request is in the list of those that take long.
    noted: Option<Noted>,
}

impl Lease {
    pub(crate) fn new(shared: Arc<Shared>, server: usize, connection: Option<Connection>) -> Self {
        Self {
            shared: Some(shared),
            server,
            connection,
            used: false,
            taken: Instant::now(),
            queued: Duration::ZERO,
            noted: None,
        }
    }

    /// Takes the connection out; the pool hears nothing of it.
    pub(crate) fn defuse(mut self) -> Option<Connection> {
        self.shared = None;
        self.connection.take()
    }

    fn shared(&self) -> &Arc<Shared> {
        self.shared.as_ref().expect("a lease is given back only as it ends")
    }

    /// Makes the connection usable on this thread; true if it is one that was idle before.
    ///
    /// # Errors
    /// `Connect` if a new one is needed and cannot be had.
    pub(crate) async fn ready(&mut self) -> Result<bool, PoolError> {
        if let Some(idle) = self.connection.take() {
            let moves = !idle.lives_on(tokio::runtime::Handle::current().id());
            self.connection = idle
                .move_here()
                .ok()
                .filter(|here| !if moves { here.is_stale() } else { here.seems_stale() });
        }
        if self.connection.is_some() {
            return Ok(true);
        }
        self.reconnect().await.map(|()| false)
    }

    /// Replaces the connection by a new one.
    ///
    /// # Errors
    /// `Connect`.
    pub(crate) async fn reconnect(&mut self) -> Result<(), PoolError> {
        self.connection = None;
        self.used = false;
        self.taken = Instant::now();
        let shared = Arc::clone(self.shared());
        let address = &shared.addresses[self.server];
        let begun = Instant::now();
        let opened = Connection::open(address, shared.generation(self.server), shared.connect_timeout).await;
        let connection = opened.map_err(|source| PoolError::Connect {
            server: address.to_string(),
            source,
        });
        shared.note_connect(self.server, connection.is_ok().then(|| begun.elapsed()));
        let connection = connection?;
        self.connection = Some(connection);
        Ok(())
    }

    /// The connection, from now on in the middle of a request.
    pub(crate) fn begin_use(&mut self) -> &Connection {
        self.used = true;
        self.connection()
    }

    pub(crate) fn connection(&self) -> &Connection {
        self.connection.as_ref().expect("ready() came first")
    }

    /// Has writability watched as well.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn watch_writes(&mut self) -> io::Result<()> {
        let connection = self.connection.take().expect("ready() came first");
        self.connection = Some(connection.watch_writes()?);
        Ok(())
    }

    /// Finds out which child answers here, if that is not known yet and the pool is ours. Once a connection.
    pub(crate) fn learn_peer(&mut self) {
        self.look_for_peer();
        if let Some(connection) = &mut self.connection
            && connection.peer.may_be_found()
        {
            connection.peer = Peer::Untold;
        }
    }

    /// The same as soon as a request was sent, while PHP is at work: nobody can be found behind a connection that a crash
    /// has closed. A child that has not accepted it yet is looked for again.
    pub(crate) fn look_for_peer(&mut self) {
        let shared = self.shared.as_ref().expect("a lease is given back only as it ends");
        let Some(connection) = &mut self.connection else { return };
        let master = shared.masters[self.server].load(Ordering::Relaxed);
        if !connection.peer.may_be_found() || master == 0 {
            return;
        }
        let found = match shared.process(self.server) {
            Some(process) => Peer::Process { pid: master, process },
            None => Peer::find(&*connection, master, shared.spawner.as_deref()),
        };
        if matches!(found, Peer::Untold) {
            if matches!(connection.peer, Peer::Unknown) {
                connection.peer = Peer::one_of(master);
            }
            return;
        }
        connection.peer = found;
        let known = connection.peer.pid().filter(|_| shared.recycle().is_on());
        if let Some(before) = known.and_then(|pid| shared.take_worker(pid)) {
            connection.worker.served += before.served;
            connection.worker.since = before.since;
        }
    }

    /// Puts the request into the list of those that take long, once.
    pub(crate) fn note(&mut self, label: impl FnOnce() -> String) {
        if self.noted.is_none() {
            self.learn_peer();
            let served = self
                .connection
                .as_ref()
                .map_or(0, |connection| connection.worker.served);
            self.noted = Some(self.shared().running.note(label(), self.taken, self.pid(), served));
        }
    }

    pub(crate) fn is_noted(&self) -> bool {
        self.noted.is_some()
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.connection.as_ref().and_then(|connection| connection.peer.pid())
    }

    /// The process that has closed the connection, and how it ended, as far as the system tells.
    pub(crate) fn who_ended(&self) -> (Option<u32>, Option<Ended>) {
        let found = self
            .connection
            .as_ref()
            .and_then(|connection| connection.peer.who_ended());
        match found {
            Some((pid, ended)) => (Some(pid), ended),
            None => (self.pid(), None),
        }
    }

    /// The request is answered to its end: the worker is free, its connection too if `reusable`.
    pub(crate) fn finish(mut self, reusable: bool) {
        let shared = self.shared.take().expect("a lease is given back only as it ends");
        let mut connection = self.connection.take();
        if let Some(connection) = &mut connection {
            connection.worker.served += 1;
        }
        let keep = connection.filter(|connection| {
            !is_spent(&shared, self.server, connection) && reusable_or_noted(&shared, connection, reusable)
        });
        shared.count(|counts| counts.served += 1);
        shared.put_back(self.server, keep);
    }

    /// Closes the connection and says why, here and to the caller.
    pub(crate) fn give_up(self, failure: Failure, stderr: &[u8], label: &str) -> PoolError {
        let (shared, after) = (Arc::clone(self.shared()), self.taken.elapsed());
        let last_words = shared.heard.last_words(stderr, self.taken);
        let is_crash = matches!(failure, Failure::HungUp(_)) && !shared.is_stopping();
        let (pid, ended) = if is_crash { self.who_ended() } else { (self.pid(), None) };
        drop(self);
        let pool = shared.settings.name.as_str();
        let stderr = String::from_utf8_lossy(stderr);
        match failure {
            Failure::HungUp(_) if shared.is_stopping() => PoolError::Stopped,
            Failure::HungUp(source) => {
                shared.count(|counts| counts.crashes += 1);
                let (how, span) = (ended.map(tracing::field::display), Span(after));
                tracing::error!(pool, pid, ended = how, after = %span, request = label, %stderr, "PHP worker crashed");
                PoolError::Crashed {
                    pid,
                    ended,
                    after,
                    source,
                    last_words,
                }
            }
            Failure::Bad(why) => {
                let after = Span(after);
                tracing::error!(pool, pid, %after, request = label, %stderr, %why, "improper response from PHP");
                PoolError::BadResponse { why }
            }
            Failure::RequestBody(source) => PoolError::RequestBody(source),
        }
    }

    /// Longest time to the response head.
    pub(crate) fn timeout(&self) -> Duration {
        self.shared().settings.timeout
    }

    /// Longest silence in a response body.
    pub(crate) fn body_timeout(&self) -> Duration {
        self.shared().settings.body_timeout
    }

    /// Ends the worker in the middle of its request, after it has let us wait for so long.
    pub(crate) fn time_out(self, after: Duration, stderr: &[u8], label: &str) -> PoolError {
        self.end_worker(after, stderr, label, "no answer from PHP in time")
    }

    /// Ends the worker whose script went on for so long behind its answer.
    pub(crate) fn time_out_behind(self, after: Duration, stderr: &[u8], label: &str) -> PoolError {
        let why = "a script did not end within `timeout` after fastcgi_finish_request()";
        self.end_worker(after, stderr, label, why)
    }

    fn end_worker(mut self, after: Duration, stderr: &[u8], label: &str, why: &str) -> PoolError {
        self.learn_peer();
        // SIGTERM would only ask php-cgi to end after the request that hangs.
        let spawner = self.shared().spawner.as_deref();
        let killed = self.connection().peer.end(Signal::KILL, spawner);
        let (shared, pid) = (Arc::clone(self.shared()), self.pid());
        let last_words = shared.heard.last_words(stderr, self.taken);
        if killed {
            shared.note_ending(self.server, self.connection().generation);
        }
        drop(self);
        shared.count(|counts| counts.timeouts += 1);
        let (pool, stderr) = (shared.settings.name.as_str(), String::from_utf8_lossy(stderr));
        let limit = Span(after);
        tracing::error!(pool, pid, killed, after = %limit, request = label, %stderr, "{why}");
        PoolError::Timeout { pid, after, last_words }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.take() {
            // In the middle of a request there is no way back to its end but closing.
            let connection = self.connection.take().filter(|_| !self.used);
            shared.put_back(self.server, connection);
        }
    }
}

/// True if the worker has done its share. It is asked to end, which it does as soon as the connection closes.
fn is_spent(shared: &Shared, server: usize, connection: &Connection) -> bool {
    let recycle = shared.recycle();
    let why = connection
        .peer
        .pid()
        .filter(|_| recycle.is_on())
        .and_then(|pid| connection.worker.spent(&recycle, pid))
        .filter(|_| connection.peer.end(Signal::TERM, shared.spawner.as_deref()));
    if let Some(why) = why {
        shared.count_spent(why);
        shared.note_ending(server, connection.generation);
    }
    why.is_some()
}

/// Passes `reusable` on; what is known of the worker is noted down if its connection closes.
fn reusable_or_noted(shared: &Shared, connection: &Connection, reusable: bool) -> bool {
    if let (false, Some(pid), true) = (reusable, connection.peer.pid(), shared.recycle().is_on()) {
        shared.put_worker(pid, connection.worker);
    }
    reusable
}
