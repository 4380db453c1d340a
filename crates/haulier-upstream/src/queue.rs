//! Requests that wait for a connection, in order of arrival.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tokio::runtime::Id;
use tokio::sync::oneshot;

/// While the first request has waited no longer than this, a connection may go to a request on the connection's own
/// thread: the order of arrival within a millisecond does not matter, and moving a connection to another thread costs a
/// third of a small request.
const REORDER_WITHIN: Duration = Duration::from_millis(1);
/// Number of requests at the front of the queue among which such a request is searched.
const NEAR: usize = 16;

/// Waiting requests. Each receives a `G` when its turn comes.
#[derive(Debug)]
pub(crate) struct Queue<G> {
    /// Sorted by ticket.
    waiters: VecDeque<Waiter<G>>,
    next_ticket: u64,
}

/// One waiting request.
#[derive(Debug)]
struct Waiter<G> {
    ticket: u64,
    /// The runtime on which the request waits.
    runtime: Id,
    since: Instant,
    /// The server that the request must go to; `None` accepts any.
    server: Option<usize>,
    turn: Turn,
    grant: oneshot::Sender<G>,
}

/// The class of a waiting request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Served in the order of arrival.
    Usual,
    /// Served only when no request of the usual class waits, because the client may be gone.
    Last,
}

impl<G> Queue<G> {
    pub(crate) fn new() -> Self {
        Self {
            waiters: VecDeque::new(),
            next_ticket: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.waiters.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// True if requests of the usual class wait.
    pub(crate) fn has_usual(&self) -> bool {
        self.waiters.iter().any(|waiter| waiter.turn == Turn::Usual)
    }

    /// Waiting time of the first request.
    pub(crate) fn longest_wait(&self) -> Duration {
        let first = self.waiters.front();
        first.map_or(Duration::ZERO, |first| first.since.elapsed())
    }

    /// Adds a request that waits on this runtime, and returns its ticket. With `server`, it accepts no other server.
    pub(crate) fn push(&mut self, runtime: Id, server: Option<usize>, turn: Turn) -> (u64, oneshot::Receiver<G>) {
        let (grant, granted) = oneshot::channel();
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.waiters.push_back(Waiter {
            ticket,
            runtime,
            since: Instant::now(),
            server,
            turn,
            grant,
        });
        (ticket, granted)
    }

    fn position(&self, ticket: u64) -> Option<usize> {
        self.waiters.binary_search_by_key(&ticket, |waiter| waiter.ticket).ok()
    }

    /// Moves a request that still waits behind all of the usual class.
    pub(crate) fn defer(&mut self, ticket: u64) {
        if let Some(position) = self.position(ticket) {
            self.waiters[position].turn = Turn::Last;
        }
    }

    /// Removes a request if it still waits.
    pub(crate) fn remove(&mut self, ticket: u64) {
        if let Some(position) = self.position(ticket) {
            self.waiters.remove(position);
        }
    }

    /// Removes the request whose turn it is and whose required server `fits`. It is the first in the queue, or, shortly
    /// after its arrival, one close behind whose runtime `is_home` to the connection.
    pub(crate) fn pop(
        &mut self,
        fits: impl Fn(Option<usize>) -> bool,
        is_home: impl Fn(Id) -> bool,
    ) -> Option<oneshot::Sender<G>> {
        let accepts = |waiter: &Waiter<G>, turn| waiter.turn == turn && fits(waiter.server);
        let first_of = |turn| self.waiters.iter().position(|waiter| accepts(waiter, turn));
        let first = first_of(Turn::Usual).or_else(|| first_of(Turn::Last))?;
        let Waiter {
            turn, runtime, since, ..
        } = self.waiters[first];
        let mut position = first;
        if !is_home(runtime) && since.elapsed() <= REORDER_WITHIN {
            let mut near = self.waiters.iter().skip(first).take(NEAR);
            let at_home = near.position(|waiter| accepts(waiter, turn) && is_home(waiter.runtime));
            position += at_home.unwrap_or(0);
        }
        self.waiters.remove(position).map(|waiter| waiter.grant)
    }

    /// Removes all requests, for the caller to drop.
    pub(crate) fn take_all(&mut self) -> impl Sized + use<G> {
        std::mem::take(&mut self.waiters)
    }
}
