//! A memory pool for values of many sizes: one mapping, and a map of its free pieces.
//!
//! The allocator keeps pages of up to 4 MiB per size and thread. Values that several threads read, and that are freed
//! in another order, leave these pages partly filled for good: 16 MiB of images took 250 MiB. Here a value takes the
//! smallest free piece that holds it, and adjacent free pieces are merged. The mapping has twice the addresses that
//! values may take, so there is nearly always such a piece. The memory of free pieces is returned to the system before
//! it reaches an eighth of the limit.
#![allow(unsafe_code)] // mmap, and the slices of it that are handed out

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::ptr;
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Alignment of a piece, bytes.
const GRAIN: usize = 256;
/// Bytes of addresses per byte of values.
const ADDRESSES: usize = 2;
/// Part of the addresses that may be free and keep its memory, for reuse without a system call.
const SPARE: usize = 16;

/// The memory pool of one cache. Clones share it; its memory is freed with the last value.
#[derive(Clone, Debug)]
pub struct Room(Arc<Memory>);

/// The mapping, at a fixed address.
struct Memory {
    start: *mut u8,
    length: usize,
    /// Page size of the system, bytes.
    page: usize,
    free: Mutex<Free>,
}

// SAFETY: the mapping belongs to no thread. Each piece of it is reached through the one `RoomPiece` that took it, or
// through `&mut Free` while it is free.
unsafe impl Send for Memory {}
// SAFETY: as above; a mutex protects the map of free pieces.
unsafe impl Sync for Memory {}

impl Room {
    /// A pool for `bytes` of values. The system provides memory on first use.
    ///
    /// # Errors
    /// The system has no such range of addresses.
    pub fn new(bytes: u64) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let length = usize::try_from(bytes)
            .ok()
            .and_then(|bytes| bytes.checked_mul(ADDRESSES));
        let length = length.and_then(|length| length.max(1).checked_next_multiple_of(page));
        let length = length.ok_or(io::ErrorKind::OutOfMemory)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new private mapping at an address that the system chooses; no other code knows it.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, flags)? };
        let memory = Memory {
            start: start.cast(),
            length,
            page,
            free: Mutex::new(Free::new(length)),
        };
        // A huge page would take back the memory that was released around a value. Fails on kernels without huge pages.
        let _ = memory.advise(0, length, Advice::LinuxNoHugepage);
        Ok(Self(Arc::new(memory)))
    }

    /// Takes a piece of this length with arbitrary content; `None` if no free piece is long enough.
    #[must_use]
    pub fn take(&self, length: usize) -> Option<RoomPiece> {
        let taken = length.max(1).next_multiple_of(GRAIN);
        let begin = self.0.free().take(taken)?;
        Some(RoomPiece {
            memory: Arc::clone(&self.0),
            begin,
            taken,
            length,
        })
    }

    /// A buffer of this length: a piece, or memory of the allocator if no piece is free.
    #[must_use]
    pub fn buffer(&self, length: usize) -> Buffer {
        match self.take(length) {
            Some(piece) => Buffer::Piece(piece),
            None => Buffer::Allocated(vec![0; length]),
        }
    }

    /// Copies the bytes into the pool, if there is a free piece.
    #[must_use]
    pub fn keep(&self, bytes: Bytes) -> Bytes {
        match self.take(bytes.len()) {
            Some(mut piece) => {
                piece.as_mut().copy_from_slice(&bytes);
                piece.into()
            }
            None => bytes,
        }
    }
}

/// A buffer that is filled and then becomes [`Bytes`].
#[derive(Debug)]
pub enum Buffer {
    Piece(RoomPiece),
    Allocated(Vec<u8>),
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Piece(piece) => piece.as_mut(),
            Self::Allocated(bytes) => bytes,
        }
    }
}

impl From<Buffer> for Bytes {
    fn from(buffer: Buffer) -> Self {
        match buffer {
            Buffer::Piece(piece) => piece.into(),
            Buffer::Allocated(bytes) => bytes.into(),
        }
    }
}

