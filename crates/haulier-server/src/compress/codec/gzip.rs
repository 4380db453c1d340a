//! gzip (RFC 1952): libdeflate for whole bodies, half the time of zlib; zlib-rs for streams, which libdeflate has not.

use std::cell::RefCell;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use haulier_proto::accept::Coding;
use libdeflater::{CompressionLvl, Compressor};

use super::CodecError;
use crate::compress::policy::Choice;

thread_local! {
    /// The levels this thread used last: two, since load changes them.
    static COMPRESSORS: RefCell<Vec<(i32, Compressor)>> = const { RefCell::new(Vec::new()) };
}

/// Levels a thread keeps a compressor for.
const KEEP: usize = 2;
/// From here on a compressor takes megabytes, and is used for files only.
const HIGH: i32 = 10;

/// From this many bytes on it is worth while to ask for less room than the worst case needs.
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
        // Room is filled with zeros before: for a long body that gains, half of it is enough.
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

/// A body that grows.
pub(crate) struct Stream {
    encoder: GzEncoder<Vec<u8>>,
}

impl Stream {
    pub(super) fn new(choice: Choice) -> Self {
        // zlib-rs's level 1 makes bodies 61 % larger, and its scale ends at 9.
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
    CodecError::new(Coding::Gzip, "cannot go on")
}
