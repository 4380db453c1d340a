//! Frames out of bytes, with the checks that are the same for both ends of a connection (RFC 9113 §4, §6).
//!
//! [`FrameReader::next`] checks the size, the order and the form of each frame and joins field blocks from HEADERS and
//! CONTINUATION. The checks that depend on streams and windows are made by [`super::connection`] and
//! [`super::client`].

use std::borrow::Cow;

use super::PREFACE;
use super::block::{self, Block, check_dependency};
use super::error::{ConnectionError, ErrorCode};
use super::frame::{ACK, DEFAULT_PAYLOAD, END_HEADERS, END_STREAM, FrameHead, FrameType, HEAD_LENGTH, MOST_STREAM};

/// The progress of [`super::connection::Connection::receive`] or [`super::client::Client::receive`].
#[derive(Debug)]
pub struct Received<E> {
    /// Bytes of the input that were consumed.
    pub taken: usize,
    /// `None`: more input is needed.
    pub event: Option<E>,
}

/// A frame of sound form.
#[derive(Debug)]
pub(super) enum Frame<'i> {
    Data(Data<'i>),
    /// A complete field block.
    Fields {
        stream: u32,
        end: bool,
        block: Cow<'i, [u8]>,
    },
    Priority,
    Reset {
        stream: u32,
        code: ErrorCode,
    },
    Settings(&'i [u8]),
    SettingsAck,
    Ping([u8; 8]),
    PingAck([u8; 8]),
    GoAway {
        last: u32,
        code: ErrorCode,
    },
    /// For the connection's window; never by nothing.
    ConnectionWindow {
        increment: u32,
    },
    StreamWindow {
        stream: u32,
        increment: u32,
    },
    PushPromise,
    /// Ignored (RFC 9113 §4.1).
    Unknown,
}

/// A DATA frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Data<'i> {
    pub(super) stream: u32,
    /// Bytes of the frame that count against the windows, padding included (RFC 9113 §6.1).
    pub(super) length: u32,
    pub(super) data: &'i [u8],
    pub(super) end: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReaderState {
    /// The client's preface has not come yet.
    Preface,
    /// The first frame must be SETTINGS (RFC 9113 §3.4).
    FirstSettings,
    Open,
    Failed(ConnectionError),
}

/// Reads the frames of one connection.
#[derive(Debug)]
pub(super) struct FrameReader {
    state: ReaderState,
    /// A field block whose end is still to come.
    block: Option<Box<Block>>,
    /// Bytes of a field block that CONTINUATION may make it. Above it the connection ends.
    most_block: usize,
    /// CONTINUATION frames of one field block. Above it the connection ends.
    continuations: u32,
}

impl FrameReader {
    /// The server's reader, which expects the preface.
    pub(super) fn of_server(most_block: usize, continuations: u32) -> Self {
        Self {
            state: ReaderState::Preface,
            block: None,
            most_block,
            continuations,
        }
    }

    /// The client's reader.
    pub(super) fn of_client(most_block: usize, continuations: u32) -> Self {
        Self {
            state: ReaderState::FirstSettings,
            ..Self::of_server(most_block, continuations)
        }
    }

    /// True if the preface or a field block has begun and not ended.
    pub(super) fn is_within_head(&self) -> bool {
        self.block.is_some() || matches!(self.state, ReaderState::Preface | ReaderState::FirstSettings)
    }

    /// The error that ended the connection.
    pub(super) fn failure(&self) -> Option<ConnectionError> {
        match self.state {
            ReaderState::Failed(error) => Some(error),
            _ => None,
        }
    }

    /// Ends the connection; false if an earlier error did.
    pub(super) fn fail(&mut self, error: ConnectionError) -> bool {
        let is_first = self.failure().is_none();
        if is_first {
            self.state = ReaderState::Failed(error);
        }
        is_first
    }

    /// Takes the next frame from `input`, beginning at `taken`, and moves that to its end. `None`: more input is
    /// needed.
    #[inline]
    pub(super) fn next<'i>(
        &mut self,
        input: &'i [u8],
        taken: &mut usize,
    ) -> Result<Option<Frame<'i>>, ConnectionError> {
        if let ReaderState::Failed(error) = self.state {
            return Err(error);
        }
        if self.state == ReaderState::Preface && !self.take_preface(input, taken)? {
            return Ok(None);
        }
        while let Some(head) = FrameHead::parse(&input[*taken..]) {
            if head.length > DEFAULT_PAYLOAD {
                return Err(ConnectionError::frame_size("frame larger than SETTINGS_MAX_FRAME_SIZE"));
            }
            let start = *taken + HEAD_LENGTH;
            let Some(payload) = input.get(start..start + head.length as usize) else {
                break;
            };
            *taken = start + payload.len();
            self.check_order(head)?;
            let frame = self.frame(head, payload)?;
            if frame.is_some() {
                return Ok(frame);
            }
        }
        Ok(None)
    }

    fn take_preface(&mut self, input: &[u8], taken: &mut usize) -> Result<bool, ConnectionError> {
        let length = input.len().min(PREFACE.len());
        if input[..length] != PREFACE[..length] {
            return Err(ConnectionError::protocol("not the HTTP/2 preface"));
        }
        if length < PREFACE.len() {
            return Ok(false);
        }
        *taken = length;
        self.state = ReaderState::FirstSettings;
        Ok(true)
    }

    fn check_order(&mut self, head: FrameHead) -> Result<(), ConnectionError> {
        if let Some(block) = &self.block
            && (head.kind != FrameType::Continuation || head.stream != block.stream)
        {
            return Err(ConnectionError::protocol("another frame within a field block"));
        }
        if self.state == ReaderState::FirstSettings {
            if head.kind != FrameType::Settings || head.has(ACK) {
                return Err(ConnectionError::protocol("first frame is not SETTINGS"));
            }
            self.state = ReaderState::Open;
        }
        Ok(())
    }

    /// The frame, or `None` for a part of a field block.
    #[inline]
    fn frame<'i>(&mut self, head: FrameHead, payload: &'i [u8]) -> Result<Option<Frame<'i>>, ConnectionError> {
        let frame = match head.kind {
            FrameType::Data => Frame::Data(Data {
                stream: head.stream,
                length: head.length,
                data: head.unpadded(payload)?,
                end: head.has(END_STREAM),
            }),
            FrameType::Headers => return self.headers(head, payload),
            FrameType::Continuation => return self.continuation(head, payload),
            FrameType::WindowUpdate => window_update(head, payload)?,
            FrameType::Settings => settings(head, payload)?,
            FrameType::Ping => ping(head, payload)?,
            FrameType::ResetStream => reset(head, payload)?,
            FrameType::GoAway => go_away(head, payload)?,
            FrameType::Priority => priority(head, payload)?,
            FrameType::PushPromise => Frame::PushPromise,
            FrameType::Unknown(_) => Frame::Unknown,
        };
        Ok(Some(frame))
    }

    fn headers<'i>(&mut self, head: FrameHead, payload: &'i [u8]) -> Result<Option<Frame<'i>>, ConnectionError> {
        let (stream, end) = (head.stream, head.has(END_STREAM));
        let fragment = block::fragment(head, payload)?;
        if head.has(END_HEADERS) {
            let block = Cow::Borrowed(fragment);
            return Ok(Some(Frame::Fields { stream, end, block }));
        }
        self.block = Some(Box::new(Block::begin(stream, end, fragment)));
        Ok(None)
    }

    fn continuation<'i>(&mut self, head: FrameHead, payload: &[u8]) -> Result<Option<Frame<'i>>, ConnectionError> {
        let Some(block) = &mut self.block else {
            return Err(ConnectionError::protocol("CONTINUATION without a field block"));
        };
        block.extend(payload, self.most_block, self.continuations)?;
        let whole = self.block.take_if(|_| head.has(END_HEADERS));
        Ok(whole.map(|block| Frame::Fields {
            stream: block.stream,
            end: block.end_stream,
            block: Cow::Owned(block.bytes),
        }))
    }
}

