//! The server's side of one connection (RFC 9113).
//!
//! [`Connection::receive`] takes frames until one makes an event for the driver. Answers go into [`Connection::output`]
//! as far as the windows allow; [`Connection::next_writable`] names the next stream that may send. This module counts
//! what a client does too often ([`Limits`]); the driver limits the time it takes, except for streams that wait for a
//! window ([`Connection::reset_stalled`]).

mod receive;

use std::collections::VecDeque;
use std::time::Instant;

use super::error::{ConnectionError, ErrorCode};
use super::flow::{DEFAULT_WINDOW, Window};
use super::frame::{self, MOST_STREAM};
use super::hpack::decode::Decoder;
use super::hpack::encode::EMPTY_TABLE;
use super::limits::{Limits, MinuteBudget};
use super::reader::FrameReader;
use super::settings::Settings;
use super::stream::{EndedBy, OpenStreams, Stream};
use crate::head::{HeadError, RequestHead};

/// The largest payload of our DATA frames, bytes, even if the client takes more.
const MOST_PAYLOAD: u32 = 64 * 1024;
/// WINDOW_UPDATE frames a client may send before we sent anything: one for the connection, one a stream, and spare.
const FIRST_UPDATES: u32 = 128;
/// Further WINDOW_UPDATE frames a DATA frame of ours may cause.
const UPDATES_A_FRAME: u32 = 8;
/// The payload of the PING after an announced end: its answer shows that the client has read the announcement.
const LAST_PING: [u8; 8] = *b"farewell";

/// An event for the driver.
#[derive(Debug)]
pub enum ServerEvent<'i> {
    /// A request. With `end`, it has no body.
    Request { stream: u32, head: RequestHead, end: bool },
    /// A request too large to be taken; the driver answers it with the error's status.
    Refused { stream: u32, error: HeadError },
    /// Some of a request's body. The driver calls [`Connection::consume`] when it has consumed it. With `end`, the body
    /// is complete, and `data` may be empty.
    Data { stream: u32, data: &'i [u8], end: bool },
    /// The stream was reset by the client, or for its fault: no more can be sent on it.
    Reset { stream: u32, code: ErrorCode },
    /// The client is going to close the connection and opens no more streams.
    GoAway { code: ErrorCode },
}

/// The GOAWAY frames sent so far (RFC 9113 §6.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shutdown {
    No,
    /// One that announces the end; streams under way are still taken.
    Announced,
    /// One that names the last stream.
    Final(u32),
}

/// One connection.
#[derive(Debug)]
pub struct Connection {
    limits: Limits,
    reader: FrameReader,
    shutdown: Shutdown,
    /// The client's SETTINGS.
    peer: Settings,
    decoder: Decoder,
    streams: OpenStreams,
    /// Bytes that we may send on all streams together.
    send: Window,
    /// Bytes that the client may send on all streams together.
    receive: Window,
    /// Bytes consumed for which no WINDOW_UPDATE was sent yet.
    owed: u32,
    output: Vec<u8>,
    /// Streams with something to send, in the order of their turns; some may be gone.
    queue: VecDeque<u32>,
    /// Size of the heads of all open streams.
    heads: u32,
    resets: MinuteBudget,
    control: MinuteBudget,
    /// WINDOW_UPDATE frames still expected for what we sent.
    updates: u32,
    /// The next block must say that we use no dynamic table (RFC 7541 §4.2).
    tell_table: bool,
    /// The time of the present turn.
    now: Instant,
    /// The time of the last DATA on any stream.
    progress: Instant,
    /// Bytes of DATA sent on all streams.
    sent: u64,
}

