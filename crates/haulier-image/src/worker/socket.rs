//! Packets over a Unix socket: one JSON object each, with an optional descriptor.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recv, recvmsg, sendmsg, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::worker::message::LONGEST;

/// A pair of sockets: the server's, which does not block, and the worker's, which does.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    Ok((ours, theirs))
}

/// Sends a message with an optional descriptor.
pub(super) fn send(socket: impl AsFd, message: &impl Serialize, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<BorrowedFd<'_>> = descriptor.into_iter().collect();
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
    }
    sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a message; `None` at the end of the stream. Attached descriptors are closed: a worker has no reason to send
/// any.
pub(super) fn receive<M: DeserializeOwned>(socket: impl AsFd) -> io::Result<Option<M>> {
    let mut bytes = [0; LONGEST];
    let (length, _) = recv(socket, &mut bytes[..], RecvFlags::empty())?;
    read(&bytes[..length])
}

/// Receives a message with its descriptor.
pub(super) fn receive_with<M: DeserializeOwned>(socket: impl AsFd) -> io::Result<Option<(M, Option<OwnedFd>)>> {
    let mut bytes = [0; LONGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let descriptor = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(read(&bytes[..received.bytes])?.map(|message| (message, descriptor)))
}

fn read<M: DeserializeOwned>(bytes: &[u8]) -> io::Result<Option<M>> {
    if bytes.is_empty() {
        return Ok(None);
    }
    Ok(Some(serde_json::from_slice(bytes)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_message_arrives_whole_and_with_its_descriptor() {
        let (ours, theirs) = pair().expect("a pair of sockets");
        let (mut pipe, end) = io::pipe().expect("a pipe");
        send(&ours, &vec![1, 2, 3], Some(end.as_fd())).expect("there is room");
        send(&ours, &vec![4], None).expect("there is room");
        drop(end);
        let first: (Vec<u8>, _) = receive_with(&theirs).expect("it is there").expect("no end");
        assert_eq!(first.0, [1, 2, 3]);
        drop(first.1.expect("the descriptor"));
        assert_eq!(pipe.read(&mut [0]).expect("its end"), 0);
        assert_eq!(receive::<Vec<u8>>(&theirs).expect("it is there"), Some(vec![4]));
    }

    #[test]
    fn the_end_is_no_message_and_no_error() {
        let (ours, theirs) = pair().expect("a pair of sockets");
        drop(ours);
        assert_eq!(receive::<u32>(&theirs).expect("the end"), None);
    }

    #[test]
    fn our_end_does_not_block() {
        let (ours, _theirs) = pair().expect("a pair of sockets");
        let error = receive::<u32>(&ours).expect_err("nothing is there");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
