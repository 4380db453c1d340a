//! The request body on its way in: how much is left, and whether the client waits for `100 Continue`.

use haulier_http::BodyError;
use haulier_proto::chunked;
use haulier_proto::framing::BodyLength;

/// Where the request body stands.
#[derive(Debug)]
pub(super) struct Incoming {
    framing: Framing,
    /// RFC 9110 §10.1.1: the client sends the body after `100 Continue`.
    pub(super) awaits_continue: bool,
    /// The framing was broken: where the body ends will never be known.
    is_lost: bool,
    /// Somebody began to read it. Who gives up in the middle had a reason.
    is_begun: bool,
    /// Bytes of it that whoever reads it would still take.
    room: u64,
}

#[derive(Debug)]
enum Framing {
    /// So many bytes are still to come.
    Length(u64),
    Chunked(chunked::Decoder),
}

/// A body we have no use for is read to its end if that is so near; beyond it, closing is cheaper.
const DRAINABLE: u64 = 64 * 1024;
/// Most bytes taken out of the input at once.
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

    /// From now on so many bytes are taken, and no more.
    pub(super) fn limit(&mut self, most: u64) {
        self.room = most;
    }

    /// True if what is there of the body already is malformed.
    pub(super) fn is_malformed(&self, input: &[u8]) -> bool {
        match &self.framing {
            Framing::Length(_) => false,
            Framing::Chunked(decoder) => decoder.clone().decode(input, &mut Vec::new(), usize::MAX).is_err(),
        }
    }

    /// Bytes that are certain to come if the body is well-formed.
    fn announced(&self) -> u64 {
        match &self.framing {
            Framing::Length(left) => *left,
            Framing::Chunked(decoder) => decoder.announced(),
        }
    }

    /// Whether all of the body has been taken.
    pub(super) fn is_done(&self) -> bool {
        match &self.framing {
            _ if self.is_lost => false,
            Framing::Length(left) => *left == 0,
            Framing::Chunked(decoder) => decoder.is_done(),
        }
    }

    /// Bytes worth reading at once: what is left of the body, within reason.
    pub(super) fn wanted(&self) -> usize {
        match self.framing {
            Framing::Length(left) => usize::try_from(left).unwrap_or(PIECE).min(PIECE),
            Framing::Chunked(_) => PIECE,
        }
    }

    /// Whether the rest may be read away so that the connection can go on (RFC 9112 §9.3).
    pub(super) fn is_drainable(&self) -> bool {
        !self.awaits_continue
            && !self.is_begun
            && match self.framing {
                Framing::Length(left) => left <= DRAINABLE,
                Framing::Chunked(_) => true,
            }
    }

    /// Takes body bytes out of `input`, leaving what is beyond the body; says how many body bytes there were. After
    /// an error nothing on the connection can be trusted any more. A chunk that is announced larger than what is left of
    /// the limit is an error at once, before its bytes come.
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

    /// Reads away what is already in `input`; `false` if that cannot end well.
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

    /// How many bytes [`Incoming::discard`] may take in all.
    pub(super) fn discard_budget() -> u64 {
        DRAINABLE * 2
    }
}
