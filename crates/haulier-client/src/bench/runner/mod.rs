//! One thread of load: an epoll loop over its connections.
//!
//! Nothing is allocated for a request, and no timer set: one scan ten times a second finds what waited too long. Failures
//! put a connection into a queue that the loop empties, so that a server that refuses cannot make us recurse.

mod connecting;
mod ending;
mod exchange;
mod multiplexed;

use std::collections::VecDeque;
use std::io;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustls::pki_types::ServerName;

use super::answer::{Captured, KnownHead};
use super::connection::{Connection, Interest, Phase};
use super::job::{Arrivals, Job, share};
use super::pacer::Pacer;
use super::result::Failures;
use super::sample::Tally;
use super::tls;

/// Bytes read at once.
const READ: usize = 64 * 1024;
/// Reads of one connection before the next one has its turn.
const MOST_READS: usize = 16;
const MOST_EVENTS: usize = 512;
/// Between two looks for what waited too long.
const SCAN: u64 = 100_000_000;
/// Between two turns of slow readers and senders.
const TURN: u64 = 20_000_000;
/// How long a refused connection waits before it is tried again.
const PAUSE: u64 = 1_000_000;
/// How long a server may take to close what it said it would.
const CLOSING: u64 = 100_000_000;
/// How long the answers of an open loop are waited for after its end.
const GRACE: u64 = 1_000_000_000;

/// What the threads of one process share.
#[derive(Debug, Default)]
pub struct Shared {
    /// Requests given out in a closed loop.
    given: AtomicU64,
    /// Answers of any kind so far, for whoever looks on.
    pub done: AtomicU64,
    /// Ends all threads soon.
    pub stop: AtomicBool,
    /// The length of the first body and 1; 0 before.
    first_length: AtomicU64,
}

impl Shared {
    /// Another slice begins: its requests are counted anew.
    pub(super) fn begin(&self) {
        self.given.store(0, Ordering::Relaxed);
    }

    /// The length of the first body.
    #[must_use]
    pub fn first_length(&self) -> Option<u64> {
        self.first_length.load(Ordering::Relaxed).checked_sub(1)
    }

    fn has_length_of_first(&self, length: u64) -> bool {
        let first = &self.first_length;
        match first.compare_exchange(0, length + 1, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => true,
            Err(known) => known == length + 1,
        }
    }
}

/// How a request failed.
type Class = fn(&mut Failures) -> &mut u64;

/// Runs one thread's part of the job to its end.
///
/// # Errors
/// Wrong TLS options, or no descriptor for epoll.
pub(super) fn run(job: &Job, thread: u32, shared: &Shared) -> io::Result<(Tally, Option<Captured>)> {
    let mut runner = Runner::new(job, thread, shared)?;
    runner.run()?;
    let first = runner.tally.seen.first().cloned();
    let captured = job.capture.then(|| first.unwrap_or(runner.captured));
    Ok((runner.tally, captured))
}

struct Runner<'j> {
    job: &'j Job,
    shared: &'j Shared,
    epoll: rustix::fd::OwnedFd,
    tls: Option<(std::sync::Arc<rustls::ClientConfig>, ServerName<'static>)>,
    connections: Vec<Connection>,
    /// Number of our first connection among all of the job.
    first: u32,
    /// By request.
    heads: Vec<KnownHead>,
    tally: Tally,
    buffer: Vec<u8>,
    scratch: Vec<u8>,
    captured: Captured,
    has_captured: bool,
    /// By connection, where all answers are kept.
    answers: Vec<Captured>,
    start: Instant,
    /// The same moment, µs since 1970.
    epoch: u64,
    /// The latest look at the clock, ns since `start`.
    now: u64,
    /// When sending ends.
    deadline: Option<u64>,
    pacer: Option<Pacer>,
    /// Number of the next request of an open loop, and the step to the one after it.
    number: (u64, u64),
    /// Requests an open loop may still send; `None` without a limit.
    left: Option<u64>,
    /// Connections of an open loop that wait for a request.
    idle: VecDeque<usize>,
    /// Until then requests were due and no connection was free.
    blocked: u64,
    /// Places that want their next request at once.
    again: Vec<usize>,
    /// Places that were refused, and when they try again.
    later: VecDeque<(u64, usize)>,
    /// Places with a request, or about to get one.
    active: usize,
    next_scan: u64,
    next_turn: u64,
    /// The peer has sent its end: nothing more is to be waited for.
    peer_closed: bool,
}

