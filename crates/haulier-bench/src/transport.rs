//! One non-blocking transport of the generator: TCP or a local socket, plain or with TLS.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, connect, recv, send,
    socket_with, sockopt,
};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use super::job::{Destination, SliceJob};

/// A socket, connected or connecting.
#[derive(Debug)]
pub(super) struct Transport {
    fd: OwnedFd,
    tls: Option<Box<ClientConnection>>,
}

/// Starts to connect without waiting.
///
/// # Errors
/// Those of the system, such as a refused connection or no descriptor left; `WouldBlock` if a local socket's queue is full.
pub(super) fn open(job: &SliceJob, number: u32) -> io::Result<Transport> {
    let fd = match &job.destination {
        Destination::Tcp(address) => tcp(job, *address, number)?,
        Destination::Unix(path) => {
            let fd = new_socket(AddressFamily::UNIX)?;
            connect(&fd, &SocketAddrUnix::new(path)?)?;
            fd
        }
    };
    Ok(Transport { fd, tls: None })
}

fn tcp(job: &SliceJob, address: SocketAddr, number: u32) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let fd = new_socket(family)?;
    if job.keep_alive {
        // Needed only by kept connections: one that sends once has nothing to delay.
        sockopt::set_tcp_nodelay(&fd, true)?;
    }
    if let Some(size) = buffer_size(job) {
        sockopt::set_socket_recv_buffer_size(&fd, size)?;
        sockopt::set_socket_send_buffer_size(&fd, size)?;
    }
    if !job.sources.is_empty() {
        let source: IpAddr = job.sources[(job.first_connection + number) as usize % job.sources.len()];
        bind(&fd, &SocketAddr::new(source, 0))?;
    }
    match connect(&fd, &address) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(fd),
        Err(error) => Err(error.into()),
    }
}

fn new_socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(socket_with(family, SocketType::STREAM, flags, None)?)
}

/// The given size, or a small one for slow readers: with a large buffer the kernel would read ahead.
fn buffer_size(job: &SliceJob) -> Option<usize> {
    const LEAST: u64 = 4096;
    const MOST: u64 = 64 * 1024;
    let rate = job.read_rate.or(job.send_rate);
    let size = job.buffers.or_else(|| rate.map(|rate| (rate / 4).clamp(LEAST, MOST)))?;
    usize::try_from(size).ok()
}

impl Transport {
    /// Starts TLS; [`Transport::handshake`] comes next.
    pub(super) fn secure(&mut self, config: &Arc<ClientConfig>, name: &ServerName<'static>) -> io::Result<()> {
        let session = ClientConnection::new(Arc::clone(config), name.clone()).map_err(io::Error::other)?;
        self.tls = Some(Box::new(session));
        Ok(())
    }

    /// Continues the handshake; true once it is complete.
    pub(super) fn handshake(&mut self) -> io::Result<bool> {
        let Some(session) = &mut self.tls else { return Ok(true) };
        let mut socket = Socket(self.fd.as_fd());
        loop {
            while session.wants_write() {
                match session.write_tls(&mut socket) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                    written => written?,
                };
            }
            if !session.is_handshaking() {
                return Ok(true);
            }
            match session.read_tls(&mut socket) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                read => read?,
            };
            session.process_new_packets().map_err(io::Error::other)?;
        }
    }

    /// Version and cipher suite, once they are agreed.
    pub(super) fn tls_words(&self) -> Option<String> {
        let session = self.tls.as_ref()?;
        let version = format!("{:?}", session.protocol_version()?).replace('_', ".");
        let suite = session.negotiated_cipher_suite()?.suite();
        Some(format!("{version},{suite:?}"))
    }

    /// True if the handshake agreed on HTTP/2.
    pub(super) fn has_agreed_on_http2(&self) -> bool {
        self.tls
            .as_ref()
            .is_some_and(|session| session.alpn_protocol() == Some(b"h2"))
    }

    /// True if TLS holds bytes that the socket has not taken yet.
    pub(super) fn has_unsent(&self) -> bool {
        self.tls.as_ref().is_some_and(|session| session.wants_write())
    }

    /// Sends as many bytes as fit.
    ///
    /// # Errors
    /// `WouldBlock` if nothing fits, or the connection is not established yet.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(session) = &mut self.tls else {
            return Ok(send(&self.fd, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?);
        };
        let taken = session.writer().write(bytes)?;
        flush(session, self.fd.as_fd())?;
        if taken == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(taken)
    }

    /// Sends the bytes that TLS holds.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match &mut self.tls {
            Some(session) => flush(session, self.fd.as_fd()),
            None => Ok(()),
        }
    }

    /// Reads bytes that have arrived; 0 at the end.
    ///
    /// # Errors
    /// `WouldBlock` if there are none.
    pub(super) fn recv(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(session) = &mut self.tls else {
            let (count, _) = recv(&self.fd, buffer, RecvFlags::DONTWAIT)?;
            return Ok(count);
        };
        let mut socket = Socket(self.fd.as_fd());
        loop {
            match session.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
            let count = session.read_tls(&mut socket)?;
            session.process_new_packets().map_err(io::Error::other)?;
            if count == 0 && !session.wants_read() {
                // The session had seen the end before, and its reader knows of which kind.
                return session.reader().read(buffer);
            }
        }
    }

    /// True if bytes may be left although the socket is empty: TLS decrypts whole records.
    pub(super) fn reads_ahead(&self) -> bool {
        self.tls.is_some()
    }

    /// Takes the error of a connection attempt.
    pub(super) fn take_error(&self) -> io::Result<()> {
        Ok(sockopt::socket_error(&self.fd)??)
    }

    /// Closes with a reset, so that the server stops sending.
    pub(super) fn reset(self) {
        let _ = sockopt::set_socket_linger(&self.fd, Some(std::time::Duration::ZERO));
    }
}

impl AsFd for Transport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn flush(session: &mut ClientConnection, fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut socket = Socket(fd);
    while session.wants_write() {
        match session.write_tls(&mut socket) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            written => written?,
        };
    }
    Ok(())
}

/// A non-blocking socket as rustls wants it.
struct Socket<'a>(BorrowedFd<'a>);

impl Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (count, _) = recv(self.0, buffer, RecvFlags::DONTWAIT)?;
        Ok(count)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(self.0, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
