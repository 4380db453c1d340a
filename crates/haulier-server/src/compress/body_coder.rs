//! A coder between the source of a body and the spool.
//!
//! A body without pauses is held until it is complete and coded whole, which takes less time and fewer bytes. A body
//! with pauses or flushes, or too long to be held, is coded piece by piece, each readable at once. A coder lives as
//! long as its source, so there are never more coders than workers, besides those of files that workers handed over.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::num::NonZero;
use std::sync::{Arc, LazyLock};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use haulier_http::{
    BodySource, BrokenBody, Charge, Compressed, FileSlice, Piece, ReadInto, ReadNow, ReadPiece, Reason, Response,
};
use haulier_proto::accept::Accepted;
use haulier_proto::copy;
use haulier_proto::field::Fields;
use haulier_proto::head::RequestHead;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::codec::{self, CodecError, Dictionary, Encoder};
use super::file::CoderPermit;
use super::load;
use super::policy::{self, BodyExtent, Choice};
use super::{SiteCoding, add_vary, counted, dictionary, is_negotiable, mark, reflected};
use crate::body::gather::bytes_of;
use crate::body::hold::{Hold, MOST_FOR_CODING, Pacing};
use crate::body::transfer::{SpoolWriter, Transfer};
use crate::clock;

/// Most bytes of one piece beyond those held.
const LONGEST_PIECE: usize = 128 * 1024;
/// Once a body is sent in pieces, a pause this long causes a flush.
const FLUSH: Duration = Duration::from_millis(5);
/// Least bytes of a coded piece to send.
const PIECE: usize = 16 * 1024;
/// Bytes coded before the task yields.
const TURN: usize = 64 * 1024;

/// A coder for one body.
#[derive(Debug)]
pub(crate) struct BodyCoder {
    choice: Choice,
    /// The dictionary, if the choice needs one.
    dictionary: Option<Arc<Dictionary>>,
    pacing: Pacing,
    /// The encoder of a body that is coded piece by piece.
    encoder: Option<Box<Encoder>>,
    compressed: Arc<Compressed>,
    _permit: Option<CoderPermit>,
}

/// Decides on coding a body that is still being made, and sets the fields of the response accordingly.
pub(crate) fn decide(
    site: &SiteCoding,
    head: &RequestHead,
    response: &mut Response,
    length: Option<u64>,
    pacing: Pacing,
) -> Option<BodyCoder> {
    let settings = &site.settings;
    let status = response.status;
    let fields = response.head.fields_mut();
    if !settings.is_on() || !is_open(status) || is_negotiable(site, fields).is_err() {
        return None;
    }
    add_vary(fields);
    if length.is_some_and(|length| length < settings.min_size) || is_withheld(site, head, fields) {
        return None;
    }
    let load = load::now(clock::now());
    let extent = match pacing {
        Pacing::Endless => BodyExtent::Endless,
        Pacing::Fast | Pacing::Paused => BodyExtent::Long(length),
    };
    let accepted = Accepted::of(head.fields());
    let plain = policy::choose(settings, &accepted, extent, load);
    let (choice, dictionary) = match pacing {
        Pacing::Endless => (plain?, None),
        Pacing::Fast | Pacing::Paused => dictionary::choose(site, head, status, fields, &accepted, plain)?,
    };
    let permit = match pacing {
        Pacing::Endless => Some(CoderPermit::take()?),
        Pacing::Fast | Pacing::Paused => None,
    };
    let mut coder = BodyCoder {
        choice,
        dictionary,
        pacing,
        encoder: None,
        compressed: super::compressed(choice, load),
        _permit: permit,
    };
    if pacing != Pacing::Fast {
        // It may fail, and the body can still be sent uncoded now.
        coder.encoder = Some(coder.new_encoder(length).ok()?);
    }
    mark(fields, choice.coding);
    response.trace.compressed = Some(Arc::clone(&coder.compressed));
    Some(coder)
}

fn is_open(status: u16) -> bool {
    status != 206 && !haulier_proto::status::is_bodiless(status)
}

