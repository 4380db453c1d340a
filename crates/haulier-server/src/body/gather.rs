//! Collecting short bodies whole.

use std::future::poll_fn;
use std::task::Poll;

use bytes::Bytes;
use haulier_http::{BodySource, BrokenBody, Piece, Reason};
use haulier_proto::copy;

use super::hold::{Hold, Pacing};
use crate::clock;

/// A body, as far as it came without delaying the client.
#[derive(Debug)]
pub(crate) enum Gathered {
    Whole(Bytes),
    /// The first pieces, and the pacing of the rest.
    Part(Vec<Bytes>, Pacing),
}

impl Gathered {
    /// The pieces that came, to be read again.
    pub(crate) fn into_pieces(self) -> Vec<Bytes> {
        match self {
            Self::Whole(body) => vec![body],
            Self::Part(pieces, _) => pieces,
        }
    }
}

/// Collects a body as long as [`Hold::for_length`] allows.
///
/// # Errors
/// The source broke off.
pub(crate) async fn gather(body: &mut impl BodySource) -> Result<Gathered, BrokenBody> {
    let mut hold = Hold::for_length(body.length());
    let mut pieces: Vec<Bytes> = Vec::new();
    let mut total = 0;
    let pacing = loop {
        let piece = match body.try_piece() {
            Poll::Ready(piece) => piece?,
            Poll::Pending => {
                let next = poll_fn(|context| body.poll_piece(context));
                match tokio::time::timeout(hold.wait(clock::now()), next).await {
                    Ok(piece) => piece?,
                    Err(_) => break Pacing::Paused,
                }
            }
        };
        let Some(piece) = piece else {
            return Ok(Gathered::Whole(joined(pieces, total)));
        };
        let piece = bytes_of(piece)?;
        total += piece.len();
        pieces.push(piece);
        if let Some(pacing) = hold.judge(total, body.coming(), clock::now) {
            break pacing;
        }
    };
    Ok(Gathered::Part(pieces, pacing))
}

/// The bytes of a piece, read if they are in a file or a pipe.
///
/// # Errors
/// They cannot be read.
pub(crate) fn bytes_of(piece: Piece) -> Result<Bytes, BrokenBody> {
    if let Piece::Bytes(bytes) = piece {
        return Ok(bytes);
    }
    let mut memory = Vec::new();
    let read = piece.read_to(&mut memory);
    read.map_err(|_| BrokenBody {
        reason: Reason::FileError,
    })?;
    Ok(memory.into())
}

fn joined(mut pieces: Vec<Bytes>, total: usize) -> Bytes {
    if pieces.len() < 2 {
        return pieces.pop().unwrap_or_default();
    }
    let mut whole = Vec::with_capacity(total);
    pieces.iter().for_each(|piece| copy::append(&mut whole, piece));
    whole.into()
}
