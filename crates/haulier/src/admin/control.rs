//! The control socket's protocol: a line of JSON asks, a line of JSON answers.
//!
//! The answer to `{"command":"status"}` is `{"state":{…}}`, that to a command which fails `{"error":"…"}`. A connection may
//! carry any number of commands. A command that changes something goes to the main loop ([`PendingCommand`]), which answers
//! when it is done. The answer to `sockets` carries the listening sockets themselves.

use std::io::{self, BufRead, BufReader, IoSlice, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, Interest};
use tokio::sync::{mpsc, oneshot};

use super::connections::{Stage, StageCell};
use super::received::{Received, SENT_AT_ONCE};
use super::reporter::Reporter;
use super::state::ServerState;

/// Longest command, bytes.
const LONGEST: u64 = 4096;
/// Longest silence of a connection before its first command.
const FIRST_SILENCE: Duration = Duration::from_secs(5);
/// Longest silence between two commands.
const SILENCE: Duration = Duration::from_secs(60);
/// Longest time for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time for the answer to a reload, which starts PHP.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(120);

/// A command of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub(crate) enum Command {
    /// Report the state.
    Status,
    /// Read the configuration again.
    Reload {
        /// Colour the messages.
        #[serde(default)]
        color: bool,
        /// Start fresh workers for every pool, changed or not.
        #[serde(default)]
        php: bool,
    },
    /// End.
    Stop {
        /// Without waiting for requests.
        #[serde(default)]
        now: bool,
    },
    /// Send the listening sockets.
    Sockets,
    /// The client listens on them now: end, and leave them open.
    #[serde(rename = "give_way")]
    YieldSockets,
}

/// An answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ControlAnswer {
    State(Box<ServerState>),
    /// It is done; the text says what.
    Done(String),
    /// The configuration is wrong: the text is that of `check`.
    Wrong(String),
    /// It failed.
    Error(String),
    /// The roles of the attached sockets, in their order.
    Sockets(Vec<HandedOver>),
}

/// Sockets of one address on their way to another process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HandedOver {
    pub(crate) role: Role,
    /// Number of descriptors.
    pub(crate) count: usize,
}

/// The role of a listening socket.
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

/// A command for the main loop, which answers it.
#[derive(Debug)]
pub(crate) struct PendingCommand {
    pub(crate) command: Command,
    /// Process id of the client, where the system tells.
    pub(crate) pid: Option<i32>,
    pub(crate) reply: oneshot::Sender<Reply>,
}

/// An answer with the descriptors attached to it.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) answer: ControlAnswer,
    pub(crate) sockets: Vec<OwnedFd>,
}

impl From<ControlAnswer> for Reply {
    fn from(answer: ControlAnswer) -> Self {
        Self {
            answer,
            sockets: Vec::new(),
        }
    }
}

/// Answers the commands of one connection.
pub(super) async fn serve(
    stream: tokio::net::UnixStream,
    reporter: &Reporter,
    commands: &mpsc::Sender<PendingCommand>,
    stage: &StageCell,
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
        stage.set(Stage::Waiting);
        let command = serde_json::from_slice::<Command>(&line);
        let reply = match &command {
            Ok(Command::Status) => ControlAnswer::State(Box::new(reporter.state())).into(),
            Ok(command) => ask_main(*command, pid, commands).await,
            Err(error) => ControlAnswer::Error(format!("this haulier does not understand the command: {error}")).into(),
        };
        let mut text = serde_json::to_vec(&reply.answer)?;
        text.push(b'\n');
        let is_stop = matches!(command, Ok(Command::Stop { .. }));
        stage.set(if is_stop { Stage::Waiting } else { Stage::Taking });
        tokio::time::timeout(ANSWER_TIMEOUT, send(&mut stream, &text, &reply.sockets)).await??;
        if is_stop {
            // The connection ends with the process: the client waits for that.
            return std::future::pending().await;
        }
        if line.last() != Some(&b'\n') {
            return Ok(());
        }
        stage.set(Stage::Between);
    }
}

