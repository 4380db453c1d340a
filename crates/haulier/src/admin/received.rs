//! A line with descriptors attached (SCM_RIGHTS, unix(7)).

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags};

/// Descriptors sent with one message; the kernel takes 253 (SCM_MAX_FD).
pub(super) const SENT_AT_ONCE: usize = 200;
/// Longest line, bytes: some thousand addresses.
const LONGEST: usize = 256 * 1024;

/// A line and the descriptors that came with it, in the order they were sent.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) text: String,
    pub(super) sockets: Vec<OwnedFd>,
}

impl Received {
    /// Reads up to the end of a line. No plain read may have preceded it: that would lose descriptors.
    ///
    /// # Errors
    /// The connection ends within the line, the line is too long, the socket times out, or there is no room for more
    /// descriptors.
    pub(super) fn line(stream: impl AsFd) -> io::Result<Self> {
        let (mut bytes, mut sockets) = (Vec::new(), Vec::new());
        while bytes.last() != Some(&b'\n') {
            if bytes.len() > LONGEST {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the answer has no end"));
            }
            let mut piece = [0; 4096];
            let count = receive(&stream, &mut piece, &mut sockets)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            bytes.extend_from_slice(&piece[..count]);
        }
        let text = String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok(Self { text, sockets })
    }
}

fn receive(stream: impl AsFd, bytes: &mut [u8], sockets: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SENT_AT_ONCE))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let parts = &mut [IoSliceMut::new(bytes)];
    let received = rustix::net::recvmsg(stream, parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            sockets.extend(rights);
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::other("no room for the descriptors of the other process"));
    }
    Ok(received.bytes)
}
