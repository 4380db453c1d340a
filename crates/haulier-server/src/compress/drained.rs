//! A body of PHP on its way to the spool, coded as it comes.
//!
//! What comes without a pause is held until it is complete and coded whole, which takes less time and fewer bytes; a
//! script that pauses, flushes or writes more than fits gets its pieces coded one after the other, each readable at
//! once. The coder lives for PHP's time, so there are never more of them than workers.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::num::NonZero;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use haulier_http::{BrokenBody, Charge, Compressed, ReadInto, Response};
use haulier_php::{Piece, PoolError, Response as PhpResponse, TryBody};
use haulier_proto::accept::Accepted;
use haulier_proto::copy;
use haulier_proto::field::Fields;
use haulier_proto::head::RequestHead;
use tokio::sync::Semaphore;

use super::codec::{self, CodecError, Dictionary, Encoder};
use super::file::Slow;
use super::load;
use super::policy::{self, Choice, Shape};
use super::{add_vary, counted, dictionary, is_negotiable, mark, reflected};
use crate::clock;
use crate::site::Site;

/// Most that is held of one body, bytes.
const MOST_HELD: usize = 8 * 1024 * 1024;
/// What one piece may bring beyond it, bytes.
const LONGEST: usize = 128 * 1024;
/// A script that says nothing for this long is waiting for something: what it said goes out.
const HOLD: Duration = Duration::from_millis(50);
/// Nobody waits longer than this for the first byte because a body is held.
const HOLD_ALL: Duration = Duration::from_millis(200);
/// Once a body goes out in pieces, a pause this long is a flush.
const FLUSH: Duration = Duration::from_millis(5);
/// A piece of a coded body worth sending, bytes.
const PIECE: usize = 16 * 1024;
/// Bytes coded before somebody else has a turn.
const TURN: usize = 64 * 1024;

/// How a body of PHP comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Faster than it could be sent.
    Fast,
    /// With pauses: what is there must go out.
    Paused,
    /// For as long as somebody listens.
    Endless,
}

/// A decision to code a body that still comes.
#[derive(Debug)]
pub(crate) struct Plan {
    choice: Choice,
    /// What the choice needs, if it is coded with one.
    dictionary: Option<Arc<Dictionary>>,
    manner: Manner,
    compressed: Arc<Compressed>,
    _right: Option<Slow>,
}

/// Decides on a body that still comes, and writes what it means into the response's fields.
pub(crate) fn plan(
    site: &Site,
    head: &RequestHead,
    response: &mut Response,
    length: Option<u64>,
    manner: Manner,
) -> Option<Plan> {
    let settings = &site.coding.settings;
    let status = response.status;
    let fields = response.head.fields_mut();
    if !settings.is_on() || !is_open(status) || is_negotiable(&site.coding, fields).is_err() {
        return None;
    }
    add_vary(fields);
    if length.is_some_and(|length| length < settings.min_size) || is_withheld(site, head, fields) {
        return None;
    }
    let load = load::now(clock::now());
    let shape = match manner {
        Manner::Endless => Shape::Endless,
        Manner::Fast | Manner::Paused => Shape::Long(length),
    };
    let accepted = Accepted::of(head.fields());
    let plain = policy::choose(settings, &accepted, shape, load);
    let (choice, dictionary) = match manner {
        Manner::Endless => (plain?, None),
        Manner::Fast | Manner::Paused => dictionary::choose(&site.coding, head, status, fields, &accepted, plain)?,
    };
    let right = match manner {
        Manner::Endless => Some(Slow::take()?),
        Manner::Fast | Manner::Paused => None,
    };
    mark(fields, choice.coding);
    let compressed = super::compressed(choice, load);
    response.trace.compressed = Some(Arc::clone(&compressed));
    Some(Plan {
        choice,
        dictionary,
        manner,
        compressed,
        _right: right,
    })
}

fn is_open(status: u16) -> bool {
    status != 206 && !haulier_proto::status::is_bodiless(status)
}

fn is_withheld(site: &Site, head: &RequestHead, fields: &Fields) -> bool {
    site.coding.settings.no_secrets && reflected::may_be_secret(fields, head)
}

