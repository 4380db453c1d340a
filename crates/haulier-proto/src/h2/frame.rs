//! Frames: their head, their flags, writing them (RFC 9113 §4, §6).

use super::error::{ConnectionError, ErrorCode};
use crate::copy;

/// Bytes of a frame head.
pub const HEAD_LENGTH: usize = 9;
/// The largest payload that every peer must accept (RFC 9113 §4.2), and the largest that we accept.
pub const DEFAULT_PAYLOAD: u32 = 16_384;
/// The highest stream number.
pub const MOST_STREAM: u32 = 0x7fff_ffff;

/// END_STREAM of DATA and HEADERS.
pub const END_STREAM: u8 = 0x1;
/// ACK of SETTINGS and PING.
pub const ACK: u8 = 0x1;
/// END_HEADERS of HEADERS and CONTINUATION.
pub const END_HEADERS: u8 = 0x4;
/// PADDED of DATA and HEADERS.
pub const PADDED: u8 = 0x8;
/// PRIORITY of HEADERS.
pub const PRIORITY: u8 = 0x20;

/// Frame types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameType {
    Data,
    Headers,
    Priority,
    ResetStream,
    Settings,
    PushPromise,
    Ping,
    GoAway,
    WindowUpdate,
    Continuation,
    /// Ignored (RFC 9113 §4.1).
    Unknown(u8),
}

impl FrameType {
    fn of(byte: u8) -> Self {
        match byte {
            0 => Self::Data,
            1 => Self::Headers,
            2 => Self::Priority,
            3 => Self::ResetStream,
            4 => Self::Settings,
            5 => Self::PushPromise,
            6 => Self::Ping,
            7 => Self::GoAway,
            8 => Self::WindowUpdate,
            9 => Self::Continuation,
            other => Self::Unknown(other),
        }
    }

    fn byte(self) -> u8 {
        match self {
            Self::Data => 0,
            Self::Headers => 1,
            Self::Priority => 2,
            Self::ResetStream => 3,
            Self::Settings => 4,
            Self::PushPromise => 5,
            Self::Ping => 6,
            Self::GoAway => 7,
            Self::WindowUpdate => 8,
            Self::Continuation => 9,
            Self::Unknown(other) => other,
        }
    }
}

/// The nine bytes before a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHead {
    /// Bytes of the payload, below 2^24.
    pub length: u32,
    pub kind: FrameType,
    pub flags: u8,
    /// 0 for the connection; the reserved bit is dropped.
    pub stream: u32,
}

impl FrameHead {
    /// Reads the head at the start of `input`; `None` if there are fewer than nine bytes.
    #[must_use]
    pub fn parse(input: &[u8]) -> Option<Self> {
        let &[high, middle, low, kind, flags, s0, s1, s2, s3] = input.first_chunk::<HEAD_LENGTH>()?;
        Some(Self {
            length: u32::from_be_bytes([0, high, middle, low]),
            kind: FrameType::of(kind),
            flags,
            stream: u32::from_be_bytes([s0, s1, s2, s3]) & MOST_STREAM,
        })
    }

    /// Appends the head.
    pub fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bytes());
    }

    fn bytes(self) -> [u8; HEAD_LENGTH] {
        let [_, high, middle, low] = self.length.to_be_bytes();
        let [s0, s1, s2, s3] = self.stream.to_be_bytes();
        [high, middle, low, self.kind.byte(), self.flags, s0, s1, s2, s3]
    }

    #[must_use]
    pub fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The payload of DATA or HEADERS without its padding (RFC 9113 §6.1, §6.2).
    ///
    /// # Errors
    /// PROTOCOL_ERROR if the padding is longer than the payload, FRAME_SIZE_ERROR if its length is missing.
    pub fn unpadded(self, payload: &[u8]) -> Result<&[u8], ConnectionError> {
        if !self.has(PADDED) {
            return Ok(payload);
        }
        let (&padding, rest) = payload
            .split_first()
            .ok_or(ConnectionError::frame_size("padded frame without a padding length"))?;
        rest.len()
            .checked_sub(usize::from(padding))
            .map(|length| &rest[..length])
            .ok_or(ConnectionError::protocol("padding longer than its frame"))
    }
}

