//! The messages between haulier and its spawner: packets of a fixed length, with descriptors attached.
//!
//! Only the list of recipes is longer. It is sent before the server leaves root, and nothing is parsed after it.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

/// Bytes of an order, and of a reply.
const ORDER: usize = 16;
const REPLY: usize = 12;
/// The packet after the last recipe.
pub(super) const END_OF_LIST: &[u8] = b"{}";
/// Flag in a reply about the end of a process: it has ended.
pub(super) const ENDED: u64 = 1 << 32;
/// A listening socket, two directories, an extension and a socket to the master.
const MOST_DESCRIPTORS: usize = 5;
/// Longest recipe, bytes: the default limit of a packet on a socket.
pub(super) const LONGEST: usize = 192 * 1024;

/// An order to the spawner. There are no others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpawnerOrder {
    /// Start the recipe of this number. The listening socket and the flagged descriptors come with it.
    Start {
        recipe: u32,
        admin_ini: bool,
        opcache: bool,
        extension: bool,
        control: bool,
    },
    /// Report the exit status of this php-cgi if it has ended, and forget it then.
    HowEnded { master: u32 },
    /// End this php-cgi with its children: by SIGTERM, or SIGKILL with `force`.
    EndGroup { master: u32, force: bool },
    /// Name the child of this php-cgi that holds the socket with this inode.
    Holder { master: u32, inode: u32 },
    /// End a child of any php-cgi if it still holds this socket.
    EndChild { child: u32, inode: u32, force: bool },
    /// Report the memory of this php-cgi and its children.
    Memory { master: u32 },
    /// End this php-cgi by SIGKILL, and let its children finish their requests.
    EndMaster { master: u32 },
}

impl SpawnerOrder {
    fn encode(self) -> [u8; ORDER] {
        let words: [u32; 4] = match self {
            Self::Start {
                recipe,
                admin_ini,
                opcache,
                extension,
                control,
            } => [
                1,
                recipe,
                admin_ini.into(),
                u32::from(opcache) | u32::from(extension) << 1 | u32::from(control) << 2,
            ],
            Self::HowEnded { master } => [2, master, 0, 0],
            Self::EndGroup { master, force } => [3, master, force.into(), 0],
            Self::Holder { master, inode } => [4, master, inode, 0],
            Self::EndChild { child, inode, force } => [5, child, inode, force.into()],
            Self::Memory { master } => [6, master, 0, 0],
            Self::EndMaster { master } => [7, master, 0, 0],
        };
        let mut bytes = [0; ORDER];
        for (bytes, word) in bytes.chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; ORDER] = bytes.try_into().ok()?;
        let word = |index: usize| u32::from_ne_bytes(bytes[4 * index..][..4].try_into().expect("four bytes"));
        let flag = |index| word(index) != 0;
        Some(match word(0) {
            1 => Self::Start {
                recipe: word(1),
                admin_ini: flag(2),
                opcache: word(3) & 1 != 0,
                extension: word(3) & 2 != 0,
                control: word(3) & 4 != 0,
            },
            2 => Self::HowEnded { master: word(1) },
            3 => Self::EndGroup {
                master: word(1),
                force: flag(2),
            },
            4 => Self::Holder {
                master: word(1),
                inode: word(2),
            },
            5 => Self::EndChild {
                child: word(1),
                inode: word(2),
                force: flag(3),
            },
            6 => Self::Memory { master: word(1) },
            7 => Self::EndMaster { master: word(1) },
            _ => return None,
        })
    }
}

/// A number with an optional descriptor, or the number of a system error.
pub(super) type Reply = Result<(u64, Option<OwnedFd>), i32>;

/// Sends an order and waits for the reply.
///
/// # Errors
/// The other end is closed, or does not answer.
pub(super) fn ask(line: BorrowedFd<'_>, order: SpawnerOrder, with: &[BorrowedFd<'_>]) -> io::Result<Reply> {
    send(line, &order.encode(), with)?;
    let mut bytes = [0; REPLY + 1];
    let (length, mut descriptors) = receive(line, &mut bytes)?;
    let Some((error, value)) = bytes[..length].split_first_chunk::<4>() else {
        return Err(io::ErrorKind::UnexpectedEof.into());
    };
    let value = value
        .try_into()
        .map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    Ok(match i32::from_ne_bytes(*error) {
        0 => Ok((u64::from_ne_bytes(value), descriptors.pop())),
        error => Err(error),
    })
}

