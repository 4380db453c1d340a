//! The tasks of streams that wait: for a handler, for the pieces of a body, for a disk.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use haulier_http::{FileSlice, Reason};

use super::super::catch_unwind::CatchUnwind;
use super::super::exact_body::ExactBody;
use super::stream::{NextPiece, Stream};
use crate::pipeline::AnsweredRequest;

impl Stream {
    /// Waits for the handler, then feeds the body. A panic costs this stream.
    pub(super) fn spawn(self: Rc<Self>, answer: Pin<Box<dyn Future<Output = AnsweredRequest>>>) {
        tokio::task::spawn_local(async move {
            poll_fn(|context| {
                self.note_task(context);
                Poll::Ready(())
            })
            .await;
            match CatchUnwind(answer).await {
                Ok(answered) => self.reply(answered).await,
                Err(_) => self.connection.refuse(&self, 500, Reason::Panic),
            }
        });
    }

    /// Reads an unwanted request body, then sends the response.
    pub(super) fn spawn_drain(self: Rc<Self>, answered: AnsweredRequest) {
        tokio::task::spawn_local(async move {
            self.drain().await;
            self.reply(answered).await;
        });
    }

    async fn reply(self: &Rc<Self>, answered: AnsweredRequest) {
        if let Some(source) = self.connection.reply(self, answered) {
            self.feed(source).await;
        }
    }

    /// Feeds the pieces of a body.
    pub(super) fn spawn_feed(self: Rc<Self>, source: ExactBody) {
        tokio::task::spawn_local(async move { self.feed(source).await });
    }

    async fn feed(self: &Rc<Self>, source: ExactBody) {
        if CatchUnwind(Box::pin(self.feed_all(source))).await.is_err() {
            self.connection.break_off(self, Some(Reason::Panic));
        }
    }

    /// Loads one piece after the other, each when the one before was sent.
    async fn feed_all(self: &Rc<Self>, mut source: ExactBody) {
        loop {
            match poll_fn(|context| self.poll_source(&mut source, context)).await {
                NextPiece::Piece(piece) => {
                    if !piece.is_empty() {
                        self.connection.load(self, piece);
                        poll_fn(|context| self.poll_taken(context)).await;
                    }
                }
                NextPiece::End => return self.connection.load_end(self, source.trailers()),
                NextPiece::Broken(broken) => return self.connection.break_off(self, Some(broken.reason)),
                NextPiece::Unwanted => return self.connection.break_off(self, None),
            }
        }
    }

    /// Reads the next part of a file into the page cache, then continues the response.
    pub(super) fn spawn_read_ahead(self: &Rc<Self>, slice: FileSlice, most: u64) {
        let stream = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let _ = tokio::task::spawn_blocking(move || slice.read_ahead(most)).await;
            if let Some(sending) = &mut *stream.sending.borrow_mut() {
                sending.note_read_ahead();
            }
            stream.connection.ask(|machine| machine.queue(stream.id));
            stream.connection.wake();
        });
    }
}
