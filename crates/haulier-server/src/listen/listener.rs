//! Sockets that listen: one a thread on the same port, so that the kernel spreads the connections.
#![allow(unsafe_code)] // setsockopt(TCP_DEFER_ACCEPT), which no safe wrapper offers

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use socket2::{Domain, Protocol, Socket, Type};

/// An address we listen on, with a socket for each thread.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) address: SocketAddr,
    pub(crate) sockets: Vec<OwnedFd>,
}

/// The server could not be made ready.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("cannot listen on {address}")]
    Address { address: SocketAddr, source: io::Error },
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
    pub(crate) fn bind(
        address: SocketAddr,
        threads: usize,
        reuse_port: bool,
        defer_accept: bool,
    ) -> Result<Self, BindError> {
        let failed = |source| BindError::Address { address, source };
        let mut bound = address;
        if !reuse_port {
            let probe = socket(address, false).and_then(|probe| {
                probe.bind(&address.into())?;
                probe.listen(1)?;
                local_address(&probe)
            });
            bound = probe.map_err(failed)?;
        }
        let mut sockets = Vec::with_capacity(threads);
        for _ in 0..threads.max(1) {
            let listening = listening(bound, defer_accept).map_err(failed)?;
            bound = local_address(&listening).map_err(failed)?;
            sockets.push(listening.into());
        }
        Ok(Self {
            address: bound,
            sockets,
        })
    }
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
        let first = Listener::bind(address, 2, false, true).expect("a free port");
        let error = Listener::bind(first.address, 1, false, true).expect_err("the port is taken");
        assert!(matches!(error, BindError::Address { source, .. } if source.kind() == io::ErrorKind::AddrInUse));
        assert!(Listener::bind(first.address, 1, true, true).is_ok());
    }
}
