//! Starts a php-cgi master on a listening socket.
//!
//! The only unsafe code of the crate: what a child does between fork and exec, and the account's groups.
#![allow(unsafe_code)] // CommandExt::pre_exec, and calls that neither the standard library nor rustix has

use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::process::{Rlimit as Limits, setrlimit};

use crate::directory::Directories;
use crate::settings::{Rlimit, Supervised, User};

/// php-cgi would end a child after 500 requests, in the middle of ours; replacing them is our own business.
const BEYOND_REACH: &str = "2147483647";

/// Last, so that they win. With cgi.fix_pathinfo=0 PHP_SELF would be PATH_INFO alone, and PHP would run the file named
/// by PATH_TRANSLATED instead of SCRIPT_FILENAME: an uploaded picture, say. With 1 PHP guesses only where
/// SCRIPT_FILENAME does not exist, and the server names nothing but existing scripts.
const PATH_INI: [&str; 4] = ["-d", "cgi.fix_pathinfo=1", "-d", "cgi.discard_path=1"];

/// Where PHP looks for further ini files.
const SCAN_DIR: &str = "PHP_INI_SCAN_DIR";

/// Starts php-cgi in its own process group with `listener` as its descriptor 0 and a pipe for what it writes to
/// stderr. It gets SIGTERM when the calling thread ends, and takes its children along. It inherits the
/// directories. A `separate` one has no children.
///
/// # Errors
/// What the system says, also about changing to the pool's user.
pub(crate) fn spawn(
    settings: &Supervised,
    listener: BorrowedFd<'_>,
    directories: &Directories,
    separate: bool,
) -> io::Result<Child> {
    let mut command = Command::new(&settings.php);
    for (name, value) in settings.ini.iter().chain(&settings.ini_admin) {
        command.arg("-d").arg(format!("{name}={value}"));
    }
    if let Some(cache) = directories.opcache.as_ref().filter(|_| separate) {
        command.arg("-d").arg(format!("opcache.file_cache={}", cache.path()));
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
    if let Some(admin_ini) = &directories.admin_ini {
        command.env(SCAN_DIR, scan_dir(settings, &admin_ini.path()));
    }
    let children = if separate { 0 } else { children(settings) };
    command
        .env("PHP_FCGI_CHILDREN", children.to_string())
        .env("PHP_FCGI_MAX_REQUESTS", BEYOND_REACH);
    command.current_dir("/").process_group(0);
    command
        .stdin(listener.try_clone_to_owned()?)
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let account = settings.user.as_ref().map(Account::look_up).transpose()?;
    let parent = std::process::id();
    let (nice, rlimits) = (settings.nice, settings.rlimits.clone());
    let inherited: Vec<RawFd> = directories
        .all()
        .map(|directory| directory.as_fd().as_raw_fd())
        .collect();
    // SAFETY: between fork and exec `limit` and `prepare` make only system calls that are async-signal-safe, on values
    // that were made before the fork; they neither allocate nor lock.
    unsafe {
        command.pre_exec(move || {
            limit(nice, &rlimits)?;
            inherited.iter().try_for_each(|&descriptor| keep_open(descriptor))?;
            prepare(account.as_ref(), parent)
        })
    };
    command.spawn()
}

/// One more than may work where workers are replaced: the replacement waits in accept before the old one goes. It has
/// run nothing, so it costs next to no memory.
fn children(settings: &Supervised) -> usize {
    settings.workers + usize::from(settings.recycle.is_on())
}

/// PHP's own directory, or the one the pool names, and then ours. An empty part is PHP's own.
fn scan_dir(settings: &Supervised, ours: &str) -> OsString {
    let named = settings.env.iter().rev().find(|(name, _)| name == SCAN_DIR);
    let copied = settings.env_copy.iter().any(|name| name == SCAN_DIR);
    let mut directories = match named {
        Some((_, value)) => OsString::from(value),
        None if copied => std::env::var_os(SCAN_DIR).unwrap_or_default(),
        None => OsString::new(),
    };
    directories.push(":");
    directories.push(ours);
    directories
}

/// Lets the next program have the descriptor.
fn keep_open(descriptor: RawFd) -> io::Result<()> {
    // SAFETY: a system call with plain numbers.
    check(unsafe { libc::fcntl(descriptor, libc::F_SETFD, 0) })
}

/// What the child does about its own limits while it still has our rights.
fn limit(nice: i32, rlimits: &[Rlimit]) -> io::Result<()> {
    if nice != 0 {
        rustix::process::nice(nice)?;
    }
    for rlimit in rlimits {
        setrlimit(
            rlimit.resource,
            Limits {
                current: rlimit.limit,
                maximum: rlimit.limit,
            },
        )?;
    }
    Ok(())
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
