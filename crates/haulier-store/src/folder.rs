//! A directory, accessed by its descriptor.
//!
//! Before haulier leaves root, root opens stores and caches in directories of another account. That account could
//! replace a folder by a link, to make root write, delete or chown another file. So every call here starts from a
//! descriptor and follows no link.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

/// Mode of directories: for the serving account and its group.
const PRIVATE: u32 = 0o750;
/// Mode of files, before the umask.
const FILE: u32 = 0o666;

/// Flags to open a folder, but no link to one.
const FOLDER: OFlags = OFlags::DIRECTORY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::RDONLY)
    .union(OFlags::CLOEXEC);

/// A directory, held open.
#[derive(Debug)]
pub(crate) struct Folder(OwnedFd);

/// A new owner of files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner {
    uid: Uid,
    gid: Gid,
}

impl Owner {
    pub(crate) fn new(uid: u32, gid: u32) -> Self {
        Self {
            uid: Uid::from_raw(uid),
            gid: Gid::from_raw(gid),
        }
    }
}

impl Folder {
    /// The directory at `path`, created if missing.
    pub(crate) fn make_at(path: &Path) -> io::Result<Self> {
        // The directories above keep the default mode, since the serving account must be able to pass them.
        if let Some(above) = path.parent() {
            fs::create_dir_all(above)?;
        }
        DirBuilder::new().recursive(true).mode(PRIVATE).create(path)?;
        Self::open(path)
    }

    /// The directory at `path`, which may be a link, since the path is from the configuration.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::open(path, flags, Mode::empty())?))
    }

    /// The directory at `path`, if root owns it and it is no link.
    pub(crate) fn of_root_at(path: &Path) -> io::Result<Option<Self>> {
        // A trailing slash would make the system follow a link.
        let path: PathBuf = path.components().collect();
        of_root(rustix::fs::open(&path, FOLDER, Mode::empty()))
    }

    /// A folder in this one; a link to one is an error.
    pub(crate) fn inner(&self, name: &str) -> io::Result<Self> {
        match rustix::fs::openat(&self.0, name, FOLDER, Mode::empty()) {
            Ok(inner) => Ok(Self(inner)),
            Err(Errno::NOTDIR | Errno::LOOP) => Err(io::Error::new(
                ErrorKind::NotADirectory,
                format!("`{name}` in it is no folder, and a link is not followed there"),
            )),
            Err(error) => Err(error.into()),
        }
    }

    /// A folder in this one, if it exists and root owns it.
    pub(crate) fn inner_of_root(&self, name: &str) -> io::Result<Option<Self>> {
        of_root(rustix::fs::openat(&self.0, name, FOLDER, Mode::empty()))
    }

    /// A folder in this one, created if missing, and synced to disk before use.
    pub(crate) fn make(&self, name: &str) -> io::Result<Self> {
        match rustix::fs::mkdirat(&self.0, name, Mode::from_raw_mode(PRIVATE)) {
            Ok(()) => {}
            Err(Errno::EXIST) => return self.inner(name),
            Err(error) => return Err(error.into()),
        }
        let made = self.inner(name)?;
        self.pass_on(&made.0)?;
        self.sync()?;
        Ok(made)
    }

    /// Creates a file in it, open for writing.
    pub(crate) fn create(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let made = rustix::fs::openat(&self.0, name, flags, Mode::from_raw_mode(FILE))?;
        self.pass_on(&made)?;
        Ok(made.into())
    }

    /// Changes the owner of a new file from root to the owner of the folder.
    fn pass_on(&self, made: &OwnedFd) -> io::Result<()> {
        if !rustix::process::geteuid().is_root() {
            return Ok(());
        }
        let found = rustix::fs::fstat(&self.0)?;
        if found.st_uid == 0 {
            return Ok(());
        }
        match give(made, Owner::new(found.st_uid, found.st_gid)) {
            // On a network file system root may lack this right.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
            given => given,
        }
    }

    /// Links a file of it to a new name, which must be free.
    pub(crate) fn link(&self, name: &str, to: &Self, new: &str) -> io::Result<()> {
        Ok(rustix::fs::linkat(&self.0, name, &to.0, new, AtFlags::empty())?)
    }

    /// Renames a file of it, replacing an existing file of that name.
    pub(crate) fn rename(&self, name: &str, to: &Self, new: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.0, name, &to.0, new)?)
    }

    /// Removes a file, or a link.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::empty())?)
    }

    /// The names in it, unordered. Names that are not UTF-8 are not ours.
    pub(crate) fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.0)? {
            let entry = entry?;
            let name = entry.file_name().to_str().ok();
            names.extend(name.filter(|name| !matches!(*name, "." | "..")).map(str::to_owned));
        }
        Ok(names)
    }

    /// The modification time of a file or link.
    pub(crate) fn modified(&self, name: &str) -> io::Result<SystemTime> {
        let found = rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let seconds = u64::try_from(found.st_mtime).unwrap_or(0);
        Ok(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
    }

    /// Syncs its entries to disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.0)?)
    }

    /// Changes the owner of the folder itself.
    pub(crate) fn give(&self, owner: Owner) -> io::Result<()> {
        give(&self.0, owner)
    }

    /// Changes the owner of a file of it, if root owns the file and it has no other hard link.
    pub(crate) fn give_file(&self, name: &str, owner: Owner) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.0, name, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let found = rustix::fs::fstat(&file)?;
        let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
        if is_file && found.st_nlink == 1 && found.st_uid == 0 {
            // By the descriptor, because the name may refer to another file by now.
            rustix::fs::chownat(&file, "", Some(owner.uid), Some(owner.gid), AtFlags::EMPTY_PATH)?;
        }
        Ok(())
    }
}

