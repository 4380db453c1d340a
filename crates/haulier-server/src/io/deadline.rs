//! Deadlines of connections, checked ten times a second.
//!
//! A timer for every request would cost more than the request. Instead each waiting connection notes what it waits for
//! and since when. One scan in each tick finds the expired waits and wakes their tasks.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Weak;
use std::sync::Arc;
use std::time::{Duration, Instant};

use haulier_http::Timeouts;

use super::gate::Permit;
use super::limits::Limits;
use super::pace::Pace;

/// The event that a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitPhase {
    /// The first byte of a request.
    Idle,
    /// The rest of a request head.
    Head,
    /// The request body, with the bytes received so far.
    Body { started: Instant, received: u64 },
    /// Room in the socket's send buffer.
    Send,
    /// The client to close, after a last response.
    Linger,
    /// Our own handler, which has its own timeouts.
    Handler,
}

/// Longest time that a connection lingers after its last response (RFC 9112 §9.6).
const LINGER: Duration = Duration::from_secs(2);
/// Time after which the least rate of a body applies.
const BODY_RATE_AFTER: Duration = Duration::from_secs(10);

impl WaitPhase {
    /// True if a wait in this phase that began at `since` has expired.
    fn is_over(self, since: Instant, now: Instant, limits: &Limits, of_site: Option<&Timeouts>) -> bool {
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

/// A connection or stream with deadlines.
pub(crate) trait Watched: std::fmt::Debug {
    /// The awaited event, and the start of the wait.
    fn waiting(&self) -> (WaitPhase, Instant);
    /// The rate at which the client takes a response; `None` if nothing is sent here.
    fn pace(&self) -> Option<&Pace> {
        None
    }
    /// Bytes that the client has taken so far, if known.
    fn taken(&self) -> Option<u64> {
        None
    }
    /// Gives up the responses that the client takes too slowly.
    fn give_up(&self) {}
    /// The timeouts of the site, if they differ from the server's.
    fn timeouts(&self) -> Option<Arc<Timeouts>> {
        None
    }
    /// Ends the wait: wakes the task, which sees the reason.
    fn expire(&self, phase: WaitPhase);
    /// The connection's permit and the start of its idle time; `None` if it is in use, or no connection.
    fn idle(&self) -> Option<(&Permit, Instant)> {
        None
    }
    /// Closes this idle connection to make room for others.
    fn give_way(&self) {
        self.expire(WaitPhase::Idle);
    }
    /// Cuts the connection off, since the server ends.
    fn cut(&self);
    /// Called once a second, to look up the progress of long responses.
    fn check_progress(&self, _now: Instant) {}
    /// Stops serving further requests, and ends if idle since `idle_since`. Called repeatedly until the connection is
    /// gone.
    fn drain(&self, idle_since: Instant) {
        let (phase, since) = self.waiting();
        if phase == WaitPhase::Idle && since <= idle_since {
            self.expire(WaitPhase::Idle);
        }
    }
}

/// All connections of a thread that have a task.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    watched: RefCell<Vec<Weak<dyn Watched>>>,
    /// The tick of the last search that found no idle connection; it need not be repeated then.
    none_idle: Cell<Option<Instant>>,
    /// The same for searches by address.
    none_of_address: Cell<Option<Instant>>,
}

/// Most idle connections closed at a time: a burst of new connections needs one search.
const MOST_GIVING_WAY: usize = 16;
/// At most this fraction of the idle connections is closed at a time.
const PART_GIVING_WAY: usize = 8;

impl Deadlines {
    /// Watches a connection until it is gone.
    pub(crate) fn watch(&self, connection: Weak<dyn Watched>) {
        self.watched.borrow_mut().push(connection);
    }

    /// True if no connection has a task.
    pub(crate) fn is_empty(&self) -> bool {
        self.watched.borrow().is_empty()
    }

    /// Expires the waits that took too long, and forgets the connections that are gone.
    pub(crate) fn scan(&self, now: Instant, limits: &Limits) {
        self.sweep(|connection| {
            let (phase, since) = connection.waiting();
            if phase.is_over(since, now, limits, connection.timeouts().as_deref()) {
                connection.expire(phase);
            }
            if limits.min_send_rate > 0
                && let Some(pace) = connection.pace()
            {
                match phase {
                    WaitPhase::Send if pace.is_too_slow(limits, || connection.taken()) => connection.give_up(),
                    WaitPhase::Idle | WaitPhase::Head => pace.reset(),
                    _ => {}
                }
            }
        });
    }

