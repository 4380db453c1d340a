//! The incoming request body: its remaining length, and the state of `100 Continue`.

use haulier_http::BodyError;
use haulier_proto::chunked;
use haulier_proto::framing::BodyLength;

/// The state of a request body.
#[derive(Debug)]
pub(super) struct Incoming {
    framing: Framing,
    /// RFC 9110 §10.1.1: the client sends the body after `100 Continue`.
    pub(super) awaits_continue: bool,
    /// The framing is broken, so the end of the body is unknown.
    is_lost: bool,
    /// A handler has begun to read it. One that stops in the middle has a reason.
    is_begun: bool,
    /// Bytes that the handler would still take.
    room: u64,
}

#[derive(Debug)]
enum Framing {
    /// Bytes still to come.
    Length(u64),
    Chunked(chunked::Decoder),
}

/// Longest rest of an unwanted body that is read; beyond it, closing is cheaper.
const DRAINABLE: u64 = 64 * 1024;
/// Most bytes taken from the input at once.
const PIECE: usize = 64 * 1024;

impl Incoming {
    pub(super) fn none() -> Self {
        Self::of(Framing::Length(0), false)
    }

    pub(super) fn new(length: BodyLength, awaits_continue: bool) -> Self {
        match length {
            BodyLength::Known(0) => Self::none(),
            BodyLength::Known(length) => Self::of(Framing::Length(length), awaits_continue),
            BodyLength::Chunked => Self::of(Framing::Chunked(chunked::Decoder::new()), awaits_continue),
        }
    }

    fn of(framing: Framing, awaits_continue: bool) -> Self {
        Self {
            framing,
            awaits_continue,
            is_lost: false,
            is_begun: false,
            room: u64::MAX,
        }
    }

    /// Limits the bytes taken from now on.
    pub(super) fn limit(&mut self, most: u64) {
        self.room = most;
    }

    /// True if the bytes received so far are malformed.
    pub(super) fn is_malformed(&self, input: &[u8]) -> bool {
        match &self.framing {
            Framing::Length(_) => false,
            Framing::Chunked(decoder) => decoder.clone().decode(input, &mut Vec::new(), usize::MAX).is_err(),
        }
    }

    /// Remaining bytes of a well-formed body, as far as announced.
    fn announced(&self) -> u64 {
        match &self.framing {
            Framing::Length(left) => *left,
            Framing::Chunked(decoder) => decoder.announced(),
        }
    }

    /// True if the whole body has been taken.
    pub(super) fn is_done(&self) -> bool {
        match &self.framing {
            _ if self.is_lost => false,
            Framing::Length(left) => *left == 0,
            Framing::Chunked(decoder) => decoder.is_done(),
        }
    }

    /// Bytes worth reading at once: the rest of the body, up to a limit.
    pub(super) fn wanted(&self) -> usize {
        match self.framing {
            Framing::Length(left) => usize::try_from(left).unwrap_or(PIECE).min(PIECE),
            Framing::Chunked(_) => PIECE,
        }
    }

    /// True if the rest may be discarded so that the connection can go on (RFC 9112 §9.3).
    pub(super) fn is_drainable(&self) -> bool {
        !self.awaits_continue
            && !self.is_begun
            && match self.framing {
                Framing::Length(left) => left <= DRAINABLE,
                Framing::Chunked(_) => true,
            }
    }

    /// Takes body bytes from `input` and leaves those after the body; returns the number of body bytes. After an error
    /// nothing on the connection can be trusted. A chunk whose announced size exceeds the limit is an error at once.
    pub(super) fn take(&mut self, input: &mut Vec<u8>, into: &mut Vec<u8>) -> Result<usize, BodyError> {
        if self.is_lost {
            return Err(BodyError::Malformed);
        }
        self.is_begun = true;
        let before = into.len();
        let taken = match &mut self.framing {
            Framing::Length(left) => {
                let taken = input.len().min(PIECE).min(usize::try_from(*left).unwrap_or(usize::MAX));
                into.extend_from_slice(&input[..taken]);
                *left -= taken as u64;
                taken
            }
            Framing::Chunked(decoder) => match decoder.decode(input, into, PIECE) {
                Ok(taken) => taken,
                Err(_) => {
                    self.is_lost = true;
                    return Err(BodyError::Malformed);
                }
            },
        };
        input.drain(..taken);
        let found = into.len() - before;
        self.room = match self.room.checked_sub(found as u64) {
            Some(room) if self.announced() <= room => room,
            _ => return Err(BodyError::TooLarge),
        };
        Ok(found)
    }

    /// Discards body bytes in `input`; false if the framing is broken or the budget exceeded.
    pub(super) fn discard(&mut self, input: &mut Vec<u8>, budget: &mut u64) -> bool {
        let mut scratch = Vec::new();
        while !self.is_done() && !input.is_empty() {
            scratch.clear();
            let Ok(taken) = self.take(input, &mut scratch) else {
                return false;
            };
            *budget = budget.saturating_sub(taken as u64);
            if *budget == 0 || self.announced() > *budget {
                return false;
            }
            if taken == 0 && !self.is_done() {
                break;
            }
        }
        true
    }

    /// Most bytes that [`Incoming::discard`] may take in all.
    pub(super) fn discard_budget() -> u64 {
        DRAINABLE * 2
    }
}
