//! Requests on the way out and answers on the way in, as far as the socket lets them.

use std::io;

use rustix::event::epoll;

use super::ending::{class_of, class_of_fault};
use super::{MOST_READS, Runner};
use crate::answer::Reading;
use crate::connection::{Interest, Phase};
use crate::transport::Transport;

impl Runner<'_> {
    pub(super) fn push(&mut self, id: usize) {
        if self.connections[id].streams.is_some() {
            return self.send_streams(id);
        }
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

    pub(super) fn sent(&mut self, id: usize) {
        let connection = &mut self.connections[id];
        connection.phase = Phase::Waiting;
        let has_unsent = connection.transport.as_ref().is_some_and(Transport::has_unsent);
        self.watch(
            id,
            if has_unsent {
                Interest::ReadWrite
            } else {
                Interest::Read
            },
        );
    }

    pub(super) fn watch(&mut self, id: usize, interest: Interest) {
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

    pub(super) fn handle(&mut self, id: usize, flags: epoll::EventFlags) {
        let end = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
        self.peer_closed = flags.intersects(end);
        match self.connections[id].phase {
            Phase::Connecting => self.connected(id),
            Phase::Tunnel if flags.contains(epoll::EventFlags::OUT) && !self.has_sent_tunnel(id) => {
                self.push_tunnel(id);
            }
            Phase::Tunnel => self.read_tunnel(id),
            Phase::Handshake => self.shake(id),
            Phase::Sending | Phase::Waiting | Phase::Body => self.carry_on(id, flags),
            Phase::Streams => self.carry_streams(id, flags),
            Phase::Closing if self.peer_closed => self.closed(id),
            Phase::Idle => self.connections[id].close(),
            Phase::Closing | Phase::Vacant | Phase::Retired => {}
        }
        self.peer_closed = false;
    }

    pub(super) fn has_sent_tunnel(&self, id: usize) -> bool {
        let length = self.job.tunnel.as_ref().map_or(0, String::len);
        self.connections[id].offset >= length
    }

    pub(super) fn carry_on(&mut self, id: usize, flags: epoll::EventFlags) {
        if flags.contains(epoll::EventFlags::OUT) {
            if self.connections[id].phase == Phase::Sending {
                self.push(id);
            } else if let Some(transport) = &mut self.connections[id].transport
                && transport.flush().is_ok()
                && !transport.has_unsent()
            {
                self.watch(id, Interest::Read);
            }
        }
        let is_readable = flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR);
        if is_readable && self.connections[id].is_busy {
            self.read(id);
        }
    }

    pub(super) fn read(&mut self, id: usize) {
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
    pub(super) fn feed(&mut self, id: usize, bytes: &[u8]) -> bool {
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
            capture: match self.answers.get_mut(id) {
                Some(answer) => Some(answer),
                // Of one connection only: the pieces of two answers must not mix.
                None => (id == 0 && self.job.capture && !self.has_captured).then_some(&mut self.captured),
            },
        };
        match connection.answer.take(bytes, &mut reading) {
            Ok(None) => return false,
            Ok(Some(complete)) => self.complete(id, complete),
            Err(fault) => self.fail(id, class_of_fault(fault)),
        }
        true
    }

    /// The server ended the connection.
    pub(super) fn ended(&mut self, id: usize) {
        self.look_at_clock();
        if self.connections[id].streams.is_some() {
            return self.lose(id, |failures| &mut failures.short_body);
        }
        match self.connections[id].answer.end() {
            Ok(complete) => self.complete(id, complete),
            Err(_) if self.may_try_again(id) => self.again.push(id),
            Err(fault) => self.fail(id, class_of_fault(fault)),
        }
    }

    /// The connection broke.
    pub(super) fn broken(&mut self, id: usize, error: &io::Error) {
        self.look_at_clock();
        if self.may_try_again(id) {
            self.again.push(id);
        } else if self.connections[id]
            .transport
            .as_ref()
            .is_some_and(Transport::reads_ahead)
            && error.raw_os_error().is_none()
        {
            self.fail(id, |failures| &mut failures.tls);
        } else {
            self.fail(id, class_of(error));
        }
    }

    /// A kept connection may have been closed while the request was on its way; that is nobody's failure.
    pub(super) fn may_try_again(&self, id: usize) -> bool {
        let connection = &self.connections[id];
        connection.used > 0 && connection.first_byte == 0 && connection.answer.is_untouched()
    }
}

/// Bytes that `rate` a second come to after so many nanoseconds; one at least, so that a beginning is made.
fn allowance(rate: u64, nanoseconds: u64) -> usize {
    let bytes = u128::from(rate) * u128::from(nanoseconds) / 1_000_000_000;
    usize::try_from(bytes).unwrap_or(usize::MAX).max(1)
}
