//! Listening sockets: one for each thread on the same port, so that the kernel spreads the connections.
#![allow(unsafe_code)] // setsockopt(TCP_DEFER_ACCEPT) has no safe wrapper

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

use super::Endpoint;
use crate::io::Address;
use crate::settings::ServerSettings;

/// A bound address, with at least one socket for each thread.
#[derive(Debug)]
pub(crate) struct Listener {
    /// As configured, perhaps with port 0.
    pub(crate) configured: Address,
    /// As bound.
    pub(crate) address: Address,
    /// Connections begin with a TLS handshake.
    pub(crate) is_secure: bool,
    pub(crate) sockets: Vec<OwnedFd>,
    /// The file of a Unix socket.
    pub(crate) file: Option<SocketFile>,
}

/// Sockets of one address that another process has bound: the service manager, or the previous haulier.
#[derive(Debug)]
pub struct InheritedSockets {
    /// The address that they listen on.
    pub address: Address,
    /// True if connections begin with TLS; `None` if the configuration of the address decides.
    pub is_secure: Option<bool>,
    /// One, or one for each thread of the previous haulier.
    pub sockets: Vec<OwnedFd>,
}

impl InheritedSockets {
    /// Takes listening sockets.
    ///
    /// # Errors
    /// A socket does not listen, or is of another address family.
    pub fn new(sockets: Vec<OwnedFd>, is_secure: Option<bool>) -> io::Result<Self> {
        let mut found = None;
        for socket in &sockets {
            let socket = SockRef::from(socket);
            if socket.r#type()? != Type::STREAM || !socket.is_listener()? {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a listening socket"));
            }
            found = Some(address_of(&socket)?);
        }
        let address = found.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "there is no socket"))?;
        Ok(Self {
            address,
            is_secure,
            sockets,
        })
    }
}

fn address_of(socket: &Socket) -> io::Result<Address> {
    let address = socket.local_addr()?;
    let internet = address.as_socket().map(Address::Internet);
    internet
        .or_else(|| address.as_pathname().map(|path| Address::Unix(path.to_owned())))
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "neither an internet address nor a path"))
}

/// A document root or an address that the server cannot use.
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

/// The longest queue; the kernel cuts it to net.core.somaxconn.
const BACKLOG: i32 = 65_535;

impl Listener {
    /// Binds one socket for each thread, or takes the sockets in `inherited` that listen there.
    ///
    /// # Errors
    /// [`BindError`], also if another program listens there and `reuse_port` is off. SO_REUSEPORT alone would let a
    /// second server of the same user share the port silently, so a plain bind comes first.
    pub(crate) fn bind(
        configured: &Address,
        is_secure: bool,
        reuse_port: bool,
        settings: &ServerSettings,
        inherited: &mut Vec<InheritedSockets>,
    ) -> Result<Self, BindError> {
        let adopted = find_inherited(configured, is_secure, inherited).map(|place| inherited.remove(place));
        let bound = match (adopted, configured) {
            (Some(inherited), _) => Self::adopt(inherited, settings.threads, settings.defer_accept),
            (None, Address::Internet(internet)) => {
                Self::bind_internet(*internet, settings.threads, reuse_port, settings.defer_accept)
            }
            (None, Address::Unix(path)) => Self::bind_unix(path, settings.threads, settings.socket_mode),
        };
        let bound = bound.map_err(|source| BindError::Address {
            address: configured.clone(),
            source,
        })?;
        Ok(Self {
            configured: configured.clone(),
            is_secure,
            ..bound
        })
    }

    /// Takes over listening sockets. Connections keep waiting in their queues.
    fn adopt(inherited: InheritedSockets, threads: usize, defer_accept: bool) -> io::Result<Self> {
        let InheritedSockets {
            address, mut sockets, ..
        } = inherited;
        for socket in &sockets {
            let socket = SockRef::from(socket);
            socket.set_nonblocking(true)?;
            if address.internet().is_some() {
                socket.set_tcp_nodelay(true)?;
                if defer_accept {
                    set_defer_accept(&socket)?;
                }
            }
        }
        // Threads without a queue of their own share one.
        let own = sockets.len();
        while sockets.len() < threads {
            sockets.push(sockets[sockets.len() % own].try_clone()?);
        }
        let file = match &address {
            Address::Unix(path) => Some(SocketFile::of_another(path)),
            Address::Internet(_) => None,
        };
        Ok(Self {
            configured: address.clone(),
            address,
            is_secure: false,
            sockets,
            file,
        })
    }

