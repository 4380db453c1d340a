//! Sending of a response, one system call after the other.
//!
//! The head and a small body leave in one send. A file follows its head by sendfile(2), a bounded piece in each turn. A
//! loop until the buffer is full would let one fast client block the thread, and costs twice as much per byte.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes};
use haulier_http::{Body, FileSlice, Head, Piece, PipeSlice, PreparedHead, Request, Response};
use haulier_proto::head::{Method, Version};
use haulier_proto::{chunked, copy, encode, status};

use super::super::exact_body::ExactBody;
use super::super::head_fields;
use crate::io::socket::Socket;
use crate::thread::Thread;

/// The parts of request and connection that shape the response.
#[derive(Debug, Clone, Copy)]
pub(super) struct SendPlan {
    /// HEAD: the head of a GET, no body.
    pub(super) head_only: bool,
    pub(super) version: Version,
    /// True if another request may follow.
    pub(super) keep_alive: bool,
    /// True for the first response on the connection.
    pub(super) is_first: bool,
}

impl SendPlan {
    pub(super) fn of(request: &Request, keep_alive: bool, is_first: bool) -> Self {
        Self {
            head_only: request.head.method() == Method::Head,
            version: request.head.version(),
            keep_alive,
            is_first,
        }
    }

    /// The plan for bytes that were no request.
    pub(super) fn refusal() -> Self {
        Self {
            head_only: false,
            version: Version::Http11,
            keep_alive: false,
            is_first: false,
        }
    }
}

/// The result of a [`Sender::step`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SendStep {
    /// The kernel has everything.
    Done,
    /// The socket's buffer is full.
    Blocked,
    /// The turn is over; other tasks run first.
    Yield,
    /// The next piece of the body is to be requested: [`Sender::poll_source`].
    Source,
    /// The file is not in the page cache: [`Sender::cold`] gives the part to read ahead.
    Cold,
}

/// The rest of a response.
#[derive(Debug)]
pub(super) struct Sender {
    /// Bytes to send first, from `at` on: the head of the response or of a chunk.
    lead: Vec<u8>,
    at: usize,
    /// Bytes to send next, without a copy.
    piece: Bytes,
    /// The end of a chunk or of the body; follows `piece`.
    tail: &'static [u8],
    file: Option<FileSlice>,
    /// Content of a pipe, in place of `piece`.
    pipe: Option<PipeSlice>,
    /// Most bytes of `file` or `pipe` in one turn.
    turn: usize,
    /// The next part of `file` was just read ahead and need not be checked again.
    read_ahead: bool,
    source: Option<ExactBody>,
    chunked: bool,
    /// Length of head and body, if announced.
    length: Option<u64>,
    /// Bytes that the kernel has taken, head included.
    pub(super) sent: u64,
    /// Bytes of the head.
    head: u64,
    /// True if another request may follow on the connection.
    pub(super) keep_alive: bool,
}

/// Longest body that is copied after its head: one send instead of two calls.
const COPIED: usize = 16 * 1024;
/// Most pieces of a body that leave with the head if they are ready.
const PIECES: usize = 4;
/// Bytes of a file sent in one turn.
const TURN: usize = 128 * 1024;
/// The same for the first response of a connection, as much as its small buffers take. It saves a quarter of the time
/// for a file of 500 KB. On connections with grown buffers it would cost a tenth more.
const FIRST_TURN: usize = 512 * 1024;

impl Sender {
    /// Encodes the head and loads the body.
    pub(super) fn new(thread: &Thread, plan: SendPlan, status: u16, head: &Head, body: Body) -> Self {
        let bodiless = status::is_bodiless(status);
        let length = body.length();
        let chunked = length.is_none() && plan.version == Version::Http11 && !bodiless && !plan.head_only;
        // Without length and chunks, the end of the connection ends the body (RFC 9112 §6.3).
        let keep_alive = plan.keep_alive && (length.is_some() || chunked || bodiless || plan.head_only);
        let mut lead = thread.io.buffers.take();
        encode_head(&mut lead, thread, plan.version, status, head, keep_alive);
        match length {
            _ if bodiless => {}
            Some(length) => encode::number_field(&mut lead, "Content-Length", length),
            None if chunked => lead.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
            None => {}
        }
        lead.extend_from_slice(b"\r\n");
        let head = lead.len() as u64;
        let mut sender = Self {
            lead,
            at: 0,
            piece: Bytes::new(),
            tail: b"",
            file: None,
            pipe: None,
            turn: if plan.is_first { FIRST_TURN } else { TURN },
            read_ahead: false,
            source: None,
            chunked,
            length: length.map(|length| head + length),
            sent: 0,
            head,
            keep_alive,
        };
        if !plan.head_only && !bodiless {
            sender.load(body);
        }
        sender
    }

