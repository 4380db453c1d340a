//! One HTTP/1.1 connection: requests in, responses out, in order.
//!
//! [`Connection::turn`] does everything that needs no waiting, straight from the read buffer to the send call. Only a
//! wait (for bytes, for room to send, for a handler) becomes a [`NextAction`] and then a future. So an idle connection
//! owns no buffer.

use std::cell::{Cell, RefCell};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use haulier_http::{BrokenBody, Exchange, Handler, Peer, Reason, Request, Response, Timeouts, Trace};
use haulier_proto::framing::{self, BodyLength, Expectation};
use haulier_proto::head::{HeadError, HeadLimits, RequestHead, Version};
use haulier_proto::proxy::{self, ProxyHeaderError};

use super::super::active_transfer::ActiveTransfer;
use super::super::finished_exchange::FinishedExchange;
use super::super::http2;
use super::incoming::Incoming;
use super::sender::{SendPlan, SendStep, Sender};
use super::waiting::{ReadResult, Waiting};
use crate::answer::error_page;
use crate::clock;
use crate::io::Permit;
use crate::io::WaitPhase;
use crate::io::canonical;
use crate::io::detect::{self, DetectedProtocol, HANDSHAKE_FAILURE};
use crate::io::pace::Pace;
use crate::io::socket::Socket;
use crate::metrics::{InFlight, Transfer};
use crate::pipeline::{self, AnsweredRequest, Handling};
use crate::site::Site;
use crate::thread::Thread;

/// A connection and its current exchange.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(super) thread: Rc<Thread>,
    pub(super) socket: Socket,
    peer: Cell<Peer>,
    /// A PROXY header comes before the first request.
    awaits_proxy_header: Cell<bool>,
    /// Bytes read and not yet parsed; without memory while the connection is idle.
    pub(super) input: RefCell<Vec<u8>>,
    /// The body of the current request.
    pub(super) incoming: RefCell<Incoming>,
    /// The awaited event, and the start of the wait.
    pub(super) waiting: Cell<(WaitPhase, Instant)>,
    /// The entry of the current response in the list of long transfers.
    pub(super) transfer: RefCell<Option<Arc<Transfer>>>,
    /// The task that waits for room in the send buffer is to check its progress.
    pub(super) checks_progress: Cell<bool>,
    /// The wait for bytes has expired.
    pub(super) expired: Cell<bool>,
    pub(super) pace: Pace,
    /// The client takes less than the least rate.
    pub(super) is_too_slow: Cell<bool>,
    /// A handler is running, and nothing of its response has been sent.
    pub(super) is_answering: Cell<bool>,
    /// Wakes the task from a wait for bytes or a handler.
    pub(super) reader: RefCell<Option<Waker>>,
    /// True if the client knows interim responses (RFC 9110 §15.2).
    pub(super) takes_interim: Cell<bool>,
    /// The client has closed its side, and was sent an interim response to see if it still reads.
    pub(super) was_probed: Cell<bool>,
    /// Bytes of `input` that contain no end of a head.
    pub(super) scanned: Cell<usize>,
    /// Number of requests.
    pub(super) served: Cell<u32>,
    /// The timeouts of the last request's site, if they differ from the server's.
    pub(super) timeouts: RefCell<Option<Arc<Timeouts>>>,
    /// The right to hold this connection.
    pub(super) permit: Permit,
}

/// The next action of a connection.
#[derive(Debug)]
pub(super) enum NextAction {
    /// Look for another request in the input.
    Turn,
    /// Wait for bytes.
    Read,
    /// Wait for an event with state of its own.
    Wait(Box<Waiting>),
    /// Close the sending side, and discard what the client still sends.
    Linger,
    Close,
    /// Switch to HTTP/2, whose preface came.
    Http2,
}

/// A response that is being sent, and its data for the log.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) sender: Sender,
    /// `None` for the refusal of bytes that were no request.
    pub(super) request: Option<Request>,
    pub(super) site: Option<Arc<Site>>,
    /// Counts the request as active in its site until dropped.
    _in_flight: Option<InFlight>,
    pub(super) status: u16,
    pub(super) trace: Trace,
    /// Bytes that the metrics have counted already.
    pub(super) counted: u64,
    /// Lists the response if it takes long.
    pub(super) active_transfer: Option<ActiveTransfer>,
}

impl Sending {
    pub(super) fn series(&self) -> Option<u32> {
        self.site.as_ref().map(|site| site.series)
    }
}

