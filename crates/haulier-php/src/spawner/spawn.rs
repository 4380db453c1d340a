//! Starts a php-cgi master on a listening socket.
//!
//! Here is the unsafe code for processes: the steps of a child between fork and exec, the groups of an account, blocked
//! signals.
#![allow(unsafe_code)] // CommandExt::pre_exec, and calls that neither the standard library nor rustix has

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::ptr;

use super::recipe::{Account, Recipe, SCAN_DIR};

/// Directories that a php-cgi inherits open, so it needs no permission to open them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Inherited<'a> {
    /// Settings that scripts cannot change.
    pub(crate) admin_ini: Option<BorrowedFd<'a>>,
    /// Compiled scripts, if the processes share no memory.
    pub(crate) opcache: Option<BorrowedFd<'a>>,
    /// The extension that makes PHP a master of workers of our own.
    pub(crate) extension: Option<BorrowedFd<'a>>,
    /// The socket over which that master is asked what its workers are at.
    pub(crate) control: Option<BorrowedFd<'a>>,
}

/// Starts php-cgi in its own process group, with `listener` as its descriptor 0 and a pipe as its stderr. It gets
/// SIGTERM when the calling thread ends, and ends its children then.
///
/// # Errors
/// The program cannot be started, or not as the account of the recipe.
pub(crate) fn spawn(recipe: &Recipe, listener: BorrowedFd<'_>, inherited: Inherited<'_>) -> io::Result<Child> {
    let mut command = Command::new(&recipe.program);
    if let Some(opcache) = inherited.opcache {
        command
            .arg("-d")
            .arg(format!("opcache.file_cache={}", path_of(opcache)));
    }
    if let Some(extension) = inherited.extension {
        // First: a value that PHP cannot read ends its list of settings.
        command.arg("-d").arg(format!("extension={}", path_of(extension)));
        command.args(["-d", "cgi.force_redirect=0"]);
    }
    command.args(&recipe.arguments).env_clear();
    command.envs(recipe.environment.iter().map(|(name, value)| (name, value)));
    if let Some(admin_ini) = inherited.admin_ini {
        let mut directories = recipe.scan_dir.clone();
        directories.push(":");
        directories.push(path_of(admin_ini));
        command.env(SCAN_DIR, directories);
    }
    command.current_dir("/").process_group(0);
    let listener = listener.try_clone_to_owned()?;
    let mut kept = vec![inherited.admin_ini, inherited.opcache, inherited.extension];
    if inherited.extension.is_some() {
        // As a FastCGI server of its own, php-cgi would wait for a request before the extension could begin.
        command.args(["-q", "/dev/null"]);
        command.env("HAULIER_LISTENER", listener.as_raw_fd().to_string());
        command.stdin(Stdio::null());
        kept.push(Some(listener.as_fd()));
    } else {
        command.stdin(listener.try_clone()?);
    }
    if let Some(control) = inherited.control {
        command.env("HAULIER_CONTROL", control.as_raw_fd().to_string());
        kept.push(inherited.control);
    }
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let parent = std::process::id();
    let oom_score = oom_score();
    let (account, nice, rlimits) = (recipe.account.clone(), recipe.nice, recipe.rlimits.clone());
    let inherited: Vec<RawFd> = kept.into_iter().flatten().map(|open| open.as_raw_fd()).collect();
    // SAFETY: between fork and exec the closure makes only async-signal-safe system calls, on values from before the
    // fork; it neither allocates nor locks.
    unsafe {
        command.pre_exec(move || {
            die_first(&oom_score);
            limit(nice, &rlimits)?;
            yield_to_the_server();
            inherited.iter().try_for_each(|&descriptor| keep_open(descriptor))?;
            prepare(account.as_ref(), parent)
        })
    };
    command.spawn()
}

/// The path of an open directory in every process that has inherited it.
fn path_of(directory: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", directory.as_raw_fd())
}

