//! The pieces of a spooled body between the task that reads it and its client.

use std::collections::VecDeque;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use haulier_http::{BrokenBody, Charge, FileSlice, OpenFile, Piece, Pipe, PipeSlice};
use haulier_proto::field::Fields;

use super::budget::SpoolBudget;
use super::hold::{LONGEST_SHORT_PIECE, PieceStorage};
use super::request::nameless;
use super::spool::SpoolRoom;
use crate::log_throttle::LogThrottle;

/// Throttled, since many bodies may fail at once.
static FAILURES: LogThrottle = LogThrottle::new();

/// State shared by task and client, on the same thread.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) budget: Arc<SpoolBudget>,
    /// Directory of the file.
    directory: PathBuf,
    pieces: VecDeque<Piece>,
    /// Most bytes of short pieces in memory; 0 if the body is to become one file.
    most_memory: u64,
    /// Bytes of short pieces in memory, charged to the site.
    memory: u64,
    pipe: PipeState,
    file: Option<Arc<OpenFile>>,
    /// Bytes in `file`, charged to the site until it is closed.
    file_length: u64,
    /// The file could not be written; it takes no more of this body.
    has_failed: bool,
    pub(super) end: Option<Result<(), BrokenBody>>,
    /// Trailers of the source, once it has ended.
    pub(super) trailers: Option<Fields>,
    /// The source waits for the client to make room.
    pub(super) is_full: bool,
    /// The client is gone: the rest is discarded, so that the worker is free once the script ends.
    pub(super) is_abandoned: bool,
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
}

/// The pipe of a response.
#[derive(Debug)]
enum PipeState {
    /// Created when it is needed.
    Possible,
    Open(Rc<Pipe>),
    /// The body is to become one file, or no pipe could be created.
    None,
}

impl Queue {
    /// An empty queue; `most_memory` is 0 if the body is to become one file.
    pub(super) fn new(room: SpoolRoom, most_memory: u64) -> Self {
        Self {
            budget: room.budget,
            directory: room.directory,
            pieces: VecDeque::new(),
            most_memory,
            memory: 0,
            pipe: if most_memory > 0 {
                PipeState::Possible
            } else {
                PipeState::None
            },
            file: None,
            file_length: 0,
            has_failed: false,
            end: None,
            trailers: None,
            is_full: false,
            is_abandoned: false,
            reader: None,
            writer: None,
        }
    }

    /// Stores a piece in memory, else in the file; gives it back if there is no room.
    pub(super) fn push(&mut self, piece: Bytes) -> Result<(), Bytes> {
        let length = piece.len() as u64;
        match PieceStorage::of(length, self.memory, self.most_memory) {
            PieceStorage::Long if self.budget.long.take(length) => {
                let charge = Charge::of_taken(&self.budget.long, length);
                let lasting = ChargedBytes {
                    bytes: piece,
                    _charge: charge,
                };
                self.pieces.push_back(Piece::Bytes(Bytes::from_owner(lasting)));
            }
            PieceStorage::Short if self.budget.memory.take(length) => {
                self.memory += length;
                self.pieces.push_back(Piece::Bytes(piece));
            }
            PieceStorage::Long | PieceStorage::Short | PieceStorage::File => self.push_to_file(piece)?,
        }
        self.wake_reader();
        Ok(())
    }

    fn push_to_file(&mut self, piece: Bytes) -> Result<(), Bytes> {
        let length = piece.len() as u64;
        if self.has_failed || !self.budget.disk.take(length) {
            return Err(piece);
        }
        match self.write(&piece) {
            Ok(slice) => self.append_slice(slice),
            Err(error) => {
                self.budget.disk.give(length);
                self.has_failed = true;
                if let Some(times) = FAILURES.due() {
                    let (site, directory) = (&self.budget.site, self.directory.display());
                    tracing::warn!(site, %directory, %error, times, "cannot spool a response: the back end waits for the client");
                }
                return Err(piece);
            }
        }
        Ok(())
    }

    /// Appends a piece that is in a file or pipe of its own.
    pub(super) fn push_as_it_is(&mut self, piece: Piece) {
        self.pieces.push_back(piece);
        self.wake_reader();
    }

    /// Stores a piece in memory beyond the budget: the client has nothing else to read.
    pub(super) fn push_over_budget(&mut self, mut piece: Bytes) {
        let length = piece.len() as u64;
        self.budget.memory.overdraw(length);
        self.memory += length;
        while !piece.is_empty() {
            let short = piece.split_to(piece.len().min(LONGEST_SHORT_PIECE as usize));
            self.pieces.push_back(Piece::Bytes(short));
        }
        self.wake_reader();
    }

