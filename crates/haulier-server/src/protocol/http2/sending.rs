//! Sending of a response on one stream, turn by turn.

use std::io;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use haulier_http::{Body, FileSlice, Piece, PipeSlice, ReadNow, Request, Trace};
use haulier_proto::h2::connection::Connection as Machine;

use super::super::active_transfer::ActiveTransfer;
use super::super::exact_body::ExactBody;
use crate::metrics::InFlight;
use crate::site::Site;

/// Bytes of a body sent on one stream before other streams get a turn.
const TURN: usize = 64 * 1024;
/// Bytes to read ahead of a file that is not in the page cache.
const AHEAD: u64 = 256 * 1024;

/// The rest of a response, and its data for the log.
#[derive(Debug)]
pub(super) struct Sending {
    /// `None` for the refusal of a malformed request.
    pub(super) request: Option<Request>,
    pub(super) site: Option<Arc<Site>>,
    pub(super) status: u16,
    pub(super) trace: Trace,
    /// Bytes in the output so far, with frame headers; those of them that the metrics have counted.
    pub(super) sent: u64,
    pub(super) counted: u64,
    /// Those of them in the body.
    pub(super) body_sent: u64,
    /// The current piece of the body.
    piece: Option<Piece>,
    /// No piece follows.
    is_last: bool,
    /// The next part of a file is being read ahead.
    is_reading: bool,
    /// The next part was just read ahead and need not be checked again.
    read_ahead: bool,
    /// Counts it as a response that did not fit one turn.
    pub(super) sending: Option<InFlight>,
    /// Counts the request as active in its site until dropped.
    _in_flight: Option<InFlight>,
    /// Lists the response if it takes long.
    pub(super) active_transfer: Option<ActiveTransfer>,
    /// Length of the body, if known.
    pub(super) length: Option<u64>,
}

/// The result of a turn.
#[derive(Debug)]
pub(super) enum StreamStep {
    /// The whole response is in the output.
    Done,
    /// The piece is in the output; the source has more.
    Taken,
    /// The turn is over, the window is used up, or the file is still being read: the stream comes back.
    Waiting,
    /// The file is not in the page cache; the number is that of bytes to read ahead.
    Cold(FileSlice, u64),
    /// The stream was reset.
    Gone,
    /// The file became shorter, or cannot be read.
    Broken(io::Error),
}

impl Sending {
    pub(super) fn new(
        request: Option<Request>,
        site: Option<Arc<Site>>,
        in_flight: Option<InFlight>,
        status: u16,
        trace: Trace,
    ) -> Self {
        Self {
            request,
            site,
            status,
            trace,
            sent: 0,
            counted: 0,
            body_sent: 0,
            piece: None,
            is_last: true,
            is_reading: false,
            read_ahead: false,
            sending: None,
            _in_flight: in_flight,
            active_transfer: None,
            length: None,
        }
    }

    /// Loads a body after its first `skip` bytes. A body that comes in pieces is returned.
    pub(super) fn load(&mut self, body: Body, skip: usize) -> Option<ExactBody> {
        let in_memory = |slice: &FileSlice| slice.in_memory_bytes();
        match body {
            Body::Empty | Body::Unsent(_) => {}
            Body::Bytes(bytes) => self.piece = Some(Piece::Bytes(bytes)),
            Body::File(slice) => self.piece = Some(in_memory(&slice).map_or(Piece::File(slice), Piece::Bytes)),
            Body::Stream(source) => {
                self.is_last = false;
                return Some(ExactBody::new(source));
            }
        }
        if let Some(Piece::Bytes(bytes)) = &mut self.piece {
            bytes.advance(skip);
        }
        None
    }

    /// Loads the next piece of a source; it is not empty.
    pub(super) fn load_piece(&mut self, piece: Piece) {
        self.piece = Some(piece);
    }

    pub(super) fn has_piece(&self) -> bool {
        self.piece.is_some()
    }

