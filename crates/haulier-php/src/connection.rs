//! A connection to a FastCGI server: a socket, the runtime that watches it, and the process at the other end.
//!
//! It stays registered with the runtime that last used it and moves only when another one leases it, so a lease on the
//! same thread costs no epoll_ctl. It is watched for reading only: a Unix socket reports every drained byte as
//! writable.
#![allow(unsafe_code)] // reading into memory that is not zeroed before: see `poll_read`

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use haulier_upstream::Address;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use rustix::pipe::SpliceFlags;
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Handle, Id};

use crate::peer::Peer;
use crate::recycling::WorkerRecord;
use crate::watch::watch;

/// Bytes of one read: a whole small response fits, and so do a head and the largest record after it.
const READ_SIZE: usize = 68 * 1024;
/// Pause before another attempt while a Unix socket's backlog is full: the kernel reports no event when it has room.
const BACKLOG_PAUSE: Duration = Duration::from_millis(5);

thread_local! {
    /// One buffer serves every connection of a thread, because the bytes of a read are consumed at once.
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_SIZE].into_boxed_slice());
}

/// An open connection.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: AsyncFd<OwnedFd>,
    is_unix: bool,
    /// The runtime whose reactor watches `socket`.
    runtime: Id,
    /// Also watched for writing, because a write did not fit.
    writes_watched: bool,
    /// The process at the other end, searched once.
    pub(crate) peer: Peer,
    /// The record of that process.
    pub(crate) worker: WorkerRecord,
    /// The last response had content that bypassed [`poll_receive`](Self::poll_receive).
    pub(crate) answers_long: Cell<bool>,
}

impl haulier_upstream::Connection for Connection {
    async fn open(address: &Address) -> io::Result<Self> {
        let socket = connect(address).await?;
        Ok(Self {
            socket,
            is_unix: matches!(address, Address::Unix(_)),
            runtime: Handle::current().id(),
            writes_watched: false,
            peer: Peer::Unknown,
            worker: WorkerRecord::new(),
            answers_long: Cell::new(false),
        })
    }

    fn lives_on(&self, runtime: Id) -> bool {
        self.runtime == runtime
    }

    fn move_here(self) -> io::Result<Self> {
        let runtime = Handle::current().id();
        if runtime == self.runtime && !self.writes_watched {
            return Ok(self);
        }
        Ok(Self {
            socket: watch(self.socket.into_inner(), Interest::READABLE)?,
            runtime,
            writes_watched: false,
            ..self
        })
    }

    fn is_stale(&self) -> bool {
        !matches!(
            rustix::net::recv(&self.socket, &mut [0u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT),
            Err(Errno::AGAIN)
        )
    }

    fn seems_stale(&self) -> bool {
        match self.socket.poll_read_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => false,
            Poll::Ready(Err(_)) => true,
            Poll::Ready(Ok(mut guard)) => {
                let stale = self.is_stale();
                if !stale {
                    guard.clear_ready();
                }
                stale
            }
        }
    }
}

impl Connection {
    /// Sends as many bytes as fit without waiting; 0 if the socket is full. A descriptor goes with the first byte.
    ///
    /// # Errors
    /// The system error; EPIPE if the other end is gone.
    pub(crate) fn send_now(&self, slices: &[IoSlice<'_>], descriptor: Option<BorrowedFd<'_>>) -> io::Result<usize> {
        loop {
            match send(self.socket.as_fd(), slices, descriptor) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(0),
                result => return Ok(result?),
            }
        }
    }

    /// Watches for writability as well, as [`poll_send`](Self::poll_send) requires.
    ///
    /// # Errors
    /// The reactor refuses it; the connection is closed then.
    pub(crate) fn watch_writes(self) -> io::Result<Self> {
        if self.writes_watched {
            return Ok(self);
        }
        let socket = watch(self.socket.into_inner(), Interest::READABLE | Interest::WRITABLE)?;
        Ok(Self {
            socket,
            writes_watched: true,
            ..self
        })
    }

