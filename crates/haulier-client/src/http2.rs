//! One exchange after the other on an HTTP/2 connection (RFC 9113).
//!
//! A download wants connections, not streams: a slow connection is slow because of its path, which streams share. So
//! each exchange has the connection to itself, and the whole window: bytes that are not read wait in the socket.

use std::io;
use std::task::{Context, Poll, Waker, ready};

use bytes::Buf;
use haulier_proto::field::Fields;
use haulier_proto::h2::client::{Client, ClientEvent, ClientLimits, StreamError, StreamOptions};
use haulier_proto::h2::flow::MOST_WINDOW;
use haulier_proto::head::Method;
use haulier_proto::response_head::ResponseHead;

use crate::error::ClientError;
use crate::request::{Request, RequestBody};
use crate::stream::Stream;
use crate::upload::Upload;
use crate::url::Scheme;

/// Bytes asked of the socket at once.
pub(crate) const READ: usize = 256 * 1024;
/// Bytes of a body put into the output at once.
const MOST_DATA: usize = 64 * 1024;
/// Reads of an idle connection before it counts as one that is not idle.
const MOST_IDLE_READS: usize = 16;

/// An HTTP/2 connection between and within exchanges. The bytes it reads lie in the buffer that its calls are given.
#[derive(Debug)]
pub(crate) struct Http2 {
    state: Client,
    /// Bytes at the start of the output that have been sent.
    sent: usize,
    /// Bytes at the start of the buffer that are done with.
    taken: usize,
    /// Bytes of the body that came in a frame and were not asked for yet.
    held: Vec<u8>,
    has_ended: bool,
    trailers: Option<Fields>,
    storage: Fields,
}

impl Default for Http2 {
    fn default() -> Self {
        let window = MOST_WINDOW as u32;
        Self {
            state: Client::new(ClientLimits {
                stream_window: window,
                connection_window: window,
                ..ClientLimits::default()
            }),
            sent: 0,
            taken: 0,
            held: Vec::new(),
            has_ended: false,
            trailers: None,
            storage: Fields::new(),
        }
    }
}

/// One step through the frames in the buffer.
pub(crate) enum StreamStep {
    Interim(Box<ResponseHead>),
    /// The final head, and whether the response ends with it.
    Head(Box<ResponseHead>, bool),
    /// Some of the body went out or is held.
    Body,
    /// No frame of the stream is left in the buffer.
    Nothing,
}