    /// Notes that the next part was just read ahead.
    pub(super) fn note_read_ahead(&mut self) {
        self.is_reading = false;
        self.read_ahead = true;
    }

    /// The bytes sent since the metrics last counted them.
    pub(super) fn uncounted(&mut self) -> u64 {
        self.sent - std::mem::replace(&mut self.counted, self.sent)
    }

    /// Sends one turn of the current piece.
    pub(super) fn step(&mut self, machine: &mut Machine, stream: u32) -> StreamStep {
        if self.is_reading {
            return StreamStep::Waiting;
        }
        let before = machine.output().len();
        let step = match self.piece.take() {
            None => StreamStep::Taken,
            Some(Piece::Bytes(bytes)) => self.step_bytes(machine, stream, bytes),
            Some(Piece::File(slice)) => self.step_file(machine, stream, slice),
            Some(Piece::Pipe(slice)) => self.step_pipe(machine, stream, slice),
        };
        self.sent += (machine.output().len() - before) as u64;
        match step {
            StreamStep::Taken if self.is_last => StreamStep::Done,
            step => step,
        }
    }

    fn step_bytes(&mut self, machine: &mut Machine, stream: u32, mut bytes: Bytes) -> StreamStep {
        let turn = bytes.len().min(TURN);
        let ends = turn == bytes.len();
        let Some(sent) = machine.send_data(stream, &bytes[..turn], ends && self.is_last) else {
            return StreamStep::Gone;
        };
        self.body_sent += sent as u64;
        bytes.advance(sent);
        if bytes.is_empty() {
            return StreamStep::Taken;
        }
        machine.queue(stream);
        self.piece = Some(Piece::Bytes(bytes));
        StreamStep::Waiting
    }

    fn step_file(&mut self, machine: &mut Machine, stream: u32, mut slice: FileSlice) -> StreamStep {
        let mut left = TURN;
        while left > 0 {
            let most = left;
            let may_wait = self.read_ahead;
            let read = machine.send_frame(stream, slice.len() as usize, self.is_last, |place| {
                let most = place.len().min(most);
                match slice.read_now(&mut place[..most], may_wait) {
                    ReadNow::Bytes(count) => Ok(count),
                    cold_or_broken => Err(cold_or_broken),
                }
            });
            let sent = match read {
                Ok(Some(sent)) => sent,
                Ok(None) => return StreamStep::Gone,
                Err(ReadNow::Broken(error)) => return StreamStep::Broken(error),
                Err(_) => {
                    self.is_reading = true;
                    self.piece = Some(Piece::File(slice.clone()));
                    return StreamStep::Cold(slice, AHEAD);
                }
            };
            slice.range.start += sent as u64;
            self.body_sent += sent as u64;
            left -= sent;
            if slice.is_empty() {
                self.read_ahead = false;
                return StreamStep::Taken;
            }
            if sent == 0 {
                break;
            }
        }
        self.read_ahead = false;
        machine.queue(stream);
        self.piece = Some(Piece::File(slice));
        StreamStep::Waiting
    }

    fn step_pipe(&mut self, machine: &mut Machine, stream: u32, mut slice: PipeSlice) -> StreamStep {
        let mut left = TURN;
        while left > 0 && !slice.is_empty() {
            let (rest, most) = (slice.len() as usize, left);
            let sent = machine.send_frame(stream, rest, self.is_last, |place| {
                let most = place.len().min(most);
                slice.read(&mut place[..most])
            });
            match sent {
                Ok(Some(0)) => break,
                Ok(Some(sent)) => {
                    self.body_sent += sent as u64;
                    left -= sent;
                }
                Ok(None) => return StreamStep::Gone,
                Err(error) => return StreamStep::Broken(error),
            }
        }
        if slice.is_empty() {
            return StreamStep::Taken;
        }
        machine.queue(stream);
        self.piece = Some(Piece::Pipe(slice));
        StreamStep::Waiting
    }
}
