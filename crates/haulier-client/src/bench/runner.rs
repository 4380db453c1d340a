//! One thread of load: an epoll loop over its connections.
//!
//! Nothing is allocated for a request, and no timer set: one scan ten times a second finds what waited too long. Failures
//! put a connection into a queue that the loop empties, so that a server that refuses cannot make us recurse.

use std::collections::VecDeque;
use std::io;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustls::pki_types::ServerName;

use super::answer::{Captured, Complete, Fault, KnownHead, Reading};
use super::connection::{Connection, Interest, Phase};
use super::job::{Arrivals, Job, share};
use super::pacer::Pacer;
use super::result::Failures;
use super::sample::{RequestTimes, Tally};
use super::{tls, transport};

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
    let captured = job.capture.then_some(runner.captured);
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
                Some((tls::config(options)?, name))
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
            connections: (0..count).map(|_| Connection::new(job.protocol)).collect(),
            first,
            heads: job.requests.iter().map(|_| KnownHead::default()).collect(),
            tally: Tally::default(),
            buffer: vec![0; READ],
            scratch: Vec::new(),
            captured: Captured::default(),
            has_captured: false,
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
            self.idle.extend(0..self.connections.len());
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

    // ── giving out requests ──────────────────────────────────────────────────────────────────────────────────────────

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
        connection.assign(request, due, self.now, self.job.protocol);
        if connection.transport.is_some() {
            connection.phase = Phase::Sending;
            self.push(id);
        } else {
            self.connect(id);
        }
    }

    // ── connecting ───────────────────────────────────────────────────────────────────────────────────────────────────

    fn connect(&mut self, id: usize) {
        let now = self.now;
        let connection = &mut self.connections[id];
        connection.close();
        connection.rewind(now, self.job.protocol);
        connection.began = now;
        connection.used = 0;
        connection.tunnel.clear();
        match transport::open(self.job, self.first + id as u32) {
            Ok(transport) => {
                connection.transport = Some(transport);
                connection.phase = Phase::Connecting;
                if self.tls.is_some() || self.job.tunnel.is_some() {
                    self.watch(id, Interest::ReadWrite);
                } else {
                    // On a short way the connection stands already, and one system call is saved.
                    self.push(id);
                }
            }
            // The queue of a local socket is full; nobody will tell us when it is not.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.later.push_back((now + PAUSE, id)),
            Err(error) => self.fail(id, class_of(&error)),
        }
    }

    fn connected(&mut self, id: usize) {
        let connection = &mut self.connections[id];
        let Some(transport) = &mut connection.transport else {
            return;
        };
        if let Err(error) = transport.take_error() {
            self.fail(id, class_of(&error));
            return;
        }
        if self.job.tunnel.is_some() {
            connection.phase = Phase::Tunnel;
            self.push_tunnel(id);
        } else if self.tls.is_some() {
            self.greet(id);
        } else {
            self.push(id);
        }
    }

    fn push_tunnel(&mut self, id: usize) {
        let Some(tunnel) = &self.job.tunnel else { return };
        let connection = &mut self.connections[id];
        let Some(transport) = &mut connection.transport else {
            return;
        };
        while connection.offset < tunnel.len() {
            match transport.send(&tunnel.as_bytes()[connection.offset..]) {
                Ok(count) => connection.offset += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return self.watch(id, Interest::ReadWrite),
                Err(error) => return self.broken(id, &error),
            }
        }
        self.watch(id, Interest::Read);
    }

    /// The answer of the proxy. Behind it the server waits for our greeting: no byte of it can be here.
    fn read_tunnel(&mut self, id: usize) {
        let connection = &mut self.connections[id];
        let Some(transport) = &mut connection.transport else {
            return;
        };
        let mut piece = [0; 1024];
        match transport.recv(&mut piece) {
            Ok(0) => return self.fail(id, |failures| &mut failures.refused),
            Ok(count) => connection.tunnel.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) => return self.broken(id, &error),
        }
        if !connection.tunnel.ends_with(b"\r\n\r\n") {
            return;
        }
        let is_open = connection.tunnel.starts_with(b"HTTP/1.") && connection.tunnel.get(9) == Some(&b'2');
        if is_open {
            connection.offset = 0;
            self.greet(id);
        } else {
            self.fail(id, |failures| &mut failures.refused);
        }
    }

    fn greet(&mut self, id: usize) {
        let Some((config, name)) = &self.tls else {
            return self.push(id);
        };
        let connection = &mut self.connections[id];
        let Some(transport) = &mut connection.transport else {
            return;
        };
        connection.phase = Phase::Handshake;
        match transport.secure(config, name) {
            Ok(()) => self.shake(id),
            Err(_) => self.fail(id, |failures| &mut failures.tls),
        }
    }

    fn shake(&mut self, id: usize) {
        let Some(transport) = &mut self.connections[id].transport else {
            return;
        };
        match transport.handshake() {
            Ok(true) => {
                if id == 0 && self.job.capture {
                    self.captured.tls = transport.tls_words();
                }
                self.push(id);
            }
            Ok(false) => {
                let interest = if transport.has_unsent() {
                    Interest::ReadWrite
                } else {
                    Interest::Read
                };
                self.watch(id, interest);
            }
            Err(_) => self.fail(id, |failures| &mut failures.tls),
        }
    }

    /// The connection stands: its first request is on the way.
    fn established(&mut self, id: usize) {
        self.look_at_clock();
        let connection = &mut self.connections[id];
        connection.connect_time = self.now.saturating_sub(connection.began).max(1);
        connection.sent = self.now;
        self.tally.connections_opened += 1;
        self.tally.connect.record(connection.connect_time);
    }

    // ── sending ──────────────────────────────────────────────────────────────────────────────────────────────────────

    fn push(&mut self, id: usize) {
        let bytes = &self.job.requests[self.connections[id].request].bytes;
        loop {
            let connection = &mut self.connections[id];
            let end = match self.job.send_rate {
                None => bytes.len(),
                Some(rate) => bytes
                    .len()
                    .min(allowance(rate, self.now.saturating_sub(connection.sent))),
            };
            if connection.offset >= end {
                return self.watch(id, Interest::Nothing);
            }
            let Some(transport) = &mut connection.transport else {
                return;
            };
            match transport.send(&bytes[connection.offset..end]) {
                Ok(count) => {
                    connection.offset += count;
                    let is_new = matches!(connection.phase, Phase::Connecting | Phase::Handshake);
                    if is_new {
                        self.established(id);
                    }
                    self.tally.bytes.sent += count as u64;
                    let connection = &mut self.connections[id];
                    connection.since = self.now;
                    connection.phase = Phase::Sending;
                    if connection.offset == bytes.len() {
                        return self.sent(id);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return self.watch(id, Interest::ReadWrite),
                Err(error) => return self.broken(id, &error),
            }
        }
    }

    fn sent(&mut self, id: usize) {
        let connection = &mut self.connections[id];
        connection.phase = Phase::Waiting;
        let has_unsent = connection
            .transport
            .as_ref()
            .is_some_and(transport::Transport::has_unsent);
        self.watch(
            id,
            if has_unsent {
                Interest::ReadWrite
            } else {
                Interest::Read
            },
        );
    }

    fn watch(&mut self, id: usize, interest: Interest) {
        let connection = &mut self.connections[id];
        if connection.interest == Some(interest) {
            return;
        }
        let Some(transport) = &connection.transport else { return };
        let flags = match interest {
            Interest::Nothing => epoll::EventFlags::empty(),
            // The end of a connection that is used once is worth knowing with its last bytes.
            Interest::Read => epoll::EventFlags::IN | epoll::EventFlags::RDHUP,
            Interest::ReadWrite => epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::OUT,
        };
        let data = epoll::EventData::new_u64(id as u64);
        let watched = match connection.interest {
            None => epoll::add(&self.epoll, transport, data, flags),
            Some(_) => epoll::modify(&self.epoll, transport, data, flags),
        };
        connection.interest = Some(interest);
        if watched.is_err() {
            self.fail(id, |failures| &mut failures.local);
        }
    }

    // ── events ───────────────────────────────────────────────────────────────────────────────────────────────────────

    fn handle(&mut self, id: usize, flags: epoll::EventFlags) {
        let end = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
        self.peer_closed = flags.intersects(end);
        match self.connections[id].phase {
            Phase::Connecting => self.connected(id),
            Phase::Tunnel if flags.contains(epoll::EventFlags::OUT) && !self.has_sent_tunnel(id) => {
                self.push_tunnel(id)
            }
            Phase::Tunnel => self.read_tunnel(id),
            Phase::Handshake => self.shake(id),
            Phase::Sending | Phase::Waiting | Phase::Body => self.carry_on(id, flags),
            Phase::Closing if self.peer_closed => self.closed(id),
            Phase::Idle => self.connections[id].close(),
            Phase::Closing | Phase::Vacant | Phase::Retired => {}
        }
        self.peer_closed = false;
    }

    fn has_sent_tunnel(&self, id: usize) -> bool {
        let length = self.job.tunnel.as_ref().map_or(0, String::len);
        self.connections[id].offset >= length
    }

    fn carry_on(&mut self, id: usize, flags: epoll::EventFlags) {
        if flags.contains(epoll::EventFlags::OUT) {
            if self.connections[id].phase == Phase::Sending {
                self.push(id);
            } else if let Some(transport) = &mut self.connections[id].transport {
                if transport.flush().is_ok() && !transport.has_unsent() {
                    self.watch(id, Interest::Read);
                }
            }
        }
        let is_readable = flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR);
        if is_readable && self.connections[id].is_busy {
            self.read(id);
        }
    }

    fn read(&mut self, id: usize) {
        let mut buffer = std::mem::take(&mut self.buffer);
        for _ in 0..MOST_READS {
            let connection = &mut self.connections[id];
            let Some(transport) = &mut connection.transport else {
                break;
            };
            let limit = match self.job.read_rate {
                None => buffer.len(),
                Some(rate) => {
                    let allowed = allowance(rate, self.now.saturating_sub(connection.sent));
                    allowed.saturating_sub(connection.taken as usize).min(buffer.len())
                }
            };
            if limit == 0 {
                self.watch(id, Interest::Nothing);
                break;
            }
            let reads_ahead = transport.reads_ahead();
            match transport.recv(&mut buffer[..limit]) {
                Ok(0) => {
                    self.ended(id);
                    break;
                }
                Ok(count) => {
                    if self.feed(id, &buffer[..count]) || (count < limit && !reads_ahead) {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    self.broken(id, &error);
                    break;
                }
            }
        }
        self.buffer = buffer;
    }

    /// True when the request is over, one way or the other.
    fn feed(&mut self, id: usize, bytes: &[u8]) -> bool {
        self.look_at_clock();
        self.tally.bytes.received += bytes.len() as u64;
        let connection = &mut self.connections[id];
        connection.since = self.now;
        connection.taken += bytes.len() as u64;
        if connection.first_byte == 0 {
            connection.first_byte = self.now;
            connection.phase = Phase::Body;
        }
        let mut reading = Reading {
            known: &mut self.heads[connection.request],
            is_head: self.job.requests[connection.request].is_head,
            expected: &self.job.expected,
            scratch: &mut self.scratch,
            // Of one connection only: the pieces of two answers must not mix.
            capture: (id == 0 && self.job.capture && !self.has_captured).then_some(&mut self.captured),
        };
        match connection.answer.take(bytes, &mut reading) {
            Ok(None) => return false,
            Ok(Some(complete)) => self.complete(id, complete),
            Err(fault) => self.fail(id, class_of_fault(fault)),
        }
        true
    }

    /// The server ended the connection.
    fn ended(&mut self, id: usize) {
        self.look_at_clock();
        match self.connections[id].answer.end() {
            Ok(complete) => self.complete(id, complete),
            Err(_) if self.may_try_again(id) => self.again.push(id),
            Err(fault) => self.fail(id, class_of_fault(fault)),
        }
    }

    /// The connection broke.
    fn broken(&mut self, id: usize, error: &io::Error) {
        self.look_at_clock();
        if self.may_try_again(id) {
            self.again.push(id);
        } else if self.connections[id]
            .transport
            .as_ref()
            .is_some_and(transport::Transport::reads_ahead)
            && error.raw_os_error().is_none()
        {
            self.fail(id, |failures| &mut failures.tls);
        } else {
            self.fail(id, class_of(error));
        }
    }

    /// A kept connection may have been closed while the request was on its way; that is nobody's failure.
    fn may_try_again(&self, id: usize) -> bool {
        let connection = &self.connections[id];
        connection.used > 0 && connection.first_byte == 0 && connection.answer.is_untouched()
    }

    // ── the end of a request ─────────────────────────────────────────────────────────────────────────────────────────

    fn complete(&mut self, id: usize, complete: Complete) {
        let is_open_loop = self.is_open_loop();
        let tally = &mut self.tally;
        let connection = &mut self.connections[id];
        tally.count_status(complete.status, 1);
        tally.bytes.body += complete.body;
        tally.elapsed = self.now;
        let failure = judge(self.job, self.shared, complete);
        match failure {
            None => tally.requests += 1,
            Some(class) => {
                *class(&mut tally.failures) += 1;
                tally.seconds.fail(self.now);
            }
        }
        if failure.is_none() || self.job.expected.time_failures {
            let latency = self.now.saturating_sub(connection.due);
            tally.latency.record(latency);
            tally
                .first_byte
                .record(connection.first_byte.saturating_sub(connection.sent));
            tally.seconds.record(self.now, latency);
            if is_open_loop {
                tally.service.record(self.now.saturating_sub(connection.sent));
            }
            if self.job.as_ab {
                tally.processing.record(latency.saturating_sub(connection.connect_time));
            }
            if self.job.keep_times {
                tally.times.push(RequestTimes {
                    started: self.epoch + connection.due / 1000,
                    connect: connection.connect_time / 1000,
                    wait: connection.first_byte.saturating_sub(connection.sent) / 1000,
                    total: latency / 1000,
                });
            }
        }
        connection.used += 1;
        connection.is_busy = false;
        self.has_captured |= id == 0;
        let is_kept = complete.keeps_alive && self.job.keep_alive;
        tally.kept_alive += u64::from(is_kept);
        if is_kept {
            connection.phase = Phase::Idle;
            self.free(id);
        } else if self.peer_closed
            || connection
                .transport
                .as_ref()
                .is_none_or(|transport| transport.reads_ahead())
        {
            self.closed(id);
        } else {
            // Whoever closes first keeps the port for a minute: that should be the server, of which there is one.
            connection.phase = Phase::Closing;
            connection.since = self.now;
            self.watch(id, Interest::Read);
        }
    }

    fn closed(&mut self, id: usize) {
        self.connections[id].close();
        self.free(id);
    }

    fn fail(&mut self, id: usize, class: Class) {
        *class(&mut self.tally.failures) += 1;
        self.tally.seconds.fail(self.now);
        self.tally.elapsed = self.now;
        self.connections[id].abandon();
        self.connections[id].is_busy = false;
        if self.job.stop_on_error {
            self.shared.stop.store(true, Ordering::Relaxed);
        }
        if self.is_open_loop() {
            self.free(id);
        } else {
            self.later.push_back((self.now + PAUSE, id));
        }
    }

    /// The place is free for the next request.
    fn free(&mut self, id: usize) {
        if self.is_open_loop() {
            self.active -= 1;
            self.idle.push_back(id);
        } else {
            self.next(id);
        }
    }

    // ── time ─────────────────────────────────────────────────────────────────────────────────────────────────────────

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
                self.fail(id, |failures| &mut failures.first_byte_timeout)
            }
            Phase::Body if is_too_long => self.fail(id, |failures| &mut failures.body_timeout),
            _ => {}
        }
    }
}