/// The pieces of a body, coded if that was decided.
#[derive(Debug)]
pub(crate) struct Drained {
    answer: PhpResponse,
    /// Came before the answer went out.
    pieces: VecDeque<Bytes>,
    /// Bytes of the body as it goes out, if they are known.
    length: Option<u64>,
    /// Bytes PHP announced and did not send yet; counted where the length that goes out is another.
    announced: Option<u64>,
    state: State,
}

#[derive(Debug)]
enum State {
    Plain,
    /// The body as far as it came, in one piece: coding that takes a quarter less time than coding one after the other.
    Holding(Plan, Vec<u8>, Charge, Instant),
    /// With the coder, and whether something is in it that has not come out.
    Coding(Plan, Box<Encoder>, bool),
    Ended,
}

/// What came next from PHP.
enum Next {
    Piece(Bytes),
    Pause,
    End,
}

/// What came next behind a body that is held.
enum More {
    Bytes,
    Later,
    Nothing,
}

impl Drained {
    /// A body as PHP makes it; `pieces` came already, `length` is what PHP announced, bytes.
    pub(crate) fn plain(answer: PhpResponse, pieces: Vec<Bytes>, length: Option<u64>) -> Self {
        Self {
            answer,
            pieces: pieces.into(),
            length,
            announced: None,
            state: State::Plain,
        }
    }

    /// A body that is coded; `length` is what PHP announced, bytes.
    ///
    /// # Errors
    /// The coder refused; the response must not be sent as it was decided.
    pub(crate) fn coded(
        site: &Arc<Site>,
        answer: PhpResponse,
        pieces: Vec<Bytes>,
        length: Option<u64>,
        plan: Plan,
    ) -> Result<Self, CodecError> {
        let state = if plan.manner == Manner::Fast {
            State::Holding(
                plan,
                Vec::new(),
                Charge::new(site.spool.memory()),
                clock::now() + HOLD_ALL,
            )
        } else {
            let encoder = Encoder::with(plan.choice, plan.dictionary.as_deref(), length)?;
            State::Coding(plan, Box::new(encoder), false)
        };
        Ok(Self {
            answer,
            pieces: pieces.into(),
            length: None,
            announced: length,
            state,
        })
    }

    /// Bytes of the body as it goes out, if they are known before its end.
    pub(crate) fn length(&self) -> Option<u64> {
        self.length
    }

    /// Time a worker was or is busy with it.
    pub(crate) fn worker_time(&self) -> Duration {
        self.answer.worker_time()
    }

    /// Logs what the script wrote to its error log while the body came.
    pub(crate) fn log_stderr(&mut self) {
        self.answer.log_stderr();
    }

    /// Nobody reads any more: what still comes is not coded.
    pub(crate) fn abandon(&mut self) {
        self.state = State::Plain;
        self.announced = None;
    }

    /// Whether what comes next are long pieces that nobody here has to see: [`poll_piece`](Self::poll_piece) is for them.
    pub(crate) fn has_long_pieces(&self) -> bool {
        matches!(self.state, State::Plain) && self.pieces.is_empty() && self.answer.has_long_pieces()
    }

    /// The next of them, in its place if there is one.
    ///
    /// # Errors
    /// As for [`body`](Self::body).
    pub(crate) fn poll_piece(
        &mut self,
        context: &mut Context<'_>,
        place: Option<ReadInto<'_>>,
    ) -> Poll<Result<Option<Piece>, BrokenBody>> {
        self.answer.poll_piece(context, place).map_err(broke_off)
    }

    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// PHP broke off, or sent less than it announced. What went wrong is in the log.
    pub(crate) async fn body(&mut self) -> Result<Option<Bytes>, BrokenBody> {
        loop {
            match std::mem::replace(&mut self.state, State::Ended) {
                State::Ended => return Ok(None),
                State::Plain => {
                    self.state = State::Plain;
                    return match self.pieces.pop_front() {
                        Some(piece) => Ok(Some(piece)),
                        None => self.answer.body().await.map_err(broke_off),
                    };
                }
                State::Holding(plan, held, budget, until) => {
                    if let Some(whole) = self.hold(plan, held, budget, until).await? {
                        return Ok(Some(whole));
                    }
                }
                State::Coding(plan, encoder, dirty) => {
                    let piece = self.code(plan, encoder, dirty).await?;
                    if !piece.is_empty() {
                        return Ok(Some(piece.into()));
                    }
                }
            }
        }
    }

