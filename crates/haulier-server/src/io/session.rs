//! The record layer of one TLS connection: plain bytes ⇄ bytes of the socket.
//!
//! Between two records a connection owns no buffer: bytes read and encrypted are in memory of the thread ([`Scratch`]).
//! A connection keeps a buffer only while a record is incomplete, or while the kernel has not taken all encrypted
//! bytes.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use haulier_http::FileSlice;
use haulier_proto::copy;
use rustix::buffer::spare_capacity;
use rustix::net::RecvFlags;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, UnbufferedStatus};

use super::outgoing::Outgoing;
use super::socket::{WouldBlock, send_plain, would_block};
use crate::tls::{Acceptor, RECORD};

/// Plain bytes encrypted at once: they and their records fit into the second-level cache.
const PIECE: usize = 64 * 1024;
/// Bytes read from the socket at once: two whole records.
const READ: usize = 2 * (16 * 1024 + 256 + 5);
/// Most bytes that a client may send before the handshake is complete. A ClientHello with the largest keys and many
/// extensions is about 2 KB.
const MOST_HANDSHAKE: usize = 64 * 1024;
/// Most that encryption adds to a record: head, explicit nonce, type and tag.
const OVERHEAD: usize = 5 + 8 + 1 + 16;
/// A record with an alert.
const ALERT: usize = 2 + OVERHEAD;
/// The server's handshake messages, with a chain of two certificates.
const FLIGHT: usize = 4096;

/// TLS buffers of a thread. A buffer is taken for one call, or kept by a connection while it has content.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    incoming: RefCell<Vec<Vec<u8>>>,
    outgoing: RefCell<Vec<Vec<u8>>>,
    /// Plain bytes on their way into records.
    plain: RefCell<Vec<u8>>,
}

impl Scratch {
    /// Most buffers kept: as many as a thread uses at once.
    const KEEP: usize = 8;

    fn take_incoming(&self) -> Vec<u8> {
        self.incoming.borrow_mut().pop().unwrap_or_default()
    }

    fn give_incoming(&self, mut buffer: Vec<u8>) {
        let mut kept = self.incoming.borrow_mut();
        if buffer.capacity() > 0 && kept.len() < Self::KEEP {
            buffer.clear();
            kept.push(buffer);
        }
    }

    /// A buffer whose content is undefined.
    pub(super) fn take_outgoing(&self) -> Vec<u8> {
        self.outgoing.borrow_mut().pop().unwrap_or_default()
    }

    pub(super) fn give_outgoing(&self, buffer: Vec<u8>) {
        let mut kept = self.outgoing.borrow_mut();
        if !buffer.is_empty() && kept.len() < Self::KEEP {
            kept.push(buffer);
        }
    }
}

/// One TLS connection.
///
/// [`Session::send`] and its variants may report one byte less than they took: until the kernel has taken all encrypted
/// bytes, one byte is withheld. The caller offers it again; once it is taken, the kernel has everything before it.
pub(crate) struct Session {
    connection: UnbufferedServerConnection,
    scratch: Rc<Scratch>,
    /// A part of a record, not yet decrypted.
    incoming: Vec<u8>,
    outgoing: Outgoing,
    /// Bytes to encrypt at once: few while the kernel takes few, so that few wait here.
    piece: usize,
    /// The first byte of the next call is encrypted already.
    withheld: bool,
    /// Decrypted together with the end of the handshake.
    early: Vec<u8>,
    /// The handshake is over.
    is_established: bool,
    /// The client has closed its side.
    is_ended: bool,
    /// True after [`Session::abort`].
    is_aborted: bool,
    /// Bytes read during the handshake.
    handshake_read: usize,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("incoming", &self.incoming.len())
            .field("outgoing", &self.outgoing.bytes().len())
            .field("withheld", &self.withheld)
            .field("is_established", &self.is_established)
            .field("is_ended", &self.is_ended)
            .finish_non_exhaustive()
    }
}

impl Session {
    pub(crate) fn new(acceptor: &Acceptor, scratch: &Rc<Scratch>) -> io::Result<Self> {
        Ok(Self {
            connection: acceptor.connection().map_err(io::Error::other)?,
            scratch: Rc::clone(scratch),
            incoming: Vec::new(),
            outgoing: Outgoing::default(),
            piece: PIECE,
            withheld: false,
            early: Vec::new(),
            is_established: false,
            is_ended: false,
            is_aborted: false,
            handshake_read: 0,
        })
    }

