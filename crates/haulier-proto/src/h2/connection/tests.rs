use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::field::Fields;
use crate::h2::PREFACE;
use crate::h2::frame::{ACK, END_HEADERS, END_STREAM, FrameHead, FrameType, HEAD_LENGTH, PADDED, PRIORITY};
use crate::h2::hpack::encode;

/// An event that keeps what it was.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    Request(u32, String, bool),
    Refused(u32, u16),
    Data(u32, Vec<u8>, bool),
    Reset(u32, ErrorCode),
    GoAway(ErrorCode),
}

impl From<ServerEvent<'_>> for Seen {
    fn from(event: ServerEvent<'_>) -> Self {
        match event {
            ServerEvent::Request { stream, head, end } => {
                let target = String::from_utf8_lossy(head.target()).into_owned();
                Self::Request(stream, target, end)
            }
            ServerEvent::Refused { stream, error } => Self::Refused(stream, error.status()),
            ServerEvent::Data { stream, data, end } => Self::Data(stream, data.to_vec(), end),
            ServerEvent::Reset { stream, code } => Self::Reset(stream, code),
            ServerEvent::GoAway { code } => Self::GoAway(code),
        }
    }
}

/// A connection whose handshake is done, and the client's pen.
struct Wire {
    connection: Connection,
    now: Instant,
}

impl Wire {
    fn new(limits: Limits) -> Self {
        let now = Instant::now();
        let mut wire = Self {
            connection: Connection::new(limits, now),
            now,
        };
        assert_eq!(wire.send(&hello(&[])), Ok(vec![]));
        wire.connection.output().clear();
        wire
    }

    fn send(&mut self, input: &[u8]) -> Result<Vec<Seen>, ConnectionError> {
        let (mut seen, mut at, mut storage) = (Vec::new(), 0, Fields::new());
        loop {
            let step = self.connection.receive(&input[at..], self.now, &mut storage)?;
            at += step.taken;
            match step.event {
                Some(event) => seen.push(event.into()),
                None => break,
            }
        }
        assert_eq!(at, input.len(), "whole frames are taken whole");
        Ok(seen)
    }

    /// The code that the last of these frames ends the connection with.
    fn fails(&mut self, input: &[u8]) -> ErrorCode {
        let error = self.send(input).expect_err("the connection ends");
        let (kind, _, payload) = self.sent().pop().expect("a last frame");
        assert_eq!(kind, FrameType::GoAway);
        assert_eq!(payload[4..8], error.code.0.to_be_bytes());
        assert_eq!(self.send(input), Err(error), "and stays ended");
        assert!(self.connection.output().is_empty(), "one GOAWAY is enough");
        error.code
    }

    /// The frames sent since the last call.
    fn sent(&mut self) -> Vec<(FrameType, u32, Vec<u8>)> {
        frames(&std::mem::take(self.connection.output()))
            .into_iter()
            .map(|(head, payload)| (head.kind, head.stream, payload))
            .collect()
    }

    fn kinds(&mut self) -> Vec<(FrameType, u32)> {
        self.sent()
            .into_iter()
            .map(|(kind, stream, _)| (kind, stream))
            .collect()
    }
}

fn frames(mut bytes: &[u8]) -> Vec<(FrameHead, Vec<u8>)> {
    let mut found = Vec::new();
    while let Some(head) = FrameHead::parse(bytes) {
        let (payload, rest) = bytes[HEAD_LENGTH..].split_at(head.length as usize);
        found.push((head, payload.to_vec()));
        bytes = rest;
    }
    assert!(bytes.is_empty(), "whole frames");
    found
}

fn frame(kind: FrameType, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::write_small(&mut out, kind, flags, stream, payload);
    out
}

fn setting(id: u16, value: u32) -> Vec<u8> {
    [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()
}

/// The preface with SETTINGS of this payload.
fn hello(settings: &[u8]) -> Vec<u8> {
    [&PREFACE[..], &frame(FrameType::Settings, 0, 0, settings)].concat()
}

fn block(method: &str, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    let pseudo = [
        (":method", method),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", path),
    ];
    for (name, value) in pseudo.iter().chain(more) {
        encode::field(&mut out, name.as_bytes(), value.as_bytes());
    }
    out
}

fn get(stream: u32) -> Vec<u8> {
    frame(
        FrameType::Headers,
        END_HEADERS | END_STREAM,
        stream,
        &block("GET", "/", &[]),
    )
}

fn post(stream: u32, more: &[(&str, &str)]) -> Vec<u8> {
    frame(FrameType::Headers, END_HEADERS, stream, &block("POST", "/", more))
}

fn data(stream: u32, bytes: &[u8], end: bool) -> Vec<u8> {
    frame(FrameType::Data, if end { END_STREAM } else { 0 }, stream, bytes)
}

fn reset(stream: u32) -> Vec<u8> {
    frame(FrameType::ResetStream, 0, stream, &[0, 0, 0, 8])
}

fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(FrameType::WindowUpdate, 0, stream, &increment.to_be_bytes())
}

const HEAD: &[u8] = &[0x88];

#[test]
fn a_connection_begins_with_our_settings_and_window() {
    let now = Instant::now();
    let mut wire = Wire {
        connection: Connection::new(Limits::default(), now),
        now,
    };
    let sent = wire.sent();
    assert_eq!((sent[0].0, sent[1].0), (FrameType::Settings, FrameType::WindowUpdate));
    assert_eq!(sent[1].2, (1024 * 1024 - 65_535u32).to_be_bytes());
    assert!(wire.connection.is_within_head());
    assert_eq!(wire.send(&hello(&[])), Ok(vec![]));
    assert!(!wire.connection.is_within_head());
    assert_eq!(wire.kinds(), [(FrameType::Settings, 0)], "the acknowledgement");
}

