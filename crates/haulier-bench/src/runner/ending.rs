//! The end of a request: what it counts as, and what becomes of its connection.

use std::io;
use std::sync::atomic::Ordering;

use rustix::io::Errno;

use super::{Class, PAUSE, Runner, Shared};
use crate::answer::{Complete, Fault};
use crate::connection::{Interest, Phase};
use crate::job::Job;
use crate::sample::RequestTimes;

/// The times of a request, ns since the start of the thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timing {
    /// When it was due.
    pub(super) due: u64,
    /// When it was sent.
    pub(super) sent: u64,
    /// When the answer began.
    pub(super) first_byte: u64,
    /// How long the connection took for it; 0 on a kept one.
    pub(super) connect_time: u64,
}

impl Runner<'_> {
    /// Counts a complete answer.
    pub(super) fn count(&mut self, times: Timing, complete: Complete) {
        let is_open_loop = self.is_open_loop();
        let tally = &mut self.tally;
        tally.count_status(complete.status, 1);
        tally.bytes.body += complete.body;
        tally.elapsed = self.now;
        let failure = judge(self.job, self.shared, complete);
        match failure {
            None => {
                tally.requests += 1;
                tally.after_end += u64::from(times.due >= self.late_from);
            }
            Some(class) => {
                *class(&mut tally.failures) += 1;
                tally.seconds.fail(self.now);
            }
        }
        if failure.is_some() && !self.job.expected.time_failures {
            return;
        }
        let latency = self.now.saturating_sub(times.due);
        let wait = times.first_byte.saturating_sub(times.sent);
        tally.latency.record(latency);
        tally.first_byte.record(wait);
        tally.seconds.record(self.now, latency);
        if is_open_loop {
            tally.service.record(self.now.saturating_sub(times.sent));
        }
        if self.job.times_processing {
            tally.processing.record(latency.saturating_sub(times.connect_time));
        }
        if self.job.keep_times {
            tally.times.push(RequestTimes {
                started: self.epoch + times.due / 1000,
                connect: times.connect_time / 1000,
                wait: wait / 1000,
                total: latency / 1000,
            });
        }
    }

    pub(super) fn complete(&mut self, id: usize, complete: Complete) {
        let connection = &self.connections[id];
        let times = Timing {
            due: connection.due,
            sent: connection.sent,
            first_byte: connection.first_byte,
            connect_time: connection.connect_time,
        };
        self.count(times, complete);
        let connection = &mut self.connections[id];
        connection.used += 1;
        connection.is_busy = false;
        self.has_captured |= id == 0;
        if let Some(answer) = self.answers.get_mut(id) {
            self.tally.seen.push(std::mem::take(answer));
        }
        let is_kept = complete.keeps_alive && self.job.keep_alive;
        self.tally.kept_alive += u64::from(is_kept);
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

    pub(super) fn closed(&mut self, id: usize) {
        self.connections[id].close();
        self.free(id);
    }

    pub(super) fn fail(&mut self, id: usize, class: Class) {
        if self.connections[id].streams.is_some() {
            return self.lose(id, class);
        }
        self.note_failure(class);
        self.connections[id].abandon();
        self.connections[id].is_busy = false;
        if self.is_open_loop() {
            self.free(id);
        } else {
            self.later.push_back((self.now + PAUSE, id));
        }
    }

    pub(super) fn note_failure(&mut self, class: Class) {
        *class(&mut self.tally.failures) += 1;
        self.tally.seconds.fail(self.now);
        self.tally.elapsed = self.now;
        if self.job.stop.ends(&self.tally.failures) {
            self.shared.stop.store(true, Ordering::Relaxed);
        }
    }

    /// The place is free for the next request.
    pub(super) fn free(&mut self, id: usize) {
        if self.is_open_loop() {
            self.active -= 1;
            self.idle.push_back(id);
        } else {
            self.next(id);
        }
    }
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

pub(super) fn class_of_fault(fault: Fault) -> Class {
    match fault {
        Fault::Protocol => |failures| &mut failures.protocol,
        Fault::Short => |failures| &mut failures.short_body,
    }
}

pub(super) fn class_of(error: &io::Error) -> Class {
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
