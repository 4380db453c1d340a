//! The system calls of a connection: non-blocking, and counted in bytes.
#![allow(unsafe_code)] // registering a descriptor with the event loop: see `watch`; one ioctl: see `unacknowledged`; TCP_INFO

use std::cell::{Cell, RefCell, RefMut};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;

use haulier_http::{FileSlice, Presence};
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown};
use tokio::io::unix::AsyncFd;

use super::session::Session;

/// A connected socket, with or without TLS. It is registered with the event loop only once it has to wait.
///
/// Everybody above speaks in plain bytes. Over TLS a call may report one byte less than it took (see [`Session`]);
/// whoever goes on until everything is taken need not know.
#[derive(Debug)]
pub(crate) struct Socket {
    // Declared first: deregistered before the descriptor is closed.
    registered: std::cell::OnceCell<AsyncFd<Rc<OwnedFd>>>,
    fd: Rc<OwnedFd>,
    /// `None` for plain connections, which pay one comparison for it.
    layer: Option<Box<RefCell<Layer>>>,
    /// Bytes the peer had not acknowledged when that was last asked.
    queued: Cell<usize>,
}

/// What lies between the socket's bytes and ours.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "the large variant is the usual one, and both lie in a box"
)]
enum Layer {
    Tls(Session),
    /// Plain bytes that were read before it was known that they are plain. They are taken before anybody waits.
    Unread(Vec<u8>),
}

/// Something that would block has not happened.
pub(crate) type WouldBlock = Option<usize>;

impl Socket {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self {
            registered: std::cell::OnceCell::new(),
            fd: Rc::new(fd),
            layer: None,
            queued: Cell::new(0),
        }
    }

    /// What was read of it already is read first.
    pub(crate) fn unread(&mut self, bytes: Vec<u8>) {
        self.layer = Some(Box::new(RefCell::new(Layer::Unread(bytes))));
    }

    /// From now on everything goes through `session`, whose handshake is over.
    pub(crate) fn secure(&mut self, session: Session) {
        self.layer = Some(Box::new(RefCell::new(Layer::Tls(session))));
    }

    /// The descriptor itself, for those who speak below all layers.
    pub(crate) fn descriptor(&self) -> &OwnedFd {
        &self.fd
    }

    /// Bytes sent that the peer has not acknowledged.
    pub(crate) fn unacknowledged(&self) -> usize {
        unacknowledged(&self.fd)
    }

    /// Notes what the peer has not acknowledged yet, bytes; [`Socket::has_moved`] compares with it.
    pub(crate) fn note_queue(&self) -> u64 {
        self.queued.set(unacknowledged(&self.fd));
        self.queued.get() as u64
    }

    /// Whether the peer took anything since the last look. The kernel calls a socket writable when a third of its buffer
    /// is free: for a slow reader of a large buffer that is minutes away.
    pub(crate) fn has_moved(&self) -> bool {
        let now = unacknowledged(&self.fd);
        now < self.queued.replace(now)
    }

    /// Bytes the peer has acknowledged; `None` where the kernel does not tell, as for Unix sockets.
    pub(crate) fn acknowledged(&self) -> Option<u64> {
        acknowledged(&self.fd)
    }

    /// The socket in the event loop of this thread.
    pub(crate) fn registered(&self) -> io::Result<&AsyncFd<Rc<OwnedFd>>> {
        if self.registered.get().is_none() {
            let _ = self.registered.set(watch(Rc::clone(&self.fd))?);
        }
        Ok(self.registered.get().expect("set above"))
    }

    /// Reads what is there into the free capacity of `buffer`, over TLS perhaps beyond it. 0 is the end of the stream;
    /// what leaves capacity free has emptied the socket.
    pub(crate) fn receive(&self, buffer: &mut Vec<u8>) -> io::Result<WouldBlock> {
        match &self.layer {
            None => receive_plain(&self.fd, buffer),
            Some(layer) => match &mut *layer.borrow_mut() {
                Layer::Tls(session) => session.receive(&self.fd, buffer),
                Layer::Unread(bytes) if bytes.is_empty() => receive_plain(&self.fd, buffer),
                Layer::Unread(bytes) => {
                    let bytes = std::mem::take(bytes);
                    buffer.extend_from_slice(&bytes);
                    Ok(Some(bytes.len()))
                }
            },
        }
    }

    /// Whether the peer has said within TLS that it sends nothing more, and all that came before was received. The
    /// descriptor may never be readable again.
    pub(crate) fn has_ended(&self) -> bool {
        self.session().is_some_and(|session| session.has_ended())
    }

    /// True if everything goes through TLS.
    pub(crate) fn is_secure(&self) -> bool {
        self.session().is_some()
    }

    /// The TLS session, if there is one.
    fn session(&self) -> Option<RefMut<'_, Session>> {
        let layer = self.layer.as_ref()?.borrow_mut();
        RefMut::filter_map(layer, |layer| match layer {
            Layer::Tls(session) => Some(session),
            Layer::Unread(_) => None,
        })
        .ok()
    }

    /// Sends some of these bytes. `more`: further bytes follow at once, so a short segment may wait for them.
    pub(crate) fn send(&self, bytes: &[u8], more: bool) -> io::Result<WouldBlock> {
        match self.session() {
            None => send_plain(&self.fd, bytes, more),
            Some(mut session) => session.send(&self.fd, bytes, more),
        }
    }

    /// Sends some of these bytes, which lie in several places.
    pub(crate) fn send_vectored(&self, parts: &[IoSlice<'_>], more: bool) -> io::Result<WouldBlock> {
        if let Some(mut session) = self.session() {
            return session.send_vectored(&self.fd, parts, more);
        }
        would_block(|| rustix::net::sendmsg(&self.fd, parts, &mut SendAncillaryBuffer::default(), send_flags(more)))
    }

    /// Whether bytes go to the network as they are.
    pub(crate) fn is_plain(&self) -> bool {
        self.session().is_none()
    }

    /// Sends at most `most` bytes of a file from the kernel's cache and moves the slice on.
    pub(crate) fn send_file(&self, slice: &mut FileSlice, most: usize) -> io::Result<WouldBlock> {
        if let Some(mut session) = self.session() {
            return session.send_file(&self.fd, slice, most);
        }
        let count = slice.len().min(most as u64) as usize;
        let sent =
            would_block(|| rustix::fs::sendfile(&self.fd, slice.file.as_fd(), Some(&mut slice.range.start), count))?;
        if sent == Some(0) {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "file became shorter while it was sent",
            ));
        }
        Ok(sent)
    }

    /// The largest segment the connection sends, bytes.
    pub(crate) fn segment(&self) -> Option<usize> {
        socket2::SockRef::from(&*self.fd).tcp_mss().ok().map(|mss| mss as usize)
    }

    /// No byte will be sent any more.
    pub(crate) fn shutdown_write(&self) {
        if let Some(mut session) = self.session() {
            session.close(&self.fd);
        }
        let _ = rustix::net::shutdown(&self.fd, Shutdown::Write);
    }

    /// Whoever waits for the socket wakes; what is unsent is thrown away.
    pub(crate) fn abort(&self) {
        if let Some(mut session) = self.session() {
            session.abort();
        }
        let _ = rustix::net::sockopt::set_socket_linger(&self.fd, Some(std::time::Duration::ZERO));
        let _ = rustix::net::shutdown(&self.fd, Shutdown::Both);
    }

    /// Whether the peer is still there. Over TLS nobody goes on to listen who has closed its side.
    pub(crate) fn presence(&self) -> Presence {
        let mut poll = [PollFd::new(&self.fd, PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let polled = rustix::event::poll(&mut poll, Some(&now));
        let seen = polled.map_or(PollFlags::empty(), |_| poll[0].revents());
        let has_ended = seen.contains(PollFlags::RDHUP) || self.has_ended();
        if seen.intersects(PollFlags::ERR | PollFlags::HUP) || (has_ended && !self.is_plain()) {
            Presence::Gone
        } else if has_ended {
            Presence::Silent
        } else {
            Presence::Here
        }
    }

    /// Our own end of the connection.
    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        rustix::net::getsockname(&self.fd).ok()?.try_into().ok()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Some(mut session) = self.session() {
            session.close(&self.fd);
        }
    }
}

