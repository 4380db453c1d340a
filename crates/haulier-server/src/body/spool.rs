//! A response between a fast script and a slow client.
//!
//! A task takes the body from PHP as fast as PHP makes it, into memory first and then into a file without a name, and
//! the worker is free. What a script passes on in long pieces stays in the kernel's memory, in a pipe. The client gets
//! it at its own pace, the file part by sendfile(2). Only when all budgets are used up does PHP wait for the client.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use haulier_http::{Body, BodyStream, BrokenBody, Budget, Charge, Chunk, FileSlice, OpenFile, Pipe, PipeSlice};
use haulier_php::Piece;
use tokio::task::AbortHandle;

use super::request::nameless;
use crate::compress::drained::Drained;
use crate::seldom::Seldom;
use crate::site::Site;
use crate::thread::Thread;

/// Memory the short pieces of one response may take before it goes to disk.
const MEMORY_OF_ONE: u64 = 256 * 1024;
/// The same of all spooled responses of a site.
const MEMORY_OF_ALL: u64 = 32 * 1024 * 1024;
/// A longer piece is a body that was made in memory as a whole, bytes: it is charged by itself.
const SHORT: u64 = 192 * 1024;

/// What the spooled responses of a site take now, bytes.
#[derive(Debug)]
pub(crate) struct SpoolBudget {
    /// In pieces that come and go.
    memory: Arc<Budget>,
    /// In bodies that lie in memory as a whole: in pipes, and coded ones.
    long: Arc<Budget>,
    /// In files.
    disk: Arc<Budget>,
    /// Responses that found all budgets used up.
    full: AtomicU64,
}

impl SpoolBudget {
    pub(crate) fn new(most_long: u64, most_disk: u64) -> Self {
        Self {
            memory: Budget::new(MEMORY_OF_ALL),
            long: Budget::new(most_long),
            disk: Budget::new(most_disk),
            full: AtomicU64::new(0),
        }
    }

    /// Memory for short pieces, and for bodies that are held until they can be coded whole.
    pub(crate) fn memory(&self) -> &Arc<Budget> {
        &self.memory
    }

    /// Bytes of long bodies in memory now.
    pub(crate) fn in_memory(&self) -> u64 {
        self.long.used()
    }

    /// Bytes in files now.
    pub(crate) fn on_disk(&self) -> u64 {
        self.disk.used()
    }

    /// How many responses had to wait for their clients.
    pub(crate) fn times_full(&self) -> u64 {
        self.full.load(Ordering::Relaxed)
    }
}

/// Said now and then, however many answers it concerns.
static FAILURES: Seldom = Seldom::new();
static FULL: Seldom = Seldom::new();

/// What the task and the client share. Both live on the same thread.
#[derive(Debug)]
struct Queue {
    site: Arc<Site>,
    spool_dir: PathBuf,
    chunks: VecDeque<Chunk>,
    /// Bytes of short pieces that may stay in memory; 0 where all is to become a file.
    most_memory: u64,
    /// Bytes of short pieces in memory; they are charged to the site.
    memory: u64,
    pipe: PipePlace,
    file: Option<Arc<OpenFile>>,
    /// Bytes in `file`, charged to the site until it is gone.
    file_length: u64,
    /// The file could not be written: no more of this body is laid there.
    has_failed: bool,
    end: Option<Result<(), BrokenBody>>,
    /// PHP waits for the client: there is no room.
    is_full: bool,
    /// The client is gone: what still comes is thrown away, so that the worker is free when PHP says so.
    is_abandoned: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// The pipe of a response that may have one.
#[derive(Debug)]
enum PipePlace {
    /// It is made when it is needed.
    Possible,
    Open(Rc<Pipe>),
    /// The response is to be a file, or there was no pipe to be had.
    None,
}

impl Queue {
    fn new(site: &Arc<Site>, thread: &Thread, most_memory: u64) -> Self {
        Self {
            site: Arc::clone(site),
            spool_dir: thread.serving().settings.spool_dir.clone(),
            chunks: VecDeque::new(),
            most_memory,
            memory: 0,
            pipe: PipePlace::Possible,
            file: None,
            file_length: 0,
            has_failed: false,
            end: None,
            is_full: false,
            is_abandoned: false,
            reader: None,
            writer: None,
        }
    }