    /// Takes one more piece of a body that is held; the coded body when it was the last.
    async fn hold(
        &mut self,
        plan: Plan,
        mut held: Vec<u8>,
        mut budget: Charge,
        until: Instant,
    ) -> Result<Option<Bytes>, BrokenBody> {
        if held.capacity() == 0 {
            // Room for all there may be, so that nothing moves: what is not written takes no memory.
            held.reserve(MOST_HELD + LONGEST);
        }
        let before = held.len();
        match self.next_into(&mut held).await? {
            More::Bytes => {
                let fits = held.len() < MOST_HELD && budget.grow((held.len() - before) as u64);
                self.state = if fits && clock::now() < until {
                    State::Holding(plan, held, budget, until)
                } else {
                    self.release(plan, held)?
                };
                Ok(None)
            }
            More::Later => {
                self.state = self.release(plan, held)?;
                Ok(None)
            }
            More::Nothing => {
                self.check_end()?;
                code_whole(plan, held).await.map(Some)
            }
        }
    }

    /// Lays the next piece behind what is held, waiting [`HOLD`] for it.
    async fn next_into(&mut self, held: &mut Vec<u8>) -> Result<More, BrokenBody> {
        let before = held.len();
        let piece = match self.pieces.pop_front() {
            Some(piece) => Some(Piece::Bytes(piece)),
            None => {
                let next = poll_fn(|context| self.answer.poll_piece(context, Some(ReadInto::Memory(held))));
                match tokio::time::timeout(HOLD, next).await {
                    Ok(piece) => piece.map_err(broke_off)?,
                    Err(_) => return Ok(More::Later),
                }
            }
        };
        match piece {
            None => return Ok(More::Nothing),
            Some(Piece::Bytes(piece)) => copy::append(held, &piece),
            Some(Piece::Placed(_)) => {}
        }
        let length = self.count(held.len() - before);
        held.truncate(before + length);
        Ok(More::Bytes)
    }

    /// Goes over to pieces; what was held are the first.
    fn release(&mut self, mut plan: Plan, held: Vec<u8>) -> Result<State, BrokenBody> {
        let total = self.announced.map(|rest| rest + held.len() as u64);
        let encoder = Encoder::with(plan.choice, plan.dictionary.as_deref(), total).map_err(refused)?;
        plan.manner = Manner::Paused;
        self.announced = total;
        let held = Bytes::from(held);
        for start in (0..held.len()).step_by(TURN).rev() {
            self.pieces.push_front(held.slice(start..held.len().min(start + TURN)));
        }
        Ok(State::Coding(plan, Box::new(encoder), false))
    }

    /// Codes what comes until there is enough to send, a pause, or the end.
    async fn code(&mut self, plan: Plan, mut encoder: Box<Encoder>, mut dirty: bool) -> Result<Vec<u8>, BrokenBody> {
        let mut out = Vec::new();
        let mut taken = 0;
        let pause = match plan.manner {
            Manner::Endless => Duration::ZERO,
            Manner::Fast | Manner::Paused => FLUSH,
        };
        loop {
            let next = match self.next_within(pause).await? {
                // Everything is out: whatever comes next, it will take its time.
                Next::Pause if !dirty => self.next().await?,
                next => next,
            };
            match next {
                Next::Piece(piece) => {
                    plan.run(piece.len(), &mut out, |out| encoder.write(&piece, out))?;
                    dirty = true;
                    taken += piece.len();
                    if out.len() >= PIECE || taken >= TURN {
                        if taken >= TURN {
                            taken = 0;
                            tokio::task::yield_now().await;
                        }
                        if !out.is_empty() {
                            break;
                        }
                    }
                }
                Next::Pause => {
                    plan.run(0, &mut out, |out| encoder.flush(out))?;
                    dirty = false;
                    break;
                }
                Next::End => {
                    self.check_end()?;
                    plan.run(0, &mut out, |out| encoder.finish(out))?;
                    return Ok(out);
                }
            }
        }
        self.state = State::Coding(plan, encoder, dirty);
        Ok(out)
    }

