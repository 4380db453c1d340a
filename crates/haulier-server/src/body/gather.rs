//! Collecting short bodies whole.

use std::future::poll_fn;
use std::task::Poll;

use bytes::Bytes;
use haulier_http::{BodySource, BrokenBody, FileSlice, Piece, Reason};
use haulier_proto::copy;

use super::hold::{Hold, Pacing};
use crate::clock;

/// A body, as far as it came without delaying the client.
#[derive(Debug)]
pub(crate) enum Gathered {
    Whole(Bytes),
    /// The whole body is a part of one file.
    File(FileSlice),
    /// The first pieces, and the pacing of the rest.
    Part(Vec<Piece>, Pacing),
}

impl Gathered {
    /// The pieces that came, to be read again.
    pub(crate) fn into_pieces(self) -> Vec<Piece> {
        match self {
            Self::Whole(body) => vec![Piece::Bytes(body)],
            Self::File(slice) => vec![Piece::File(slice)],
            Self::Part(pieces, _) => pieces,
        }
    }
}

/// Collects a body as long as [`Hold::for_length`] allows. A file among other pieces ends that: there is nothing to copy.
///
/// # Errors
/// The source broke off.
pub(crate) async fn gather(body: &mut impl BodySource) -> Result<Gathered, BrokenBody> {
    let mut hold = Hold::for_length(body.length());
    let mut pieces: Vec<Piece> = Vec::new();
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
            return whole(pieces, total);
        };
        total += piece.len() as usize;
        pieces.push(piece);
        if pieces.iter().any(|piece| matches!(piece, Piece::File(_))) {
            if pieces.len() > 1 {
                break Pacing::Fast;
            }
        } else if let Some(pacing) = hold.judge(total, body.coming(), clock::now) {
            break pacing;
        }
    };
    Ok(Gathered::Part(pieces, pacing))
}

/// A body of these pieces, `total` bytes long.
fn whole(mut pieces: Vec<Piece>, total: usize) -> Result<Gathered, BrokenBody> {
    if pieces.len() < 2 {
        return Ok(match pieces.pop() {
            Some(Piece::File(slice)) => Gathered::File(slice),
            Some(piece) => Gathered::Whole(bytes_of(piece)?),
            None => Gathered::Whole(Bytes::new()),
        });
    }
    let mut whole = Vec::with_capacity(total);
    for piece in pieces {
        copy::append(&mut whole, &bytes_of(piece)?);
    }
    Ok(Gathered::Whole(whole.into()))
}

/// The bytes of a piece, read if they are in a pipe.
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
