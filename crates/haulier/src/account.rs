//! Accounts of this machine, looked up by name.
#![allow(unsafe_code)] // getpwnam_r has no safe wrapper that also asks NSS

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::ptr;

use haulier_php::User;

/// The account called `name`, from any account database of the machine.
pub(crate) fn look_up(name: &str) -> Option<User> {
    let wanted = CString::new(name).ok()?;
    let mut entry = MaybeUninit::<libc::passwd>::uninit();
    let mut strings = vec![0; 16 * 1024];
    let mut found = ptr::null_mut();
    // SAFETY: every pointer is valid for the call, `strings` for the length given; `entry` is read only after
    // `found` says that it was filled in.
    let status = unsafe {
        libc::getpwnam_r(
            wanted.as_ptr(),
            entry.as_mut_ptr(),
            strings.as_mut_ptr(),
            strings.len(),
            &mut found,
        )
    };
    if status != 0 || found.is_null() {
        return None;
    }
    // SAFETY: getpwnam_r filled it in.
    let entry = unsafe { entry.assume_init() };
    Some(User {
        name: name.to_owned(),
        uid: entry.pw_uid,
        gid: entry.pw_gid,
    })
}

/// The name of this process's account, or its number where it has none.
pub(crate) fn own_name() -> String {
    let uid = rustix::process::geteuid().as_raw();
    let mut entry = MaybeUninit::<libc::passwd>::uninit();
    let mut strings = vec![0; 16 * 1024];
    let mut found = ptr::null_mut();
    // SAFETY: as above.
    let status = unsafe { libc::getpwuid_r(uid, entry.as_mut_ptr(), strings.as_mut_ptr(), strings.len(), &mut found) };
    if status != 0 || found.is_null() {
        return uid.to_string();
    }
    // SAFETY: getpwuid_r filled it in, and its strings lie in `strings`, each with a zero at its end.
    let name = unsafe { CStr::from_ptr(entry.assume_init().pw_name) };
    name.to_string_lossy().into_owned()
}

/// The number of the group called `name`.
pub(crate) fn group(name: &str) -> Option<u32> {
    let wanted = CString::new(name).ok()?;
    let mut entry = MaybeUninit::<libc::group>::uninit();
    let mut strings = vec![0; 64 * 1024]; // its members are stored there too
    let mut found = ptr::null_mut();
    // SAFETY: as above.
    let status = unsafe {
        libc::getgrnam_r(
            wanted.as_ptr(),
            entry.as_mut_ptr(),
            strings.as_mut_ptr(),
            strings.len(),
            &mut found,
        )
    };
    if status != 0 || found.is_null() {
        return None;
    }
    // SAFETY: getgrnam_r filled it in.
    Some(unsafe { entry.assume_init() }.gr_gid)
}

/// True if this process is root.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_found_and_strangers_are_not() {
        let root = look_up("root").expect("every machine has root");
        assert_eq!((root.uid, root.gid), (0, 0));
        assert!(look_up("nobody-is-called-this").is_none());
        assert!(look_up("with\0nul").is_none());
        assert_eq!(group("root"), Some(0));
        assert_eq!(group("nobody-is-called-this"), None);
    }
}
