//! Response bodies that keep to their announced length.

use std::task::{Context, Poll, ready};

use haulier_http::{BodySource, BrokenBody, Piece, Reason};
use haulier_proto::field::Fields;

/// A body that comes in pieces. A longer one than announced is truncated, a shorter one is broken.
#[derive(Debug)]
pub(super) struct ExactBody {
    source: Box<dyn BodySource>,
    /// Remaining bytes, if the length was announced.
    left: Option<u64>,
}

impl ExactBody {
    pub(super) fn new(source: Box<dyn BodySource>) -> Self {
        let left = source.length();
        Self { source, left }
    }

    /// The next piece, perhaps an empty one; `Ok(None)` is the end.
    ///
    /// # Errors
    /// The body is broken: the client must not take it for complete.
    pub(super) fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Piece>, BrokenBody>> {
        let mut piece = ready!(self.source.poll_piece(context))?;
        if let Some(left) = &mut self.left {
            match &mut piece {
                Some(piece) => {
                    piece.truncate(*left);
                    *left -= piece.len();
                }
                None if *left > 0 => {
                    return Poll::Ready(Err(BrokenBody {
                        reason: Reason::BadResponse,
                    }));
                }
                None => {}
            }
        }
        Poll::Ready(Ok(piece))
    }

    /// True if the body ends only when the client leaves.
    pub(super) fn is_endless(&self) -> bool {
        self.source.is_endless()
    }

    /// Trailers, once the end has come.
    pub(super) fn trailers(&self) -> Option<Fields> {
        self.source.trailers()
    }
}
