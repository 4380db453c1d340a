//! The client's side of one connection (RFC 9113).
//!
//! [`Client::open`] begins a stream, [`Client::receive`] returns its events, and both leave frames in
//! [`Client::output`]. Bytes of bodies count as consumed when they are given to the driver. A driver that wants no more
//! stops reading from its transport, which holds all streams back together. The driver limits the time a server may
//! take; this module limits the memory it may use and the answers it may cause.

mod receive;

use super::PREFACE;
use super::error::{ConnectionError, ErrorCode};
use super::flow::{DEFAULT_WINDOW, Window};
use super::frame::{self, MOST_STREAM};
use super::hpack::decode::Decoder;
use super::hpack::encoder::Encoder;
use super::reader::FrameReader;
use super::settings::Settings;
use crate::field::Fields;
use crate::framing::FramingError;
use crate::response_head::{ResponseHead, ResponseHeadError, ResponseLimits};

/// Streams opened before the server has sent its limit: RFC 9113 §6.5.2 recommends at least as many.
const FIRST_STREAMS: u32 = 100;
/// The largest payload of our DATA frames, bytes, even if the server takes more.
const MOST_PAYLOAD: u32 = 64 * 1024;

/// Limits of one connection; the server is told the windows and the table.
#[derive(Debug, Clone, Copy)]
pub struct ClientLimits {
    /// Bytes of a response's body that may be under way on one stream.
    pub stream_window: u32,
    /// The same for the whole connection.
    pub connection_window: u32,
    /// Bytes of the dynamic table that the server may fill in our decoder.
    pub table: u32,
    pub response: ResponseLimits,
    /// CONTINUATION frames of one field block. Above it the connection ends.
    pub continuations: u32,
    /// Interim responses before the final one on a stream.
    pub interim: u32,
    /// Bytes of answers to PING and SETTINGS that may wait to be sent. Above it the connection ends.
    pub answers: usize,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            stream_window: 1024 * 1024,
            connection_window: 16 * 1024 * 1024,
            table: 4096,
            response: ResponseLimits::default(),
            continuations: 8,
            interim: 16,
            answers: 1024 * 1024,
        }
    }
}