fn is_withheld(site: &SiteCoding, head: &RequestHead, fields: &Fields) -> bool {
    site.settings.no_secrets && reflected::may_be_secret(fields, head)
}

impl Transfer for BodyCoder {
    fn length(&self, _: &impl BodySource) -> Option<u64> {
        None
    }

    async fn run<S: BodySource>(mut self, source: &mut S, spool: &mut SpoolWriter) -> Result<(), BrokenBody> {
        let mut input = Input::new(source);
        if self.pacing == Pacing::Fast {
            let mut charge = Charge::new(&spool.memory());
            let mut held = Vec::new();
            if hold(&mut input, &mut held, &mut charge).await? {
                let coded = code_whole(self, held).await?;
                drop(charge);
                spool.push(coded).await;
                return Ok(());
            }
            input.put_back(&held.into());
            self.pacing = Pacing::Paused;
            self.encoder = Some(self.new_encoder(input.announced)?);
        }
        self.code(&mut input, spool).await
    }
}

/// Collects a body in memory while [`Hold::for_coding`] and the budget allow: coding it in one piece takes a quarter
/// less time. Returns true if it is complete.
async fn hold<S: BodySource>(
    input: &mut Input<'_, S>,
    held: &mut Vec<u8>,
    charge: &mut Charge,
) -> Result<bool, BrokenBody> {
    let mut hold = Hold::for_coding(clock::now());
    // Reserved for the longest body, so that nothing is moved; untouched memory costs nothing.
    held.reserve(MOST_FOR_CODING + LONGEST_PIECE);
    loop {
        if input.needs_turn() {
            held.shrink_to_fit();
            input.turn = take_turn().await;
            held.reserve(MOST_FOR_CODING + LONGEST_PIECE);
            hold = Hold::for_coding(clock::now());
        }
        let before = held.len();
        let wait = hold.wait(clock::now());
        match tokio::time::timeout(wait, input.next_into(held)).await {
            Err(_) => return Ok(false),
            Ok(next) => {
                if !next? {
                    input.check_end()?;
                    return Ok(true);
                }
            }
        }
        let fits = charge.grow((held.len() - before) as u64);
        if !fits || hold.judge(held.len(), 0, clock::now).is_some() {
            return Ok(false);
        }
    }
}

impl BodyCoder {
    /// Codes piece by piece until the end.
    async fn code<S: BodySource>(
        mut self,
        input: &mut Input<'_, S>,
        spool: &mut SpoolWriter,
    ) -> Result<(), BrokenBody> {
        let mut encoder = match self.encoder.take() {
            Some(encoder) => encoder,
            None => self.new_encoder(input.announced)?,
        };
        let pause = match self.pacing {
            Pacing::Endless => Duration::ZERO,
            Pacing::Fast | Pacing::Paused => FLUSH,
        };
        let mut out = Vec::new();
        // `is_dirty`: the encoder holds bytes not yet flushed. `taken`: bytes since the last yield.
        let (mut is_dirty, mut taken) = (false, 0);
        loop {
            let next = match input.next_within(pause).await? {
                // Everything is flushed, so the next piece may take its time.
                Next::Pause if !is_dirty => input.next().await?,
                next => next,
            };
            let is_due = match next {
                Next::Piece(piece) => {
                    self.encode(piece.len(), &mut out, |out| encoder.write(&piece, out))?;
                    is_dirty = true;
                    taken += piece.len();
                    let is_over = taken >= TURN;
                    if is_over {
                        taken = 0;
                        tokio::task::yield_now().await;
                    }
                    is_over || out.len() >= PIECE
                }
                Next::Pause => {
                    self.encode(0, &mut out, |out| encoder.flush(out))?;
                    is_dirty = false;
                    true
                }
                Next::End => break,
            };
            if is_due && !out.is_empty() {
                taken = 0;
                spool.push(std::mem::take(&mut out).into()).await;
            }
            if spool.is_abandoned() {
                return Ok(());
            }
        }
        input.check_end()?;
        self.encode(0, &mut out, |out| encoder.finish(out))?;
        if !out.is_empty() {
            spool.push(out.into()).await;
        }
        Ok(())
    }
}