    /// Lays a piece into memory, else into the file; gives it back if there is no room.
    fn push(&mut self, piece: Bytes) -> Result<(), Bytes> {
        let length = piece.len() as u64;
        let fits = self.memory + length <= self.most_memory;
        let is_long = length > SHORT && self.most_memory > 0;
        if is_long && self.site.spool.long.take(length) {
            self.chunks.push_back(Chunk::Bytes(Bytes::from_owner(Lasting {
                bytes: piece,
                _charge: Charge::of_taken(&self.site.spool.long, length),
            })));
        } else if fits && !is_long && self.site.spool.memory.take(length) {
            self.memory += length;
            self.chunks.push_back(Chunk::Bytes(piece));
        } else if !self.has_failed && self.site.spool.disk.take(length) {
            match self.write(&piece) {
                Ok(slice) => self.append_slice(slice),
                Err(error) => {
                    self.site.spool.disk.give(length);
                    self.has_failed = true;
                    if let Some(times) = FAILURES.due() {
                        let (site, directory) = (&self.site.settings.name, self.spool_dir.display());
                        tracing::warn!(site, %directory, %error, times, "cannot spool a response: PHP waits for the client");
                    }
                    return Err(piece);
                }
            }
        } else {
            return Err(piece);
        }
        self.wake_reader();
        Ok(())
    }

    /// Lays a piece into memory whatever the budget says: the client has nothing else left to read.
    fn push_over_budget(&mut self, mut piece: Bytes) {
        let length = piece.len() as u64;
        self.site.spool.memory.overdraw(length);
        self.memory += length;
        while !piece.is_empty() {
            let short = piece.split_to(piece.len().min(SHORT as usize));
            self.chunks.push_back(Chunk::Bytes(short));
        }
        self.wake_reader();
    }

    /// Where long pieces may go without a copy.
    fn pipe(&mut self) -> Option<Rc<Pipe>> {
        if let PipePlace::Possible = self.pipe {
            if !self.site.spool.long.has_room() {
                return None;
            }
            self.pipe = Pipe::new(&self.site.spool.long).map_or(PipePlace::None, |pipe| PipePlace::Open(Rc::new(pipe)));
        }
        match &self.pipe {
            PipePlace::Open(pipe) => Some(Rc::clone(pipe)),
            PipePlace::Possible | PipePlace::None => None,
        }
    }

    /// So many bytes were put into the pipe.
    fn append_piped(&mut self, pipe: &Rc<Pipe>, length: u64) {
        match self.chunks.back_mut() {
            Some(Chunk::Pipe(last)) => last.extend(length),
            _ => self
                .chunks
                .push_back(Chunk::Pipe(PipeSlice::new(Rc::clone(pipe), length))),
        }
        self.wake_reader();
    }

    fn write(&mut self, piece: &[u8]) -> io::Result<FileSlice> {
        let file = match &self.file {
            Some(file) => file,
            None => self.file.insert(Arc::new(OpenFile::new(nameless(&self.spool_dir)?, 0))),
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
        match self.chunks.back_mut() {
            Some(Chunk::File(last)) if last.range.end == slice.range.start => last.range.end = slice.range.end,
            _ => self.chunks.push_back(Chunk::File(slice)),
        }
    }

    fn pop(&mut self) -> Option<Chunk> {
        let chunk = self.chunks.pop_front()?;
        if let Chunk::Bytes(bytes) = &chunk
            && bytes.len() as u64 <= SHORT
        {
            self.memory -= bytes.len() as u64;
            self.site.spool.memory.give(bytes.len() as u64);
        }
        if let Some(writer) = self.writer.take() {
            writer.wake();
        }
        Some(chunk)
    }

    fn finish(&mut self, end: Result<(), BrokenBody>) {
        self.end.get_or_insert(end);
        // What is in it still has it.
        self.pipe = PipePlace::None;
        self.wake_reader();
    }

    /// The whole body as one file, if it is complete and nothing of it went elsewhere.
    fn take_file(&mut self) -> Option<OpenFile> {
        let is_whole =
            matches!(&self.chunks.make_contiguous()[..], [Chunk::File(slice)] if slice.range == (0..self.file_length));
        if self.end != Some(Ok(())) || !is_whole {
            return None;
        }
        self.chunks.clear();
        let file = Arc::into_inner(self.file.take()?)?;
        let length = std::mem::take(&mut self.file_length);
        let charge = Charge::of_taken(&self.site.spool.disk, length);
        Some(OpenFile::new(file.into_file(), length).charged(charge))
    }

    fn wake_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    /// The file goes, and the budget has its room back.
    fn give_up_file(&mut self) {
        self.file = None;
        let length = std::mem::take(&mut self.file_length);
        self.site.spool.disk.give(length);
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.site.spool.memory.give(self.memory);
        self.give_up_file();
    }
}

/// A long body in memory with its charge, which lasts as long as somebody holds it.
#[derive(Debug)]
struct Lasting {
    bytes: Bytes,
    _charge: Charge,
}

impl AsRef<[u8]> for Lasting {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The client's end of a spooled response.
#[derive(Debug)]
pub(crate) struct Spool {
    queue: Rc<RefCell<Queue>>,
    /// Bytes of the whole body, if PHP said so.
    length: Option<u64>,
    is_endless: bool,
    task: AbortHandle,
}

impl Spool {
    /// A body that is drained from PHP while the client reads.
    pub(crate) fn drain(site: &Arc<Site>, thread: &Thread, body: Drained, busy: Arc<AtomicU64>) -> Self {
        Self::start(Queue::new(site, thread, MEMORY_OF_ONE), body, busy, false)
    }

