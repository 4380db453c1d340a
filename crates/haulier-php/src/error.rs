//! Errors of a pool: at its start, and of a request.

use haulier_http::Reason;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use haulier_proto::fastcgi::{HeadError, RecordError};
use haulier_upstream::LeaseError;

use crate::ended::Ended;
use crate::shown_duration::ShownDuration;

/// A pool did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The settings have no worker or no server.
    #[error("a pool needs at least one worker and one server")]
    Empty,
    /// The private directory of the sockets cannot be used.
    #[error("the socket directory {} cannot be used", path.display())]
    SocketDir {
        /// The directory.
        path: PathBuf,
        /// The system error.
        source: io::Error,
    },
    /// The listening socket cannot be created.
    #[error("cannot listen on {}", path.display())]
    Listen {
        /// The socket's path.
        path: PathBuf,
        /// The system error.
        source: io::Error,
    },
    /// PHP cannot be started.
    #[error("cannot start {}", php.display())]
    Spawn {
        /// The program.
        php: PathBuf,
        /// The system error.
        source: io::Error,
    },
    /// The pool runs as another account, and the spawner's list from before haulier left root does not have these
    /// settings.
    #[error("the pool of account `{user}` has changed since haulier left root: restart haulier")]
    NotAgreed {
        /// The account.
        user: String,
    },
    /// The pool's threads or their descriptors cannot be created.
    #[error("cannot start a thread for the pool")]
    Thread(#[source] io::Error),
}

/// A request got no response.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// Every worker stayed busy for the whole wait, or the queue was full (then `waited` is 0). No byte reached PHP: a
    /// 503 with Retry-After.
    #[error("no free PHP worker within {}", ShownDuration(*waited))]
    Exhausted {
        /// Time in the queue.
        waited: Duration,
    },
    /// The client disconnected while the request was in the queue. No byte reached PHP.
    #[error("the client left after {} in the queue", ShownDuration(*waited))]
    Abandoned {
        /// Time in the queue.
        waited: Duration,
    },
    /// The worker closed the connection before the end of the response. A 502 if nothing was sent to the client yet.
    #[error("{}", crash(*pid, *ended, *after))]
    Crashed {
        /// Process id, if known.
        pid: Option<u32>,
        /// Exit status, if the system reports it.
        ended: Option<Ended>,
        /// Time since the lease.
        after: Duration,
        /// The error of the system; `None` for a plain end of the stream.
        source: Option<io::Error>,
        /// The last lines of its stderr; lines of other workers of that time may be among them.
        stderr: String,
    },
    /// The response head was late, or the body paused for too long. The worker was ended; a 504 if nothing was sent to
    /// the client yet.
    #[error("{}", silence(*pid, *after))]
    Timeout {
        /// Id of the process that was ended, if known.
        pid: Option<u32>,
        /// The timeout of the pool that expired.
        after: Duration,
        /// The last lines of its stderr; lines of other workers of that time may be among them.
        stderr: String,
    },
    /// No server accepted a connection. No byte reached PHP; a 502.
    #[error("cannot connect to {server}")]
    Connect {
        /// The last server tried.
        server: String,
        /// The system error.
        source: io::Error,
    },
    /// The response is malformed as FastCGI or as CGI. A 502.
    #[error("malformed response from PHP: {why}")]
    BadResponse {
        /// The defect.
        why: BadResponse,
    },
    /// The request body could not be read from its file. The worker did not get all of it; a 500.
    #[error("the request body cannot be read")]
    RequestBody(#[source] io::Error),
    /// Our end of the connection to PHP failed, for example because no descriptor is left; a 502.
    #[error("the connection to PHP cannot be used")]
    Connection(#[source] io::Error),
    /// The pool is stopping; a 503.
    #[error("the pool is stopping")]
    Stopped,
}

fn crash(pid: Option<u32>, ended: Option<Ended>, after: Duration) -> String {
    let (worker, after) = (worker(pid), ShownDuration(after));
    match ended {
        Some(ended) => format!("{worker} ended by {ended} after {after}"),
        None => format!("{worker} closed the connection after {after}"),
    }
}

fn silence(pid: Option<u32>, after: Duration) -> String {
    format!("{} sent nothing for {}", worker(pid), ShownDuration(after))
}

fn worker(pid: Option<u32>) -> String {
    pid.map_or_else(
        || "the PHP worker".to_owned(),
        |pid| format!("the PHP worker with pid {pid}"),
    )
}

/// One attempt to get a response failed.
#[derive(Debug)]
pub(crate) enum AttemptError {
    /// The worker took no byte of the request.
    Unsent(io::Error),
    /// The stream ended before END_REQUEST.
    HungUp(Option<io::Error>),
    /// The response is malformed as FastCGI or as CGI.
    BadResponse(BadResponse),
    /// The response head did not arrive in time.
    TimedOut,
    /// The body file cannot be read.
    RequestBody(io::Error),
    /// Our end of the connection failed.
    Connection(io::Error),
}

/// A defect of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadResponse {
    /// In the head of the CGI response.
    #[error(transparent)]
    Head(#[from] HeadError),
    /// In the records around it.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The request ended without a complete head.
    #[error("the response ended before its head was complete")]
    NoHead,
    /// The application refused the request (FastCGI §5.5).
    #[error("the application refused the request with protocol status {0}")]
    Refused(u8),
    /// A record about a file came without a descriptor: this process can open no more, or the worker is broken.
    #[error("the descriptor of a file did not arrive; too many files may be open (`rlimits`, LimitNOFILE=)")]
    NoDescriptor,
    /// The descriptor is not that of a regular file, or there is no such part of it.
    #[error("the worker handed over a descriptor of something else than a file")]
    NotAFile,
    /// More descriptors than a worker of ours sends.
    #[error("the worker handed over more than {0} files")]
    TooManyFiles(usize),
}

impl PoolError {
    /// The last lines that the worker wrote to its stderr; empty if no worker has ended.
    pub fn stderr_tail(&self) -> &str {
        match self {
            Self::Crashed { stderr, .. } | Self::Timeout { stderr, .. } => stderr,
            _ => "",
        }
    }

    /// The reason for logs, metrics and error pages.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Exhausted { .. } => Reason::PoolFull,
            Self::Abandoned { .. } => Reason::ClientGone,
            Self::Crashed { .. } => Reason::PhpCrashed,
            Self::Timeout { .. } => Reason::PhpTimeout,
            Self::Connect { .. } => Reason::ConnectRefused,
            Self::BadResponse { .. } => Reason::BadResponse,
            Self::RequestBody(_) => Reason::RequestBodyLost,
            Self::Connection(_) => Reason::PhpConnection,
            Self::Stopped => Reason::PoolStopped,
        }
    }
}

impl From<LeaseError> for PoolError {
    fn from(error: LeaseError) -> Self {
        match error {
            LeaseError::Exhausted { waited } => Self::Exhausted { waited },
            LeaseError::Abandoned { waited } => Self::Abandoned { waited },
            LeaseError::Connect { server, source } => Self::Connect { server, source },
            LeaseError::Stopped => Self::Stopped,
        }
    }
}
