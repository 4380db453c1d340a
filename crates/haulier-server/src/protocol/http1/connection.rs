//! One HTTP/1.1 connection: requests in, responses out, in order.
//!
//! [`Connection::turn`] does everything that can be done without waiting, straight from the read buffer to the send
//! call. Only what must wait (more bytes, room to send, a handler) becomes a [`Next`] and, behind it, a future. An
//! idle connection therefore owns no buffer.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

use haulier_proto::encode;
use haulier_proto::field::Fields;
use haulier_proto::framing::{self, BodyLength, Expectation};
use haulier_proto::head::{HeadLimits, RequestHead, Version};

use super::super::socket::Socket;
use super::super::{Phase, Watched};
use super::incoming::Incoming;
use super::sender::{Plan, Sender, Step};
use crate::access_log::Record;
use crate::handler::error_page;
use crate::listen::Permit;
use crate::pipeline::{self, Answer, Answered};
use crate::request::{BodyError, Exchange, Peer, Request};
use crate::response::{Response, Trace};
use crate::route::Site;
use crate::thread::{self, Thread};

/// A connection and the exchange it is in.
#[derive(Debug)]
pub(crate) struct Connection {
    thread: Rc<Thread>,
    socket: Socket,
    peer: Peer,
    /// Bytes read and not yet understood; without memory while the connection is idle.
    input: RefCell<Vec<u8>>,
    /// The body of the current request.
    incoming: RefCell<Incoming>,
    /// What it waits for, and since when.
    waiting: Cell<(Phase, Instant)>,
    /// The wait for bytes took too long and is over.
    expired: Cell<bool>,
    /// Wakes the task out of a wait for bytes.
    reader: RefCell<Option<Waker>>,
    /// Whether the client knows interim responses (RFC 9110 §15.2).
    takes_interim: Cell<bool>,
    /// Bytes of `input` known to hold no end of a head.
    scanned: Cell<usize>,
    /// Requests begun.
    served: Cell<u32>,
    /// Its place among the connections we may hold.
    _permit: Permit,
}

/// What a connection does next.
#[derive(Debug)]
enum Next {
    /// Look for another request in what was read.
    Turn,
    /// Wait for bytes.
    Read,
    /// Wait for something that has a state of its own.
    Wait(Box<Waiting>),
    /// Nothing further will be said: say so, and read away what the client still sends.
    Linger,
    Close,
}

/// A wait in the middle of an exchange.
#[allow(
    clippy::large_enum_variant,
    reason = "it lives in a box, and sending is the usual wait"
)]
enum Waiting {
    /// For a handler; afterwards the connection may be kept, or not.
    Answer(Pin<Box<dyn Future<Output = Answered>>>, bool),
    /// For room to send, or for the next piece of the body.
    Send(Sending),
    /// For the rest of a request body nobody wants; so many bytes at most.
    Drain(u64),
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Answer(..) => "Answer",
            Self::Send(_) => "Send",
            Self::Drain(_) => "Drain",
        })
    }
}

/// A response on its way out, and what the log will say about it.
#[derive(Debug)]
struct Sending {
    sender: Sender,
    /// `None` for the refusal of something that was no request.
    request: Option<Request>,
    site: Option<Arc<Site>>,
    status: u16,
    trace: Trace,
}

/// What a read brought.
enum Read {
    Bytes,
    Nothing,
    End,
}

impl Connection {
    /// Takes over an accepted socket. A request that is already there is answered before anything is registered,
    /// and a connection that is over by then never was.
    pub(crate) fn start(thread: &Rc<Thread>, socket: Socket, peer: Peer, permit: Permit) {
        let connection = Rc::new(Self {
            thread: Rc::clone(thread),
            socket,
            peer,
            input: RefCell::default(),
            incoming: RefCell::new(Incoming::none()),
            waiting: Cell::new((Phase::Head, thread.clock.coarse())),
            expired: Cell::new(false),
            reader: RefCell::default(),
            takes_interim: Cell::new(false),
            scanned: Cell::new(0),
            served: Cell::new(0),
            _permit: permit,
        });
        let next = match connection.receive() {
            Ok(Read::Bytes) => connection.turn(),
            Ok(Read::Nothing) => Next::Read,
            Ok(Read::End) | Err(_) => return,
        };
        if !matches!(next, Next::Close) {
            let weak = Rc::downgrade(&connection);
            thread.deadlines.watch(weak);
            tokio::task::spawn_local(connection.drive(next));
        }
    }

