//! Field blocks in HEADERS and CONTINUATION frames, and their faults (RFC 9113 §4.3, §6.2, §6.10).

use super::error::{ConnectionError, ErrorCode};
use super::frame::{self, FrameHead, PRIORITY};
use super::hpack::HpackError;

/// A field block whose end is still to come.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) stream: u32,
    pub(super) end_stream: bool,
    pub(super) bytes: Vec<u8>,
    continuations: u32,
}

impl Block {
    pub(super) fn begin(stream: u32, end_stream: bool, fragment: &[u8]) -> Self {
        Self {
            stream,
            end_stream,
            bytes: fragment.to_vec(),
            continuations: 0,
        }
    }

    /// Appends the payload of a CONTINUATION, up to `most` bytes and `continuations` frames in all.
    pub(super) fn extend(&mut self, payload: &[u8], most: usize, continuations: u32) -> Result<(), ConnectionError> {
        self.continuations += 1;
        if self.continuations > continuations {
            return Err(ConnectionError::flood("too many CONTINUATION frames"));
        }
        if self.bytes.len() + payload.len() > most {
            return Err(ConnectionError::flood("field block too long"));
        }
        self.bytes.extend_from_slice(payload);
        Ok(())
    }
}

/// The part of a field block in a HEADERS frame, without padding and priority.
pub(super) fn fragment(head: FrameHead, payload: &[u8]) -> Result<&[u8], ConnectionError> {
    let fragment = head.unpadded(payload)?;
    if !head.has(PRIORITY) {
        return Ok(fragment);
    }
    let (priority, rest) = fragment
        .split_first_chunk::<5>()
        .ok_or(ConnectionError::frame_size("HEADERS too short for its priority"))?;
    check_dependency(head.stream, priority)?;
    Ok(rest)
}

/// Refuses a stream that depends on itself (RFC 7540 §5.3.1). Priorities are otherwise ignored (RFC 9113 §5.3.2).
pub(super) fn check_dependency(id: u32, priority: &[u8; 5]) -> Result<(), ConnectionError> {
    let [d0, d1, d2, d3, _] = *priority;
    if u32::from_be_bytes([d0, d1, d2, d3]) & frame::MOST_STREAM == id {
        return Err(ConnectionError::protocol("stream depends on itself"));
    }
    Ok(())
}

pub(super) fn compression(error: HpackError) -> ConnectionError {
    ConnectionError {
        code: ErrorCode::COMPRESSION_ERROR,
        reason: match error {
            HpackError::Truncated => "field block ends too early",
            HpackError::Integer => "integer of a field block out of range",
            HpackError::Index(_) => "index of a field block is in no table",
            HpackError::Huffman => "bad Huffman code in a field block",
            HpackError::TableSize => "dynamic table size update out of place or range",
        },
    }
}