    /// A body that goes out as it comes; the script runs for as long as the client listens.
    pub(crate) fn live(site: &Arc<Site>, thread: &Thread, body: Drained, busy: Arc<AtomicU64>) -> Self {
        Self::start(Queue::new(site, thread, MEMORY_OF_ONE), body, busy, true)
    }

    /// A body that is to become a file as a whole: [`Spool::complete`] waits for that.
    pub(crate) fn file(site: &Arc<Site>, thread: &Thread, body: Drained, busy: Arc<AtomicU64>) -> Self {
        let mut queue = Queue::new(site, thread, 0);
        queue.pipe = PipePlace::None;
        Self::start(queue, body, busy, false)
    }

    fn start(queue: Queue, body: Drained, busy: Arc<AtomicU64>, is_endless: bool) -> Self {
        let length = body.length();
        let queue = Rc::new(RefCell::new(queue));
        let draining = Draining {
            body,
            busy,
            queue: Rc::clone(&queue),
        };
        let task = tokio::task::spawn_local(draining.run()).abort_handle();
        Self {
            queue,
            length,
            is_endless,
            task,
        }
    }

    /// Waits for the end of the body, or until there is no room for the rest of it.
    ///
    /// # Errors
    /// PHP broke off, or ended short of the length it had announced.
    pub(crate) async fn complete(mut self, patience: Duration) -> Result<Completed, BrokenBody> {
        let ended = poll_fn(|context| {
            let mut queue = self.queue.borrow_mut();
            if queue.end.is_some() || queue.is_full {
                return Poll::Ready(());
            }
            queue.reader = Some(context.waker().clone());
            Poll::Pending
        });
        let _ = tokio::time::timeout(patience, ended).await;
        let queue = Rc::clone(&self.queue);
        let mut queue = queue.borrow_mut();
        if let Some(Err(broken)) = queue.end {
            return Err(broken);
        }
        if queue.end.is_none() {
            return Ok(Completed::NotYet(self));
        }
        let came = queue.chunks.iter().map(Chunk::len).sum();
        let length = *self.length.get_or_insert(came);
        if came < length {
            return Err(BrokenBody { reason: "bad_response" });
        }
        Ok(match queue.take_file() {
            Some(mut file) => {
                file.truncate(length);
                Completed::File(Arc::new(file))
            }
            None => Completed::Pieces(self),
        })
    }

