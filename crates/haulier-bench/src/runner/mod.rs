//! One thread of load: an epoll loop over its connections.
//!
//! A request allocates nothing and sets no timer: a scan ten times a second finds expired timeouts. Failed connections go
//! into a queue that the loop empties, so that a server that refuses connections causes no recursion.

mod connecting;
mod ending;
mod exchange;
mod measurements;
mod multiplexed;
mod schedule;

use std::collections::VecDeque;
use std::io;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustls::pki_types::ServerName;

use self::measurements::Measurements;
use self::schedule::Schedule;
use super::answer::{Captured, KnownHead};
use super::connection::{Connection, ConnectionPhase, Interest};
use super::job::{SliceJob, share};
use super::sample::Tally;
use super::tls;

/// Bytes read at once.
const READ: usize = 64 * 1024;
/// Reads of one connection before the next one has its turn.
const MOST_READS: usize = 16;
const MOST_EVENTS: usize = 512;
/// Interval of the scan for timeouts, ns.
const SCAN: u64 = 100_000_000;
/// Interval of reads and writes with a limited rate, ns.
const TURN: u64 = 20_000_000;
/// Pause before a refused connection is tried again, ns.
const PAUSE: u64 = 1_000_000;
/// Longest wait for a server that announced to close, ns.
const CLOSING: u64 = 100_000_000;

/// Control and counters that all threads of a process share.
#[derive(Debug, Default)]
pub struct LoadControl {
    /// Requests given out in a closed loop.
    given: AtomicU64,
    /// Answers of any kind so far, to show progress.
    pub done: AtomicU64,
    /// Ends all threads soon.
    pub stop: AtomicBool,
    /// The length of the first body and 1; 0 before.
    first_length: AtomicU64,
}

impl LoadControl {
    /// Begins another slice, whose requests are counted from 0.
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

/// Runs one thread's part of the job to its end.
///
/// # Errors
/// Wrong TLS options, or no descriptor for epoll.
pub(super) fn run(job: &SliceJob, thread: u32, control: &LoadControl) -> io::Result<(Tally, Option<Captured>)> {
    let mut runner = Runner::new(job, thread, control)?;
    runner.run()?;
    let (tally, captured) = runner.measured.finish();
    Ok((tally, job.capture.then_some(captured)))
}

/// The load of one thread.
struct Runner<'j> {
    // The work, which does not change.
    job: &'j SliceJob,
    tls: Option<(std::sync::Arc<rustls::ClientConfig>, ServerName<'static>)>,
    /// Number of the first connection among those of the job.
    first_connection: u32,

    // Its progress.
    control: &'j LoadControl,
    clock: Clock,
    schedule: Schedule,
    queues: Queues,
    timers: Timers,

    // The connections.
    epoll: rustix::fd::OwnedFd,
    connections: Vec<Connection>,
    buffers: Buffers,
    /// The server has ended the connection whose event is being handled.
    peer_closed: bool,

    // The result.
    measured: Measurements,
}

/// The time of the last look at the clock.
struct Clock {
    start: Instant,
    /// The start, µs since 1970.
    epoch: u64,
    /// ns since the start.
    now: u64,
}

impl Clock {
    fn start() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            start: Instant::now(),
            epoch: u64::try_from(since.as_micros()).unwrap_or(u64::MAX),
            now: 0,
        }
    }

    fn update(&mut self) {
        self.now = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    }
}

/// Connections without an event to wait for, by index.
#[derive(Default)]
struct Queues {
    /// Of an open loop, the longest idle one first; one entry for each request that it may carry.
    idle: VecDeque<usize>,
    /// Those that get their next request at once.
    ready: Vec<usize>,
    /// Those that were refused, and the time of the next attempt.
    retries: VecDeque<(u64, usize)>,
    /// Connections of a closed loop, or requests of an open one, that are not finished.
    active: usize,
}

/// Times of the next periodic work.
struct Timers {
    scan: u64,
    turn: u64,
}

/// Memory for reading.
struct Buffers {
    input: Vec<u8>,
    /// Decoded chunks.
    scratch: Vec<u8>,
    /// By request of the job: the last head of its answers.
    heads: Vec<KnownHead>,
}

