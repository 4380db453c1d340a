//! Bytes of a body that stay where PHP's write put them: pages of the kernel, lined up in a pipe.
//!
//! splice(2) moves them from PHP's socket into the pipe and from there to the client's, and copies none of them. Where
//! somebody has to see them, to encrypt them for instance, they are read.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags};

use crate::budget::Budget;
use crate::source::ReadInto;

/// Most bytes in one pipe.
const MOST: u64 = 512 * 1024;
/// A pipe that was full takes more once no more than this is left in it, bytes. With less room than that a body would come
/// in crumbs.
const LOW: u64 = 128 * 1024;
/// Room that is asked of the kernel, bytes: it counts pieces as if each were a page of four KiB, and those of PHP's records
/// are eight to nine. Without privileges the pipes of an account may have 64 MiB of such room.
const ROOM: usize = 256 * 1024;
/// What is asked of the budget before it is known how much comes, bytes: the longest content of a record.
const STEP: u64 = 64 * 1024;

/// A pipe whose both ends are ours.
#[derive(Debug)]
pub struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    /// What its bytes are charged to.
    budget: Arc<Budget>,
    /// Bytes in it, charged to the budget.
    held: Cell<u64>,
    /// Nothing goes in before it is nearly empty.
    was_full: Cell<bool>,
}

impl Pipe {
    /// An empty one, whose bytes are charged to this budget.
    ///
    /// # Errors
    /// There are no descriptors left, or the account has too many pipes.
    pub fn new(budget: &Arc<Budget>) -> io::Result<Self> {
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

    /// Has `fill` put more in, as much as pipe and budget allow; it says how many bytes it was. `None` if there is no
    /// room.
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

    /// The kernel had no room for another piece.
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

    /// So many bytes more that came behind it.
    pub fn extend(&mut self, bytes: u64) {
        self.left += bytes;
    }

    /// Bytes left.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.left
    }

    /// Whether nothing is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// Leaves what is beyond the first `most` bytes in the pipe, which is of no use afterwards.
    pub fn truncate(&mut self, most: u64) {
        self.left = self.left.min(most);
    }

    /// Moves at most `most` bytes to a socket; `None` if it has no room. `more`: further bytes follow at once.
    ///
    /// # Errors
    /// What the system says of the socket.
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

    /// Reads into `place`, which is not empty; at least one byte while some are left.
    ///
    /// # Errors
    /// What the system says; nothing is expected of a pipe that holds bytes.
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
