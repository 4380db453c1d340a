//! Errors of a download, their class, and the remedy.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use haulier_proto::h2::client::StreamError;

use crate::error::ClientError;
use crate::retry::is_transient_status;

/// The failure of a download.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("the server answered {status} {reason}")]
    Status {
        status: u16,
        reason: String,
        retry_after: Option<Duration>,
    },
    /// A range that was not requested, or of another file: no range of this server is trusted any more.
    #[error("the server's ranges cannot be trusted: {0}")]
    Ranges(&'static str),
    /// The server no longer has the state that the range was bound to.
    #[error("the file changed on the server")]
    Changed,
    #[error("{algorithm} does not match {source_name}: expected {expected}, found {found}")]
    Checksum {
        algorithm: &'static str,
        source_name: &'static str,
        expected: String,
        found: String,
    },
    #[error("nothing to verify the file with: no checksum was given and the server sent none")]
    NoDigest,
    #[error("{name} is not in the checksum file")]
    NotListed { name: String },
    #[error("cannot write {path}")]
    File { path: PathBuf, source: io::Error },
    #[error("not enough room for {path}: {needed} bytes are missing")]
    NoSpace { path: PathBuf, needed: u64 },
    #[error("{path} is being downloaded already")]
    Busy { path: PathBuf },
    #[error("{path} exists, and haulier did not make it")]
    InTheWay { path: PathBuf },
    #[error("given up after {tries} tries without progress")]
    GivenUp { tries: u32, source: Box<Self> },
    #[error("standard output has bytes of another state of the file, and cannot take them back")]
    CannotGoBack,
}

/// The next step after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// Repeat it after a wait, at least as long as the server asks for.
    Wait(Option<Duration>),
    /// Start from the first byte.
    StartAgain,
    Nothing,
}

/// The classes of failure, each with an exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    Connect,
    Timeout,
    Broken,
    Refused,
    ServerFault,
    Protocol,
    Checksum,
    File,
    Tls,
    Redirect,
}

impl DownloadError {
    #[must_use]
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::Client(error) if error.is_transient() => Remedy::Wait(None),
            Self::Status {
                status, retry_after, ..
            } if is_transient_status(*status) => Remedy::Wait(*retry_after),
            Self::Ranges(_) | Self::Changed => Remedy::StartAgain,
            _ => Remedy::Nothing,
        }
    }

    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::Client(error) => class_of(error),
            Self::Status { status, .. } if *status >= 500 => Class::ServerFault,
            Self::Status { .. } => Class::Refused,
            Self::Ranges(_) | Self::Changed => Class::Protocol,
            Self::Checksum { .. } | Self::NoDigest | Self::NotListed { .. } => Class::Checksum,
            Self::CannotGoBack => Class::Broken,
            Self::GivenUp { source, .. } => source.class(),
            Self::File { .. } | Self::NoSpace { .. } | Self::Busy { .. } | Self::InTheWay { .. } => Class::File,
        }
    }
}

fn class_of(error: &ClientError) -> Class {
    match error {
        ClientError::Resolve { .. } | ClientError::Connect { .. } | ClientError::Proxy { .. } => Class::Connect,
        ClientError::TimedOut { .. } => Class::Timeout,
        ClientError::Unanswered(_)
        | ClientError::Broken(_)
        | ClientError::ShortBody { .. }
        | ClientError::NoLastChunk
        | ClientError::RequestBody(_) => Class::Broken,
        ClientError::Tls { .. } => Class::Tls,
        ClientError::Stream(StreamError::Reset(_) | StreamError::Unprocessed) => Class::Broken,
        ClientError::Stream(_) | ClientError::Http2(_) => Class::Protocol,
        ClientError::Head(_) | ClientError::Framing(_) | ClientError::Chunk(_) | ClientError::Decode(_) => {
            Class::Protocol
        }
        ClientError::TooManyRedirects(_) | ClientError::BadRedirect(_) | ClientError::InsecureRedirect => {
            Class::Redirect
        }
    }
}
