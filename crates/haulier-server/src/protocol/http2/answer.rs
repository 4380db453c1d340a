//! Responses: heads, as much of the bodies as fits, and ends.

use std::rc::Rc;
use std::sync::Arc;

use haulier_http::{Body, Piece, Reason, Request, Response};
use haulier_proto::field::Fields;
use haulier_proto::h2::error::ErrorCode;
use haulier_proto::h2::hpack::encode;
use haulier_proto::head::Method;
use haulier_proto::status;

use super::super::active_transfer::ActiveTransfer;
use super::super::exact_body::ExactBody;
use super::super::finished_exchange::FinishedExchange;
use super::connection::{Connection, MOST_OUTPUT};
use super::head;
use super::sending::{Sending, StreamStep};
use super::stream::Stream;
use crate::answer::error_page;
use crate::metrics::InFlight;
use crate::pipeline::AnsweredRequest;
use crate::site::Site;

/// Longest body that leaves with its head.
const COPIED: usize = 16 * 1024;

impl Connection {
    /// Sends a response as far as the windows allow. A body that comes in pieces is returned, for a task to feed.
    pub(super) fn reply(self: &Rc<Self>, stream: &Rc<Stream>, answered: AnsweredRequest) -> Option<ExactBody> {
        let AnsweredRequest {
            request,
            site,
            in_flight,
            response,
        } = answered;
        self.send(stream, Some(request), site, in_flight, response)
    }

    /// Refuses a malformed request, or one that must not be served; this costs its stream only.
    pub(super) fn refuse(self: &Rc<Self>, stream: &Rc<Stream>, status: u16, reason: Reason) {
        let id = self.thread.next_id();
        let response = error_page::respond(status, Some(reason), None, &id, None);
        self.send(stream, None, None, None, response);
    }

    fn send(
        self: &Rc<Self>,
        stream: &Rc<Stream>,
        request: Option<Request>,
        site: Option<Arc<Site>>,
        in_flight: Option<InFlight>,
        response: Response,
    ) -> Option<ExactBody> {
        let Response {
            status,
            head,
            body,
            trace,
        } = response;
        let is_bodiless = status::is_bodiless(status);
        let length = if is_bodiless { None } else { body.length() };
        let head_only = request
            .as_ref()
            .is_some_and(|request| request.head.method() == Method::Head);
        let body = if head_only || is_bodiless || length == Some(0) {
            Body::Empty
        } else {
            body
        };
        let write = |out: &mut Vec<u8>| head::write(out, &self.thread, status, &head, length);
        // Streams of a client that has gone end with the connection; a body begun there would never end.
        let (first, sent) = match stream.is_gone() {
            true => (SentPart::Gone, 0),
            false => self.send_first(stream.id, write, &body),
        };
        self.wake();
        if let SentPart::Part(skip) = first {
            let mut sending = Box::new(Sending::new(request, site, in_flight, status, trace));
            (sending.sent, sending.body_sent, sending.length) = (sent, skip as u64, length);
            return self.send_rest(stream, sending, body, skip);
        }
        // Nearly every response ends here, so its parts are not moved.
        self.streams.borrow_mut().remove(stream.id);
        stream.end();
        FinishedExchange {
            request: request.as_ref(),
            peer: self.peer,
            site: site.as_ref(),
            status,
            trace: &trace,
            sent,
            counted: 0,
            body_sent: match first {
                SentPart::All(length) => length as u64,
                SentPart::Part(_) | SentPart::Gone => 0,
            },
            complete: first != SentPart::Gone,
        }
        .note(&self.thread);
        if let Some(request) = request {
            self.thread.io.buffers.give_head(request.head.into_storage());
        }
        None
    }

    /// Keeps the body after its first `skip` bytes for later turns.
    fn send_rest(
        self: &Rc<Self>,
        stream: &Rc<Stream>,
        mut sending: Box<Sending>,
        body: Body,
        skip: usize,
    ) -> Option<ExactBody> {
        let site = sending.site.as_ref().map(|site| site.series);
        sending.sending = Some(InFlight::sending(&self.thread.serving().counters, site));
        let source = sending.load(body, skip);
        *stream.sending.borrow_mut() = Some(sending);
        self.streams.borrow_mut().insert(Rc::clone(stream));
        if source.is_none() {
            self.ask(|machine| machine.queue(stream.id));
        }
        source
    }

    /// Sends the head, with a short body. Other bodies wait for their turn. Returns the progress, and the bytes with
    /// frame headers.
    fn send_first(&self, stream: u32, write_head: impl FnOnce(&mut Vec<u8>), body: &Body) -> (SentPart, u64) {
        let mut machine = self.machine();
        let before = machine.output().len();
        let fits = |short: &&[u8]| short.is_empty() || (short.len() <= COPIED && before < MOST_OUTPUT);
        let short = short(body).filter(fits);
        let sent = match short {
            Some(short) => machine.respond_of(stream, short, write_head),
            None => machine.send_head_of(stream, false, write_head).then_some(0),
        };
        let first = match (sent, short) {
            (None, _) => SentPart::Gone,
            (Some(sent), Some(short)) if sent == short.len() => SentPart::All(sent),
            (Some(sent), _) => SentPart::Part(sent),
        };
        (first, (machine.output().len() - before) as u64)
    }

