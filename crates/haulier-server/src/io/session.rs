//! The record layer of one TLS connection: bytes of the application ⇄ bytes of the socket.
//!
//! Between two records a connection owns no buffer: what is read and encrypted lies in memory of the thread
//! ([`Scratch`]) and becomes a connection's own only while a record is incomplete, or while the kernel has not taken
//! what was encrypted.

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

/// Bytes of the application encrypted at once: they and their records stay in the second-level cache.
const PIECE: usize = 64 * 1024;
/// Bytes read from the socket at once: two whole records.
const READ: usize = 2 * (16 * 1024 + 256 + 5);
/// Most bytes a client may send before the handshake is over. A greeting with keys of the largest kind and many
/// extensions is about 2 KB.
const MOST_HANDSHAKE: usize = 64 * 1024;
/// What encryption adds to a record, at most: head, explicit nonce, type and tag.
const OVERHEAD: usize = 5 + 8 + 1 + 16;
/// A record with an alert.
const ALERT: usize = 2 + OVERHEAD;
/// Our part of a handshake, with a chain of two certificates.
const FLIGHT: usize = 4096;

/// Memory of a thread for its TLS connections. A buffer is taken for the time of one call, or kept by a connection
/// as long as it holds something.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    incoming: RefCell<Vec<Vec<u8>>>,
    outgoing: RefCell<Vec<Vec<u8>>>,
    /// Plain bytes on their way into records.
    plain: RefCell<Vec<u8>>,
}

impl Scratch {
    /// Enough for what a thread works on at once.
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

    /// Its bytes mean nothing.
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
/// [`Session::send`] and its kin may report one byte less than they took: as long as the kernel has not taken all that
/// was encrypted, one byte is withheld. The caller offers it again and so learns, by its being taken, that everything
/// before it is with the kernel.
pub(crate) struct Session {
    connection: UnbufferedServerConnection,
    scratch: Rc<Scratch>,
    /// Read and not yet decrypted: a part of a record.
    incoming: Vec<u8>,
    outgoing: Outgoing,
    /// Bytes to encrypt at once: little while the kernel takes little, so that little waits here.
    piece: usize,
    /// The first byte of the next call is encrypted already.
    withheld: bool,
    /// Decrypted while the handshake was finished.
    early: Vec<u8>,
    /// The handshake is over.
    is_established: bool,
    /// The client says nothing more.
    is_ended: bool,
    /// Nothing must be said any more.
    is_aborted: bool,
    /// Bytes read while the handshake ran.
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

    /// Goes on with the handshake as far as the socket allows: whether it is over.
    ///
    /// `first` are bytes of it that were read by others.
    ///
    /// # Errors
    /// What the client did wrong; it has been told by an alert. `UnexpectedEof` if it left.
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
        // Tickets may wait for the first response; before the end of the handshake the client waits for us.
        let pushed = if result.is_ok() && self.is_established {
            Ok(true)
        } else {
            self.push(fd, false)
        };
        result?;
        pushed?;
        Ok(self.is_established)
    }

    /// What the client said behind its part of the handshake and was decrypted with it.
    pub(crate) fn take_early(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.early)
    }

    /// Whether what was encrypted waits for room in the socket.
    pub(crate) fn wants_to_send(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// The protocol the client chose from ours, if it names any.
    pub(crate) fn protocol(&self) -> Option<&[u8]> {
        self.connection.alpn_protocol()
    }

    /// Appends what the client sent: all that was decrypted, though it be more than the capacity. Less than that
    /// means the socket is empty; 0 is the end.
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
                let _ = self.push(fd, false); // the alert; the error says the rest
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
                // Tickets, or our half of a change of keys: the client may wait for them.
                self.push(fd, false)?;
                Ok(None)
            }
            count => Ok(Some(count)),
        }
    }

    /// Whether the client has ended its side, and nothing of what it sent is left.
    pub(crate) fn has_ended(&self) -> bool {
        self.is_ended && self.early.is_empty()
    }

    /// Sends some of these bytes: see [`Session`] about their number.
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

    /// The same for bytes that lie in several places.
    pub(crate) fn send_vectored(&mut self, fd: &OwnedFd, parts: &[IoSlice<'_>], more: bool) -> io::Result<WouldBlock> {
        if !self.is_ready(fd)? {
            return Ok(None);
        }
        let withheld = self.release();
        let scratch = Rc::clone(&self.scratch);
        let mut plain = scratch.plain.borrow_mut();
        plain.clear();
        // Parts may be empty: the withheld byte is the first of the first that is not.
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
                    "file became shorter while it was sent",
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

    /// Says that nothing more will come. What the kernel does not take now is lost: there is nobody to wait for it.
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

    /// The connection ends without a word: a client must not take what it has for complete.
    pub(crate) fn abort(&mut self) {
        self.is_aborted = true;
    }

    fn room_to_read(&self) -> usize {
        READ.saturating_sub(self.incoming.len()).max(READ / 2)
    }

    /// Reads what is there behind the incomplete record.
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

    /// Memory goes back as soon as it holds nothing.
    fn give_back_incoming(&mut self) {
        if self.incoming.is_empty() {
            self.scratch.give_incoming(std::mem::take(&mut self.incoming));
        }
    }

    /// Handles all complete records; what they carry goes to `plain`, what they ask for to `outgoing`.
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
                    // It is in `outgoing`, which goes first whatever is sent.
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
                // Early data is never accepted; a state of a later version is none we asked for.
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

    /// What the library still has to say, an alert at its end that tells the client what was wrong. It must not look at
    /// input any more: it would stumble over the same mistake again.
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

    /// Makes records of these bytes at the end of `outgoing`.
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
            // There is no whole record in `incoming`, but the library may have looked at a part of one and wants to
            // find it where it was.
            let status = connection.process_tls_records(incoming);
            debug_assert_eq!(status.discard, 0);
            match status.state {
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    let encrypted = outgoing.append(scratch, expected, |room| traffic.encrypt(plain, room));
                    return encrypted.map_err(io::Error::other);
                }
                // What the last read asked for goes first.
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

    /// What a call may report once `total` bytes are encrypted and as much as possible is sent.
    fn sent_of(&mut self, fd: &OwnedFd, total: usize, more: bool) -> io::Result<WouldBlock> {
        if total == 0 || self.push(fd, more)? {
            return Ok(Some(total));
        }
        self.withheld = true;
        Ok(Some(total - 1).filter(|&total| total > 0))
    }

    /// The number of bytes at the front that are with the kernel by now.
    fn release(&mut self) -> usize {
        usize::from(std::mem::take(&mut self.withheld))
    }

    /// Whether more may be encrypted: all of the application's bytes from before are with the kernel. Tickets that
    /// wait may go on waiting; they leave with what comes now.
    fn is_ready(&mut self, fd: &OwnedFd) -> io::Result<bool> {
        if self.withheld { self.push(fd, false) } else { Ok(true) }
    }

    /// Sends what is encrypted; false if the kernel takes no more.
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
