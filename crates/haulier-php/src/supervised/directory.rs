//! Directories inside a private one: PHP, which cannot enter that, inherits them open.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use crate::spawner::spawn::Inherited;

/// The directories that a php-cgi inherits.
#[derive(Debug, Default)]
pub(crate) struct Directories {
    /// Settings that scripts cannot change.
    pub(crate) admin_ini: Option<OpenDirectory>,
    /// Compiled scripts, if the processes share no memory.
    pub(crate) opcache: Option<OpenDirectory>,
    /// The extension that makes PHP a master of workers of our own.
    pub(crate) extension: Option<BorrowedFd<'static>>,
}

impl Directories {
    pub(crate) fn inherited(&self) -> Inherited<'_> {
        Inherited {
            admin_ini: self.admin_ini.as_ref().map(AsFd::as_fd),
            opcache: self.opcache.as_ref().map(AsFd::as_fd),
            extension: self.extension,
            control: None,
        }
    }
}

/// A new directory, held open. Dropping the value removes it with its content.
#[derive(Debug)]
pub(crate) struct OpenDirectory {
    path: PathBuf,
    opened: OwnedFd,
}

impl OpenDirectory {
    /// Creates a directory that only this account may use (0700).
    ///
    /// # Errors
    /// The system error, such as `AlreadyExists`.
    pub(crate) fn create(path: PathBuf) -> io::Result<Self> {
        DirBuilder::new().mode(0o700).create(&path)?;
        let opened = File::open(&path)?.into();
        Ok(Self { path, opened })
    }

    /// Changes its owner.
    ///
    /// # Errors
    /// The system error.
    pub(crate) fn give_to(&self, uid: u32, gid: u32) -> io::Result<()> {
        std::os::unix::fs::fchown(&self.opened, Some(uid), Some(gid))
    }

    /// Its path in every process that has inherited it.
    pub(crate) fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.opened.as_raw_fd())
    }
}

impl AsFd for OpenDirectory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.opened.as_fd()
    }
}

impl Drop for OpenDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path); // may be gone with the directory above it
    }
}
