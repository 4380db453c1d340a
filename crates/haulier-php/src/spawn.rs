//! Starts a php-cgi master on a listening socket.
//!
//! The only unsafe code of the crate: what a child does between fork and exec, and the account's groups.
#![allow(unsafe_code)] // CommandExt::pre_exec, and calls that neither the standard library nor rustix has

use std::ffi::CString;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use crate::settings::{Supervised, User};

/// php-cgi would end a child after 500 requests, in the middle of ours; replacing them is our own business.
const BEYOND_REACH: &str = "2147483647";

/// Last, so that they win. With cgi.fix_pathinfo=0 PHP_SELF would be PATH_INFO alone, and PHP would run the file named
/// by PATH_TRANSLATED instead of SCRIPT_FILENAME: an uploaded picture, say. With 1 PHP guesses only where
/// SCRIPT_FILENAME does not exist, and the server names nothing but existing scripts.
const PATH_INI: [&str; 4] = ["-d", "cgi.fix_pathinfo=1", "-d", "cgi.discard_path=1"];

/// Starts php-cgi in its own process group with `listener` as its descriptor 0 and a pipe for what it writes to
/// stderr. It gets SIGTERM when the calling thread ends, and takes its children along.
///
/// # Errors
/// What the system says, also about changing to the pool's user.
pub(crate) fn spawn(settings: &Supervised, listener: BorrowedFd<'_>) -> io::Result<Child> {
    let mut command = Command::new(&settings.php);
    for (name, value) in &settings.ini {
        command.arg("-d").arg(format!("{name}={value}"));
    }
    command.args(PATH_INI);
    command.env_clear();
    command.envs(
        settings
            .env_copy
            .iter()
            .filter_map(|name| Some((name, std::env::var_os(name)?))),
    );
    command.envs(settings.env.iter().map(|(name, value)| (name, value)));
    command
        .env("PHP_FCGI_CHILDREN", settings.workers.to_string())
        .env("PHP_FCGI_MAX_REQUESTS", BEYOND_REACH);
    command.current_dir("/").process_group(0);
    command
        .stdin(listener.try_clone_to_owned()?)
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let account = settings.user.as_ref().map(Account::look_up).transpose()?;
    let parent = std::process::id();
    // SAFETY: between fork and exec `prepare` makes only system calls that are async-signal-safe, on values that were
    // made before the fork; it neither allocates nor locks.
    unsafe { command.pre_exec(move || prepare(account.as_ref(), parent)) };
    command.spawn()
}

/// A user with all its groups.
struct Account {
    uid: libc::uid_t,
    gid: libc::gid_t,
    groups: Vec<libc::gid_t>,
}

impl Account {
    fn look_up(user: &User) -> io::Result<Self> {
        let name = CString::new(user.name.as_str()).map_err(io::Error::other)?;
        let mut groups: Vec<libc::gid_t> = vec![0; 64];
        loop {
            let mut count = groups.len() as libc::c_int;
            // SAFETY: the name ends in NUL, and `groups` has room for `count` entries.
            let found = unsafe { libc::getgrouplist(name.as_ptr(), user.gid, groups.as_mut_ptr(), &raw mut count) };
            // A negative result says how many there would be.
            groups.resize(count.max(0) as usize, 0);
            if found >= 0 {
                return Ok(Self {
                    uid: user.uid,
                    gid: user.gid,
                    groups,
                });
            }
        }
    }
}

/// What the child does before it becomes PHP.
fn prepare(account: Option<&Account>, parent: u32) -> io::Result<()> {
    if let Some(account) = account {
        become_user(account)?;
    }
    // After the change of user, which clears it.
    // SAFETY: a system call with plain numbers.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) })?;
    // SAFETY: takes nothing and cannot fail.
    if unsafe { libc::getppid() } as u32 != parent {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    Ok(())
}

fn become_user(account: &Account) -> io::Result<()> {
    // SAFETY: takes nothing and cannot fail.
    if unsafe { libc::geteuid() } == account.uid {
        return Ok(());
    }
    // SAFETY: `groups` outlives the call and has the length given.
    check(unsafe { libc::setgroups(account.groups.len(), account.groups.as_ptr()) })?;
    // SAFETY: a system call with a plain number.
    check(unsafe { libc::setgid(account.gid) })?;
    // SAFETY: a system call with a plain number.
    check(unsafe { libc::setuid(account.uid) })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
