//! Sockets that listen: one a thread on the same port, so that the kernel spreads the connections.
#![allow(unsafe_code)] // setsockopt(TCP_DEFER_ACCEPT), which no safe wrapper offers

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::Address;
use crate::settings::ServerSettings;

/// An address we listen on, with a socket for each thread.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) address: Address,
    /// Connections begin with a TLS handshake.
    pub(crate) is_secure: bool,
    pub(crate) sockets: Vec<OwnedFd>,
    /// Where a Unix socket lies.
    pub(crate) file: Option<SocketFile>,
}

/// The server could not be made ready.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("cannot listen on {address}")]
    Address { address: Address, source: io::Error },
    #[error("cannot open the document root {} of site `{site}`", root.display())]
    Root {
        site: String,
        root: PathBuf,
        source: io::Error,
    },
}

/// As long a queue as the kernel allows (net.core.somaxconn cuts it).
const BACKLOG: i32 = 65_535;

impl Listener {
    /// Binds one socket a thread.
    ///
    /// # Errors
    /// [`BindError`], also if another program listens there and `reuse_port` is not set: SO_REUSEPORT alone would
    /// let a second server of the same user share the port in silence, so a plain bind is tried first.
    pub(crate) fn bind(address: &Address, settings: &ServerSettings) -> Result<Self, BindError> {
        let bound = match address {
            Address::Internet(internet) => {
                Self::bind_internet(*internet, settings.threads, settings.reuse_port, settings.defer_accept)
            }
            Address::Unix(path) => Self::bind_unix(path, settings.threads, settings.socket_mode),
        };
        bound.map_err(|source| BindError::Address {
            address: address.clone(),
            source,
        })
    }

    /// Its connections begin with a TLS handshake.
    pub(crate) fn secured(mut self) -> Self {
        self.is_secure = true;
        self
    }

    fn bind_internet(address: SocketAddr, threads: usize, reuse_port: bool, defer_accept: bool) -> io::Result<Self> {
        let mut bound = address;
        if !reuse_port {
            let probe = socket(address, false).and_then(|probe| {
                probe.bind(&address.into())?;
                probe.listen(1)?;
                local_address(&probe)
            });
            bound = probe?;
        }
        let mut sockets = Vec::with_capacity(threads);
        for _ in 0..threads.max(1) {
            let listening = listening(bound, defer_accept)?;
            bound = local_address(&listening)?;
            sockets.push(listening.into());
        }
        Ok(Self {
            address: bound.into(),
            is_secure: false,
            sockets,
            file: None,
        })
    }

    /// All threads share one socket: the kernel keeps one queue for a path.
    fn bind_unix(path: &Path, threads: usize, mode: u32) -> io::Result<Self> {
        remove_stale(path)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.bind(&SockAddr::unix(path)?)?;
        // Nobody can connect before `listen`, so nobody comes in before the permissions are right.
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        let file = SocketFile::of(path)?;
        socket.listen(BACKLOG)?;
        let mut sockets = vec![OwnedFd::from(socket)];
        while sockets.len() < threads {
            sockets.push(sockets[0].try_clone()?);
        }
        Ok(Self {
            address: Address::Unix(path.to_owned()),
            is_secure: false,
            sockets,
            file: Some(file),
        })
    }
}

/// Takes the socket away that a server which was killed left behind.
fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "a file that is no socket lies there",
            ));
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) => Err(error),
        Ok(_) => Err(io::Error::from(io::ErrorKind::AddrInUse)),
    }
}

/// The file of a Unix socket: removed with this value, unless another server has put its own there since.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    identity: Identity,
}

impl SocketFile {
    fn of(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            identity: identity(path)?,
        })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|found| found == self.identity) {
            let _ = fs::remove_file(&self.path); // the directory may no longer be ours to write; the next start copes
        }
    }
}

/// Device, inode and time of change: a file system gives the number of a removed file to the next one.
type Identity = (u64, u64, i64, i64);

fn identity(path: &Path) -> io::Result<Identity> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino(), found.ctime(), found.ctime_nsec()))
}

fn socket(address: SocketAddr, reuse_port: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(reuse_port)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    Ok(socket)
}

fn listening(address: SocketAddr, defer_accept: bool) -> io::Result<Socket> {
    let socket = socket(address, true)?;
    // Accepted sockets inherit it: no call per connection.
    socket.set_tcp_nodelay(true)?;
    if defer_accept {
        set_defer_accept(&socket)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

/// A connection is handed over once its first bytes are there: one wake-up instead of two for a request.
fn set_defer_accept(socket: &Socket) -> io::Result<()> {
    let seconds: libc::c_int = 1;
    // SAFETY: the descriptor is open for the whole call, and the pointer and length describe one c_int.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_DEFER_ACCEPT,
            (&raw const seconds).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn local_address(socket: &Socket) -> io::Result<SocketAddr> {
    let address = socket.local_addr()?;
    address
        .as_socket()
        .ok_or_else(|| io::Error::other("not an internet socket"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_server_does_not_bind_in_silence() {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let first = Listener::bind_internet(address, 2, false, true).expect("a free port");
        let taken = first.address.internet().expect("an internet address");
        let error = Listener::bind_internet(taken, 1, false, true).expect_err("the port is taken");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(Listener::bind_internet(taken, 1, true, true).is_ok());
    }

    #[test]
    fn a_socket_of_a_dead_server_is_replaced_and_that_of_a_living_one_is_not() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("x.sock");
        let first = Listener::bind_unix(&path, 2, 0o640).expect("a new socket");
        let mode = fs::metadata(&path).expect("it is there").permissions().mode();
        assert_eq!((mode & 0o777, first.sockets.len()), (0o640, 2));
        let error = Listener::bind_unix(&path, 1, 0o600).expect_err("somebody listens there");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        let Listener { sockets, file, .. } = first;
        drop(sockets);
        let second = Listener::bind_unix(&path, 1, 0o600).expect("nobody listens any more");
        drop(file);
        assert!(path.exists(), "the file is another server's now");
        drop(second);
        assert!(!path.exists());
        fs::write(&path, "precious").expect("the directory is ours");
        Listener::bind_unix(&path, 1, 0o600).expect_err("a file is never removed");
        assert_eq!(fs::read_to_string(&path).expect("still there"), "precious");
    }
}