fn since_1970() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Bytes that `rate` a second come to after so many nanoseconds; one at least, so that a beginning is made.
fn allowance(rate: u64, nanoseconds: u64) -> usize {
    let bytes = u128::from(rate) * u128::from(nanoseconds) / 1_000_000_000;
    usize::try_from(bytes).unwrap_or(usize::MAX).max(1)
}

fn judge(job: &Job, shared: &Shared, complete: Complete) -> Option<Class> {
    let expected = &job.expected;
    if !expected.status.allows(complete.status) {
        Some(|failures| &mut failures.status)
    } else if expected.same_length && !shared.has_length_of_first(complete.body) {
        Some(|failures| &mut failures.length)
    } else if complete.differs {
        Some(|failures| &mut failures.body)
    } else {
        None
    }
}

fn class_of_fault(fault: Fault) -> Class {
    match fault {
        Fault::Protocol => |failures| &mut failures.protocol,
        Fault::Short => |failures| &mut failures.short_body,
    }
}

fn class_of(error: &io::Error) -> Class {
    match Errno::from_io_error(error) {
        Some(Errno::CONNREFUSED | Errno::NOENT | Errno::ACCESS | Errno::NETUNREACH | Errno::HOSTUNREACH) => {
            |failures| &mut failures.refused
        }
        Some(Errno::TIMEDOUT) => |failures| &mut failures.connect_timeout,
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::ADDRNOTAVAIL | Errno::ADDRINUSE) => {
            |failures| &mut failures.local
        }
        Some(_) => |failures| &mut failures.reset,
        // rustls speaks for itself; the end of a TLS stream without its closing message is a body cut short.
        None if error.kind() == io::ErrorKind::UnexpectedEof => |failures| &mut failures.short_body,
        None => |failures| &mut failures.tls,
    }
}
