//! The process that keeps root's rights to start PHP as other accounts, and does nothing else with them.
//!
//! It gets its list while haulier is still root, then gives away every right it does not need. From there on an order
//! names a place in the list or a process that was started from it; the orders are numbers, and none names a program, an
//! argument, an account or a path. When haulier ends, in whatever way, everything that was started ends with it.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use super::wire::{self, Order, Reply};
use crate::children;
use crate::supervised::memory;
use crate::supervised::recipe::Recipe;
use crate::supervised::spawn::{Inherited, keep_signals_off, spawn};

/// The first argument of haulier that makes it a spawner.
pub const SUBCOMMAND: &str = "php-spawner";

/// How many generations of a pool may run at a time: reloads start one while others finish.
const GENERATIONS: usize = 8;
/// How long PHP may take to end after SIGTERM before SIGKILL.
const END_GRACE: Duration = Duration::from_secs(1);

/// Other accounts and groups, the end of what runs as them, which child holds which socket, limits above ours.
const RIGHTS: CapabilitySet = CapabilitySet::SETUID
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::SYS_RESOURCE)
    .union(CapabilitySet::SYS_NICE);

/// Runs as the spawner; descriptor 0 is the way to haulier.
pub fn main() -> ExitCode {
    match serve(io::stdin().as_fd()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: PHP of other accounts cannot be started: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(line: BorrowedFd<'_>) -> io::Result<()> {
    // A stop is for the server: it ends us when PHP has finished.
    keep_signals_off()?;
    let mut office = Office {
        recipes: receive_list(line)?,
        masters: BTreeMap::new(),
    };
    give_rights_away()?;
    wire::reply(line, Ok((0, None)))?;
    while let Ok((order, with)) = wire::next(line) {
        let reply = order.map_or(Err(libc::EINVAL), |order| office.carry_out(order, &with));
        if wire::reply(line, reply).is_err() {
            break;
        }
    }
    office.close();
    Ok(())
}

/// One recipe a packet, an empty object at the end.
fn receive_list(line: BorrowedFd<'_>) -> io::Result<Vec<Recipe>> {
    let mut bytes = vec![0; wire::LONGEST];
    let mut recipes = Vec::new();
    loop {
        let (length, _) = wire::receive(line, &mut bytes)?;
        match &bytes[..length] {
            [] => return Err(io::ErrorKind::UnexpectedEof.into()),
            super::END_OF_LIST => return Ok(recipes),
            recipe => recipes.push(serde_json::from_slice(recipe)?),
        }
    }
}

fn give_rights_away() -> io::Result<()> {
    let mut sets = capabilities(None)?;
    sets.permitted &= RIGHTS;
    sets.effective = sets.permitted;
    sets.inheritable = CapabilitySet::empty();
    set_capabilities(None, sets)?;
    Ok(())
}

/// What may be started, and what runs.
struct Office {
    recipes: Vec<Recipe>,
    /// By process id; each with the place of its recipe. Their ids are theirs until we have collected them.
    masters: BTreeMap<u32, (usize, Child)>,
}

impl Office {
    fn carry_out(&mut self, order: Order, with: &[OwnedFd]) -> Reply {
        let number = |value| Ok((value, None));
        match order {
            Order::Start {
                recipe,
                admin_ini,
                opcache,
            } => self.start(recipe as usize, admin_ini, opcache, with),
            Order::HowEnded { master } => number(self.how_ended(master)?),
            Order::EndGroup { master, force } => {
                let (_, child) = self.masters.get(&master).ok_or(libc::ESRCH)?;
                number(u64::from(end_group(child, force)))
            }
            Order::Holder { master, inode } => {
                self.masters.get(&master).ok_or(libc::ESRCH)?;
                number(children::holder(master, inode).unwrap_or(0).into())
            }
            Order::EndChild { child, inode, force } => {
                let is_ours = |master: &u32| children::of(*master).contains(&child);
                let sent = self.masters.keys().any(is_ours) && children::end_holder(child, inode, signal(force));
                number(sent.into())
            }
            Order::Memory { master } => {
                self.masters.get(&master).ok_or(libc::ESRCH)?;
                number(memory::of_tree(master).unwrap_or(0))
            }
            Order::EndMaster { master } => {
                let (_, child) = self.masters.get(&master).ok_or(libc::ESRCH)?;
                number(u64::from(kill_process(Pid::from_child(child), Signal::KILL).is_ok()))
            }
        }
    }

    fn start(&mut self, place: usize, admin_ini: bool, opcache: bool, with: &[OwnedFd]) -> Reply {
        let recipe = self.recipes.get(place).ok_or(libc::EINVAL)?;
        let running = self.masters.values().filter(|(other, _)| *other == place).count();
        if running >= GENERATIONS * recipe.programs {
            return Err(libc::EAGAIN);
        }
        let mut with = with.iter().map(AsFd::as_fd);
        let listener = with.next().ok_or(libc::EINVAL)?;
        let inherited = Inherited {
            admin_ini: with.by_ref().take(usize::from(admin_ini)).next(),
            opcache: with.by_ref().take(usize::from(opcache)).next(),
        };
        let started = spawn(recipe, listener, inherited);
        let mut child = started.map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?;
        let (pid, stderr) = (child.id(), child.stderr.take().map(OwnedFd::from));
        self.masters.insert(pid, (place, child));
        Ok((pid.into(), stderr))
    }

    /// 0 while it runs, else its wait status with the bit above it.
    fn how_ended(&mut self, master: u32) -> Result<u64, i32> {
        let (_, child) = self.masters.get_mut(&master).ok_or(libc::ESRCH)?;
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let ended = rustix::process::waitid(WaitId::Pid(Pid::from_child(child)), look);
        if !matches!(ended, Ok(Some(_))) {
            return Ok(0);
        }
        // Its children would answer on the socket for ever. SIGTERM lets them finish what they are at.
        end_group(child, false);
        let status = child.wait().unwrap_or_default();
        self.masters.remove(&master);
        Ok(super::ENDED | u64::from(status.into_raw() as u32))
    }

    /// Ends everything that still runs.
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
