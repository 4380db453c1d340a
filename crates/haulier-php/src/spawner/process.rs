//! The process that keeps root's rights, only to start PHP as other accounts.
//!
//! It gets its list while haulier is still root, then drops every capability that it does not need. From then on an
//! order names a recipe by its number in the list, or a process that was started from it; no order names a program, an
//! argument, an account or a path. When haulier ends for any reason, all programs that it started are ended.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use super::recipe::Recipe;
use super::spawn::{Inherited, keep_signals_off, spawn};
use super::wire::{self, Reply, SpawnerOrder};
use crate::children;
use crate::memory;

/// The first argument that makes haulier a spawner.
pub const SUBCOMMAND: &str = "php-spawner";

/// Most generations of a pool at a time: a reload starts one while others finish.
const GENERATIONS: usize = 8;
/// Time between SIGTERM and SIGKILL.
const END_GRACE: Duration = Duration::from_secs(1);

/// Needed to use other accounts and groups, to signal their processes, to find the child that holds a socket, and to
/// set limits above ours.
const CAPABILITIES: CapabilitySet = CapabilitySet::SETUID
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::SYS_RESOURCE)
    .union(CapabilitySet::SYS_NICE);

/// Runs as the spawner; descriptor 0 is the socket to haulier.
pub fn main() -> ExitCode {
    match serve(io::stdin().as_fd()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: cannot start PHP as other accounts: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(line: BorrowedFd<'_>) -> io::Result<()> {
    // Stop signals are for the server, which ends this process after PHP has finished.
    keep_signals_off()?;
    let mut state = SpawnerState {
        recipes: receive_list(line)?,
        masters: BTreeMap::new(),
    };
    drop_capabilities()?;
    wire::reply(line, Ok((0, None)))?;
    while let Ok((order, with)) = wire::next(line) {
        let reply = order.map_or(Err(libc::EINVAL), |order| state.carry_out(order, &with));
        if wire::reply(line, reply).is_err() {
            break;
        }
    }
    state.close();
    Ok(())
}

/// Receives the recipes, one a packet, up to an empty object.
fn receive_list(line: BorrowedFd<'_>) -> io::Result<Vec<Recipe>> {
    let mut bytes = vec![0; wire::LONGEST];
    let mut recipes = Vec::new();
    loop {
        let (length, _) = wire::receive(line, &mut bytes)?;
        match &bytes[..length] {
            [] => return Err(io::ErrorKind::UnexpectedEof.into()),
            wire::END_OF_LIST => return Ok(recipes),
            recipe => recipes.push(serde_json::from_slice(recipe)?),
        }
    }
}

fn drop_capabilities() -> io::Result<()> {
    let mut sets = capabilities(None)?;
    sets.permitted &= CAPABILITIES;
    sets.effective = sets.permitted;
    sets.inheritable = CapabilitySet::empty();
    set_capabilities(None, sets)?;
    Ok(())
}

/// The recipes, and the programs started from them.
struct SpawnerState {
    recipes: Vec<Recipe>,
    /// Running programs by process id, each with the number of its recipe. An id is not reused before we have reaped
    /// it.
    masters: BTreeMap<u32, (usize, Child)>,
}

impl SpawnerState {
    fn carry_out(&mut self, order: SpawnerOrder, with: &[OwnedFd]) -> Reply {
        let answer = |value| Ok((value, None));
        match order {
            SpawnerOrder::Start {
                recipe,
                admin_ini,
                opcache,
                extension,
                control,
            } => self.start(recipe as usize, [admin_ini, opcache, extension, control], with),
            SpawnerOrder::HowEnded { master } => answer(self.how_ended(master)?),
            SpawnerOrder::EndGroup { master, force } => {
                let (_, child) = self.masters.get(&master).ok_or(libc::ESRCH)?;
                answer(u64::from(end_group(child, force)))
            }
            SpawnerOrder::Holder { master, inode } => {
                self.masters.get(&master).ok_or(libc::ESRCH)?;
                answer(children::holder(master, inode).unwrap_or(0).into())
            }
            SpawnerOrder::EndChild { child, inode, force } => {
                let is_ours = |master: &u32| children::of(*master).contains(&child);
                let sent = self.masters.keys().any(is_ours) && children::end_holder(child, inode, signal(force));
                answer(sent.into())
            }
            SpawnerOrder::Memory { master } => {
                self.masters.get(&master).ok_or(libc::ESRCH)?;
                answer(memory::of_tree(master).unwrap_or(0))
            }
            SpawnerOrder::EndMaster { master } => {
                let (_, child) = self.masters.get(&master).ok_or(libc::ESRCH)?;
                answer(u64::from(kill_process(Pid::from_child(child), Signal::KILL).is_ok()))
            }
        }
    }

    /// `sent`: which of the admin ini, the directory of opcache, the extension and the socket to the master come behind the
    /// listener.
    fn start(&mut self, number: usize, sent: [bool; 4], with: &[OwnedFd]) -> Reply {
        let recipe = self.recipes.get(number).ok_or(libc::EINVAL)?;
        let running = self.masters.values().filter(|(other, _)| *other == number).count();
        if running >= GENERATIONS * recipe.programs {
            return Err(libc::EAGAIN);
        }
        let mut with = with.iter().map(AsFd::as_fd);
        let listener = with.next().ok_or(libc::EINVAL)?;
        let [admin_ini, opcache, extension, control] = sent.map(|is_sent| is_sent.then(|| with.next()).flatten());
        let inherited = Inherited {
            admin_ini,
            opcache,
            extension,
            control,
        };
        let started = spawn(recipe, listener, inherited);
        let mut child = started.map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?;
        let (pid, stderr) = (child.id(), child.stderr.take().map(OwnedFd::from));
        self.masters.insert(pid, (number, child));
        Ok((pid.into(), stderr))
    }

    /// 0 while the program runs, then its wait status with [`ENDED`](wire::ENDED).
    fn how_ended(&mut self, master: u32) -> Result<u64, i32> {
        let (_, child) = self.masters.get_mut(&master).ok_or(libc::ESRCH)?;
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let ended = rustix::process::waitid(WaitId::Pid(Pid::from_child(child)), look);
        if !matches!(ended, Ok(Some(_))) {
            return Ok(0);
        }
        // Its children would continue to answer on the socket. SIGTERM lets them finish their requests.
        end_group(child, false);
        let status = child.wait().unwrap_or_default();
        self.masters.remove(&master);
        Ok(wire::ENDED | u64::from(status.into_raw() as u32))
    }

    /// Ends all programs that still run.
    fn close(mut self) {
        let children: Vec<u32> = self.masters.keys().flat_map(|&master| children::of(master)).collect();
        for (_, child) in self.masters.values() {
            end_group(child, false);
        }
        let deadline = Instant::now() + END_GRACE;
        let lives = |(_, child): &mut (usize, Child)| matches!(child.try_wait(), Ok(None));
        while self.masters.values_mut().any(lives) || children.iter().any(|&child| children::is_alive(child)) {
            if Instant::now() >= deadline {
                for (_, child) in self.masters.values() {
                    end_group(child, true);
                }
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn signal(force: bool) -> Signal {
    if force { Signal::KILL } else { Signal::TERM }
}

fn end_group(master: &Child, force: bool) -> bool {
    kill_process_group(Pid::from_child(master), signal(force)).is_ok()
}
