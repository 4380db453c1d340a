//! The sandbox of a worker, entered before it reads any untrusted byte: privileges, files, system calls, memory, time.
//!
//! If the kernel lacks Landlock or seccomp, the worker continues without, and reports it. Resource limits
//! (setrlimit(2)) always apply.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use landlock::{ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetStatus};
use rustix::process::{Gid, Resource, Rlimit, Signal, Uid, set_parent_process_death_signal, setrlimit};
use rustix::thread::{set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter,
};

/// Most address space of a worker, bytes: the pixels of the largest image, the original, and our own binary.
const ADDRESS_SPACE: u64 = 1 << 30;
/// Most bytes of a result.
pub(super) const LARGEST_RESULT: u64 = 64 << 20;
/// CPU seconds of a worker; the pool replaces it earlier.
const CPU_SECONDS: u64 = 600;
/// Most descriptors: socket, result file, /proc/self/statm, an original, and some spare.
const DESCRIPTORS: u64 = 16;
/// The account `nobody`, on every Linux.
const NOBODY: u32 = 65534;

/// Enters the sandbox. Returns the parts that the kernel lacks.
///
/// # Errors
/// A resource limit or the change of user fails, which should not happen.
pub(super) fn enter() -> io::Result<Vec<String>> {
    let mut without = Vec::new();
    limit()?;
    give_up_user()?;
    // After the change of user, which clears the signal.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    set_no_new_privs(true)?;
    if !forbid_files() {
        without.push("landlock".into());
    }
    if !restrict_calls() {
        without.push("seccomp".into());
    }
    Ok(without)
}

fn limit() -> io::Result<()> {
    let limits = [
        (Resource::As, ADDRESS_SPACE, ADDRESS_SPACE),
        // Below the hard limit the signal is SIGXCPU, which is told apart from a SIGKILL from outside.
        (Resource::Cpu, CPU_SECONDS, CPU_SECONDS + 5),
        (Resource::Nofile, DESCRIPTORS, DESCRIPTORS),
        (Resource::Fsize, LARGEST_RESULT, LARGEST_RESULT),
        (Resource::Core, 0, 0),
    ];
    for (resource, current, maximum) in limits {
        setrlimit(
            resource,
            Rlimit {
                current: Some(current),
                maximum: Some(maximum),
            },
        )?;
    }
    Ok(())
}

/// Changes to the user `nobody` if the server runs as root.
fn give_up_user() -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let (group, user) = (Gid::from_raw(NOBODY), Uid::from_raw(NOBODY));
    set_thread_groups(&[])?;
    set_thread_res_gid(group, group, group)?;
    set_thread_res_uid(user, user, user)?;
    Ok(())
}

/// Forbids to open, create and remove files, by a ruleset without permissions. False if the kernel lacks Landlock.
fn forbid_files() -> bool {
    let locked = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(ABI::V5))
        .and_then(Ruleset::create)
        .and_then(landlock::RulesetCreated::restrict_self);
    locked.is_ok_and(|status| status.ruleset != RulesetStatus::NotEnforced)
}

/// Allows only the system calls for computing and for messages; any other fails with EPERM. False if the kernel lacks
/// seccomp.
fn restrict_calls() -> bool {
    filter().is_some_and(|program| apply_filter(&program).is_ok())
}

fn filter() -> Option<BpfProgram> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = ALLOWED.iter().map(|&call| (call, Vec::new())).collect();
    // Memory may be mapped, but not as executable.
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        let cannot_run = SeccompCondition::new(
            2,
            SeccompCmpArgLen::Dword,
            SeccompCmpOp::MaskedEq(libc::PROT_EXEC as u64),
            0,
        );
        rules.insert(call, vec![SeccompRule::new(vec![cannot_run.ok()?]).ok()?]);
    }
    // abort() signals its own thread; other processes of the same user must not be signalled.
    let own = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, std::process::id().into());
    rules.insert(libc::SYS_tgkill, vec![SeccompRule::new(vec![own.ok()?]).ok()?]);
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Errno(libc::EPERM as u32),
        SeccompAction::Allow,
        std::env::consts::ARCH.try_into().ok()?,
    );
    filter.ok()?.try_into().ok()
}

/// The allowed system calls: none names a path, an address or another process, or starts a thread, process or program.
const ALLOWED: [i64; 27] = [
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_write,
    libc::SYS_lseek,
    libc::SYS_ftruncate,
    libc::SYS_fstat,
    libc::SYS_close,
    libc::SYS_recvmsg,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_futex,
    libc::SYS_clock_gettime,
    libc::SYS_getrandom,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigaction,
    libc::SYS_sigaltstack,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Reads the worker's own memory use, through a descriptor from before the sandbox.
pub(super) struct Resident {
    statm: File,
    /// Page size in bytes, read before the sandbox because the system may read it from a file.
    page: u64,
}

impl Resident {
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self {
            statm: File::open("/proc/self/statm")?,
            page: rustix::param::page_size() as u64,
        })
    }

    /// Resident memory, bytes.
    pub(super) fn read(&self) -> io::Result<u64> {
        let mut text = [0; 128];
        let length = self.statm.read_at(&mut text, 0)?;
        let text = str::from_utf8(&text[..length]).map_err(io::Error::other)?;
        let pages: Option<u64> = text.split(' ').nth(1).and_then(|pages| pages.parse().ok());
        Ok(pages.unwrap_or(0) * self.page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_memory_can_be_read() {
        let resident = Resident::open().expect("/proc").read().expect("a number");
        assert!((1 << 20..1 << 34).contains(&resident), "{resident}");
    }

    /// Tests if a signal could be sent to the first thread of a process, without sending one.
    #[allow(unsafe_code, reason = "the call has no wrapper, and takes three numbers")]
    fn may_signal(process: u32) -> io::Result<()> {
        // SAFETY: no memory is passed.
        match unsafe { libc::syscall(libc::SYS_tgkill, process, process, 0) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    #[test]
    fn no_other_process_can_be_signalled() {
        let parent = std::os::unix::process::parent_id();
        // The filter holds for the thread that applies it.
        let sandboxed = std::thread::spawn(move || {
            let program = filter().expect("it compiles");
            apply_filter(&program).expect("this kernel has seccomp");
            (may_signal(std::process::id()).is_ok(), may_signal(parent))
        });
        let (own, other) = sandboxed.join().expect("no panic");
        assert!(own, "abort() must do what it does");
        let error = other.expect_err("it is another process");
        assert_eq!(error.raw_os_error(), Some(libc::EPERM));
        if rustix::process::geteuid().is_root() {
            may_signal(parent).expect("without the filter it could be");
        }
    }

    #[test]
    fn the_filter_compiles_here() {
        assert!(filter().is_some_and(|program| program.len() > ALLOWED.len()));
    }
}
