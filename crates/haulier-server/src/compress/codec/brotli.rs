//! Brotli (RFC 7932). An encoder cannot be reused; it is small for small bodies if it knows their size.

use brotlic::encode::{BrotliEncoder, BrotliEncoderOptions, BrotliOperation};
use brotlic::{CompressionMode, Quality, WindowSize};
use haulier_proto::accept::Coding;

use super::CodecError;
use crate::compress::policy::Choice;

/// The largest window of RFC 7932, as a power of two. Its memory is used only as it fills.
const MOST_WINDOW: u32 = 22;
const LEAST_WINDOW: u32 = 16;
/// Window of quick levels. It fits the processor's cache, which saves a quarter of the time for 2 % more bytes (4 MB of
/// HTML at level 4: 56 ms and 1,249 KB against 73 ms and 1,219 KB).
const QUICK_WINDOW: u32 = 19;
const QUICK_LEVEL: i32 = 5;
/// Largest size hint at quick levels. Beyond it level 4 uses another match finder with a table of four megabytes, which
/// exceeds any processor's cache, for a tenth less bytes (4 MB of HTML from PHP: 66 ms of the server and 1,249 KB
/// against 55 ms and 1,380 KB; nginx 62 ms and 1,380 KB).
const MOST_HINT: u32 = (1 << 20) - 1;

pub(super) fn whole(choice: Choice, body: &[u8]) -> Result<Vec<u8>, CodecError> {
    let mut stream = Stream::new(choice, Some(body.len() as u64))?;
    let mut out = Vec::with_capacity(body.len() / 2 + 64);
    stream.drive(body, BrotliOperation::Finish, &mut out)?;
    Ok(out)
}

/// A body in pieces.
pub(crate) struct Stream {
    encoder: BrotliEncoder,
}

impl Stream {
    pub(super) fn new(choice: Choice, length: Option<u64>) -> Result<Self, CodecError> {
        let refused = |_| CodecError::new(Coding::Brotli, "parameters out of range");
        let quality = Quality::new(u8::try_from(choice.level).unwrap_or(u8::MAX)).map_err(refused)?;
        let window = choice.window.unwrap_or_else(|| window_for(choice.level, length));
        let window = WindowSize::new(window as u8).map_err(refused)?;
        let mut options = BrotliEncoderOptions::new();
        options
            .quality(quality)
            .window_size(window)
            .mode(CompressionMode::Generic);
        if let Some(length) = length {
            let most = if choice.level < QUICK_LEVEL {
                MOST_HINT
            } else {
                u32::MAX
            };
            options.size_hint(u32::try_from(length).unwrap_or(u32::MAX).min(most));
        }
        Ok(Self {
            encoder: options.build().map_err(refused)?,
        })
    }

    pub(super) fn write(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<(), CodecError> {
        self.drive(body, BrotliOperation::Process, out)
    }

    pub(super) fn flush(&mut self, out: &mut Vec<u8>) -> Result<(), CodecError> {
        self.drive(&[], BrotliOperation::Flush, out)
    }

    pub(super) fn finish(mut self, out: &mut Vec<u8>) -> Result<(), CodecError> {
        self.drive(&[], BrotliOperation::Finish, out)
    }

    fn drive(&mut self, mut body: &[u8], operation: BrotliOperation, out: &mut Vec<u8>) -> Result<(), CodecError> {
        const STEP: usize = 16 * 1024;
        loop {
            let end = out.len();
            out.resize(end + STEP.min(body.len() + 1024), 0);
            let done = self
                .encoder
                .compress(body, &mut out[end..], operation)
                .map_err(|_| CodecError::new(Coding::Brotli, "encoding failed"))?;
            out.truncate(end + done.bytes_written);
            body = &body[done.bytes_read..];
            if body.is_empty() && !self.encoder.has_output() {
                return Ok(());
            }
        }
    }
}

/// A window that holds the whole body, if its length is known and the level is worth it.
fn window_for(level: i32, length: Option<u64>) -> u32 {
    let most = if level <= QUICK_LEVEL {
        QUICK_WINDOW
    } else {
        MOST_WINDOW
    };
    let Some(length) = length else { return most };
    // The window loses 16 bytes to the format (RFC 7932 §9.1).
    let needed = (length + 16).next_power_of_two().trailing_zeros();
    needed.clamp(LEAST_WINDOW, most)
}

/// True unless a large-window stream begins with these bytes; no browser accepts one.
#[must_use]
pub(crate) fn is_standard_window(bytes: &[u8]) -> bool {
    // RFC 7932 §9.1: WBITS 0010001 is reserved; "large window" streams begin with it.
    bytes.first().is_some_and(|&first| first & 0x7f != 0x11)
}
