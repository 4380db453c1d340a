//! One connection of the generator, and the request on it.

use super::answer::AnswerReader;
use super::job::{Protocol, SliceJob};
use super::streams::StreamSlots;
use super::transport::Transport;

/// The event that a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionPhase {
    /// A connection attempt: there is no connection.
    Vacant,
    /// The connection is established.
    Connecting,
    /// The proxy answers CONNECT.
    Tunnel,
    /// The TLS handshake is complete.
    Handshake,
    /// The socket takes more of the request.
    Sending,
    /// The first byte of the answer.
    Waiting,
    /// More of the answer.
    Body,
    /// Frames of its HTTP/2 streams.
    Streams,
    /// The server closes after a complete answer.
    Closing,
    /// The next request.
    Idle,
    /// No event: no requests are left.
    Retired,
}

/// Times of a request, ns since the start of the thread.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Timing {
    /// Due time.
    pub(super) due: u64,
    /// Time at which it was sent.
    pub(super) sent: u64,
    /// Time of the answer's first byte; 0 before.
    pub(super) first_byte: u64,
    /// Time to establish the connection for it; 0 on a kept one.
    pub(super) connect_time: u64,
}

/// The request on a connection of HTTP/1 or FastCGI.
#[derive(Debug, Default)]
pub(super) struct CurrentRequest {
    /// Index into the requests of the job.
    pub(super) index: usize,
    pub(super) timing: Timing,
    /// Bytes of it that are sent; in the tunnel phase, bytes of the CONNECT request.
    pub(super) sent_bytes: usize,
    /// Bytes of its answer.
    pub(super) received_bytes: u64,
}

/// A connection. Times are nanoseconds since the start of the thread.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) transport: Option<Transport>,
    pub(super) phase: ConnectionPhase,
    /// The interest that epoll has; `None` before the socket is registered.
    pub(super) interest: Option<Interest>,
    /// Start of the phase, or time of the last byte.
    pub(super) since: u64,
    /// Start of the connection attempt.
    pub(super) opened_at: u64,
    /// Answers on this connection.
    pub(super) used: u32,
    /// The proxy's answer to CONNECT so far.
    pub(super) tunnel_head: Vec<u8>,
    /// A request is assigned and not answered.
    pub(super) is_busy: bool,
    pub(super) current: CurrentRequest,
    pub(super) answer: AnswerReader,
    /// The requests of an HTTP/2 connection, in place of `current` and `answer`.
    pub(super) streams: Option<Box<StreamSlots>>,
}

/// Events that epoll reports of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interest {
    /// Its end alone: a slow reader reads by the clock.
    Nothing,
    Read,
    ReadWrite,
}

impl Connection {
    pub(super) fn new(job: &SliceJob) -> Self {
        let streams = || Box::new(StreamSlots::new(if job.keep_alive { job.streams } else { 1 }));
        Self {
            transport: None,
            phase: ConnectionPhase::Vacant,
            interest: None,
            since: 0,
            opened_at: 0,
            used: 0,
            tunnel_head: Vec::new(),
            is_busy: false,
            current: CurrentRequest::default(),
            answer: AnswerReader::new(job.protocol),
            streams: (job.protocol == Protocol::Http2).then(streams),
        }
    }

    /// Requests that it may carry at once.
    pub(super) fn slots(&self) -> usize {
        self.streams.as_ref().map_or(1, |streams| streams.slots())
    }

    /// Due times of the requests on it.
    pub(super) fn dues(&self) -> Vec<u64> {
        match &self.streams {
            Some(streams) => streams.dues(),
            None if self.is_busy => vec![self.current.timing.due],
            None => Vec::new(),
        }
    }

    /// Begins a request.
    pub(super) fn assign(&mut self, request: usize, due: u64, now: u64, protocol: Protocol) {
        self.is_busy = true;
        self.current.index = request;
        self.current.timing.due = due;
        self.current.timing.connect_time = 0;
        self.rewind(now, protocol);
    }

    /// Begins its requests again.
    pub(super) fn rewind(&mut self, now: u64, protocol: Protocol) {
        self.since = now;
        self.current.timing.sent = now;
        self.current.timing.first_byte = 0;
        self.current.sent_bytes = 0;
        self.current.received_bytes = 0;
        self.answer.expect(protocol);
        if let Some(streams) = &mut self.streams {
            streams.rewind(now);
        }
    }

    /// The interest after sending: TLS may hold bytes that the socket has not taken.
    pub(super) fn interest_after_sending(&self) -> Interest {
        match self.transport.as_ref().is_some_and(Transport::has_unsent) {
            true => Interest::ReadWrite,
            false => Interest::Read,
        }
    }

    /// Closes it, if it is open.
    pub(super) fn close(&mut self) {
        self.transport = None;
        self.interest = None;
        self.phase = ConnectionPhase::Vacant;
    }

    /// Closes it while the server may still be sending.
    pub(super) fn abandon(&mut self) {
        if let Some(transport) = self.transport.take() {
            transport.reset();
        }
        self.close();
    }
}
