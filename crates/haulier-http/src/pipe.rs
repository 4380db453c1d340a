//! Bytes of a body left in kernel pages, where PHP's write put them, and lined up in a pipe.
//!
//! splice(2) moves them from PHP's socket through the pipe to the client's socket without a copy. They are read only
//! where their content is needed, for encryption for instance.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags};

use crate::budget::ByteBudget;
use crate::source::ReadInto;

/// Most bytes in one pipe.
const MOST: u64 = 512 * 1024;
/// A pipe that was full is filled again once at most this many bytes are left. Refilled earlier, a body would come in
/// tiny pieces.
const LOW: u64 = 128 * 1024;
/// Requested pipe size in bytes. The kernel counts each piece as a page of 4 KiB, and the pieces of PHP's records are 8
/// to 9 KiB. Without privileges all pipes of an account share 64 MiB of such room.
const ROOM: usize = 256 * 1024;
/// Bytes reserved in the budget before the size of a read is known: the longest content of a record.
const STEP: u64 = 64 * 1024;

/// A pipe with both ends in this process.
#[derive(Debug)]
pub struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    /// The budget its bytes are charged to.
    budget: Arc<ByteBudget>,
    /// Bytes in it, charged to the budget.
    held: Cell<u64>,
    /// It is not filled again until it is nearly empty.
    was_full: Cell<bool>,
}

impl Pipe {
    /// An empty pipe that charges its bytes to `budget`.
    ///
    /// # Errors
    /// No descriptors are left, or the account has too many pipes.
    pub fn new(budget: &Arc<ByteBudget>) -> io::Result<Self> {
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        rustix::pipe::fcntl_setpipe_size(&write, ROOM)?;
        Ok(Self {
            read,
            write,
            budget: Arc::clone(budget),
            held: Cell::new(0),
            was_full: Cell::new(false),
        })
    }

    /// Calls `fill` with as much room as pipe and budget allow; `fill` returns the number of bytes it added. `None` if
    /// there is no room.
    pub fn fill<T>(&self, fill: impl FnOnce(ReadInto<'_>) -> (T, usize)) -> Option<T> {
        let most = STEP.min(MOST.saturating_sub(self.held.get()));
        if most == 0 {
            self.was_full.set(true);
        }
        if (self.was_full.get() && self.held.get() > LOW) || !self.budget.take(most) {
            return None;
        }
        self.was_full.set(false);
        let place = ReadInto::Pipe {
            end: self.write.as_fd(),
            most: most as usize,
        };
        let (filled, piped) = fill(place);
        self.held.set(self.held.get() + piped as u64);
        self.budget.give(most - piped as u64);
        Some(filled)
    }

    /// Notes that the kernel had no room for another piece.
    pub fn note_full(&self) {
        self.was_full.set(true);
    }

    fn taken(&self, bytes: usize) {
        self.held.set(self.held.get() - bytes as u64);
        self.budget.give(bytes as u64);
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.budget.give(self.held.get());
    }
}

/// The next bytes of a pipe. Slices of one pipe are taken in the order in which they were made.
#[derive(Debug)]
pub struct PipeSlice {
    pipe: Rc<Pipe>,
    left: u64,
}

impl PipeSlice {
    pub fn new(pipe: Rc<Pipe>, left: u64) -> Self {
        Self { pipe, left }
    }

    /// Adds bytes that came directly after it.
    pub fn extend(&mut self, bytes: u64) {
        self.left += bytes;
    }

    /// Bytes left.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.left
    }

    /// True if no bytes are left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// Leaves everything beyond the first `most` bytes in the pipe, which is unusable afterwards.
    pub fn truncate(&mut self, most: u64) {
        self.left = self.left.min(most);
    }

    /// Moves at most `most` bytes to a socket; `None` if it has no room. `more`: further bytes follow at once.
    ///
    /// # Errors
    /// The system's error for the socket.
    pub fn send(&mut self, socket: &OwnedFd, most: usize, more: bool) -> io::Result<Option<usize>> {
        let most = self.left.min(most as u64) as usize;
        let flags = if more { SpliceFlags::MORE } else { SpliceFlags::empty() };
        let splice = || rustix::pipe::splice(&self.pipe.read, None, socket, None, most, flags | SpliceFlags::NONBLOCK);
        let sent = match rustix::io::retry_on_intr(splice) {
            Ok(count) => Some(count),
            Err(Errno::AGAIN) => None,
            Err(error) => return Err(error.into()),
        };
        self.advance(sent.unwrap_or(0));
        Ok(sent)
    }

    /// Reads into `place`, which is not empty; returns at least one byte while some are left.
    ///
    /// # Errors
    /// The system's error; none is expected for a pipe that holds bytes.
    pub fn read(&mut self, place: &mut [u8]) -> io::Result<usize> {
        let most = place.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let read = rustix::io::retry_on_intr(|| rustix::io::read(&self.pipe.read, &mut place[..most]))?;
        self.advance(read);
        Ok(read)
    }

    fn advance(&mut self, bytes: usize) {
        self.left -= bytes as u64;
        self.pipe.taken(bytes);
    }
}