impl<'j> Runner<'j> {
    fn new(job: &'j Job, thread: u32, shared: &'j Shared) -> io::Result<Self> {
        let (first, count) = share(job.connections, thread, job.threads);
        let tls = match &job.tls {
            None => None,
            Some(options) => {
                let name = ServerName::try_from(options.server_name.clone()).map_err(io::Error::other)?;
                Some((tls::config(options, job.protocol)?, name))
            }
        };
        let (pacer, left) = match &job.arrivals {
            Arrivals::Closed => (None, None),
            Arrivals::Open { rate, spacing, seed } => {
                let left = job.count.map(|all| {
                    all / u64::from(job.threads) + u64::from(u64::from(thread) < all % u64::from(job.threads))
                });
                (Some(Pacer::new(*spacing, *rate, thread, job.threads, *seed)), left)
            }
            Arrivals::Schedule(times) => {
                let mine = times.iter().skip(thread as usize).step_by(job.threads as usize);
                (Some(Pacer::at(mine.copied().collect())), None)
            }
        };
        Ok(Self {
            job,
            shared,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            tls,
            connections: (0..count).map(|_| Connection::new(job)).collect(),
            first,
            heads: job.requests.iter().map(|_| KnownHead::default()).collect(),
            tally: Tally::default(),
            buffer: vec![0; READ],
            scratch: Vec::new(),
            captured: Captured::default(),
            has_captured: false,
            answers: vec![Captured::default(); if job.keep_answers { count as usize } else { 0 }],
            start: Instant::now(),
            epoch: since_1970(),
            now: 0,
            deadline: job.time.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
            pacer,
            number: (u64::from(thread), u64::from(job.threads)),
            left,
            idle: VecDeque::with_capacity(count as usize),
            blocked: 0,
            again: Vec::new(),
            later: VecDeque::new(),
            active: 0,
            next_scan: SCAN,
            next_turn: 0,
            peer_closed: false,
        })
    }

    fn run(&mut self) -> io::Result<()> {
        if self.pacer.is_some() {
            // An error leaves the slack of 50 µs, which the sending error shows.
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
            // One entry for every request that may be on its way; connections take turns.
            let slots = self.connections.iter().map(Connection::slots).max().unwrap_or(0);
            for _ in 0..slots {
                self.idle.extend(0..self.connections.len());
            }
        } else {
            self.active = self.connections.len();
            self.again.extend((0..self.connections.len()).rev());
        }
        let mut events = Vec::with_capacity(MOST_EVENTS);
        while !self.is_over() {
            self.give_out();
            if self.is_over() {
                break;
            }
            let timeout = self.timeout();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            self.look_at_clock();
            let answers = self.tally.answers();
            for event in events.drain(..) {
                let id = event.data.u64() as usize;
                self.handle(id, event.flags);
            }
            self.shared
                .done
                .fetch_add(self.tally.answers() - answers, Ordering::Relaxed);
            self.look_after();
        }
        if let Some(deadline) = self.deadline {
            // A stretch of time is measured by its length, whatever came behind its end.
            self.tally.elapsed = deadline.min(self.now);
        }
        Ok(())
    }

    fn look_at_clock(&mut self) {
        self.now = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    }

    fn is_open_loop(&self) -> bool {
        self.job.arrivals != Arrivals::Closed
    }

    fn is_over(&self) -> bool {
        if self.shared.stop.load(Ordering::Relaxed) {
            return true;
        }
        let is_late = self.deadline.is_some_and(|deadline| self.now >= deadline);
        if !self.is_open_loop() {
            return is_late || self.active == 0;
        }
        let has_sent_all = self.left == Some(0) || self.pacer.as_ref().is_none_or(|pacer| pacer.next().is_none());
        let grace = self
            .deadline
            .map_or(u64::MAX, |deadline| deadline.saturating_add(GRACE));
        (is_late || has_sent_all) && self.active == 0 || self.now >= grace
    }

    /// Until the next thing that no connection tells us of.
    fn timeout(&self) -> Timespec {
        let mut until = self.next_scan;
        if let Some(deadline) = self.deadline.filter(|deadline| *deadline > self.now) {
            until = until.min(deadline);
        }
        if let Some(due) = self
            .pacer
            .as_ref()
            .and_then(Pacer::next)
            .filter(|_| !self.idle.is_empty())
        {
            until = until.min(due);
        }
        if let Some((time, _)) = self.later.front() {
            until = until.min(*time);
        }
        if self.is_metered() {
            until = until.min(self.next_turn);
        }
        let wait = Duration::from_nanos(if self.again.is_empty() {
            until.saturating_sub(self.now)
        } else {
            0
        });
        Timespec {
            tv_sec: wait.as_secs() as i64,
            tv_nsec: i64::from(wait.subsec_nanos()),
        }
    }

