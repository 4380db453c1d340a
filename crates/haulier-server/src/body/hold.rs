//! The limits on holding a body back.
//!
//! The body of a back end passes up to three stages. Each holds back no more than this module allows:
//!
//! 1. A body is held until it is complete, so that it gets a length and leaves with its head in one send:
//!    [`Hold::for_length`].
//! 2. A longer body to be coded is held once more until it is complete: coded whole, it takes less time and fewer
//!    bytes: [`Hold::for_coding`].
//! 3. What is released waits in the spool until the client takes it: [`PieceStorage`].
//!
//! In stages 1 and 2 a pause ends the wait: the program waits for something, or wants the client to see its output.
//! Stage 3 waits for room only.

use std::time::{Duration, Instant};

/// A back end that sends nothing for this long is waiting for something, so its output is sent.
const PAUSE: Duration = Duration::from_millis(50);
/// The longest time that holding a body delays its first byte.
const LONGEST: Duration = Duration::from_millis(200);
/// Most bytes held for a length.
const MOST_FOR_LENGTH: usize = 64 * 1024;
/// Most bytes held for coding.
pub(crate) const MOST_FOR_CODING: usize = 8 * 1024 * 1024;
/// Content of PHP's longest FastCGI record, bytes: another record follows it.
const LONGEST_RECORD: usize = 65_528;

/// Most memory for the short pieces of one spooled body, bytes; more goes to the file.
pub(crate) const SPOOL_MEMORY: u64 = 256 * 1024;
/// The same for all spooled bodies of a site and those held for coding.
pub(crate) const SPOOL_MEMORY_OF_ALL: u64 = 32 * 1024 * 1024;
/// Longest short piece, bytes. A longer one is a body made in memory as a whole, and charged by itself.
pub(crate) const LONGEST_SHORT_PIECE: u64 = 192 * 1024;
/// Most bytes read of a body whose client has gone. A script that sends more finds its connection closed.
pub(crate) const MOST_ABANDONED: usize = 64 * 1024 * 1024;

/// The pacing of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pacing {
    /// Faster than it could be sent.
    Fast,
    /// With pauses: each part is sent at once.
    Paused,
    /// Without an end, until the client leaves.
    Endless,
}

/// The limits on holding one body back.
#[derive(Debug)]
pub(crate) struct Hold {
    most: usize,
    /// More than `most` was announced: the body is released once its next piece is certain to be long.
    is_long: bool,
    /// `None` before the first wait.
    until: Option<Instant>,
}

impl Hold {
    /// Holds a body until its length is known; `announced` is the length in its head. The time begins with the first
    /// wait, so a body that is there already needs no clock.
    pub(crate) fn for_length(announced: Option<u64>) -> Self {
        Self {
            most: MOST_FOR_LENGTH,
            is_long: announced.is_some_and(|announced| announced > MOST_FOR_LENGTH as u64),
            until: None,
        }
    }

    /// Holds a body until it can be coded whole. The time begins now, since a long body may come without a pause.
    pub(crate) fn for_coding(now: Instant) -> Self {
        Self {
            most: MOST_FOR_CODING,
            is_long: false,
            until: Some(now + LONGEST),
        }
    }

    /// Longest wait for the next piece.
    pub(crate) fn wait(&mut self, now: Instant) -> Duration {
        let until = *self.until.get_or_insert(now + LONGEST);
        PAUSE.min(until.saturating_duration_since(now))
    }

    /// Decides after each piece: the pacing of the rest if a body with `held` bytes is to be released. `coming` bytes
    /// are certain to come next.
    pub(crate) fn judge(&self, held: usize, coming: usize, now: impl FnOnce() -> Instant) -> Option<Pacing> {
        if held > self.most || (self.is_long && held + coming >= LONGEST_RECORD) {
            return Some(Pacing::Fast);
        }
        self.until.filter(|&until| now() >= until).map(|_| Pacing::Paused)
    }
}

/// The storage of a piece, if its budget has room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PieceStorage {
    /// In memory, charged as a long body.
    Long,
    /// In memory, charged as a short piece.
    Short,
    /// In the file.
    File,
}

impl PieceStorage {
    /// The storage of a piece of `length` bytes after `in_memory` bytes of short pieces, of which `most` may be in
    /// memory. A spool that becomes one file allows none.
    pub(crate) fn of(length: u64, in_memory: u64, most: u64) -> Self {
        if most > 0 && length > LONGEST_SHORT_PIECE {
            Self::Long
        } else if in_memory + length <= most {
            Self::Short
        } else {
            Self::File
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1024;

    #[test]
    fn a_short_body_is_held_and_a_long_one_released() {
        let now = crate::clock::now();
        let hold = Hold::for_length(None);
        assert_eq!(hold.judge(64 * KIB, 0, || now), None);
        assert_eq!(hold.judge(64 * KIB + 1, 0, || now), Some(Pacing::Fast));
        let hold = Hold::for_coding(now);
        assert_eq!(hold.judge(8 * KIB * KIB, 0, || now), None);
        assert_eq!(hold.judge(8 * KIB * KIB + 1, 0, || now), Some(Pacing::Fast));
    }

    #[test]
    fn an_announced_length_releases_a_body_before_its_next_record_comes() {
        let now = crate::clock::now();
        let announced = |length| Hold::for_length(Some(length)).judge(8 * KIB, 60 * KIB, || now);
        assert_eq!(announced(64 * KIB as u64), None, "it may still be held whole");
        assert_eq!(announced(4 * 1024 * KIB as u64), Some(Pacing::Fast));
        let little = Hold::for_length(Some(4 * 1024 * KIB as u64)).judge(8 * KIB, 0, || now);
        assert_eq!(little, None, "what comes next may be short");
    }

    #[test]
    fn a_wait_ends_with_a_pause_and_all_waits_together_have_an_end() {
        let begun = crate::clock::now();
        let at = |milliseconds| begun + Duration::from_millis(milliseconds);
        let mut hold = Hold::for_length(None);
        assert_eq!(hold.judge(1, 0, || at(900)), None, "no wait has begun");
        assert_eq!(hold.wait(at(0)), PAUSE);
        assert_eq!(hold.wait(at(170)), Duration::from_millis(30));
        assert_eq!(hold.judge(1, 0, || at(199)), None);
        assert_eq!(hold.judge(1, 0, || at(200)), Some(Pacing::Paused));
        assert_eq!(hold.wait(at(300)), Duration::ZERO);
        let hold = Hold::for_coding(at(0));
        assert_eq!(hold.judge(1, 0, || at(200)), Some(Pacing::Paused), "without a wait");
    }

    #[test]
    fn pieces_fill_the_memory_before_the_file() {
        let kept = |length, before| PieceStorage::of(length, before, SPOOL_MEMORY);
        assert_eq!(kept(64 * 1024, 0), PieceStorage::Short);
        assert_eq!(kept(64 * 1024, SPOOL_MEMORY - 64 * 1024), PieceStorage::Short);
        assert_eq!(kept(64 * 1024, SPOOL_MEMORY - 1), PieceStorage::File);
        assert_eq!(kept(LONGEST_SHORT_PIECE + 1, SPOOL_MEMORY), PieceStorage::Long);
        assert_eq!(PieceStorage::of(1, 0, 0), PieceStorage::File);
        assert_eq!(PieceStorage::of(LONGEST_SHORT_PIECE + 1, 0, 0), PieceStorage::File);
    }
}
