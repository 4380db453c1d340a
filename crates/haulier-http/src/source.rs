//! Where the pieces of a body come from.

use std::os::fd::BorrowedFd;

/// Where content of a body may go at once.
#[derive(Debug)]
pub enum ReadInto<'p> {
    /// Behind what is in this memory.
    Memory(&'p mut Vec<u8>),
    /// Into a pipe, without a copy, if it is long.
    Pipe {
        /// Where it is written to.
        end: BorrowedFd<'p>,
        /// Most bytes it may be given, at least one.
        most: usize,
    },
}