    /// Runs the connection to its end.
    async fn drive(self: Rc<Self>, mut next: Next) {
        loop {
            next = match next {
                Next::Turn => self.turn(),
                Next::Read => match self.read().await {
                    Ok(Read::Bytes | Read::Nothing) => Next::Turn,
                    Ok(Read::End) if self.expired.take() && !self.input.borrow().is_empty() => {
                        self.refuse(408, "head_timeout")
                    }
                    Ok(Read::End) | Err(_) => return,
                },
                Next::Wait(waiting) => Box::pin(self.wait(*waiting)).await,
                Next::Linger => return Box::pin(self.linger()).await,
                Next::Close => return,
            }
        }
    }

    /// Everything that can be done without waiting.
    fn turn(self: &Rc<Self>) -> Next {
        loop {
            let next = match self.take_head() {
                Ok(Some(head)) => self.begin(head),
                Ok(None) => return Next::Read,
                Err(error) => self.refuse(error.status(), "bad_request"),
            };
            if !matches!(next, Next::Turn) {
                return next;
            }
        }
    }

    /// The next request head, if it is complete.
    fn take_head(&self) -> Result<Option<RequestHead>, haulier_proto::head::HeadError> {
        let mut input = self.input.borrow_mut();
        if input.is_empty() {
            self.thread.buffers.give(std::mem::take(&mut input));
            return Ok(None);
        }
        let limits = &self.thread.settings.limits;
        let limits = HeadLimits {
            request_line: limits.request_line,
            header: limits.header,
            fields: limits.header_fields,
        };
        if !limits.is_worth_parsing(&input, self.scanned.get()) {
            self.scanned.set(input.len());
            return Ok(None);
        }
        let mut storage = self.thread.buffers.take_fields();
        let head = RequestHead::parse(&mut input, &limits, &mut storage)?;
        if head.is_none() {
            self.thread.buffers.give_fields(storage);
        }
        self.scanned.set(if head.is_none() { input.len() } else { 0 });
        Ok(head)
    }

    /// One exchange, as far as it goes without waiting.
    fn begin(self: &Rc<Self>, head: RequestHead) -> Next {
        let length = match framing::body_length(&head) {
            Ok(length) => length,
            Err(error) => return self.refuse(error.status(), "bad_request"),
        };
        let expectation = framing::expectation(&head);
        if expectation == Expectation::Unknown {
            return self.refuse(417, "bad_request");
        }
        *self.incoming.borrow_mut() = Incoming::new(length, expectation == Expectation::Continue);
        self.wait_for(Phase::Handler);
        self.served.set(self.served.get().saturating_add(1));
        self.takes_interim.set(head.version() == Version::Http11);
        let keep_alive = framing::wants_keep_alive(&head);
        let request = Request {
            head,
            peer: self.peer,
            id: self.thread.next_id(),
            received: thread::now(),
            body_length: match length {
                BodyLength::Known(length) => Some(length),
                BodyLength::Chunked => None,
            },
            exchange: Rc::clone(self) as Rc<dyn Exchange>,
        };
        match catch_unwind(AssertUnwindSafe(|| pipeline::serve(&self.thread, request))) {
            Ok(Answer::Ready(answered)) => self.reply(answered, keep_alive),
            Ok(Answer::Later(future)) => Next::Wait(Box::new(Waiting::Answer(future, keep_alive))),
            Err(_) => self.refuse(500, "panic"),
        }
    }

    /// Sends a response as far as the kernel takes it.
    fn reply(self: &Rc<Self>, answered: Answered, keep_alive: bool) -> Next {
        let Answered {
            request,
            site,
            mut response,
        } = answered;
        let plan = Plan::of(&request, keep_alive && self.may_go_on());
        let sender = Sender::of(&self.thread, plan, &mut response);
        let Response { status, trace, .. } = response;
        self.send_now(Sending {
            sender,
            request: Some(request),
            site,
            status,
            trace,
        })
    }