/// The failure of one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    #[error("the server reset the stream with {0}")]
    Reset(ErrorCode),
    /// The server has not processed the request: it may be sent again (RFC 9113 §8.7).
    #[error("the server did not take the request")]
    Unprocessed,
    /// The stream ended before the body was as long as Content-Length.
    #[error("the body ended after {received} of {expected} bytes")]
    Short { received: u64, expected: u64 },
    #[error("the body is longer than its Content-Length of {expected} bytes")]
    Long { expected: u64 },
    #[error(transparent)]
    Head(#[from] ResponseHeadError),
    #[error(transparent)]
    Framing(#[from] FramingError),
    #[error("{0}")]
    Malformed(&'static str),
}

/// An event for the driver.
#[derive(Debug)]
pub enum ClientEvent<'i> {
    /// An interim response (RFC 9110 §15.2): a further head follows.
    Interim { stream: u32, head: ResponseHead },
    /// The final response head. With `end`, it has no body.
    Head { stream: u32, head: ResponseHead, end: bool },
    /// Some of the body. With `end`, it is complete, and `data` may be empty.
    Data { stream: u32, data: &'i [u8], end: bool },
    /// The trailers; the body is complete.
    Trailers { stream: u32, trailers: Fields },
    /// The stream is gone.
    Failed { stream: u32, why: StreamError },
    /// The server takes no more streams; those that it has not taken fail next.
    GoAway { code: ErrorCode },
}

/// The properties of a request that its stream depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamOptions {
    /// The response has no body, even if its head states a length.
    pub is_head: bool,
    /// The request has no body.
    pub end: bool,
}

/// A stream whose response is not complete.
#[derive(Debug)]
struct Stream {
    id: u32,
    is_head: bool,
    /// The request's body is not complete.
    is_sending: bool,
    /// The final response head has come.
    has_head: bool,
    interim: u32,
    /// Length of the body, if Content-Length states it.
    expected: Option<u64>,
    received: u64,
    /// Bytes that we may send.
    send: Window,
    /// Bytes that the server may send.
    receive: Window,
    /// Bytes consumed for which no WINDOW_UPDATE was sent yet.
    owed: u32,
}

/// One connection.
#[derive(Debug)]
pub struct Client {
    limits: ClientLimits,
    reader: FrameReader,
    /// The server's SETTINGS.
    peer: Settings,
    /// Streams the server takes at once.
    streams_allowed: u32,
    encoder: Encoder,
    decoder: Decoder,
    /// By rising number: new ones come last.
    streams: Vec<Stream>,
    /// Number of the next stream.
    next: u32,
    /// Bytes that we may send on all streams together.
    send: Window,
    /// Bytes that the server may send on all streams together.
    receive: Window,
    owed: u32,
    output: Vec<u8>,
    /// Memory for the field block to be sent.
    scratch: Vec<u8>,
    /// The last stream the server takes.
    last: Option<u32>,
}

impl Client {
    /// A new connection; preface and SETTINGS are in the output.
    #[must_use]
    pub fn new(limits: ClientLimits) -> Self {
        let mut output = PREFACE.to_vec();
        let settings = Settings {
            header_table_size: limits.table,
            enable_push: false,
            initial_window_size: limits.stream_window,
            max_header_list_size: u32::try_from(limits.response.head).unwrap_or(u32::MAX),
            ..Settings::default()
        };
        settings.write(&mut output);
        // The connection's window cannot begin smaller or larger than the default (RFC 9113 §6.9.2).
        let more = limits.connection_window.saturating_sub(DEFAULT_WINDOW);
        if more > 0 {
            frame::write_window_update(&mut output, 0, more);
        }
        Self {
            reader: FrameReader::of_client(limits.response.head, limits.continuations),
            peer: Settings::default(),
            streams_allowed: FIRST_STREAMS,
            encoder: Encoder::default(),
            decoder: Decoder::new(limits.table),
            streams: Vec::new(),
            next: 1,
            send: Window::new(DEFAULT_WINDOW),
            receive: Window::new(DEFAULT_WINDOW + more),
            owed: 0,
            output,
            scratch: Vec::new(),
            last: None,
            limits,
        }
    }

    /// The frames to be sent. The driver removes those that it has sent.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Streams whose response is not complete.
    #[must_use]
    pub fn open_streams(&self) -> usize {
        self.streams.len()
    }

    /// True if this connection takes further streams, now or when others have ended.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.reader.failure().is_none() && self.last.is_none() && self.next <= MOST_STREAM
    }

    /// Streams the server takes at once.
    #[must_use]
    pub fn most_streams(&self) -> usize {
        self.streams_allowed as usize
    }

    /// True if another stream may be opened now.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.is_open() && self.streams.len() < self.most_streams()
    }

    /// Sends a request's fields, pseudo-fields first; `None` if no stream may be opened now. Its body follows by
    /// [`Client::send_data`].
    pub fn open<'f>(
        &mut self,
        options: StreamOptions,
        fields: impl IntoIterator<Item = (&'f [u8], &'f [u8])>,
    ) -> Option<u32> {
        if !self.has_room() {
            return None;
        }
        let (id, most) = (self.next, self.most_payload());
        self.next += 2;
        self.scratch.clear();
        self.encoder.block(&mut self.scratch, fields);
        frame::write_headers(&mut self.output, id, &self.scratch, options.end, most);
        self.streams.push(Stream {
            id,
            is_head: options.is_head,
            is_sending: !options.end,
            has_head: false,
            interim: 0,
            expected: None,
            received: 0,
            send: Window::new(self.peer.initial_window_size),
            receive: Window::new(self.limits.stream_window),
            owed: 0,
        });
        Some(id)
    }

    /// Sends as much of `data` as the windows allow, and returns its length; `None` if the stream is gone. With `end`,
    /// it is the last of the body, and may be empty.
    pub fn send_data(&mut self, stream: u32, data: &[u8], end: bool) -> Option<usize> {
        let most = self.most_payload();
        let place = self.place(stream)?;
        let state = &mut self.streams[place];
        if !state.is_sending {
            return Some(0);
        }
        let room = state.send.room().min(self.send.room()).min(data.len());
        let (part, is_whole) = (&data[..room], room == data.len());
        frame::write_data(&mut self.output, stream, part, is_whole && end, most);
        let taken = state.send.take(room as u32) && self.send.take(room as u32);
        debug_assert!(taken);
        state.is_sending = !(is_whole && end);
        Some(room)
    }

    /// Sends the trailers of a request, which end its body; false if the stream is gone or complete.
    pub fn send_trailers(&mut self, stream: u32, trailers: &Fields) -> bool {
        let most = self.most_payload();
        let Some(place) = self.place(stream).filter(|place| self.streams[*place].is_sending) else {
            return false;
        };
        self.scratch.clear();
        self.encoder.block(&mut self.scratch, trailers.iter());
        frame::write_headers(&mut self.output, stream, &self.scratch, true, most);
        self.streams[place].is_sending = false;
        true
    }

    /// Cancels a stream; it has no further events.
    pub fn cancel(&mut self, stream: u32) {
        if let Some(place) = self.place(stream) {
            self.streams.remove(place);
            frame::write_reset(&mut self.output, stream, ErrorCode::CANCEL);
        }
    }

    fn place(&self, id: u32) -> Option<usize> {
        // Servers mostly answer in order: the oldest stream is the most likely.
        match self.streams.first() {
            Some(first) if first.id == id => Some(0),
            _ => self.streams.binary_search_by_key(&id, |stream| stream.id).ok(),
        }
    }

    fn most_payload(&self) -> u32 {
        self.peer.max_frame_size.min(MOST_PAYLOAD)
    }

    fn fail(&mut self, error: ConnectionError) {
        if self.reader.fail(error) {
            frame::write_goaway(&mut self.output, 0, error.code);
        }
    }

    /// Widens the connection's window by `bytes`, once it is worth a frame.
    fn give_back(&mut self, bytes: u32) {
        self.owed += bytes;
        if self.owed >= self.limits.connection_window.max(DEFAULT_WINDOW) / 2 {
            let grown = self.receive.shift(i64::from(self.owed));
            debug_assert!(grown, "no more than was taken out");
            frame::write_window_update(&mut self.output, 0, self.owed);
            self.owed = 0;
        }
    }

    /// Widens the window of a stream that continues.
    fn give_back_on(&mut self, place: usize, bytes: u32) {
        let least = (self.limits.stream_window / 2).max(1);
        let state = &mut self.streams[place];
        state.owed += bytes;
        if state.owed >= least {
            let grown = state.receive.shift(i64::from(state.owed));
            debug_assert!(grown, "no more than was taken out");
            frame::write_window_update(&mut self.output, state.id, state.owed);
            state.owed = 0;
        }
    }
}

#[cfg(test)]
mod tests;