    /// Sends a part of `bytes` as soon as the socket has room.
    pub(crate) fn poll_send(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.socket.poll_write_ready(cx))?;
            match send(self.socket.as_fd(), &[IoSlice::new(bytes)], None) {
                Err(Errno::INTR) => {}
                // Not after a short write: a socket that still has room gives no further edge.
                Err(Errno::AGAIN) => guard.clear_ready(),
                result => return Poll::Ready(Ok(result?)),
            }
        }
    }

    /// Reads once as soon as bytes are there, at most `most`, and passes them to `consume`; an empty slice is the end
    /// of the stream. With `takes_files`, a descriptor that came with the bytes is passed too.
    pub(crate) fn poll_receive<T>(
        &self,
        cx: &mut Context<'_>,
        most: usize,
        takes_files: bool,
        consume: impl FnOnce(&[u8], Option<OwnedFd>) -> T,
    ) -> Poll<io::Result<T>> {
        BUFFER.with_borrow_mut(|buffer| {
            let buffer = &mut buffer[..most.min(READ_SIZE)];
            loop {
                let mut guard = ready!(self.socket.poll_read_ready(cx))?;
                let received = if takes_files {
                    receive_with_file(self.as_fd(), buffer)
                } else {
                    rustix::io::read(&self.socket, &mut *buffer).map(|length| (length, None))
                };
                match received {
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => guard.clear_ready(),
                    Err(errno) => return Poll::Ready(Err(errno.into())),
                    // A read ends behind the bytes that a descriptor came with, and more may be there.
                    Ok((length, descriptor @ Some(_))) => {
                        return Poll::Ready(Ok(consume(&buffer[..length], descriptor)));
                    }
                    Ok((length, None)) => {
                        // A short read emptied the socket: the next byte gives a new edge, and clearing does not
                        // affect the end of the stream.
                        if length < buffer.len() {
                            guard.clear_ready();
                        }
                        return Poll::Ready(Ok(consume(&buffer[..length], None)));
                    }
                }
            }
        })
    }

    /// Appends at most `most` bytes to `memory` as soon as bytes are there. 0 is the end of the stream.
    pub(crate) fn poll_read(&self, cx: &mut Context<'_>, memory: &mut Vec<u8>, most: usize) -> Poll<io::Result<usize>> {
        memory.reserve(most);
        loop {
            let mut guard = ready!(self.socket.poll_read_ready(cx))?;
            let spare = &mut memory.spare_capacity_mut()[..most];
            match rustix::io::read(&self.socket, spare).map(|(read, _)| read.len()) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => guard.clear_ready(),
                Err(errno) => return Poll::Ready(Err(errno.into())),
                Ok(length) => {
                    // SAFETY: the kernel has just written `length` bytes at the start of the spare capacity.
                    unsafe { memory.set_len(memory.len() + length) };
                    return Poll::Ready(Ok(length));
                }
            }
        }
    }

    /// Moves at most `most` bytes into a pipe as soon as bytes are there. They are not copied: the pages that the other
    /// end's write filled change owner. 0 is the end of the stream, `None` a full pipe.
    pub(crate) fn poll_splice(
        &self,
        cx: &mut Context<'_>,
        pipe: BorrowedFd<'_>,
        most: usize,
    ) -> Poll<io::Result<Option<usize>>> {
        loop {
            let mut guard = ready!(self.socket.poll_read_ready(cx))?;
            match rustix::pipe::splice(&self.socket, None, pipe, None, most, SpliceFlags::NONBLOCK) {
                Err(Errno::INTR) => {}
                // The error is the same for an empty socket and a full pipe.
                Err(Errno::AGAIN) if !has_room(pipe)? => return Poll::Ready(Ok(None)),
                Err(Errno::AGAIN) => guard.clear_ready(),
                // Not allowed, not supported, or no memory: the caller reads instead, and gets any error of the socket.
                Err(Errno::INVAL | Errno::NOSYS | Errno::PERM | Errno::NOMEM) => return Poll::Ready(Ok(None)),
                Err(errno) => return Poll::Ready(Err(errno.into())),
                Ok(length) => return Poll::Ready(Ok(Some(length))),
            }
        }
    }

    /// True if the other end is on this machine: its bytes fill their pages. Pages of a network card are larger than
    /// their content, and the card needs them back.
    pub(crate) fn can_splice(&self) -> bool {
        self.is_unix
    }
}

/// True if the pipe has room.
fn has_room(pipe: BorrowedFd<'_>) -> io::Result<bool> {
    let mut polled = [PollFd::from_borrowed_fd(pipe, PollFlags::OUT)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::io::retry_on_intr(|| rustix::event::poll(&mut polled, Some(&now)))?;
    Ok(polled[0].revents().contains(PollFlags::OUT))
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.get_ref().as_fd()
    }
}

fn send(
    socket: BorrowedFd<'_>,
    slices: &[IoSlice<'_>],
    descriptor: Option<BorrowedFd<'_>>,
) -> rustix::io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = descriptor.map(|descriptor| [descriptor]);
    if let Some(descriptors) = &descriptors {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    rustix::net::sendmsg(socket, slices, &mut control, SendFlags::NOSIGNAL)
}

/// Reads once, and takes the descriptor that came with the bytes. The kernel closes any further ones.
fn receive_with_file(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> rustix::io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(buffer)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let descriptors = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok((
        received.bytes,
        descriptors.and_then(|mut descriptors| descriptors.next()),
    ))
}

async fn connect(address: &Address) -> io::Result<AsyncFd<OwnedFd>> {
    match address {
        Address::Unix(path) => connect_unix(&SockAddr::unix(path)?).await,
        Address::Tcp(address) => connect_tcp(&SockAddr::from(*address)).await,
    }
}

async fn connect_unix(address: &SockAddr) -> io::Result<AsyncFd<OwnedFd>> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
    loop {
        match socket.connect(address) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => tokio::time::sleep(BACKLOG_PAUSE).await,
            connected => break connected?,
        }
    }
    watch(socket.into(), Interest::READABLE)
}

async fn connect_tcp(address: &SockAddr) -> io::Result<AsyncFd<OwnedFd>> {
    let socket = Socket::new(address.domain(), Type::STREAM.nonblocking(), None)?;
    socket.set_tcp_nodelay(true)?;
    match socket.connect(address) {
        Err(error) if error.raw_os_error() != Some(Errno::INPROGRESS.raw_os_error()) => return Err(error),
        _ => {}
    }
    let connecting = watch(socket.into(), Interest::WRITABLE)?;
    let _ = connecting.writable().await?;
    rustix::net::sockopt::socket_error(&connecting)??;
    watch(connecting.into_inner(), Interest::READABLE)
}