    /// Whether we want another request on this connection.
    fn may_go_on(&self) -> bool {
        let incoming = self.incoming.borrow();
        !self.thread.draining.get()
            && self.served.get() < self.thread.settings.limits.keepalive_requests
            && (incoming.is_done() || incoming.is_drainable())
    }

    /// Answers what cannot be understood, or must not be served, and ends the connection.
    fn refuse(self: &Rc<Self>, status: u16, reason: &'static str) -> Next {
        let id = self.thread.next_id();
        let mut response: Response = error_page::respond(status, Some(reason), None, id, None);
        let sender = Sender::of(&self.thread, Plan::refusal(), &mut response);
        self.send_now(Sending {
            sender,
            request: None,
            site: None,
            status,
            trace: response.trace,
        })
    }

    fn send_now(self: &Rc<Self>, mut sending: Sending) -> Next {
        match sending.sender.step(&self.socket) {
            Ok(Step::Done) => self.finish(sending),
            Ok(Step::Blocked | Step::Yield | Step::Source | Step::Cold) => Next::Wait(Box::new(Waiting::Send(sending))),
            Err(_) => self.broken(sending),
        }
    }

    /// The response is out: log it, and decide about the connection.
    fn finish(self: &Rc<Self>, sending: Sending) -> Next {
        let keep_alive = sending.sender.keep_alive;
        // Whoever asked for the end sends nothing more. Anybody else's next bytes would be answered by a reset, which
        // may overtake this response.
        let is_awaited = sending
            .request
            .as_ref()
            .is_some_and(|request| !framing::wants_keep_alive(&request.head));
        self.log(sending, true);
        if !keep_alive {
            let all_read = self.incoming.borrow().is_done() && self.input.borrow().is_empty();
            return if all_read && is_awaited {
                Next::Close
            } else {
                Next::Linger
            };
        }
        if self.incoming.borrow().is_done() {
            return Next::Turn;
        }
        self.drain(Incoming::discard_budget())
    }

    /// The client left in the middle, or the body broke off: whoever reads must not take it for complete.
    fn broken(self: &Rc<Self>, sending: Sending) -> Next {
        self.log(sending, false);
        self.socket.abort();
        Next::Close
    }

    fn log(&self, sending: Sending, complete: bool) {
        let Sending {
            sender,
            request,
            site,
            status,
            trace,
        } = sending;
        if self.thread.log.wants(status) {
            self.thread.log.write(&Record {
                request: request.as_ref(),
                site: site.as_deref(),
                peer: self.peer,
                status,
                trace: &trace,
                sent: sender.sent,
                complete,
                took: request
                    .as_ref()
                    .map(|request| thread::now().saturating_duration_since(request.received)),
            });
        }
        self.thread.buffers.give(sender.into_buffer());
        if let Some(request) = request {
            self.thread.buffers.give_fields(request.head.into_storage());
        }
    }

    /// Reads away the rest of a body nobody wants.
    fn drain(self: &Rc<Self>, mut budget: u64) -> Next {
        let mut incoming = self.incoming.borrow_mut();
        if !incoming.discard(&mut self.input.borrow_mut(), &mut budget) {
            Next::Linger
        } else if incoming.is_done() {
            Next::Turn
        } else {
            Next::Wait(Box::new(Waiting::Drain(budget)))
        }
    }
}

/// Waiting.
impl Connection {
    async fn wait(self: &Rc<Self>, waiting: Waiting) -> Next {
        match waiting {
            Waiting::Answer(future, keep_alive) => {
                self.wait_for(Phase::Handler);
                match Unwinding(future).await {
                    Ok(answered) => self.reply(answered, keep_alive),
                    Err(_) => self.refuse(500, "panic"),
                }
            }
            Waiting::Send(mut sending) => match self.send(&mut sending.sender).await {
                Ok(()) => self.finish(sending),
                Err(_) => self.broken(sending),
            },
            Waiting::Drain(budget) => {
                self.note_body_wait();
                match std::future::poll_fn(|context| self.poll_receive(context)).await {
                    Ok(Read::Bytes | Read::Nothing) => {
                        self.note_body_bytes();
                        self.drain(budget)
                    }
                    Ok(Read::End) | Err(_) => Next::Close,
                }
            }
        }
    }

