//! The body of a request on its way to the server.

use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use haulier_proto::field::Fields;
use tokio::time::Instant;

use crate::error::ClientError;
use crate::request::{Request, RequestBody};

/// A body is sent without a 100 after this time: servers that know no Expect never send one (RFC 9110 §10.1.1).
const MOST_EXPECTED: Duration = Duration::from_secs(1);

#[derive(Debug)]
enum UploadState {
    /// The body is held back until the server says 100, or this moment.
    Expecting(Instant),
    Sending,
    /// The body has been taken to its end.
    Complete,
    /// The server takes no more of it; why, if the connection broke.
    Stopped(Option<io::Error>),
}

/// The rest of a body to be sent.
#[derive(Debug)]
pub(crate) struct Upload<B> {
    body: B,
    /// The rest of the piece that is being sent.
    pub(crate) piece: Bytes,
    /// Bytes that the body still has to give, if its length was announced.
    due: Option<u64>,
    state: UploadState,
    /// The moment at which bytes last went out.
    moved_at: Option<Instant>,
}

impl<B: RequestBody> Upload<B> {
    pub(crate) fn new(request: Request<B>) -> Self {
        let due = request.body.length();
        let state = if due == Some(0) {
            UploadState::Complete
        } else if request.expects_continue() {
            UploadState::Expecting(Instant::now() + MOST_EXPECTED)
        } else {
            UploadState::Sending
        };
        Self {
            body: request.body,
            piece: Bytes::new(),
            due,
            state,
            moved_at: None,
        }
    }

    /// Makes the next piece ready; `false` at the end of the body.
    pub(crate) fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Result<bool, ClientError>> {
        if !self.piece.is_empty() {
            return Poll::Ready(Ok(true));
        }
        match self.state {
            UploadState::Sending => {}
            UploadState::Complete => return Poll::Ready(Ok(false)),
            UploadState::Expecting(_) | UploadState::Stopped(_) => return Poll::Pending,
        }
        let piece = ready!(self.body.poll_piece(context)).map_err(ClientError::RequestBody)?;
        let length = piece.as_ref().map_or(0, |piece| piece.len() as u64);
        self.due = match self.due {
            Some(due) if due < length || (piece.is_none() && due > 0) => {
                let why = "the body is not as long as announced";
                return Poll::Ready(Err(ClientError::RequestBody(io::Error::other(why))));
            }
            due => due.map(|due| due - length),
        };
        match piece {
            Some(piece) => self.piece = piece,
            None => self.state = UploadState::Complete,
        }
        Poll::Ready(Ok(!self.piece.is_empty()))
    }

    /// The piece at hand is the last one: its length was announced, and nothing of it is left.
    pub(crate) fn is_last_piece(&self) -> bool {
        self.due == Some(0)
    }

    /// Marks the body as complete, after its last piece.
    pub(crate) fn complete(&mut self) {
        self.state = UploadState::Complete;
    }

    pub(crate) fn is_complete(&self) -> bool {
        matches!(self.state, UploadState::Complete) && self.piece.is_empty()
    }

    pub(crate) fn trailers(&mut self) -> Option<Fields> {
        self.body.trailers()
    }

    /// The moment until which the body is held back for a 100.
    pub(crate) fn expects_until(&self) -> Option<Instant> {
        match self.state {
            UploadState::Expecting(until) => Some(until),
            _ => None,
        }
    }

    /// Sends the body that was held back.
    pub(crate) fn go_on(&mut self) {
        if let UploadState::Expecting(_) = self.state {
            self.state = UploadState::Sending;
        }
    }

    /// Sends nothing more: the server has answered without waiting for the body, or the connection broke.
    pub(crate) fn stop(&mut self, failure: Option<io::Error>) {
        if !self.is_complete() || failure.is_some() {
            self.piece.clear();
            self.state = UploadState::Stopped(failure);
        }
    }

    /// The server has sent its final response: a body that was held back for a 100 is not sent any more.
    pub(crate) fn answered(&mut self) {
        if let UploadState::Expecting(_) = self.state {
            self.stop(None);
        }
    }

    /// The error that ended the sending, if one did.
    pub(crate) fn take_failure(&mut self) -> Option<io::Error> {
        match &mut self.state {
            UploadState::Stopped(failure) => failure.take(),
            _ => None,
        }
    }

    pub(crate) fn note_moved(&mut self) {
        self.moved_at = Some(Instant::now());
    }

    /// The moment at which bytes last went out.
    pub(crate) fn moved_at(&self) -> Option<Instant> {
        self.moved_at
    }
}
