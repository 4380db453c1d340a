//! gzip (RFC 1952): libdeflate for whole bodies, in half the time of zlib; zlib-rs for streams, which libdeflate lacks.

use std::cell::RefCell;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use haulier_proto::accept::Coding;
use libdeflater::{CompressionLvl, Compressor};

use super::CodecError;
use crate::compress::policy::Choice;

thread_local! {
    /// Compressors of the levels last used by this thread: two, since load changes the level.
    static COMPRESSORS: RefCell<Vec<(i32, Compressor)>> = const { RefCell::new(Vec::new()) };
}

/// Compressors kept by a thread.
const KEEP: usize = 2;
/// From this level on a compressor takes megabytes, and is used for files only.
const HIGH: i32 = 10;

/// From this length on the output starts smaller than the worst case.
const LONG: usize = 64 * 1024;

pub(super) fn whole(choice: Choice, body: &[u8]) -> Result<Vec<u8>, CodecError> {
    COMPRESSORS.with_borrow_mut(|kept| {
        let position = kept.iter().position(|(level, _)| *level == choice.level);
        let mut compressor = match position {
            Some(position) => kept.swap_remove(position).1,
            None => {
                let level = CompressionLvl::new(choice.level)
                    .map_err(|_| CodecError::new(Coding::Gzip, "level out of range"))?;
                Compressor::new(level)
            }
        };
        let bound = compressor.gzip_compress_bound(body.len());
        // The buffer is zeroed first: half of the length suffices for a long body that gains.
        let likely = if body.len() > LONG { body.len() / 2 } else { bound };
        let mut out = vec![0; likely];
        let mut written = compressor.gzip_compress(body, &mut out);
        if written.is_err() {
            out = vec![0; bound];
            written = compressor.gzip_compress(body, &mut out);
        }
        out.truncate(written.map_err(|_| CodecError::new(Coding::Gzip, "bound too small"))?);
        if choice.level < HIGH {
            kept.truncate(KEEP - 1);
            kept.push((choice.level, compressor));
        }
        Ok(out)
    })
}

/// A body in pieces.
pub(crate) struct Stream {
    encoder: GzEncoder<Vec<u8>>,
}

impl Stream {
    pub(super) fn new(choice: Choice) -> Self {
        // Level 1 of zlib-rs makes bodies 61 % larger, and its scale ends at 9.
        let level = choice.level.clamp(2, 9).unsigned_abs();
        Self {
            encoder: GzEncoder::new(Vec::new(), Compression::new(level)),
        }
    }

    pub(super) fn write(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<(), CodecError> {
        self.encoder.write_all(body).map_err(refused)?;
        out.append(self.encoder.get_mut());
        Ok(())
    }

    pub(super) fn flush(&mut self, out: &mut Vec<u8>) -> Result<(), CodecError> {
        self.encoder.flush().map_err(refused)?;
        out.append(self.encoder.get_mut());
        Ok(())
    }

    pub(super) fn finish(self, out: &mut Vec<u8>) -> Result<(), CodecError> {
        out.append(&mut self.encoder.finish().map_err(refused)?);
        Ok(())
    }
}

#[allow(clippy::needless_pass_by_value, reason = "the shape map_err wants")]
fn refused(_: std::io::Error) -> CodecError {
    CodecError::new(Coding::Gzip, "encoding failed")
}
