//! Opens a name below a root and never leaves the root.
//!
//! The kernel resolves the name below the root's descriptor and follows no symbolic link. A name with a link is
//! resolved here and then opened by its real path, so swapping directories meanwhile gains nothing.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

/// A directory below which names are opened: a document root, or one that scripts may send files from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Root<'r> {
    /// Absolute, without symbolic links.
    pub(crate) path: &'r Path,
    pub(crate) directory: BorrowedFd<'r>,
}

/// The object a name stands for.
#[derive(Debug)]
pub(super) enum Opened {
    File(Regular),
    Directory,
    /// No object, or one that cannot be sent: a FIFO, a socket, a device.
    Missing,
    /// A symbolic link that leads out of the root or in a circle.
    Outside,
}

/// A regular file, open for reading.
#[derive(Debug)]
pub(super) struct Regular {
    pub(super) file: File,
    pub(super) version: Version,
    /// Its path below the root without symbolic links, if it differs from the requested one.
    pub(super) real: Option<Vec<u8>>,
}

/// Identity and state of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Version {
    pub(super) device: u64,
    pub(super) inode: u64,
    /// Bytes.
    pub(super) size: u64,
    /// Time of modification: seconds since 1970 and nanoseconds.
    pub(super) modified: (i64, u64),
    /// Time of the last change of content, owner or mode.
    changed: (i64, u64),
}

impl Version {
    fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// True if the file has not changed for this long. Times are as coarse as the kernel's clock: two writes within a
    /// tick look like one state.
    pub(super) fn is_settled(&self, since: Duration, now: SystemTime) -> bool {
        let (seconds, nanoseconds) = self.changed;
        let changed =
            u64::try_from(seconds).map(|seconds| Duration::from_secs(seconds) + Duration::from_nanos(nanoseconds));
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        changed.is_ok_and(|changed| now.checked_sub(changed).is_some_and(|age| age >= since))
    }

    /// Identifies this state of the file across processes.
    pub(super) fn key(&self) -> String {
        let (modified, changed) = (self.modified, self.changed);
        format!(
            "{:x}-{:x}-{:x}-{:x}.{:x}-{:x}.{:x}",
            self.device, self.inode, self.size, modified.0, modified.1, changed.0, changed.1
        )
    }

    #[cfg(test)]
    pub(super) fn sample(modified: (i64, u64)) -> Self {
        Self {
            device: 1,
            inode: 2,
            size: 3,
            modified,
            changed: modified,
        }
    }

    /// The present state of this path below the root. Links are followed: only the file that was opened compares equal.
    pub(super) fn now(root: Root<'_>, path: &[u8]) -> Option<Self> {
        let stat = rustix::fs::statat(root.directory, relative(path), rustix::fs::AtFlags::empty()).ok()?;
        Some(Self::of(&stat))
    }

    /// The state of an open file.
    pub(super) fn of_file(file: &File) -> io::Result<Self> {
        Ok(Self::of(&rustix::fs::fstat(file)?))
    }

    /// The present state of this path, as [`Version::now`].
    pub(super) fn at(path: &Path) -> Option<Self> {
        Some(Self::of(&rustix::fs::stat(path).ok()?))
    }
}

/// Opens this path, which begins with `/`.
///
/// # Errors
/// The system's error for a name that may exist: no descriptors left, no permission, EIO.
pub(super) fn open(root: Root<'_>, path: &[u8]) -> io::Result<Opened> {
    // O_NONBLOCK: opening a FIFO without a writer must not block the thread.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    match beneath(root.directory, relative(path), flags) {
        Err(Errno::LOOP) => through_links(root, path, flags),
        // A directory without read permission can still be passed through.
        Err(Errno::ACCESS) if is_directory(root, path)? => Ok(Opened::Directory),
        opened => classify(opened, None),
    }
}

/// True if this path is a directory.
///
/// # Errors
/// As [`open`].
pub(super) fn is_directory(root: Root<'_>, path: &[u8]) -> io::Result<bool> {
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    let opened = match beneath(root.directory, relative(path), flags) {
        Err(Errno::LOOP) => through_links(root, path, flags)?,
        opened => classify(opened, None)?,
    };
    Ok(matches!(opened, Opened::Directory))
}

