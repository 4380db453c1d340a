//! One transport: TCP, a local socket, or TLS over TCP.
//!
//! The kernel can move the bytes of a plain socket into a file (`splice`); those of TLS have to be decrypted first.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use rustix::net::RecvFlags;
use rustix::pipe::{PipeFlags, SpliceFlags};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

/// A connected transport.
#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// Appends received bytes to `out`, waiting for the first one; at most the spare capacity of `out`, which must
    /// not be empty. 0 is the end of the stream.
    ///
    /// # Errors
    /// The error of the socket; TLS that ends without close_notify is `UnexpectedEof`.
    pub async fn read(&mut self, out: &mut Vec<u8>) -> io::Result<usize> {
        debug_assert!(out.len() < out.capacity(), "no room would read as the end");
        match self {
            Self::Tcp(stream) => stream.read_buf(out).await,
            Self::Unix(stream) => stream.read_buf(out).await,
            Self::Tls(stream) => stream.read_buf(out).await,
        }
    }

    /// The same for a caller that polls: appends received bytes to `out`.
    ///
    /// # Errors
    /// As [`Stream::read`].
    pub fn poll_read(&mut self, context: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        // The future keeps nothing between polls.
        pin!(self.read(out)).poll(context)
    }

    /// Sends some of `bytes`, and says how many.
    ///
    /// # Errors
    /// The error of the socket; `WriteZero` if it takes nothing.
    pub fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = match self {
            Self::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_write(context, bytes),
        };
        match written {
            Poll::Ready(Ok(0)) if !bytes.is_empty() => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            written => written,
        }
    }

    /// Sends the bytes that TLS holds.
    ///
    /// # Errors
    /// The error of the socket.
    pub fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(_) | Self::Unix(_) => Poll::Ready(Ok(())),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_flush(context),
        }
    }

    /// Sends everything.
    ///
    /// # Errors
    /// The error of the socket.
    pub async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.write_all(bytes).await,
            Self::Unix(stream) => stream.write_all(bytes).await,
            Self::Tls(stream) => {
                stream.write_all(bytes).await?;
                stream.flush().await
            }
        }
    }

    /// True if both ends have agreed on HTTP/2 in the TLS handshake (RFC 9113 §3.2).
    #[must_use]
    pub fn has_agreed_on_http2(&self) -> bool {
        matches!(self, Self::Tls(stream) if stream.get_ref().1.alpn_protocol() == Some(b"h2"))
    }

    /// True if [`Stream::splice`] works: the socket's bytes are those of the messages.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        !matches!(self, Self::Tls(_))
    }

    /// Moves up to `most` bytes into `pipe`, which must be empty, waiting for the first. 0 is the end of the stream.
    ///
    /// # Errors
    /// The error of the socket; `Unsupported` for TLS.
    pub async fn splice(&self, pipe: BorrowedFd<'_>, most: usize) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => {
                stream
                    .async_io(Interest::READABLE, || splice(stream.as_fd(), pipe, most))
                    .await
            }
            Self::Unix(stream) => {
                stream
                    .async_io(Interest::READABLE, || splice(stream.as_fd(), pipe, most))
                    .await
            }
            Self::Tls(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// True if an idle connection has nothing to read, not even its end.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        let mut byte = [0];
        let peeked = rustix::net::recv(self.as_fd(), &mut byte[..], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        matches!(peeked, Err(rustix::io::Errno::AGAIN))
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
            Self::Tls(stream) => stream.get_ref().0.as_fd(),
        }
    }
}

fn splice(from: BorrowedFd<'_>, to: BorrowedFd<'_>, most: usize) -> io::Result<usize> {
    let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
    Ok(rustix::pipe::splice(from, None, to, None, most, flags)?)
}

/// A pipe as large as an ordinary user may have it, for [`Stream::splice`].
///
/// # Errors
/// If there are no descriptors left.
pub fn wide_pipe() -> io::Result<(std::os::fd::OwnedFd, std::os::fd::OwnedFd)> {
    /// The largest pipe for every user on Linux (fs.pipe-max-size); a smaller one only costs more calls.
    const WIDTH: usize = 1024 * 1024;
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let _ = rustix::pipe::fcntl_setpipe_size(&write, WIDTH);
    Ok((read, write))
}
