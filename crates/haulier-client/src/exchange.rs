//! One exchange on one connection: the request goes out, the head comes back, the body follows to its end (RFC 9112; of
//! HTTP/2 in `http2`).
//!
//! The request is sent while the response is awaited and read, so that neither side blocks the other. The framing says
//! where a body ends: a connection that closes earlier is an error. A connection goes back to the pool only if request
//! and response are complete and no bytes follow.

use std::io;
use std::os::fd::BorrowedFd;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use haulier_proto::chunked::Decoder;
use haulier_proto::field::Fields;
use haulier_proto::response_head::{ResponseHead, ResponseLength};
use tokio::time::{timeout, timeout_at};

use crate::active_request::{ActiveRequest, Sender, Wait};
use crate::connection::Connection;
use crate::error::{ClientError, TimeoutPhase};
use crate::http2;
use crate::request::{Request, RequestBody};

/// Bytes asked of the socket while a chunked body is read.
const READ: usize = 256 * 1024;

/// Timeouts of one exchange.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// Until the response head is complete, counted from the last byte of the request that went out.
    pub first_byte: Duration,
    /// Between two pieces of a body.
    pub stall: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            first_byte: Duration::from_secs(60),
            stall: Duration::from_secs(30),
        }
    }
}

impl Connection {
    /// Sends the request and waits for the head of its response.
    ///
    /// # Errors
    /// As [`Connection::exchange_with`].
    pub async fn exchange<B: RequestBody>(
        self,
        request: Request<B>,
        timeouts: Timeouts,
    ) -> Result<Exchange<B>, ClientError> {
        self.exchange_with(request, timeouts, |_| {}).await
    }

    /// Sends the request and waits for the final head of its response. Each interim head goes to `on_interim`.
    ///
    /// A request with `Expect: 100-continue` sends its body after a 100, or after a second without an answer.
    ///
    /// # Errors
    /// [`ClientError::Unanswered`] if no byte of a response has arrived, so that a safe request may be repeated on
    /// another connection; [`ClientError::Broken`], [`ClientError::TimedOut`], [`ClientError::Head`],
    /// [`ClientError::Framing`], [`ClientError::Stream`], [`ClientError::Http2`], [`ClientError::RequestBody`].
    pub async fn exchange_with<B: RequestBody>(
        self,
        request: Request<B>,
        timeouts: Timeouts,
        mut on_interim: impl FnMut(&ResponseHead),
    ) -> Result<Exchange<B>, ClientError> {
        let method = request.method.kind();
        let mut active = ActiveRequest::begin(self, request)?;
        let wait = Wait::new(TimeoutPhase::FirstByte, timeouts.first_byte);
        let (head, rest, is_reusable) = match active.sender {
            Sender::Http1(_) => {
                let head = active.http1_head(&wait, &mut on_interim).await?;
                let rest = Rest::of_http1(head.body_length(method)?);
                let is_reusable = head.keeps_alive() && head.status() != 101;
                (head, rest, is_reusable)
            }
            Sender::Http2 { stream } => {
                let (head, end) = active.http2_head(stream, &wait, &mut on_interim).await?;
                let rest = Rest::of_http2(head.content_length()?, end);
                (head, rest, true)
            }
        };
        active.upload.answered();
        Ok(Exchange {
            active,
            head,
            rest,
            trailers: None,
            is_reusable,
            stall: timeouts.stall,
        })
    }
}

/// The rest of a response's body.
#[derive(Debug)]
enum Rest {
    Known {
        length: u64,
        received: u64,
    },
    Chunked(Decoder),
    /// To the end of the HTTP/2 stream; the length as Content-Length told it, which the end has to agree with.
    Stream {
        length: Option<u64>,
        received: u64,
    },
    UntilClose,
    Nothing,
}

impl Rest {
    fn of_http1(length: ResponseLength) -> Self {
        match length {
            ResponseLength::Known(length) => Self::Known { length, received: 0 },
            ResponseLength::Chunked => Self::Chunked(Decoder::with_trailers()),
            ResponseLength::UntilClose => Self::UntilClose,
        }
    }

    fn of_http2(length: Option<u64>, end: bool) -> Self {
        if end {
            Self::Known { length: 0, received: 0 }
        } else {
            Self::Stream { length, received: 0 }
        }
    }
}

/// A response whose head is here and whose body follows. Dropping it closes the connection, unless the exchange is
/// complete and its connection is taken out.
#[derive(Debug)]
pub struct Exchange<B = Bytes> {
    active: ActiveRequest<B>,
    head: ResponseHead,
    rest: Rest,
    trailers: Option<Fields>,
    is_reusable: bool,
    stall: Duration,
}