impl Connection {
    /// Takes over an accepted socket. A request that is already there is answered before anything is registered. If the
    /// connection ends with it, it never is.
    pub(crate) fn start(
        thread: &Rc<Thread>,
        socket: Socket,
        peer: Peer,
        permit: Permit,
        begins_with_proxy_header: bool,
    ) {
        let connection = Rc::new(Self {
            thread: Rc::clone(thread),
            socket,
            peer: Cell::new(peer),
            awaits_proxy_header: Cell::new(begins_with_proxy_header),
            input: RefCell::default(),
            incoming: RefCell::new(Incoming::none()),
            waiting: Cell::new((WaitPhase::Head, thread.io.clock.coarse())),
            transfer: RefCell::default(),
            checks_progress: Cell::new(false),
            expired: Cell::new(false),
            pace: Pace::default(),
            is_too_slow: Cell::new(false),
            is_answering: Cell::new(false),
            reader: RefCell::default(),
            takes_interim: Cell::new(false),
            was_probed: Cell::new(false),
            scanned: Cell::new(0),
            served: Cell::new(0),
            timeouts: RefCell::default(),
            permit,
        });
        let next = match connection.receive() {
            Ok(ReadResult::Bytes) => connection.turn(),
            Ok(ReadResult::Nothing) => NextAction::Read,
            Ok(ReadResult::End) | Err(_) => return,
        };
        match next {
            NextAction::Close => {}
            NextAction::Http2 => connection.into_http2(),
            next => {
                let weak = Rc::downgrade(&connection);
                thread.io.deadlines.watch(weak);
                tokio::task::spawn_local(connection.drive(next));
            }
        }
    }

    /// Switches to HTTP/2 with the bytes read so far.
    fn into_http2(self: Rc<Self>) {
        // Before the first request there are no other references.
        if let Ok(connection) = Rc::try_unwrap(self) {
            let Self {
                thread,
                socket,
                peer,
                input,
                permit,
                ..
            } = connection;
            http2::start(&thread, socket, peer.get(), permit, input.into_inner());
        }
    }

    /// Runs the connection to its end.
    async fn drive(self: Rc<Self>, mut next: NextAction) {
        loop {
            next = match next {
                NextAction::Turn => self.turn(),
                NextAction::Read => match self.read().await {
                    Ok(ReadResult::Bytes | ReadResult::Nothing) => NextAction::Turn,
                    Ok(ReadResult::End) if self.expired.take() && !self.input.borrow().is_empty() => {
                        self.refuse(408, Reason::HeadTimeout)
                    }
                    Ok(ReadResult::End) | Err(_) => return,
                },
                NextAction::Wait(waiting) => Box::pin(self.wait(*waiting)).await,
                NextAction::Linger => return Box::pin(self.linger()).await,
                NextAction::Http2 => return self.into_http2(),
                NextAction::Close => return,
            }
        }
    }

    /// True if the first byte is that of a TLS handshake.
    fn is_tls_client(&self) -> bool {
        if self.served.get() > 0 {
            return false;
        }
        let first = self.input.borrow().first().copied();
        first.is_some_and(|first| detect::of(first) == DetectedProtocol::Tls)
    }

    /// Refuses a TLS client with an alert.
    fn refuse_tls(&self) -> NextAction {
        tracing::debug!(remote = %self.peer.get().remote, "a client speaks TLS to a port without it");
        let _ = self.socket.send(&HANDSHAKE_FAILURE, false); // the alert is a courtesy; the connection ends anyway
        NextAction::Close
    }

    /// Does everything that needs no waiting.
    fn turn(self: &Rc<Self>) -> NextAction {
        if self.awaits_proxy_header.get() {
            match self.take_proxy_header() {
                Ok(true) => {}
                Ok(false) => return NextAction::Read,
                Err(error) => {
                    tracing::warn!(proxy = %self.peer.get().remote, %error, "a connection of a trusted proxy is refused");
                    return self.refuse(400, Reason::ProxyHeader);
                }
            }
        }
        loop {
            let next = match self.take_head() {
                Ok(Some(head)) => self.begin(head),
                Ok(None) => return NextAction::Read,
                Err(_) if self.is_http2() => return NextAction::Http2,
                Err(_) if self.is_tls_client() => self.refuse_tls(),
                Err(_) if self.is_foreign() => self.hang_up(),
                Err(error) => self.refuse(error.status(), Reason::BadRequest),
            };
            if !matches!(next, NextAction::Turn) {
                return next;
            }
        }
    }