    async fn next_within(&mut self, pause: Duration) -> Result<Next, BrokenBody> {
        if let Some(piece) = self.pieces.pop_front() {
            return Ok(self.counted(piece));
        }
        let next = match self.answer.try_body().map_err(broke_off)? {
            TryBody::Chunk(piece) => Some(piece),
            TryBody::Complete => None,
            TryBody::Pending if pause.is_zero() => return Ok(Next::Pause),
            TryBody::Pending => match tokio::time::timeout(pause, self.answer.body()).await {
                Ok(piece) => piece.map_err(broke_off)?,
                Err(_) => return Ok(Next::Pause),
            },
        };
        Ok(next.map_or(Next::End, |piece| self.counted(piece)))
    }

    async fn next(&mut self) -> Result<Next, BrokenBody> {
        let piece = self.answer.body().await.map_err(broke_off)?;
        Ok(piece.map_or(Next::End, |piece| self.counted(piece)))
    }

    fn counted(&mut self, mut piece: Bytes) -> Next {
        piece.truncate(self.count(piece.len()));
        Next::Piece(piece)
    }

    /// How much of what came is of the body: what is longer than PHP announced never was.
    fn count(&mut self, came: usize) -> usize {
        let Some(rest) = &mut self.announced else { return came };
        let counted = came.min(usize::try_from(*rest).unwrap_or(usize::MAX));
        *rest -= counted as u64;
        counted
    }

    fn check_end(&self) -> Result<(), BrokenBody> {
        if self.announced.is_some_and(|rest| rest > 0) {
            tracing::error!("body of PHP shorter than its Content-Length");
            return Err(BrokenBody { reason: "bad_response" });
        }
        Ok(())
    }
}

impl Plan {
    fn run(
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

/// The right to code a large body: as many at once as there are processors. More of them take turns, and find what they
/// had in the cache gone each time: four at once on one processor cost 8 % more than one after the other.
static LARGE: LazyLock<Semaphore> =
    LazyLock::new(|| Semaphore::new(std::thread::available_parallelism().map_or(1, NonZero::get)));
/// A body from which on that matters, bytes. Others are done before their turn is over.
const LARGE_BODY: usize = 1024 * 1024;

/// Codes a complete body on a thread that may take its time.
async fn code_whole(plan: Plan, held: Vec<u8>) -> Result<Bytes, BrokenBody> {
    let is_large = held.len() >= LARGE_BODY;
    let _right = if is_large { LARGE.acquire().await.ok() } else { None };
    let choice = plan.choice;
    let dictionary = plan.dictionary.clone();
    let compressed = Arc::clone(&plan.compressed);
    let coding = tokio::task::spawn_blocking(move || {
        counted(
            &compressed,
            held.len(),
            || codec::whole_with(choice, dictionary.as_deref(), &held).map(trimmed),
            |coded| coded.as_ref().map_or(0, Vec::len),
        )
    });
    let coded = coding.await.map_err(|_| BrokenBody {
        reason: "compress_failed",
    })?;
    coded.map(Bytes::from).map_err(refused)
}

/// Without the room that a coder asks for where most of it stayed empty: the body may wait long for its client. Else what
/// is moved costs more than what is given back, which nobody has written to, is worth.
fn trimmed(mut coded: Vec<u8>) -> Vec<u8> {
    if coded.capacity() / 4 > coded.len() {
        coded.shrink_to_fit();
    }
    coded
}

fn refused(error: CodecError) -> BrokenBody {
    tracing::error!(%error, "cannot go on compressing a response");
    BrokenBody {
        reason: "compress_failed",
    }
}

#[allow(clippy::needless_pass_by_value, reason = "the shape map_err wants")]
fn broke_off(error: PoolError) -> BrokenBody {
    tracing::error!(reason = error.reason(), %error, "php broke off in the middle of a response");
    BrokenBody { reason: error.reason() }
}