impl Http2 {
    /// Says whether the body was taken to its end.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended && self.held.is_empty()
    }

    pub(crate) fn take_trailers(&mut self) -> Option<Fields> {
        self.trailers.take()
    }

    /// Opens a stream for a request; its head is in the output.
    ///
    /// # Errors
    /// [`StreamError::Unprocessed`] if the server takes no more.
    pub(crate) fn open<B: RequestBody>(&mut self, request: &Request<B>) -> Result<u32, ClientError> {
        let authority = match request.fields.get("host") {
            Some(host) => host.to_vec(),
            None => request.url.origin().host_field().into_bytes(),
        };
        let scheme: &[u8] = match request.url.origin().scheme {
            Scheme::Https => b"https",
            Scheme::Http | Scheme::Unix(_) => b"http",
        };
        let length = request.content_length().map(|length| length.to_string());
        // RFC 9113 §8.3.1: pseudo-fields come first.
        let pseudo: [(&[u8], &[u8]); 4] = [
            (b":method", request.method.as_str().as_bytes()),
            (b":scheme", scheme),
            (b":authority", &authority),
            (b":path", request.url.target().as_bytes()),
        ];
        let is_host = |name: &[u8]| name.eq_ignore_ascii_case(b"host");
        let given = request.sent_fields().filter(|(name, _)| !is_host(name));
        let length = length.iter().map(|length| (&b"content-length"[..], length.as_bytes()));
        let ask = StreamOptions {
            is_head: request.method.kind() == Method::Head,
            end: request.body.length() == Some(0),
        };
        let opened = self.state.open(ask, pseudo.into_iter().chain(given).chain(length));
        self.has_ended = false;
        self.trailers = None;
        opened.ok_or(ClientError::Stream(StreamError::Unprocessed))
    }

    /// Sends as much as source, windows and socket allow; ready when everything has been sent.
    pub(crate) fn poll_send<B: RequestBody>(
        &mut self,
        id: u32,
        upload: &mut Upload<B>,
        stream: &mut Stream,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), ClientError>> {
        loop {
            let is_full = self.state.output().len() - self.sent >= MOST_DATA;
            let has_filled = !is_full && !upload.is_complete() && self.fill_output(id, upload, context)?;
            ready!(self.poll_flush(stream, context)).map_err(ClientError::Broken)?;
            if upload.is_complete() {
                return Poll::Ready(Ok(()));
            }
            if !is_full && !has_filled {
                return Poll::Pending;
            }
        }
    }

    /// Puts some of the body into the output; `false` if the source has none, a window is closed, or the stream is
    /// gone.
    fn fill_output<B: RequestBody>(
        &mut self,
        id: u32,
        upload: &mut Upload<B>,
        context: &mut Context<'_>,
    ) -> Result<bool, ClientError> {
        match upload.poll_piece(context)? {
            Poll::Pending => return Ok(false),
            Poll::Ready(true) => {}
            Poll::Ready(false) => {
                match upload.trailers() {
                    Some(trailers) => drop(self.state.send_trailers(id, &trailers)),
                    None => drop(self.state.send_data(id, &[], true)),
                }
                return Ok(true);
            }
        }
        let part = upload.piece.len().min(MOST_DATA);
        let is_last = upload.is_last_piece() && part == upload.piece.len();
        let Some(sent) = self.state.send_data(id, &upload.piece[..part], is_last) else {
            upload.stop(None);
            return Ok(false);
        };
        upload.piece.advance(sent);
        if is_last && upload.piece.is_empty() {
            upload.complete();
        }
        if sent > 0 {
            upload.note_moved();
        }
        Ok(sent > 0)
    }

    /// Writes the output to the socket.
    pub(crate) fn poll_flush(&mut self, stream: &mut Stream, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let output = self.state.output();
        if output.is_empty() {
            return Poll::Ready(Ok(()));
        }
        while self.sent < output.len() {
            self.sent += ready!(stream.poll_write(context, &output[self.sent..]))?;
        }
        ready!(stream.poll_flush(context))?;
        output.clear();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }

    /// Appends received bytes of the body to `out`, at most `most`; true at its end.
    pub(crate) fn take_body(
        &mut self,
        buffer: &mut Vec<u8>,
        id: u32,
        out: &mut Vec<u8>,
        most: usize,
    ) -> Result<bool, ClientError> {
        let until = out.len().saturating_add(most);
        let held = self.held.len().min(most);
        out.extend(self.held.drain(..held));
        while out.len() < until && !self.has_ended {
            if let StreamStep::Nothing = self.step(buffer, id, out, until - out.len())? {
                break;
            }
        }
        if out.len() == until && !self.has_ended && self.held.is_empty() {
            // The end may follow the last byte in a frame of its own.
            self.step(buffer, id, out, 0)?;
        }
        Ok(self.has_ended())
    }

    /// Takes frames out of the buffer up to one that concerns the stream. Of a body, `most` bytes go to `out`, and the
    /// rest of a frame is held.
    pub(crate) fn step(
        &mut self,
        buffer: &mut Vec<u8>,
        id: u32,
        out: &mut Vec<u8>,
        most: usize,
    ) -> Result<StreamStep, ClientError> {
        loop {
            let step = self.state.receive(&buffer[self.taken..], &mut self.storage)?;
            self.taken += step.taken;
            let found = match step.event {
                Some(ClientEvent::Interim { stream, head }) if stream == id => StreamStep::Interim(Box::new(head)),
                Some(ClientEvent::Head { stream, head, end }) if stream == id => {
                    self.has_ended = end;
                    StreamStep::Head(Box::new(head), end)
                }
                Some(ClientEvent::Data { stream, data, end }) if stream == id => {
                    let (now, later) = data.split_at(data.len().min(most));
                    out.extend_from_slice(now);
                    self.held.extend_from_slice(later);
                    self.has_ended = end;
                    StreamStep::Body
                }
                Some(ClientEvent::Trailers { stream, trailers }) if stream == id => {
                    self.trailers = Some(trailers);
                    self.has_ended = true;
                    StreamStep::Body
                }
                Some(ClientEvent::Failed { stream, why }) if stream == id => return Err(why.into()),
                Some(_) => continue,
                None => StreamStep::Nothing,
            };
            self.release_taken(buffer, matches!(found, StreamStep::Nothing));
            return Ok(found);
        }
    }

    fn release_taken(&mut self, buffer: &mut Vec<u8>, is_waiting: bool) {
        if self.taken == buffer.len() {
            buffer.clear();
            self.taken = 0;
        } else if is_waiting {
            // The beginning of a frame is left; its end is read after it.
            buffer.drain(..self.taken);
            self.taken = 0;
        }
    }

    /// Gives the stream up; RST_STREAM is in the output.
    pub(crate) fn cancel(&mut self, id: u32) {
        self.state.cancel(id);
        self.held.clear();
    }

    /// Takes the frames that have come since the last exchange, such as the rest of one that was given up. Says whether
    /// another exchange may follow.
    pub(crate) fn is_reusable(&mut self, stream: &mut Stream, buffer: &mut Vec<u8>) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..MOST_IDLE_READS {
            if self.step(buffer, 0, &mut Vec::new(), 0).is_err() || !self.state.is_open() {
                return false;
            }
            buffer.reserve(READ);
            match stream.poll_read(&mut context, buffer) {
                Poll::Pending => return self.state.open_streams() == 0 && self.held.is_empty(),
                Poll::Ready(Ok(0) | Err(_)) => return false,
                Poll::Ready(Ok(_)) => {}
            }
        }
        false
    }
}