/// Clears close-on-exec, so that the program inherits the descriptor.
fn keep_open(descriptor: RawFd) -> io::Result<()> {
    // SAFETY: a system call with plain numbers.
    check(unsafe { libc::fcntl(descriptor, libc::F_SETFD, 0) })
}

/// Added to our own OOM score, by which the kernel chooses the process to kill when memory runs out.
const OOM_SCORE_MORE: i32 = 500;

/// The OOM score of a child, as the kernel reads it.
fn oom_score() -> String {
    let ours = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap_or_default();
    let ours: i32 = ours.trim().parse().unwrap_or_default();
    (ours + OOM_SCORE_MORE).min(1000).to_string()
}

/// Makes the kernel kill a script rather than the server when memory runs out. A failure is ignored.
fn die_first(score: &str) {
    // SAFETY: system calls on a constant path that ends in NUL, and on bytes that outlive them.
    unsafe {
        let file = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if file >= 0 {
            libc::write(file, score.as_ptr().cast(), score.len());
            libc::close(file);
        }
    }
}

/// Sets the limits of the child while it still has our privileges.
fn limit(nice: i32, rlimits: &[(u32, Option<u64>)]) -> io::Result<()> {
    if nice != 0 {
        rustix::process::nice(nice)?;
    }
    for &(resource, limit) in rlimits {
        let limit = limit.unwrap_or(libc::RLIM_INFINITY);
        let limits = libc::rlimit {
            rlim_cur: limit,
            rlim_max: limit,
        };
        // SAFETY: `limits` outlives the call.
        check(unsafe { libc::setrlimit(resource as _, &raw const limits) })?;
    }
    Ok(())
}

/// Makes PHP wait for a free processor when it gets a request (SCHED_BATCH), instead of preempting the event loop that
/// is about to send the next one: a request costs 7 % less on a busy machine. PHP keeps haulier's policy if that is not
/// the default one. A failure is ignored.
fn yield_to_the_server() {
    let parameters: libc::c_int = 0; // struct sched_param: the priority, which these policies do not have
    // SAFETY: system calls with plain numbers, and with a pointer to a value that outlives them.
    unsafe {
        if libc::syscall(libc::SYS_sched_getscheduler, 0) == libc::c_long::from(libc::SCHED_OTHER) {
            libc::syscall(
                libc::SYS_sched_setscheduler,
                0,
                libc::SCHED_BATCH,
                &raw const parameters,
            );
        }
    }
}

/// All groups of an account, `gid` included.
///
/// # Errors
/// The name contains a NUL.
pub(crate) fn groups_of(name: &str, gid: u32) -> io::Result<Vec<u32>> {
    let name = CString::new(name).map_err(io::Error::other)?;
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let mut count = groups.len() as libc::c_int;
        // SAFETY: the name ends in NUL, and `groups` has room for `count` entries.
        let found = unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &raw mut count) };
        // After a negative result `count` is the number of groups.
        groups.resize(count.max(0) as usize, 0);
        if found >= 0 {
            return Ok(groups);
        }
    }
}

/// The last steps of the child before exec.
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
    block_only(&[])
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

/// Signals for the server, which the spawner blocks.
const OF_THE_SERVER: [libc::c_int; 6] = [
    libc::SIGTERM,
    libc::SIGINT,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
];

/// Blocks the signals for the server in the spawner; the programs that it starts get them again.
///
/// # Errors
/// The system error.
pub(crate) fn keep_signals_off() -> io::Result<()> {
    block_only(&OF_THE_SERVER)
}

/// Blocks exactly these signals in this thread. Neither allocates nor locks.
fn block_only(blocked: &[libc::c_int]) -> io::Result<()> {
    let mut signals = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigemptyset` makes a set of `signals`, and the other calls get one; they outlive the calls.
    unsafe {
        check(libc::sigemptyset(signals.as_mut_ptr()))?;
        for &signal in blocked {
            check(libc::sigaddset(signals.as_mut_ptr(), signal))?;
        }
        match libc::pthread_sigmask(libc::SIG_SETMASK, signals.as_ptr(), ptr::null_mut()) {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
