//! One stream: the exchange as a handler sees it, with its request body and the rest of its response.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use foldhash::fast::FixedState;
use haulier_http::{BodyError, BrokenBody, Exchange, Piece, Presence, Timeouts};
use haulier_proto::field::Fields;
use haulier_proto::h2::hpack::encode;

use super::super::exact_body::ExactBody;
use super::connection::Connection;
use super::sending::Sending;
use crate::clock;
use crate::io::{WaitPhase, Watched};

/// Longest unwanted body that is read to its end; beyond it, a reset is cheaper.
const DRAINABLE: u64 = 64 * 1024;

/// A stream, from its request head to the last byte of its response.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) connection: Rc<Connection>,
    pub(super) id: u32,
    /// Bytes of the request body that no handler has taken.
    body: RefCell<Vec<u8>>,
    /// Bytes of the request body received so far.
    received: Cell<u64>,
    /// The request body is complete.
    body_ended: Cell<bool>,
    /// RFC 9110 §10.1.1: the client sends the body after `100 Continue`.
    awaits_continue: Cell<bool>,
    /// The response, once there is one.
    pub(super) sending: RefCell<Option<Box<Sending>>>,
    /// True once nothing can be sent on the stream.
    is_gone: Cell<bool>,
    /// The client has closed its side of the connection.
    client_ended: Cell<bool>,
    /// The event that the handler waits for, and the start of the wait.
    waiting: Cell<(WaitPhase, Instant)>,
    /// The timeouts of its site, if they differ from the server's.
    timeouts: RefCell<Option<Arc<Timeouts>>>,
    /// The wait for the body has expired.
    expired: Cell<bool>,
    task: RefCell<Option<Waker>>,
}

impl Stream {
    pub(super) fn new(connection: &Rc<Connection>, id: u32, body_ended: bool, awaits_continue: bool) -> Rc<Self> {
        Rc::new(Self {
            connection: Rc::clone(connection),
            id,
            body: RefCell::default(),
            received: Cell::new(0),
            body_ended: Cell::new(body_ended),
            awaits_continue: Cell::new(awaits_continue),
            sending: RefCell::default(),
            is_gone: Cell::new(false),
            client_ended: Cell::new(false),
            waiting: Cell::new((WaitPhase::Handler, connection.thread.io.clock.coarse())),
            timeouts: RefCell::default(),
            expired: Cell::new(false),
            task: RefCell::default(),
        })
    }

    /// True if the request is complete.
    pub(super) fn has_whole_body(&self) -> bool {
        self.body_ended.get()
    }

    /// True if an unwanted body of this length is to be read before the response: many clients take a response in the
    /// middle of their upload for a failure.
    pub(super) fn is_drainable(&self, length: Option<u64>) -> bool {
        !self.body_ended.get() && !self.awaits_continue.get() && length.is_none_or(|length| length <= DRAINABLE)
    }

    /// Reads and discards the body, up to a limit.
    pub(super) async fn drain(&self) {
        let (mut scratch, mut budget) = (Vec::new(), DRAINABLE);
        while let Ok(1..) = std::future::poll_fn(|context| self.poll_body(context, &mut scratch)).await {
            budget = budget.saturating_sub(scratch.len() as u64);
            scratch.clear();
            if budget == 0 {
                return;
            }
        }
    }

    /// Takes a part of the request body.
    pub(super) fn take_data(&self, data: &[u8], end: bool) {
        self.body.borrow_mut().extend_from_slice(data);
        self.body_ended.set(end);
        self.awaits_continue.set(false);
        self.received.set(self.received.get() + data.len() as u64);
        self.note_part(0);
        self.wake();
    }

    /// Notes `part` bytes of an incomplete frame: frames of a slow sender take long.
    pub(super) fn note_part(&self, part: u64) {
        let received = self.received.get() + part;
        if let (
            WaitPhase::Body {
                started,
                received: before,
            },
            _,
        ) = self.waiting.get()
            && received > before
        {
            self.wait_for(WaitPhase::Body { started, received });
        }
    }

    /// Marks the stream as finished: it was reset, or everything was sent.
    pub(super) fn end(&self) {
        self.is_gone.set(true);
        self.wake();
    }