/// The opened folder, if it is one and root owns it.
fn of_root(opened: Result<OwnedFd, Errno>) -> io::Result<Option<Folder>> {
    let folder = match opened {
        Ok(folder) => folder,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let is_of_root = rustix::fs::fstat(&folder)?.st_uid == 0;
    Ok(is_of_root.then_some(Folder(folder)))
}

fn give(opened: &impl AsFd, owner: Owner) -> io::Result<()> {
    Ok(rustix::fs::fchown(opened, Some(owner.uid), Some(owner.gid))?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_is_neither_followed_nor_replaced() {
        let directory = tempfile::tempdir().expect("a directory");
        let elsewhere = directory.path().join("elsewhere");
        fs::create_dir(&elsewhere).expect("a folder");
        fs::write(elsewhere.join("kept"), "kept").expect("a file");
        let folder = Folder::make_at(&directory.path().join("new/folder")).expect("it is made");
        let path = directory.path().join("new/folder");
        symlink(&elsewhere, path.join("folder")).expect("a link");
        symlink(elsewhere.join("kept"), path.join("file")).expect("a link");
        symlink(elsewhere.join("made"), path.join("nowhere")).expect("a link");
        for opened in [folder.inner("folder"), folder.make("folder")] {
            let error = opened.expect_err("it is a link");
            assert_eq!(error.kind(), ErrorKind::NotADirectory);
        }
        for name in ["file", "nowhere"] {
            let error = folder.create(name).expect_err("a link has that name");
            assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        }
        assert!(folder.inner_of_root("folder").expect("no fault").is_none());
        assert!(Folder::of_root_at(&path.join("folder/")).expect("no fault").is_none());
        folder.remove("file").expect("the link goes");
        assert_eq!(fs::read_to_string(elsewhere.join("kept")).expect("it stays"), "kept");
        assert_eq!(fs::read_dir(&elsewhere).expect("a folder").count(), 1);
        let mut names = folder.names().expect("a list");
        names.sort();
        assert_eq!(names, ["folder", "nowhere"]);
    }
}