impl<'j> Runner<'j> {
    fn new(job: &'j SliceJob, thread: u32, control: &'j LoadControl) -> io::Result<Self> {
        let (first_connection, count) = share(job.connections, thread, job.threads);
        let tls = match &job.tls {
            None => None,
            Some(options) => {
                let name = ServerName::try_from(options.server_name.clone()).map_err(io::Error::other)?;
                Some((tls::config(options, job.protocol)?, name))
            }
        };
        Ok(Self {
            job,
            tls,
            first_connection,
            control,
            clock: Clock::start(),
            schedule: Schedule::new(job, thread),
            queues: Queues {
                idle: VecDeque::with_capacity(count as usize),
                ..Queues::default()
            },
            timers: Timers { scan: SCAN, turn: 0 },
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            connections: (0..count).map(|_| Connection::new(job)).collect(),
            buffers: Buffers {
                input: vec![0; READ],
                scratch: Vec::new(),
                heads: job.requests.iter().map(|_| KnownHead::default()).collect(),
            },
            peer_closed: false,
            measured: Measurements::new(job, count),
        })
    }

    fn run(&mut self) -> io::Result<()> {
        self.fill_queues();
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
            self.clock.update();
            let answers = self.measured.tally.answers();
            for event in events.drain(..) {
                let id = event.data.u64() as usize;
                self.handle(id, event.flags);
            }
            let answers = self.measured.tally.answers() - answers;
            self.control.done.fetch_add(answers, Ordering::Relaxed);
            self.run_timers();
        }
        if self.schedule.is_open_loop() && self.is_grace_over() {
            self.give_up();
        }
        if let Some(deadline) = self.schedule.deadline() {
            // A timed slice has its length, even if answers came after its end.
            self.measured.tally.elapsed = deadline.min(self.clock.now);
        }
        Ok(())
    }

    fn fill_queues(&mut self) {
        if self.schedule.is_open_loop() {
            // An error leaves the slack of 50 µs, which the sending error shows.
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
            let slots = self.connections.iter().map(Connection::slots).max().unwrap_or(0);
            for _ in 0..slots {
                self.queues.idle.extend(0..self.connections.len());
            }
        } else {
            self.queues.active = self.connections.len();
            self.queues.ready.extend((0..self.connections.len()).rev());
        }
    }

    fn is_over(&self) -> bool {
        let (now, active) = (self.clock.now, self.queues.active);
        self.control.stop.load(Ordering::Relaxed) || self.schedule.is_over(now, active, || self.longest_answer())
    }

    fn is_grace_over(&self) -> bool {
        self.schedule.is_grace_over(self.clock.now, || self.longest_answer())
    }

    /// Longest time from sending to the last byte so far, ns.
    fn longest_answer(&self) -> u64 {
        self.measured.tally.service.max().saturating_mul(1000)
    }

    /// Time until the next work that no event announces.
    fn timeout(&self) -> Timespec {
        let now = self.clock.now;
        let mut until = self.timers.scan;
        if let Some(deadline) = self.schedule.deadline().filter(|deadline| *deadline > now) {
            until = until.min(deadline);
        }
        if let Some(due) = self.schedule.due().filter(|_| !self.queues.idle.is_empty()) {
            until = until.min(due);
        }
        if let Some((time, _)) = self.queues.retries.front() {
            until = until.min(*time);
        }
        if self.has_rate_limit() {
            until = until.min(self.timers.turn);
        }
        let wait = Duration::from_nanos(if self.queues.ready.is_empty() {
            until.saturating_sub(now)
        } else {
            0
        });
        Timespec {
            tv_sec: wait.as_secs() as i64,
            tv_nsec: i64::from(wait.subsec_nanos()),
        }
    }

    fn has_rate_limit(&self) -> bool {
        self.job.read_rate.is_some() || self.job.send_rate.is_some()
    }

    /// Gives connections that are ready their next requests.
    fn give_out(&mut self) {
        let (queues, now) = (&mut self.queues, self.clock.now);
        while let Some((_, id)) = queues.retries.front().copied().filter(|(time, _)| *time <= now) {
            queues.retries.pop_front();
            queues.ready.push(id);
        }
        // Only those that are ready now: one that fails at once waits for the next turn.
        for id in std::mem::take(&mut queues.ready) {
            if self.connections[id].is_busy {
                self.connect(id);
            } else {
                self.next(id);
            }
        }
        if self.schedule.is_open_loop() {
            self.send_due();
        }
    }

    /// Gives a connection of a closed loop its next request, or retires it.
    fn next(&mut self, id: usize) {
        if self.connections[id].streams.is_some() {
            return self.fill(id);
        }
        let Some(number) = self.next_number() else {
            self.connections[id].close();
            self.connections[id].phase = ConnectionPhase::Retired;
            self.queues.active -= 1;
            return;
        };
        self.dispatch(id, self.job.request(number), self.clock.now);
    }

    /// Number of the next request of a closed loop; `None` at its end.
    fn next_number(&self) -> Option<u64> {
        if self.schedule.is_past_deadline(self.clock.now) {
            return None;
        }
        let number = self.control.given.fetch_add(1, Ordering::Relaxed);
        self.job.count.is_none_or(|count| number < count).then_some(number)
    }

    /// Sends the due requests of an open loop, each on the connection that has been idle longest.
    fn send_due(&mut self) {
        self.clock.update();
        while let Some(due) = self.schedule.due().filter(|due| *due <= self.clock.now) {
            let now = self.clock.now;
            if self.is_grace_over() {
                return;
            }
            let Some(id) = self.queues.idle.pop_front() else {
                self.schedule.block(now);
                return;
            };
            let Some(taken) = self.schedule.take(due, now) else {
                return;
            };
            if taken.has_waited {
                self.measured.tally.waited += 1;
            } else {
                self.measured.tally.sent_late.record(now - due);
            }
            self.queues.active += 1;
            self.dispatch(id, self.job.request(taken.number), due);
            self.clock.update();
        }
    }

    /// Ends an open loop: due requests without an answer have failed, whether they were sent or not.
    fn give_up(&mut self) {
        let now = self.clock.now;
        for due in self.connections.iter().flat_map(Connection::dues) {
            self.measured.note_unanswered(due, now);
        }
        while let Some(due) = self.schedule.due() {
            let taken = self.schedule.take(due, now);
            self.measured.tally.waited += u64::from(taken.is_some_and(|taken| taken.has_waited));
            self.measured.note_unanswered(due, now);
        }
    }

    /// Puts a request on a connection, and opens it if necessary.
    fn dispatch(&mut self, id: usize, request: usize, due: u64) {
        let connection = &mut self.connections[id];
        if connection.streams.is_some() {
            return self.assign(id, request, due);
        }
        connection.assign(request, due, self.clock.now, self.job.protocol);
        if connection.transport.is_some() {
            connection.phase = ConnectionPhase::Sending;
            self.push(id);
        } else {
            self.connect(id);
        }
    }

    fn run_timers(&mut self) {
        let now = self.clock.now;
        if self.has_rate_limit() && now >= self.timers.turn {
            self.timers.turn = now + TURN;
            self.take_turns();
        }
        if now >= self.timers.scan {
            self.timers.scan = now + SCAN;
            for id in 0..self.connections.len() {
                self.check_timeout(id);
            }
        }
    }

    /// Reads and sends on connections with a limited rate.
    fn take_turns(&mut self) {
        for id in 0..self.connections.len() {
            match self.connections[id].phase {
                ConnectionPhase::Sending => self.push(id),
                ConnectionPhase::Body if self.connections[id].interest == Some(Interest::Nothing) => self.read(id),
                _ => {}
            }
        }
    }

    fn check_timeout(&mut self, id: usize) {
        use ConnectionPhase as Phase;
        let connection = &self.connections[id];
        let waited = self.clock.now.saturating_sub(connection.since);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Arrivals;
    use crate::job::tests::job;
    use crate::pacer::Spacing;

    const MS: u64 = 1_000_000;

    #[test]
    fn unanswered_requests_have_failed_and_their_wait_is_in_the_latency() {
        let job = SliceJob {
            count: None,
            time: Some(Duration::from_millis(10)),
            arrivals: Arrivals::Open {
                rate: 1000.0,
                spacing: Spacing::Constant,
                seed: 1,
            },
            ..job()
        };
        let control = LoadControl::default();
        let mut runner = Runner::new(&job, 0, &control).expect("a descriptor");
        // The connection had two requests, so the first of them has its answer.
        for due in [0, MS] {
            runner.schedule.take(due, due);
            runner.connections[0].assign(0, due, due, job.protocol);
        }
        runner.clock.now = 1010 * MS;
        runner.schedule.block(1000 * MS);
        runner.give_up();
        let tally = &runner.measured.tally;
        assert_eq!((tally.failures.unanswered, tally.waited), (9, 8));
        assert_eq!((tally.failures.all(), tally.requests), (9, 0));
        assert_eq!(tally.latency.count(), 9);
        // The first of them was due at 1 ms, the last at 9 ms.
        let (shortest, longest) = (tally.latency.min(), tally.latency.max());
        assert!((1_000_000..=1_002_000).contains(&shortest), "{shortest}");
        assert!((1_009_000..=1_011_000).contains(&longest), "{longest}");
        assert_eq!(runner.schedule.due(), None);
    }
}