impl<B: RequestBody> Exchange<B> {
    #[must_use]
    pub fn head(&self) -> &ResponseHead {
        &self.head
    }

    /// The length of the whole body, if its framing says it.
    #[must_use]
    pub fn body_length(&self) -> Option<u64> {
        match self.rest {
            Rest::Known { length, .. } => Some(length),
            Rest::Stream { length, .. } => length,
            Rest::Chunked(_) | Rest::UntilClose | Rest::Nothing => None,
        }
    }

    /// The body ends with the connection: a body that was cut cannot be told from a complete one.
    #[must_use]
    pub fn ends_with_close(&self) -> bool {
        matches!(self.rest, Rest::UntilClose)
    }

    /// The trailers, once the body is complete.
    #[must_use]
    pub fn trailers(&self) -> Option<&Fields> {
        self.trailers.as_ref()
    }

    /// Appends the next piece of the body to `out`, at most `most` bytes (at least 1). 0 means the body is complete.
    ///
    /// # Errors
    /// Any [`ClientError`] of a body: short, damaged, stalled, broken. The bytes appended before are good.
    pub async fn read(&mut self, out: &mut Vec<u8>, most: usize) -> Result<usize, ClientError> {
        let wait = Wait::new(TimeoutPhase::Body, self.stall);
        loop {
            let until = wait.until(self.active.upload.moved_at());
            let read = std::future::poll_fn(|context| self.poll_read(out, most, context));
            if let Ok(read) = timeout_at(until, read).await {
                return read;
            }
            if wait.until(self.active.upload.moved_at()) <= until {
                return Err(wait.timed_out());
            }
        }
    }

    /// The same for a caller that polls, and that limits the time itself.
    ///
    /// # Errors
    /// As [`Exchange::read`], but for [`ClientError::TimedOut`].
    pub fn poll_read(
        &mut self,
        out: &mut Vec<u8>,
        most: usize,
        context: &mut Context<'_>,
    ) -> Poll<Result<usize, ClientError>> {
        match &mut self.rest {
            Rest::Nothing => Poll::Ready(Ok(0)),
            Rest::Known { length, received } if length == received => {
                self.rest = Rest::Nothing;
                Poll::Ready(Ok(0))
            }
            Rest::Known { .. } => self.poll_known(out, most, context),
            Rest::Chunked(_) => self.poll_chunked(out, most, context),
            Rest::Stream { .. } => self.poll_stream(out, most, context),
            Rest::UntilClose => self.poll_until_close(out, most, context),
        }
    }

    fn poll_known(
        &mut self,
        out: &mut Vec<u8>,
        most: usize,
        context: &mut Context<'_>,
    ) -> Poll<Result<usize, ClientError>> {
        let Rest::Known { length, received } = self.rest else {
            return Poll::Ready(Ok(0));
        };
        let left = usize::try_from(length - received).unwrap_or(usize::MAX);
        let most = most.min(left);
        let before = out.len();
        if !self.take_buffered(out, most) && ready!(self.active.poll_receive(Some(out), most, context))? == 0 {
            return Poll::Ready(Err(ClientError::ShortBody {
                received,
                expected: length,
            }));
        }
        // A read may bring more than was asked for: bytes after the response, which no request explains.
        if out.len() - before > left {
            out.truncate(before + left);
            self.is_reusable = false;
        }
        let read = out.len() - before;
        self.received(read);
        Poll::Ready(Ok(read))
    }

    fn poll_chunked(
        &mut self,
        out: &mut Vec<u8>,
        most: usize,
        context: &mut Context<'_>,
    ) -> Poll<Result<usize, ClientError>> {
        let before = out.len();
        loop {
            let Rest::Chunked(decoder) = &mut self.rest else {
                return Poll::Ready(Ok(0));
            };
            let buffer = &mut self.active.connection.buffer;
            let taken = decoder.decode(buffer, out, most)?;
            buffer.drain(..taken);
            let is_done = decoder.is_done();
            if is_done {
                self.trailers = Some(decoder.take_trailers()).filter(|trailers| !trailers.is_empty());
                self.rest = Rest::Nothing;
            }
            if is_done || out.len() > before {
                return Poll::Ready(Ok(out.len() - before));
            }
            if ready!(self.active.poll_receive(None, READ.min(most), context))? == 0 {
                return Poll::Ready(Err(ClientError::NoLastChunk));
            }
        }
    }