    /// Length of head and body, if announced; a chunked body has none.
    pub(super) fn length(&self) -> Option<u64> {
        self.length
    }

    /// Bytes of the body that the kernel has taken, with chunk framing.
    pub(super) fn body_sent(&self) -> u64 {
        self.sent.saturating_sub(self.head)
    }

    fn load(&mut self, body: Body) {
        match body {
            Body::Empty | Body::Unsent(_) => {}
            Body::Bytes(bytes) if bytes.len() <= COPIED => copy::append(&mut self.lead, &bytes),
            Body::Bytes(bytes) => self.piece = bytes,
            Body::File(slice) => match slice.in_memory() {
                Some(content) => copy::append(&mut self.lead, content),
                None => self.file = Some(slice),
            },
            Body::Stream(stream) => self.source = Some(ExactBody::new(stream)),
        }
    }

    /// The first [`step`](Self::step): pieces that are ready leave with the head.
    pub(super) fn begin(&mut self, socket: &Socket) -> io::Result<SendStep> {
        for _ in 0..PIECES {
            let laid = self.poll_source(&mut Context::from_waker(Waker::noop()));
            let step = self.step(socket)?; // the head goes out even if the body fails
            if laid?.is_pending() || step != SendStep::Source {
                return Ok(step);
            }
        }
        Ok(SendStep::Source)
    }

    /// Sends as much as possible without waiting, at most one turn of a file.
    pub(super) fn step(&mut self, socket: &Socket) -> io::Result<SendStep> {
        let mut has_read = false;
        loop {
            if self.at < self.lead.len() || !self.piece.is_empty() || !self.tail.is_empty() {
                let Some(sent) = self.send_bytes(socket)? else {
                    return Ok(SendStep::Blocked);
                };
                self.advance(sent);
            } else if let Some(mut slice) = self.file.take() {
                let most = if slice.len() > self.turn as u64 {
                    turn(socket, self.turn)
                } else {
                    self.turn
                };
                if !std::mem::take(&mut self.read_ahead) && !slice.is_cached(most as u64) {
                    self.file = Some(slice);
                    return Ok(SendStep::Cold);
                }
                let sent = socket.send_file(&mut slice, most)?;
                self.sent += sent.unwrap_or(0) as u64;
                if slice.is_empty() {
                    self.tail = if self.chunked { b"\r\n" } else { b"" };
                } else {
                    self.file = Some(slice);
                    return Ok(if sent.is_some() {
                        SendStep::Yield
                    } else {
                        SendStep::Blocked
                    });
                }
            } else if self.pipe.is_some() && has_read {
                return Ok(SendStep::Yield);
            } else if let Some(slice) = self.pipe.take() {
                if let Some(step) = self.step_pipe(socket, slice)? {
                    return Ok(step);
                }
                has_read = true;
            } else if self.source.is_some() {
                return Ok(SendStep::Source);
            } else {
                return Ok(SendStep::Done);
            }
        }
    }

    /// Sends one turn of a pipe; `None` if the pipe is empty, or is to be sent as bytes.
    fn step_pipe(&mut self, socket: &Socket, mut slice: PipeSlice) -> io::Result<Option<SendStep>> {
        let mut sent = Some(0);
        if socket.is_plain() {
            let more = self.chunked && slice.len() <= self.turn as u64;
            sent = slice.send(socket.descriptor(), self.turn, more)?;
            self.sent += sent.unwrap_or(0) as u64;
        } else {
            let mut piece = vec![0; slice.len().min(TURN as u64) as usize];
            let read = slice.read(&mut piece)?;
            piece.truncate(read);
            self.piece = piece.into();
        }
        if slice.is_empty() {
            self.tail = if self.chunked { b"\r\n" } else { b"" };
            return Ok(None);
        }
        self.pipe = Some(slice);
        Ok(match sent {
            None => Some(SendStep::Blocked),
            Some(0) => None,
            Some(_) => Some(SendStep::Yield),
        })
    }