/// Opens this directory to list it; `None` if it is no directory.
///
/// # Errors
/// As [`open`].
pub(crate) fn open_directory(root: Root<'_>, path: &[u8]) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let opened = match beneath(root.directory, relative(path), flags) {
        Err(Errno::LOOP) => match real_path(root, path)? {
            Real::Inside(real) => beneath(root.directory, relative(&real), flags),
            Real::Missing | Real::Outside => return Ok(None),
        },
        opened => opened,
    };
    match opened {
        Ok(directory) => Ok(Some(directory)),
        Err(error) if is_missing(error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Resolves a name that contains a symbolic link, and opens its target.
fn through_links(root: Root<'_>, path: &[u8], flags: OFlags) -> io::Result<Opened> {
    match real_path(root, path)? {
        Real::Inside(real) => match beneath(root.directory, relative(&real), flags) {
            // Replaced by another link meanwhile.
            Err(Errno::LOOP) => Ok(Opened::Missing),
            opened => classify(opened, Some(real)),
        },
        Real::Missing => Ok(Opened::Missing),
        Real::Outside => Ok(Opened::Outside),
    }
}

/// Target of a path with symbolic links.
enum Real {
    /// A path below the root.
    Inside(Vec<u8>),
    Missing,
    Outside,
}

fn real_path(root: Root<'_>, path: &[u8]) -> io::Result<Real> {
    let real = match root.path.join(OsStr::from_bytes(relative(path))).canonicalize() {
        Ok(real) => real,
        Err(error) => {
            return match Errno::from_io_error(&error) {
                Some(Errno::LOOP) => Ok(Real::Outside),
                Some(errno) if is_missing(errno) => Ok(Real::Missing),
                _ => Err(error),
            };
        }
    };
    let Ok(inside) = real.strip_prefix(root.path) else {
        return Ok(Real::Outside);
    };
    let mut real = b"/".to_vec();
    real.extend(inside.to_path_buf().into_os_string().into_vec());
    if path.ends_with(b"/") && !real.ends_with(b"/") {
        real.push(b'/');
    }
    Ok(Real::Inside(real))
}

fn classify(opened: Result<OwnedFd, Errno>, real: Option<Vec<u8>>) -> io::Result<Opened> {
    let descriptor = match opened {
        Ok(descriptor) => descriptor,
        Err(error) if is_missing(error) => return Ok(Opened::Missing),
        Err(Errno::LOOP | Errno::XDEV) => return Ok(Opened::Outside),
        Err(error) => return Err(error.into()),
    };
    let stat = rustix::fs::fstat(&descriptor)?;
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Opened::File(Regular {
            file: File::from(descriptor),
            version: Version::of(&stat),
            real,
        }),
        FileType::Directory => Opened::Directory,
        _ => Opened::Missing,
    })
}

/// Errors that mean "no such file" for a name chosen by a client. ENXIO: a socket, or a device without a driver.
fn is_missing(error: Errno) -> bool {
    matches!(
        error,
        Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::NXIO | Errno::NODEV | Errno::INVAL | Errno::ILSEQ
    )
}

/// True if the limit of open files is reached.
pub(super) fn out_of_descriptors(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// The path relative to a directory descriptor.
fn relative(path: &[u8]) -> &[u8] {
    match path {
        [b'/', rest @ ..] if !rest.is_empty() => rest,
        _ => b".",
    }
}

/// Set once the kernel or a system call filter has rejected openat2.
static NO_OPENAT2: AtomicBool = AtomicBool::new(false);

/// Opens a relative name below a directory; a symbolic link anywhere in it is ELOOP.
fn beneath(root: BorrowedFd<'_>, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    if NO_OPENAT2.load(Ordering::Relaxed) {
        return walk(root, name, flags);
    }
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    // EAGAIN: a concurrent rename disturbed the resolution (openat2(2)).
    for _ in 0..8 {
        match rustix::fs::openat2(root, name, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            // Container runtimes return EPERM for system calls they do not know.
            Err(Errno::NOSYS | Errno::PERM) => {
                NO_OPENAT2.store(true, Ordering::Relaxed);
                return walk(root, name, flags);
            }
            opened => return opened,
        }
    }
    Err(Errno::AGAIN)
}

/// The same without openat2: opens one directory after the other and follows no link.
fn walk(root: BorrowedFd<'_>, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let mut directory: Option<OwnedFd> = None;
    let wants_directory = name.ends_with(b"/");
    let mut segments = name
        .split(|&byte| byte == b'/')
        .filter(|segment| !segment.is_empty())
        .peekable();
    while let Some(segment) = segments.next() {
        if segment == b".." {
            return Err(Errno::XDEV);
        }
        let parent = directory.as_ref().map_or(root, AsFd::as_fd);
        let is_last = segments.peek().is_none();
        let wanted = match (is_last, wants_directory) {
            (false, _) => OFlags::PATH,
            (true, false) => flags,
            (true, true) => flags | OFlags::DIRECTORY,
        };
        // O_PATH with O_NOFOLLOW opens a link itself instead of refusing it, hence the check below.
        let opened = rustix::fs::openat(
            parent,
            segment,
            wanted | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        );
        let opened = opened.map_err(|error| link_or(parent, segment, error))?;
        if wanted.contains(OFlags::PATH) && is_link(&opened)? {
            return Err(Errno::LOOP);
        }
        if is_last {
            return Ok(opened);
        }
        directory = Some(opened);
    }
    Err(Errno::NOENT)
}

fn is_link(descriptor: &OwnedFd) -> Result<bool, Errno> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(descriptor)?.st_mode) == FileType::Symlink)
}

/// Reports a link as ELOOP: O_DIRECTORY returns ENOTDIR for it before O_NOFOLLOW applies.
fn link_or(parent: BorrowedFd<'_>, segment: &[u8], error: Errno) -> Errno {
    let is_link = || {
        rustix::fs::statat(parent, segment, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
    };
    if error == Errno::NOTDIR && is_link() {
        Errno::LOOP
    } else {
        error
    }
}

/// Results of openat2 and the walk for the same name: the kind of the opened object, or the error.
#[cfg(test)]
pub(super) fn both_ways(root: Root<'_>, name: &[u8], flags: OFlags) -> [Result<FileType, Errno>; 2] {
    let kind = |opened: Result<OwnedFd, Errno>| Ok(FileType::from_raw_mode(rustix::fs::fstat(opened?)?.st_mode));
    [
        kind(beneath(root.directory, name, flags)),
        kind(walk(root.directory, name, flags)),
    ]
}
