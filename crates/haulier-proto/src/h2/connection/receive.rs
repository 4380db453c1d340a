//! Received frames and their limits (RFC 9113 §6).

use std::time::Instant;

use super::{Connection, LAST_PING, ServerEvent, Shutdown};
use crate::field::{Fields, Known};
use crate::framing::{self, BodyLength};
use crate::h2::block::compression;
use crate::h2::error::{ConnectionError, ErrorCode};
use crate::h2::flow::Window;
use crate::h2::frame;
use crate::h2::reader::{Data, Frame, Received};
use crate::h2::request::{RequestLines, TrailerLines};
use crate::h2::settings::Settings;
use crate::h2::stream::{EndedBy, Stream};
use crate::head::{HeadError, RequestHead};

type EventResult<'i> = Result<Option<ServerEvent<'i>>, ConnectionError>;

/// WINDOW_UPDATE frames a new stream may bring.
const UPDATES_A_STREAM: u32 = 2;

impl Connection {
    /// Takes frames from the start of `input` until one makes an event or no whole frame is left; the bytes taken must
    /// not be given again. `storage` lends the memory of an earlier head ([`RequestHead::into_storage`]).
    ///
    /// # Errors
    /// [`ConnectionError`] when the client broke the protocol or a limit. GOAWAY is in the output; it is to be sent,
    /// and the connection closed. Every later call gives the same error.
    pub fn receive<'i>(
        &mut self,
        input: &'i [u8],
        now: Instant,
        storage: &mut Fields,
    ) -> Result<Received<ServerEvent<'i>>, ConnectionError> {
        self.now = now;
        let step = self.step(input, storage);
        if let Err(error) = step {
            self.fail(error);
        }
        step
    }

    fn step<'i>(
        &mut self,
        input: &'i [u8],
        storage: &mut Fields,
    ) -> Result<Received<ServerEvent<'i>>, ConnectionError> {
        let mut taken = 0;
        while let Some(frame) = self.reader.next(input, &mut taken)? {
            if let Some(event) = self.frame(frame, storage)? {
                return Ok(Received {
                    taken,
                    event: Some(event),
                });
            }
        }
        Ok(Received { taken, event: None })
    }

    fn frame<'i>(&mut self, frame: Frame<'i>, storage: &mut Fields) -> EventResult<'i> {
        match frame {
            Frame::Data(data) => self.data(data),
            Frame::Fields { stream, end, block } => self.field_block(stream, end, &block, storage),
            Frame::ConnectionWindow { increment } => self.connection_window(increment),
            Frame::StreamWindow { stream, increment } => self.stream_window(stream, increment),
            Frame::Reset { stream, code } => self.reset_stream(stream, code),
            Frame::Settings(payload) => self.settings(payload),
            Frame::Ping(opaque) => self.ping(opaque),
            Frame::PingAck(opaque) => self.ping_ack(opaque),
            Frame::GoAway { code, .. } => self.goaway(code),
            Frame::PushPromise => Err(ConnectionError::protocol("PUSH_PROMISE from a client")),
            Frame::SettingsAck | Frame::Priority | Frame::Unknown => self.spend_control().map(|()| None),
        }
    }

    fn data<'i>(&mut self, frame: Data<'i>) -> EventResult<'i> {
        let Data {
            stream: id,
            length,
            data,
            end,
        } = frame;
        if self.streams.is_idle(id) {
            return Err(ConnectionError::protocol("DATA on a stream that was never opened"));
        }
        if !self.receive.take(length) {
            return Err(ConnectionError::flow_control("DATA beyond the connection's window"));
        }
        if data.is_empty() && !end {
            self.spend_control()?;
        }
        let Some(state) = self.streams.get(id) else {
            self.give_back(0, length);
            return match self.streams.ended(id) {
                Some(EndedBy::Us) => Ok(None),
                _ => self.fault(id, ErrorCode::STREAM_CLOSED),
            };
        };
        let code = match state.due {
            _ if !state.receiving => Some(ErrorCode::STREAM_CLOSED),
            _ if !state.receive.take(length) => Some(ErrorCode::FLOW_CONTROL_ERROR),
            Some(due) if data.len() as u64 > due || (end && data.len() as u64 != due) => {
                Some(ErrorCode::PROTOCOL_ERROR)
            }
            _ => None,
        };
        if let Some(code) = code {
            self.give_back(0, length);
            return self.fault(id, code);
        }
        state.due = state.due.map(|due| due - data.len() as u64);
        state.held += data.len() as u32;
        state.receiving = !end;
        self.give_back(id, length - data.len() as u32);
        if data.is_empty() && !end {
            return Ok(None);
        }
        Ok(Some(ServerEvent::Data { stream: id, data, end }))
    }

    /// Takes a complete field block. It is decoded even if its stream is gone: the next one builds on its table.
    fn field_block<'i>(&mut self, id: u32, end: bool, block: &[u8], storage: &mut Fields) -> EventResult<'i> {
        if id.is_multiple_of(2) {
            return Err(ConnectionError::protocol(
                "HEADERS on a stream that is not the client's",
            ));
        }
        if id > self.streams.last() {
            return self.request(id, end, block, storage);
        }
        let mut lines = TrailerLines::new(&self.limits);
        self.decoder
            .decode(block, |name, value| lines.line(name, value))
            .map_err(compression)?;
        match self.streams.get(id) {
            Some(state) if !state.receiving => self.fault(id, ErrorCode::STREAM_CLOSED),
            Some(state) if !end || !lines.is_sound() || state.due.is_some_and(|due| due > 0) => {
                self.fault(id, ErrorCode::PROTOCOL_ERROR)
            }
            Some(state) => {
                state.receiving = false;
                Ok(Some(ServerEvent::Data {
                    stream: id,
                    data: &[],
                    end: true,
                }))
            }
            None => match self.streams.ended(id) {
                Some(EndedBy::Us) => Ok(None),
                Some(EndedBy::Client) => Err(ConnectionError {
                    code: ErrorCode::STREAM_CLOSED,
                    reason: "HEADERS on a stream that has ended",
                }),
                None => Err(ConnectionError::protocol("stream numbers do not rise")),
            },
        }
    }

    fn request<'i>(&mut self, id: u32, end: bool, block: &[u8], storage: &mut Fields) -> EventResult<'i> {
        let limits = self.limits;
        let mut lines = RequestLines::new(&limits, storage);
        self.decoder
            .decode(block, |name, value| lines.line(name, value))
            .map_err(compression)?;
        self.streams.reach(id);
        if let Shutdown::Final(_) = self.shutdown {
            self.refuse(id);
            return Ok(None);
        }
        let size = lines.size();
        if self.streams.len() >= limits.streams as usize || self.heads + size > limits.all_heads {
            self.refuse(id);
            return self.spend_reset().map(|()| None);
        }
        match lines.finish() {
            Ok(head) => match due(&head, end) {
                Ok(due) => {
                    self.open(id, end, due, size);
                    Ok(Some(ServerEvent::Request { stream: id, head, end }))
                }
                Err(()) => self.fault(id, ErrorCode::PROTOCOL_ERROR),
            },
            Err(HeadError::Malformed(_)) => self.fault(id, ErrorCode::PROTOCOL_ERROR),
            Err(error) => {
                self.open(id, end, None, 0);
                Ok(Some(ServerEvent::Refused { stream: id, error }))
            }
        }
    }

    fn open(&mut self, id: u32, end: bool, due: Option<u64>, head: u32) {
        self.heads += head;
        self.updates = self.updates.saturating_add(UPDATES_A_STREAM);
        self.streams.open(Stream {
            id,
            receiving: !end,
            send: Window::new(self.peer.initial_window_size),
            receive: Window::new(self.limits.stream_window),
            held: 0,
            owed: 0,
            due,
            head,
            queued: false,
            stalled: None,
        });
    }

    /// Refuses a request unprocessed: the client may send it again (RFC 9113 §8.7).
    fn refuse(&mut self, id: u32) {
        frame::write_reset(&mut self.output, id, ErrorCode::REFUSED_STREAM);
        self.streams.remember(id, EndedBy::Us);
    }

    fn reset_stream<'i>(&mut self, stream: u32, code: ErrorCode) -> EventResult<'i> {
        if self.streams.is_idle(stream) {
            return Err(ConnectionError::protocol(
                "RST_STREAM on a stream that was never opened",
            ));
        }
        if self.remove(stream, EndedBy::Client).is_none() {
            return self.spend_control().map(|()| None);
        }
        self.spend_reset()?;
        Ok(Some(ServerEvent::Reset { stream, code }))
    }

    fn settings<'i>(&mut self, payload: &[u8]) -> EventResult<'i> {
        self.spend_control()?;
        let before = self.peer.initial_window_size;
        self.peer.apply(payload)?;
        // The client expects the default table until a block says that there is none (RFC 7541 §4.2).
        self.tell_table |= self.peer.header_table_size < Settings::default().header_table_size;
        let change = i64::from(self.peer.initial_window_size) - i64::from(before);
        if change != 0 && !self.streams.iter_mut().all(|state| state.send.shift(change)) {
            return Err(ConnectionError::flow_control("SETTINGS make a window too large"));
        }
        frame::write_settings_ack(&mut self.output);
        Ok(None)
    }

    fn ping<'i>(&mut self, opaque: [u8; 8]) -> EventResult<'i> {
        self.spend_control()?;
        frame::write_ping(&mut self.output, opaque, true);
        Ok(None)
    }

    fn ping_ack<'i>(&mut self, opaque: [u8; 8]) -> EventResult<'i> {
        self.spend_control()?;
        if opaque == LAST_PING && self.shutdown == Shutdown::Announced {
            self.shut_down();
        }
        Ok(None)
    }

    fn goaway<'i>(&mut self, code: ErrorCode) -> EventResult<'i> {
        self.spend_control()?;
        Ok(Some(ServerEvent::GoAway { code }))
    }

    fn connection_window<'i>(&mut self, increment: u32) -> EventResult<'i> {
        self.spend_update()?;
        if !self.send.shift(i64::from(increment)) {
            return Err(ConnectionError::flow_control("the connection's window too large"));
        }
        Ok(None)
    }

    fn stream_window<'i>(&mut self, stream: u32, increment: u32) -> EventResult<'i> {
        self.spend_update()?;
        if self.streams.is_idle(stream) {
            return Err(ConnectionError::protocol(
                "WINDOW_UPDATE on a stream that was never opened",
            ));
        }
        let Some(state) = self.streams.get(stream) else {
            return Ok(None);
        };
        if increment == 0 {
            return self.fault(stream, ErrorCode::PROTOCOL_ERROR);
        }
        if !state.send.shift(i64::from(increment)) {
            return self.fault(stream, ErrorCode::FLOW_CONTROL_ERROR);
        }
        Ok(None)
    }

    /// Ends a stream for the client's fault, and tells the driver if it knows the stream. It counts as a reset by the
    /// client, which has caused the same useless work (CVE-2025-8671).
    fn fault<'i>(&mut self, id: u32, code: ErrorCode) -> EventResult<'i> {
        frame::write_reset(&mut self.output, id, code);
        let known = self.remove(id, EndedBy::Us).is_some();
        if !known {
            self.streams.remember(id, EndedBy::Us);
        }
        self.spend_reset()?;
        Ok(known.then_some(ServerEvent::Reset { stream: id, code }))
    }

    fn spend_reset(&mut self) -> Result<(), ConnectionError> {
        if self.resets.spend(self.now) {
            Ok(())
        } else {
            Err(ConnectionError::flood("too many streams reset"))
        }
    }

    /// Counts a WINDOW_UPDATE: those that our own DATA calls for are free.
    fn spend_update(&mut self) -> Result<(), ConnectionError> {
        match self.updates.checked_sub(1) {
            Some(left) => self.updates = left,
            None => self.spend_control()?,
        }
        Ok(())
    }

    fn spend_control(&mut self) -> Result<(), ConnectionError> {
        if self.control.spend(self.now) {
            Ok(())
        } else {
            Err(ConnectionError::flood("too many frames that carry nothing"))
        }
    }
}

/// Bytes the body must have, if Content-Length states them (RFC 9113 §8.1.1).
fn due(head: &RequestHead, end: bool) -> Result<Option<u64>, ()> {
    if head.fields().known(Known::ContentLength).is_none() {
        return Ok(None);
    }
    match framing::body_length(head) {
        Ok(BodyLength::Known(length)) if !end || length == 0 => Ok(Some(length)),
        _ => Err(()),
    }
}
