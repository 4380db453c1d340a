//! One place of the generator: a connection, and the request that is on it.

use super::answer::Answer;
use super::job::{Job, Protocol};
use super::streams::Streams;
use super::transport::Transport;

/// What a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// There is no connection, or one that is given up.
    Vacant,
    /// For the connection to stand.
    Connecting,
    /// For the proxy to make the way.
    Tunnel,
    /// For TLS.
    Handshake,
    /// For room to send.
    Sending,
    /// For the first byte.
    Waiting,
    /// For more of the answer.
    Body,
    /// For whatever its streams bring.
    Streams,
    /// For the server to close after a complete answer.
    Closing,
    /// For the next request.
    Idle,
    /// For nothing: all requests are given out.
    Retired,
}

/// Times are nanoseconds since the start of the thread.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) transport: Option<Transport>,
    pub(super) phase: Phase,
    /// What epoll was asked for last; `None` before it knows the descriptor.
    pub(super) interest: Option<Interest>,
    /// When the phase began, or the last byte came or went.
    pub(super) since: u64,
    /// When the connection was begun.
    pub(super) began: u64,
    /// When the request was due.
    pub(super) due: u64,
    /// When its first byte was sent.
    pub(super) sent: u64,
    /// When the first byte of the answer came; 0 before.
    pub(super) first_byte: u64,
    /// How long the connection took for this request; 0 on a kept one.
    pub(super) connect_time: u64,
    /// Place of the request in the job.
    pub(super) request: usize,
    /// A request is assigned and not answered.
    pub(super) is_busy: bool,
    /// Bytes of it that are sent; in the tunnel phase, of the CONNECT request.
    pub(super) offset: usize,
    /// Bytes of the answer that a slow reader took.
    pub(super) taken: u64,
    /// Answers on this connection.
    pub(super) used: u32,
    /// What the proxy said so far.
    pub(super) tunnel: Vec<u8>,
    pub(super) answer: Answer,
    /// Of HTTP/2 alone, where each slot has its request.
    pub(super) streams: Option<Box<Streams>>,
}

/// What epoll tells of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interest {
    /// Only its end: a slow reader looks when his time has come.
    Nothing,
    Read,
    ReadWrite,
}

impl Connection {
    pub(super) fn new(job: &Job) -> Self {
        let streams = || Box::new(Streams::new(if job.keep_alive { job.streams } else { 1 }));
        Self {
            transport: None,
            phase: Phase::Vacant,
            interest: None,
            since: 0,
            began: 0,
            due: 0,
            sent: 0,
            first_byte: 0,
            connect_time: 0,
            request: 0,
            is_busy: false,
            offset: 0,
            taken: 0,
            used: 0,
            tunnel: Vec::new(),
            answer: Answer::new(job.protocol),
            streams: (job.protocol == Protocol::Http2).then(streams),
        }
    }

    /// Requests that may be on it at once.
    pub(super) fn slots(&self) -> usize {
        self.streams.as_ref().map_or(1, |streams| streams.slots())
    }

    /// When each of the requests was due that are on it.
    pub(super) fn dues(&self) -> Vec<u64> {
        match &self.streams {
            Some(streams) => streams.dues(),
            None if self.is_busy => vec![self.due],
            None => Vec::new(),
        }
    }

    /// A request begins on it.
    pub(super) fn assign(&mut self, request: usize, due: u64, now: u64, protocol: Protocol) {
        self.request = request;
        self.is_busy = true;
        self.due = due;
        self.connect_time = 0;
        self.rewind(now, protocol);
    }

    /// The request that is on it begins anew.
    pub(super) fn rewind(&mut self, now: u64, protocol: Protocol) {
        self.sent = now;
        self.since = now;
        self.first_byte = 0;
        self.offset = 0;
        self.taken = 0;
        self.answer.expect(protocol);
        if let Some(streams) = &mut self.streams {
            streams.rewind(now);
        }
    }

    /// Closes it, if it is open.
    pub(super) fn close(&mut self) {
        self.transport = None;
        self.interest = None;
        self.phase = Phase::Vacant;
    }

    /// Closes it while the server may still be sending.
    pub(super) fn abandon(&mut self) {
        if let Some(transport) = self.transport.take() {
            transport.reset();
        }
        self.close();
    }
}
