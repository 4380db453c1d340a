//! Connections with many requests at once: HTTP/2.
//!
//! All bytes of a read are handled first. Then the freed slots get their next requests, which are sent in one write.

use std::io;

use haulier_proto::h2::client::{ClientEvent, StreamError};
use haulier_proto::response_head::ResponseHead;
use rustix::event::epoll;

use super::measurements::FailureClass;
use super::{MOST_READS, Runner};
use crate::answer::{Captured, is_coded};
use crate::connection::{ConnectionPhase, Interest};
use crate::streams::StreamSlots;
use crate::transport::Transport;

impl Runner<'_> {
    /// The streams of a connection of HTTP/2.
    fn streams(&mut self, id: usize) -> Option<&mut StreamSlots> {
        self.connections[id].streams.as_deref_mut()
    }

    /// In a closed loop, gives every free slot its next request, and sends them. Retires a connection without requests.
    pub(super) fn fill(&mut self, id: usize) {
        let now = self.clock.now;
        while self.streams(id).is_some_and(|streams| streams.takes_more()) {
            let Some(number) = self.next_number() else { break };
            let request = self.job.request(number);
            if let Some(streams) = self.streams(id) {
                streams.assign(request, now, now);
            }
        }
        let connection = &mut self.connections[id];
        connection.is_busy = connection.streams.as_ref().is_some_and(|streams| streams.busy() > 0);
        if connection.is_busy {
            self.submit(id);
        } else {
            connection.close();
            connection.phase = ConnectionPhase::Retired;
            self.queues.active -= 1;
        }
    }

    /// In an open loop, puts a request on a connection with a free slot.
    pub(super) fn assign(&mut self, id: usize, request: usize, due: u64) {
        let now = self.clock.now;
        if let Some(streams) = self.streams(id) {
            streams.assign(request, due, now);
        }
        self.connections[id].is_busy = true;
        self.submit(id);
    }

    /// Sends requests that are ready, over a new connection if there is none.
    pub(super) fn submit(&mut self, id: usize) {
        match self.connections[id].phase {
            ConnectionPhase::Vacant => self.connect(id),
            ConnectionPhase::Streams => self.send_streams(id),
            // The connection is being established.
            _ => {}
        }
    }

    /// Sends frames as far as the socket allows; also the first bytes of a connection.
    pub(super) fn send_streams(&mut self, id: usize) {
        let (job, now) = (self.job, self.clock.now);
        if let Some(streams) = self.streams(id) {
            streams.send_ready(&job.requests, now);
        }
        loop {
            let connection = &mut self.connections[id];
            let (Some(streams), Some(transport)) = (&mut connection.streams, &mut connection.transport) else {
                return;
            };
            let output = streams.client.output();
            if output.is_empty() {
                break;
            }
            match transport.send(output) {
                Ok(count) => {
                    if count == output.len() {
                        output.clear();
                    } else {
                        output.drain(..count);
                    }
                    self.measured.tally.bytes.sent += count as u64;
                    if self.connections[id].phase != ConnectionPhase::Streams {
                        self.established(id);
                        let connection = &mut self.connections[id];
                        connection.phase = ConnectionPhase::Streams;
                        let connect_time = connection.current.timing.connect_time;
                        let now = self.clock.now;
                        if let Some(streams) = self.streams(id) {
                            streams.established(now, connect_time);
                        }
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return self.watch(id, Interest::ReadWrite),
                Err(error) => return self.broken(id, &error),
            }
        }
        self.watch(id, self.connections[id].interest_after_sending());
    }

    pub(super) fn carry_streams(&mut self, id: usize, flags: epoll::EventFlags) {
        if flags.contains(epoll::EventFlags::OUT) {
            let flushed = self.connections[id].transport.as_mut().map(Transport::flush);
            match flushed {
                Some(Err(error)) => return self.broken(id, &error),
                _ => self.send_streams(id),
            }
        }
        if flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR) {
            self.read_streams(id);
        }
    }

    fn read_streams(&mut self, id: usize) {
        let mut buffer = std::mem::take(&mut self.buffers.input);
        for _ in 0..MOST_READS {
            let Some(transport) = &mut self.connections[id].transport else {
                break;
            };
            let reads_ahead = transport.reads_ahead();
            match transport.recv(&mut buffer) {
                Ok(0) => {
                    self.ended(id);
                    break;
                }
                Ok(count) => {
                    self.feed_streams(id, &buffer[..count]);
                    if count < buffer.len() && !reads_ahead {
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
        if self.connections[id].phase == ConnectionPhase::Streams {
            self.settle(id);
        }
    }

    fn feed_streams(&mut self, id: usize, bytes: &[u8]) {
        self.clock.update();
        self.measured.tally.bytes.received += bytes.len() as u64;
        let Some(streams) = self.streams(id) else { return };
        let mut kept = std::mem::take(&mut streams.input);
        let mut storage = std::mem::take(&mut streams.storage);
        let input: &[u8] = if kept.is_empty() {
            bytes
        } else {
            kept.extend_from_slice(bytes);
            &kept
        };
        let mut at = 0;
        // A failure may have closed the connection.
        while self.connections[id].phase == ConnectionPhase::Streams {
            let Some(streams) = self.streams(id) else { return };
            match streams.client.receive(&input[at..], &mut storage) {
                Ok(step) => {
                    at += step.taken;
                    let Some(event) = step.event else { break };
                    if let Some(head) = self.stream_event(id, event) {
                        storage = head.into_storage();
                    }
                }
                Err(_) => return self.lose(id, |failures| &mut failures.protocol),
            }
        }
        let rest = input.len() - at.min(input.len());
        if rest == 0 {
            kept.clear();
        } else if kept.is_empty() {
            kept.extend_from_slice(&bytes[at..]);
        } else {
            kept.drain(..at);
        }
        if let Some(streams) = self.streams(id) {
            streams.storage = storage;
            if rest > 0 {
                streams.input = kept;
            }
        }
    }

    /// Handles an event of a stream. Returns a head, so that its memory is used again.
    fn stream_event(&mut self, id: usize, event: ClientEvent<'_>) -> Option<ResponseHead> {
        let (now, job) = (self.clock.now, self.job);
        let streams = self.connections[id].streams.as_deref_mut()?;
        match event {
            ClientEvent::Head { stream, head, end } => {
                streams.has_answered = true;
                let place = streams.place_of(stream)?;
                let slot = streams.slot(place);
                (slot.timing.first_byte, slot.since, slot.status) = (now, now, head.status());
                slot.is_coded = is_coded(head.fields().get("content-encoding"));
                if let Some(captured) = self.measured.capture(id) {
                    capture(captured, &head);
                }
                if end {
                    self.complete_stream(id, place);
                }
                return Some(head);
            }
            ClientEvent::Data { stream, data, end } => {
                let place = streams.place_of(stream)?;
                streams.take_body(place, data, &job.expected, now);
                if let Some(captured) = self.measured.capture(id) {
                    captured.body.extend_from_slice(data);
                }
                if end {
                    self.complete_stream(id, place);
                }
            }
            ClientEvent::Failed { stream, why } => {
                let place = streams.place_of(stream)?;
                let is_again = why == StreamError::Unprocessed && streams.try_again(place, now);
                if !is_again {
                    self.fail_stream(id, place, class_of(why));
                }
            }
            ClientEvent::Trailers { stream, .. } => {
                let place = streams.place_of(stream)?;
                self.complete_stream(id, place);
            }
            // After GOAWAY, `settle` opens another connection.
            ClientEvent::GoAway { .. } | ClientEvent::Interim { .. } => {}
        }
        None
    }

    fn complete_stream(&mut self, id: usize, place: usize) {
        let keep_alive = self.job.keep_alive;
        let Some(streams) = self.streams(id) else { return };
        let slot = streams.release(place);
        let is_kept = keep_alive && streams.client.is_open();
        self.count(slot.timing, slot.complete(is_kept));
        self.measured.end_capture(id);
        self.connections[id].used += 1;
        self.measured.tally.kept_alive += u64::from(is_kept);
        self.released(id);
    }

    fn fail_stream(&mut self, id: usize, place: usize, class: FailureClass) {
        if let Some(streams) = self.streams(id) {
            streams.release(place);
        }
        self.note_failure(class);
        self.released(id);
    }

    fn released(&mut self, id: usize) {
        if self.schedule.is_open_loop() {
            self.queues.active -= 1;
            self.queues.idle.push_back(id);
        }
    }

    /// After reading, gives the freed slots their next requests, and closes a connection that takes no more.
    fn settle(&mut self, id: usize) {
        let keep_alive = self.job.keep_alive;
        let Some(streams) = self.streams(id) else { return };
        let (is_open, open, busy) = (streams.client.is_open(), streams.client.open_streams(), streams.busy());
        if open > 0 && !(is_open && keep_alive) {
            // Its streams come to their end first.
            return self.send_streams(id);
        }
        if !is_open || (!keep_alive && busy == 0) {
            self.connections[id].close();
        }
        self.connections[id].is_busy = busy > 0;
        if !self.schedule.is_open_loop() {
            self.fill(id);
        } else if busy > 0 || self.connections[id].transport.is_some() {
            self.submit(id);
        }
    }

    /// Takes the loss of a connection. Requests that the server may not have seen are sent again if it has answered
    /// before; the others have failed.
    pub(super) fn lose(&mut self, id: usize, class: FailureClass) {
        let (now, is_used) = (self.clock.now, self.connections[id].used > 0);
        let Some(streams) = self.streams(id) else { return };
        for place in streams.places() {
            let Some(streams) = self.streams(id) else { return };
            let may_try = is_used && streams.slot(place).is_untouched();
            if !(may_try && streams.try_again(place, now)) {
                self.fail_stream(id, place, class);
            }
        }
        let connection = &mut self.connections[id];
        connection.abandon();
        connection.used = 0;
        connection.is_busy = connection.streams.as_ref().is_some_and(|streams| streams.busy() > 0);
        if connection.is_busy || !self.schedule.is_open_loop() {
            self.retry_later(id);
        }
    }

    /// Ends streams whose timeout is over.
    pub(super) fn check_streams(&mut self, id: usize) {
        let (now, timeout) = (self.clock.now, self.job.timeout.as_nanos());
        let mut has_failed = false;
        while let Some(place) = self.streams(id).and_then(|streams| streams.stalled(now, timeout)) {
            let is_untouched = self
                .streams(id)
                .is_some_and(|streams| streams.slot(place).is_untouched());
            let class: FailureClass = if is_untouched {
                |failures| &mut failures.first_byte_timeout
            } else {
                |failures| &mut failures.body_timeout
            };
            self.fail_stream(id, place, class);
            has_failed = true;
        }
        if has_failed {
            self.settle(id);
        }
    }
}

fn class_of(why: StreamError) -> FailureClass {
    match why {
        StreamError::Reset(_) | StreamError::Unprocessed => |failures| &mut failures.reset,
        StreamError::Short { .. } => |failures| &mut failures.short_body,
        _ => |failures| &mut failures.protocol,
    }
}

/// Keeps a head as text.
fn capture(captured: &mut Captured, head: &ResponseHead) {
    captured.head = format!("HTTP/2 {}\r\n", head.status()).into_bytes();
    for (name, value) in head.fields().iter() {
        captured.head.extend_from_slice(&[name, b": ", value, b"\r\n"].concat());
    }
    captured.head.extend_from_slice(b"\r\n");
    captured.body.clear();
    captured.status = head.status();
    captured.keeps_alive = true;
}