    /// Takes the PROXY header from the input; false if it is incomplete.
    fn take_proxy_header(&self) -> Result<bool, ProxyHeaderError> {
        let mut input = self.input.borrow_mut();
        let Some(header) = proxy::parse(&input)? else {
            return Ok(false);
        };
        input.drain(..header.length);
        self.awaits_proxy_header.set(false);
        if let Some((remote, local)) = header.addresses {
            let proxy = Some(self.peer.get().remote.ip());
            self.peer.set(Peer {
                remote: canonical(remote),
                local: canonical(local),
                tls: header.tls,
                proxy,
                ..self.peer.get()
            });
        }
        Ok(true)
    }

    /// The next request head; `None` if it is incomplete.
    fn take_head(&self) -> Result<Option<RequestHead>, HeadError> {
        let mut input = self.input.borrow_mut();
        if input.is_empty() {
            self.thread.io.buffers.give(std::mem::take(&mut input));
            return Ok(None);
        }
        let serving = self.thread.serving();
        let limits = &serving.settings.limits;
        let limits = HeadLimits {
            request_line: limits.request_line,
            header: limits.header,
            fields: limits.header_fields,
        };
        if !limits.is_worth_parsing(&input, self.scanned.get()) {
            self.scanned.set(input.len());
            return Ok(None);
        }
        let mut storage = self.thread.io.buffers.take_fields();
        let head = RequestHead::parse(&mut input, &limits, &mut storage)?;
        if head.is_none() {
            self.thread.io.buffers.give_fields(storage);
        }
        self.scanned.set(if head.is_none() { input.len() } else { 0 });
        Ok(head)
    }

    /// True if the input is an HTTP/2 preface (RFC 9113 §3.3). Only the first bytes of a connection can be one, and
    /// only bytes that HTTP/1.1 refuses are checked.
    fn is_http2(&self) -> bool {
        // Over TLS, ALPN chooses the protocol, and here it was not HTTP/2 (RFC 9113 §3.2).
        let may_begin = self.served.get() == 0 && !self.socket.is_secure();
        may_begin && self.thread.serving().settings.http2 && http2::begins(&self.input.borrow())
    }

    /// True if the first bytes are neither HTTP/1.1 nor HTTP/2.
    fn is_foreign(&self) -> bool {
        let takes_both = self.thread.serving().settings.http2 && self.served.get() == 0;
        takes_both && http2::is_other_preface(&self.input.borrow())
    }

    /// Closes without a response, which the client would not understand.
    fn hang_up(&self) -> NextAction {
        tracing::debug!(remote = %self.peer.get().remote, "a client speaks neither HTTP/1.1 nor HTTP/2");
        let mut trace = Trace::of(Handler::Error);
        trace.reason = Some(Reason::BadRequest);
        FinishedExchange {
            request: None,
            peer: self.peer.get(),
            site: None,
            status: 400,
            trace: &trace,
            sent: 0,
            counted: 0,
            body_sent: 0,
            complete: true,
        }
        .note(&self.thread);
        NextAction::Linger
    }

    /// Runs one exchange as far as it needs no waiting.
    fn begin(self: &Rc<Self>, head: RequestHead) -> NextAction {
        let length = match framing::body_length(&head) {
            Ok(length) => length,
            Err(error) => return self.refuse(error.status(), Reason::BadRequest),
        };
        let expectation = framing::expectation(&head);
        if expectation == Expectation::Unknown {
            return self.refuse(417, Reason::BadRequest);
        }
        let incoming = Incoming::new(length, expectation == Expectation::Continue);
        // A response that needs no body does not wait for one: bytes that come later can only end the connection.
        if incoming.is_malformed(&self.input.borrow()) {
            return self.refuse(400, Reason::BadRequest);
        }
        *self.incoming.borrow_mut() = incoming;
        self.wait_for(WaitPhase::Handler);
        self.served.set(self.served.get().saturating_add(1));
        self.takes_interim.set(head.version() == Version::Http11);
        let keep_alive = framing::wants_keep_alive(&head);
        let request = Request {
            head,
            peer: self.peer.get(),
            id: self.thread.next_id(),
            received: clock::now(),
            body_length: match length {
                BodyLength::Known(length) => Some(length),
                BodyLength::Chunked => None,
            },
            asks_password: Cell::default(),
            exchange: Rc::clone(self) as Rc<dyn Exchange>,
        };
        match catch_unwind(AssertUnwindSafe(|| pipeline::serve(&self.thread, request))) {
            Ok(Handling::Ready(answered)) => self.reply(answered, keep_alive),
            Ok(Handling::Later(future)) => NextAction::Wait(Box::new(Waiting::Answer(future, keep_alive))),
            Err(_) => self.refuse(500, Reason::Panic),
        }
    }

