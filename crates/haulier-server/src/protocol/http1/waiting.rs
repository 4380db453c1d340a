//! The waits of a connection: for bytes, for room to send, for the next piece of a body, for a handler.

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use haulier_http::{Reason, Timeouts};
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};

use super::super::active_transfer::ActiveTransfer;
use super::super::catch_unwind::CatchUnwind;
use super::connection::{Connection, NextAction, Sending};
use super::sender::{SendStep, Sender};
use crate::clock;
use crate::io::Permit;
use crate::io::pace::Pace;
use crate::io::{WaitPhase, Watched};
use crate::metrics::{InFlight, LISTED_AFTER};
use crate::pipeline::AnsweredRequest;

/// A wait in the middle of an exchange.
#[allow(
    clippy::large_enum_variant,
    reason = "it lives in a box, and sending is the usual wait"
)]
pub(super) enum Waiting {
    /// For a handler. The flag is true if the connection may be kept afterwards.
    Answer(Pin<Box<dyn Future<Output = AnsweredRequest>>>, bool),
    /// For room to send, or for the next piece of the body.
    Send(Sending),
    /// For the rest of an unwanted request body, up to this many bytes.
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

/// The result of a read.
pub(super) enum ReadResult {
    Bytes,
    Nothing,
    End,
}

impl Connection {
    pub(super) async fn wait(self: &Rc<Self>, waiting: Waiting) -> NextAction {
        match waiting {
            Waiting::Answer(future, keep_alive) => {
                self.wait_for(WaitPhase::Handler);
                self.note_own_task().await;
                self.is_answering.set(true);
                let answered = CatchUnwind(future).await;
                self.is_answering.set(false);
                match answered {
                    Ok(answered) => self.reply(answered, keep_alive),
                    Err(_) => self.refuse(500, Reason::Panic),
                }
            }
            Waiting::Send(mut sending) => {
                let counted = InFlight::sending(&self.thread.serving().counters, sending.series());
                let sent = self.send(&mut sending).await;
                drop(counted);
                self.transfer.take();
                match sent {
                    Ok(()) => self.finish(sending),
                    Err(error) => self.broken(sending, &error),
                }
            }
            Waiting::Drain(budget) => {
                self.note_body_wait();
                match std::future::poll_fn(|context| self.poll_receive(context)).await {
                    Ok(ReadResult::Bytes | ReadResult::Nothing) => {
                        self.note_body_bytes();
                        self.drain(budget)
                    }
                    Ok(ReadResult::End) | Err(_) => NextAction::Close,
                }
            }
        }
    }

    pub(super) fn wait_for(&self, phase: WaitPhase) {
        self.waiting.set((phase, self.thread.io.clock.coarse()));
    }

    /// Waits for the first or the next bytes of a request.
    pub(super) async fn read(&self) -> io::Result<ReadResult> {
        let is_idle = self.input.borrow().is_empty();
        match (is_idle, self.waiting.get().0) {
            (true, _) => self.wait_for(WaitPhase::Idle),
            // The timeout of a head counts from its first byte.
            (false, WaitPhase::Head) => {}
            (false, _) => self.wait_for(WaitPhase::Head),
        }
        std::future::poll_fn(|context| self.poll_receive(context)).await
    }

    /// Sends until the kernel has everything.
    async fn send(&self, sending: &mut Sending) -> io::Result<()> {
        let registered = self.socket.registered()?;
        loop {
            let step = sending.sender.step(&self.socket)?;
            self.count_sent(sending);
            if step != SendStep::Done {
                self.note_transfer(sending);
            }
            let sender = &mut sending.sender;
            match step {
                SendStep::Done => return Ok(()),
                SendStep::Yield => {
                    self.wait_for(WaitPhase::Send);
                    tokio::task::yield_now().await;
                }
                SendStep::Cold => {
                    if let Some((slice, most)) = sender.cold() {
                        let _ = tokio::task::spawn_blocking(move || slice.read_ahead(most)).await;
                    }
                }
                SendStep::Source => {
                    self.wait_for(WaitPhase::Handler);
                    std::future::poll_fn(|context| self.poll_source(sender, context)).await?;
                }
                SendStep::Blocked => {
                    self.wait_for(WaitPhase::Send);
                    self.note_queue();
                    loop {
                        let ready = std::future::poll_fn(|context| self.poll_room(registered, context));
                        let Some(mut ready) = ready.await? else {
                            self.note_transfer(sending);
                            continue;
                        };
                        let sender = &mut sending.sender;
                        match sender.step(&self.socket)? {
                            // Only EAGAIN ends readiness: after a short turn no second edge would come.
                            SendStep::Blocked => ready.clear_ready(),
                            _ => break,
                        }
                        self.note_transfer(sending);
                        self.wait_for(WaitPhase::Send);
                        self.note_queue();
                    }
                }
            }
        }
    }