    /// The pipe that takes long pieces without a copy.
    pub(super) fn pipe(&mut self) -> Option<Rc<Pipe>> {
        if let PipeState::Possible = self.pipe {
            if !self.budget.long.has_room() {
                return None;
            }
            self.pipe = Pipe::new(&self.budget.long).map_or(PipeState::None, |pipe| PipeState::Open(Rc::new(pipe)));
        }
        match &self.pipe {
            PipeState::Open(pipe) => Some(Rc::clone(pipe)),
            PipeState::Possible | PipeState::None => None,
        }
    }

    /// Appends `length` bytes that are in the pipe.
    pub(super) fn append_piped(&mut self, pipe: &Rc<Pipe>, length: u64) {
        match self.pieces.back_mut() {
            Some(Piece::Pipe(last)) => last.extend(length),
            _ => self
                .pieces
                .push_back(Piece::Pipe(PipeSlice::new(Rc::clone(pipe), length))),
        }
        self.wake_reader();
    }

    fn write(&mut self, piece: &[u8]) -> io::Result<FileSlice> {
        let file = match &self.file {
            Some(file) => file,
            None => self.file.insert(Arc::new(OpenFile::new(nameless(&self.directory)?, 0))),
        };
        file.file().write_all_at(piece, self.file_length)?;
        let start = self.file_length;
        self.file_length += piece.len() as u64;
        Ok(FileSlice {
            file: Arc::clone(file),
            range: start..self.file_length,
        })
    }

    fn append_slice(&mut self, slice: FileSlice) {
        match self.pieces.back_mut() {
            Some(Piece::File(last)) if continues(last, &slice) => last.range.end = slice.range.end,
            _ => self.pieces.push_back(Piece::File(slice)),
        }
    }

    pub(super) fn pop(&mut self) -> Option<Piece> {
        let piece = self.pieces.pop_front()?;
        if let Piece::Bytes(bytes) = &piece
            && bytes.len() as u64 <= LONGEST_SHORT_PIECE
        {
            self.memory -= bytes.len() as u64;
            self.budget.memory.give(bytes.len() as u64);
        }
        if let Some(writer) = self.writer.take() {
            writer.wake();
        }
        Some(piece)
    }

    /// Bytes that the client has not taken.
    pub(super) fn waiting(&self) -> u64 {
        self.pieces.iter().map(Piece::len).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Drops everything, since the client has gone.
    pub(super) fn abandon(&mut self) {
        self.is_abandoned = true;
        self.pipe = PipeState::None;
        while self.pop().is_some() {}
        self.give_up_file();
    }

    pub(super) fn finish(&mut self, end: Result<(), BrokenBody>) {
        self.end.get_or_insert(end);
        // Pieces that are in the pipe still hold it.
        self.pipe = PipeState::None;
        self.wake_reader();
    }

    /// The whole body as one file, if it is complete and entirely in the file.
    pub(super) fn take_file(&mut self) -> Option<OpenFile> {
        let Some(file) = &self.file else { return None };
        let is_whole = matches!(
            &self.pieces.make_contiguous()[..],
            [Piece::File(slice)] if Arc::ptr_eq(&slice.file, file) && slice.range == (0..self.file_length)
        );
        if self.end != Some(Ok(())) || !is_whole {
            return None;
        }
        self.pieces.clear();
        let file = Arc::into_inner(self.file.take()?)?;
        let length = std::mem::take(&mut self.file_length);
        let charge = Charge::of_taken(&self.budget.disk, length);
        Some(OpenFile::new(file.into_file(), length).charged(charge))
    }

    pub(super) fn wake_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    /// Closes the file and returns its bytes to the budget.
    pub(super) fn give_up_file(&mut self) {
        self.file = None;
        let length = std::mem::take(&mut self.file_length);
        self.budget.disk.give(length);
    }
}

/// True if the second slice follows the first one in the same file, which need not be the spool's.
fn continues(first: &FileSlice, second: &FileSlice) -> bool {
    Arc::ptr_eq(&first.file, &second.file) && first.range.end == second.range.start
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.budget.memory.give(self.memory);
        self.give_up_file();
    }
}

/// A long body in memory with its charge.
#[derive(Debug)]
struct ChargedBytes {
    bytes: Bytes,
    _charge: Charge,
}

impl AsRef<[u8]> for ChargedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