    fn wait_for(&self, phase: Phase) {
        self.waiting.set((phase, self.thread.clock.coarse()));
    }

    /// Waits for the first or the next bytes of a request.
    async fn read(&self) -> io::Result<Read> {
        let is_idle = self.input.borrow().is_empty();
        match (is_idle, self.waiting.get().0) {
            (true, _) => self.wait_for(Phase::Idle),
            // The deadline of a head counts from its first byte.
            (false, Phase::Head) => {}
            (false, _) => self.wait_for(Phase::Head),
        }
        std::future::poll_fn(|context| self.poll_receive(context)).await
    }

    /// Sends until everything is with the kernel.
    async fn send(&self, sender: &mut Sender) -> io::Result<()> {
        let registered = self.socket.registered()?;
        loop {
            match sender.step(&self.socket)? {
                Step::Done => return Ok(()),
                Step::Yield => {
                    self.wait_for(Phase::Send);
                    tokio::task::yield_now().await;
                }
                Step::Cold => {
                    if let Some((slice, most)) = sender.cold() {
                        let _ = tokio::task::spawn_blocking(move || slice.read_ahead(most)).await;
                    }
                }
                Step::Source => {
                    self.wait_for(Phase::Handler);
                    std::future::poll_fn(|context| self.poll_source(sender, context)).await?;
                }
                Step::Blocked => {
                    self.wait_for(Phase::Send);
                    loop {
                        let mut ready = registered.writable().await?;
                        match sender.step(&self.socket)? {
                            // Only the kernel's own word ends readiness: there is no second edge for a short turn.
                            Step::Blocked => ready.clear_ready(),
                            _ => break,
                        }
                        self.wait_for(Phase::Send);
                    }
                }
            }
        }
    }

    fn poll_source(&self, sender: &mut Sender, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Poll::Ready(done) = sender.poll_source(context) {
            return Poll::Ready(done);
        }
        if sender.is_endless() && self.poll_closed(context)?.is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        Poll::Pending
    }

    /// Ready once the client closed its side. What it sends before is kept for later.
    fn poll_closed(&self, context: &mut Context<'_>) -> io::Result<Poll<()>> {
        let registered = self.socket.registered()?;
        while self.input.borrow().len() < Self::PIPELINED {
            let Poll::Ready(ready) = registered.poll_read_ready(context) else {
                return Ok(Poll::Pending);
            };
            let mut ready = ready?;
            match self.receive_some()? {
                (Read::End, _) => return Ok(Poll::Ready(())),
                (_, true) => ready.clear_ready(),
                (_, false) => {}
            }
        }
        Ok(Poll::Pending)
    }

    /// Most bytes of further requests taken in while an event stream runs.
    const PIPELINED: usize = 64 * 1024;

    fn poll_receive(&self, context: &mut Context<'_>) -> Poll<io::Result<Read>> {
        let registered = self.socket.registered()?;
        loop {
            if self.expired.get() {
                return Poll::Ready(self.last_read());
            }
            let Poll::Ready(ready) = registered.poll_read_ready(context) else {
                self.reader
                    .borrow_mut()
                    .get_or_insert_with(|| context.waker().clone())
                    .clone_from(context.waker());
                return Poll::Pending;
            };
            let mut ready = ready?;
            let (read, drained) = self.receive_some()?;
            if drained {
                // A short read emptied the socket. Saying so spares the read that would find nothing.
                ready.clear_ready();
            }
            if !matches!(read, Read::Nothing) {
                return Poll::Ready(Ok(read));
            }
        }
    }

    /// The wait is over. A request that came in this very moment is still served.
    fn last_read(&self) -> io::Result<Read> {
        if self.waiting.get().0 == Phase::Idle
            && let Ok(Read::Bytes) = self.receive()
        {
            self.expired.set(false);
            return Ok(Read::Bytes);
        }
        Ok(Read::End)
    }

    fn receive(&self) -> io::Result<Read> {
        self.receive_some().map(|(read, _)| read)
    }