    /// Counts a long response while it is sent, not only at its end.
    fn count_sent(&self, sending: &mut Sending) {
        let more = sending.sender.sent - std::mem::replace(&mut sending.counted, sending.sender.sent);
        self.thread
            .serving()
            .counters
            .sent(sending.series(), &sending.trace, more);
    }

    /// Lists a response that takes long.
    fn note_transfer(&self, sending: &mut Sending) {
        let (site, sender) = (sending.site.as_deref(), &sending.sender);
        let active_transfer = sending
            .active_transfer
            .get_or_insert_with(|| ActiveTransfer::begin(&self.thread));
        active_transfer.note(
            &self.thread,
            sending.request.as_ref(),
            site,
            sender.sent,
            sender.length(),
        );
        if let Some(transfer) = active_transfer.transfer() {
            let mut known = self.transfer.borrow_mut();
            if known.is_none() {
                transfer.note_queue(self.socket.unacknowledged() as u64);
                *known = Some(Arc::clone(transfer));
            }
        }
    }

    /// Notes the unacknowledged bytes, for the deadline and the list.
    fn note_queue(&self) {
        let queued = self.socket.note_queue();
        if let Some(transfer) = &*self.transfer.borrow() {
            transfer.note_queue(queued);
        }
    }

    /// Waits for room in the send buffer; `None` asks the task to check its progress.
    fn poll_room<'s>(
        &self,
        registered: &'s AsyncFd<Rc<OwnedFd>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Option<AsyncFdReadyGuard<'s, Rc<OwnedFd>>>>> {
        if self.checks_progress.take() {
            return Poll::Ready(Ok(None));
        }
        // No other part reads meanwhile.
        let mut waker = self.reader.borrow_mut();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            *waker = Some(context.waker().clone());
        }
        registered.poll_write_ready(context).map_ok(Some)
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

    /// Ready once the client has closed its side. Bytes before that are kept.
    fn poll_closed(&self, context: &mut Context<'_>) -> io::Result<Poll<()>> {
        let registered = self.socket.registered()?;
        while self.input.borrow().len() < Self::PIPELINED {
            if self.socket.has_ended() {
                return Ok(Poll::Ready(()));
            }
            let Poll::Ready(ready) = registered.poll_read_ready(context) else {
                return Ok(Poll::Pending);
            };
            let mut ready = ready?;
            match self.receive_some()? {
                (ReadResult::End, _) => return Ok(Poll::Ready(())),
                (_, true) => ready.clear_ready(),
                (_, false) => {}
            }
        }
        Ok(Poll::Pending)
    }

    /// Most bytes of further requests read during an event stream.
    const PIPELINED: usize = 64 * 1024;

    pub(super) fn poll_receive(&self, context: &mut Context<'_>) -> Poll<io::Result<ReadResult>> {
        let registered = self.socket.registered()?;
        loop {
            if self.expired.get() {
                return Poll::Ready(self.last_read());
            }
            if self.socket.has_ended() {
                return Poll::Ready(Ok(ReadResult::End));
            }
            let Poll::Ready(ready) = registered.poll_read_ready(context) else {
                self.note_task(context);
                return Poll::Pending;
            };
            let mut ready = ready?;
            let (read, drained) = self.receive_some()?;
            if drained {
                // A short read emptied the socket; clearing readiness saves an empty read.
                ready.clear_ready();
            }
            if !matches!(read, ReadResult::Nothing) {
                return Poll::Ready(Ok(read));
            }
        }
    }

    /// Notes the task's waker before any wait.
    async fn note_own_task(&self) {
        std::future::poll_fn(|context| {
            self.note_task(context);
            Poll::Ready(())
        })
        .await;
    }

    fn note_task(&self, context: &Context<'_>) {
        self.reader
            .borrow_mut()
            .get_or_insert_with(|| context.waker().clone())
            .clone_from(context.waker());
    }

    fn wake(&self) {
        if let Some(reader) = self.reader.borrow_mut().take() {
            reader.wake();
        }
    }