#[test]
fn whatever_is_not_the_preface_ends_the_connection() {
    for input in [&b"GET / HTTP/1.1\r\n"[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\r", b"\0"] {
        let mut connection = Connection::new(Limits::default(), Instant::now());
        let error = connection
            .receive(input, Instant::now(), &mut Fields::new())
            .expect_err("no preface");
        assert_eq!(error.code, ErrorCode::PROTOCOL_ERROR);
    }
    for first in [
        frame(FrameType::Ping, 0, 0, &[0; 8]),
        frame(FrameType::Settings, ACK, 0, &[]),
        get(1),
    ] {
        let mut connection = Connection::new(Limits::default(), Instant::now());
        let input = [&PREFACE[..], &first].concat();
        assert!(connection.receive(&input, Instant::now(), &mut Fields::new()).is_err());
    }
}

#[test]
fn answers_of_one_turn_lie_in_one_buffer() {
    let mut wire = Wire::new(Limits::default());
    let input: Vec<u8> = [1, 3, 5].into_iter().flat_map(get).collect();
    let seen = wire.send(&input).expect("requests");
    assert_eq!(
        seen,
        [1, 3, 5].map(|stream| Seen::Request(stream, "/".to_owned(), true))
    );
    for stream in [5, 1, 3] {
        assert_eq!(wire.connection.respond(stream, HEAD, b"hello"), Some(5));
    }
    let kinds: Vec<_> = [5, 1, 3]
        .into_iter()
        .flat_map(|id| [(FrameType::Headers, id), (FrameType::Data, id)])
        .collect();
    assert_eq!(wire.kinds(), kinds);
    assert_eq!(wire.connection.open_streams(), 0);
    assert_eq!(wire.connection.respond(1, HEAD, b"again"), None, "it has ended");
}

#[test]
fn a_head_without_a_body_ends_the_stream_itself() {
    let mut wire = Wire::new(Limits::default());
    wire.send(&get(1)).expect("a request");
    assert_eq!(wire.connection.respond(1, HEAD, b""), Some(0));
    let out = std::mem::take(wire.connection.output());
    assert_eq!(frames(&out)[0].0.flags, END_HEADERS | END_STREAM);
}

#[test]
fn interim_head_body_and_trailers_follow_each_other() {
    let mut wire = Wire::new(Limits::default());
    wire.send(&get(1)).expect("a request");
    let mut hints = Vec::new();
    encode::status(&mut hints, 103);
    assert!(wire.connection.send_head(1, &hints, false));
    assert!(wire.connection.send_head(1, HEAD, false));
    assert_eq!(wire.connection.send_data(1, b"abc", false), Some(3));
    assert!(wire.connection.send_head(1, b"\0\x01a\x01b", true));
    assert!(!wire.connection.send_head(1, HEAD, false));
    assert_eq!(
        wire.kinds().iter().map(|(kind, _)| *kind).collect::<Vec<_>>(),
        [
            FrameType::Headers,
            FrameType::Headers,
            FrameType::Data,
            FrameType::Headers
        ]
    );
}

#[test]
fn a_body_waits_for_both_windows_and_takes_turns() {
    let mut wire = Wire::new(Limits::default());
    wire.send(&[get(1), get(3)].concat()).expect("requests");
    let body = vec![b'x'; 100_000];
    assert_eq!(wire.connection.respond(1, HEAD, &body), Some(65_535));
    assert_eq!(
        wire.connection.respond(3, HEAD, &body),
        Some(0),
        "the connection's window is used up"
    );
    assert_eq!(wire.connection.next_writable(), None);
    wire.send(&window_update(0, 50_000)).expect("room");
    assert_eq!(
        wire.connection.next_writable(),
        Some(3),
        "stream 1 has no window of its own"
    );
    assert_eq!(wire.connection.send_data(3, &body, true), Some(50_000));
    wire.send(&[window_update(0, 200_000), window_update(1, 100_000)].concat())
        .expect("room");
    assert_eq!(wire.connection.next_writable(), Some(1));
    assert_eq!(wire.connection.room(3), 15_535);
    assert_eq!(wire.connection.send_data(1, &body[65_535..], true), Some(34_465));
    assert_eq!(wire.connection.next_writable(), Some(3));
    assert_eq!(wire.connection.send_data(3, &body[50_000..], true), Some(15_535));
    assert_eq!(wire.connection.next_writable(), None);
    wire.send(&window_update(3, 40_000)).expect("room");
    assert_eq!(wire.connection.next_writable(), Some(3));
    assert_eq!(wire.connection.send_data(3, &body[65_535..], true), Some(34_465));
    assert_eq!(wire.connection.open_streams(), 0);
    let sum = |id: u32, sent: &[(FrameType, u32, Vec<u8>)]| -> usize {
        let of = |(kind, stream, payload): &(FrameType, u32, Vec<u8>)| {
            if (*kind, *stream) == (FrameType::Data, id) {
                payload.len()
            } else {
                0
            }
        };
        sent.iter().map(of).sum()
    };
    let sent = wire.sent();
    assert_eq!((sum(1, &sent), sum(3, &sent)), (100_000, 100_000));
    assert!(sent.iter().all(|(_, _, payload)| payload.len() <= 16_384));
}

#[test]
fn settings_move_the_windows_of_open_streams() {
    let mut wire = Wire::new(Limits::default());
    wire.send(&get(1)).expect("a request");
    wire.send(&frame(FrameType::Settings, 0, 0, &setting(4, 10)))
        .expect("settings");
    assert_eq!(wire.connection.respond(1, HEAD, &[0; 100]), Some(10));
    wire.send(&frame(FrameType::Settings, 0, 0, &setting(4, 5)))
        .expect("settings");
    assert_eq!(wire.connection.room(1), 0, "five below zero");
    wire.send(&window_update(1, 7)).expect("room");
    assert_eq!(wire.connection.room(1), 2);
    wire.send(&window_update(1, 0x7fff_ffff - 10)).expect("room");
    assert_eq!(
        wire.fails(&frame(FrameType::Settings, 0, 0, &setting(4, 0x7fff_ffff))),
        ErrorCode::FLOW_CONTROL_ERROR
    );
}

#[test]
fn a_client_with_a_smaller_table_is_told_that_ours_is_empty() {
    let mut wire = Wire::new(Limits::default());
    wire.send(&[frame(FrameType::Settings, 0, 0, &setting(1, 100)), get(1), get(3)].concat())
        .expect("requests");
    wire.sent();
    wire.connection.respond(1, HEAD, b"");
    wire.connection.respond(3, HEAD, b"");
    let payloads: Vec<_> = wire.sent().into_iter().map(|(_, _, payload)| payload).collect();
    assert_eq!(payloads, [vec![0x20, 0x88], vec![0x88]]);
}

#[test]
fn a_request_body_is_given_as_it_comes_and_its_window_given_back() {
    let mut wire = Wire::new(Limits::default());
    wire.send(&post(1, &[])).expect("a request");
    let piece = vec![b'b'; 16_384];
    for _ in 0..4 {
        assert_eq!(
            wire.send(&data(1, &piece, false)),
            Ok(vec![Seen::Data(1, piece.clone(), false)])
        );
    }
    assert!(wire.sent().is_empty(), "nothing was used up yet");
    wire.connection.consume(1, 16_384);
    assert!(wire.sent().is_empty(), "not worth a frame");
    wire.connection.consume(1, 16_384);
    assert_eq!(
        wire.sent(),
        [(FrameType::WindowUpdate, 1, 32_768u32.to_be_bytes().to_vec())]
    );
    wire.send(&[data(1, &piece, false), data(1, &piece, false)].concat())
        .expect("its window");
    assert_eq!(
        wire.send(&data(1, b"x", false)),
        Ok(vec![Seen::Reset(1, ErrorCode::FLOW_CONTROL_ERROR)])
    );
}

#[test]
fn uploads_together_are_bounded_by_the_connection_window() {
    let limits = Limits {
        connection_window: 100_000,
        ..Limits::default()
    };
    let mut wire = Wire::new(limits);
    let piece = vec![b'b'; 16_000];
    for stream in [1, 3, 5, 7, 9, 11] {
        wire.send(&[post(stream, &[]), data(stream, &piece, false)].concat())
            .expect("within the window");
    }
    assert_eq!(
        wire.fails(&[post(13, &[]), data(13, &piece, false)].concat()),
        ErrorCode::FLOW_CONTROL_ERROR
    );
}

#[test]
fn what_an_ended_stream_held_goes_back_to_the_connection() {
    let mut wire = Wire::new(Limits {
        connection_window: 65_535,
        ..Limits::default()
    });
    for stream in (1..100).step_by(2) {
        wire.send(&[post(stream, &[]), data(stream, &[0; 16_000], false)].concat())
            .expect("room again");
        match stream % 3 {
            0 => drop(wire.send(&reset(stream))),
            1 => drop(wire.connection.respond(stream, HEAD, b"no need")),
            _ => wire.connection.reset(stream, ErrorCode::CANCEL),
        }
        wire.connection.consume(stream, 16_000);
        // Frames that were under way when we reset the stream are no fault.
        if stream % 3 != 0 {
            assert_eq!(wire.send(&data(stream, &[0; 100], true)), Ok(vec![]));
        }
    }
}

#[test]
fn padding_is_not_data_and_costs_no_window_for_long() {
    let mut wire = Wire::new(Limits {
        control_frames: 1_000_000,
        ..Limits::default()
    });
    wire.send(&post(1, &[])).expect("a request");
    let padded = frame(FrameType::Data, PADDED, 1, &[&[255][..], b"abc", &[0; 255]].concat());
    for _ in 0..10_000 {
        assert_eq!(wire.send(&padded), Ok(vec![Seen::Data(1, b"abc".to_vec(), false)]));
        wire.connection.consume(1, 3);
    }
}

#[test]
fn a_body_shorter_or_longer_than_it_said_resets_the_stream() {
    let length = [("content-length", "5")];
    for (frames, code) in [
        (
            [post(1, &length), data(1, b"1234", true)].concat(),
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            [post(1, &length), data(1, b"123456", false)].concat(),
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            [post(1, &length), data(1, b"1234", false), data(1, b"56", true)].concat(),
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            [
                post(1, &length),
                frame(FrameType::Headers, END_HEADERS | END_STREAM, 1, &[]),
            ]
            .concat(),
            ErrorCode::PROTOCOL_ERROR,
        ),
    ] {
        let mut wire = Wire::new(Limits::default());
        let seen = wire.send(&frames).expect("a stream error");
        assert_eq!(seen.last(), Some(&Seen::Reset(1, code)));
        assert_eq!(
            wire.sent().pop(),
            Some((FrameType::ResetStream, 1, code.0.to_be_bytes().to_vec()))
        );
    }
    let mut wire = Wire::new(Limits::default());
    let seen = wire.send(&[post(1, &length), data(1, b"123", false), data(1, b"45", true)].concat());
    assert_eq!(seen.expect("five bytes").len(), 3);
    let mut whole = block("GET", "/", &[("content-length", "5")]);
    assert_eq!(
        wire.send(&frame(FrameType::Headers, END_HEADERS | END_STREAM, 3, &whole)),
        Ok(vec![])
    );
    assert_eq!(
        wire.kinds(),
        [(FrameType::ResetStream, 3)],
        "the driver never heard of it"
    );
    whole = block("GET", "/", &[("content-length", "0")]);
    assert_eq!(
        wire.send(&frame(FrameType::Headers, END_HEADERS | END_STREAM, 5, &whole))
            .map(|seen| seen.len()),
        Ok(1)
    );
}

#[test]
fn trailers_end_the_body_and_are_dropped() {
    let mut wire = Wire::new(Limits::default());
    let trailers = |id, flags, block: &[u8]| frame(FrameType::Headers, END_HEADERS | flags, id, block);
    let seen = wire.send(&[post(1, &[]), trailers(1, END_STREAM, b"\0\x01a\x01b")].concat());
    assert_eq!(seen.expect("trailers")[1], Seen::Data(1, vec![], true));
    for (id, flags, block) in [
        (3, END_STREAM, &b"\x82"[..]),
        (5, 0, b"\0\x01a\x01b"),
        (7, END_STREAM, b"\0\x01A\x01b"),
    ] {
        let seen = wire
            .send(&[post(id, &[]), trailers(id, flags, block)].concat())
            .expect("a stream error");
        assert_eq!(seen[1], Seen::Reset(id, ErrorCode::PROTOCOL_ERROR));
    }
}

#[test]
fn a_malformed_request_costs_its_stream_alone() {
    let mut wire = Wire::new(Limits::default());
    let bad = block("GET", "/", &[("te", "gzip")]);
    let input = [frame(FrameType::Headers, END_HEADERS | END_STREAM, 1, &bad), get(3)].concat();
    assert_eq!(wire.send(&input), Ok(vec![Seen::Request(3, "/".to_owned(), true)]));
    assert_eq!(wire.kinds(), [(FrameType::ResetStream, 1)]);
}

#[test]
fn a_request_that_is_too_large_can_be_answered() {
    let mut wire = Wire::new(Limits::default());
    let long = "a".repeat(20_000);
    let large = block("GET", "/", &[("x", &long), ("y", &long)]);
    let mut input = Vec::new();
    frame::write_headers(&mut input, 1, &large, true, 16_384);
    assert_eq!(wire.send(&input), Ok(vec![Seen::Refused(1, 431)]));
    assert_eq!(wire.connection.respond(1, HEAD, b"too large"), Some(9));
    assert_eq!(
        wire.send(&get(3)).map(|seen| seen.len()),
        Ok(1),
        "the table is still right"
    );
}

/// Every frame that breaks the protocol for the whole connection, after a request on stream 1 and one on stream 3.
#[test]
fn connection_errors_have_the_codes_of_the_rfc() {
    use ErrorCode as Code;
    let headers = |flags, id, payload: &[u8]| frame(FrameType::Headers, flags, id, payload);
    for (name, input, code) in [
        ("data on stream 0", data(0, b"x", false), Code::PROTOCOL_ERROR),
        ("data on an idle stream", data(9, b"x", false), Code::PROTOCOL_ERROR),
        ("headers on stream 0", get(0), Code::PROTOCOL_ERROR),
        ("headers on an even stream", get(2), Code::PROTOCOL_ERROR),
        ("a skipped number", [get(9), get(5)].concat(), Code::PROTOCOL_ERROR),
        (
            "headers after the end",
            [reset(3), get(3)].concat(),
            Code::STREAM_CLOSED,
        ),
        (
            "bad padding",
            headers(PADDED | END_HEADERS, 5, &[9, 1]),
            Code::PROTOCOL_ERROR,
        ),
        (
            "no padding length",
            frame(FrameType::Data, PADDED, 1, &[]),
            Code::FRAME_SIZE_ERROR,
        ),
        (
            "short priority",
            headers(PRIORITY | END_HEADERS, 5, &[0; 4]),
            Code::FRAME_SIZE_ERROR,
        ),
        (
            "own dependency",
            headers(PRIORITY | END_HEADERS, 5, &[0, 0, 0, 5, 1]),
            Code::PROTOCOL_ERROR,
        ),
        ("bad block", headers(END_HEADERS, 5, &[0x80]), Code::COMPRESSION_ERROR),
        (
            "continuation alone",
            frame(FrameType::Continuation, 0, 1, &[]),
            Code::PROTOCOL_ERROR,
        ),
        (
            "data within a block",
            [headers(0, 5, &[]), data(1, b"x", false)].concat(),
            Code::PROTOCOL_ERROR,
        ),
        (
            "an unknown frame within",
            [headers(0, 5, &[]), frame(FrameType::Unknown(99), 0, 5, &[])].concat(),
            Code::PROTOCOL_ERROR,
        ),
        (
            "another stream's block",
            [headers(0, 5, &[]), frame(FrameType::Continuation, 0, 7, &[])].concat(),
            Code::PROTOCOL_ERROR,
        ),
        (
            "priority of 4",
            frame(FrameType::Priority, 0, 1, &[0; 4]),
            Code::FRAME_SIZE_ERROR,
        ),
        (
            "priority on 0",
            frame(FrameType::Priority, 0, 0, &[0; 5]),
            Code::PROTOCOL_ERROR,
        ),
        (
            "priority on itself",
            frame(FrameType::Priority, 0, 7, &[0, 0, 0, 7, 0]),
            Code::PROTOCOL_ERROR,
        ),
        ("reset on 0", reset(0), Code::PROTOCOL_ERROR),
        ("reset of an idle stream", reset(9), Code::PROTOCOL_ERROR),
        (
            "reset of 3",
            frame(FrameType::ResetStream, 0, 1, &[0; 3]),
            Code::FRAME_SIZE_ERROR,
        ),
        (
            "settings on a stream",
            frame(FrameType::Settings, 0, 1, &[]),
            Code::PROTOCOL_ERROR,
        ),
        (
            "settings of 5",
            frame(FrameType::Settings, 0, 0, &[0; 5]),
            Code::FRAME_SIZE_ERROR,
        ),
        (
            "full acknowledgement",
            frame(FrameType::Settings, ACK, 0, &[0; 6]),
            Code::FRAME_SIZE_ERROR,
        ),
        (
            "a push",
            frame(FrameType::PushPromise, 0, 1, &[0; 8]),
            Code::PROTOCOL_ERROR,
        ),
        (
            "ping of 7",
            frame(FrameType::Ping, 0, 0, &[0; 7]),
            Code::FRAME_SIZE_ERROR,
        ),
        (
            "ping on a stream",
            frame(FrameType::Ping, 0, 1, &[0; 8]),
            Code::PROTOCOL_ERROR,
        ),
        (
            "goaway of 7",
            frame(FrameType::GoAway, 0, 0, &[0; 7]),
            Code::FRAME_SIZE_ERROR,
        ),
        (
            "goaway on a stream",
            frame(FrameType::GoAway, 0, 1, &[0; 8]),
            Code::PROTOCOL_ERROR,
        ),
        (
            "window of 3",
            frame(FrameType::WindowUpdate, 0, 0, &[0; 3]),
            Code::FRAME_SIZE_ERROR,
        ),
        ("window by nothing", window_update(0, 0), Code::PROTOCOL_ERROR),
        ("window of an idle stream", window_update(9, 1), Code::PROTOCOL_ERROR),
        (
            "window overflow",
            window_update(0, 0x7fff_ffff),
            Code::FLOW_CONTROL_ERROR,
        ),
        (
            "a frame too large",
            frame(FrameType::Data, 0, 1, &[0; 16_385]),
            Code::FRAME_SIZE_ERROR,
        ),
    ] {
        let mut wire = Wire::new(Limits::default());
        wire.send(&[post(1, &[]), get(3)].concat()).expect("requests");
        assert_eq!(wire.fails(&input), code, "{name}");
    }
}

#[test]
fn stream_errors_reset_their_stream_and_nothing_else() {
    use ErrorCode as Code;
    for (name, input, code) in [
        ("data after the end", data(3, b"x", false), Code::STREAM_CLOSED),
        ("headers after the end", get(3), Code::STREAM_CLOSED),
        ("window by nothing", window_update(3, 0), Code::PROTOCOL_ERROR),
        (
            "window overflow",
            window_update(3, 0x7fff_ffff),
            Code::FLOW_CONTROL_ERROR,
        ),
        (
            "beyond the window",
            [data(3, &[0; 16_384], false).repeat(4), data(3, b"x", false)].concat(),
            Code::STREAM_CLOSED,
        ),
    ] {
        let mut wire = Wire::new(Limits::default());
        wire.send(&[post(1, &[]), get(3)].concat()).expect("requests");
        let seen = wire.send(&input).expect("a stream error");
        assert_eq!(seen, [Seen::Reset(3, code)], "{name}");
        assert_eq!(wire.connection.respond(3, HEAD, b"x"), None);
        assert_eq!(wire.connection.respond(1, HEAD, b"x"), Some(1));
    }
}

#[test]
fn what_is_unknown_or_late_is_ignored() {
    let mut wire = Wire::new(Limits::default());
    wire.send(&get(1)).expect("a request");
    wire.connection.respond(1, HEAD, b"x");
    wire.sent();
    let late = [
        window_update(1, 5),
        reset(1),
        frame(FrameType::Priority, 0, 1, &[0; 5]),
        frame(FrameType::Priority, 0, 99, &[0; 5]),
        frame(FrameType::Unknown(0xfe), 0xff, 77, b"anything"),
        frame(FrameType::Settings, ACK, 0, &[]),
        frame(FrameType::Ping, ACK, 0, &[1; 8]),
    ];
    assert_eq!(wire.send(&late.concat()), Ok(vec![]));
    assert!(wire.connection.output().is_empty());
    wire.send(&frame(FrameType::Ping, 0, 0, b"12345678")).expect("a ping");
    assert_eq!(wire.sent(), [(FrameType::Ping, 0, b"12345678".to_vec())]);
    let seen = wire.send(&frame(FrameType::GoAway, 0, 0, &[0, 0, 0, 0, 0, 0, 0, 2]));
    assert_eq!(seen, Ok(vec![Seen::GoAway(ErrorCode::INTERNAL_ERROR)]));
}

#[test]
fn one_stream_more_than_allowed_is_refused() {
    let mut wire = Wire::new(Limits {
        streams: 2,
        ..Limits::default()
    });
    let seen = wire.send(&[get(1), get(3), get(5)].concat()).expect("requests");
    assert_eq!(seen.len(), 2);
    assert_eq!(
        wire.sent(),
        [(
            FrameType::ResetStream,
            5,
            ErrorCode::REFUSED_STREAM.0.to_be_bytes().to_vec()
        )]
    );
    wire.connection.respond(1, HEAD, b"x");
    assert_eq!(wire.send(&get(7)).map(|seen| seen.len()), Ok(1));
}

#[test]
fn a_shutdown_answers_what_is_open_and_refuses_the_rest() {
    let mut wire = Wire::new(Limits::default());
    wire.send(&get(1)).expect("a request");
    wire.connection.announce_shutdown();
    wire.connection.announce_shutdown();
    let announced = (FrameType::GoAway, 0, vec![0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    assert_eq!(wire.sent(), [announced, (FrameType::Ping, 0, LAST_PING.to_vec())]);
    wire.send(&get(3)).expect("it was under way");
    wire.send(&frame(FrameType::Ping, ACK, 0, b"whatever"))
        .expect("not the answer");
    assert_eq!(wire.sent(), []);
    wire.send(&frame(FrameType::Ping, ACK, 0, &LAST_PING))
        .expect("the answer");
    assert_eq!(wire.sent(), [(FrameType::GoAway, 0, vec![0, 0, 0, 3, 0, 0, 0, 0])]);
    assert_eq!(wire.send(&get(5)), Ok(vec![]));
    assert_eq!(wire.kinds(), [(FrameType::ResetStream, 5)]);
    assert!(!wire.connection.is_finished());
    wire.connection.respond(3, HEAD, b"x");
    wire.connection.respond(1, HEAD, b"x");
    assert!(wire.connection.is_finished());
}

#[test]
fn an_answer_to_no_ping_of_ours_ends_nothing() {
    let mut wire = Wire::new(Limits::default());
    wire.send(&frame(FrameType::Ping, ACK, 0, &LAST_PING)).expect("ignored");
    assert_eq!(wire.sent(), []);
    wire.connection.shut_down();
    wire.connection.announce_shutdown();
    assert_eq!(wire.kinds(), [(FrameType::GoAway, 0)], "the last word was said");
    assert!(wire.connection.is_finished());
}

#[test]
fn a_frame_filled_in_place_is_like_one_that_was_copied() {
    let mut wire = Wire::new(Limits::default());
    wire.send(&[get(1), get(3)].concat()).expect("requests");
    wire.connection.send_head(1, HEAD, false);
    wire.sent();
    let most = frame::DEFAULT_PAYLOAD as usize;
    let filled = wire.connection.send_frame(1, 20_000, true, |place| {
        assert_eq!(place.len(), most, "one frame");
        place.fill(7);
        Ok::<_, ()>(100)
    });
    assert_eq!(filled, Ok(Some(100)), "a short one");
    assert_eq!(wire.sent(), [(FrameType::Data, 1, vec![7; 100])]);
    assert_eq!(wire.connection.next_writable(), Some(1), "there is more");
    assert_eq!(
        wire.connection.send_frame(1, 19_900, true, |_| Err("broken")),
        Err("broken")
    );
    assert_eq!(
        wire.connection.send_frame(1, 19_900, true, |_| Ok::<_, ()>(0)),
        Ok(Some(0))
    );
    assert!(wire.connection.output().is_empty());
    let piece = wire
        .connection
        .send_frame(1, 3, false, |place| Ok::<_, ()>(place.len()));
    assert_eq!((piece, wire.connection.next_writable()), (Ok(Some(3)), Some(1)));
    assert_eq!(
        frames(&std::mem::take(wire.connection.output()))[0].0.flags,
        0,
        "more will follow"
    );
    assert_eq!(wire.connection.next_writable(), None, "but is not at hand");
    let last = wire.connection.send_frame(1, 5, true, |place| {
        place.copy_from_slice(b"hello");
        Ok::<_, ()>(5)
    });
    assert_eq!(last, Ok(Some(5)));
    let out = std::mem::take(wire.connection.output());
    assert_eq!(frames(&out)[0].0.flags, END_STREAM);
    assert_eq!(wire.connection.open_streams(), 1);
    assert_eq!(
        wire.connection.send_frame(1, 1, true, |_| Ok::<_, ()>(1)),
        Ok(None),
        "it is gone"
    );
}

#[test]
fn a_frame_is_not_asked_for_without_a_window() {
    let mut wire = Wire::new(Limits::default());
    wire.send(&[frame(FrameType::Settings, 0, 0, &setting(4, 3)), get(1)].concat())
        .expect("a request");
    let fill = |place: &mut [u8]| Ok::<_, ()>(place.len());
    assert_eq!(wire.connection.stalled_since(), None);
    assert_eq!(wire.connection.send_frame(1, 10, true, fill), Ok(Some(3)));
    assert_eq!(wire.connection.stalled_since(), Some(wire.now));
    let none = wire
        .connection
        .send_frame(1, 7, true, |_| -> Result<usize, ()> { panic!("no room") });
    assert_eq!(none, Ok(Some(0)));
    assert_eq!(wire.connection.next_writable(), None);
    wire.send(&window_update(1, 7)).expect("room");
    assert_eq!(wire.connection.stalled_since(), None, "it may send again");
    assert_eq!(wire.connection.send_frame(1, 7, true, fill), Ok(Some(7)));
    assert_eq!(wire.connection.open_streams(), 0);
}

#[test]
fn an_answer_that_never_had_a_window_is_given_up_too() {
    let mut wire = Wire::new(Limits::default());
    wire.send(&[frame(FrameType::Settings, 0, 0, &setting(4, 0)), get(1)].concat())
        .expect("a request");
    wire.connection.send_head(1, HEAD, false);
    wire.connection.queue(1);
    assert_eq!(wire.connection.next_writable(), None);
    assert_eq!(wire.connection.stalled_since(), Some(wire.now));
    assert_eq!(wire.connection.reset_stalled(wire.now + Duration::from_secs(29)), None);
    assert_eq!(
        wire.connection.reset_stalled(wire.now + Duration::from_secs(30)),
        Some(1)
    );
}

#[test]
fn who_waits_for_the_connections_window_alone_is_no_worse_off_than_the_others() {
    let mut wire = Wire::new(Limits::default());
    wire.send(&[frame(FrameType::Settings, 0, 0, &setting(4, 1 << 20)), get(1), get(3)].concat())
        .expect("requests");
    let body = vec![0; 200_000];
    for stream in [1, 3] {
        wire.connection.send_head(stream, HEAD, false);
        wire.connection.queue(stream);
    }
    assert_eq!(wire.connection.send_data(1, &body, true), Some(65_535));
    let later = wire.now + Duration::from_secs(25);
    wire.connection.set_time(later);
    wire.send(&window_update(0, 1000)).expect("room");
    wire.connection.set_time(later);
    assert_eq!(wire.connection.send_data(1, &body, true), Some(1000));
    let then = wire.now + Duration::from_secs(31);
    assert_eq!(wire.connection.reset_stalled(then), None, "the connection moved");
    assert_eq!(wire.connection.stalled_since(), Some(later));
    assert_eq!(wire.connection.reset_stalled(then + Duration::from_secs(25)), Some(1));
}

#[test]
fn a_stream_that_waits_too_long_for_its_window_is_given_up() {
    let mut wire = Wire::new(Limits::default());
    wire.send(
        &[
            frame(FrameType::Settings, 0, 0, &setting(4, 10)),
            get(1),
            get(3),
            get(5),
        ]
        .concat(),
    )
    .expect("requests");
    wire.connection.respond(1, HEAD, &[0; 20]);
    wire.connection.respond(3, HEAD, &[0; 20]);
    wire.connection.send_head(5, HEAD, false);
    let late = wire.now + Duration::from_secs(31);
    assert_eq!(wire.connection.reset_stalled(wire.now + Duration::from_secs(29)), None);
    wire.send(&window_update(3, 1)).expect("room");
    assert_eq!(
        wire.connection.reset_stalled(late),
        Some(1),
        "3 may send, 5 has nothing to send"
    );
    assert_eq!(wire.connection.reset_stalled(late), None);
    assert_eq!(
        wire.sent().pop(),
        Some((FrameType::ResetStream, 1, ErrorCode::CANCEL.0.to_be_bytes().to_vec()))
    );
}

mod floods {
    use super::*;

    /// The number of times that these frames, made anew for each odd number, are taken before the connection ends.
    fn times(limits: Limits, mut make: impl FnMut(u32) -> Vec<u8>) -> (usize, ErrorCode) {
        let mut wire = Wire::new(limits);
        for count in 0..100_000u32 {
            match wire.send(&make(count * 2 + 1)) {
                Ok(_) => wire.connection.output().clear(),
                Err(error) => return (count as usize, error.code),
            }
        }
        panic!("it never ended");
    }

    #[test]
    fn rapid_reset_ends_at_its_limit() {
        let found = times(Limits::default(), |id| [get(id), reset(id)].concat());
        assert_eq!(found, (200, ErrorCode::ENHANCE_YOUR_CALM));
    }

    #[test]
    fn resets_spread_over_minutes_are_allowed() {
        let mut wire = Wire::new(Limits::default());
        for id in (1..4000).step_by(2) {
            wire.now += Duration::from_millis(310);
            assert!(wire.send(&[get(id), reset(id)].concat()).is_ok());
        }
    }

    #[test]
    fn making_us_reset_counts_like_resetting() {
        type Make = fn(u32) -> Vec<u8>;
        let makes: [Make; 5] = [
            |id| [get(id), window_update(id, 0)].concat(),
            |id| [get(id), window_update(id, 0x7fff_ffff)].concat(),
            |id| [get(id), data(id, b"x", false)].concat(),
            |id| [get(id), get(id)].concat(),
            |id| {
                frame(
                    FrameType::Headers,
                    END_HEADERS | END_STREAM,
                    id,
                    &block("GET", "bad", &[]),
                )
            },
        ];
        for make in makes {
            assert_eq!(times(Limits::default(), make), (200, ErrorCode::ENHANCE_YOUR_CALM));
        }
    }

    #[test]
    fn streams_beyond_their_number_count_too() {
        let found = times(Limits::default(), get);
        assert_eq!(found, (300, ErrorCode::ENHANCE_YOUR_CALM));
    }

    #[test]
    fn frames_that_carry_nothing_end_at_their_limit() {
        type Make = fn(u32) -> Vec<u8>;
        let makes: [(Make, usize); 6] = [
            (|_| frame(FrameType::Ping, 0, 0, &[0; 8]), 999),
            (|_| frame(FrameType::Settings, 0, 0, &[]), 999),
            (|_| frame(FrameType::Settings, ACK, 0, &[]), 999),
            (|_| frame(FrameType::Priority, 0, 1, &[0; 5]), 999),
            (|_| frame(FrameType::Unknown(77), 0, 0, &[0; 100]), 999),
            (|_| window_update(0, 1), 999 + FIRST_UPDATES as usize),
        ];
        for (make, count) in makes {
            // The handshake was the first.
            assert_eq!(times(Limits::default(), make), (count, ErrorCode::ENHANCE_YOUR_CALM));
        }
    }

    #[test]
    fn empty_data_ends_at_its_limit_padded_or_not() {
        for (flags, payload) in [(0, &[][..]), (PADDED, &[3, 0, 0, 0])] {
            let mut wire = Wire::new(Limits::default());
            wire.send(&post(1, &[])).expect("a request");
            let empty = frame(FrameType::Data, flags, 1, payload);
            let count = (0..).take_while(|_| wire.send(&empty).is_ok()).count();
            assert_eq!(count, 999);
        }
    }

    #[test]
    fn windows_opened_for_what_we_send_are_no_flood() {
        let mut wire = Wire::new(Limits {
            control_frames: 10,
            ..Limits::default()
        });
        wire.send(&[get(1), window_update(1, 0x7000_0000), window_update(0, 0x7000_0000)].concat())
            .expect("room");
        wire.connection.send_head(1, HEAD, false);
        for _ in 0..10_000 {
            assert_eq!(wire.connection.send_data(1, &[0; 16_384], false), Some(16_384));
            assert_eq!(
                wire.send(&[window_update(0, 16_384), window_update(1, 16_384)].concat()),
                Ok(vec![])
            );
            wire.connection.output().clear();
        }
    }

    #[test]
    fn continuation_ends_at_its_limit_and_holds_little() {
        let mut wire = Wire::new(Limits::default());
        wire.send(&frame(FrameType::Headers, END_STREAM, 1, &[]))
            .expect("a beginning");
        assert!(wire.connection.is_within_head());
        let next = frame(FrameType::Continuation, 0, 1, &[]);
        assert_eq!((0..).take_while(|_| wire.send(&next).is_ok()).count(), 8);
        let mut wire = Wire::new(Limits {
            continuations: 1000,
            ..Limits::default()
        });
        wire.send(&frame(FrameType::Headers, END_STREAM, 1, &[0; 16_384]))
            .expect("a beginning");
        let next = frame(FrameType::Continuation, 0, 1, &[0; 16_384]);
        assert_eq!((0..).take_while(|_| wire.send(&next).is_ok()).count(), 3, "64 KiB");
    }

    /// CVE-2016-6581 and CVE-2026-49975: a large entry, then one byte for each time it is meant.
    #[test]
    fn a_bomb_of_references_is_answered_by_431_and_held_by_nobody() {
        let mut wire = Wire::new(Limits::default());
        let mut first = block("GET", "/", &[]);
        first.extend_from_slice(b"\x40\x01a\x7f\xa1\x1e");
        first.extend_from_slice(&[b'x'; 4000]);
        wire.send(&frame(FrameType::Headers, END_HEADERS | END_STREAM, 1, &first))
            .expect("a request");
        let mut bomb = block("GET", "/", &[]);
        bomb.extend_from_slice(&[0xbe; 16_000]);
        for id in (3..180).step_by(2) {
            let seen = wire
                .send(&frame(FrameType::Headers, END_HEADERS | END_STREAM, id, &bomb))
                .expect("an event");
            assert_eq!(seen, [Seen::Refused(id, 431)]);
        }
        assert!(
            wire.connection.heads < 10_000,
            "refused heads are not kept: {}",
            wire.connection.heads
        );
    }

    #[test]
    fn trailers_are_no_way_around_the_limits() {
        let mut wire = Wire::new(Limits::default());
        let mut bomb = b"\x40\x01a\x7f\xa1\x1e".to_vec();
        bomb.extend_from_slice(&[b'x'; 4000]);
        bomb.extend_from_slice(&[0xbe; 9]);
        let seen = wire.send(
            &[
                post(1, &[]),
                frame(FrameType::Headers, END_HEADERS | END_STREAM, 1, &bomb),
            ]
            .concat(),
        );
        assert_eq!(
            seen.expect("a stream error")[1],
            Seen::Reset(1, ErrorCode::PROTOCOL_ERROR)
        );
        bomb.truncate(bomb.len() - 3);
        let seen = wire.send(
            &[
                post(3, &[]),
                frame(FrameType::Headers, END_HEADERS | END_STREAM, 3, &bomb),
            ]
            .concat(),
        );
        assert_eq!(seen.expect("seven lines of 4 KB")[1], Seen::Data(3, vec![], true));
    }

    #[test]
    fn pieces_of_a_cookie_are_no_way_around_the_limits() {
        let mut wire = Wire::new(Limits::default());
        let mut crumbs = block("GET", "/", &[]);
        // Literal with incremental indexing, then the same by its index.
        crumbs.extend_from_slice(b"\x60\x01a");
        crumbs.extend_from_slice(&[0xbe; 100]);
        let seen = wire.send(&frame(FrameType::Headers, END_HEADERS | END_STREAM, 1, &crumbs));
        assert_eq!(seen, Ok(vec![Seen::Refused(1, 431)]));
    }

    #[test]
    fn heads_of_all_open_streams_are_bounded_together() {
        let mut wire = Wire::new(Limits::default());
        let large = block("GET", "/", &[("x", &"{".repeat(16_000))]);
        let open = (1..200)
            .step_by(2)
            .filter(|&id| {
                let input = frame(FrameType::Headers, END_HEADERS | END_STREAM, id, &large);
                !wire.send(&input).expect("an event or a refusal").is_empty()
            })
            .count();
        assert_eq!(open, 512 * 1024 / 16_200);
        assert!(wire.connection.heads <= Limits::default().all_heads);
        wire.connection.respond(1, HEAD, b"x");
        assert_eq!(
            wire.send(&frame(FrameType::Headers, END_HEADERS | END_STREAM, 201, &large))
                .map(|seen| seen.len()),
            Ok(1)
        );
    }

    #[test]
    fn memory_of_ended_streams_stays_bounded() {
        let mut wire = Wire::new(Limits::default());
        wire.send(&window_update(0, 0x7000_0000)).expect("room");
        for id in (1..200_000).step_by(2) {
            wire.send(&get(id)).expect("a request");
            wire.connection.respond(id, HEAD, b"hello");
            wire.connection.output().clear();
        }
        assert!(format!("{:?}", wire.connection).len() < 10_000);
    }
}

/// A session with a bit of everything.
fn session() -> Vec<u8> {
    let mut long = Vec::new();
    frame::write_headers(
        &mut long,
        7,
        &block("GET", "/long", &[("x", &"v".repeat(40))]),
        true,
        10,
    );
    [
        hello(&setting(4, 1000)),
        get(1),
        post(3, &[("content-length", "6")]),
        data(3, b"abc", false),
        frame(FrameType::Ping, 0, 0, b"pingpong"),
        post(5, &[]),
        data(3, b"def", true),
        reset(5),
        long,
        window_update(0, 77),
        frame(FrameType::Data, PADDED | END_STREAM, 1, &[1, b'x', 0]),
        frame(
            FrameType::Headers,
            END_HEADERS | PRIORITY | PADDED,
            9,
            &[&[2, 0, 0, 0, 0, 1][..], &block("PUT", "/p", &[]), &[0, 0]].concat(),
        ),
        frame(FrameType::Headers, END_HEADERS | END_STREAM, 9, &[]),
        frame(FrameType::GoAway, 0, 0, &[0; 8]),
    ]
    .concat()
}

/// Events and frames sent when the input comes in these pieces, each stream answered when its request is complete.
fn run<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Seen>, Vec<u8>) {
    let now = Instant::now();
    let mut connection = Connection::new(Limits::default(), now);
    let (mut seen, mut rest, mut storage) = (Vec::new(), Vec::new(), Fields::new());
    for piece in pieces {
        rest.extend_from_slice(piece);
        let mut at = 0;
        loop {
            let step = connection
                .receive(&rest[at..], now, &mut storage)
                .expect("a sound session");
            at += step.taken;
            let Some(event) = step.event else { break };
            let event = Seen::from(event);
            if let Seen::Request(stream, _, true) | Seen::Data(stream, _, true) = event {
                connection.respond(stream, HEAD, b"answer");
            }
            seen.push(event);
        }
        rest.drain(..at);
    }
    assert!(rest.is_empty());
    (seen, std::mem::take(connection.output()))
}

#[test]
fn a_session_byte_by_byte_is_the_same_session() {
    let input = session();
    let whole = run(std::iter::once(&input[..]));
    assert_eq!(whole.0.len(), 10, "{:?}", whole.0);
    assert_eq!(run(input.chunks(1)), whole);
}

proptest! {
    #[test]
    fn any_split_gives_the_same_events_and_answers(mut cuts in proptest::collection::vec(0usize..700, 0..12)) {
        let input = session();
        cuts.push(0);
        cuts.push(input.len());
        cuts.iter_mut().for_each(|cut| *cut = (*cut).min(input.len()));
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|pair| &input[pair[0]..pair[1]]);
        prop_assert_eq!(run(pieces), run(std::iter::once(&input[..])));
    }
}