/// Appends HEADERS whose field block `write` appends in its place. A block of more than `most` bytes gets CONTINUATION.
pub fn fill_headers(out: &mut Vec<u8>, stream: u32, end_stream: bool, most: u32, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; HEAD_LENGTH]);
    write(out);
    let length = (out.len() - start - HEAD_LENGTH) as u32;
    if length > most {
        let block = out.split_off(start + HEAD_LENGTH);
        out.truncate(start);
        return write_headers(out, stream, &block, end_stream, most);
    }
    let head = FrameHead {
        length,
        kind: FrameType::Headers,
        flags: if end_stream {
            END_HEADERS | END_STREAM
        } else {
            END_HEADERS
        },
        stream,
    };
    out[start..start + HEAD_LENGTH].copy_from_slice(&head.bytes());
}

/// Appends a field block as HEADERS and as many CONTINUATION as `most` bytes a frame make necessary.
pub fn write_headers(out: &mut Vec<u8>, stream: u32, block: &[u8], end_stream: bool, most: u32) {
    let mut flags = if end_stream { END_STREAM } else { 0 };
    let mut kind = FrameType::Headers;
    let mut rest = block;
    loop {
        let (part, after) = rest.split_at(rest.len().min(most as usize));
        if after.is_empty() {
            flags |= END_HEADERS;
        }
        let head = FrameHead {
            length: part.len() as u32,
            kind,
            flags,
            stream,
        };
        head.write(out);
        out.extend_from_slice(part);
        if after.is_empty() {
            return;
        }
        (kind, flags, rest) = (FrameType::Continuation, 0, after);
    }
}

/// Appends `data` as DATA frames of at most `most` bytes; none at all for no data without END_STREAM.
pub fn write_data(out: &mut Vec<u8>, stream: u32, data: &[u8], end_stream: bool, most: u32) {
    let mut rest = data;
    while !rest.is_empty() || end_stream {
        let (part, after) = rest.split_at(rest.len().min(most as usize));
        let last = after.is_empty();
        let head = FrameHead {
            length: part.len() as u32,
            kind: FrameType::Data,
            flags: if last && end_stream { END_STREAM } else { 0 },
            stream,
        };
        head.write(out);
        copy::append(out, part);
        if last {
            return;
        }
        rest = after;
    }
}

/// Appends one DATA frame of at most `most` bytes. `fill` writes the payload in place and returns its length; a length
/// of `last` ends the stream. Returns the length; for 0 there is no frame.
///
/// # Errors
/// That of `fill`; there is no frame then.
pub fn fill_data<E>(
    out: &mut Vec<u8>,
    stream: u32,
    most: usize,
    last: usize,
    fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
) -> Result<usize, E> {
    let start = out.len();
    out.resize(start + HEAD_LENGTH + most, 0);
    let filled = fill(&mut out[start + HEAD_LENGTH..]).inspect_err(|_| out.truncate(start))?;
    if filled == 0 {
        out.truncate(start);
        return Ok(0);
    }
    out.truncate(start + HEAD_LENGTH + filled);
    let head = FrameHead {
        length: filled as u32,
        kind: FrameType::Data,
        flags: if filled == last { END_STREAM } else { 0 },
        stream,
    };
    out[start..start + HEAD_LENGTH].copy_from_slice(&head.bytes());
    Ok(filled)
}

/// Appends RST_STREAM.
pub fn write_reset(out: &mut Vec<u8>, stream: u32, code: ErrorCode) {
    write_small(out, FrameType::ResetStream, 0, stream, &code.0.to_be_bytes());
}

/// Appends WINDOW_UPDATE.
pub fn write_window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    write_small(out, FrameType::WindowUpdate, 0, stream, &increment.to_be_bytes());
}

/// Appends PING, or the answer to one.
pub fn write_ping(out: &mut Vec<u8>, opaque: [u8; 8], ack: bool) {
    write_small(out, FrameType::Ping, if ack { ACK } else { 0 }, 0, &opaque);
}

/// Appends GOAWAY.
pub fn write_goaway(out: &mut Vec<u8>, last_stream: u32, code: ErrorCode) {
    let mut payload = [0; 8];
    payload[..4].copy_from_slice(&last_stream.to_be_bytes());
    payload[4..].copy_from_slice(&code.0.to_be_bytes());
    write_small(out, FrameType::GoAway, 0, 0, &payload);
}

/// Appends the acknowledgement of SETTINGS.
pub fn write_settings_ack(out: &mut Vec<u8>) {
    write_small(out, FrameType::Settings, ACK, 0, &[]);
}