    /// The last read of an expired wait: a request that has just come is still served.
    fn last_read(&self) -> io::Result<ReadResult> {
        if self.waiting.get().0 == WaitPhase::Idle
            && let Ok(ReadResult::Bytes) = self.receive()
        {
            self.expired.set(false);
            return Ok(ReadResult::Bytes);
        }
        Ok(ReadResult::End)
    }

    pub(super) fn receive(&self) -> io::Result<ReadResult> {
        self.receive_some().map(|(read, _)| read)
    }

    /// Reads once; true if the socket is empty now.
    fn receive_some(&self) -> io::Result<(ReadResult, bool)> {
        let mut input = self.input.borrow_mut();
        if input.capacity() == 0 {
            *input = self.thread.io.buffers.take();
        }
        if input.capacity() - input.len() < 1024 {
            let more = input.capacity().clamp(4096, 64 * 1024);
            input.reserve(more);
        }
        let room = input.capacity() - input.len();
        match self.socket.receive(&mut input)? {
            Some(0) => Ok((ReadResult::End, false)),
            Some(count) => Ok((ReadResult::Bytes, count < room)),
            None => Ok((ReadResult::Nothing, true)),
        }
    }

    /// Closes the sending side and reads on, so that no reset overtakes the response (RFC 9112 §9.6).
    pub(super) async fn linger(&self) {
        self.socket.shutdown_write();
        self.expired.set(false);
        self.wait_for(WaitPhase::Linger);
        let mut budget = 4 * 1024 * 1024_usize;
        while let Ok(ReadResult::Bytes) = std::future::poll_fn(|context| self.poll_receive(context)).await {
            let mut input = self.input.borrow_mut();
            budget = budget.saturating_sub(input.len());
            input.clear();
            if budget == 0 {
                return;
            }
        }
    }
}

impl Connection {
    pub(super) fn note_body_wait(&self) {
        if !matches!(self.waiting.get().0, WaitPhase::Body { .. }) {
            self.wait_for(WaitPhase::Body {
                started: clock::now(),
                received: 0,
            });
        }
    }

    pub(super) fn note_body_bytes(&self) {
        if let (WaitPhase::Body { started, received }, _) = self.waiting.get() {
            let received = received + self.input.borrow().len() as u64;
            self.wait_for(WaitPhase::Body { started, received });
        }
    }
}

impl Watched for Connection {
    fn check_progress(&self, now: Instant) {
        if let Some(transfer) = &*self.transfer.borrow() {
            return transfer.note_queue(self.socket.unacknowledged() as u64);
        }
        let (phase, since) = self.waiting.get();
        if phase == WaitPhase::Send && now.saturating_duration_since(since) >= LISTED_AFTER {
            self.checks_progress.set(true);
            if let Some(sender) = self.reader.borrow_mut().take() {
                sender.wake();
            }
        }
    }

    fn waiting(&self) -> (WaitPhase, Instant) {
        self.waiting.get()
    }

    fn timeouts(&self) -> Option<Arc<Timeouts>> {
        self.timeouts.borrow().clone()
    }

    fn pace(&self) -> Option<&Pace> {
        Some(&self.pace)
    }

    fn taken(&self) -> Option<u64> {
        self.socket.acknowledged()
    }

    fn give_up(&self) {
        self.is_too_slow.set(true);
        self.expired.set(true);
        self.socket.abort();
    }

    fn idle(&self) -> Option<(&Permit, Instant)> {
        let (phase, since) = self.waiting.get();
        (phase == WaitPhase::Idle && !self.expired.get()).then_some((&self.permit, since))
    }

    /// A response that has not begun becomes an error; one that is complete gets a moment to be read.
    fn cut(&self) {
        if self.is_answering.get() {
            self.wake();
        } else if self.waiting.get().0 != WaitPhase::Linger {
            self.socket.abort();
        }
    }

    fn expire(&self, phase: WaitPhase) {
        match phase {
            WaitPhase::Send if self.socket.has_moved() => self.wait_for(WaitPhase::Send),
            WaitPhase::Send => {
                self.expired.set(true);
                self.socket.abort();
            }
            WaitPhase::Handler => self.socket.abort(),
            WaitPhase::Idle | WaitPhase::Head | WaitPhase::Body { .. } | WaitPhase::Linger => {
                self.expired.set(true);
                self.wake();
            }
        }
    }
}
