//! Encrypted bytes that the kernel has not taken.

use rustls::unbuffered::{EncodeError, EncryptError, InsufficientSizeError};

use super::session::Scratch;

/// Offset of the first record in a buffer. The library copies each record here from its own buffer, which is
/// page-aligned like ours. With half a page between them, no target lies just after its source (see
/// `haulier_proto::copy`), however far heads and tags shift it.
const FIRST: usize = 2048;

/// A queue of bytes. While it is empty, its memory belongs to the thread.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    /// Initialised once, so that it need not be cleared for every record. The content is from `start` to `end`.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Outgoing {
    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Drops the first `count` bytes.
    pub(super) fn advance(&mut self, count: usize) {
        self.start += count;
        debug_assert!(self.start <= self.end);
    }

    /// Appends the bytes that `write` puts into a slice. The slice has `expected` bytes, or more if `write` asks for
    /// them.
    pub(super) fn append<E: RequiredSize>(
        &mut self,
        scratch: &Scratch,
        expected: usize,
        mut write: impl FnMut(&mut [u8]) -> Result<usize, E>,
    ) -> Result<(), E> {
        if self.buffer.is_empty() {
            self.buffer = scratch.take_outgoing();
            (self.start, self.end) = (FIRST, FIRST);
        }
        let mut room = expected;
        loop {
            if self.buffer.len() < self.end + room {
                self.buffer.resize(self.end + room, 0);
            }
            match write(&mut self.buffer[self.end..]) {
                Ok(count) => {
                    self.end += count;
                    return Ok(());
                }
                Err(error) => match error.required_size() {
                    Some(required) if required > room => room = required,
                    _ => return Err(error),
                },
            }
        }
    }

    /// Returns unused memory to the thread: all of it, or all but the content.
    pub(super) fn settle(&mut self, scratch: &Scratch) {
        let waiting = self.bytes();
        let kept = if waiting.is_empty() {
            Vec::new()
        } else if waiting.len() * 2 < self.buffer.len() {
            waiting.to_vec()
        } else {
            return;
        };
        (self.start, self.end) = (0, kept.len());
        scratch.give_outgoing(std::mem::replace(&mut self.buffer, kept));
    }
}

/// An error that may ask for more space.
pub(super) trait RequiredSize {
    /// The size that suffices, bytes.
    fn required_size(&self) -> Option<usize>;
}

impl RequiredSize for EncodeError {
    fn required_size(&self) -> Option<usize> {
        match self {
            Self::InsufficientSize(InsufficientSizeError { required_size }) => Some(*required_size),
            Self::AlreadyEncoded => None,
        }
    }
}

impl RequiredSize for EncryptError {
    fn required_size(&self) -> Option<usize> {
        match self {
            Self::InsufficientSize(InsufficientSizeError { required_size }) => Some(*required_size),
            Self::EncryptExhausted => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes this many bytes, if there is space.
    fn filler(count: usize) -> impl FnMut(&mut [u8]) -> Result<usize, EncryptError> {
        move |room| {
            if room.len() < count {
                return Err(InsufficientSizeError { required_size: count }.into());
            }
            room[..count].fill(7);
            Ok(count)
        }
    }

    #[test]
    fn it_grows_until_everything_fits_and_keeps_only_what_waits() {
        let scratch = Scratch::default();
        let mut outgoing = Outgoing::default();
        outgoing.append(&scratch, 10, filler(70_000)).expect("room is made");
        outgoing.append(&scratch, 10, filler(5)).expect("room is made");
        assert_eq!(outgoing.bytes(), [7; 70_005]);
        outgoing.advance(70_000);
        outgoing.settle(&scratch);
        assert_eq!((outgoing.bytes(), outgoing.buffer.len()), (&[7; 5][..], 5));
        assert!(
            scratch.take_outgoing().len() >= 70_005,
            "the large buffer is the thread's again"
        );
        outgoing.advance(5);
        outgoing.settle(&scratch);
        assert!(outgoing.is_empty() && outgoing.buffer.is_empty());
    }

    #[test]
    fn an_error_that_is_not_for_want_of_room_ends_it() {
        let mut outgoing = Outgoing::default();
        let exhausted = |_: &mut [u8]| Err(EncryptError::EncryptExhausted);
        outgoing
            .append(&Scratch::default(), 10, exhausted)
            .expect_err("no room helps");
        assert!(outgoing.is_empty());
    }
}