/// Appends a frame whose payload is at hand.
pub fn write_small(out: &mut Vec<u8>, kind: FrameType, flags: u8, stream: u32, payload: &[u8]) {
    let head = FrameHead {
        length: payload.len() as u32,
        kind,
        flags,
        stream,
    };
    head.write(out);
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(mut bytes: &[u8]) -> Vec<(FrameHead, &[u8])> {
        let mut found = Vec::new();
        while let Some(head) = FrameHead::parse(bytes) {
            let (payload, rest) = bytes[HEAD_LENGTH..].split_at(head.length as usize);
            found.push((head, payload));
            bytes = rest;
        }
        assert!(bytes.is_empty());
        found
    }

    #[test]
    fn a_block_written_in_its_place_makes_the_same_frames() {
        for length in [0, 9, 10, 11, 25] {
            for end_stream in [false, true] {
                let (mut filled, mut written) = (vec![1, 2], vec![1, 2]);
                let block = vec![7; length];
                fill_headers(&mut filled, 3, end_stream, 10, |out| out.extend_from_slice(&block));
                write_headers(&mut written, 3, &block, end_stream, 10);
                assert_eq!(filled, written, "{length}");
            }
        }
    }

    #[test]
    fn a_long_block_goes_on_in_continuation() {
        let mut out = Vec::new();
        write_headers(&mut out, 3, &[7; 25], true, 10);
        let found = frames(&out);
        let shape: Vec<_> = found
            .iter()
            .map(|(head, _)| (head.kind, head.flags, head.length))
            .collect();
        assert_eq!(
            shape,
            [
                (FrameType::Headers, END_STREAM, 10),
                (FrameType::Continuation, 0, 10),
                (FrameType::Continuation, END_HEADERS, 5)
            ]
        );
    }

    #[test]
    fn a_block_that_fits_exactly_is_one_frame() {
        let mut out = Vec::new();
        write_headers(&mut out, 3, &[7; 10], false, 10);
        assert_eq!(frames(&out).len(), 1);
        assert_eq!(frames(&out)[0].0.flags, END_HEADERS);
    }

    #[test]
    fn only_the_last_data_frame_ends_the_stream() {
        let mut out = Vec::new();
        write_data(&mut out, 5, &[1; 20], true, 8);
        let flags: Vec<_> = frames(&out).iter().map(|(head, _)| (head.flags, head.length)).collect();
        assert_eq!(flags, [(0, 8), (0, 8), (END_STREAM, 4)]);
        out.clear();
        write_data(&mut out, 5, &[], true, 8);
        assert_eq!(frames(&out)[0].0.flags, END_STREAM);
        out.clear();
        write_data(&mut out, 5, &[], false, 8);
        assert!(out.is_empty());
    }

    #[test]
    fn padding_is_taken_off_or_refused() {
        let head = |flags| FrameHead {
            length: 0,
            kind: FrameType::Data,
            flags,
            stream: 1,
        };
        assert_eq!(head(0).unpadded(b"\x02abc"), Ok(&b"\x02abc"[..]));
        assert_eq!(head(PADDED).unpadded(b"\x02abc"), Ok(&b"a"[..]));
        assert_eq!(head(PADDED).unpadded(b"\x03abc"), Ok(&b""[..]));
        assert_eq!(
            head(PADDED).unpadded(b"\x04abc").map_err(|error| error.code),
            Err(ErrorCode::PROTOCOL_ERROR)
        );
        assert_eq!(
            head(PADDED).unpadded(b"").map_err(|error| error.code),
            Err(ErrorCode::FRAME_SIZE_ERROR)
        );
    }

    #[test]
    fn heads_of_every_type_come_back() {
        for byte in 0..=12 {
            let head = FrameHead {
                length: 0x01_02_03,
                kind: FrameType::of(byte),
                flags: 0xa5,
                stream: MOST_STREAM,
            };
            let mut out = Vec::new();
            head.write(&mut out);
            assert_eq!(out[3], byte);
            assert_eq!(FrameHead::parse(&out), Some(head));
            out[5] |= 0x80;
            assert_eq!(FrameHead::parse(&out), Some(head), "the reserved bit says nothing");
            assert_eq!(FrameHead::parse(&out[..8]), None);
        }
    }
}