    /// Sends more of the pending bodies: one turn for each, while there is room.
    pub(super) fn fill(self: &Rc<Self>) {
        let turns = self.streams.borrow().len();
        for _ in 0..turns {
            let mut machine = self.machine();
            if machine.output().len() >= MOST_OUTPUT {
                return;
            }
            let Some(id) = machine.next_writable() else { return };
            let Some(stream) = self.streams.borrow().get(id) else {
                continue;
            };
            let mut sending = stream.sending.borrow_mut();
            let Some(current) = &mut *sending else { continue };
            let step = current.step(&mut machine, id);
            drop(machine);
            self.count_sent(current);
            drop(sending);
            self.handle_step(&stream, step);
        }
    }

    fn handle_step(self: &Rc<Self>, stream: &Rc<Stream>, step: StreamStep) {
        match step {
            StreamStep::Waiting => {}
            StreamStep::Taken => stream.wake(),
            StreamStep::Done => self.end(stream, true),
            StreamStep::Gone => self.end(stream, false),
            StreamStep::Cold(slice, most) => stream.spawn_read_ahead(slice, most),
            StreamStep::Broken(error) => {
                tracing::warn!(%error, "cannot send the rest of a file");
                self.break_off(stream, None);
            }
        }
    }

    /// Counts a long response while it is sent, not only at its end.
    fn count_sent(&self, sending: &mut Sending) {
        let site = sending.site.as_ref().map(|site| site.series);
        let more = sending.uncounted();
        self.thread.serving().counters.sent(site, &sending.trace, more);
        // Without frame headers, since the length was known before the frames.
        let (sent, length) = (sending.body_sent, sending.length);
        let (request, site) = (sending.request.as_ref(), sending.site.as_deref());
        let active_transfer = sending
            .active_transfer
            .get_or_insert_with(|| ActiveTransfer::begin(&self.thread));
        active_transfer.note(&self.thread, request, site, sent, length);
    }

    /// Lists the responses that take long, and notes their bytes in the kernel: equal shares, since the kernel does not
    /// tell streams apart.
    pub(super) fn check_progress_of_responses(&self) {
        let streams: Vec<_> = self.streams.borrow().all().map(Rc::clone).collect();
        let mut queued = None;
        for stream in &streams {
            let Ok(mut sending) = stream.sending.try_borrow_mut() else {
                continue;
            };
            let Some(current) = &mut *sending else { continue };
            self.count_sent(current);
            let Some(transfer) = current.active_transfer.as_ref().and_then(ActiveTransfer::transfer) else {
                continue;
            };
            let queued = *queued.get_or_insert_with(|| self.socket.unacknowledged() as u64);
            transfer.note_queue(queued / streams.len() as u64);
        }
    }

    /// Loads the next piece of a body.
    pub(super) fn load(&self, stream: &Stream, piece: Piece) {
        if let Some(sending) = &mut *stream.sending.borrow_mut() {
            sending.load_piece(piece);
        }
        self.ask(|machine| machine.queue(stream.id));
        self.wake();
    }

    /// Loads the end of a body, with its trailers.
    pub(super) fn load_end(self: &Rc<Self>, stream: &Rc<Stream>, trailers: Option<Fields>) {
        let is_sent = match trailers {
            Some(trailers) => {
                let mut block = Vec::new();
                encode::fields(&mut block, &trailers);
                self.machine().send_head(stream.id, &block, true)
            }
            None => self.machine().send_data(stream.id, b"", true).is_some(),
        };
        self.end(stream, is_sent);
        self.wake();
    }

    /// Resets the stream: the client must not take a broken body for complete.
    pub(super) fn break_off(self: &Rc<Self>, stream: &Rc<Stream>, reason: Option<Reason>) {
        if let (Some(sending), Some(reason)) = (&mut *stream.sending.borrow_mut(), reason) {
            sending.trace.reason = Some(reason);
        }
        self.ask(|machine| machine.reset(stream.id, ErrorCode::INTERNAL_ERROR));
        self.end(stream, false);
        self.wake();
    }

    /// Drops a stream that was reset.
    pub(super) fn forget(&self, id: u32) {
        let stream = self.streams.borrow_mut().remove(id);
        if let Some(stream) = stream {
            self.end(&stream, false);
        }
    }

    /// Ends all streams with the connection.
    pub(super) fn end_streams(&self) {
        let streams = self.streams.borrow_mut().take_all();
        for stream in streams {
            self.end(&stream, false);
        }
    }

    /// Ends a stream whose response is complete or broken off.
    fn end(&self, stream: &Stream, complete: bool) {
        let sending = stream.sending.borrow_mut().take();
        match sending {
            Some(sending) => self.finish(stream, *sending, complete),
            None => stream.end(),
        }
    }

    /// Counts and logs the exchange, and reuses its memory.
    fn finish(&self, stream: &Stream, sending: Sending, complete: bool) {
        self.streams.borrow_mut().remove(stream.id);
        stream.end();
        FinishedExchange {
            request: sending.request.as_ref(),
            peer: self.peer,
            site: sending.site.as_ref(),
            status: sending.status,
            trace: &sending.trace,
            sent: sending.sent,
            counted: sending.counted,
            body_sent: sending.body_sent,
            complete,
        }
        .note(&self.thread);
        if let Some(request) = sending.request {
            self.thread.io.buffers.give_head(request.head.into_storage());
        }
    }
}

/// The part of a response that was sent at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SentPart {
    /// All of it, with this many bytes of body.
    All(usize),
    /// The first bytes of the body, of this number.
    Part(usize),
    /// The client has reset the stream.
    Gone,
}

/// The content of a short body in memory, or of a file whose content is.
fn short(body: &Body) -> Option<&[u8]> {
    match body {
        Body::Empty | Body::Unsent(_) => Some(b""),
        Body::Bytes(bytes) => Some(bytes),
        Body::File(slice) => slice.in_memory(),
        Body::Stream(_) => None,
    }
}