    /// The part of the file to be read from disk before it can be sent without blocking, and the number of bytes. The
    /// next step sends whatever is in the page cache by then.
    pub(super) fn cold(&mut self) -> Option<(FileSlice, u64)> {
        self.read_ahead = true;
        self.file.clone().map(|slice| (slice, 2 * self.turn as u64))
    }

    fn send_bytes(&self, socket: &Socket) -> io::Result<Option<usize>> {
        let lead = &self.lead[self.at..];
        // MSG_MORE, if the file or the end of the connection follows at once. Last bytes and FIN in one segment save a
        // fifth of the cost of a short response on a new connection.
        let follows = self.file.is_some() || self.pipe.is_some();
        let more = follows || (!self.keep_alive && self.source.is_none());
        if self.piece.is_empty() && self.tail.is_empty() {
            socket.send(lead, more)
        } else {
            socket.send_vectored(
                &[IoSlice::new(lead), IoSlice::new(&self.piece), IoSlice::new(self.tail)],
                more,
            )
        }
    }

    fn advance(&mut self, mut sent: usize) {
        self.sent += sent as u64;
        let from_lead = sent.min(self.lead.len() - self.at);
        self.at += from_lead;
        sent -= from_lead;
        if self.at == self.lead.len() {
            self.lead.clear();
            self.at = 0;
        }
        let from_piece = sent.min(self.piece.len());
        self.piece.advance(from_piece);
        self.tail = &self.tail[sent - from_piece..];
    }

    /// Polls the source and loads the next piece. After an error the connection must be reset.
    pub(super) fn poll_source(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(source) = &mut self.source else {
            return Poll::Ready(Ok(()));
        };
        match ready!(source.poll_piece(context)) {
            Ok(Some(piece)) => self.push_piece(piece),
            Ok(None) => {
                let trailers = source.trailers();
                self.source = None;
                match trailers {
                    Some(trailers) if self.chunked => chunked::write_end(&mut self.lead, &trailers),
                    _ if self.chunked => self.tail = chunked::LAST_CHUNK,
                    _ => {}
                }
            }
            Err(broken) => return Poll::Ready(Err(io::Error::other(broken))),
        }
        Poll::Ready(Ok(()))
    }

    fn push_piece(&mut self, piece: Piece) {
        if piece.is_empty() {
            return;
        }
        if self.chunked {
            chunked::write_chunk_head(&mut self.lead, piece.len());
            self.tail = b"\r\n";
        }
        match piece {
            Piece::Bytes(bytes) => self.piece = bytes,
            Piece::File(slice) => {
                // The end of the chunk follows the file.
                self.tail = b"";
                self.file = Some(slice);
            }
            Piece::Pipe(slice) => {
                self.tail = b"";
                self.pipe = Some(slice);
            }
        }
    }

    /// True if the body ends only when the client leaves.
    pub(super) fn is_endless(&self) -> bool {
        self.source.as_ref().is_some_and(ExactBody::is_endless)
    }

    /// Returns the buffer, for the next response.
    pub(super) fn into_buffer(self) -> Vec<u8> {
        self.lead
    }
}

/// Rounds a turn to whole segments if segments are huge (loopback): a turn that ends inside one costs twice as much.
fn turn(socket: &Socket, most: usize) -> usize {
    match socket.segment() {
        Some(segment) if segment > TURN / 4 => (most / segment).max(1) * segment,
        _ => most,
    }
}

fn encode_head(out: &mut Vec<u8>, thread: &Thread, version: Version, status: u16, head: &Head, keep_alive: bool) {
    encode::status_line(out, status);
    let missing = head_fields::write(out, head, PreparedHead::http1, |out, name, value| {
        encode::field(out, name, value);
    });
    if missing.server {
        out.extend_from_slice(b"Server: haulier\r\n");
    }
    if missing.date {
        out.extend_from_slice(b"Date: ");
        thread.io.clock.append_date(out);
        out.extend_from_slice(b"\r\n");
    }
    if !keep_alive {
        out.extend_from_slice(b"Connection: close\r\n");
    } else if version == Version::Http10 {
        out.extend_from_slice(b"Connection: keep-alive\r\n");
    }
}

impl Sender {
    /// A sender for a handler's response.
    pub(super) fn of(thread: &Thread, plan: SendPlan, response: &mut Response) -> Self {
        let body = std::mem::take(&mut response.body);
        Self::new(thread, plan, response.status, &response.head, body)
    }
}