    /// True if nothing can be sent on the stream any more.
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.get()
    }

    /// Notes that the client has closed its side, which ends an endless body.
    pub(super) fn note_end(&self) {
        self.client_ended.set(true);
        self.wake();
    }

    pub(super) fn wake(&self) {
        if let Some(task) = self.task.borrow_mut().take() {
            task.wake();
        }
    }

    pub(super) fn note_task(&self, context: &Context<'_>) {
        *self.task.borrow_mut() = Some(context.waker().clone());
    }

    fn wait_for(&self, phase: WaitPhase) {
        self.waiting.set((phase, self.connection.thread.io.clock.coarse()));
    }

    fn poll_received(&self, context: &Context<'_>, into: &mut Vec<u8>) -> Poll<Result<usize, BodyError>> {
        let count = self.body.borrow().len();
        if count > 0 {
            if into.is_empty() {
                std::mem::swap(into, &mut self.body.borrow_mut());
            } else {
                into.append(&mut self.body.borrow_mut());
            }
            self.connection.ask(|machine| machine.consume(self.id, count));
            self.connection.wake();
            return Poll::Ready(Ok(count));
        }
        if self.body_ended.get() {
            return Poll::Ready(Ok(0));
        }
        if self.is_gone.get() || self.client_ended.get() {
            return Poll::Ready(Err(BodyError::Gone));
        }
        if self.expired.take() {
            return Poll::Ready(Err(BodyError::TooSlow));
        }
        if self.awaits_continue.take() {
            self.send_interim(100, &Fields::new());
        }
        if !matches!(self.waiting.get().0, WaitPhase::Body { .. }) {
            self.wait_for(WaitPhase::Body {
                started: clock::now(),
                received: self.received.get(),
            });
        }
        self.note_task(context);
        Poll::Pending
    }

    /// Polls the source for the next piece.
    pub(super) fn poll_source(&self, source: &mut ExactBody, context: &mut Context<'_>) -> Poll<NextPiece> {
        if self.is_gone.get() || (self.client_ended.get() && source.is_endless()) {
            return Poll::Ready(NextPiece::Unwanted);
        }
        match source.poll_piece(context) {
            Poll::Ready(Ok(Some(piece))) => Poll::Ready(NextPiece::Piece(piece)),
            Poll::Ready(Ok(None)) => Poll::Ready(NextPiece::End),
            Poll::Ready(Err(broken)) => Poll::Ready(NextPiece::Broken(broken)),
            Poll::Pending => {
                self.note_task(context);
                Poll::Pending
            }
        }
    }

    /// Ready once the current piece was sent, or never will be.
    pub(super) fn poll_taken(&self, context: &Context<'_>) -> Poll<()> {
        let is_busy = self
            .sending
            .borrow()
            .as_ref()
            .is_some_and(|sending| sending.has_piece());
        if !is_busy || self.is_gone.get() {
            return Poll::Ready(());
        }
        self.note_task(context);
        Poll::Pending
    }
}

/// The result of polling a source.
#[derive(Debug)]
pub(super) enum NextPiece {
    Piece(Piece),
    End,
    Broken(BrokenBody),
    /// The client is gone, so the rest is not needed.
    Unwanted,
}

impl Exchange for Stream {
    fn set_timeouts(&self, timeouts: Option<&Arc<Timeouts>>) {
        for held in [&self.timeouts, &self.connection.timeouts] {
            let mut held = held.borrow_mut();
            if held.is_some() || timeouts.is_some() {
                *held = timeouts.cloned();
            }
        }
    }

    fn poll_body(&self, context: &mut Context<'_>, into: &mut Vec<u8>) -> Poll<Result<usize, BodyError>> {
        let polled = self.poll_received(context, into);
        if let Poll::Ready(Ok(0) | Err(_)) = polled {
            self.wait_for(WaitPhase::Handler);
        }
        polled
    }

    fn send_interim(&self, status: u16, fields: &Fields) {
        let block = encode::block(status, fields);
        self.connection.ask(|machine| machine.send_head(self.id, &block, false));
        self.connection.wake();
    }

    fn presence(&self) -> Presence {
        match self.connection.socket.presence() {
            _ if self.is_gone.get() => Presence::Gone,
            Presence::Here if self.client_ended.get() => Presence::Silent,
            presence => presence,
        }
    }
}

impl Watched for Stream {
    fn waiting(&self) -> (WaitPhase, Instant) {
        self.waiting.get()
    }

    fn timeouts(&self) -> Option<Arc<Timeouts>> {
        self.timeouts.borrow().clone()
    }

    fn expire(&self, _: WaitPhase) {
        self.expired.set(true);
        self.wake();
    }

    /// Streams end with their connection.
    fn cut(&self) {}
}

/// The streams with a handler at work or an unfinished response.
#[derive(Debug, Default)]
pub(super) struct WaitingStreams(HashMap<u32, Rc<Stream>, FixedState>);

impl WaitingStreams {
    pub(super) fn insert(&mut self, stream: Rc<Stream>) {
        self.0.insert(stream.id, stream);
    }

    pub(super) fn get(&self, id: u32) -> Option<Rc<Stream>> {
        self.0.get(&id).map(Rc::clone)
    }

    pub(super) fn remove(&mut self, id: u32) -> Option<Rc<Stream>> {
        if self.0.is_empty() {
            return None;
        }
        self.0.remove(&id)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Rc<Stream>> {
        self.0.values()
    }

    pub(super) fn take_all(&mut self) -> Vec<Rc<Stream>> {
        std::mem::take(&mut self.0).into_values().collect()
    }
}