fn window_update<'i>(head: FrameHead, payload: &[u8]) -> Result<Frame<'i>, ConnectionError> {
    let Ok(increment) = payload.try_into().map(u32::from_be_bytes) else {
        return Err(ConnectionError::frame_size("WINDOW_UPDATE is not of 4 bytes"));
    };
    // The highest bit is reserved.
    let increment = increment & MOST_STREAM;
    let stream = head.stream;
    match (stream, increment) {
        (0, 0) => Err(ConnectionError::protocol("WINDOW_UPDATE by nothing")),
        (0, _) => Ok(Frame::ConnectionWindow { increment }),
        _ => Ok(Frame::StreamWindow { stream, increment }),
    }
}

fn settings(head: FrameHead, payload: &[u8]) -> Result<Frame<'_>, ConnectionError> {
    match (head.stream, head.has(ACK)) {
        (0, false) => Ok(Frame::Settings(payload)),
        (0, true) if payload.is_empty() => Ok(Frame::SettingsAck),
        (0, true) => Err(ConnectionError::frame_size("SETTINGS acknowledgement with a payload")),
        _ => Err(ConnectionError::protocol("SETTINGS on a stream")),
    }
}

fn ping<'i>(head: FrameHead, payload: &[u8]) -> Result<Frame<'i>, ConnectionError> {
    let Ok(opaque) = payload.try_into() else {
        return Err(ConnectionError::frame_size("PING is not of 8 bytes"));
    };
    match (head.stream, head.has(ACK)) {
        (0, false) => Ok(Frame::Ping(opaque)),
        (0, true) => Ok(Frame::PingAck(opaque)),
        _ => Err(ConnectionError::protocol("PING on a stream")),
    }
}

fn reset<'i>(head: FrameHead, payload: &[u8]) -> Result<Frame<'i>, ConnectionError> {
    match payload.try_into() {
        Ok(code) => Ok(Frame::Reset {
            stream: head.stream,
            code: ErrorCode(u32::from_be_bytes(code)),
        }),
        Err(_) => Err(ConnectionError::frame_size("RST_STREAM is not of 4 bytes")),
    }
}

fn go_away<'i>(head: FrameHead, payload: &[u8]) -> Result<Frame<'i>, ConnectionError> {
    let Some(&[l0, l1, l2, l3, c0, c1, c2, c3]) = payload.first_chunk() else {
        return Err(ConnectionError::frame_size("GOAWAY is shorter than 8 bytes"));
    };
    if head.stream != 0 {
        return Err(ConnectionError::protocol("GOAWAY on a stream"));
    }
    Ok(Frame::GoAway {
        last: u32::from_be_bytes([l0, l1, l2, l3]) & MOST_STREAM,
        code: ErrorCode(u32::from_be_bytes([c0, c1, c2, c3])),
    })
}

/// Priorities are ignored (RFC 9113 §5.3.2), but their form must be right.
fn priority<'i>(head: FrameHead, payload: &[u8]) -> Result<Frame<'i>, ConnectionError> {
    let Ok(payload) = payload.try_into() else {
        return Err(ConnectionError::frame_size("PRIORITY is not of 5 bytes"));
    };
    if head.stream == 0 {
        return Err(ConnectionError::protocol("PRIORITY on the connection"));
    }
    check_dependency(head.stream, payload)?;
    Ok(Frame::Priority)
}
