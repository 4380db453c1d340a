//! The control socket's protocol: a line of JSON asks, a line of JSON answers.
//!
//! `{"command":"status"}` is answered by `{"state":{…}}`, what cannot be done by `{"error":"…"}`. A connection may ask
//! again and again. What changes something goes to the main loop (`Asked`), which answers when it is done; with the
//! answer to `sockets` the listening sockets themselves are sent along.

use std::io::{self, BufRead, BufReader, IoSlice, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, Interest};
use tokio::sync::{mpsc, oneshot};

use super::received::{Received, SENT_AT_ONCE};
use super::reporter::Reporter;
use super::state::State;
use super::visitors::{Stage, Standing};

/// Longest question, bytes.
const LONGEST: u64 = 4096;
/// How long a connection may be silent before its first question.
const FIRST_SILENCE: Duration = Duration::from_secs(5);
/// And between two.
const SILENCE: Duration = Duration::from_secs(60);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same for a reload, which starts PHP.
const RELOAD_PATIENCE: Duration = Duration::from_secs(120);

/// What can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub(crate) enum Question {
    /// What it is doing.
    Status,
    /// Read the configuration again.
    Reload {
        /// Messages in colours.
        #[serde(default)]
        color: bool,
        /// Fresh workers for every pool, whatever has changed.
        #[serde(default)]
        php: bool,
    },
    /// End.
    Stop {
        /// Without waiting for anything.
        #[serde(default)]
        now: bool,
    },
    /// The listening sockets.
    Sockets,
    /// The asker listens on them by now: end, and leave them.
    GiveWay,
}

/// What is answered.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Answer {
    State(Box<State>),
    /// It is done; in words.
    Done(String),
    /// The configuration is wrong: what `check` would print.
    Wrong(String),
    /// It could not be done.
    Error(String),
    /// What each of the sockets sent along is, in their order.
    Sockets(Vec<HandedOver>),
}

/// Sockets of one address on their way to another process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HandedOver {
    pub(crate) role: Role,
    /// How many descriptors.
    pub(crate) count: usize,
}

/// What a listening socket is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    Http,
    /// Connections begin with TLS.
    Https,
    Admin,
    Probes,
    Control,
}

/// A question for the main loop.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) question: Question,
    /// Who asks, where the system tells.
    pub(crate) pid: Option<i32>,
    pub(crate) reply: oneshot::Sender<Reply>,
}

/// An answer with the descriptors that go with it.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) answer: Answer,
    pub(crate) sockets: Vec<OwnedFd>,
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Self {
        Self {
            answer,
            sockets: Vec::new(),
        }
    }
}

/// Answers the questions of one connection.
pub(super) async fn serve(
    stream: tokio::net::UnixStream,
    reporter: &Reporter,
    commands: &mpsc::Sender<Asked>,
    standing: &Standing,
) -> io::Result<()> {
    let mut silence = FIRST_SILENCE;
    let pid = stream.peer_cred().ok().and_then(|peer| peer.pid());
    let mut stream = tokio::io::BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        let mut limited = (&mut stream).take(LONGEST);
        let count = tokio::time::timeout(silence, limited.read_until(b'\n', &mut line)).await??;
        if count == 0 {
            return Ok(());
        }
        silence = SILENCE;
        standing.set(Stage::Waiting);
        let question = serde_json::from_slice::<Question>(&line);
        let reply = match &question {
            Ok(Question::Status) => Answer::State(Box::new(reporter.state())).into(),
            Ok(question) => ask_main(*question, pid, commands).await,
            Err(error) => Answer::Error(format!("this haulier does not understand the question: {error}")).into(),
        };
        let mut text = serde_json::to_vec(&reply.answer)?;
        text.push(b'\n');
        let is_stop = matches!(question, Ok(Question::Stop { .. }));
        standing.set(if is_stop { Stage::Waiting } else { Stage::Taking });
        tokio::time::timeout(PATIENCE, send(&mut stream, &text, &reply.sockets)).await??;
        if is_stop {
            // The end of the connection tells that we are gone.
            return std::future::pending().await;
        }
        if line.last() != Some(&b'\n') {
            return Ok(());
        }
        standing.set(Stage::Between);
    }
}

async fn ask_main(question: Question, pid: Option<i32>, commands: &mpsc::Sender<Asked>) -> Reply {
    let (reply, answer) = oneshot::channel();
    let asked = Asked { question, pid, reply };
    let gone = || Answer::Error("this haulier is at its end".to_owned()).into();
    match commands.send(asked).await {
        Ok(()) => answer.await.unwrap_or_else(|_| gone()),
        Err(_) => gone(),
    }
}