    /// Makes every connection look up the progress of its long responses.
    pub(crate) fn check_progress(&self, now: Instant) {
        self.sweep(|connection| connection.check_progress(now));
    }

    /// Drains every connection; those idle since `idle_since` end.
    pub(crate) fn drain(&self, idle_since: Instant) {
        self.sweep(|connection| connection.drain(idle_since));
    }

    /// Cuts all connections off; called repeatedly until they are gone.
    pub(crate) fn cut(&self) {
        self.sweep(|connection| connection.cut());
    }

    /// Closes some of the connections that have been idle longest; returns their number. It visits all connections.
    pub(crate) fn make_room(&self, tick: Instant) -> usize {
        self.end_idle(tick, &self.none_idle, |_| true)
    }

    /// Like [`Deadlines::make_room`], for the connections of one address.
    pub(crate) fn make_room_of(&self, address: IpAddr, tick: Instant) -> usize {
        self.end_idle(tick, &self.none_of_address, |permit| permit.is_of(address))
    }

    fn end_idle(&self, tick: Instant, in_vain: &Cell<Option<Instant>>, fits: impl Fn(&Permit) -> bool) -> usize {
        if in_vain.get() == Some(tick) {
            return 0;
        }
        let watched = self.watched.borrow();
        let idle_since = |place: usize| {
            let connection = watched[place].upgrade()?;
            let (permit, since) = connection.idle()?;
            fits(permit).then_some((since, place))
        };
        let mut idle: Vec<(Instant, usize)> = (0..watched.len()).filter_map(idle_since).collect();
        if idle.is_empty() {
            in_vain.set(Some(tick));
            return 0;
        }
        let count = (idle.len() / PART_GIVING_WAY).clamp(1, MOST_GIVING_WAY);
        idle.select_nth_unstable(count - 1);
        for (_, place) in &idle[..count] {
            if let Some(connection) = watched[*place].upgrade() {
                connection.give_way();
            }
        }
        count
    }

    fn sweep(&self, action: impl Fn(&dyn Watched)) {
        self.watched.borrow_mut().retain(|weak| {
            let connection = weak.upgrade();
            connection.is_some_and(|connection| {
                action(&*connection);
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
        let now = crate::clock::now();
        let ago = |seconds| {
            now.checked_sub(Duration::from_secs(seconds))
                .expect("the machine is up longer than that")
        };
        assert!(
            !WaitPhase::Idle.is_over(ago(15), now, &limits, None)
                && WaitPhase::Idle.is_over(ago(16), now, &limits, None)
        );
        assert!(
            !WaitPhase::Head.is_over(ago(10), now, &limits, None)
                && WaitPhase::Head.is_over(ago(11), now, &limits, None)
        );
        assert!(
            !WaitPhase::Send.is_over(ago(30), now, &limits, None)
                && WaitPhase::Send.is_over(ago(31), now, &limits, None)
        );
        assert!(!WaitPhase::Handler.is_over(ago(60), now, &limits, None));
    }

    #[test]
    fn a_body_that_trickles_is_over_although_it_never_stalls() {
        let limits = Limits::default();
        let now = crate::clock::now();
        let started = now
            .checked_sub(Duration::from_secs(20))
            .expect("the machine is up longer than that");
        assert!(
            WaitPhase::Body {
                started,
                received: 9_999
            }
            .is_over(now, now, &limits, None)
        );
        assert!(
            !WaitPhase::Body {
                started,
                received: 10_000
            }
            .is_over(now, now, &limits, None)
        );
    }

    #[test]
    fn a_site_has_its_own_deadlines_once_it_is_known() {
        let limits = Limits::default();
        let now = crate::clock::now();
        let since = now
            .checked_sub(Duration::from_secs(5))
            .expect("the machine is up longer than that");
        let timeouts = Timeouts {
            body: Duration::from_secs(4),
            idle: Duration::from_secs(6),
            send: Duration::from_secs(3),
        };
        let body = WaitPhase::Body {
            started: since,
            received: 0,
        };
        let is_over = |phase: WaitPhase| phase.is_over(since, now, &limits, Some(&timeouts));
        assert!(is_over(body) && is_over(WaitPhase::Send));
        assert!(!is_over(WaitPhase::Idle) && !is_over(WaitPhase::Head));
        assert!(!body.is_over(since, now, &limits, None));
    }
}