    /// Bytes that came so far and nobody took yet.
    pub(crate) fn waiting(&self) -> u64 {
        self.queue.borrow().chunks.iter().map(Chunk::len).sum()
    }
}

/// What waiting for a body came to.
#[derive(Debug)]
pub(crate) enum Completed {
    /// All of it.
    File(Arc<OpenFile>),
    /// All of it, in several places.
    Pieces(Spool),
    /// The rest is still to come.
    NotYet(Spool),
}

impl From<Spool> for Body {
    fn from(spool: Spool) -> Self {
        Self::Stream(Box::new(spool))
    }
}

impl BodyStream for Spool {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Chunk>, BrokenBody>> {
        let mut queue = self.queue.borrow_mut();
        if let Some(chunk) = queue.pop() {
            return Poll::Ready(Ok(Some(chunk)));
        }
        match queue.end {
            Some(Ok(())) => Poll::Ready(Ok(None)),
            Some(Err(broken)) => Poll::Ready(Err(broken)),
            None => {
                queue.reader = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    fn length(&self) -> Option<u64> {
        self.length
    }

    fn is_endless(&self) -> bool {
        self.is_endless
    }
}

impl Drop for Spool {
    /// Nobody reads any more. The rest of a body is taken and thrown away: a worker that still runs must not count as
    /// free. The script of an event stream would never end so; it is told by its connection.
    fn drop(&mut self) {
        if self.is_endless {
            self.task.abort();
            return;
        }
        let mut queue = self.queue.borrow_mut();
        queue.is_abandoned = true;
        queue.pipe = PipePlace::None;
        while queue.pop().is_some() {}
        queue.give_up_file();
    }
}

/// Most that is taken of a body nobody reads, bytes. A script that goes on beyond it is told by its connection.
pub(crate) const MOST_ABANDONED: usize = 64 * 1024 * 1024;

/// PHP's end of a spooled response.
struct Draining {
    body: Drained,
    busy: Arc<AtomicU64>,
    queue: Rc<RefCell<Queue>>,
}

impl Draining {
    async fn run(mut self) {
        let queue = Rc::clone(&self.queue);
        let mut warned = false;
        let mut thrown_away = 0;
        while thrown_away <= MOST_ABANDONED {
            let next = if self.body.has_long_pieces() {
                poll_fn(|context| self.poll_long_piece(context)).await
            } else {
                self.body.body().await.map(|piece| piece.map(Piece::Bytes))
            };
            match next {
                Ok(Some(Piece::Bytes(piece))) if queue.borrow().is_abandoned => {
                    self.body.abandon();
                    thrown_away += piece.len();
                }
                Ok(Some(Piece::Bytes(piece))) => push(&queue, piece, &mut warned).await,
                Ok(Some(Piece::Placed(_))) => {}
                Ok(None) => return queue.borrow_mut().finish(Ok(())),
                Err(broken) => return queue.borrow_mut().finish(Err(broken)),
            }
        }
    }
}

impl Draining {
    /// The next piece, which is in the queue already if it went into its pipe.
    fn poll_long_piece(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Piece>, BrokenBody>> {
        let mut queue = self.queue.borrow_mut();
        let Some(pipe) = queue.pipe() else {
            return self.body.poll_piece(context, None);
        };
        let filled = pipe.fill(|place| {
            let piece = self.body.poll_piece(context, Some(place));
            let piped = match &piece {
                Poll::Ready(Ok(Some(Piece::Placed(length)))) => {
                    queue.append_piped(&pipe, *length as u64);
                    *length
                }
                Poll::Ready(Ok(Some(Piece::Bytes(_)))) => {
                    pipe.note_full();
                    0
                }
                _ => 0,
            };
            (piece, piped)
        });
        filled.unwrap_or_else(|| self.body.poll_piece(context, None))
    }
}

impl Drop for Draining {
    /// However the task ends, the client is not left waiting.
    fn drop(&mut self) {
        self.busy
            .store(self.body.worker_time().as_micros() as u64, Ordering::Relaxed);
        self.body.log_stderr();
        self.queue.borrow_mut().finish(Err(BrokenBody { reason: "aborted" }));
    }
}

/// Lays a piece into the queue; waits for the client if the budgets are used up.
async fn push(queue: &RefCell<Queue>, piece: Bytes, warned: &mut bool) {
    let mut waiting = Some(piece);
    poll_fn(|context| {
        let mut queue = queue.borrow_mut();
        let Some(piece) = waiting.take().filter(|_| !queue.is_abandoned) else {
            return Poll::Ready(());
        };
        match queue.push(piece) {
            Ok(()) => Poll::Ready(()),
            Err(piece) if queue.chunks.is_empty() => {
                queue.push_over_budget(piece);
                Poll::Ready(())
            }
            Err(piece) => {
                if !std::mem::replace(warned, true) {
                    queue.site.spool.full.fetch_add(1, Ordering::Relaxed);
                    if let Some(times) = FULL.due() {
                        let site = &queue.site.settings.name;
                        tracing::warn!(site, times, "spool_full: PHP waits for a slow client");
                    }
                }
                waiting = Some(piece);
                queue.is_full = true;
                queue.wake_reader();
                queue.writer = Some(context.waker().clone());
                Poll::Pending
            }
        }
    })
    .await;
}
