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
/// How long an open loop goes on behind its end, at least, where it still has something to send or to wait for.
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
    /// When a closed loop ends, and from when on nothing is due in an open one.
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
    /// What was due from then on could be sent only behind the deadline.
    late_from: u64,
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
            late_from: u64::MAX,
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
        if self.is_open_loop() && self.now >= self.end() {
            self.give_up();
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
        let is_late = self.is_behind_deadline();
        if !self.is_open_loop() {
            return is_late || self.active == 0;
        }
        // A slice lasts its time, even where its last request was due earlier; a number or a log may end before.
        let has_sent_all = self.left == Some(0) || self.pacer.as_ref().is_none_or(|pacer| pacer.next().is_none());
        let is_done = self.active == 0 && (has_sent_all || (is_late && self.due().is_none()));
        is_done || (is_late && self.now >= self.end())
    }

    fn is_behind_deadline(&self) -> bool {
        self.deadline.is_some_and(|deadline| self.now >= deadline)
    }

    /// When an open loop waits no longer: twice as long behind its deadline as the longest answer took so far, so that
    /// a slow server that keeps up has answered everything. A slice takes twice its time at most, or a second more.
    fn end(&self) -> u64 {
        let longest = self.tally.service.max().saturating_mul(1000);
        self.deadline.map_or(u64::MAX, |deadline| {
            let grace = longest.saturating_mul(2).min(deadline).max(GRACE);
            deadline.saturating_add(grace)
        })
    }

    /// When the next request of an open loop is due; `None` when there is none left. What was due before the deadline
    /// stays due behind it: whoever drops it hides the wait that a server caused.
    fn due(&self) -> Option<u64> {
        let due = self.pacer.as_ref()?.next()?;
        let is_in_time = self.deadline.is_none_or(|deadline| due < deadline);
        (is_in_time && self.left != Some(0)).then_some(due)
    }

    /// Until the next thing that no connection tells us of.
    fn timeout(&self) -> Timespec {
        let mut until = self.next_scan;
        if let Some(deadline) = self.deadline.filter(|deadline| *deadline > self.now) {
            until = until.min(deadline);
        }
        if let Some(due) = self.due().filter(|_| !self.idle.is_empty()) {
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
        while let Some(due) = self.due().filter(|due| *due <= self.now) {
            let is_late = self.is_behind_deadline();
            if is_late && self.now >= self.end() {
                return;
            }
            let Some(id) = self.idle.pop_front() else {
                self.blocked = self.now;
                return;
            };
            if is_late {
                self.late_from = self.late_from.min(due);
            }
            if due > self.blocked {
                self.tally.sent_late.record(self.now - due);
            }
            self.take(due);
            let (number, step) = self.number;
            self.number.0 = number + step;
            self.active += 1;
            self.dispatch(id, self.job.request(number), due);
            self.look_at_clock();
        }
    }

    /// The request that is due next is sent, or never will be.
    fn take(&mut self, due: u64) {
        if due <= self.blocked {
            self.tally.waited += 1;
        }
        if let Some(pacer) = &mut self.pacer {
            pacer.advance();
        }
        self.left = self.left.map(|left| left - 1);
    }

    /// At the end of an open loop: what was due and has no answer has failed, whether it could be sent or not.
    fn give_up(&mut self) {
        let on_their_way: Vec<u64> = self.connections.iter().flat_map(Connection::dues).collect();
        for due in on_their_way {
            self.note_unanswered(due);
        }
        while let Some(due) = self.due() {
            self.take(due);
            self.note_unanswered(due);
        }
    }

    /// Its latency is at least what it has waited so far. Left out, the longest of all would be missing, and the
    /// percentiles the better the more of them there are.
    fn note_unanswered(&mut self, due: u64) {
        self.tally.failures.unanswered += 1;
        self.tally.latency.record(self.now.saturating_sub(due));
        self.tally.seconds.fail(self.now);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::tests::job;
    use crate::pacer::Spacing;

    const MS: u64 = 1_000_000;

    /// A request every millisecond for ten of them.
    fn open_loop(count: Option<u64>) -> Job {
        Job {
            count,
            time: Some(Duration::from_millis(10)),
            arrivals: Arrivals::Open {
                rate: 1000.0,
                spacing: Spacing::Constant,
                seed: 1,
            },
            ..job()
        }
    }

    /// All that is due, one after the other.
    fn all_due(runner: &mut Runner<'_>) -> Vec<u64> {
        let mut found = Vec::new();
        while let Some(due) = runner.due() {
            runner.take(due);
            found.push(due / MS);
        }
        found
    }

    #[test]
    fn what_was_due_before_the_deadline_stays_due_behind_it_and_nothing_else() {
        let (job, shared) = (open_loop(None), Shared::default());
        let mut runner = Runner::new(&job, 0, &shared).expect("a descriptor");
        runner.now = 500 * MS;
        assert!(!runner.is_over(), "ten wait for a connection");
        assert_eq!(all_due(&mut runner), (0..10).collect::<Vec<u64>>());
        assert!(runner.is_over());
        runner.active = 1;
        assert!(!runner.is_over(), "one waits for its answer");
        runner.now = 10 * MS + GRACE;
        assert!(runner.is_over());
    }

    #[test]
    fn a_slice_lasts_its_time_unless_a_number_ends_it() {
        let (job, shared) = (open_loop(None), Shared::default());
        let mut runner = Runner::new(&job, 0, &shared).expect("a descriptor");
        assert_eq!(all_due(&mut runner).len(), 10);
        runner.now = 9 * MS;
        assert!(!runner.is_over());
        let job = open_loop(Some(3));
        let mut runner = Runner::new(&job, 0, &shared).expect("a descriptor");
        assert_eq!(all_due(&mut runner), [0, 1, 2]);
        runner.now = 3 * MS;
        assert!(runner.is_over());
    }

    #[test]
    fn slow_answers_are_waited_for_but_not_longer_than_the_slice_was() {
        let job = Job {
            time: Some(Duration::from_secs(5)),
            ..open_loop(None)
        };
        let shared = Shared::default();
        let mut runner = Runner::new(&job, 0, &shared).expect("a descriptor");
        let mut grace_after = |answer: u64| {
            runner.tally.service.record(answer * MS);
            (runner.end() - 5000 * MS) as f64 / 1e9
        };
        for (answer, expected) in [(2, 1.0), (2000, 4.0), (3000, 5.0), (1, 5.0)] {
            let grace = grace_after(answer);
            assert!((grace - expected).abs() < 0.01, "{grace} s after {answer} ms");
        }
    }

    #[test]
    fn what_is_unanswered_has_failed_and_its_wait_is_in_the_latency() {
        let (job, shared) = (open_loop(None), Shared::default());
        let mut runner = Runner::new(&job, 0, &shared).expect("a descriptor");
        // One place had two, so the first has its answer.
        for due in [0, MS] {
            runner.take(due);
            runner.connections[0].assign(0, due, due, job.protocol);
        }
        (runner.now, runner.blocked, runner.tally.waited) = (1010 * MS, 1000 * MS, 0);
        runner.give_up();
        let tally = &runner.tally;
        assert_eq!((tally.failures.unanswered, tally.waited), (9, 8));
        assert_eq!((tally.failures.all(), tally.requests), (9, 0));
        assert_eq!(tally.latency.count(), 9);
        // Due at 1 ms the first of them, at 9 ms the last.
        let (shortest, longest) = (tally.latency.min(), tally.latency.max());
        assert!((1_000_000..=1_002_000).contains(&shortest), "{shortest}");
        assert!((1_009_000..=1_011_000).contains(&longest), "{longest}");
        assert_eq!(runner.due(), None);
    }
}
