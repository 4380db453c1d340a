//! A client that sends exactly the frames it is given, and sorts the server's frames by stream.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use haulier_proto::field::Fields;
use haulier_proto::h2::PREFACE;
use haulier_proto::h2::error::ErrorCode;
use haulier_proto::h2::frame::{
    self, ACK, END_HEADERS, END_STREAM, FrameHead, FrameType, HEAD_LENGTH, write_small, write_window_update,
};
use haulier_proto::h2::hpack::{decode::Decoder, encode};
use socket2::{Domain, Socket, Type};

use crate::site::Site;

/// Far longer than any response takes; only a server that hangs reaches it.
const TIMEOUT: Duration = Duration::from_secs(60);

/// One connection.
pub(crate) struct Peer {
    stream: TcpStream,
    /// Bytes read and not yet parsed.
    input: Vec<u8>,
    decoder: Decoder,
    next: u32,
    answers: HashMap<u32, Answer>,
    /// Frames that belong to no response, as received.
    pub(crate) control: Vec<Frame>,
    /// True if windows are opened again as data comes.
    reads: bool,
}

/// A frame as received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: FrameType,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    /// The code of GOAWAY.
    pub(crate) fn code(&self) -> ErrorCode {
        assert_eq!(self.kind, FrameType::GoAway);
        ErrorCode(u32::from_be_bytes(self.payload[4..8].try_into().expect("four bytes")))
    }

    /// The last stream of GOAWAY.
    pub(crate) fn last_stream(&self) -> u32 {
        assert_eq!(self.kind, FrameType::GoAway);
        u32::from_be_bytes(self.payload[..4].try_into().expect("four bytes"))
    }
}

/// The response on one stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Interim heads.
    pub(crate) interim: Vec<Vec<(String, String)>>,
    /// The fields of the head without `:status`.
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    /// The trailers.
    pub(crate) trailers: Vec<(String, String)>,
    /// END_STREAM came.
    pub(crate) complete: bool,
    /// RST_STREAM came.
    pub(crate) reset: Option<ErrorCode>,
}

impl Answer {
    /// The value of the only line of this name.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut values = self.fields.iter().filter(|(found, _)| found == name);
        let value = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "{name} stands twice in {:?}", self.fields);
        value
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a body of text")
    }

    fn is_over(&self) -> bool {
        self.complete || self.reset.is_some()
    }

    /// Checks that it is complete, with this status.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert!(self.complete && self.status == status, "not a whole {status}: {self:?}");
        self
    }
}

impl Peer {
    /// Connects and sends the preface with SETTINGS.
    pub(crate) fn connect(site: &Site) -> Self {
        Self::connect_with(site, &[])
    }

    /// Connects with these settings.
    pub(crate) fn connect_with(site: &Site, settings: &[(u16, u32)]) -> Self {
        let mut peer = Self::silent(site.address());
        peer.send(hello(settings));
        peer
    }

