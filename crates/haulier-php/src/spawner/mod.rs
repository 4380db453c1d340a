//! Starts PHP as other accounts for a server that has left root.
//!
//! A [`Spawner`] is a process of haulier that stays root. It gets a list of programs before the server leaves root.
//! From then on the server can order it to start one of them, to end what it has started, and to name the process that
//! holds a socket. There are no other orders.

mod process;
pub(crate) mod recipe;
pub(crate) mod spawn;
mod wire;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::Signal;

use self::recipe::Recipe;
use self::spawn::Inherited;
use self::wire::SpawnerOrder;
use crate::children;
use crate::settings::Supervised;

pub use process::{SUBCOMMAND, main};

/// Timeout of an answer. A start takes a few milliseconds.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for its end; it gives PHP one second.
const END: Duration = Duration::from_secs(3);

/// The process and the socket to it. Dropping it ends all programs that it has started.
#[derive(Debug)]
pub struct Spawner {
    /// `None` after it has ended or failed to answer.
    line: Mutex<Option<OwnedFd>>,
    process: Mutex<Child>,
    recipes: Vec<Recipe>,
    /// It can identify the child at the other end of a connection.
    tells_apart: bool,
}

impl Spawner {
    /// Starts the process from our own binary, with the list of programs that it may start. To be called as root.
    ///
    /// # Errors
    /// The system error; `InvalidInput` for settings that are too long to send.
    pub fn start<'a>(pools: impl IntoIterator<Item = &'a Supervised>) -> io::Result<Arc<Self>> {
        // No account has this number, so this tests the permission for processes of other users.
        let tells_apart = children::can_tell_apart(Some(u32::MAX));
        let recipes: Vec<Recipe> = pools
            .into_iter()
            .map(|own| Recipe::of(own, own.separate || !tells_apart))
            .collect::<io::Result<_>>()?;
        let (line, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        set_socket_timeout(&line, Timeout::Recv, Some(REPLY_TIMEOUT))?;
        let process = Command::new("/proc/self/exe")
            .arg0("haulier")
            .arg(SUBCOMMAND)
            .env_clear()
            .current_dir("/")
            // Signals from the terminal are for the server alone.
            .process_group(0)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .spawn()?;
        let spawner = Self {
            line: Mutex::new(Some(line)),
            process: Mutex::new(process),
            recipes,
            tells_apart,
        };
        spawner.send_list()?;
        Ok(Arc::new(spawner))
    }

    fn send_list(&self) -> io::Result<()> {
        let line = self.line();
        let line = line.as_ref().ok_or_else(gone)?.as_fd();
        for recipe in &self.recipes {
            let bytes = serde_json::to_vec(recipe)?;
            if bytes.len() > wire::LONGEST {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            wire::send(line, &bytes, &[])?;
        }
        wire::send(line, wire::END_OF_LIST, &[])?;
        wire::receive(line, &mut [0; 16]).and_then(|(length, _)| if length == 0 { Err(gone()) } else { Ok(()) })
    }

    fn line(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of the recipe in the list, if it is there.
    pub(crate) fn number_of(&self, recipe: &Recipe) -> Option<u32> {
        let number = self.recipes.iter().position(|known| known == recipe)?;
        u32::try_from(number).ok()
    }

    pub(crate) fn tells_apart(&self) -> bool {
        self.tells_apart
    }

    /// Starts the recipe of this number. Returns the process id and stderr.
    pub(crate) fn spawn(
        &self,
        recipe: u32,
        listener: BorrowedFd<'_>,
        inherited: Inherited<'_>,
    ) -> io::Result<(u32, Option<OwnedFd>)> {
        let order = SpawnerOrder::Start {
            recipe,
            admin_ini: inherited.admin_ini.is_some(),
            opcache: inherited.opcache.is_some(),
            extension: inherited.extension.is_some(),
            control: inherited.control.is_some(),
        };
        let with = [
            Some(listener),
            inherited.admin_ini,
            inherited.opcache,
            inherited.extension,
            inherited.control,
        ];
        let with: Vec<BorrowedFd<'_>> = with.into_iter().flatten().collect();
        let (pid, stderr) = self.ask(order, &with)?;
        Ok((pid as u32, stderr))
    }

    /// Exit status of this php-cgi; `None` while it runs.
    pub(crate) fn how_ended(&self, master: u32) -> io::Result<Option<ExitStatus>> {
        let (value, _) = self.ask(SpawnerOrder::HowEnded { master }, &[])?;
        Ok((value & wire::ENDED != 0).then(|| ExitStatus::from_raw(value as u32 as i32)))
    }

    /// Sends SIGTERM or SIGKILL to this php-cgi and its children; true if the signal was sent.
    pub(crate) fn end_group(&self, master: u32, signal: Signal) -> bool {
        let force = signal == Signal::KILL;
        self.number(SpawnerOrder::EndGroup { master, force }) == 1
    }

    /// Ends this php-cgi by SIGKILL; its children finish their requests.
    pub(crate) fn end_master(&self, master: u32) {
        self.number(SpawnerOrder::EndMaster { master });
    }

    /// The child of this php-cgi that holds the socket with this inode.
    pub(crate) fn holder(&self, master: u32, inode: u32) -> Option<u32> {
        let pid = self.number(SpawnerOrder::Holder { master, inode });
        u32::try_from(pid).ok().filter(|&pid| pid != 0)
    }

    /// Sends SIGTERM or SIGKILL to this child if it still holds the socket; true if the signal was sent.
    pub(crate) fn end_child(&self, child: u32, inode: u32, signal: Signal) -> bool {
        let force = signal == Signal::KILL;
        self.number(SpawnerOrder::EndChild { child, inode, force }) == 1
    }

    /// Memory of this php-cgi and its children, bytes.
    pub(crate) fn memory(&self, master: u32) -> Option<u64> {
        Some(self.number(SpawnerOrder::Memory { master })).filter(|&bytes| bytes != 0)
    }

    /// Sends an order whose answer is a number; 0 if the spawner has ended.
    fn number(&self, order: SpawnerOrder) -> u64 {
        self.ask(order, &[]).map_or(0, |(value, _)| value)
    }

    fn ask(&self, order: SpawnerOrder, with: &[BorrowedFd<'_>]) -> io::Result<(u64, Option<OwnedFd>)> {
        let mut line = self.line();
        let asked = wire::ask(line.as_ref().ok_or_else(gone)?.as_fd(), order, with);
        match asked {
            Ok(reply) => reply.map_err(io::Error::from_raw_os_error),
            // A late answer would be taken for that of the next order.
            Err(_) => {
                *line = None;
                Err(gone())
            }
        }
    }

    /// Ends the process and all programs that it has started, and waits for that: about a second.
    pub fn end(&self) {
        drop(self.line().take());
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        let deadline = Instant::now() + END;
        while matches!(process.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        self.end();
    }
}

fn gone() -> io::Error {
    io::Error::other("the process that starts PHP as other accounts has ended: restart haulier")
}
