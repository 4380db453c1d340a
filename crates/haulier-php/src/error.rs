//! Why a pool does not start, and why it gives no answer.

use haulier_http::Reason;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use haulier_proto::fastcgi::{HeadError, RecordError};
use haulier_upstream::LeaseError;

use crate::ended::Ended;
use crate::shown_duration::ShownDuration;

/// Why a pool did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The settings leave nothing to work with.
    #[error("a pool needs at least one worker and one server")]
    Empty,
    /// The private directory for the socket cannot be used.
    #[error("the socket directory {} cannot be used", path.display())]
    SocketDir {
        /// The directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The listening socket cannot be made.
    #[error("cannot listen on {}", path.display())]
    Listen {
        /// The socket's path.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// PHP cannot be started.
    #[error("cannot start {}", php.display())]
    Spawn {
        /// The program.
        php: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The pool runs as another account, and these settings were not in the spawner's list when haulier left root.
    #[error("what haulier starts as `{user}` was settled when it left root, and this is not it")]
    NotAgreed {
        /// The account.
        user: String,
    },
    /// No thread for the pool.
    #[error("cannot start a thread for the pool")]
    Thread(#[source] io::Error),
}

/// Why the pool gave no response.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// Every worker stayed busy for the whole wait, or the queue was full (then `waited` is 0). Nothing reached PHP: a
    /// 503 with Retry-After.
    #[error("no free PHP worker within {}", ShownDuration(*waited))]
    Exhausted {
        /// Time that the request stood in the queue.
        waited: Duration,
    },
    /// The client was gone when its turn came. Nothing reached PHP.
    #[error("the client left after {} in the queue", ShownDuration(*waited))]
    Abandoned {
        /// Time that the request stood in the queue.
        waited: Duration,
    },
    /// The worker closed the connection before it was done. A 502 if nothing was sent to the client yet.
    #[error("{}", crash(*pid, *ended, *after))]
    Crashed {
        /// The process, if it was known.
        pid: Option<u32>,
        /// How it ended, if the system tells.
        ended: Option<Ended>,
        /// Time since the worker was taken.
        after: Duration,
        /// The error of the system; `None` for a plain end of the stream.
        source: Option<io::Error>,
        /// The last lines of its stderr, those of other workers of that time among them.
        stderr: String,
    },
    /// No response head in time, or a long silence in the middle of the body. The worker was ended; a 504 if nothing was
    /// sent to the client yet.
    #[error("{}", silence(*pid, *after))]
    Timeout {
        /// The process that was ended, if it was known.
        pid: Option<u32>,
        /// The limit of the pool that was reached.
        after: Duration,
        /// The last lines of its stderr, those of other workers of that time among them.
        stderr: String,
    },
    /// No server took the connection. Nothing reached PHP; a 502.
    #[error("cannot connect to {server}")]
    Connect {
        /// The last server tried.
        server: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The response is not FastCGI or not CGI. A 502.
    #[error("PHP sent no proper response: {why}")]
    BadResponse {
        /// The defect.
        why: BadResponse,
    },
    /// The request body could not be read back from its file. The worker never saw its end; a 500.
    #[error("the request body cannot be read")]
    RequestBody(#[source] io::Error),
    /// This side of the connection to PHP failed, as when no descriptor is left; a 502.
    #[error("the connection to PHP cannot be used")]
    Connection(#[source] io::Error),
    /// The pool is being stopped; a 503.
    #[error("the pool is stopping")]
    Stopped,
}

fn crash(pid: Option<u32>, ended: Option<Ended>, after: Duration) -> String {
    let (worker, after) = (worker(pid), ShownDuration(after));
    match ended {
        Some(ended) => format!("{worker} ended by {ended} after {after}"),
        None => format!("{worker} hung up after {after}"),
    }
}

fn silence(pid: Option<u32>, after: Duration) -> String {
    format!("{} said nothing for {}", worker(pid), ShownDuration(after))
}

fn worker(pid: Option<u32>) -> String {
    pid.map_or_else(
        || "the PHP worker".to_owned(),
        |pid| format!("the PHP worker with pid {pid}"),
    )
}

/// Why one attempt to get a response failed.
#[derive(Debug)]
pub(crate) enum AttemptError {
    /// The worker took no byte of the request.
    Unsent(io::Error),
    /// The stream ended before END_REQUEST.
    HungUp(Option<io::Error>),
    /// The response is not FastCGI or not CGI.
    BadResponse(BadResponse),
    /// No head in time.
    TimedOut,
    /// The body file cannot be read.
    RequestBody(io::Error),
    /// This side of the connection failed.
    Connection(io::Error),
}

/// A defect of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadResponse {
    /// The head of the CGI response.
    #[error(transparent)]
    Head(#[from] HeadError),
    /// The records around it.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The request ended without a complete head.
    #[error("the response ended before its head was complete")]
    NoHead,
    /// The application refused the request (FastCGI §5.5).
    #[error("the application refused the request with protocol status {0}")]
    Refused(u8),
}

impl PoolError {
    /// The last lines that the worker wrote to its stderr; empty where no worker has ended.
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
