//! The open streams of a connection, and the numbers of those that ended last (RFC 9113 §5.1).

use std::collections::VecDeque;
use std::time::Instant;

use super::flow::Window;

/// Ended streams remembered: frames for them may still be under way.
const MOST_ENDED: usize = 128;
/// Marks a stream that we ended: frames for it are ignored. Stream numbers have 31 bits.
const BY_US: u32 = 1 << 31;

/// A stream whose answer is not complete yet.
#[derive(Debug)]
pub(super) struct Stream {
    pub id: u32,
    /// The client may still send.
    pub receiving: bool,
    /// Bytes that we may send.
    pub send: Window,
    /// Bytes that the client may send.
    pub receive: Window,
    /// Bytes of the body that the driver has and has not consumed yet.
    pub held: u32,
    /// Bytes consumed for which no WINDOW_UPDATE was sent yet.
    pub owed: u32,
    /// Bytes of the body still to come, if Content-Length states them.
    pub due: Option<u64>,
    /// The size of its head, as it counts toward `Limits::all_heads`.
    pub head: u32,
    /// It is in the queue of the streams that have data to send.
    pub queued: bool,
    /// The moment since which it has more to send, or at which it last sent some of that.
    pub stalled: Option<Instant>,
}

/// The side that ended a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndedBy {
    /// We reset it: the client may not know yet.
    Us,
    /// The client knows: it ended or reset the stream itself.
    Client,
}

/// All streams of a connection.
#[derive(Debug, Default)]
pub(super) struct OpenStreams {
    /// By rising number: new ones come last.
    open: Vec<Stream>,
    /// Numbers of ended streams, perhaps with `BY_US`, the latest last.
    ended: VecDeque<u32>,
    /// The highest number a client's HEADERS had.
    last: u32,
}

impl OpenStreams {
    pub(super) fn last(&self) -> u32 {
        self.last
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// True if the client has not used this number yet, or never may.
    pub(super) fn is_idle(&self, id: u32) -> bool {
        id > self.last || id.is_multiple_of(2)
    }

    /// Notes that the client used this number; lower ones can no longer be opened.
    pub(super) fn reach(&mut self, id: u32) {
        debug_assert!(id > self.last, "numbers rise");
        self.last = id;
    }

    /// Adds the stream last reached.
    pub(super) fn open(&mut self, stream: Stream) {
        debug_assert_eq!(stream.id, self.last);
        self.open.push(stream);
    }

    pub(super) fn get(&mut self, id: u32) -> Option<&mut Stream> {
        // Mostly it is the last one opened.
        match self.open.last_mut() {
            Some(last) if last.id == id => self.open.last_mut(),
            _ => self.place(id).map(|place| &mut self.open[place]),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.open.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.open.iter_mut()
    }

    /// Removes an open stream and remembers how it ended.
    pub(super) fn end(&mut self, id: u32, how: EndedBy) -> Option<Stream> {
        let place = match self.open.last() {
            Some(last) if last.id == id => self.open.len() - 1,
            _ => self.place(id)?,
        };
        let stream = self.open.remove(place);
        self.remember(id, how);
        Some(stream)
    }

    /// Remembers a stream that never was open.
    pub(super) fn remember(&mut self, id: u32, how: EndedBy) {
        if self.ended.len() == MOST_ENDED {
            self.ended.pop_front();
        }
        self.ended.push_back(if how == EndedBy::Us { id | BY_US } else { id });
    }

    /// The side that ended a stream, if it is remembered.
    pub(super) fn ended(&self, id: u32) -> Option<EndedBy> {
        let found = self.ended.iter().rev().find(|&&ended| ended & !BY_US == id)?;
        Some(if found & BY_US == 0 {
            EndedBy::Client
        } else {
            EndedBy::Us
        })
    }

    fn place(&self, id: u32) -> Option<usize> {
        self.open.binary_search_by_key(&id, |stream| stream.id).ok()
    }
}