    /// Connects with a small receive buffer: bytes that are not read stay with the server.
    pub(crate) fn connect_narrow(site: &Site, settings: &[(u16, u32)]) -> Self {
        let address = site.address();
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).expect("a socket");
        socket.set_recv_buffer_size(64 * 1024).expect("a small buffer");
        socket.connect(&address.into()).expect("the server listens");
        let mut peer = Self::over(socket.into());
        peer.send(hello(settings));
        peer
    }

    /// Connects and sends nothing.
    pub(crate) fn silent(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).expect("the server listens"))
    }

    fn over(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(TIMEOUT)).expect("a time-out can be set");
        stream.set_write_timeout(Some(TIMEOUT)).expect("a time-out can be set");
        stream.set_nodelay(true).expect("small pieces can be sent");
        Self {
            stream,
            input: Vec::new(),
            decoder: Decoder::new(4096),
            next: 1,
            answers: HashMap::new(),
            control: Vec::new(),
            reads: true,
        }
    }

    /// Opens no windows from now on.
    pub(crate) fn stop_reading(&mut self) {
        self.reads = false;
    }

    /// Sends all bytes. If the server has closed already, its frames show that.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        if let Err(error) = self.stream.write_all(bytes.as_ref()) {
            assert!(
                matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset),
                "cannot send: {error}"
            );
        }
    }

    /// The number of the next stream.
    pub(crate) fn take_stream(&mut self) -> u32 {
        let stream = self.next;
        self.next += 2;
        stream
    }

    /// Sends a request head; without `end`, a body follows.
    pub(crate) fn request(&mut self, method: &str, path: &str, fields: &[(&str, &str)], end: bool) -> u32 {
        let stream = self.take_stream();
        self.send(head(stream, method, path, fields, end));
        stream
    }

    pub(crate) fn get(&mut self, path: &str) -> u32 {
        self.request("GET", path, &[], true)
    }

    /// GETs a path and reads the response.
    pub(crate) fn fetch(&mut self, path: &str) -> Answer {
        let stream = self.get(path);
        self.answer(stream)
    }

    /// Reads the response of a stream to its end.
    pub(crate) fn answer(&mut self, stream: u32) -> Answer {
        self.answer_until(stream, Answer::is_over)
    }

    /// Reads a response until `is_enough` holds.
    pub(crate) fn answer_until(&mut self, stream: u32, is_enough: impl Fn(&Answer) -> bool) -> Answer {
        loop {
            let answer = self.answers.entry(stream).or_default();
            if is_enough(answer) {
                return answer.clone();
            }
            let frame = self.frame();
            assert!(frame.is_some(), "closed before the answer on stream {stream}");
        }
    }

    /// The part of a response that has come so far.
    pub(crate) fn so_far(&self, stream: u32) -> Answer {
        self.answers.get(&stream).cloned().unwrap_or_default()
    }

    /// Reads until a frame of this kind comes outside of responses.
    pub(crate) fn control(&mut self, kind: FrameType) -> Frame {
        loop {
            if let Some(at) = self.control.iter().position(|frame| frame.kind == kind) {
                return self.control.remove(at);
            }
            assert!(self.frame().is_some(), "closed before {kind:?}");
        }
    }

    /// The remaining frames until the server closes.
    pub(crate) fn rest(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.frame() {
            frames.push(frame);
        }
        frames
    }

    /// Checks that the server ends the connection with this code, and closes.
    #[track_caller]
    pub(crate) fn assert_ends_with(&mut self, code: ErrorCode) {
        let goaway = self.control(FrameType::GoAway);
        assert_eq!(goaway.code(), code);
        assert!(
            self.rest().iter().all(|frame| frame.kind != FrameType::GoAway),
            "one is enough"
        );
    }

    /// Checks that the connection still serves.
    #[track_caller]
    pub(crate) fn assert_alive(&mut self) {
        self.fetch("/ten.txt").expect(200);
    }

    /// Closes the sending side.
    pub(crate) fn finish(&mut self) {
        self.stream.shutdown(Shutdown::Write).expect("our side can be closed");
    }

    /// True if a stream has no response before these bytes are sent, and has one afterwards.
    pub(crate) fn is_answered_only_after(&mut self, stream: u32, bytes: Vec<u8>) -> bool {
        self.assert_alive();
        let early = self.so_far(stream).status;
        self.send(bytes);
        early == 0 && self.answer(stream).complete
    }

    /// The next frame; `None` if the server closed instead.
    pub(crate) fn frame(&mut self) -> Option<Frame> {
        let head = loop {
            if let Some(head) = FrameHead::parse(&self.input)
                && self.input.len() >= HEAD_LENGTH + head.length as usize
            {
                break head;
            }
            if !self.receive() {
                return None;
            }
        };
        let rest = self.input.split_off(HEAD_LENGTH + head.length as usize);
        let mut bytes = std::mem::replace(&mut self.input, rest);
        let frame = Frame {
            kind: head.kind,
            flags: head.flags,
            stream: head.stream,
            payload: bytes.split_off(HEAD_LENGTH),
        };
        self.take(&frame);
        Some(frame)
    }

    fn take(&mut self, frame: &Frame) {
        match frame.kind {
            FrameType::Headers => self.take_head(frame),
            FrameType::Data => self.take_data(frame),
            FrameType::ResetStream => {
                let code = ErrorCode(u32::from_be_bytes(frame.payload[..].try_into().expect("four bytes")));
                self.answers.entry(frame.stream).or_default().reset = Some(code);
            }
            _ => self.control.push(frame.clone()),
        }
    }

    fn take_head(&mut self, frame: &Frame) {
        assert!(frame.flags & END_HEADERS != 0, "heads of these tests are short");
        let mut lines = Vec::new();
        self.decoder
            .decode(&frame.payload, |name, value| {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                lines.push((text(name), text(value)));
            })
            .expect("a sound field block");
        let answer = self.answers.entry(frame.stream).or_default();
        assert!(!answer.is_over(), "a head behind the end");
        if answer.status != 0 {
            assert!(frame.flags & END_STREAM != 0, "two heads");
            (answer.trailers, answer.complete) = (lines, true);
            return;
        }
        let (name, status) = lines.remove(0);
        assert_eq!(name, ":status");
        if status.starts_with('1') {
            answer.interim.push([vec![(name, status)], lines].concat());
        } else {
            answer.status = status.parse().expect("a number");
            answer.fields = lines;
        }
        answer.complete = frame.flags & END_STREAM != 0;
    }

    fn take_data(&mut self, frame: &Frame) {
        let answer = self.answers.entry(frame.stream).or_default();
        assert!(answer.status != 0 && !answer.is_over(), "DATA in its wrong place");
        answer.body.extend_from_slice(&frame.payload);
        answer.complete = frame.flags & END_STREAM != 0;
        if self.reads && !frame.payload.is_empty() {
            let mut updates = Vec::new();
            write_window_update(&mut updates, 0, frame.payload.len() as u32);
            if frame.flags & END_STREAM == 0 {
                write_window_update(&mut updates, frame.stream, frame.payload.len() as u32);
            }
            self.send(updates);
        }
    }

    /// Reads more bytes; false at the end.
    fn receive(&mut self) -> bool {
        let mut piece = [0; 16 * 1024];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => return false,
                Ok(length) => {
                    self.input.extend_from_slice(&piece[..length]);
                    return true;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return false,
                Err(error) => panic!("the server neither answers nor closes: {error}"),
            }
        }
    }
}