impl Memory {
    fn free(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Frees a piece.
    fn give(&self, begin: usize, length: usize) {
        let mut free = self.free();
        free.give(begin, length);
        let most = self.length / SPARE;
        if free.dirty > most {
            // Memory that cannot be released is used for the next values.
            free.clean(most / 2, self.page, |begin, length| {
                let _ = self.advise(begin, length, Advice::LinuxDontNeed);
            });
        }
    }

    /// Calls madvise for a range of pages, which must be free if the advice discards them.
    fn advise(&self, begin: usize, length: usize, advice: Advice) -> io::Result<()> {
        assert!(begin + length <= self.length, "it lies in the mapping");
        // SAFETY: the range is in our mapping. It is discarded only while the map of free pieces is locked and contains
        // it.
        unsafe { madvise(self.start.add(begin).cast(), length, advice)? };
        Ok(())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no piece of it is left, since each holds it.
        let _ = unsafe { munmap(self.start.cast(), self.length) };
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

/// A piece of a room, freed when dropped.
#[derive(Debug)]
pub struct RoomPiece {
    memory: Arc<Memory>,
    begin: usize,
    taken: usize,
    length: usize,
}

impl AsRef<[u8]> for RoomPiece {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `begin` and `length` lie in the mapping, which `memory` holds; nothing writes there while `self` is
        // borrowed, because the piece is ours alone.
        unsafe { slice::from_raw_parts(self.memory.start.add(self.begin), self.length) }
    }
}

impl AsMut<[u8]> for RoomPiece {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed by one.
        unsafe { slice::from_raw_parts_mut(self.memory.start.add(self.begin), self.length) }
    }
}

impl From<RoomPiece> for Bytes {
    fn from(piece: RoomPiece) -> Self {
        Self::from_owner(piece)
    }
}

impl Drop for RoomPiece {
    fn drop(&mut self) {
        self.memory.give(self.begin, self.taken);
    }
}

/// The free pieces; no two are adjacent.
#[derive(Debug, Default)]
struct Free {
    /// Free pieces by their offset.
    pieces: BTreeMap<usize, FreePiece>,
    /// Length and offset of each, the shortest first.
    lengths: BTreeSet<(usize, usize)>,
    /// Bytes that may have memory, in all pieces together.
    dirty: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FreePiece {
    length: usize,
    /// Upper bound of its bytes that have memory.
    dirty: usize,
}

impl Free {
    fn new(length: usize) -> Self {
        let mut free = Self::default();
        free.insert(0, FreePiece { length, dirty: 0 });
        free
    }

    fn insert(&mut self, begin: usize, piece: FreePiece) {
        self.pieces.insert(begin, piece);
        self.lengths.insert((piece.length, begin));
        self.dirty += piece.dirty;
    }

    fn remove(&mut self, begin: usize) -> Option<FreePiece> {
        let piece = self.pieces.remove(&begin)?;
        self.lengths.remove(&(piece.length, begin));
        self.dirty -= piece.dirty;
        Some(piece)
    }

    /// Takes `length` bytes from the shortest piece that is long enough, and returns their offset.
    fn take(&mut self, length: usize) -> Option<usize> {
        let &(_, begin) = self.lengths.range((length, 0)..).next()?;
        let piece = self.remove(begin)?;
        let left = piece.length - length;
        if left > 0 {
            let dirty = piece.dirty.min(left);
            self.insert(begin + length, FreePiece { length: left, dirty });
        }
        Some(begin)
    }

    /// Frees a piece and merges it with adjacent ones.
    fn give(&mut self, mut begin: usize, length: usize) {
        let mut joined = FreePiece { length, dirty: length };
        let before = self.pieces.range(..begin).next_back();
        let before = before.filter(|(its, piece)| **its + piece.length == begin);
        if let Some(its) = before.map(|(&its, _)| its) {
            joined.join(self.remove(its));
            begin = its;
        }
        let behind = self.remove(begin + joined.length);
        joined.join(behind);
        self.insert(begin, joined);
    }