    /// True if this is the listener of a configured address, with TLS or without.
    pub(crate) fn is_for(&self, configured: &Address, is_secure: bool) -> bool {
        self.is_secure == is_secure && self.is_at(configured)
    }

    /// True if this is the listener of a configured address.
    pub(crate) fn is_at(&self, configured: &Address) -> bool {
        self.configured == *configured || self.address == *configured
    }

    /// The same sockets with TLS turned on or off. The file of a Unix socket stays with this one.
    ///
    /// # Errors
    /// [`BindError`]: out of descriptors.
    pub(crate) fn with_tls(&self, configured: &Address, is_secure: bool) -> Result<Self, BindError> {
        let sockets = self.sockets.iter().map(OwnedFd::try_clone);
        let sockets = sockets.collect::<io::Result<_>>();
        Ok(Self {
            configured: configured.clone(),
            address: self.address.clone(),
            is_secure,
            sockets: sockets.map_err(|source| BindError::Address {
                address: configured.clone(),
                source,
            })?,
            file: None,
        })
    }

    /// The sockets of one of `threads` threads: one, or several if another process had more threads.
    ///
    /// # Errors
    /// Out of descriptors.
    pub(crate) fn of_thread(&self, number: usize, threads: usize) -> io::Result<Vec<Endpoint>> {
        let sockets = self.sockets.iter().skip(number).step_by(threads.max(1));
        sockets
            .map(|socket| {
                Ok(Endpoint {
                    socket: socket.try_clone()?,
                    address: self.address.clone(),
                    is_secure: self.is_secure,
                })
            })
            .collect()
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
            configured: address.into(),
            address: bound.into(),
            is_secure: false,
            sockets,
            file: None,
        })
    }

    /// All threads share one socket, since the kernel has one queue for a path.
    fn bind_unix(path: &Path, threads: usize, mode: u32) -> io::Result<Self> {
        remove_stale(path)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.bind(&SockAddr::unix(path)?)?;
        // Nobody can connect before `listen`, so the permissions come first.
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        let file = SocketFile::of(path)?;
        socket.listen(BACKLOG)?;
        let mut sockets = vec![OwnedFd::from(socket)];
        while sockets.len() < threads {
            sockets.push(sockets[0].try_clone()?);
        }
        Ok(Self {
            configured: Address::Unix(path.to_owned()),
            address: Address::Unix(path.to_owned()),
            is_secure: false,
            sockets,
            file: Some(file),
        })
    }
}

/// Index of the inherited sockets for an address. For port 0 any socket of the same host fits.
fn find_inherited(configured: &Address, is_secure: bool, inherited: &[InheritedSockets]) -> Option<usize> {
    let fits = |one: &InheritedSockets| one.is_secure.is_none_or(|inherited| inherited == is_secure);
    let any_port = |one: &InheritedSockets| match (configured.internet(), one.address.internet()) {
        (Some(configured), Some(found)) => fits(one) && configured.port() == 0 && configured.ip() == found.ip(),
        _ => false,
    };
    let exact = inherited.iter().position(|one| fits(one) && one.address == *configured);
    exact.or_else(|| inherited.iter().position(any_port))
}

/// Removes a socket file that a killed server left.
fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "a file that is no socket is in the way",
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

/// The file of a Unix socket. It is removed on drop unless another server has replaced it.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// `None` while the file is another process's to remove.
    identity: Option<Identity>,
}

