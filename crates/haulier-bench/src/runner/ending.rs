//! The end of a request: its result, and the next use of its connection.

use std::io;
use std::sync::atomic::Ordering;

use rustix::io::Errno;

use super::measurements::FailureClass;
use super::{LoadControl, PAUSE, Runner};
use crate::answer::{Complete, Fault};
use crate::connection::{ConnectionPhase, Interest, Timing};
use crate::job::SliceJob;
use crate::sample::RequestTimes;

impl Runner<'_> {
    /// Counts a complete answer.
    pub(super) fn count(&mut self, timing: Timing, complete: Complete) {
        let now = self.clock.now;
        let failure = judge(self.job, self.control, complete);
        let tally = &mut self.measured.tally;
        tally.count_status(complete.status, 1);
        tally.bytes.body += complete.body;
        tally.elapsed = now;
        match failure {
            None => {
                tally.requests += 1;
                tally.after_end += u64::from(self.schedule.was_late(timing.due));
            }
            Some(class) => {
                *class(&mut tally.failures) += 1;
                tally.seconds.fail(now);
            }
        }
        if failure.is_none() || self.job.expected.time_failures {
            self.count_times(timing);
        }
    }

    fn count_times(&mut self, timing: Timing) {
        let now = self.clock.now;
        let tally = &mut self.measured.tally;
        let latency = now.saturating_sub(timing.due);
        let wait = timing.first_byte.saturating_sub(timing.sent);
        tally.latency.record(latency);
        tally.first_byte.record(wait);
        tally.seconds.record(now, latency);
        if self.schedule.is_open_loop() {
            tally.service.record(now.saturating_sub(timing.sent));
        }
        if self.job.times_processing {
            tally.processing.record(latency.saturating_sub(timing.connect_time));
        }
        if self.job.keep_times {
            tally.times.push(RequestTimes {
                started: self.clock.epoch + timing.due / 1000,
                connect: timing.connect_time / 1000,
                wait: wait / 1000,
                total: latency / 1000,
            });
        }
    }

    /// Ends a request with its answer.
    pub(super) fn complete(&mut self, id: usize, complete: Complete) {
        self.count(self.connections[id].current.timing, complete);
        self.measured.end_capture(id);
        let connection = &mut self.connections[id];
        connection.used += 1;
        connection.is_busy = false;
        let is_kept = complete.keeps_alive && self.job.keep_alive;
        self.measured.tally.kept_alive += u64::from(is_kept);
        let transport = connection.transport.as_ref();
        if is_kept {
            connection.phase = ConnectionPhase::Idle;
            self.free(id);
        } else if self.peer_closed || transport.is_none_or(|transport| transport.reads_ahead()) {
            self.closed(id);
        } else {
            // The side that closes first keeps the port for a minute: better the server than this machine.
            connection.phase = ConnectionPhase::Closing;
            connection.since = self.clock.now;
            self.watch(id, Interest::Read);
        }
    }

    pub(super) fn closed(&mut self, id: usize) {
        self.connections[id].close();
        self.free(id);
    }

    /// Ends a request with a failure.
    pub(super) fn fail(&mut self, id: usize, class: FailureClass) {
        if self.connections[id].streams.is_some() {
            return self.lose(id, class);
        }
        self.note_failure(class);
        self.connections[id].abandon();
        self.connections[id].is_busy = false;
        if self.schedule.is_open_loop() {
            self.free(id);
        } else {
            self.retry_later(id);
        }
    }

    pub(super) fn note_failure(&mut self, class: FailureClass) {
        self.measured.note_failure(class, self.clock.now);
        if self.job.stop.ends(&self.measured.tally.failures) {
            self.control.stop.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn retry_later(&mut self, id: usize) {
        self.queues.retries.push_back((self.clock.now + PAUSE, id));
    }

    /// Makes a connection free for the next request.
    fn free(&mut self, id: usize) {
        if self.schedule.is_open_loop() {
            self.queues.active -= 1;
            self.queues.idle.push_back(id);
        } else {
            self.next(id);
        }
    }
}

fn judge(job: &SliceJob, control: &LoadControl, complete: Complete) -> Option<FailureClass> {
    let expected = &job.expected;
    if !expected.status.allows(complete.status) {
        Some(|failures| &mut failures.status)
    } else if expected.same_length && !control.has_length_of_first(complete.body) {
        Some(|failures| &mut failures.length)
    } else if complete.differs {
        Some(|failures| &mut failures.body)
    } else {
        None
    }
}

pub(super) fn class_of_fault(fault: Fault) -> FailureClass {
    match fault {
        Fault::Protocol => |failures| &mut failures.protocol,
        Fault::Short => |failures| &mut failures.short_body,
    }
}

pub(super) fn class_of(error: &io::Error) -> FailureClass {
    match Errno::from_io_error(error) {
        Some(Errno::CONNREFUSED | Errno::NOENT | Errno::ACCESS | Errno::NETUNREACH | Errno::HOSTUNREACH) => {
            |failures| &mut failures.refused
        }
        Some(Errno::TIMEDOUT) => |failures| &mut failures.connect_timeout,
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::ADDRNOTAVAIL | Errno::ADDRINUSE) => {
            |failures| &mut failures.local
        }
        Some(_) => |failures| &mut failures.reset,
        // An error of rustls has no number. A TLS stream that ends without close_notify is a body cut short.
        None if error.kind() == io::ErrorKind::UnexpectedEof => |failures| &mut failures.short_body,
        None => |failures| &mut failures.tls,
    }
}