/// Files that are coded at a time. A worker that hands its file over is free at once, so the number of workers does not
/// limit them; each coder holds up to a megabyte.
const FILES_AT_ONCE: usize = 16;
static FILES_AT_WORK: Semaphore = Semaphore::const_new(FILES_AT_ONCE);

async fn take_turn() -> Option<SemaphorePermit<'static>> {
    FILES_AT_WORK.acquire().await.ok()
}

/// The uncoded body.
struct Input<'s, S> {
    source: &'s mut S,
    /// Pieces that were held, and come first.
    ahead: VecDeque<Bytes>,
    /// The rest of a piece that is in a file; it comes next.
    file: Option<FileSlice>,
    /// One of [`FILES_AT_ONCE`], while the file is read.
    turn: Option<SemaphorePermit<'static>>,
    /// Announced bytes that have not come yet.
    announced: Option<u64>,
}

/// The next event of the source.
enum Next {
    Piece(Bytes),
    Pause,
    End,
}

impl<'s, S: BodySource> Input<'s, S> {
    fn new(source: &'s mut S) -> Self {
        Self {
            announced: source.length(),
            source,
            ahead: VecDeque::new(),
            file: None,
            turn: None,
        }
    }

    /// Appends the next piece to `held`; `false` at the end of the body.
    async fn next_into(&mut self, held: &mut Vec<u8>) -> Result<bool, BrokenBody> {
        let before = held.len();
        if let Some(part) = self.next_of_file().await? {
            copy::append(held, &part);
        } else {
            let read = poll_fn(|context| self.source.poll_read(context, ReadInto::Memory(held))).await?;
            match read {
                None => return Ok(false),
                Some(ReadPiece::Piece(Piece::File(slice))) => self.file = Some(slice),
                Some(ReadPiece::Piece(piece)) => copy::append(held, &bytes_of(piece)?),
                Some(ReadPiece::Placed(_)) => {}
            }
        }
        let length = self.count(held.len() - before);
        held.truncate(before + length);
        Ok(true)
    }

    /// Puts back bytes that were read.
    fn put_back(&mut self, held: &Bytes) {
        self.announced = self.announced.map(|rest| rest + held.len() as u64);
        for start in (0..held.len()).step_by(TURN) {
            self.ahead.push_back(held.slice(start..held.len().min(start + TURN)));
        }
    }

    async fn next_within(&mut self, pause: Duration) -> Result<Next, BrokenBody> {
        if let Some(piece) = self.ahead.pop_front() {
            return Ok(self.counted(piece));
        }
        if self.file.is_some() {
            return self.next().await;
        }
        match self.source.try_piece() {
            Poll::Ready(piece) => self.took(piece?).await,
            Poll::Pending if pause.is_zero() => Ok(Next::Pause),
            Poll::Pending => match tokio::time::timeout(pause, self.next()).await {
                Ok(next) => next,
                Err(_) => Ok(Next::Pause),
            },
        }
    }

    async fn next(&mut self) -> Result<Next, BrokenBody> {
        if let Some(part) = self.next_of_file().await? {
            return Ok(self.counted(part));
        }
        let piece = poll_fn(|context| self.source.poll_piece(context)).await?;
        self.took(piece).await
    }

    async fn took(&mut self, piece: Option<Piece>) -> Result<Next, BrokenBody> {
        let bytes = match piece {
            None => return Ok(Next::End),
            Some(Piece::File(slice)) => {
                self.file = Some(slice);
                self.next_of_file().await?.unwrap_or_default()
            }
            Some(piece) => bytes_of(piece)?,
        };
        Ok(self.counted(bytes))
    }

    /// True if a file comes next and may not be read yet.
    fn needs_turn(&self) -> bool {
        self.file.is_some() && self.turn.is_none()
    }