    /// One read; also says whether the socket is empty now.
    fn receive_some(&self) -> io::Result<(Read, bool)> {
        let mut input = self.input.borrow_mut();
        if input.capacity() == 0 {
            *input = self.thread.buffers.take();
        }
        if input.capacity() - input.len() < 1024 {
            let more = input.capacity().clamp(4096, 64 * 1024);
            input.reserve(more);
        }
        let room = input.capacity() - input.len();
        match self.socket.receive(&mut input)? {
            Some(0) => Ok((Read::End, false)),
            Some(count) => Ok((Read::Bytes, count < room)),
            None => Ok((Read::Nothing, true)),
        }
    }

    /// RFC 9112 §9.6: close our side, read what still comes, so that no reset overtakes the response.
    async fn linger(&self) {
        self.socket.shutdown_write();
        self.wait_for(Phase::Linger);
        let mut budget = 4 * 1024 * 1024_usize;
        while let Ok(Read::Bytes) = std::future::poll_fn(|context| self.poll_receive(context)).await {
            let mut input = self.input.borrow_mut();
            budget = budget.saturating_sub(input.len());
            input.clear();
            if budget == 0 {
                return;
            }
        }
    }
}

impl Exchange for Connection {
    fn poll_body(&self, context: &mut Context<'_>, into: &mut Vec<u8>) -> Poll<Result<usize, BodyError>> {
        loop {
            let mut incoming = self.incoming.borrow_mut();
            if incoming.is_done() {
                self.wait_for(Phase::Handler);
                return Poll::Ready(Ok(0));
            }
            if std::mem::take(&mut incoming.awaits_continue) && self.input.borrow().is_empty() {
                self.send_interim(100, &Fields::new());
            }
            let taken = incoming.take(&mut self.input.borrow_mut(), into)?;
            if taken > 0 {
                return Poll::Ready(Ok(taken));
            }
            if incoming.is_done() {
                continue;
            }
            self.input.borrow_mut().reserve(incoming.wanted());
            drop(incoming);
            self.note_body_wait();
            match ready!(self.poll_receive(context)) {
                Ok(Read::Bytes | Read::Nothing) => self.note_body_bytes(),
                Ok(Read::End) if self.expired.take() => return Poll::Ready(Err(BodyError::TooSlow)),
                Ok(Read::End) | Err(_) => return Poll::Ready(Err(BodyError::Gone)),
            }
        }
    }

    fn send_interim(&self, status: u16, fields: &Fields) {
        if !self.takes_interim.get() {
            return;
        }
        let mut head = self.thread.buffers.take();
        encode::status_line(&mut head, status);
        encode::fields(&mut head, fields);
        head.extend_from_slice(b"\r\n");
        // Nothing else is on its way to the client now, so these few bytes fit; half of them would be fatal.
        match self.socket.send(&head, false) {
            Ok(Some(sent)) if sent < head.len() => self.socket.abort(),
            _ => {}
        }
        self.thread.buffers.give(head);
    }

    fn is_gone(&self) -> bool {
        self.socket.is_reset()
    }
}

impl Connection {
    fn note_body_wait(&self) {
        if !matches!(self.waiting.get().0, Phase::Body { .. }) {
            self.wait_for(Phase::Body {
                started: thread::now(),
                received: 0,
            });
        }
    }

    fn note_body_bytes(&self) {
        if let (Phase::Body { started, received }, _) = self.waiting.get() {
            let received = received + self.input.borrow().len() as u64;
            self.wait_for(Phase::Body { started, received });
        }
    }
}

impl Watched for Connection {
    fn waiting(&self) -> (Phase, Instant) {
        self.waiting.get()
    }

    fn expire(&self, phase: Phase) {
        match phase {
            Phase::Send | Phase::Handler => self.socket.abort(),
            Phase::Idle | Phase::Head | Phase::Body { .. } | Phase::Linger => {
                self.expired.set(true);
                if let Some(reader) = self.reader.borrow_mut().take() {
                    reader.wake();
                }
            }
        }
    }
}

/// A future whose panic is a value: it costs one request.
struct Unwinding<F>(F);

impl<F: Future + Unpin> Future for Unwinding<F> {
    type Output = std::thread::Result<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match catch_unwind(AssertUnwindSafe(|| Pin::new(&mut self.0).poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    }
}