impl Connection {
    /// A new connection; our SETTINGS are in the output.
    #[must_use]
    pub fn new(limits: Limits, now: Instant) -> Self {
        let mut output = Vec::new();
        limits.settings().write(&mut output);
        // The connection's window cannot begin smaller or larger than the default (RFC 9113 §6.9.2).
        let more = limits.connection_window.saturating_sub(DEFAULT_WINDOW);
        if more > 0 {
            frame::write_window_update(&mut output, 0, more);
        }
        Self {
            reader: FrameReader::of_server(limits.block(), limits.continuations),
            shutdown: Shutdown::No,
            peer: Settings::default(),
            decoder: Decoder::new(limits.table),
            streams: OpenStreams::default(),
            send: Window::new(DEFAULT_WINDOW),
            receive: Window::new(DEFAULT_WINDOW + more),
            owed: 0,
            output,
            queue: VecDeque::new(),
            heads: 0,
            resets: MinuteBudget::new(limits.resets, now),
            control: MinuteBudget::new(limits.control_frames, now),
            updates: FIRST_UPDATES,
            tell_table: false,
            now,
            progress: now,
            sent: 0,
            limits,
        }
    }

    /// The frames to be sent. The driver sends them and clears the buffer, or exchanges it for another one, before it
    /// receives more.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Sets the time for all that is sent from now on.
    pub fn set_time(&mut self, now: Instant) {
        self.now = now;
    }

    /// The number of streams whose answer is not complete.
    #[must_use]
    pub fn open_streams(&self) -> usize {
        self.streams.len()
    }

    /// True if a field block or the preface has begun and not ended: its deadline is that of a request head.
    #[must_use]
    pub fn is_within_head(&self) -> bool {
        self.reader.is_within_head()
    }