    /// Continues the handshake as far as the socket allows; true once it is complete.
    ///
    /// `first` are bytes of it that were read before.
    ///
    /// # Errors
    /// The client's mistake; an alert has told the client. `UnexpectedEof` if it closed.
    pub(crate) fn shake_hands(&mut self, fd: &OwnedFd, first: &mut Vec<u8>) -> io::Result<bool> {
        let mut early = std::mem::take(&mut self.early);
        let mut result = Ok(());
        if !first.is_empty() {
            self.handshake_read += first.len();
            self.incoming.append(first);
            result = self.process(&mut early);
        }
        while result.is_ok() && !self.is_established {
            if self.is_ended {
                result = Err(ErrorKind::UnexpectedEof.into());
            } else if self.handshake_read > MOST_HANDSHAKE {
                result = Err(io::Error::new(ErrorKind::InvalidData, "handshake without end"));
            } else {
                match self.read(fd) {
                    Ok(Some(count)) => {
                        self.handshake_read += count;
                        result = self.process(&mut early);
                    }
                    Ok(None) => break,
                    Err(error) => result = Err(error),
                }
            }
        }
        self.early = early;
        self.give_back_incoming();
        // Session tickets may wait for the first response. Before the end of the handshake the client waits for the
        // server.
        let pushed = if result.is_ok() && self.is_established {
            Ok(true)
        } else {
            self.push(fd, false)
        };
        result?;
        pushed?;
        Ok(self.is_established)
    }

