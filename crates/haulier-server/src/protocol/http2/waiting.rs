//! The waits of a connection, and their expiry.

use std::sync::Arc;
use std::time::{Duration, Instant};

use haulier_http::{Reason, Timeouts};
use haulier_proto::h2::error::{ConnectionError, ErrorCode};
use haulier_proto::h2::frame::{FrameHead, FrameType};

use super::connection::Connection;
use crate::io::Permit;
use crate::io::pace::Pace;
use crate::io::{WaitPhase, Watched};

/// Time after which a client that has not acknowledged the PING after GOAWAY counts as having read it.
const ANNOUNCED_FOR: Duration = Duration::from_secs(1);

impl Connection {
    pub(super) fn wait_for(&self, phase: WaitPhase) {
        self.waiting.set((phase, self.thread.io.clock.coarse()));
    }

    pub(super) fn is_waiting_for(&self, phase: WaitPhase) -> bool {
        self.waiting.get().0 == phase
    }

    /// Notes a wait for input.
    pub(super) fn note_wait(&self) {
        let has_streams = self.ask(|machine| machine.open_streams() > 0);
        let phase = if self.is_within_head(has_streams) {
            WaitPhase::Head
        } else if has_streams {
            WaitPhase::Handler
        } else {
            WaitPhase::Idle
        };
        // The timeout of a head counts from its first byte, that of an idle connection from its last request.
        if !self.is_waiting_for(phase) {
            self.wait_for(phase);
        }
    }

    /// True if a frame or a field block is incomplete. A slow body is the concern of its stream.
    fn is_within_head(&self, has_streams: bool) -> bool {
        if self.ask(|machine| machine.is_within_head()) {
            return true;
        }
        let input = self.input.borrow();
        let frame = FrameHead::parse(&input).filter(|frame| has_streams && frame.kind == FrameType::Data);
        if let Some(stream) = frame.and_then(|frame| self.streams.borrow().get(frame.stream)) {
            stream.note_part(input.len() as u64);
        }
        !input.is_empty() && frame.is_none()
    }

    /// Handles an expired wait.
    pub(super) fn handle_expiry(&self) {
        if self.is_too_slow.take() {
            self.drop_stalled(self.all_stalled(), Reason::SendTooSlow);
        }
        match self.expired.take() {
            Some(WaitPhase::Idle) => self.send_goaway(),
            Some(WaitPhase::Head) => self.fail(ConnectionError {
                code: ErrorCode::ENHANCE_YOUR_CALM,
                reason: "request head too slow",
            }),
            Some(WaitPhase::Send) => self.drop_stalled(self.stalled_until(), Reason::SendTimeout),
            _ => {}
        }
    }

    /// The time to give the state machine if every stream has stalled for too long.
    pub(super) fn all_stalled(&self) -> Instant {
        self.thread.io.clock.coarse() + self.thread.serving().settings.limits.send_timeout
    }

    /// The time to give the state machine under the timeouts of the site.
    fn stalled_until(&self) -> Instant {
        let now = self.thread.io.clock.coarse();
        let usual = self.thread.serving().settings.limits.send_timeout;
        let timeouts = self.timeouts.borrow();
        let send = timeouts.as_ref().map_or(usual, |site| site.send);
        (now + usual).checked_sub(send).unwrap_or(now)
    }

    /// Resets the streams whose windows have been closed for too long.
    pub(super) fn drop_stalled(&self, then: Instant, reason: Reason) {
        while let Some(id) = self.ask(|machine| machine.reset_stalled(then)) {
            let stalled = self.streams.borrow().get(id);
            if let Some(stream) = stalled
                && let Some(sending) = &mut *stream.sending.borrow_mut()
            {
                sending.trace.reason.get_or_insert(reason);
            }
            self.forget(id);
        }
    }

    fn fail(&self, error: ConnectionError) {
        if !self.has_failed.get() {
            self.ask(|machine| machine.fail(error));
            self.note_failure(error);
        }
    }

    /// Ends the connection in two steps (RFC 9113 §6.8): a GOAWAY that announces the end, and one with the last stream
    /// once the client must have read the first. Called repeatedly until the connection is over.
    pub(super) fn send_goaway(&self) {
        let now = self.thread.io.clock.coarse();
        match self.announced.get() {
            None => {
                self.announced.set(Some(now));
                self.ask(|machine| machine.announce_shutdown());
            }
            Some(since) if now.saturating_duration_since(since) >= ANNOUNCED_FOR => {
                self.ask(|machine| machine.shut_down());
            }
            Some(_) => {}
        }
    }
}

impl Connection {
    /// Ends the connection if others need its place and it is still idle; a request that has just come is served. True
    /// if there is output to send.
    pub(super) fn end_for_others(&self) -> bool {
        if !self.gives_way.get() {
            return false;
        }
        if !self.is_waiting_for(WaitPhase::Idle) {
            self.gives_way.set(false);
            return false;
        }
        self.ask(|machine| machine.shut_down());
        true
    }
}

impl Watched for Connection {
    fn check_progress(&self, _now: Instant) {
        self.check_progress_of_responses();
    }

    fn waiting(&self) -> (WaitPhase, Instant) {
        let waiting = self.waiting.get();
        match waiting.0 {
            // Responses that wait for WINDOW_UPDATE while the socket has room.
            WaitPhase::Handler => self
                .ask(|machine| machine.stalled_since())
                .map_or(waiting, |since| (WaitPhase::Send, since)),
            _ => waiting,
        }
    }

    fn timeouts(&self) -> Option<Arc<Timeouts>> {
        self.timeouts.borrow().clone()
    }

    fn expire(&self, phase: WaitPhase) {
        if self.is_waiting_for(WaitPhase::Send) {
            if self.socket.has_moved() {
                return self.wait_for(WaitPhase::Send);
            }
            // The client takes nothing at all, not even GOAWAY.
            self.socket.abort();
        }
        self.expired.set(Some(phase));
        self.wake();
    }

    fn pace(&self) -> Option<&Pace> {
        Some(&self.pace)
    }

    /// Bytes that the windows let through and that are neither here nor in the kernel.
    fn taken(&self) -> Option<u64> {
        let held = self.ask(|machine| machine.output().len()) - self.sent.get();
        let held = held + self.socket.unacknowledged();
        Some(self.ask(|machine| machine.data_sent()).saturating_sub(held as u64))
    }

    fn give_up(&self) {
        if self.is_waiting_for(WaitPhase::Send) {
            // The client takes too little for a GOAWAY.
            self.socket.abort();
        }
        self.is_too_slow.set(true);
        self.wake();
    }

    fn idle(&self) -> Option<(&Permit, Instant)> {
        let (phase, since) = self.waiting.get();
        (phase == WaitPhase::Idle && !self.gives_way.get()).then_some((&self.permit, since))
    }

    fn give_way(&self) {
        self.gives_way.set(true);
        self.wake();
    }

    /// Streams without a response send an error; they have until the next call.
    fn cut(&self) {
        if self.is_cut.replace(true) {
            self.socket.abort();
        } else {
            self.ask(|machine| machine.shut_down());
            self.streams.borrow().all().for_each(|stream| stream.wake());
        }
        self.wake();
    }

    /// GOAWAY leaves time for requests in flight (RFC 9113 §6.8).
    fn drain(&self, _idle_since: Instant) {
        if !self.is_waiting_for(WaitPhase::Linger) {
            self.send_goaway();
            self.wake();
        }
    }
}
