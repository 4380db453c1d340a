//! Received frames, and the requests that they make.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Instant;

use haulier_http::{Exchange, Reason, Request};
use haulier_proto::framing::{self, BodyLength, Expectation};
use haulier_proto::h2::connection::ServerEvent;
use haulier_proto::h2::limits::Limits as MachineLimits;
use haulier_proto::head::RequestHead;

use super::connection::{Connection, MOST_OUTPUT};
use super::stream::Stream;
use crate::clock;
use crate::io::Limits;
use crate::io::WaitPhase;
use crate::pipeline::{self, Handling};

/// The limits of the state machine.
pub(super) fn limits(limits: &Limits) -> MachineLimits {
    let default = MachineLimits::default();
    let u32_of = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    MachineLimits {
        streams: limits.h2_streams,
        stream_window: limits.h2_stream_window,
        connection_window: limits.h2_connection_window,
        resets: limits.h2_resets,
        control_frames: limits.h2_control_frames,
        header_list: u32_of(limits.header),
        fields: u32_of(limits.header_fields),
        path: u32_of(limits.request_line),
        // A head of the largest size must fit, whatever else is open.
        all_heads: default.all_heads.max(u32_of(limits.header).saturating_mul(2)),
        stall: limits.send_timeout,
        ..default
    }
}

impl Connection {
    /// Handles the frames that were read, as long as there is room for responses.
    pub(super) fn take_frames(self: &Rc<Self>) {
        let input = self.input.take();
        if input.is_empty() || self.has_failed.get() {
            self.thread.io.buffers.give_large(input);
            return;
        }
        let (now, received) = (self.thread.io.clock.coarse(), clock::now());
        let mut storage = self.thread.io.buffers.take_head();
        let mut taken = 0;
        loop {
            let mut machine = self.machine();
            if machine.output().len() >= MOST_OUTPUT {
                break;
            }
            let step = machine.receive(&input[taken..], now, &mut storage);
            drop(machine);
            match step {
                Ok(step) => {
                    taken += step.taken;
                    let Some(event) = step.event else { break };
                    if matches!(event, ServerEvent::Request { .. }) {
                        storage = self.thread.io.buffers.take_head();
                    }
                    self.handle(event, received);
                }
                Err(error) => {
                    self.note_failure(error);
                    taken = input.len();
                    break;
                }
            }
        }
        self.thread.io.buffers.give_head(storage);
        self.keep_rest(input, taken);
    }

    /// Copies an incomplete frame to memory of its own: the large buffer is shared by all connections.
    fn keep_rest(&self, mut input: Vec<u8>, taken: usize) {
        let rest = &input[taken..];
        if rest.len() > input.capacity() / 2 {
            input.drain(..taken);
            *self.input.borrow_mut() = input;
            return;
        }
        if !rest.is_empty() {
            *self.input.borrow_mut() = rest.to_vec();
        }
        self.thread.io.buffers.give_large(input);
    }

    fn handle(self: &Rc<Self>, event: ServerEvent<'_>, received: Instant) {
        match event {
            ServerEvent::Request { stream, head, end } => self.begin(stream, head, end, received),
            ServerEvent::Refused { stream, error } => {
                let stream = Stream::new(self, stream, true, false);
                self.refuse(&stream, error.status(), Reason::BadRequest);
            }
            ServerEvent::Data { stream, data, end } => self.take_data(stream, data, end),
            ServerEvent::Reset { stream, .. } => self.forget(stream),
            ServerEvent::GoAway { .. } => self.is_leaving.set(true),
        }
    }

    /// Runs one exchange as far as it needs no waiting.
    fn begin(self: &Rc<Self>, id: u32, head: RequestHead, end: bool, received: Instant) {
        self.wait_for(WaitPhase::Handler);
        self.served.set(self.served.get().saturating_add(1));
        if self.served.get() >= self.thread.serving().settings.limits.keepalive_requests
            || self.thread.io.draining.get()
        {
            self.send_goaway();
        }
        let expectation = framing::expectation(&head);
        let stream = Stream::new(self, id, end, expectation == Expectation::Continue);
        if expectation == Expectation::Unknown {
            return self.refuse(&stream, 417, Reason::BadRequest);
        }
        let body_length = match framing::body_length(&head) {
            _ if end => Some(0),
            // Without Content-Length the end of the stream ends the body.
            Ok(BodyLength::Known(length)) if length > 0 => Some(length),
            _ => None,
        };
        // Taken out by the closure: one that owned it would move it twice more.
        let mut request = Some(Request {
            head,
            peer: self.peer,
            id: self.thread.next_id(),
            received,
            body_length,
            asks_password: Cell::default(),
            exchange: Rc::clone(&stream) as Rc<dyn Exchange>,
        });
        let handling = catch_unwind(AssertUnwindSafe(|| {
            let request = request.take().expect("it was made just now");
            pipeline::serve(&self.thread, request)
        }));
        match handling {
            Ok(handling) => self.answer(stream, handling),
            Err(_) => self.refuse(&stream, 500, Reason::Panic),
        }
    }

    /// Sends what is there, or waits for it.
    fn answer(self: &Rc<Self>, stream: Rc<Stream>, handling: Handling) {
        match handling {
            Handling::Ready(answered) => {
                if stream.is_drainable(answered.request.body_length) {
                    self.expect_body(&stream);
                    stream.spawn_drain(answered);
                } else if let Some(source) = self.reply(&stream, answered) {
                    stream.spawn_feed(source);
                }
            }
            Handling::Later(future) => {
                self.expect_body(&stream);
                stream.spawn(future);
            }
        }
    }

    /// Prepares for a request body.
    fn expect_body(&self, stream: &Rc<Stream>) {
        if !stream.has_whole_body() {
            let weak = Rc::downgrade(stream);
            self.thread.io.deadlines.watch(weak);
        }
        self.streams.borrow_mut().insert(Rc::clone(stream));
    }

    /// Takes a part of a request body. An unwanted one is consumed at once.
    fn take_data(&self, id: u32, data: &[u8], end: bool) {
        let stream = self.streams.borrow().get(id);
        match stream {
            Some(stream) => stream.take_data(data, end),
            None => self.ask(|machine| machine.consume(id, data.len())),
        }
    }
}
