//! Frames that a server sends, and their limits (RFC 9113 §6).

use super::{Client, ClientEvent, StreamError};
use crate::field::Fields;
use crate::h2::block::compression;
use crate::h2::error::{ConnectionError, ErrorCode};
use crate::h2::frame;
use crate::h2::reader::{Data, Frame, Received};
use crate::h2::request::check_field;
use crate::h2::response::ResponseLines;
use crate::status::is_bodiless;

type EventResult<'i> = Result<Option<ClientEvent<'i>>, ConnectionError>;

impl Client {
    /// Takes frames from the start of `input` until one makes an event or no whole frame is left; the bytes taken must
    /// not be given again. `storage` lends the memory of an earlier head
    /// ([`ResponseHead::into_storage`](crate::response_head::ResponseHead::into_storage)).
    ///
    /// # Errors
    /// [`ConnectionError`] when the server broke the protocol or a limit. GOAWAY is in the output; it may be sent, and
    /// the connection is to be closed. Every later call gives the same error.
    pub fn receive<'i>(
        &mut self,
        input: &'i [u8],
        storage: &mut Fields,
    ) -> Result<Received<ClientEvent<'i>>, ConnectionError> {
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
    ) -> Result<Received<ClientEvent<'i>>, ConnectionError> {
        if let Some(error) = self.reader.failure() {
            return Err(error);
        }
        let mut taken = 0;
        let mut event = self.left_behind();
        while event.is_none()
            && let Some(frame) = self.reader.next(input, &mut taken)?
        {
            event = self.frame(frame, storage)?;
        }
        Ok(Received { taken, event })
    }

    /// A stream that a GOAWAY left out.
    fn left_behind(&mut self) -> Option<ClientEvent<'static>> {
        let last = self.last?;
        let stream = self.streams.pop_if(|stream| stream.id > last)?.id;
        Some(ClientEvent::Failed {
            stream,
            why: StreamError::Unprocessed,
        })
    }

    fn frame<'i>(&mut self, frame: Frame<'i>, storage: &mut Fields) -> EventResult<'i> {
        match frame {
            Frame::Data(data) => self.data(data),
            Frame::Fields { stream, end, block } => self.field_block(stream, end, &block, storage),
            Frame::Reset { stream, code } => self.reset_stream(stream, code),
            Frame::Settings(payload) => self.settings(payload),
            Frame::Ping(opaque) => self.answer(|out| frame::write_ping(out, opaque, true)),
            Frame::GoAway { last, code } => self.goaway(last, code),
            Frame::ConnectionWindow { increment } if self.send.shift(i64::from(increment)) => Ok(None),
            Frame::ConnectionWindow { .. } => Err(ConnectionError::flow_control("the connection's window too large")),
            Frame::StreamWindow { stream, increment } => self.window_update(stream, increment),
            Frame::PushPromise => Err(ConnectionError::protocol("PUSH_PROMISE though we take none")),
            Frame::SettingsAck | Frame::PingAck(_) | Frame::Priority | Frame::Unknown => Ok(None),
        }
    }

    /// True if we have never opened this stream.
    fn is_idle(&self, id: u32) -> bool {
        id >= self.next || id.is_multiple_of(2)
    }

    fn data<'i>(&mut self, frame: Data<'i>) -> EventResult<'i> {
        let Data {
            stream,
            length,
            data,
            end,
        } = frame;
        if self.is_idle(stream) {
            return Err(ConnectionError::protocol("DATA on a stream that was never opened"));
        }
        if !self.receive.take(length) {
            return Err(ConnectionError::flow_control("DATA beyond the connection's window"));
        }
        self.give_back(length);
        let Some(place) = self.place(stream) else {
            // We have cancelled it, and the server did not know yet.
            return Ok(None);
        };
        let state = &mut self.streams[place];
        if !state.has_head {
            return Ok(self.fault(place, StreamError::Malformed("a body without a head")));
        }
        if !state.receive.take(length) {
            return Err(ConnectionError::flow_control("DATA beyond the stream's window"));
        }
        state.received += data.len() as u64;
        if let Some(expected) = state.expected.filter(|expected| state.received > *expected) {
            return Ok(self.fault(place, StreamError::Long { expected }));
        }
        if end {
            if let Some(short) = self.short(place) {
                return Ok(Some(short));
            }
            self.finish(place);
        } else {
            self.give_back_on(place, length);
            if data.is_empty() {
                return Ok(None);
            }
        }
        Ok(Some(ClientEvent::Data { stream, data, end }))
    }

    /// The failure of a stream that has ended before its body was as long as Content-Length.
    fn short(&mut self, place: usize) -> Option<ClientEvent<'static>> {
        let state = &self.streams[place];
        let (received, expected) = (state.received, state.expected?);
        if received == expected {
            return None;
        }
        let stream = self.streams.remove(place).id;
        Some(ClientEvent::Failed {
            stream,
            why: StreamError::Short { received, expected },
        })
    }

    /// Removes a stream whose response is complete. The rest of its request is cancelled (RFC 9113 §8.1).
    fn finish(&mut self, place: usize) {
        let stream = self.streams.remove(place);
        if stream.is_sending {
            frame::write_reset(&mut self.output, stream.id, ErrorCode::CANCEL);
        }
    }

    /// Takes a complete field block. It is decoded even if its stream is gone: the next one builds on its table.
    fn field_block<'i>(&mut self, id: u32, end: bool, block: &[u8], storage: &mut Fields) -> EventResult<'i> {
        if self.is_idle(id) {
            return Err(ConnectionError::protocol("HEADERS on a stream that was never opened"));
        }
        match self.place(id) {
            Some(place) if self.streams[place].has_head => self.trailers(place, end, block),
            Some(place) => self.head(place, end, block, storage),
            None => {
                self.decoder.decode(block, |_, _| {}).map_err(compression)?;
                Ok(None)
            }
        }
    }

    fn head<'i>(&mut self, place: usize, end: bool, block: &[u8], storage: &mut Fields) -> EventResult<'i> {
        let mut lines = ResponseLines::new(&self.limits.response, storage);
        self.decoder
            .decode(block, |name, value| lines.line(name, value))
            .map_err(compression)?;
        let head = match lines.finish() {
            Ok(head) => head,
            Err(error) => return Ok(self.fault(place, StreamError::Head(error))),
        };
        let state = &mut self.streams[place];
        if head.is_interim() {
            state.interim += 1;
            if state.interim > self.limits.interim || end {
                let why = StreamError::Malformed("interim responses without a final one");
                return Ok(self.fault(place, why));
            }
            let stream = state.id;
            return Ok(Some(ClientEvent::Interim { stream, head }));
        }
        let expected = if state.is_head || is_bodiless(head.status()) {
            Ok(Some(0))
        } else {
            head.content_length()
        };
        match expected {
            Ok(expected) => state.expected = expected,
            Err(error) => return Ok(self.fault(place, StreamError::Framing(error))),
        }
        state.has_head = true;
        let stream = state.id;
        if end {
            if let Some(short) = self.short(place) {
                return Ok(Some(short));
            }
            self.finish(place);
        }
        Ok(Some(ClientEvent::Head { stream, head, end }))
    }

    /// The lines after the body, which end it.
    fn trailers<'i>(&mut self, place: usize, end: bool, block: &[u8]) -> EventResult<'i> {
        let mut trailers = Fields::new();
        let mut is_sound = end;
        let mut size = 0;
        let limits = self.limits.response;
        self.decoder
            .decode(block, |name, value| {
                size += name.len() + value.len();
                let fits = size <= limits.head && trailers.len() < limits.fields;
                is_sound = is_sound && fits && check_field(name, value).is_ok();
                if is_sound {
                    trailers.append_lower_case(name, value);
                }
            })
            .map_err(compression)?;
        if !is_sound {
            return Ok(self.fault(place, StreamError::Malformed("bad trailers")));
        }
        if let Some(short) = self.short(place) {
            return Ok(Some(short));
        }
        let stream = self.streams[place].id;
        self.finish(place);
        Ok(Some(ClientEvent::Trailers { stream, trailers }))
    }

    fn reset_stream<'i>(&mut self, stream: u32, code: ErrorCode) -> EventResult<'i> {
        if self.is_idle(stream) {
            return Err(ConnectionError::protocol(
                "RST_STREAM on a stream that was never opened",
            ));
        }
        let Some(place) = self.place(stream) else {
            return Ok(None);
        };
        self.streams.remove(place);
        let why = match code {
            ErrorCode::REFUSED_STREAM => StreamError::Unprocessed,
            code => StreamError::Reset(code),
        };
        Ok(Some(ClientEvent::Failed { stream, why }))
    }

    fn settings<'i>(&mut self, payload: &[u8]) -> EventResult<'i> {
        let before = self.peer;
        // A server must not allow pushes (RFC 9113 §6.5.2).
        self.peer.enable_push = false;
        self.peer.apply(payload)?;
        if self.peer.enable_push {
            return Err(ConnectionError::protocol("SETTINGS_ENABLE_PUSH from a server"));
        }
        self.streams_allowed = self.peer.max_concurrent_streams;
        self.encoder.set_limit(self.peer.header_table_size);
        let change = i64::from(self.peer.initial_window_size) - i64::from(before.initial_window_size);
        if change != 0 && !self.streams.iter_mut().all(|state| state.send.shift(change)) {
            return Err(ConnectionError::flow_control("SETTINGS make a window too large"));
        }
        self.answer(frame::write_settings_ack)
    }

    /// Writes an answer, unless the server reads none.
    fn answer<'i>(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> EventResult<'i> {
        if self.output.len() > self.limits.answers {
            return Err(ConnectionError::flood("questions whose answers are not taken"));
        }
        write(&mut self.output);
        Ok(None)
    }

    fn goaway<'i>(&mut self, last: u32, code: ErrorCode) -> EventResult<'i> {
        if self.last.is_some_and(|before| last > before) {
            return Err(ConnectionError::protocol("GOAWAY takes streams back in"));
        }
        self.last = Some(last);
        Ok(Some(ClientEvent::GoAway { code }))
    }

    fn window_update<'i>(&mut self, stream: u32, increment: u32) -> EventResult<'i> {
        if self.is_idle(stream) {
            return Err(ConnectionError::protocol(
                "WINDOW_UPDATE on a stream that was never opened",
            ));
        }
        let Some(place) = self.place(stream) else {
            return Ok(None);
        };
        if increment == 0 || !self.streams[place].send.shift(i64::from(increment)) {
            return Ok(self.fault(place, StreamError::Malformed("WINDOW_UPDATE by nothing, or too much")));
        }
        Ok(None)
    }

    /// Ends a stream for the server's fault.
    fn fault(&mut self, place: usize, why: StreamError) -> Option<ClientEvent<'static>> {
        let stream = self.streams.remove(place).id;
        frame::write_reset(&mut self.output, stream, ErrorCode::PROTOCOL_ERROR);
        Some(ClientEvent::Failed { stream, why })
    }
}