/// Sends a line, and descriptors with its first bytes.
async fn send(
    stream: &mut tokio::io::BufReader<tokio::net::UnixStream>,
    line: &[u8],
    sockets: &[OwnedFd],
) -> io::Result<()> {
    let stream = stream.get_mut();
    let mut line = line;
    for sockets in sockets.chunks(SENT_AT_ONCE) {
        let (first, rest) = line.split_at(1);
        line = rest;
        let sockets: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
        stream
            .async_io(Interest::WRITABLE, || send_with(&*stream, first, &sockets))
            .await?;
    }
    stream.write_all(line).await
}

fn send_with(stream: impl AsFd, bytes: &[u8], sockets: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = vec![std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SENT_AT_ONCE))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(sockets)) {
        return Err(io::Error::other("too many descriptors for one message"));
    }
    rustix::net::sendmsg(stream, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::empty())?;
    Ok(())
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
        match self.ask(Question::Status)? {
            Answer::State(state) => Ok(*state),
            other => Err(self.refused(other)),
        }
    }

    /// Asks one thing and waits for the answer.
    ///
    /// # Errors
    /// [`AskError::Lost`], and [`AskError::Refused`] if the answer is none of ours.
    pub(crate) fn ask(&mut self, question: Question) -> Result<Answer, AskError> {
        if matches!(question, Question::Reload { .. }) {
            let _ = self.stream.get_ref().set_read_timeout(Some(RELOAD_PATIENCE)); // refused for zero only
        }
        let text = self.send(question).and_then(|()| self.read_answer());
        self.understand(&text.map_err(|source| self.lost(source))?)
    }

    /// Asks for the listening sockets; they come with what each is.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub(crate) fn sockets(&mut self) -> Result<(Vec<HandedOver>, Vec<OwnedFd>), AskError> {
        let received = self
            .send(Question::Sockets)
            .and_then(|()| Received::line(self.stream.get_ref()));
        let received = received.map_err(|source| self.lost(source))?;
        match self.understand(&received.text)? {
            Answer::Sockets(list) if list.iter().map(|one| one.count).sum::<usize>() == received.sockets.len() => {
                Ok((list, received.sockets))
            }
            other => Err(self.refused(other)),
        }
    }

    /// Waits until it is gone, after it was told to stop.
    ///
    /// # Errors
    /// What the system says while waiting.
    pub(crate) fn wait_for_end(&mut self) -> io::Result<()> {
        self.stream.get_ref().set_read_timeout(None)?;
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Err(error) if error.kind() != io::ErrorKind::ConnectionReset => Err(error),
            _ => Ok(()),
        }
    }

    fn understand(&self, text: &str) -> Result<Answer, AskError> {
        serde_json::from_str(text).map_err(|error| AskError::Refused {
            path: self.path.clone(),
            answer: error.to_string(),
        })
    }

    fn lost(&self, source: io::Error) -> AskError {
        AskError::Lost {
            path: self.path.clone(),
            source,
        }
    }

    /// Any answer but the one that was asked for.
    pub(crate) fn refused(&self, answer: Answer) -> AskError {
        let answer = match answer {
            Answer::Error(text) | Answer::Wrong(text) | Answer::Done(text) => text,
            Answer::State(_) | Answer::Sockets(_) => "something else was asked".to_owned(),
        };
        AskError::Refused {
            path: self.path.clone(),
            answer,
        }
    }

    fn send(&mut self, question: Question) -> io::Result<()> {
        let mut line = serde_json::to_string(&question)?;
        line.push('\n');
        self.stream.get_mut().write_all(line.as_bytes())
    }

    fn read_answer(&mut self) -> io::Result<String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_what_other_versions_ask_too() {
        let question = |text: &str| serde_json::from_str::<Question>(text).ok();
        assert_eq!(question(r#"{"command":"status"}"#), Some(Question::Status));
        let reload = Question::Reload {
            color: false,
            php: false,
        };
        assert_eq!(question(r#"{"command":"reload"}"#), Some(reload));
        let stop = Question::Stop { now: true };
        assert_eq!(question(r#"{"command":"stop","now":true,"new":1}"#), Some(stop));
        assert_eq!(question(r#"{"command":"give_way"}"#), Some(Question::GiveWay));
        assert_eq!(question(r#"{"command":"dance"}"#), None);
        assert_eq!(question("{}"), None);
    }
}