    /// Application data that was decrypted together with the end of the handshake.
    pub(crate) fn take_early(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.early)
    }

    /// True if encrypted bytes wait for the kernel.
    pub(crate) fn wants_to_send(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// The protocol negotiated by ALPN.
    pub(crate) fn protocol(&self) -> Option<&[u8]> {
        self.connection.alpn_protocol()
    }

    /// Appends everything that was decrypted, even beyond the capacity. Free capacity afterwards means that the socket
    /// is empty; 0 is the end.
    pub(crate) fn receive(&mut self, fd: &OwnedFd, buffer: &mut Vec<u8>) -> io::Result<WouldBlock> {
        let room = buffer.capacity() - buffer.len();
        let before = buffer.len();
        buffer.append(&mut self.early);
        self.early = Vec::new();
        while buffer.len() - before < room.max(1) && !self.is_ended {
            let asked = self.room_to_read();
            let Some(count) = self.read(fd)? else { break };
            let processed = self.process(buffer);
            if let Err(error) = processed {
                let _ = self.push(fd, false); // the alert; the error describes the cause
                return Err(error);
            }
            if count < asked && !self.is_ended {
                break;
            }
        }
        self.give_back_incoming();
        match buffer.len() - before {
            0 if self.is_ended => Ok(Some(0)),
            0 => {
                // Session tickets, or a key update: the client may wait for them.
                self.push(fd, false)?;
                Ok(None)
            }
            count => Ok(Some(count)),
        }
    }

    /// True if the client has closed its side and everything it sent was received.
    pub(crate) fn has_ended(&self) -> bool {
        self.is_ended && self.early.is_empty()
    }

    /// Sends some of these bytes; [`Session`] explains the number.
    pub(crate) fn send(&mut self, fd: &OwnedFd, bytes: &[u8], more: bool) -> io::Result<WouldBlock> {
        if !self.is_ready(fd)? {
            return Ok(None);
        }
        let withheld = self.release();
        let piece = &bytes[withheld.min(bytes.len())..];
        let piece = &piece[..piece.len().min(self.piece)];
        self.encrypt(piece)?;
        self.sent_of(fd, withheld + piece.len(), more)
    }

    /// Like [`Session::send`], for bytes in several slices.
    pub(crate) fn send_vectored(&mut self, fd: &OwnedFd, parts: &[IoSlice<'_>], more: bool) -> io::Result<WouldBlock> {
        if !self.is_ready(fd)? {
            return Ok(None);
        }
        let withheld = self.release();
        let scratch = Rc::clone(&self.scratch);
        let mut plain = scratch.plain.borrow_mut();
        plain.clear();
        // Slices may be empty; the withheld byte is in the first that is not.
        let mut to_skip = withheld;
        for part in parts {
            let skipped = to_skip.min(part.len());
            to_skip -= skipped;
            let part = &part[skipped..];
            let room = self.piece - plain.len();
            copy::append(&mut plain, &part[..part.len().min(room)]);
        }
        self.encrypt(&plain)?;
        self.sent_of(fd, withheld + plain.len(), more)
    }

    /// Sends at most `most` bytes of a file and moves the slice on.
    pub(crate) fn send_file(&mut self, fd: &OwnedFd, slice: &mut FileSlice, most: usize) -> io::Result<WouldBlock> {
        if !self.is_ready(fd)? {
            return Ok(None);
        }
        let mut total = self.release();
        slice.range.start += total as u64;
        let scratch = Rc::clone(&self.scratch);
        let mut plain = scratch.plain.borrow_mut();
        while total < most && !slice.is_empty() {
            let left = usize::try_from(slice.len()).unwrap_or(usize::MAX);
            let wanted = (most - total).min(self.piece).min(left);
            if plain.len() < wanted {
                plain.resize(PIECE, 0);
            }
            let count = slice.file.file().read_at(&mut plain[..wanted], slice.range.start)?;
            if count == 0 {
                return Err(io::Error::new(
                    ErrorKind::UnexpectedEof,
                    "file was truncated while it was sent",
                ));
            }
            self.encrypt(&plain[..count])?;
            slice.range.start += count as u64;
            total += count;
            if !self.push(fd, false)? {
                self.withheld = true;
                slice.range.start -= 1;
                total -= 1;
                break;
            }
        }
        Ok(Some(total).filter(|&total| total > 0))
    }

    /// Sends close_notify. If the kernel does not take it now, it is lost.
    pub(crate) fn close(&mut self, fd: &OwnedFd) {
        if self.is_aborted || !self.is_established {
            return;
        }
        self.is_aborted = true;
        let Self {
            connection,
            incoming,
            outgoing,
            scratch,
            ..
        } = self;
        if let Ok(ConnectionState::WriteTraffic(mut traffic)) = connection.process_tls_records(incoming).state {
            let _ = outgoing.append(scratch, ALERT, |room| traffic.queue_close_notify(room));
        }
        let _ = self.push(fd, false);
    }

    /// Ends without close_notify: the client must not take an incomplete response for complete.
    pub(crate) fn abort(&mut self) {
        self.is_aborted = true;
    }

    fn room_to_read(&self) -> usize {
        READ.saturating_sub(self.incoming.len()).max(READ / 2)
    }

    /// Appends bytes of the socket to the incomplete record.
    fn read(&mut self, fd: &OwnedFd) -> io::Result<WouldBlock> {
        if self.incoming.capacity() == 0 {
            self.incoming = self.scratch.take_incoming();
        }
        let wanted = self.room_to_read();
        self.incoming.reserve(wanted);
        let mut limited = std::mem::take(&mut self.incoming);
        let read = would_block(|| {
            rustix::net::recv(fd, spare_capacity(&mut limited), RecvFlags::DONTWAIT).map(|(count, _)| count)
        });
        self.incoming = limited;
        if let Ok(Some(0)) = read {
            self.is_ended = true;
        }
        read
    }

    /// Returns the buffer to the thread if it is empty.
    fn give_back_incoming(&mut self) {
        if self.incoming.is_empty() {
            self.scratch.give_incoming(std::mem::take(&mut self.incoming));
        }
    }

    /// Handles all complete records. Application data goes to `plain`, messages of the library to `outgoing`.
    fn process(&mut self, plain: &mut Vec<u8>) -> io::Result<()> {
        let mut done = 0;
        let result = loop {
            let UnbufferedStatus { discard, state, .. } =
                self.connection.process_tls_records(&mut self.incoming[done..]);
            let mut discard = discard;
            let ended = match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    let mut result = Ok(());
                    while let Some(record) = traffic.next_record() {
                        match record {
                            Ok(record) => {
                                discard += record.discard;
                                plain.extend_from_slice(record.payload);
                            }
                            Err(error) => result = Err(error),
                        }
                    }
                    result.err().map(Err)
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    let encoded = self.outgoing.append(&self.scratch, FLIGHT, |room| data.encode(room));
                    encoded.err().map(|_| Err(rustls::Error::EncryptError))
                }
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    // The bytes are in `outgoing`, which is always sent first.
                    data.done();
                    None
                }
                Ok(ConnectionState::PeerClosed) => {
                    self.is_ended = true;
                    None
                }
                Ok(ConnectionState::WriteTraffic(_)) => {
                    self.is_established = true;
                    Some(Ok(()))
                }
                Ok(ConnectionState::Closed | ConnectionState::BlockedHandshake) => Some(Ok(())),
                // Early data is never accepted; later states are those of a newer library.
                Ok(_) => Some(Err(rustls::Error::HandshakeNotComplete)),
                Err(error) => Some(Err(error)),
            };
            done += discard;
            if let Some(result) = ended {
                break result;
            }
        };
        self.incoming.drain(..done);
        if let Err(error) = result {
            self.take_alert();
            self.is_aborted = true;
            return Err(io::Error::new(ErrorKind::InvalidData, error));
        }
        Ok(())
    }

    /// Encodes the library's last messages, the alert among them. It gets no input, where it would find the same
    /// mistake again.
    fn take_alert(&mut self) {
        let Self {
            connection,
            outgoing,
            scratch,
            ..
        } = self;
        while connection.wants_write() {
            let Ok(ConnectionState::EncodeTlsData(mut data)) = connection.process_tls_records(&mut []).state else {
                return;
            };
            if outgoing.append(scratch, ALERT, |room| data.encode(room)).is_err() {
                return;
            }
        }
    }

    /// Appends records with these bytes to `outgoing`.
    fn encrypt(&mut self, plain: &[u8]) -> io::Result<()> {
        if plain.is_empty() {
            return Ok(());
        }
        let Self {
            connection,
            incoming,
            outgoing,
            scratch,
            is_ended,
            ..
        } = self;
        let expected = plain.len() + (plain.len() / RECORD + 1) * OVERHEAD;
        loop {
            // `incoming` has no whole record, but the library may have parsed a part of one and expects it again.
            let status = connection.process_tls_records(incoming);
            debug_assert_eq!(status.discard, 0);
            match status.state {
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    let encrypted = outgoing.append(scratch, expected, |room| traffic.encrypt(plain, room));
                    return encrypted.map_err(io::Error::other);
                }
                // Messages due to the last read go first.
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    let encoded = outgoing.append(scratch, FLIGHT, |room| data.encode(room));
                    encoded.map_err(io::Error::other)?;
                }
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::PeerClosed) => *is_ended = true,
                Ok(_) => return Err(ErrorKind::NotConnected.into()),
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }

    /// The number that a call may report once `total` bytes are encrypted and sent as far as possible.
    fn sent_of(&mut self, fd: &OwnedFd, total: usize, more: bool) -> io::Result<WouldBlock> {
        if total == 0 || self.push(fd, more)? {
            return Ok(Some(total));
        }
        self.withheld = true;
        Ok(Some(total - 1).filter(|&total| total > 0))
    }

    /// Releases the withheld byte: 1 if there is one, else 0.
    fn release(&mut self) -> usize {
        usize::from(std::mem::take(&mut self.withheld))
    }

    /// True if more may be encrypted: the kernel has taken all application data before. Session tickets may still wait;
    /// they leave with these bytes.
    fn is_ready(&mut self, fd: &OwnedFd) -> io::Result<bool> {
        if self.withheld { self.push(fd, false) } else { Ok(true) }
    }

    /// Sends encrypted bytes; false if the kernel takes no more.
    fn push(&mut self, fd: &OwnedFd, more: bool) -> io::Result<bool> {
        while !self.outgoing.is_empty() {
            match send_plain(fd, self.outgoing.bytes(), more)? {
                Some(count) => self.outgoing.advance(count),
                None => {
                    self.piece = RECORD;
                    self.outgoing.settle(&self.scratch);
                    return Ok(false);
                }
            }
        }
        self.piece = (self.piece * 2).min(PIECE);
        self.outgoing.settle(&self.scratch);
        Ok(true)
    }
}