impl SocketFile {
    fn of(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            identity: Some(identity(path)?),
        })
    }

    /// The file of a socket that another process has bound and may have to remove.
    fn of_another(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            identity: None,
        }
    }

    /// Takes the file over from the process that bound it.
    pub(crate) fn claim(&mut self) {
        self.identity = identity(&self.path).ok();
    }

    /// Leaves the file to the process that listens there now.
    pub(crate) fn give_away(mut self) {
        self.identity = None;
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.identity.is_some() && identity(&self.path).ok() == self.identity {
            let _ = fs::remove_file(&self.path); // the directory may not be writable any more; the next start removes the file
        }
    }
}

/// Device, inode and time of change: file systems reuse inode numbers.
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
    // Accepted sockets inherit it, which saves a call for each connection.
    socket.set_tcp_nodelay(true)?;
    if defer_accept {
        set_defer_accept(&socket)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

/// The kernel completes an accept once the first bytes are there: one wake-up instead of two for a request.
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

    fn adopted(sockets: Vec<OwnedFd>, threads: usize) -> Listener {
        let inherited = InheritedSockets::new(sockets, None).expect("they listen");
        Listener::adopt(inherited, threads, true).expect("sockets that listen")
    }

    #[test]
    fn inherited_sockets_are_shared_out_among_the_threads_whatever_their_number() {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        for (had, threads, each) in [(3, 2, [2, 1].as_slice()), (1, 3, &[1, 1, 1]), (2, 2, &[1, 1])] {
            let before = Listener::bind_internet(address, had, false, true).expect("a free port");
            let listener = adopted(before.sockets, threads);
            assert_eq!(listener.address, before.address);
            let shares: Vec<usize> = (0..threads)
                .map(|number| listener.of_thread(number, threads).expect("descriptors").len())
                .collect();
            assert_eq!(shares, each, "{had} sockets for {threads} threads");
        }
    }

    #[test]
    fn an_inherited_socket_is_taken_by_its_own_address_before_one_of_any_port() {
        let listening = |is_secure| {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
            InheritedSockets::new(vec![listener.into()], is_secure).expect("it listens")
        };
        let inherited = vec![listening(None), listening(None)];
        let find = |configured: &str, is_secure, inherited: &[InheritedSockets]| {
            find_inherited(
                &configured.parse::<SocketAddr>().expect("an address").into(),
                is_secure,
                inherited,
            )
        };
        let found = |configured: &str| find(configured, false, &inherited);
        assert_eq!(found(&inherited[1].address.to_string()), Some(1));
        assert_eq!(found("127.0.0.1:0"), Some(0));
        assert_eq!(found("127.0.0.2:0"), None);
        assert_eq!(find_inherited(&Address::Unix("/run/x".into()), false, &inherited), None);
        let known = vec![listening(Some(true)), listening(Some(false))];
        assert_eq!(
            find("127.0.0.1:0", false, &known),
            Some(1),
            "one of TLS is not for plain connections"
        );
        assert_eq!(find("127.0.0.1:0", true, &known), Some(0));
        assert_eq!(find(&known[0].address.to_string(), false, &known), None);
    }

    #[test]
    fn what_does_not_listen_is_nothing_to_inherit() {
        let bound = std::net::UdpSocket::bind("127.0.0.1:0").expect("a free port");
        InheritedSockets::new(vec![bound.into()], None).expect_err("datagrams are no connections");
        let file = tempfile::tempfile().expect("a file");
        InheritedSockets::new(vec![file.into()], None).expect_err("a file is no socket");
        InheritedSockets::new(Vec::new(), None).expect_err("nothing is no socket");
    }

    #[test]
    fn a_socket_given_away_keeps_its_file() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("x.sock");
        let Listener { file, sockets, .. } = Listener::bind_unix(&path, 1, 0o600).expect("a new socket");
        let copies = sockets.iter().map(|socket| socket.try_clone().expect("a descriptor"));
        drop(adopted(copies.collect(), 1));
        assert!(path.exists(), "it is the first one's until that gives way");
        let mut next = adopted(sockets, 1);
        file.expect("a file").give_away();
        next.file.as_mut().expect("a file").claim();
        assert!(path.exists());
        drop(next);
        assert!(!path.exists(), "it went with its new owner");
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