    /// Passes the longest pieces to `give_back`, until at most `most` bytes may have memory.
    fn clean(&mut self, most: usize, page: usize, mut give_back: impl FnMut(usize, usize)) {
        for &(length, begin) in self.lengths.iter().rev() {
            if self.dirty <= most || length < 2 * page {
                break;
            }
            let Some(piece) = self.pieces.get_mut(&begin).filter(|piece| piece.dirty > 0) else {
                continue;
            };
            // A page at a border may also hold a value.
            let first = begin.next_multiple_of(page);
            let end = (begin + length) / page * page;
            give_back(first, end - first);
            // The rest at the borders is too small to matter.
            self.dirty -= std::mem::take(&mut piece.dirty);
        }
    }
}

impl FreePiece {
    fn join(&mut self, other: Option<Self>) {
        if let Some(other) = other {
            self.length += other.length;
            self.dirty += other.dirty;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_never_overlap_and_all_is_one_again() {
        let room = Room::new(512 << 10).expect("an address");
        let mut chance = fastrand::Rng::with_seed(7);
        let mut pieces: Vec<(u8, RoomPiece)> = Vec::new();
        let mut refused = 0;
        for number in 0..20_000_u32 {
            if chance.bool() && !pieces.is_empty() {
                let (mark, piece) = pieces.swap_remove(chance.usize(..pieces.len()));
                assert!(piece.as_ref().iter().all(|byte| *byte == mark));
                continue;
            }
            let Some(mut piece) = room.take(chance.usize(..40_000)) else {
                refused += 1;
                pieces.truncate(pieces.len() / 2);
                continue;
            };
            piece.as_mut().fill(number as u8);
            pieces.push((number as u8, piece));
        }
        assert!(refused > 0, "the room was full at times");
        pieces.clear();
        let free = room.0.free();
        assert_eq!((free.pieces.len(), free.lengths.len()), (1, 1));
        assert_eq!(free.pieces[&0].length, 1 << 20);
        assert_eq!(free.dirty, free.pieces[&0].dirty);
        drop(free);
        assert!(room.take(1 << 20).is_some() && room.take((1 << 20) + 1).is_none());
    }

    #[test]
    fn random_sizes_always_find_room_and_little_of_it_is_kept_for_nothing() {
        let most = 16 << 20;
        let room = Room::new(most as u64).expect("an address");
        let mut chance = fastrand::Rng::with_seed(7);
        let (mut pieces, mut used, mut refused) = (Vec::new(), 0, 0);
        for _ in 0..50_000 {
            let length = 2_000 << chance.u32(..7);
            let length = length + chance.usize(..length);
            // Let go in another order than they came.
            while used + length > most {
                let piece: RoomPiece = pieces.swap_remove(chance.usize(..pieces.len()));
                used -= piece.as_ref().len();
            }
            match room.take(length) {
                Some(piece) => {
                    used += length;
                    pieces.push(piece);
                }
                None => refused += 1,
            }
            assert!(room.0.free().dirty <= most / 8);
        }
        assert!(refused < 50, "{refused} of 50,000 found no room");
    }

    #[test]
    fn what_is_free_goes_back_to_the_system() {
        let resident = || {
            let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
            let line = status
                .lines()
                .find(|line| line.starts_with("RssAnon:"))
                .expect("a line");
            let number = line.split_whitespace().nth(1).expect("a number");
            number.parse::<u64>().expect("a number") >> 10
        };
        let room = Room::new(256 << 20).expect("an address");
        let before = resident();
        let value = Bytes::from(vec![7; 20_000]);
        let mut values: Vec<Bytes> = (0..12_800).map(|_| room.keep(value.clone())).collect();
        assert!(resident() > before + 200, "it is used");
        let mut number = 0;
        values.retain(|value| {
            number += 1;
            assert!(value.iter().all(|byte| *byte == 7), "nothing else was given back");
            number % 8 == 0
        });
        assert!(resident() < before + 120, "{before} {}", resident());
        assert!(values.iter().flatten().all(|byte| *byte == 7));
        let again = room.keep(Bytes::from_static(b"again"));
        drop(room);
        assert_eq!(&again[..], b"again", "a value holds its room");
    }
}