/// The preface with SETTINGS.
pub(crate) fn hello(settings: &[(u16, u32)]) -> Vec<u8> {
    let mut out = PREFACE.to_vec();
    write_small(&mut out, FrameType::Settings, 0, 0, &settings_payload(settings));
    out
}

pub(crate) fn settings_payload(settings: &[(u16, u32)]) -> Vec<u8> {
    let entry = |&(id, value): &(u16, u32)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
    settings.iter().flat_map(entry).collect()
}

/// A frame as bytes.
pub(crate) fn frame(kind: FrameType, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    write_small(&mut out, kind, flags, stream, payload);
    out
}

/// HEADERS of a request.
pub(crate) fn head(stream: u32, method: &str, path: &str, fields: &[(&str, &str)], end: bool) -> Vec<u8> {
    let flags = if end { END_HEADERS | END_STREAM } else { END_HEADERS };
    frame(FrameType::Headers, flags, stream, &block(method, path, fields))
}

/// The field block of a request.
pub(crate) fn block(method: &str, path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut lines = Fields::new();
    for (name, value) in [
        (":method", method),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", path),
    ] {
        lines.append(name, value);
    }
    for (name, value) in fields {
        lines.append(name, value);
    }
    let mut block = Vec::new();
    encode::fields(&mut block, &lines);
    block
}

pub(crate) fn data(stream: u32, bytes: &[u8], end: bool) -> Vec<u8> {
    let mut out = Vec::new();
    frame::write_data(&mut out, stream, bytes, end, frame::DEFAULT_PAYLOAD);
    out
}

pub(crate) fn reset(stream: u32) -> Vec<u8> {
    let mut out = Vec::new();
    frame::write_reset(&mut out, stream, ErrorCode::CANCEL);
    out
}

pub(crate) fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    let mut out = Vec::new();
    write_window_update(&mut out, stream, increment);
    out
}

pub(crate) fn ping(opaque: [u8; 8], flags: u8) -> Vec<u8> {
    frame(FrameType::Ping, flags, 0, &opaque)
}

/// The acknowledgement of a PING.
pub(crate) fn pong(ping: &Frame) -> Vec<u8> {
    frame(FrameType::Ping, ACK, 0, &ping.payload)
}
