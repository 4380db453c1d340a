//! Frames as a server sends them (RFC 9113 §6), and what of them is too much.

use super::{Client, Event, State, Step, StreamError};
use crate::field::Fields;
use crate::h2::block::{self, Block, check_dependency, compression};
use crate::h2::error::{ConnectionError, ErrorCode};
use crate::h2::frame::{self, ACK, DEFAULT_PAYLOAD, END_HEADERS, END_STREAM, FrameHead, HEAD_LENGTH, Kind};
use crate::h2::request::check_field;
use crate::h2::response::ResponseLines;
use crate::status::is_bodiless;

type Outcome<'i> = Result<Option<Event<'i>>, ConnectionError>;

impl Client {
    /// Takes frames from the start of `input` until one makes an event or no whole frame is left; the bytes taken must
    /// not be given again. `storage` lends the memory of an earlier head
    /// ([`ResponseHead::into_storage`](crate::response_head::ResponseHead::into_storage)).
    ///
    /// # Errors
    /// [`ConnectionError`] when the server broke the protocol or a limit. GOAWAY is in the output; it may be sent, and
    /// the connection is to be closed. Every later call gives the same error.
    pub fn receive<'i>(&mut self, input: &'i [u8], storage: &mut Fields) -> Result<Step<'i>, ConnectionError> {
        let step = self.step(input, storage);
        if let Err(error) = step {
            self.fail(error);
        }
        step
    }

    fn step<'i>(&mut self, input: &'i [u8], storage: &mut Fields) -> Result<Step<'i>, ConnectionError> {
        if let State::Failed(error) = self.state {
            return Err(error);
        }
        if let Some(event) = self.left_behind() {
            return Ok(Step {
                taken: 0,
                event: Some(event),
            });
        }
        let mut taken = 0;
        while let Some(head) = FrameHead::parse(&input[taken..]) {
            if head.length > DEFAULT_PAYLOAD {
                return Err(ConnectionError::frame_size("frame larger than SETTINGS_MAX_FRAME_SIZE"));
            }
            let start = taken + HEAD_LENGTH;
            let Some(payload) = input.get(start..start + head.length as usize) else {
                break;
            };
            taken = start + payload.len();
            let event = self.frame(head, payload, storage)?;
            if event.is_some() {
                return Ok(Step { taken, event });
            }
        }
        Ok(Step { taken, event: None })
    }

    /// A stream that a GOAWAY left out.
    fn left_behind(&mut self) -> Option<Event<'static>> {
        let last = self.last?;
        let stream = self.streams.pop_if(|stream| stream.id > last)?.id;
        Some(Event::Failed {
            stream,
            why: StreamError::Unprocessed,
        })
    }

    fn frame<'i>(&mut self, head: FrameHead, payload: &'i [u8], storage: &mut Fields) -> Outcome<'i> {
        if let Some(block) = &self.block
            && (head.kind != Kind::Continuation || head.stream != block.stream)
        {
            return Err(ConnectionError::protocol("another frame within a field block"));
        }
        if self.state == State::FirstSettings {
            if head.kind != Kind::Settings || head.has(ACK) {
                return Err(ConnectionError::protocol("first frame is not SETTINGS"));
            }
            self.state = State::Open;
        }
        match head.kind {
            Kind::Data => self.data(head, payload),
            Kind::Headers => self.headers(head, payload, storage),
            Kind::Continuation => self.continuation(head, payload, storage),
            Kind::Priority => priority(head, payload),
            Kind::ResetStream => self.reset_stream(head, payload),
            Kind::Settings => self.settings(head, payload),
            Kind::Ping => self.ping(head, payload),
            Kind::GoAway => self.goaway(head, payload),
            Kind::WindowUpdate => self.window_update(head, payload),
            Kind::PushPromise => Err(ConnectionError::protocol("PUSH_PROMISE though we take none")),
            Kind::Unknown(_) => Ok(None),
        }
    }

    /// Whether we have never opened this stream.
    fn is_idle(&self, id: u32) -> bool {
        id >= self.next || id.is_multiple_of(2)
    }

    fn data<'i>(&mut self, head: FrameHead, payload: &'i [u8]) -> Outcome<'i> {
        let (stream, end) = (head.stream, head.has(END_STREAM));
        if self.is_idle(stream) {
            return Err(ConnectionError::protocol("DATA on a stream that was never opened"));
        }
        if !self.receive.take(head.length) {
            return Err(ConnectionError::flow_control("DATA beyond the connection's window"));
        }
        self.give_back(head.length);
        let data = head.unpadded(payload)?;
        let Some(place) = self.place(stream) else {
            // We gave it up, and the server did not know yet.
            return Ok(None);
        };
        let state = &mut self.streams[place];
        if !state.has_head {
            return Ok(self.fault(place, StreamError::Malformed("a body without a head")));
        }
        if !state.receive.take(head.length) {
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
            self.give_back_on(place, head.length);
            if data.is_empty() {
                return Ok(None);
            }
        }
        Ok(Some(Event::Data { stream, data, end }))
    }

    /// The stream has ended; what is to be said if its body is not as long as it should be.
    fn short(&mut self, place: usize) -> Option<Event<'static>> {
        let state = &self.streams[place];
        let (received, expected) = (state.received, state.expected?);
        if received == expected {
            return None;
        }
        let stream = self.streams.remove(place).id;
        Some(Event::Failed {
            stream,
            why: StreamError::Short { received, expected },
        })
    }

    /// The response is complete. A request that is not is of no more use to the server (RFC 9113 §8.1).
    fn finish(&mut self, place: usize) {
        let stream = self.streams.remove(place);
        if stream.is_sending {
            frame::write_reset(&mut self.output, stream.id, ErrorCode::CANCEL);
        }
    }

    fn headers<'i>(&mut self, head: FrameHead, payload: &[u8], storage: &mut Fields) -> Outcome<'i> {
        if self.is_idle(head.stream) {
            return Err(ConnectionError::protocol("HEADERS on a stream that was never opened"));
        }
        let fragment = block::fragment(head, payload)?;
        let end = head.has(END_STREAM);
        if head.has(END_HEADERS) {
            return self.field_block(head.stream, end, fragment, storage);
        }
        self.block = Some(Box::new(Block::begin(head.stream, end, fragment)));
        Ok(None)
    }

    fn continuation<'i>(&mut self, head: FrameHead, payload: &[u8], storage: &mut Fields) -> Outcome<'i> {
        let Some(block) = &mut self.block else {
            return Err(ConnectionError::protocol("CONTINUATION without a field block"));
        };
        block.extend(payload, self.limits.response.head, self.limits.continuations)?;
        match self.block.take_if(|_| head.has(END_HEADERS)) {
            Some(block) => self.field_block(block.stream, block.end_stream, &block.bytes, storage),
            None => Ok(None),
        }
    }

    /// A complete field block. Whatever becomes of it, it has to be decoded: the next one builds on its table.
    fn field_block<'i>(&mut self, id: u32, end: bool, block: &[u8], storage: &mut Fields) -> Outcome<'i> {
        match self.place(id) {
            Some(place) if self.streams[place].has_head => self.trailers(place, end, block),
            Some(place) => self.head(place, end, block, storage),
            None => {
                self.decoder.decode(block, |_, _| {}).map_err(compression)?;
                Ok(None)
            }
        }
    }

    fn head<'i>(&mut self, place: usize, end: bool, block: &[u8], storage: &mut Fields) -> Outcome<'i> {
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
            let is_too_much = state.interim > self.limits.interim;
            *storage = head.into_storage();
            return Ok(if is_too_much || end {
                self.fault(place, StreamError::Malformed("interim responses without a final one"))
            } else {
                None
            });
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
        Ok(Some(Event::Head { stream, head, end }))
    }

    /// Lines behind the body; they are judged and dropped.
    fn trailers<'i>(&mut self, place: usize, end: bool, block: &[u8]) -> Outcome<'i> {
        let mut is_sound = end;
        let mut size = 0;
        let most = self.limits.response.head;
        self.decoder
            .decode(block, |name, value| {
                size += name.len() + value.len();
                is_sound = is_sound && size <= most && check_field(name, value).is_ok();
            })
            .map_err(compression)?;
        if !is_sound {
            return Ok(self.fault(place, StreamError::Malformed("trailers that are none")));
        }
        if let Some(short) = self.short(place) {
            return Ok(Some(short));
        }
        let stream = self.streams[place].id;
        self.finish(place);
        Ok(Some(Event::Data {
            stream,
            data: &[],
            end: true,
        }))
    }

    fn reset_stream<'i>(&mut self, head: FrameHead, payload: &[u8]) -> Outcome<'i> {
        let Ok(code) = payload.try_into() else {
            return Err(ConnectionError::frame_size("RST_STREAM is not of 4 bytes"));
        };
        if self.is_idle(head.stream) {
            return Err(ConnectionError::protocol(
                "RST_STREAM on a stream that was never opened",
            ));
        }
        let Some(place) = self.place(head.stream) else {
            return Ok(None);
        };
        let stream = self.streams.remove(place).id;
        let why = match ErrorCode(u32::from_be_bytes(code)) {
            ErrorCode::REFUSED_STREAM => StreamError::Unprocessed,
            code => StreamError::Reset(code),
        };
        Ok(Some(Event::Failed { stream, why }))
    }

    fn settings<'i>(&mut self, head: FrameHead, payload: &[u8]) -> Outcome<'i> {
        if head.stream != 0 {
            return Err(ConnectionError::protocol("SETTINGS on a stream"));
        }
        if head.has(ACK) {
            return if payload.is_empty() {
                Ok(None)
            } else {
                Err(ConnectionError::frame_size("SETTINGS acknowledgement with a payload"))
            };
        }
        let before = self.peer;
        // A server has no pushes to allow (RFC 9113 §6.5.2).
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

    fn ping<'i>(&mut self, head: FrameHead, payload: &[u8]) -> Outcome<'i> {
        let Ok(opaque) = payload.try_into() else {
            return Err(ConnectionError::frame_size("PING is not of 8 bytes"));
        };
        if head.stream != 0 {
            return Err(ConnectionError::protocol("PING on a stream"));
        }
        if head.has(ACK) {
            return Ok(None);
        }
        self.answer(|out| frame::write_ping(out, opaque, true))
    }

    /// Says what the server has asked for, unless it takes no answers.
    fn answer<'i>(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Outcome<'i> {
        if self.output.len() > self.limits.answers {
            return Err(ConnectionError::flood("questions whose answers are not taken"));
        }
        write(&mut self.output);
        Ok(None)
    }

    fn goaway<'i>(&mut self, head: FrameHead, payload: &[u8]) -> Outcome<'i> {
        let Some(&[l0, l1, l2, l3, c0, c1, c2, c3]) = payload.first_chunk() else {
            return Err(ConnectionError::frame_size("GOAWAY is shorter than 8 bytes"));
        };
        if head.stream != 0 {
            return Err(ConnectionError::protocol("GOAWAY on a stream"));
        }
        let last = u32::from_be_bytes([l0, l1, l2, l3]) & frame::MOST_STREAM;
        if self.last.is_some_and(|before| last > before) {
            return Err(ConnectionError::protocol("GOAWAY takes streams back in"));
        }
        self.last = Some(last);
        let code = ErrorCode(u32::from_be_bytes([c0, c1, c2, c3]));
        Ok(Some(Event::GoAway { code }))
    }

    fn window_update<'i>(&mut self, head: FrameHead, payload: &[u8]) -> Outcome<'i> {
        let Ok(increment) = payload.try_into().map(u32::from_be_bytes) else {
            return Err(ConnectionError::frame_size("WINDOW_UPDATE is not of 4 bytes"));
        };
        // The highest bit is reserved.
        let increment = increment & frame::MOST_STREAM;
        if head.stream == 0 {
            return if increment == 0 {
                Err(ConnectionError::protocol("WINDOW_UPDATE by nothing"))
            } else if self.send.shift(i64::from(increment)) {
                Ok(None)
            } else {
                Err(ConnectionError::flow_control("the connection's window too large"))
            };
        }
        if self.is_idle(head.stream) {
            return Err(ConnectionError::protocol(
                "WINDOW_UPDATE on a stream that was never opened",
            ));
        }
        let Some(place) = self.place(head.stream) else {
            return Ok(None);
        };
        if increment == 0 || !self.streams[place].send.shift(i64::from(increment)) {
            return Ok(self.fault(place, StreamError::Malformed("WINDOW_UPDATE by nothing, or too much")));
        }
        Ok(None)
    }

    /// Ends a stream for the server's fault.
    fn fault(&mut self, place: usize, why: StreamError) -> Option<Event<'static>> {
        let stream = self.streams.remove(place).id;
        frame::write_reset(&mut self.output, stream, ErrorCode::PROTOCOL_ERROR);
        Some(Event::Failed { stream, why })
    }
}

/// What priorities say is ignored (RFC 9113 §5.3.2), their form is not.
fn priority<'i>(head: FrameHead, payload: &[u8]) -> Outcome<'i> {
    let Ok(payload) = payload.try_into() else {
        return Err(ConnectionError::frame_size("PRIORITY is not of 5 bytes"));
    };
    if head.stream == 0 {
        return Err(ConnectionError::protocol("PRIORITY on the connection"));
    }
    check_dependency(head.stream, payload).map(|()| None)
}
