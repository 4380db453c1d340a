//! The system calls of a connection: non-blocking, and counted in bytes.
#![allow(unsafe_code)] // registering a descriptor with the event loop: see `watch`

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown};
use tokio::io::unix::AsyncFd;

use crate::body::FileSlice;

/// A connected TCP socket. It is registered with the event loop only once it has to wait.
#[derive(Debug)]
pub(crate) struct Socket {
    // Declared first: deregistered before the descriptor is closed.
    registered: std::cell::OnceCell<AsyncFd<Rc<OwnedFd>>>,
    fd: Rc<OwnedFd>,
}

/// Something that would block has not happened.
pub(crate) type WouldBlock = Option<usize>;

impl Socket {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self {
            registered: std::cell::OnceCell::new(),
            fd: Rc::new(fd),
        }
    }

    /// The socket in the event loop of this thread.
    pub(crate) fn registered(&self) -> io::Result<&AsyncFd<Rc<OwnedFd>>> {
        if self.registered.get().is_none() {
            let _ = self.registered.set(watch(Rc::clone(&self.fd))?);
        }
        Ok(self.registered.get().expect("set above"))
    }

    /// Reads what is there into the free capacity of `buffer`. 0 is the end of the stream.
    pub(crate) fn receive(&self, buffer: &mut Vec<u8>) -> io::Result<WouldBlock> {
        would_block(|| {
            rustix::net::recv(&self.fd, spare_capacity(&mut *buffer), RecvFlags::DONTWAIT).map(|(count, _)| count)
        })
    }

    /// Sends some of these bytes. `more`: further bytes follow at once, so a short segment may wait for them.
    pub(crate) fn send(&self, bytes: &[u8], more: bool) -> io::Result<WouldBlock> {
        would_block(|| rustix::net::send(&self.fd, bytes, send_flags(more)))
    }

    /// Sends some of these bytes, which lie in several places.
    pub(crate) fn send_vectored(&self, parts: &[IoSlice<'_>], more: bool) -> io::Result<WouldBlock> {
        would_block(|| rustix::net::sendmsg(&self.fd, parts, &mut SendAncillaryBuffer::default(), send_flags(more)))
    }

    /// Sends at most `most` bytes of a file from the kernel's cache and moves the slice on.
    pub(crate) fn send_file(&self, slice: &mut FileSlice, most: usize) -> io::Result<WouldBlock> {
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
        let _ = rustix::net::shutdown(&self.fd, Shutdown::Write);
    }

    /// Whoever waits for the socket wakes; what is unsent is thrown away.
    pub(crate) fn abort(&self) {
        let _ = rustix::net::sockopt::set_socket_linger(&self.fd, Some(std::time::Duration::ZERO));
        let _ = rustix::net::shutdown(&self.fd, Shutdown::Both);
    }

    /// Whether the peer reset the connection, or is no longer there at all.
    pub(crate) fn is_reset(&self) -> bool {
        let mut poll = [rustix::event::PollFd::new(&self.fd, rustix::event::PollFlags::empty())];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let polled = rustix::event::poll(&mut poll, Some(&now));
        polled.is_ok()
            && poll[0]
                .revents()
                .intersects(rustix::event::PollFlags::ERR | rustix::event::PollFlags::HUP)
    }

    /// Our own end of the connection.
    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        rustix::net::getsockname(&self.fd).ok()?.try_into().ok()
    }
}

/// Registers a socket with the event loop of this thread.
pub(crate) fn watch(fd: Rc<OwnedFd>) -> io::Result<AsyncFd<Rc<OwnedFd>>> {
    // SAFETY: the AsyncFd owns a share of the OwnedFd, so the descriptor stays open and the same while registered.
    unsafe { AsyncFd::register(fd) }.map_err(|error| error.into_parts().1)
}

fn send_flags(more: bool) -> SendFlags {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    if more { flags | SendFlags::MORE } else { flags }
}

fn would_block(call: impl FnMut() -> rustix::io::Result<usize>) -> io::Result<WouldBlock> {
    match rustix::io::retry_on_intr(call) {
        Ok(count) => Ok(Some(count)),
        Err(Errno::AGAIN) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
