//! The exchange as a handler sees it: request body, interim responses, and the client's presence.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use haulier_http::{BodyError, Exchange, Presence, Timeouts};
use haulier_proto::encode;
use haulier_proto::field::Fields;

use super::connection::Connection;
use super::waiting::ReadResult;
use crate::io::WaitPhase;

impl Exchange for Connection {
    fn set_timeouts(&self, timeouts: Option<&Arc<Timeouts>>) {
        let mut held = self.timeouts.borrow_mut();
        if held.is_some() || timeouts.is_some() {
            *held = timeouts.cloned();
        }
    }

    fn limit_body(&self, most: u64) {
        self.incoming.borrow_mut().limit(most);
    }

    fn poll_body(&self, context: &mut Context<'_>, into: &mut Vec<u8>) -> Poll<Result<usize, BodyError>> {
        loop {
            let mut incoming = self.incoming.borrow_mut();
            if incoming.is_done() {
                self.wait_for(WaitPhase::Handler);
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
                Ok(ReadResult::Bytes | ReadResult::Nothing) => self.note_body_bytes(),
                Ok(ReadResult::End) if self.expired.take() => {
                    self.wait_for(WaitPhase::Handler);
                    return Poll::Ready(Err(BodyError::TooSlow));
                }
                Ok(ReadResult::End) | Err(_) => return Poll::Ready(Err(BodyError::Gone)),
            }
        }
    }

    fn send_interim(&self, status: u16, fields: &Fields) {
        if !self.takes_interim.get() {
            return;
        }
        let mut head = self.thread.io.buffers.take();
        encode::status_line(&mut head, status);
        encode::fields(&mut head, fields);
        head.extend_from_slice(b"\r\n");
        // Nothing else is in the send buffer, so these few bytes fit. A part of them would break the framing.
        match self.socket.send(&head, false) {
            Ok(Some(sent)) if sent < head.len() => self.socket.abort(),
            _ => {}
        }
        self.thread.io.buffers.give(head);
    }

    fn presence(&self) -> Presence {
        let presence = self.socket.presence();
        if presence == Presence::Silent && !self.was_probed.replace(true) {
            // A client that has closed both sides answers with a reset; one that still reads knows interim responses.
            self.send_interim(102, &Fields::new());
        }
        presence
    }
}
