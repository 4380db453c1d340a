//! The body of an original from a store on the network. Each piece is passed on as it arrives.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use haulier_http::{BodySource, BrokenBody, Piece, Reason};
use haulier_store::StoreError;
use tokio::sync::mpsc;

use crate::integrity::StreamCheck;

/// An original, or a part of one, as a body.
#[derive(Debug)]
pub struct OriginalStream {
    length: u64,
    first: Option<Bytes>,
    pieces: mpsc::Receiver<Result<Bytes, StoreError>>,
    passed: u64,
    /// The check of a whole original: its last piece is sent only if the bytes match the id.
    check: Option<StreamCheck>,
}

impl OriginalStream {
    pub(crate) fn new(
        length: u64,
        first: Bytes,
        pieces: mpsc::Receiver<Result<Bytes, StoreError>>,
        check: Option<StreamCheck>,
    ) -> Self {
        Self {
            length,
            first: Some(first).filter(|first| !first.is_empty()),
            pieces,
            passed: 0,
            check,
        }
    }

    fn pass(&mut self, piece: Bytes) -> Result<Option<Piece>, BrokenBody> {
        self.passed += piece.len() as u64;
        if let Some(check) = &mut self.check {
            check.add(&piece);
        }
        if self.passed >= self.length
            && let Some(check) = self.check.take()
            && !check.ends_whole(self.passed)
        {
            return Err(BrokenBody {
                reason: Reason::StoreDamaged,
            });
        }
        Ok(Some(Piece::Bytes(piece)))
    }
}

impl BodySource for OriginalStream {
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Piece>, BrokenBody>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(self.pass(first));
        }
        let piece = ready!(self.pieces.poll_recv(context));
        Poll::Ready(match piece {
            Some(Ok(piece)) => self.pass(piece),
            None if self.passed == self.length => Ok(None),
            // The connection is closed, so that the client does not take a part for the whole.
            Some(Err(_)) | None => Err(BrokenBody {
                reason: Reason::StoreFailed,
            }),
        })
    }

    fn length(&self) -> Option<u64> {
        Some(self.length)
    }
}

#[cfg(test)]
mod tests {
    use haulier_store::{Key, Md5Sum, StoreRuntime};

    use super::*;
    use crate::integrity::Integrity;

    fn read(length: u64, sent: Vec<Result<Bytes, StoreError>>) -> Result<u64, BrokenBody> {
        read_checked(length, sent, None).1
    }

    /// The number of bytes, and the end.
    fn read_checked(
        length: u64,
        sent: Vec<Result<Bytes, StoreError>>,
        check: Option<StreamCheck>,
    ) -> (u64, Result<u64, BrokenBody>) {
        let (sender, pieces) = mpsc::channel(8);
        for piece in sent {
            sender.try_send(piece).expect("there is room");
        }
        drop(sender);
        let mut stream = OriginalStream::new(length, Bytes::from_static(b"12"), pieces, check);
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut read = 0;
        loop {
            match stream.poll_piece(&mut context) {
                Poll::Ready(Ok(Some(chunk))) => read += chunk.len(),
                Poll::Ready(Ok(None)) => return (read, Ok(read)),
                Poll::Ready(Err(error)) => return (read, Err(error)),
                Poll::Pending => panic!("everything is there"),
            }
        }
    }

    #[test]
    fn the_end_of_a_damaged_original_is_kept_back() {
        let integrity = Integrity::new(StoreRuntime::start().expect("a thread"), "here".to_owned());
        let id = |content: &[u8]| -> Key { Md5Sum::of(content).parse().expect("digits") };
        let sent = || vec![Ok(Bytes::from_static(b"345")), Ok(Bytes::from_static(b"678"))];
        let right = integrity.stream_check(&id(b"12345678"));
        assert_eq!(read_checked(8, sent(), Some(right)), (8, Ok(8)));
        let wrong = integrity.stream_check(&id(b"12345679"));
        let (received, end) = read_checked(8, sent(), Some(wrong));
        assert_eq!(received, 5);
        assert_eq!(end.expect_err("it is another one").reason, Reason::StoreDamaged);
    }

    #[test]
    fn a_whole_original_ends_and_a_part_breaks_off() {
        let piece = || Ok(Bytes::from_static(b"345"));
        assert_eq!(read(8, vec![piece(), piece()]), Ok(8));
        assert!(read(8, vec![piece()]).is_err(), "it is too short");
        assert!(read(8, vec![piece(), Err(StoreError::Remote("x".into()))]).is_err());
    }
}
