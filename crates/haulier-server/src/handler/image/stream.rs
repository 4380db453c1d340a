//! An original on its way from a store on the network: passed on as it comes.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use haulier_store::StoreError;
use tokio::sync::mpsc;

use crate::body::{BodyStream, BrokenBody, Chunk};

/// The rest of an original.
#[derive(Debug)]
pub(super) struct OriginalStream {
    length: u64,
    first: Option<Bytes>,
    pieces: mpsc::Receiver<Result<Bytes, StoreError>>,
    passed: u64,
}

impl OriginalStream {
    pub(super) fn new(length: u64, first: Bytes, pieces: mpsc::Receiver<Result<Bytes, StoreError>>) -> Self {
        Self {
            length,
            first: Some(first).filter(|first| !first.is_empty()),
            pieces,
            passed: 0,
        }
    }

    fn pass(&mut self, piece: Bytes) -> Chunk {
        self.passed += piece.len() as u64;
        Chunk::Bytes(piece)
    }
}

impl BodyStream for OriginalStream {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Chunk>, BrokenBody>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Ok(Some(self.pass(first))));
        }
        let piece = ready!(self.pieces.poll_recv(context));
        Poll::Ready(match piece {
            Some(Ok(piece)) => Ok(Some(self.pass(piece))),
            None if self.passed == self.length => Ok(None),
            // A part must not look like the whole: the connection is cut.
            Some(Err(_)) | None => Err(BrokenBody { reason: "store_failed" }),
        })
    }

    fn length(&self) -> Option<u64> {
        Some(self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(length: u64, sent: Vec<Result<Bytes, StoreError>>) -> Result<u64, BrokenBody> {
        let (sender, pieces) = mpsc::channel(8);
        for piece in sent {
            sender.try_send(piece).expect("there is room");
        }
        drop(sender);
        let mut stream = OriginalStream::new(length, Bytes::from_static(b"12"), pieces);
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut read = 0;
        loop {
            match stream.poll_next(&mut context) {
                Poll::Ready(Ok(Some(chunk))) => read += chunk.len(),
                Poll::Ready(Ok(None)) => return Ok(read),
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => panic!("everything is there"),
            }
        }
    }

    #[test]
    fn a_whole_original_ends_and_a_part_breaks_off() {
        let piece = || Ok(Bytes::from_static(b"345"));
        assert_eq!(read(8, vec![piece(), piece()]), Ok(8));
        assert!(read(8, vec![piece()]).is_err(), "it is too short");
        assert!(read(8, vec![piece(), Err(StoreError::Remote("x".into()))]).is_err());
    }
}
