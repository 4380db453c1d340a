//! A request on its way: it is sent while its response is awaited and read.

use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use haulier_proto::response_head::{ResponseHead, ResponseHeadError, ResponseLimits};
use tokio::time::{Instant, timeout_at};

use crate::connection::Connection;
use crate::error::{ClientError, TimeoutPhase};
use crate::http1::Http1Sender;
use crate::http2::{self, StreamStep};
use crate::request::{Request, RequestBody};
use crate::upload::Upload;

/// Bytes asked of the socket for a head: the body after it can still be spliced.
const READ_HEAD: usize = 4 * 1024;
/// Interim responses before the final one. A peer that sends more is no HTTP server.
const MOST_INTERIM: usize = 16;

/// A request on its way, on its connection.
#[derive(Debug)]
pub(crate) struct ActiveRequest<B> {
    pub(crate) connection: Connection,
    pub(crate) upload: Upload<B>,
    pub(crate) sender: Sender,
}

#[derive(Debug)]
pub(crate) enum Sender {
    Http1(Http1Sender),
    Http2 { stream: u32 },
}

/// The time that a server may be silent. The request's body going out counts as its life, too.
#[derive(Debug)]
pub(crate) struct Wait {
    phase: TimeoutPhase,
    limit: Duration,
    began: Instant,
}

impl Wait {
    pub(crate) fn new(phase: TimeoutPhase, limit: Duration) -> Self {
        Self {
            phase,
            limit,
            began: Instant::now(),
        }
    }

    /// The end of the wait, given the last movement of the request.
    pub(crate) fn until(&self, moved_at: Option<Instant>) -> Instant {
        self.began.max(moved_at.unwrap_or(self.began)) + self.limit
    }

    pub(crate) fn timed_out(&self) -> ClientError {
        ClientError::TimedOut {
            phase: self.phase,
            waited: self.limit,
        }
    }
}

impl<B: RequestBody> ActiveRequest<B> {
    /// Begins to send a request.
    ///
    /// # Errors
    /// [`ClientError::Stream`] if an HTTP/2 connection takes no more streams.
    pub(crate) fn begin(mut connection: Connection, request: Request<B>) -> Result<Self, ClientError> {
        let sender = match &mut connection.http2 {
            Some(http2) => Sender::Http2 {
                stream: http2.open(&request)?,
            },
            None => Sender::Http1(Http1Sender::new(&request, connection.absolute)),
        };
        Ok(Self {
            connection,
            upload: Upload::new(request),
            sender,
        })
    }

    /// Reads the final head of an HTTP/1.1 response.
    pub(crate) async fn http1_head(
        &mut self,
        wait: &Wait,
        on_interim: &mut impl FnMut(&ResponseHead),
    ) -> Result<ResponseHead, ClientError> {
        let limits = ResponseLimits::default();
        let mut interim = 0;
        let mut has_begun = false;
        loop {
            if let Some(head) = ResponseHead::parse(&mut self.connection.buffer, &limits)? {
                if !head.is_interim() {
                    return Ok(head);
                }
                interim += 1;
                if interim > MOST_INTERIM {
                    let why = ResponseHeadError::Malformed("interim responses without end");
                    return Err(ClientError::Head(why));
                }
                self.take_interim(&head, on_interim);
                continue;
            }
            let read = self.receive(READ_HEAD, wait).await;
            self.expect_bytes(read, has_begun)?;
            has_begun = true;
        }
    }

    /// The final head of an HTTP/2 response, and whether the response ends with it.
    pub(crate) async fn http2_head(
        &mut self,
        stream: u32,
        wait: &Wait,
        on_interim: &mut impl FnMut(&ResponseHead),
    ) -> Result<(ResponseHead, bool), ClientError> {
        let mut has_begun = false;
        loop {
            let Connection { buffer, http2, .. } = &mut self.connection;
            let http2 = http2.as_mut().expect("the sender is of HTTP/2");
            match http2.step(buffer, stream, &mut Vec::new(), 0)? {
                StreamStep::Head(head, end) => return Ok((*head, end)),
                StreamStep::Interim(head) => {
                    has_begun = true;
                    self.take_interim(&head, on_interim);
                }
                StreamStep::Body | StreamStep::Nothing => {
                    let read = self.receive(http2::READ, wait).await;
                    self.expect_bytes(read, has_begun)?;
                }
            }
        }
    }

    fn take_interim(&mut self, head: &ResponseHead, on_interim: &mut impl FnMut(&ResponseHead)) {
        if head.status() == 100 {
            self.upload.go_on();
        }
        on_interim(head);
    }

    /// Names the error of a connection that ends or breaks before a head is complete.
    fn expect_bytes(&mut self, read: Result<usize, ClientError>, has_begun: bool) -> Result<(), ClientError> {
        let error = match read {
            Ok(0) => io::ErrorKind::UnexpectedEof.into(),
            Err(ClientError::Broken(error)) => error,
            read => return read.map(drop),
        };
        let error = self.upload.take_failure().unwrap_or(error);
        Err(if has_begun {
            ClientError::Broken(error)
        } else {
            ClientError::Unanswered(error)
        })
    }

    /// Reads some bytes of the head into the connection's buffer; 0 at the end of the stream.
    async fn receive(&mut self, most: usize, wait: &Wait) -> Result<usize, ClientError> {
        loop {
            let silent_until = wait.until(self.upload.moved_at());
            let until = self.upload.expects_until().unwrap_or(silent_until).min(silent_until);
            let received = std::future::poll_fn(|context| self.poll_receive(None, most, context));
            if let Ok(received) = timeout_at(until, received).await {
                return received;
            }
            if until < silent_until {
                self.upload.go_on();
            } else if wait.until(self.upload.moved_at()) <= until {
                return Err(wait.timed_out());
            }
        }
    }

    /// Reads received bytes into `out`, or into the connection's buffer, and sends meanwhile; about `most` bytes, 0 at the
    /// end of the stream.
    pub(crate) fn poll_receive(
        &mut self,
        out: Option<&mut Vec<u8>>,
        most: usize,
        context: &mut Context<'_>,
    ) -> Poll<Result<usize, ClientError>> {
        self.poll_send(context)?;
        let Connection { stream, buffer, .. } = &mut self.connection;
        let out = out.unwrap_or(buffer);
        out.reserve(most);
        stream.poll_read(context, out).map_err(ClientError::Broken)
    }

    /// Sends more of the request. A connection that takes no more may still bring a response.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Result<(), ClientError> {
        let Connection { stream, http2, .. } = &mut self.connection;
        let sent = match (&mut self.sender, http2) {
            (Sender::Http1(sender), _) => sender.poll_send(&mut self.upload, stream, context),
            (Sender::Http2 { stream: id }, Some(http2)) => http2.poll_send(*id, &mut self.upload, stream, context),
            (Sender::Http2 { .. }, None) => return Ok(()),
        };
        match sent {
            Poll::Ready(Err(ClientError::Broken(error))) => self.upload.stop(Some(error)),
            Poll::Ready(Err(error)) => return Err(error),
            Poll::Ready(Ok(())) | Poll::Pending => {}
        }
        Ok(())
    }
}
