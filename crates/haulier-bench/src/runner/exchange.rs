//! Sending requests and reading answers of HTTP/1 and FastCGI, as far as the sockets allow.

use std::io;

use rustix::event::epoll;

use super::ending::{class_of, class_of_fault};
use super::{MOST_READS, Runner};
use crate::answer::AnswerContext;
use crate::connection::{ConnectionPhase, Interest};
use crate::transport::Transport;

impl Runner<'_> {
    /// Sends the request as far as the socket and the rate allow.
    pub(super) fn push(&mut self, id: usize) {
        if self.connections[id].streams.is_some() {
            return self.send_streams(id);
        }
        let bytes = &self.job.requests[self.connections[id].current.index].bytes;
        loop {
            let now = self.clock.now;
            let connection = &mut self.connections[id];
            let current = &mut connection.current;
            let end = match self.job.send_rate {
                None => bytes.len(),
                Some(rate) => bytes
                    .len()
                    .min(allowance(rate, now.saturating_sub(current.timing.sent))),
            };
            if current.sent_bytes >= end {
                return self.watch(id, Interest::Nothing);
            }
            let Some(transport) = &mut connection.transport else {
                return;
            };
            match transport.send(&bytes[current.sent_bytes..end]) {
                Ok(count) => {
                    current.sent_bytes += count;
                    let is_complete = current.sent_bytes == bytes.len();
                    if matches!(
                        connection.phase,
                        ConnectionPhase::Connecting | ConnectionPhase::Handshake
                    ) {
                        self.established(id);
                    }
                    self.measured.tally.bytes.sent += count as u64;
                    let connection = &mut self.connections[id];
                    connection.since = self.clock.now;
                    connection.phase = ConnectionPhase::Sending;
                    if is_complete {
                        connection.phase = ConnectionPhase::Waiting;
                        let interest = connection.interest_after_sending();
                        return self.watch(id, interest);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return self.watch(id, Interest::ReadWrite),
                Err(error) => return self.broken(id, &error),
            }
        }
    }

    /// Sets the events that epoll reports of a connection.
    pub(super) fn watch(&mut self, id: usize, interest: Interest) {
        let connection = &mut self.connections[id];
        if connection.interest == Some(interest) {
            return;
        }
        let Some(transport) = &connection.transport else { return };
        let flags = match interest {
            Interest::Nothing => epoll::EventFlags::empty(),
            // RDHUP tells of the end together with the last bytes.
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

    /// Handles an event of a connection.
    pub(super) fn handle(&mut self, id: usize, flags: epoll::EventFlags) {
        use ConnectionPhase as Phase;
        let end = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
        self.peer_closed = flags.intersects(end);
        match self.connections[id].phase {
            Phase::Connecting => self.connected(id),
            Phase::Tunnel if flags.contains(epoll::EventFlags::OUT) && !self.has_sent_tunnel(id) => {
                self.push_tunnel(id);
            }
            Phase::Tunnel => self.read_tunnel(id),
            Phase::Handshake => self.shake_hands(id),
            Phase::Sending | Phase::Waiting | Phase::Body => self.carry_on(id, flags),
            Phase::Streams => self.carry_streams(id, flags),
            Phase::Closing if self.peer_closed => self.closed(id),
            Phase::Idle => self.connections[id].close(),
            Phase::Closing | Phase::Vacant | Phase::Retired => {}
        }
        self.peer_closed = false;
    }

    fn has_sent_tunnel(&self, id: usize) -> bool {
        let length = self.job.tunnel.as_ref().map_or(0, String::len);
        self.connections[id].current.sent_bytes >= length
    }

    fn carry_on(&mut self, id: usize, flags: epoll::EventFlags) {
        if flags.contains(epoll::EventFlags::OUT) {
            if self.connections[id].phase == ConnectionPhase::Sending {
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

    /// Reads the answer as far as the socket and the rate allow.
    pub(super) fn read(&mut self, id: usize) {
        let mut buffer = std::mem::take(&mut self.buffers.input);
        for _ in 0..MOST_READS {
            let connection = &mut self.connections[id];
            let Some(transport) = &mut connection.transport else {
                break;
            };
            let limit = match self.job.read_rate {
                None => buffer.len(),
                Some(rate) => {
                    let current = &connection.current;
                    let allowed = allowance(rate, self.clock.now.saturating_sub(current.timing.sent));
                    allowed
                        .saturating_sub(current.received_bytes as usize)
                        .min(buffer.len())
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
        self.buffers.input = buffer;
    }

    /// Takes bytes of the answer. True if the request has ended, with an answer or a failure.
    fn feed(&mut self, id: usize, bytes: &[u8]) -> bool {
        self.clock.update();
        let now = self.clock.now;
        self.measured.tally.bytes.received += bytes.len() as u64;
        let connection = &mut self.connections[id];
        connection.since = now;
        let current = &mut connection.current;
        current.received_bytes += bytes.len() as u64;
        if current.timing.first_byte == 0 {
            current.timing.first_byte = now;
            connection.phase = ConnectionPhase::Body;
        }
        let mut context = AnswerContext {
            known: &mut self.buffers.heads[current.index],
            is_head: self.job.requests[current.index].is_head,
            expected: &self.job.expected,
            scratch: &mut self.buffers.scratch,
            capture: self.measured.capture(id),
        };
        match connection.answer.take(bytes, &mut context) {
            Ok(None) => return false,
            Ok(Some(complete)) => self.complete(id, complete),
            Err(fault) => self.fail(id, class_of_fault(fault)),
        }
        true
    }

    /// Takes the end of a connection.
    pub(super) fn ended(&mut self, id: usize) {
        self.clock.update();
        if self.connections[id].streams.is_some() {
            return self.lose(id, |failures| &mut failures.short_body);
        }
        match self.connections[id].answer.end() {
            Ok(complete) => self.complete(id, complete),
            Err(_) if self.may_try_again(id) => self.queues.ready.push(id),
            Err(fault) => self.fail(id, class_of_fault(fault)),
        }
    }

    /// Takes an error of a connection.
    pub(super) fn broken(&mut self, id: usize, error: &io::Error) {
        self.clock.update();
        let transport = self.connections[id].transport.as_ref();
        if self.may_try_again(id) {
            self.queues.ready.push(id);
        } else if transport.is_some_and(Transport::reads_ahead) && error.raw_os_error().is_none() {
            self.fail(id, |failures| &mut failures.tls);
        } else {
            self.fail(id, class_of(error));
        }
    }

    /// True if the server may have closed a kept connection before it saw the request, which is no failure.
    fn may_try_again(&self, id: usize) -> bool {
        let connection = &self.connections[id];
        connection.used > 0 && connection.current.timing.first_byte == 0 && connection.answer.is_untouched()
    }
}

/// Bytes that `rate` a second allows after this time; at least one, so that there is a start.
fn allowance(rate: u64, nanoseconds: u64) -> usize {
    let bytes = u128::from(rate) * u128::from(nanoseconds) / 1_000_000_000;
    usize::try_from(bytes).unwrap_or(usize::MAX).max(1)
}
