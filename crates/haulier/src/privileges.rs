//! The change from root, which binds the ports, to the serving account. It cannot be undone.
#![allow(unsafe_code)] // rustix changes the account of one thread; the C library's calls change it for the process

use std::ffi::CString;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use haulier_php::User;

static LEFT_ROOT: AtomicBool = AtomicBool::new(false);

/// True if this process was root and is no longer: it may be unable to read its files again.
pub(crate) fn has_left_root() -> bool {
    LEFT_ROOT.load(Ordering::Relaxed)
}

/// Gives this process, with all its threads, the user id, the group and the further groups of `user`.
///
/// # Errors
/// A change was refused, or the process could become root again. It must not continue then.
pub(crate) fn drop_to(user: &User) -> io::Result<()> {
    let name = CString::new(user.name.as_str()).map_err(io::Error::other)?;
    // SAFETY: the name ends in NUL and outlives the call; the others are plain numbers.
    check(unsafe { libc::initgroups(name.as_ptr(), user.gid) })?;
    // SAFETY: plain numbers.
    check(unsafe { libc::setresgid(user.gid, user.gid, user.gid) })?;
    // SAFETY: plain numbers. With all three ids changed the kernel takes every capability away (capabilities(7)).
    check(unsafe { libc::setresuid(user.uid, user.uid, user.uid) })?;
    // SAFETY: plain numbers.
    if user.uid != 0 && (unsafe { libc::setuid(0) } == 0 || unsafe { libc::setgid(0) } == 0 && user.gid != 0) {
        return Err(io::Error::other("root's rights could be had back"));
    }
    LEFT_ROOT.store(user.uid != 0, Ordering::Relaxed);
    Ok(())
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