    /// The next part of the file that is read, at most [`TURN`] bytes. A blocking thread waits for the disk.
    async fn next_of_file(&mut self) -> Result<Option<Bytes>, BrokenBody> {
        let Some(slice) = self.file.as_mut().filter(|slice| !slice.is_empty()) else {
            return Ok(None);
        };
        if self.turn.is_none() {
            self.turn = take_turn().await;
        }
        let mut part = vec![0; slice.len().min(TURN as u64) as usize];
        let mut read = slice.read_now(&mut part, false);
        if let ReadNow::Cold = read {
            let cold = slice.clone();
            _ = tokio::task::spawn_blocking(move || cold.read_ahead(TURN as u64)).await;
            read = slice.read_now(&mut part, true);
        }
        let ReadNow::Bytes(length) = read else {
            return Err(BrokenBody {
                reason: Reason::FileError,
            });
        };
        slice.range.start += length as u64;
        part.truncate(length);
        if slice.is_empty() {
            (self.file, self.turn) = (None, None);
        }
        Ok(Some(part.into()))
    }

    fn counted(&mut self, mut piece: Bytes) -> Next {
        piece.truncate(self.count(piece.len()));
        Next::Piece(piece)
    }

    /// The number of these bytes that belong to the body, which ends at its announced length.
    fn count(&mut self, came: usize) -> usize {
        let Some(rest) = &mut self.announced else { return came };
        let counted = came.min(usize::try_from(*rest).unwrap_or(usize::MAX));
        *rest -= counted as u64;
        counted
    }

    fn check_end(&self) -> Result<(), BrokenBody> {
        if self.announced.is_some_and(|rest| rest > 0) {
            tracing::error!("body shorter than its Content-Length");
            return Err(BrokenBody {
                reason: Reason::BadResponse,
            });
        }
        Ok(())
    }
}

impl BodyCoder {
    /// An encoder for a body of this length, if known.
    fn new_encoder(&self, length: Option<u64>) -> Result<Box<Encoder>, BrokenBody> {
        let encoder = Encoder::with(self.choice, self.dictionary.as_deref(), length);
        encoder.map(Box::new).map_err(refused)
    }

    /// Runs the encoder and records its time and the bytes before and after.
    fn encode(
        &self,
        taken: usize,
        out: &mut Vec<u8>,
        code: impl FnOnce(&mut Vec<u8>) -> Result<(), CodecError>,
    ) -> Result<(), BrokenBody> {
        let before = out.len();
        let made = counted(
            &self.compressed,
            taken,
            || code(out).map(|()| out.len() - before),
            |made| made.unwrap_or(0),
        );
        made.map(|_| ()).map_err(refused)
    }
}

/// Permits for coding large bodies, one for each processor. More of them at once evict one another's cache lines: four
/// on one processor cost 8 % more than one after the other.
static LARGE: LazyLock<Semaphore> =
    LazyLock::new(|| Semaphore::new(std::thread::available_parallelism().map_or(1, NonZero::get)));
/// Least length of a large body, bytes. Shorter ones end within a time slice.
const LARGE_BODY: usize = 1024 * 1024;

/// Codes a complete body on a blocking thread.
async fn code_whole(coder: BodyCoder, held: Vec<u8>) -> Result<Bytes, BrokenBody> {
    let is_large = held.len() >= LARGE_BODY;
    let _right = if is_large { LARGE.acquire().await.ok() } else { None };
    let choice = coder.choice;
    let dictionary = coder.dictionary.clone();
    let compressed = Arc::clone(&coder.compressed);
    let coding = tokio::task::spawn_blocking(move || {
        counted(
            &compressed,
            held.len(),
            || codec::whole_with(choice, dictionary.as_deref(), &held).map(trimmed),
            |coded| coded.as_ref().map_or(0, Vec::len),
        )
    });
    let coded = coding.await.map_err(|_| BrokenBody {
        reason: Reason::CompressFailed,
    })?;
    coded.map(Bytes::from).map_err(refused)
}

/// Gives back the unused room of the output if most of it is unused, since the body may wait long for its client.
/// Otherwise moving costs more than the untouched room is worth.
fn trimmed(mut coded: Vec<u8>) -> Vec<u8> {
    if coded.capacity() / 4 > coded.len() {
        coded.shrink_to_fit();
    }
    coded
}

fn refused(error: CodecError) -> BrokenBody {
    tracing::error!(%error, "compression of a response failed halfway");
    BrokenBody {
        reason: Reason::CompressFailed,
    }
}