/// Bytes that were sent and not acknowledged (tcp(7), SIOCOUTQ).
fn unacknowledged(fd: &OwnedFd) -> usize {
    // SAFETY: SIOCOUTQ, which is TIOCOUTQ, writes one int, as this getter says.
    let queued = unsafe {
        let get = rustix::ioctl::Getter::<{ libc::TIOCOUTQ as rustix::ioctl::Opcode }, libc::c_int>::new();
        rustix::ioctl::ioctl(fd, get)
    };
    queued.map_or(0, |queued| queued.max(0) as usize)
}

/// What tcp_info (tcp(7), TCP_INFO) says of acknowledged bytes; Linux 4.1 and later.
fn acknowledged(fd: &OwnedFd) -> Option<u64> {
    // SAFETY: plain numbers, for which all zeros are a value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the descriptor is open for the whole call, and the pointers describe one tcp_info.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    let end = std::mem::offset_of!(libc::tcp_info, tcpi_bytes_received);
    (result == 0 && length as usize >= end).then_some(info.tcpi_bytes_acked)
}

/// Registers a socket with the event loop of this thread.
pub(crate) fn watch(fd: Rc<OwnedFd>) -> io::Result<AsyncFd<Rc<OwnedFd>>> {
    // SAFETY: the AsyncFd owns a share of the OwnedFd, so the descriptor stays open and the same while registered.
    unsafe { AsyncFd::register(fd) }.map_err(|error| error.into_parts().1)
}

/// Reads what is there as it is.
pub(crate) fn receive_plain(fd: &OwnedFd, buffer: &mut Vec<u8>) -> io::Result<WouldBlock> {
    would_block(|| rustix::net::recv(fd, spare_capacity(&mut *buffer), RecvFlags::DONTWAIT).map(|(count, _)| count))
}

/// Sends some of these bytes as they are.
pub(crate) fn send_plain(fd: &OwnedFd, bytes: &[u8], more: bool) -> io::Result<WouldBlock> {
    would_block(|| rustix::net::send(fd, bytes, send_flags(more)))
}

fn send_flags(more: bool) -> SendFlags {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    if more { flags | SendFlags::MORE } else { flags }
}

pub(crate) fn would_block(call: impl FnMut() -> rustix::io::Result<usize>) -> io::Result<WouldBlock> {
    match rustix::io::retry_on_intr(call) {
        Ok(count) => Ok(Some(count)),
        Err(Errno::AGAIN) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