    fn is_metered(&self) -> bool {
        self.job.read_rate.is_some() || self.job.send_rate.is_some()
    }

    fn give_out(&mut self) {
        while let Some((_, id)) = self.later.front().copied().filter(|(time, _)| *time <= self.now) {
            self.later.pop_front();
            self.again.push(id);
        }
        // Only those that are there now: one that fails at once waits for the next turn.
        for id in std::mem::take(&mut self.again) {
            if self.connections[id].is_busy {
                self.connect(id);
            } else {
                self.next(id);
            }
        }
        if self.pacer.is_some() {
            self.send_due();
        }
    }

    /// The next request of a closed loop, or the end of this place.
    fn next(&mut self, id: usize) {
        if self.connections[id].streams.is_some() {
            return self.fill(id);
        }
        let Some(number) = self.ticket() else {
            self.connections[id].close();
            self.connections[id].phase = Phase::Retired;
            self.active -= 1;
            return;
        };
        self.dispatch(id, self.job.request(number), self.now);
    }

    fn ticket(&self) -> Option<u64> {
        if self.deadline.is_some_and(|deadline| self.now >= deadline) {
            return None;
        }
        let number = self.shared.given.fetch_add(1, Ordering::Relaxed);
        self.job.count.is_none_or(|count| number < count).then_some(number)
    }

    /// What is due in an open loop goes to the connection that has been idle longest.
    fn send_due(&mut self) {
        self.look_at_clock();
        while let Some(due) = self.pacer.as_ref().and_then(Pacer::next).filter(|due| *due <= self.now) {
            let is_late = self
                .deadline
                .is_some_and(|deadline| due >= deadline || self.now >= deadline);
            if is_late || self.left == Some(0) {
                self.left = Some(0);
                return;
            }
            let Some(id) = self.idle.pop_front() else {
                self.blocked = self.now;
                return;
            };
            if due <= self.blocked {
                self.tally.waited += 1;
            } else {
                self.tally.sent_late.record(self.now - due);
            }
            if let Some(pacer) = &mut self.pacer {
                pacer.advance();
            }
            self.left = self.left.map(|left| left - 1);
            let (number, step) = self.number;
            self.number.0 = number + step;
            self.active += 1;
            self.dispatch(id, self.job.request(number), due);
            self.look_at_clock();
        }
    }

    /// Puts a request on a connection, a new one if there is none.
    fn dispatch(&mut self, id: usize, request: usize, due: u64) {
        let connection = &mut self.connections[id];
        if connection.streams.is_some() {
            return self.assign(id, request, due);
        }
        connection.assign(request, due, self.now, self.job.protocol);
        if connection.transport.is_some() {
            connection.phase = Phase::Sending;
            self.push(id);
        } else {
            self.connect(id);
        }
    }

    fn look_after(&mut self) {
        if self.is_metered() && self.now >= self.next_turn {
            self.next_turn = self.now + TURN;
            self.take_turns();
        }
        if self.now >= self.next_scan {
            self.next_scan = self.now + SCAN;
            for id in 0..self.connections.len() {
                self.check_patience(id);
            }
        }
    }

    /// Slow readers and senders take what they are due.
    fn take_turns(&mut self) {
        for id in 0..self.connections.len() {
            match self.connections[id].phase {
                Phase::Sending => self.push(id),
                Phase::Body if self.connections[id].interest == Some(Interest::Nothing) => self.read(id),
                _ => {}
            }
        }
    }

    fn check_patience(&mut self, id: usize) {
        let connection = &self.connections[id];
        let waited = self.now.saturating_sub(connection.since);
        let is_too_long = u128::from(waited) > self.job.timeout.as_nanos();
        match connection.phase {
            Phase::Closing if waited > CLOSING => self.closed(id),
            Phase::Connecting | Phase::Tunnel | Phase::Handshake if is_too_long => {
                self.fail(id, |failures| &mut failures.connect_timeout);
            }
            Phase::Sending | Phase::Waiting if is_too_long => {
                self.fail(id, |failures| &mut failures.first_byte_timeout);
            }
            Phase::Body if is_too_long => self.fail(id, |failures| &mut failures.body_timeout),
            Phase::Streams => self.check_streams(id),
            _ => {}
        }
    }
}

fn since_1970() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
