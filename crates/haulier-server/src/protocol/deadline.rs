//! Deadlines of connections, looked at ten times a second.
//!
//! A timer for every request would cost more than the request. Instead each connection that waits says what it waits
//! for and since when; one scan a tick finds those that waited too long and wakes their tasks.

use std::cell::RefCell;
use std::rc::Weak;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::settings::{Limits, Patience};

/// What a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The first byte of a request.
    Idle,
    /// The rest of a request head.
    Head,
    /// The request body; so many bytes of it have come.
    Body { started: Instant, received: u64 },
    /// Room in the socket's send buffer.
    Send,
    /// The client to close, after a last response.
    Linger,
    /// Ourselves: a handler is at work and has its own time limits.
    Handler,
}

/// How long a connection may linger after its last response (RFC 9112 §9.6).
const LINGER: Duration = Duration::from_secs(2);
/// The least rate of a body holds after this long.
const BODY_RATE_AFTER: Duration = Duration::from_secs(10);

impl Phase {
    /// Whether a wait in this phase that began at `since` is over.
    fn is_over(self, since: Instant, now: Instant, limits: &Limits, of_site: Option<&Patience>) -> bool {
        let waited = now.saturating_duration_since(since);
        match self {
            Self::Idle => waited > of_site.map_or(limits.idle_timeout, |site| site.idle),
            Self::Head => waited > limits.head_timeout,
            Self::Body { started, received } => {
                let running = now.saturating_duration_since(started);
                let too_slow = running > BODY_RATE_AFTER && received < limits.body_min_rate * running.as_secs();
                waited > of_site.map_or(limits.body_timeout, |site| site.body) || too_slow
            }
            Self::Send => waited > of_site.map_or(limits.send_timeout, |site| site.send),
            Self::Linger => waited > LINGER,
            Self::Handler => false,
        }
    }
}

/// A connection that can be woken because it waited too long.
pub(crate) trait Watched: std::fmt::Debug {
    /// What it waits for, and since when.
    fn waiting(&self) -> (Phase, Instant);
    /// The deadlines of its site, where they are not the usual ones.
    fn patience(&self) -> Option<Arc<Patience>> {
        None
    }
    /// Ends the wait: the connection's task wakes and sees why.
    fn expire(&self, phase: Phase);
    /// The server ends now: whatever runs is broken off.
    fn cut(&self);
    /// Nothing further is to be served; said again and again until the connection is gone. One that has been idle since
    /// this time has ended.
    fn drain(&self, idle_since: Instant) {
        let (phase, since) = self.waiting();
        if phase == Phase::Idle && since <= idle_since {
            self.expire(Phase::Idle);
        }
    }
}

/// All connections of a thread that have a task.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    watched: RefCell<Vec<Weak<dyn Watched>>>,
}

impl Deadlines {
    /// Watches a connection until it is gone.
    pub(crate) fn watch(&self, connection: Weak<dyn Watched>) {
        self.watched.borrow_mut().push(connection);
    }

    /// Whether no connection has a task.
    pub(crate) fn is_empty(&self) -> bool {
        self.watched.borrow().is_empty()
    }

    /// Ends the waits that took too long and forgets the connections that are gone.
    pub(crate) fn scan(&self, now: Instant, limits: &Limits) {
        self.sweep(|connection| {
            let (phase, since) = connection.waiting();
            if phase.is_over(since, now, limits, connection.patience().as_deref()) {
                connection.expire(phase);
            }
        });
    }

    /// Tells every connection that nothing further will be served; those that have been idle since this time end.
    pub(crate) fn drain(&self, idle_since: Instant) {
        self.sweep(|connection| connection.drain(idle_since));
    }

    /// Breaks off all connections; said again until they are gone.
    pub(crate) fn cut(&self) {
        self.sweep(|connection| connection.cut());
    }

    fn sweep(&self, visit: impl Fn(&dyn Watched)) {
        self.watched.borrow_mut().retain(|weak| {
            let connection = weak.upgrade();
            connection.is_some_and(|connection| {
                visit(&*connection);
                true
            })
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_phase_has_its_own_limit() {
        let limits = Limits::default();
        let now = crate::thread::now();
        let ago = |seconds| {
            now.checked_sub(Duration::from_secs(seconds))
                .expect("the machine is up longer than that")
        };
        assert!(!Phase::Idle.is_over(ago(15), now, &limits, None) && Phase::Idle.is_over(ago(16), now, &limits, None));
        assert!(!Phase::Head.is_over(ago(10), now, &limits, None) && Phase::Head.is_over(ago(11), now, &limits, None));
        assert!(!Phase::Send.is_over(ago(30), now, &limits, None) && Phase::Send.is_over(ago(31), now, &limits, None));
        assert!(!Phase::Handler.is_over(ago(60), now, &limits, None));
    }

    #[test]
    fn a_body_that_trickles_is_over_although_it_never_stalls() {
        let limits = Limits::default();
        let now = crate::thread::now();
        let started = now
            .checked_sub(Duration::from_secs(20))
            .expect("the machine is up longer than that");
        assert!(
            Phase::Body {
                started,
                received: 9_999
            }
            .is_over(now, now, &limits, None)
        );
        assert!(
            !Phase::Body {
                started,
                received: 10_000
            }
            .is_over(now, now, &limits, None)
        );
    }

    #[test]
    fn a_site_has_its_own_deadlines_once_it_is_known() {
        let limits = Limits::default();
        let now = crate::thread::now();
        let since = now
            .checked_sub(Duration::from_secs(5))
            .expect("the machine is up longer than that");
        let patience = Patience {
            body: Duration::from_secs(4),
            idle: Duration::from_secs(6),
            send: Duration::from_secs(3),
        };
        let body = Phase::Body {
            started: since,
            received: 0,
        };
        let is_over = |phase: Phase| phase.is_over(since, now, &limits, Some(&patience));
        assert!(is_over(body) && is_over(Phase::Send));
        assert!(!is_over(Phase::Idle) && !is_over(Phase::Head));
        assert!(!body.is_over(since, now, &limits, None));
    }
}
