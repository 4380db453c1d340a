//! Coding of files without a compressed copy: short ones whole, long ones piece by piece as the client reads.

use std::cell::Cell;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use haulier_http::{BodySource, BrokenBody, Compressed, FileSlice, Piece, Reason};

use super::codec::{CodecError, Encoder};
use super::policy::Choice;
use super::{Skip, counted, failed};

/// The bytes of a short file; `None` if it is not in the page cache, or cannot be read.
pub(super) fn content(slice: &FileSlice) -> Option<Bytes> {
    if let Some(bytes) = slice.in_memory() {
        return Some(Bytes::copy_from_slice(bytes));
    }
    if !slice.is_cached(slice.len()) {
        return None;
    }
    let mut content = vec![0; slice.len() as usize];
    slice.file.file().read_exact_at(&mut content, slice.range.start).ok()?;
    Some(content.into())
}

thread_local! {
    static OPEN: Cell<usize> = const { Cell::new(0) };
}

/// Permit to keep a coder while a client reads. The number per thread is limited; beyond it bodies are not coded.
#[derive(Debug)]
pub(super) struct CoderPermit(());

/// Coders of one thread that wait for clients, each with a window of 128 KiB.
const MOST_CODERS: usize = 128;

impl CoderPermit {
    pub(super) fn take() -> Option<Self> {
        OPEN.with(|open| {
            (open.get() < MOST_CODERS).then(|| {
                open.set(open.get() + 1);
                Self(())
            })
        })
    }
}

impl Drop for CoderPermit {
    fn drop(&mut self) {
        OPEN.with(|open| open.set(open.get() - 1));
    }
}

/// Larger files are sent uncoded until they have a copy, bytes: they are not part of a page.
const MOST: u64 = 64 * 1024 * 1024;
/// Bytes read and coded at a time, in a quarter of a millisecond.
const TURN: u64 = 64 * 1024;

/// Checks that a file is coded while it is sent, so that HEAD agrees with GET.
pub(super) fn check(slice: &FileSlice) -> Result<(), Skip> {
    if slice.len() > MOST || !slice.is_cached(slice.len()) {
        return Err(Skip::File);
    }
    Ok(())
}

/// A file on its way through a coder.
#[derive(Debug)]
pub(super) struct CodedFile {
    rest: FileSlice,
    encoder: Option<Encoder>,
    compressed: Arc<Compressed>,
    _permit: CoderPermit,
}

impl CodedFile {
    /// Begins to code a file. It must be in the page cache, because waiting for the disk would block the thread.
    pub(super) fn begin(slice: FileSlice, choice: Choice, compressed: &Arc<Compressed>) -> Result<Self, Skip> {
        check(&slice)?;
        let permit = CoderPermit::take().ok_or(Skip::Busy)?;
        let encoder = Encoder::new(choice, Some(slice.len())).map_err(failed)?;
        Ok(Self {
            rest: slice,
            encoder: Some(encoder),
            compressed: Arc::clone(compressed),
            _permit: permit,
        })
    }

    fn next(&mut self) -> Result<Option<Vec<u8>>, BrokenBody> {
        let mut out = Vec::new();
        let mut piece = vec![0; TURN.min(self.rest.len()) as usize];
        while out.is_empty() {
            let Some(mut encoder) = self.encoder.take() else {
                return Ok(None);
            };
            let length = TURN.min(self.rest.len()) as usize;
            let piece = &mut piece[..length];
            // The file has been truncated: the client must not take a part for the whole.
            self.rest
                .file
                .file()
                .read_exact_at(piece, self.rest.range.start)
                .map_err(|_| BrokenBody {
                    reason: Reason::FileError,
                })?;
            self.rest.range.start += length as u64;
            let is_last = self.rest.is_empty();
            let code = || {
                encoder.write(piece, &mut out)?;
                if is_last {
                    encoder.finish(&mut out)?;
                } else {
                    self.encoder = Some(encoder);
                }
                Ok(out.len())
            };
            let made = |made: &Result<usize, CodecError>| *made.as_ref().unwrap_or(&0);
            let coded = counted(&self.compressed, length, code, made);
            if let Err(error) = coded {
                tracing::error!(%error, "compression of a file failed halfway");
                return Err(BrokenBody {
                    reason: Reason::CompressFailed,
                });
            }
        }
        Ok(Some(out))
    }
}

impl BodySource for CodedFile {
    fn poll_piece(&mut self, _: &mut Context<'_>) -> Poll<Result<Option<Piece>, BrokenBody>> {
        Poll::Ready(self.next().map(|coded| coded.map(|bytes| Piece::Bytes(bytes.into()))))
    }

    fn length(&self) -> Option<u64> {
        None
    }
}