async fn ask_main(command: Command, pid: Option<i32>, commands: &mpsc::Sender<PendingCommand>) -> Reply {
    let (reply, answer) = oneshot::channel();
    let pending = PendingCommand { command, pid, reply };
    let gone = || ControlAnswer::Error("this haulier is stopping".to_owned()).into();
    match commands.send(pending).await {
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

/// A failure to get an answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    /// No process listens there, or this user may not connect.
    #[error("cannot ask {}", path.display())]
    Connect { path: PathBuf, source: io::Error },
    /// The connection was closed, or no answer came.
    #[error("no answer from {}", path.display())]
    Lost { path: PathBuf, source: io::Error },
    /// The answer is not one of this version.
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
            stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
            stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
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

    /// The state of the server now.
    ///
    /// # Errors
    /// [`AskError::Lost`] and [`AskError::Refused`].
    pub(crate) fn status(&mut self) -> Result<ServerState, AskError> {
        match self.ask(Command::Status)? {
            ControlAnswer::State(state) => Ok(*state),
            other => Err(self.refused(other)),
        }
    }

    /// Sends a command and waits for the answer.
    ///
    /// # Errors
    /// [`AskError::Lost`], and [`AskError::Refused`] if the answer is not one of this version.
    pub(crate) fn ask(&mut self, command: Command) -> Result<ControlAnswer, AskError> {
        if matches!(command, Command::Reload { .. }) {
            let _ = self.stream.get_ref().set_read_timeout(Some(RELOAD_TIMEOUT)); // refused for zero only
        }
        let text = self.send(command).and_then(|()| self.read_answer());
        self.understand(&text.map_err(|source| self.lost(source))?)
    }

    /// Asks for the listening sockets, with the role of each.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub(crate) fn sockets(&mut self) -> Result<(Vec<HandedOver>, Vec<OwnedFd>), AskError> {
        let received = self
            .send(Command::Sockets)
            .and_then(|()| Received::line(self.stream.get_ref()));
        let received = received.map_err(|source| self.lost(source))?;
        match self.understand(&received.text)? {
            ControlAnswer::Sockets(list)
                if list.iter().map(|one| one.count).sum::<usize>() == received.sockets.len() =>
            {
                Ok((list, received.sockets))
            }
            other => Err(self.refused(other)),
        }
    }

    /// Waits until the server has ended, after the command to stop.
    ///
    /// # Errors
    /// The error of the system while waiting.
    pub(crate) fn wait_for_end(&mut self) -> io::Result<()> {
        self.stream.get_ref().set_read_timeout(None)?;
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Err(error) if error.kind() != io::ErrorKind::ConnectionReset => Err(error),
            _ => Ok(()),
        }
    }

    fn understand(&self, text: &str) -> Result<ControlAnswer, AskError> {
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

    /// The error of an unexpected answer.
    pub(crate) fn refused(&self, answer: ControlAnswer) -> AskError {
        let answer = match answer {
            ControlAnswer::Error(text) | ControlAnswer::Wrong(text) | ControlAnswer::Done(text) => text,
            ControlAnswer::State(_) | ControlAnswer::Sockets(_) => "an answer to another command".to_owned(),
        };
        AskError::Refused {
            path: self.path.clone(),
            answer,
        }
    }

    fn send(&mut self, command: Command) -> io::Result<()> {
        let mut line = serde_json::to_string(&command)?;
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

/// Longest answer, bytes: more than a state with thousands of sites.
const LONGEST_ANSWER: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_those_of_other_versions_too() {
        let command = |text: &str| serde_json::from_str::<Command>(text).ok();
        assert_eq!(command(r#"{"command":"status"}"#), Some(Command::Status));
        let reload = Command::Reload {
            color: false,
            php: false,
        };
        assert_eq!(command(r#"{"command":"reload"}"#), Some(reload));
        let stop = Command::Stop { now: true };
        assert_eq!(command(r#"{"command":"stop","now":true,"new":1}"#), Some(stop));
        assert_eq!(command(r#"{"command":"give_way"}"#), Some(Command::YieldSockets));
        assert_eq!(command(r#"{"command":"dance"}"#), None);
        assert_eq!(command("{}"), None);
    }
}
