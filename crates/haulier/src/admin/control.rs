//! The control socket's protocol: a line of JSON asks, a line of JSON answers.
//!
//! `{"command":"status"}` is answered by `{"state":{…}}`, what cannot be done by `{"error":"…"}`. A connection may ask
//! again and again.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::reporter::Reporter;
use super::state::State;

/// Longest question, bytes.
const LONGEST: u64 = 4096;
/// How long a connection may be silent.
const SILENCE: Duration = Duration::from_secs(60);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, Serialize, Deserialize)]
struct Question {
    command: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    State(Box<State>),
    Error(String),
}

/// Answers the questions of one connection.
pub(super) async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, reporter: &Reporter) -> io::Result<()> {
    let mut stream = tokio::io::BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        let mut limited = (&mut stream).take(LONGEST);
        let count = tokio::time::timeout(SILENCE, limited.read_until(b'\n', &mut line)).await??;
        if count == 0 {
            return Ok(());
        }
        let mut text = serde_json::to_vec(&answer(&line, reporter))?;
        text.push(b'\n');
        tokio::time::timeout(PATIENCE, stream.write_all(&text)).await??;
        if line.last() != Some(&b'\n') {
            return Ok(());
        }
    }
}

fn answer(line: &[u8], reporter: &Reporter) -> Answer {
    match serde_json::from_slice::<Question>(line) {
        Ok(question) if question.command == "status" => Answer::State(Box::new(reporter.state())),
        Ok(question) => Answer::Error(format!("this haulier knows no command `{}`", question.command)),
        Err(error) => Answer::Error(format!("not a question: {error}")),
    }
}

/// A connection to a running haulier.
#[derive(Debug)]
pub(crate) struct Client {
    stream: BufReader<UnixStream>,
    path: PathBuf,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    /// Nobody listens there, or we may not.
    #[error("cannot ask {}", path.display())]
    Connect { path: PathBuf, source: io::Error },
    /// It was there and is not any more, or does not answer.
    #[error("no answer from {}", path.display())]
    Lost { path: PathBuf, source: io::Error },
    /// It speaks, but not as this version does.
    #[error("{} answers: {answer}", path.display())]
    Refused { path: PathBuf, answer: String },
}

impl Client {
    /// Connects to a control socket.
    ///
    /// # Errors
    /// [`AskError::Connect`].
    pub(crate) fn connect(path: &Path) -> Result<Self, AskError> {
        let connected = UnixStream::connect(path).and_then(|stream| {
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            Ok(stream)
        });
        match connected {
            Ok(stream) => Ok(Self {
                stream: BufReader::new(stream),
                path: path.to_owned(),
            }),
            Err(source) => Err(AskError::Connect {
                path: path.to_owned(),
                source,
            }),
        }
    }

    /// What it is doing now.
    ///
    /// # Errors
    /// [`AskError::Lost`] and [`AskError::Refused`].
    pub(crate) fn status(&mut self) -> Result<State, AskError> {
        let text = self.ask("status").map_err(|source| AskError::Lost {
            path: self.path.clone(),
            source,
        })?;
        match serde_json::from_str(&text) {
            Ok(Answer::State(state)) => Ok(*state),
            Ok(Answer::Error(answer)) => Err(AskError::Refused {
                path: self.path.clone(),
                answer,
            }),
            Err(error) => Err(AskError::Refused {
                path: self.path.clone(),
                answer: error.to_string(),
            }),
        }
    }

    fn ask(&mut self, command: &str) -> io::Result<String> {
        let mut line = serde_json::to_string(&Question {
            command: command.to_owned(),
        })?;
        line.push('\n');
        self.stream.get_mut().write_all(line.as_bytes())?;
        let mut answer = String::new();
        self.stream.by_ref().take(LONGEST_ANSWER).read_line(&mut answer)?;
        if answer.is_empty() {
            Err(io::ErrorKind::UnexpectedEof.into())
        } else {
            Ok(answer)
        }
    }
}

/// A state with thousands of sites is shorter, bytes.
const LONGEST_ANSWER: u64 = 64 << 20;