    /// Sends a response as far as the kernel takes it.
    pub(super) fn reply(self: &Rc<Self>, answered: AnsweredRequest, keep_alive: bool) -> NextAction {
        let AnsweredRequest {
            request,
            site,
            in_flight,
            mut response,
        } = answered;
        let plan = SendPlan::of(&request, keep_alive && self.may_go_on(), self.served.get() == 1);
        let sender = Sender::of(&self.thread, plan, &mut response);
        let Response { status, trace, .. } = response;
        self.send_now(Sending {
            sender,
            request: Some(request),
            site,
            _in_flight: in_flight,
            status,
            trace,
            counted: 0,
            active_transfer: None,
        })
    }

    /// True if another request may follow on this connection.
    fn may_go_on(&self) -> bool {
        let incoming = self.incoming.borrow();
        !self.thread.io.draining.get()
            && self.served.get() < self.thread.serving().settings.limits.keepalive_requests
            && (incoming.is_done() || incoming.is_drainable())
    }

    /// Refuses a malformed request, or one that must not be served, and ends the connection.
    pub(super) fn refuse(self: &Rc<Self>, status: u16, reason: Reason) -> NextAction {
        let id = self.thread.next_id();
        let mut response: Response = error_page::respond(status, Some(reason), None, &id, None);
        let sender = Sender::of(&self.thread, SendPlan::refusal(), &mut response);
        self.send_now(Sending {
            sender,
            request: None,
            site: None,
            _in_flight: None,
            status,
            trace: response.trace,
            counted: 0,
            active_transfer: None,
        })
    }

    fn send_now(self: &Rc<Self>, mut sending: Sending) -> NextAction {
        match sending.sender.begin(&self.socket) {
            Ok(SendStep::Done) => self.finish(sending),
            Ok(SendStep::Blocked | SendStep::Yield | SendStep::Source | SendStep::Cold) => {
                NextAction::Wait(Box::new(Waiting::Send(sending)))
            }
            Err(error) => self.broken(sending, &error),
        }
    }

    /// The response is sent: logs it, and decides about the connection.
    pub(super) fn finish(self: &Rc<Self>, sending: Sending) -> NextAction {
        let keep_alive = sending.sender.keep_alive;
        // A client that asked for the end sends nothing more. From any other client more bytes may come; the reset that
        // answers them may overtake this response.
        let is_awaited = sending
            .request
            .as_ref()
            .is_some_and(|request| !framing::wants_keep_alive(&request.head));
        self.log(sending, true);
        if !keep_alive {
            let all_read = self.incoming.borrow().is_done() && self.input.borrow().is_empty();
            return if all_read && is_awaited {
                NextAction::Close
            } else {
                NextAction::Linger
            };
        }
        if self.incoming.borrow().is_done() {
            return NextAction::Turn;
        }
        self.drain(Incoming::discard_budget())
    }

    /// Resets the connection in the middle of a response: the client must not take it for complete.
    pub(super) fn broken(self: &Rc<Self>, mut sending: Sending, error: &io::Error) -> NextAction {
        if let Some(broken) = error.get_ref().and_then(|source| source.downcast_ref::<BrokenBody>()) {
            sending.trace.reason = Some(broken.reason);
        } else if error.kind() == io::ErrorKind::UnexpectedEof {
            sending.trace.reason = Some(Reason::FileError);
        } else if self.is_too_slow.get() {
            sending.trace.reason = Some(Reason::SendTooSlow);
        } else if self.expired.get() {
            sending.trace.reason = Some(Reason::SendTimeout);
        }
        self.log(sending, false);
        self.socket.abort();
        NextAction::Close
    }

    /// Counts and logs the exchange, and reuses its memory.
    fn log(&self, sending: Sending, complete: bool) {
        let Sending {
            sender,
            request,
            site,
            status,
            trace,
            counted,
            active_transfer: _,
            _in_flight: _,
        } = sending;
        FinishedExchange {
            request: request.as_ref(),
            peer: self.peer.get(),
            site: site.as_ref(),
            status,
            trace: &trace,
            sent: sender.sent,
            counted,
            body_sent: sender.body_sent(),
            complete,
        }
        .note(&self.thread);
        self.thread.io.buffers.give(sender.into_buffer());
        if let Some(request) = request {
            self.thread.io.buffers.give_fields(request.head.into_storage());
        }
    }

    /// Discards the rest of an unwanted body.
    pub(super) fn drain(self: &Rc<Self>, mut budget: u64) -> NextAction {
        let mut incoming = self.incoming.borrow_mut();
        if !incoming.discard(&mut self.input.borrow_mut(), &mut budget) {
            NextAction::Linger
        } else if incoming.is_done() {
            NextAction::Turn
        } else {
            NextAction::Wait(Box::new(Waiting::Drain(budget)))
        }
    }
}