/// The next order with its descriptors; `None` for a malformed packet, an error at the end of the stream.
pub(super) fn next(line: BorrowedFd<'_>) -> io::Result<(Option<SpawnerOrder>, Vec<OwnedFd>)> {
    let mut bytes = [0; ORDER + 1];
    let (length, descriptors) = receive(line, &mut bytes)?;
    if length == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok((SpawnerOrder::decode(&bytes[..length]), descriptors))
}

/// Answers the last order.
pub(super) fn reply(line: BorrowedFd<'_>, reply: Reply) -> io::Result<()> {
    let (error, value, descriptor) = match reply {
        Ok((value, descriptor)) => (0, value, descriptor),
        Err(error) => (error, 0, None),
    };
    let mut bytes = [0; REPLY];
    bytes[..4].copy_from_slice(&error.to_ne_bytes());
    bytes[4..].copy_from_slice(&value.to_ne_bytes());
    let descriptors: Vec<BorrowedFd<'_>> = descriptor.iter().map(AsFd::as_fd).collect();
    send(line, &bytes, &descriptors)
}

/// Sends one packet.
pub(super) fn send(line: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    sendmsg(line, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives one packet: its length and its descriptors. Length 0 is the end of the stream.
pub(super) fn receive(line: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        recvmsg(
            line,
            &mut [IoSliceMut::new(bytes)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )
    })?;
    let descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok((received.bytes, descriptors.flatten().collect()))
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    #[test]
    fn every_order_arrives_as_it_was_sent_and_nothing_else_is_one() {
        let orders = [
            SpawnerOrder::Start {
                recipe: 3,
                admin_ini: false,
                opcache: true,
                extension: true,
                control: false,
            },
            SpawnerOrder::HowEnded { master: 7 },
            SpawnerOrder::EndGroup { master: 8, force: true },
            SpawnerOrder::Holder { master: 9, inode: 10 },
            SpawnerOrder::EndChild {
                child: 11,
                inode: 12,
                force: false,
            },
            SpawnerOrder::Memory { master: 13 },
        ];
        for order in orders {
            assert_eq!(SpawnerOrder::decode(&order.encode()), Some(order));
        }
        assert_eq!(SpawnerOrder::decode(&[0; ORDER]), None);
        assert_eq!(SpawnerOrder::decode(&[7; ORDER]), None);
        assert_eq!(SpawnerOrder::decode(&orders[0].encode()[1..]), None);
        assert_eq!(SpawnerOrder::decode(&[1; ORDER + 1]), None);
    }

    #[test]
    fn an_answer_carries_a_number_and_a_descriptor_or_an_error() {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .expect("a pair of sockets");
        let order = SpawnerOrder::HowEnded { master: 1 };
        let other = std::thread::spawn(move || {
            let (received, mut with) = next(theirs.as_fd()).expect("an order");
            assert_eq!(received, Some(order));
            reply(theirs.as_fd(), Ok((1 << 40, with.pop()))).expect("haulier listens");
            assert_eq!(next(theirs.as_fd()).expect("an order").0, Some(order));
            reply(theirs.as_fd(), Err(libc::EPERM)).expect("haulier listens");
            assert_eq!(
                next(theirs.as_fd()).expect_err("the end").kind(),
                io::ErrorKind::UnexpectedEof
            );
        });
        let (reader, _writer) = io::pipe().expect("a pipe");
        let answer = ask(ours.as_fd(), order, &[reader.as_fd()])
            .expect("an answer")
            .expect("a good one");
        assert_eq!(answer.0, 1 << 40);
        assert!(answer.1.is_some());
        assert_eq!(
            ask(ours.as_fd(), order, &[])
                .expect("an answer")
                .expect_err("a bad one"),
            libc::EPERM
        );
        drop(ours);
        other.join().expect("it ended well");
    }
}
