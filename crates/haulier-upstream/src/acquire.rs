//! Acquires a connection: waits for one, and tries servers until one accepts it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use haulier_http::Presence;
use tokio::sync::oneshot;

use crate::connection::Connection;
use crate::error::LeaseError;
use crate::lease::Lease;
use crate::queue::Turn;
use crate::upstream::{Grant, Upstream};

/// Interval at which a queued request checks that its client is still connected.
const CLIENT_CHECK: Duration = Duration::from_millis(500);

/// The properties of a request that the choice of a connection depends on.
#[derive(Clone, Copy)]
pub struct LeaseRequest<'a> {
    /// Key of requests that go to the same server; `None` goes to any.
    pub affinity: Option<&'a [u8]>,
    /// Presence of the client, checked periodically in the queue and when a connection becomes free after a wait.
    pub client: &'a dyn Fn() -> Presence,
}

impl std::fmt::Debug for LeaseRequest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeaseRequest")
            .field("affinity", &self.affinity)
            .finish_non_exhaustive()
    }
}

/// A place in the queue. Dropping it leaves the queue, and returns a lease that was already granted.
#[derive(Debug)]
struct QueuePlace<C: Connection> {
    upstream: Arc<Upstream<C>>,
    ticket: u64,
    granted: oneshot::Receiver<Lease<C>>,
}

impl<C: Connection> Drop for QueuePlace<C> {
    fn drop(&mut self) {
        self.upstream.leave_queue(self.ticket);
    }
}

impl<C: Connection> Upstream<C> {
    /// Waits for a connection; the queue timeout counts from `begun`. Servers that refuse a connection are skipped.
    ///
    /// # Errors
    /// See [`LeaseError`].
    pub async fn lease(self: &Arc<Self>, request: LeaseRequest<'_>, begun: Instant) -> Result<Lease<C>, LeaseError> {
        self.lease_except(&mut Vec::new(), request, begun).await
    }

    /// Replaces a connection that failed. If it was a reused one, the server may just have closed it, so the same
    /// server is tried first. A server that closes a new connection is skipped if there is another.
    ///
    /// # Errors
    /// See [`LeaseError`].
    pub async fn lease_again(
        self: &Arc<Self>,
        mut failed: Lease<C>,
        request: LeaseRequest<'_>,
    ) -> Result<Lease<C>, LeaseError> {
        let (begun, is_only) = (Instant::now(), self.servers() == 1);
        if failed.is_reused() || is_only {
            match failed.reconnect().await {
                Err(_) if !is_only => {}
                connected => return connected.map(|()| failed),
            }
        }
        let mut refused = vec![failed.server()];
        drop(failed);
        self.lease_except(&mut refused, request, begun).await
    }

    async fn lease_except(
        self: &Arc<Self>,
        refused: &mut Vec<usize>,
        request: LeaseRequest<'_>,
        begun: Instant,
    ) -> Result<Lease<C>, LeaseError> {
        let mut attempts = 0;
        loop {
            let mut lease = self.queue(refused, request, begun).await?;
            let Err(error) = lease.connect().await else {
                return Ok(lease);
            };
            attempts += 1;
            if !refused.contains(&lease.server()) {
                refused.push(lease.server());
            }
            // The queue grants any connection that becomes free, so the same server may refuse more than once.
            if refused.len() >= self.servers() || attempts >= 2 * self.servers() {
                return Err(error);
            }
        }
    }

    /// Waits for the next lease in the order of arrival.
    async fn queue(
        self: &Arc<Self>,
        excluded: &[usize],
        request: LeaseRequest<'_>,
        begun: Instant,
    ) -> Result<Lease<C>, LeaseError> {
        let mut turn = Turn::Usual;
        loop {
            let (ticket, granted) = match self.request(excluded, request.affinity, turn) {
                Grant::Lease(lease) => return Ok(lease),
                Grant::Queued(ticket, granted) => (ticket, granted),
                Grant::Full => return Err(LeaseError::Exhausted { waited: Duration::ZERO }),
                Grant::Stopped => return Err(LeaseError::Stopped),
            };
            let place = QueuePlace {
                upstream: Arc::clone(self),
                ticket,
                granted,
            };
            let granted = place.wait(request, begun).await;
            let waited = begun.elapsed();
            self.note_wait(waited);
            let mut lease = granted?;
            match (request.client)() {
                Presence::Gone => return Err(LeaseError::Abandoned { waited }),
                // Its client may be gone: the request joins the queue again, behind all others.
                Presence::Silent if turn == Turn::Usual && self.has_usual_waiters() => turn = Turn::Last,
                Presence::Silent | Presence::Here => {
                    lease.queued = waited;
                    return Ok(lease);
                }
            }
        }
    }
}

impl<C: Connection> QueuePlace<C> {
    /// Waits for the lease; leaves the queue on the timeout, or when the client is gone.
    async fn wait(mut self, request: LeaseRequest<'_>, begun: Instant) -> Result<Lease<C>, LeaseError> {
        loop {
            let left = self.upstream.queue_timeout().saturating_sub(begun.elapsed());
            let is_last = left <= CLIENT_CHECK;
            if let Ok(granted) = tokio::time::timeout(left.min(CLIENT_CHECK), &mut self.granted).await {
                return granted.map_err(|_| LeaseError::Stopped);
            }
            // The lease may have been granted just as the time ran out.
            if let Ok(lease) = self.granted.try_recv() {
                return Ok(lease);
            }
            let waited = begun.elapsed();
            if is_last {
                self.upstream.note_exhausted();
                return Err(LeaseError::Exhausted { waited });
            }
            match (request.client)() {
                Presence::Here => {}
                Presence::Silent => self.upstream.defer(self.ticket),
                Presence::Gone => return Err(LeaseError::Abandoned { waited }),
            }
        }
    }
}
