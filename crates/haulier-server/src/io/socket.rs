//! The system calls of a connection: non-blocking, with byte counts.
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
/// Callers read and write plain bytes. Over TLS a call may report one byte less than it took (see [`Session`]), which
/// does not matter to callers that repeat until all is taken.
#[derive(Debug)]
pub(crate) struct Socket {
    // Declared first: deregistered before the descriptor is closed.
    registered: std::cell::OnceCell<AsyncFd<Rc<OwnedFd>>>,
    fd: Rc<OwnedFd>,
    /// `None` for plain connections, which cost one comparison.
    layer: Option<Box<RefCell<Layer>>>,
    /// Unacknowledged bytes at the last look.
    queued: Cell<usize>,
}

/// A layer between the descriptor and plain bytes.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "the large variant is the usual one, and both lie in a box"
)]
enum Layer {
    Tls(Session),
    /// Plain bytes that were read during detection. They are taken before the first wait.
    Unread(Vec<u8>),
}

/// The number of bytes; `None` if the call would block.
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

    /// Puts bytes back, to be read first.
    pub(crate) fn unread(&mut self, bytes: Vec<u8>) {
        self.layer = Some(Box::new(RefCell::new(Layer::Unread(bytes))));
    }

    /// Sends everything through `session` from now on; its handshake is complete.
    pub(crate) fn secure(&mut self, session: Session) {
        self.layer = Some(Box::new(RefCell::new(Layer::Tls(session))));
    }

    /// The descriptor below all layers.
    pub(crate) fn descriptor(&self) -> &OwnedFd {
        &self.fd
    }

    /// Bytes that were sent and not acknowledged.
    pub(crate) fn unacknowledged(&self) -> usize {
        unacknowledged(&self.fd)
    }

    /// Notes and returns the unacknowledged bytes; [`Socket::has_moved`] compares with them.
    pub(crate) fn note_queue(&self) -> u64 {
        self.queued.set(unacknowledged(&self.fd));
        self.queued.get() as u64
    }

    /// True if the peer took bytes since the last look. The kernel reports a socket as writable when a third of its
    /// buffer is free, which takes a slow reader of a large buffer minutes.
    pub(crate) fn has_moved(&self) -> bool {
        let now = unacknowledged(&self.fd);
        now < self.queued.replace(now)
    }

    /// Bytes that the peer has acknowledged; `None` if the kernel does not know, as for Unix sockets.
    pub(crate) fn acknowledged(&self) -> Option<u64> {
        acknowledged(&self.fd)
    }

    /// The socket, registered with the event loop of this thread.
    pub(crate) fn registered(&self) -> io::Result<&AsyncFd<Rc<OwnedFd>>> {
        if self.registered.get().is_none() {
            let _ = self.registered.set(watch(Rc::clone(&self.fd))?);
        }
        Ok(self.registered.get().expect("set above"))
    }

    /// Reads into the free capacity of `buffer`, over TLS perhaps beyond it. 0 is the end of the stream. Free capacity
    /// afterwards means that the socket is empty.
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

    /// True if the peer has sent close_notify and everything before it was received. The descriptor may never be
    /// readable again.
    pub(crate) fn has_ended(&self) -> bool {
        self.session().is_some_and(|session| session.has_ended())
    }

    /// True with TLS.
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

    /// Sends some of these bytes. With `more`, further bytes follow at once, so a short segment may wait for them.
    pub(crate) fn send(&self, bytes: &[u8], more: bool) -> io::Result<WouldBlock> {
        match self.session() {
            None => send_plain(&self.fd, bytes, more),
            Some(mut session) => session.send(&self.fd, bytes, more),
        }
    }

    /// Sends some of these bytes in several slices.
    pub(crate) fn send_vectored(&self, parts: &[IoSlice<'_>], more: bool) -> io::Result<WouldBlock> {
        if let Some(mut session) = self.session() {
            return session.send_vectored(&self.fd, parts, more);
        }
        would_block(|| rustix::net::sendmsg(&self.fd, parts, &mut SendAncillaryBuffer::default(), send_flags(more)))
    }

    /// True without TLS.
    pub(crate) fn is_plain(&self) -> bool {
        self.session().is_none()
    }

    /// Sends at most `most` bytes of a file from the page cache, and advances the slice.
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
                "the file became shorter while it was sent",
            ));
        }
        Ok(sent)
    }

    /// The largest segment the connection sends, bytes.
    pub(crate) fn segment(&self) -> Option<usize> {
        socket2::SockRef::from(&*self.fd).tcp_mss().ok().map(|mss| mss as usize)
    }

    /// Closes the sending side.
    pub(crate) fn shutdown_write(&self) {
        if let Some(mut session) = self.session() {
            session.close(&self.fd);
        }
        let _ = rustix::net::shutdown(&self.fd, Shutdown::Write);
    }

    /// Resets the connection: wakes its task and drops unsent bytes.
    pub(crate) fn abort(&self) {
        if let Some(mut session) = self.session() {
            session.abort();
        }
        let _ = rustix::net::sockopt::set_socket_linger(&self.fd, Some(std::time::Duration::ZERO));
        let _ = rustix::net::shutdown(&self.fd, Shutdown::Both);
    }

    /// The state of the peer. Over TLS a peer that has closed its side no longer reads.
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

    /// The local address.
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
    // SAFETY: SIOCOUTQ is TIOCOUTQ and writes one int, as this getter declares.
    let queued = unsafe {
        let get = rustix::ioctl::Getter::<{ libc::TIOCOUTQ as rustix::ioctl::Opcode }, libc::c_int>::new();
        rustix::ioctl::ioctl(fd, get)
    };
    queued.map_or(0, |queued| queued.max(0) as usize)
}

/// Acknowledged bytes from tcp_info (tcp(7), TCP_INFO); Linux 4.1 and later.
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

/// Reads from the descriptor without TLS.
pub(crate) fn receive_plain(fd: &OwnedFd, buffer: &mut Vec<u8>) -> io::Result<WouldBlock> {
    would_block(|| rustix::net::recv(fd, spare_capacity(&mut *buffer), RecvFlags::DONTWAIT).map(|(count, _)| count))
}

/// Sends some of these bytes without TLS.
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
