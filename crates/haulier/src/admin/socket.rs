//! A listening socket in the file system that only its owner may use.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener as StdUnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::UnixListener;

/// Connections that may wait in the kernel.
const BACKLOG: i32 = 128;

/// A bound socket, mode 0600; its file goes with it.
#[derive(Debug)]
pub(crate) struct SocketFile {
    listener: StdUnixListener,
    path: PathBuf,
    /// Device and inode of the file: another process may have put its own in that place. `None` while another process
    /// has to remove the file.
    identity: Option<(u64, u64)>,
}

impl SocketFile {
    /// Binds it. A file left by a process that is gone is replaced.
    ///
    /// # Errors
    /// `AddrInUse` if a process listens there, or another file has that name; otherwise the error of the system.
    pub(crate) fn bind(path: &Path) -> io::Result<Self> {
        let listener = match listen(path) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && is_abandoned(path) => {
                fs::remove_file(path)?;
                listen(path)?
            }
            listening => listening?,
        };
        let found = fs::symlink_metadata(path)?;
        Ok(Self {
            listener,
            path: path.to_owned(),
            identity: Some((found.dev(), found.ino())),
        })
    }

    /// A socket that another process has bound and whose file it keeps. `None` if it is not a Unix socket with a path.
    pub(crate) fn adopt(socket: OwnedFd) -> Option<Self> {
        let listener = StdUnixListener::from(socket);
        let path = listener.local_addr().ok()?.as_pathname()?.to_owned();
        listener.set_nonblocking(true).ok()?;
        Some(Self {
            listener,
            path,
            identity: None,
        })
    }

    /// Takes charge of the file: the process that bound it has given it up.
    pub(crate) fn claim(&mut self) {
        let found = fs::symlink_metadata(&self.path).ok();
        self.identity = found.map(|found| (found.dev(), found.ino()));
    }

    /// A copy of the socket.
    ///
    /// # Errors
    /// No descriptors left.
    pub(crate) fn socket(&self) -> io::Result<OwnedFd> {
        self.listener.try_clone().map(OwnedFd::from)
    }

    /// Leaves the file to the process that takes over the socket.
    pub(crate) fn give_away(mut self) {
        self.identity = None;
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The socket in the event loop of the current runtime.
    ///
    /// # Errors
    /// The event loop does not take it.
    pub(crate) fn listener(&self) -> io::Result<UnixListener> {
        UnixListener::from_std(self.listener.try_clone()?)
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours = |found: fs::Metadata| self.identity == Some((found.dev(), found.ino()));
        if fs::symlink_metadata(&self.path).is_ok_and(is_ours) {
            let _ = fs::remove_file(&self.path); // may be gone with its directory
        }
    }
}

fn listen(path: &Path) -> io::Result<StdUnixListener> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
    // Linux gives the file the mode of the socket, so no other user can connect before the next line.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    socket.bind(&SockAddr::unix(path)?)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// True for a socket on which no process listens.
fn is_abandoned(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
        && UnixStream::connect(path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_owner_may_connect_and_the_file_goes_with_its_owner() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("control.sock");
        let socket = SocketFile::bind(&path).expect("a free name");
        assert_eq!(
            fs::metadata(&path).expect("it is there").permissions().mode() & 0o777,
            0o600
        );
        let again = SocketFile::bind(&path).expect_err("somebody listens there");
        assert_eq!(again.kind(), ErrorKind::AddrInUse);
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn what_a_dead_process_left_is_replaced_but_no_other_file_is() {
        let place = tempfile::tempdir().expect("a directory");
        let (left, text) = (place.path().join("left.sock"), place.path().join("text"));
        drop(StdUnixListener::bind(&left).expect("a free name"));
        assert!(left.exists(), "closing a socket leaves its file");
        let socket = SocketFile::bind(&left).expect("nobody listens there");
        fs::write(&text, "precious").expect("the directory is ours");
        assert!(SocketFile::bind(&text).is_err());
        assert_eq!(fs::read_to_string(&text).expect("still there"), "precious");
        // Another process took the name over: its file stays.
        fs::remove_file(&left).expect("ours");
        let successor = SocketFile::bind(&left).expect("free again");
        drop(socket);
        assert!(left.exists());
        drop(successor);
    }

    #[test]
    fn a_socket_that_another_process_took_over_is_its_to_remove() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("control.sock");
        let before = SocketFile::bind(&path).expect("a free name");
        let adopt = || SocketFile::adopt(before.socket().expect("a descriptor")).expect("a socket with a name");
        drop(adopt());
        assert!(path.exists(), "it is the first one's until that gives way");
        let mut after = adopt();
        before.give_away();
        after.claim();
        assert!(UnixStream::connect(&path).is_ok(), "it listens all the while");
        assert_eq!(after.path(), path);
        drop(after);
        assert!(!path.exists());
    }
}