    fn poll_stream(
        &mut self,
        out: &mut Vec<u8>,
        most: usize,
        context: &mut Context<'_>,
    ) -> Poll<Result<usize, ClientError>> {
        let before = out.len();
        loop {
            let Connection { buffer, http2, .. } = &mut self.active.connection;
            let (Sender::Http2 { stream }, Some(http2)) = (&self.active.sender, http2) else {
                return Poll::Ready(Ok(0));
            };
            let is_complete = http2.take_body(buffer, *stream, out, most)?;
            let read = out.len() - before;
            if let Rest::Stream { received, .. } = &mut self.rest {
                *received += read as u64;
            }
            if is_complete {
                self.trailers = http2.take_trailers();
                self.active.upload.stop(None);
            }
            if is_complete && read == 0 {
                self.rest = Rest::Nothing;
            }
            if is_complete || read > 0 {
                return Poll::Ready(Ok(read));
            }
            if ready!(self.active.poll_receive(None, http2::READ, context))? == 0 {
                return Poll::Ready(Err(self.cut_stream()));
            }
        }
    }

    fn poll_until_close(
        &mut self,
        out: &mut Vec<u8>,
        most: usize,
        context: &mut Context<'_>,
    ) -> Poll<Result<usize, ClientError>> {
        self.is_reusable = false;
        let before = out.len();
        if !self.take_buffered(out, most) && ready!(self.active.poll_receive(Some(out), most, context))? == 0 {
            self.rest = Rest::Nothing;
        }
        Poll::Ready(Ok(out.len() - before))
    }

    /// The error of a connection that ended within a stream.
    fn cut_stream(&self) -> ClientError {
        match self.rest {
            Rest::Stream {
                length: Some(expected),
                received,
            } => ClientError::ShortBody { received, expected },
            _ => ClientError::Broken(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Moves bytes that came with the head; `false` if there are none.
    fn take_buffered(&mut self, out: &mut Vec<u8>, most: usize) -> bool {
        let buffer = &mut self.active.connection.buffer;
        let take = buffer.len().min(most);
        out.extend_from_slice(&buffer[..take]);
        buffer.drain(..take);
        take > 0
    }

    /// Says whether [`Exchange::splice`] can bring the next bytes.
    #[must_use]
    pub fn can_splice(&self) -> bool {
        let has_more = matches!(self.rest, Rest::Known { length, received } if received < length);
        let connection = &self.active.connection;
        has_more && self.active.upload.is_complete() && connection.buffer.is_empty() && connection.stream.is_plain()
    }

    /// Moves up to `most` bytes of the body into an empty pipe, and says how many. Ask [`Exchange::can_splice`] first.
    ///
    /// # Errors
    /// As [`Exchange::read`].
    pub async fn splice(&mut self, pipe: BorrowedFd<'_>, most: usize) -> Result<usize, ClientError> {
        let Rest::Known { length, received } = self.rest else {
            return Ok(0);
        };
        let most = usize::try_from(length - received).map_or(most, |left| left.min(most));
        let spliced = timeout(self.stall, self.active.connection.stream.splice(pipe, most)).await;
        let moved = spliced
            .map_err(|_| ClientError::TimedOut {
                phase: TimeoutPhase::Body,
                waited: self.stall,
            })?
            .map_err(ClientError::Broken)?;
        if moved == 0 {
            return Err(ClientError::ShortBody {
                received,
                expected: length,
            });
        }
        self.received(moved);
        Ok(moved)
    }

    fn received(&mut self, bytes: usize) {
        if let Rest::Known { received, .. } = &mut self.rest {
            *received += bytes as u64;
        }
    }

    /// The connection, if another exchange may follow on it.
    #[must_use]
    pub fn into_connection(self) -> Option<Connection> {
        let is_complete = match self.rest {
            Rest::Nothing => true,
            Rest::Known { length, received } => length == received,
            Rest::Stream { .. } => {
                let http2 = self.active.connection.http2.as_ref();
                http2.is_some_and(|http2| http2.has_ended())
            }
            Rest::Chunked(_) | Rest::UntilClose => false,
        };
        let is_sent = self.active.connection.http2.is_some() || self.active.upload.is_complete();
        (self.is_reusable && is_complete && is_sent).then_some(self.active.connection)
    }

    /// Gives the exchange up. The connection is kept if the server can be told so without closing it: by RST_STREAM
    /// of HTTP/2.
    pub async fn abort(mut self) -> Option<Connection> {
        let Sender::Http2 { stream: id } = self.active.sender else {
            return self.into_connection();
        };
        let Connection { stream, http2, .. } = &mut self.active.connection;
        let http2 = http2.as_mut()?;
        http2.cancel(id);
        let flushed = std::future::poll_fn(|context| http2.poll_flush(stream, context));
        matches!(timeout(self.stall, flushed).await, Ok(Ok(()))).then_some(self.active.connection)
    }
}

#[cfg(test)]
mod tests;