    /// True if GOAWAY has named the last stream and all streams have ended: the connection may be closed.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        matches!(self.shutdown, Shutdown::Final(_)) && self.streams.len() == 0
    }

    /// Sends a field block: a response head, an interim one, or with `end` trailers or a head without a body. False if
    /// the stream is gone.
    pub fn send_head(&mut self, stream: u32, block: &[u8], end: bool) -> bool {
        self.send_head_of(stream, end, |out| out.extend_from_slice(block))
    }

    /// Sends a field block that `write` appends in place.
    pub fn send_head_of(&mut self, stream: u32, end: bool, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        if self.streams.get(stream).is_none() {
            return false;
        }
        self.write_head(stream, end, write);
        if end {
            self.finish(stream);
        }
        true
    }

    /// Sends as much of `data` as the windows allow, and returns its length; `None` if the stream is gone. With `end`,
    /// it is the last of the body, and may be empty. If some is left, the stream waits in the queue.
    pub fn send_data(&mut self, stream: u32, data: &[u8], end: bool) -> Option<usize> {
        let most = self.most_payload();
        let state = self.streams.get(stream)?;
        let room = state.send.room().min(self.send.room()).min(data.len());
        let (part, whole) = (&data[..room], room == data.len());
        frame::write_data(&mut self.output, stream, part, whole && end, most);
        self.note_sent(stream, room, whole, end);
        Some(room)
    }

    /// Sends one DATA frame, whose payload `fill` writes in place: at most `left` bytes, which are all that are at
    /// hand. `fill` returns the number of bytes; for 0 no frame is sent. With `end`, they are the last of the body.
    /// Returns the bytes sent, or `None` if the stream is gone. If some are left, the stream waits in the queue.
    ///
    /// # Errors
    /// That of `fill`; no frame is sent then.
    pub fn send_frame<E>(
        &mut self,
        stream: u32,
        left: usize,
        end: bool,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<Option<usize>, E> {
        let most = self.most_payload() as usize;
        let Some(state) = self.streams.get(stream) else {
            return Ok(None);
        };
        let room = state.send.room().min(self.send.room()).min(left).min(most);
        let filled = if room == 0 {
            0
        } else {
            let last = if end { left } else { usize::MAX };
            frame::fill_data(&mut self.output, stream, room, last, fill)?
        };
        self.note_sent(stream, filled, filled == left, end);
        Ok(Some(filled))
    }

    /// Takes `sent` bytes of DATA out of the windows, which have them. `whole`: no more are at hand.
    fn note_sent(&mut self, stream: u32, sent: usize, whole: bool, end: bool) {
        let most = self.most_payload();
        let Some(state) = self.streams.get(stream) else { return };
        let taken = state.send.take(sent as u32) && self.send.take(sent as u32);
        debug_assert!(taken);
        self.updates = self
            .updates
            .saturating_add(UPDATES_A_FRAME * (sent as u32).div_ceil(most));
        self.sent += sent as u64;
        if sent > 0 {
            self.progress = self.now;
        }
        if !whole {
            if sent > 0 || state.stalled.is_none() {
                state.stalled = Some(self.now);
            }
            self.queue(stream);
        } else if end {
            self.finish(stream);
        } else {
            state.stalled = None;
        }
    }

    /// Sends head and body of a response at once. Returns the bytes of the body that were sent, or `None` if the stream
    /// is gone.
    pub fn respond(&mut self, stream: u32, block: &[u8], body: &[u8]) -> Option<usize> {
        self.respond_of(stream, body, |out| out.extend_from_slice(block))
    }

    /// Sends a response whose field block `write` appends in place.
    pub fn respond_of(&mut self, stream: u32, body: &[u8], write: impl FnOnce(&mut Vec<u8>)) -> Option<usize> {
        let end = body.is_empty();
        if !self.send_head_of(stream, end, write) {
            return None;
        }
        if end {
            Some(0)
        } else {
            self.send_data(stream, body, true)
        }
    }

    /// Puts a stream that has more to send at the end of the queue, unless it is queued.
    pub fn queue(&mut self, stream: u32) {
        if let Some(state) = self.streams.get(stream)
            && !state.queued
        {
            state.stalled.get_or_insert(self.now);
            state.queued = true;
            self.queue.push_back(stream);
        }
    }

    /// Takes the next stream that may send at least a byte out of the queue. [`Connection::send_data`] or
    /// [`Connection::queue`] puts it back if it has more to send afterwards.
    pub fn next_writable(&mut self) -> Option<u32> {
        if self.send.room() == 0 {
            return None;
        }
        for _ in 0..self.queue.len() {
            let id = self.queue.pop_front()?;
            match self.streams.get(id) {
                Some(state) if state.send.room() > 0 => {
                    state.queued = false;
                    return Some(id);
                }
                Some(_) => self.queue.push_back(id),
                None => {}
            }
        }
        None
    }

    /// Bytes that may be sent on a stream now.
    #[must_use]
    pub fn room(&mut self, stream: u32) -> usize {
        let all = self.send.room();
        self.streams.get(stream).map_or(0, |state| state.send.room().min(all))
    }

    /// Notes that the driver has consumed `bytes` of a stream's body: the client may send as many more. The bytes that
    /// a stream still holds when it ends count as consumed.
    pub fn consume(&mut self, stream: u32, bytes: usize) {
        let Some(state) = self.streams.get(stream) else { return };
        let bytes = (bytes as u32).min(state.held);
        state.held -= bytes;
        self.give_back(stream, bytes);
    }

    /// Resets a stream.
    pub fn reset(&mut self, stream: u32, code: ErrorCode) {
        if self.remove(stream, EndedBy::Us).is_some() {
            frame::write_reset(&mut self.output, stream, code);
        }
    }

    /// The moment since which the longest waiting stream could send nothing, for want of a window.
    #[must_use]
    pub fn stalled_since(&self) -> Option<Instant> {
        self.streams.iter().filter_map(|state| self.stalled_for(state)).min()
    }

    /// Bytes of DATA that windows let through so far.
    #[must_use]
    pub fn data_sent(&self) -> u64 {
        self.sent
    }

    /// The moment since which a stream has not moved, if a window holds it. A stream that only the connection's window
    /// holds shares the progress of the others.
    fn stalled_for(&self, state: &Stream) -> Option<Instant> {
        if state.send.room() == 0 {
            state.stalled
        } else if self.send.room() == 0 {
            state.stalled.map(|since| since.max(self.progress))
        } else {
            None
        }
    }

    /// Resets one stream that could send nothing for the time of the limit, and returns it; to be called until `None`.
    pub fn reset_stalled(&mut self, now: Instant) -> Option<u32> {
        let is_over = |since| now.saturating_duration_since(since) >= self.limits.stall;
        let is_stalled = |state: &&Stream| self.stalled_for(state).is_some_and(is_over);
        let id = self.streams.iter().find(is_stalled)?.id;
        self.reset(id, ErrorCode::CANCEL);
        Some(id)
    }

    /// Tells the client that the connection will end; requests that it sends meanwhile are still answered. Its answer
    /// to a PING shows that it has read the announcement: then [`Connection::shut_down`] happens by itself.
    pub fn announce_shutdown(&mut self) {
        if self.shutdown == Shutdown::No {
            self.shutdown = Shutdown::Announced;
            frame::write_goaway(&mut self.output, MOST_STREAM, ErrorCode::NO_ERROR);
            frame::write_ping(&mut self.output, LAST_PING, false);
        }
    }

    /// Takes no more streams: open ones are answered, then the connection may be closed.
    pub fn shut_down(&mut self) {
        if !matches!(self.shutdown, Shutdown::Final(_)) {
            let last = self.streams.last();
            self.shutdown = Shutdown::Final(last);
            frame::write_goaway(&mut self.output, last, ErrorCode::NO_ERROR);
        }
    }

    /// Ends the connection for a reason the driver has found, such as a deadline.
    pub fn fail(&mut self, error: ConnectionError) {
        if self.reader.fail(error) {
            frame::write_goaway(&mut self.output, self.streams.last(), error.code);
        }
    }

    fn write_head(&mut self, stream: u32, end: bool, write: impl FnOnce(&mut Vec<u8>)) {
        let most = self.most_payload();
        let tell_table = std::mem::take(&mut self.tell_table);
        frame::fill_headers(&mut self.output, stream, end, most, |out| {
            if tell_table {
                out.push(EMPTY_TABLE);
            }
            write(out);
        });
    }

    fn most_payload(&self) -> u32 {
        self.peer.max_frame_size.min(MOST_PAYLOAD)
    }

    /// Our side of the stream is complete. A client that still sends is told to stop (RFC 9113 §8.1).
    fn finish(&mut self, stream: u32) {
        let receiving = self.streams.get(stream).is_some_and(|state| state.receiving);
        if receiving {
            self.reset(stream, ErrorCode::NO_ERROR);
        } else {
            self.remove(stream, EndedBy::Client);
        }
    }

    fn remove(&mut self, stream: u32, how: EndedBy) -> Option<Stream> {
        let state = self.streams.end(stream, how)?;
        self.heads -= state.head;
        self.give_back(0, state.held);
        Some(state)
    }

    /// Widens the windows by `bytes`, once it is worth a frame: a stream's and the connection's, or for stream 0 the
    /// connection's alone.
    fn give_back(&mut self, stream: u32, bytes: u32) {
        self.owed += bytes;
        if self.owed >= self.limits.connection_window.max(DEFAULT_WINDOW) / 2 {
            let grown = self.receive.shift(i64::from(self.owed));
            debug_assert!(grown, "no more than was taken out");
            frame::write_window_update(&mut self.output, 0, self.owed);
            self.owed = 0;
        }
        let least = (self.limits.stream_window / 2).max(1);
        if let Some(state) = self.streams.get(stream).filter(|state| state.receiving) {
            state.owed += bytes;
            if state.owed >= least {
                let grown = state.receive.shift(i64::from(state.owed));
                debug_assert!(grown, "no more than was taken out");
                frame::write_window_update(&mut self.output, stream, state.owed);
                state.owed = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests;
