//! The directory of keys and certificates: private, and shared by the servers that serve the same names.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use haulier_php::User;
use rustix::fs::{AtFlags, Dir, FlockOperation, Gid, Mode, OFlags, Uid, flock};
use rustix::io::Errno;

/// Makes a directory that only its owner may enter.
pub(super) fn make_private(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

/// Writes a file that only its owner may read, whole or not at all.
pub(super) fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let new = path.with_extension(format!("{}.new", std::process::id()));
    // Left by a dead process of the same number.
    let _ = fs::remove_file(&new);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&new, path)
}

/// An exclusive lock on the state directory among all processes.
#[derive(Debug)]
pub(super) struct Lock(#[allow(dead_code, reason = "closing it opens the lock")] File);

impl Lock {
    pub(super) fn take(directory: &Path) -> io::Result<Self> {
        make_private(directory)?;
        let path = directory.join("lock");
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .open(path)?;
        flock(&file, FlockOperation::LockExclusive)?;
        Ok(Self(file))
    }
}

/// Gives a directory with all that is in it to the account that will serve.
///
/// Root does it, in a tree that the account may have changed since. So no link is followed, and each entry is opened
/// relative to its directory.
pub(super) fn give_to(directory: &Path, user: &User) -> io::Result<()> {
    let opened = rustix::fs::open(directory, DIRECTORY, Mode::empty())?;
    give_opened(&opened, user)
}

const DIRECTORY: OFlags = OFlags::DIRECTORY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::RDONLY)
    .union(OFlags::CLOEXEC);

fn give_opened(directory: &OwnedFd, user: &User) -> io::Result<()> {
    let (uid, gid) = (Some(Uid::from_raw(user.uid)), Some(Gid::from_raw(user.gid)));
    rustix::fs::fchown(directory, uid, gid)?;
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        match rustix::fs::openat(directory, name, DIRECTORY, Mode::empty()) {
            Ok(inner) => give_opened(&inner, user)?,
            Err(Errno::NOTDIR | Errno::LOOP) => {
                rustix::fs::chownat(directory, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The name of a directory, made of an address.
pub(super) fn slug(url: &str) -> PathBuf {
    let after_scheme = url.split_once("://").map_or(url, |(_, rest)| rest);
    let one = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    let slug: String = after_scheme.chars().map(one).collect();
    PathBuf::from(slug.trim_matches(['-', '.']))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn files_are_private_and_replaced_whole() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let inner = directory.path().join("a/b");
        make_private(&inner).expect("directories are made");
        let path = inner.join("key.pem");
        for content in ["one", "two"] {
            write_private(&path, content.as_bytes()).expect("the directory is ours");
            assert_eq!(fs::read_to_string(&path).expect("it is there"), content);
        }
        let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
        assert_eq!((mode(&inner), mode(&path)), (0o700, 0o600));
        assert_eq!(fs::read_dir(&inner).expect("it is there").count(), 1);
    }

    #[test]
    fn a_lock_is_one_processes() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let held = Lock::take(directory.path()).expect("the lock is free");
        let other = File::open(directory.path().join("lock")).expect("it is there");
        assert!(flock(&other, FlockOperation::NonBlockingLockExclusive).is_err());
        drop(held);
        flock(&other, FlockOperation::NonBlockingLockExclusive).expect("the lock is free again");
    }

    #[test]
    fn what_a_link_leads_to_is_not_given_away() {
        use std::os::unix::fs::{MetadataExt, symlink};
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: only root gives files away");
            return;
        }
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (state, other) = (directory.path().join("state"), directory.path().join("other"));
        make_private(&state.join("inner")).expect("directories are made");
        make_private(&other).expect("directories are made");
        write_private(&state.join("inner/key"), b"x").expect("the directory is ours");
        write_private(&other.join("key"), b"x").expect("the directory is ours");
        symlink(&other, state.join("inner/link")).expect("a link");
        let user = User {
            name: "somebody".to_owned(),
            uid: 12_345,
            gid: 12_345,
        };
        give_to(&state, &user).expect("it can be given");
        let owner = |path: PathBuf| fs::symlink_metadata(path).expect("it is there").uid();
        for given in ["", "inner", "inner/key", "inner/link"] {
            assert_eq!(owner(state.join(given)), 12_345, "{given}");
        }
        assert_eq!((owner(other.clone()), owner(other.join("key"))), (0, 0));
    }

    #[test]
    fn an_address_names_a_directory() {
        let named = slug("https://acme-v02.api.letsencrypt.org/directory");
        assert_eq!(named, Path::new("acme-v02.api.letsencrypt.org-directory"));
        assert_eq!(
            slug("https://127.0.0.1:14000/dir?x=../.."),
            Path::new("127.0.0.1-14000-dir-x")
        );
        assert_eq!(slug("https://../"), Path::new(""));
    }
}
