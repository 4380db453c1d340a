use std::collections::HashMap;
use std::time::Instant;

use proptest::prelude::*;

use super::*;
use crate::field::Fields;
use crate::h2::connection;
use crate::h2::frame::{ACK, END_HEADERS, END_STREAM, FrameHead, FrameType, HEAD_LENGTH, PADDED};
use crate::h2::hpack::encode;
use crate::h2::limits::Limits;

/// An event that keeps what it was.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    Interim(u32, u16),
    Head(u32, u16, bool),
    Data(u32, Vec<u8>, bool),
    Trailers(u32, usize),
    Failed(u32, StreamError),
    GoAway(ErrorCode),
}

impl From<ClientEvent<'_>> for Seen {
    fn from(event: ClientEvent<'_>) -> Self {
        match event {
            ClientEvent::Interim { stream, head } => Self::Interim(stream, head.status()),
            ClientEvent::Head { stream, head, end } => Self::Head(stream, head.status(), end),
            ClientEvent::Data { stream, data, end } => Self::Data(stream, data.to_vec(), end),
            ClientEvent::Trailers { stream, trailers } => Self::Trailers(stream, trailers.len()),
            ClientEvent::Failed { stream, why } => Self::Failed(stream, why),
            ClientEvent::GoAway { code } => Self::GoAway(code),
        }
    }
}

const GET: StreamOptions = StreamOptions {
    is_head: false,
    end: true,
};
const LINES: [(&[u8], &[u8]); 4] = [
    (b":method", b"GET"),
    (b":scheme", b"http"),
    (b":authority", b"a"),
    (b":path", b"/"),
];

/// A connection whose handshake is done, and the server's pen.
struct Wire(Client);

impl Wire {
    fn new(limits: ClientLimits) -> Self {
        let mut wire = Self(Client::new(limits));
        assert_eq!(wire.send(&frame(FrameType::Settings, 0, 0, &[])), Ok(vec![]));
        wire.0.output().clear();
        wire
    }

    /// A connection with one GET on its way, stream 1.
    fn asking() -> Self {
        let mut wire = Self::new(ClientLimits::default());
        assert_eq!(wire.0.open(GET, LINES), Some(1));
        wire.0.output().clear();
        wire
    }

    fn send(&mut self, input: &[u8]) -> Result<Vec<Seen>, ConnectionError> {
        let (mut seen, mut at, mut storage) = (Vec::new(), 0, Fields::new());
        loop {
            let step = self.0.receive(&input[at..], &mut storage)?;
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
        assert!(self.0.output().is_empty(), "one GOAWAY is enough");
        assert!(!self.0.is_open());
        error.code
    }

    /// The frames sent since the last call.
    fn sent(&mut self) -> Vec<(FrameType, u32, Vec<u8>)> {
        let bytes = std::mem::take(self.0.output());
        let (mut rest, mut found) = (&bytes[..], Vec::new());
        while let Some(head) = FrameHead::parse(rest) {
            let (payload, after) = rest[HEAD_LENGTH..].split_at(head.length as usize);
            found.push((head.kind, head.stream, payload.to_vec()));
            rest = after;
        }
        assert!(rest.is_empty(), "whole frames");
        found
    }
}

fn frame(kind: FrameType, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::write_small(&mut out, kind, flags, stream, payload);
    out
}

fn block(status: u16, lines: &[(&str, &str)]) -> Vec<u8> {
    let mut fields = Fields::new();
    for (name, value) in lines {
        fields.append(name, value);
    }
    encode::block(status, &fields)
}

fn head(stream: u32, end: bool, block: &[u8]) -> Vec<u8> {
    let flags = END_HEADERS | if end { END_STREAM } else { 0 };
    frame(FrameType::Headers, flags, stream, block)
}

fn data(stream: u32, end: bool, bytes: &[u8]) -> Vec<u8> {
    frame(FrameType::Data, if end { END_STREAM } else { 0 }, stream, bytes)
}

fn setting(id: u16, value: u32) -> Vec<u8> {
    let payload = [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
    frame(FrameType::Settings, 0, 0, &payload)
}

fn goaway(last: u32, code: ErrorCode) -> Vec<u8> {
    frame(
        FrameType::GoAway,
        0,
        0,
        &[last.to_be_bytes(), code.0.to_be_bytes()].concat(),
    )
}

#[test]
fn the_preface_comes_first_and_pushes_are_declined() {
    let mut client = Client::new(ClientLimits::default());
    let output = std::mem::take(client.output());
    let settings = output.strip_prefix(PREFACE).expect("the preface");
    let head = FrameHead::parse(settings).expect("SETTINGS");
    assert_eq!((head.kind, head.flags), (FrameType::Settings, 0));
    let payload = &settings[HEAD_LENGTH..HEAD_LENGTH + head.length as usize];
    assert!(payload.chunks(6).any(|entry| entry == [0, 2, 0, 0, 0, 0]), "no push");
}

#[test]
fn a_response_has_a_head_and_a_body_with_an_end() {
    let mut wire = Wire::asking();
    let answer = [
        head(1, false, &block(200, &[("content-length", "5")])),
        data(1, false, b"he"),
        frame(FrameType::Data, PADDED | END_STREAM, 1, b"\x02llo\0\0"),
    ];
    let seen = wire.send(&answer.concat()).expect("a good answer");
    let body = [
        Seen::Data(1, b"he".to_vec(), false),
        Seen::Data(1, b"llo".to_vec(), true),
    ];
    assert_eq!(seen[0], Seen::Head(1, 200, false));
    assert_eq!(seen[1..], body);
    assert_eq!(wire.0.open_streams(), 0);
    assert!(wire.0.is_open() && wire.sent().is_empty());
}

#[test]
fn a_body_of_another_length_than_promised_is_a_failure() {
    let short = StreamError::Short {
        received: 2,
        expected: 5,
    };
    let five = head(1, false, &block(200, &[("content-length", "5")]));
    let trailers = head(1, true, &[]);
    for (frames, why) in [
        ([five.clone(), data(1, true, b"he")].concat(), short),
        ([five.clone(), data(1, false, b"he"), trailers].concat(), short),
        (
            [five.clone(), data(1, false, b"hello!")].concat(),
            StreamError::Long { expected: 5 },
        ),
        (
            head(1, true, &block(200, &[("content-length", "5")])),
            StreamError::Short {
                received: 0,
                expected: 5,
            },
        ),
        (
            [five, frame(FrameType::ResetStream, 0, 1, &[0, 0, 0, 2])].concat(),
            StreamError::Reset(ErrorCode::INTERNAL_ERROR),
        ),
    ] {
        let mut wire = Wire::asking();
        let seen = wire.send(&frames).expect("the connection goes on");
        assert_eq!(seen.last(), Some(&Seen::Failed(1, why)));
        assert!(wire.0.is_open() && wire.0.open_streams() == 0);
    }
}

#[test]
fn answers_without_a_body_have_none_whatever_their_length_says() {
    let length = [("content-length", "5")];
    let mut wire = Wire::asking();
    let ended = wire.send(&head(1, true, &block(304, &length)));
    assert_eq!(ended, Ok(vec![Seen::Head(1, 304, true)]));
    let options = StreamOptions {
        is_head: true,
        end: true,
    };
    assert_eq!(wire.0.open(options, LINES), Some(3));
    let ended = wire.send(&head(3, true, &block(200, &length)));
    assert_eq!(ended, Ok(vec![Seen::Head(3, 200, true)]));
    assert_eq!(wire.0.open(options, LINES), Some(5));
    let seen = wire.send(&[head(5, false, &block(200, &length)), data(5, true, b"hello")].concat());
    let why = StreamError::Long { expected: 0 };
    assert_eq!(seen, Ok(vec![Seen::Head(5, 200, false), Seen::Failed(5, why)]));
}

#[test]
fn interim_responses_are_told_but_not_for_ever() {
    let mut wire = Wire::asking();
    let interim = head(1, false, &block(103, &[("link", "</a>")]));
    let answer = [interim.clone(), interim.clone(), head(1, true, &block(204, &[]))].concat();
    let hint = Seen::Interim(1, 103);
    assert_eq!(
        wire.send(&answer),
        Ok(vec![hint.clone(), hint.clone(), Seen::Head(1, 204, true)])
    );
    let mut wire = Wire::asking();
    let seen = wire.send(&interim.repeat(17)).expect("the connection goes on");
    assert_eq!(seen[..16], vec![hint; 16]);
    assert!(
        matches!(seen[16..], [Seen::Failed(1, StreamError::Malformed(_))]),
        "{seen:?}"
    );
}

#[test]
fn trailers_end_a_body_and_bad_ones_its_stream() {
    let start = [head(1, false, &block(200, &[])), data(1, false, b"x")].concat();
    let lines = |lines: &[(&str, &str)]| {
        let mut fields = Fields::new();
        lines.iter().for_each(|(name, value)| fields.append(name, value));
        let mut block = Vec::new();
        encode::fields(&mut block, &fields);
        block
    };
    let timing = lines(&[("server-timing", "a"), ("x", "b")]);
    let mut wire = Wire::asking();
    let seen = wire.send(&[start.clone(), head(1, true, &timing)].concat());
    let expected = [
        Seen::Head(1, 200, false),
        Seen::Data(1, b"x".to_vec(), false),
        Seen::Trailers(1, 2),
    ];
    assert_eq!(seen, Ok(expected.to_vec()));
    for trailers in [head(1, false, &timing), head(1, true, &block(200, &[]))] {
        let mut wire = Wire::asking();
        let seen = wire
            .send(&[start.clone(), trailers].concat())
            .expect("the connection goes on");
        assert_eq!(seen[2], Seen::Failed(1, StreamError::Malformed("bad trailers")));
    }
}

#[test]
fn a_request_may_end_with_trailers() {
    let mut wire = Wire::new(ClientLimits::default());
    let options = StreamOptions {
        is_head: false,
        end: false,
    };
    let stream = wire.0.open(options, LINES).expect("room");
    assert_eq!(wire.0.send_data(stream, b"abc", false), Some(3));
    wire.0.output().clear();
    let mut trailers = Fields::new();
    trailers.append("Digest", "x");
    assert!(wire.0.send_trailers(stream, &trailers));
    let head = FrameHead::parse(wire.0.output()).expect("a frame");
    assert_eq!((head.kind, head.flags), (FrameType::Headers, END_HEADERS | END_STREAM));
    assert!(!wire.0.send_trailers(stream, &trailers), "a body ends once");
}

#[test]
fn responses_that_are_none_fail_their_stream_alone() {
    for frames in [
        data(1, false, b"x"),
        head(1, true, &block(200, &[("content-length", "x")])),
        head(1, true, &[]),
        head(1, true, &block(103, &[])),
        [head(1, false, &block(200, &[])), head(1, false, &block(200, &[]))].concat(),
        frame(FrameType::WindowUpdate, 0, 1, &[0; 4]),
    ] {
        let mut wire = Wire::asking();
        let seen = wire.send(&frames).expect("the connection goes on");
        assert!(matches!(seen.last(), Some(Seen::Failed(1, _))), "{seen:?}");
        let sent = wire.sent();
        assert_eq!((sent[0].0, sent[0].1), (FrameType::ResetStream, 1));
        assert_eq!(wire.0.open(GET, LINES), Some(3));
    }
}

#[test]
fn a_server_that_breaks_the_protocol_loses_the_connection() {
    let one = [0, 0, 0, 1];
    for (frames, code) in [
        (head(3, true, &block(200, &[])), ErrorCode::PROTOCOL_ERROR),
        (head(2, true, &block(200, &[])), ErrorCode::PROTOCOL_ERROR),
        (data(3, true, b""), ErrorCode::PROTOCOL_ERROR),
        (
            frame(FrameType::PushPromise, END_HEADERS, 1, &[0, 0, 0, 2]),
            ErrorCode::PROTOCOL_ERROR,
        ),
        (setting(2, 1), ErrorCode::PROTOCOL_ERROR),
        (frame(FrameType::Settings, ACK, 0, &[0; 6]), ErrorCode::FRAME_SIZE_ERROR),
        (frame(FrameType::Ping, 0, 0, &[0; 7]), ErrorCode::FRAME_SIZE_ERROR),
        (
            frame(FrameType::Continuation, END_HEADERS, 1, &[]),
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            frame(FrameType::Headers, END_HEADERS, 1, &[0xff]),
            ErrorCode::COMPRESSION_ERROR,
        ),
        (
            frame(FrameType::WindowUpdate, 0, 0, &[0x7f, 0xff, 0xff, 0xff]),
            ErrorCode::FLOW_CONTROL_ERROR,
        ),
        (frame(FrameType::ResetStream, 0, 3, &one), ErrorCode::PROTOCOL_ERROR),
        (frame(FrameType::GoAway, 0, 0, &one), ErrorCode::FRAME_SIZE_ERROR),
        (
            [frame(FrameType::Headers, 0, 1, &[]), data(1, true, b"")].concat(),
            ErrorCode::PROTOCOL_ERROR,
        ),
        (
            [
                frame(FrameType::Headers, 0, 1, &[]),
                frame(FrameType::Continuation, 0, 1, &[]).repeat(9),
            ]
            .concat(),
            ErrorCode::ENHANCE_YOUR_CALM,
        ),
    ] {
        assert_eq!(Wire::asking().fails(&frames), code, "{frames:?}");
    }
    let mut fresh = Wire(Client::new(ClientLimits::default()));
    fresh.0.output().clear();
    assert_eq!(
        fresh.fails(&frame(FrameType::Ping, 0, 0, &[0; 8])),
        ErrorCode::PROTOCOL_ERROR
    );
}

#[test]
fn questions_whose_answers_are_not_taken_have_an_end() {
    let mut wire = Wire::new(ClientLimits {
        answers: 1000,
        ..ClientLimits::default()
    });
    let ping = frame(FrameType::Ping, 0, 0, &[7; 8]);
    assert_eq!(wire.send(&ping.repeat(10)), Ok(vec![]));
    assert_eq!(wire.sent().len(), 10);
    assert!(wire.send(&ping.repeat(100)).is_err());
}

#[test]
fn streams_wait_for_the_servers_limit() {
    let mut wire = Wire::new(ClientLimits::default());
    wire.send(&setting(3, 2)).expect("a good setting");
    assert_eq!((wire.0.open(GET, LINES), wire.0.open(GET, LINES)), (Some(1), Some(3)));
    assert_eq!(wire.0.open(GET, LINES), None);
    assert!(wire.0.is_open() && !wire.0.has_room());
    wire.send(&head(3, true, &block(200, &[]))).expect("a good answer");
    assert_eq!(wire.0.open(GET, LINES), Some(5));
    wire.0.cancel(1);
    assert_eq!(wire.0.open(GET, LINES), Some(7));
    let late = wire.send(&[head(1, false, &block(200, &[])), data(1, true, b"late")].concat());
    assert_eq!(late, Ok(vec![]), "nothing is told of a stream we gave up");
}

#[test]
fn a_goaway_says_which_requests_may_be_sent_again() {
    let mut wire = Wire::new(ClientLimits::default());
    for _ in 0..3 {
        wire.0.open(GET, LINES);
    }
    let seen = wire.send(&[goaway(1, ErrorCode::NO_ERROR), head(1, true, &block(200, &[]))].concat());
    let gone = |stream| Seen::Failed(stream, StreamError::Unprocessed);
    assert_eq!(
        seen,
        Ok(vec![
            Seen::GoAway(ErrorCode::NO_ERROR),
            gone(5),
            gone(3),
            Seen::Head(1, 200, true)
        ])
    );
    assert!(!wire.0.is_open());
    assert_eq!(wire.0.open(GET, LINES), None);
    assert_eq!(wire.fails(&goaway(3, ErrorCode::NO_ERROR)), ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn a_request_body_goes_as_far_as_the_windows_let_it() {
    let mut wire = Wire::new(ClientLimits::default());
    wire.send(&setting(4, 10)).expect("a good setting");
    wire.0.output().clear();
    let post = StreamOptions {
        is_head: false,
        end: false,
    };
    assert_eq!(wire.0.open(post, LINES), Some(1));
    assert_eq!(wire.0.send_data(1, b"0123456789abc", true), Some(10));
    assert_eq!(wire.0.send_data(1, b"abc", true), Some(0));
    wire.send(&frame(FrameType::WindowUpdate, 0, 1, &[0, 0, 0, 3]))
        .expect("a good frame");
    assert_eq!(wire.0.send_data(1, b"abc", true), Some(3));
    let sent: Vec<_> = wire
        .sent()
        .into_iter()
        .filter(|(kind, ..)| *kind == FrameType::Data)
        .collect();
    assert_eq!(sent.len(), 2);
    assert_eq!(wire.0.send_data(1, b"more", true), Some(0), "the body has ended");
    wire.send(&head(1, true, &block(200, &[]))).expect("a good answer");
    assert!(wire.sent().is_empty(), "both sides are done");
    assert_eq!(wire.0.send_data(1, b"", true), None);
}

#[test]
fn an_answer_before_the_end_of_the_request_ends_both() {
    let mut wire = Wire::new(ClientLimits::default());
    let post = StreamOptions {
        is_head: false,
        end: false,
    };
    wire.0.open(post, LINES);
    wire.0.output().clear();
    wire.send(&head(1, true, &block(413, &[]))).expect("a good answer");
    assert_eq!(
        wire.sent(),
        [(FrameType::ResetStream, 1, ErrorCode::CANCEL.0.to_be_bytes().to_vec())]
    );
}

#[test]
fn windows_are_kept_and_widened() {
    let limits = ClientLimits {
        stream_window: 100,
        connection_window: 65_535,
        ..ClientLimits::default()
    };
    let mut wire = Wire::new(limits);
    wire.0.open(GET, LINES);
    wire.0.output().clear();
    wire.send(&[head(1, false, &block(200, &[])), data(1, false, &[1; 40])].concat())
        .expect("within the window");
    assert!(wire.sent().is_empty());
    wire.send(&data(1, false, &[1; 20])).expect("within the window");
    assert_eq!(wire.sent(), [(FrameType::WindowUpdate, 1, vec![0, 0, 0, 60])]);
    assert_eq!(wire.fails(&data(1, false, &[1; 101])), ErrorCode::FLOW_CONTROL_ERROR);
}

/// Our two sides, and the bytes between them.
struct Pair {
    client: Client,
    server: connection::Connection,
    now: Instant,
    to_server: Vec<u8>,
    to_client: Vec<u8>,
    /// Length of each body, and whether it is told before.
    bodies: Vec<(usize, bool)>,
    /// Bytes that a stream still has to send.
    left: HashMap<u32, usize>,
    /// Bytes that came on a stream, and whether that was all.
    got: HashMap<u32, (usize, bool)>,
}

impl Pair {
    fn serve(&mut self) {
        let (mut at, mut storage) = (0, Fields::new());
        loop {
            let step = self.server.receive(&self.to_server[at..], self.now, &mut storage);
            let step = step.expect("our own client");
            at += step.taken;
            match step.event {
                None => break,
                Some(connection::ServerEvent::Request { stream, .. }) => {
                    let (length, is_told) = self.bodies[stream as usize / 2];
                    let text = length.to_string();
                    let lines = [("content-length", text.as_str())];
                    let block = block(200, if is_told { &lines } else { &[] });
                    self.server.send_head(stream, &block, length == 0);
                    self.left.insert(stream, length);
                    self.server.queue(stream);
                }
                Some(event) => panic!("{event:?}"),
            }
        }
        self.to_server.drain(..at);
        while let Some(stream) = self.server.next_writable() {
            let left = self.left[&stream];
            let piece = vec![7; left.min(9000)];
            let sent = self.server.send_data(stream, &piece, left <= 9000).unwrap_or_default();
            self.left.insert(stream, left - sent);
            if left > sent {
                self.server.queue(stream);
            }
        }
        self.to_client.append(self.server.output());
    }

    fn take(&mut self, cut: usize) {
        let (mut at, mut storage) = (0, Fields::new());
        let there = self.to_client.len().min(cut);
        loop {
            let step = self
                .client
                .receive(&self.to_client[at..there], &mut storage)
                .expect("our own server");
            at += step.taken;
            let (stream, bytes, is_end) = match step.event {
                None => break,
                Some(ClientEvent::Head { stream, end, .. }) => (stream, 0, end),
                Some(ClientEvent::Data { stream, data, end }) => (stream, data.len(), end),
                Some(event) => panic!("{event:?}"),
            };
            let got = self.got.get_mut(&stream).expect("a stream of ours");
            assert!(!got.1, "nothing comes after the end");
            *got = (got.0 + bytes, is_end);
        }
        self.to_client.drain(..at);
    }
}

proptest! {
    /// Our client and our server understand each other with any windows, and with the bytes cut anywhere.
    #[test]
    fn our_client_gets_from_our_server_what_it_asked_for(
        bodies in proptest::collection::vec((0usize..40_000, any::<bool>()), 1..12),
        stream_window in 1u32..70_000,
        connection_window in 65_535u32..200_000,
        cut in 1usize..40_000,
    ) {
        let now = Instant::now();
        // A window of few bytes calls for many frames, which our server counts as a flood.
        let stream_window = stream_window.max(2000);
        let limits = ClientLimits { stream_window, connection_window, ..ClientLimits::default() };
        let mut pair = Pair {
            client: Client::new(limits),
            server: connection::Connection::new(Limits::default(), now),
            now,
            to_server: Vec::new(),
            to_client: Vec::new(),
            bodies: bodies.clone(),
            left: HashMap::new(),
            got: HashMap::new(),
        };
        for _ in &bodies {
            let id = pair.client.open(GET, LINES).expect("few streams");
            pair.got.insert(id, (0, false));
        }
        // A frame larger than the cut has to come whole before anything is taken.
        let mut there = cut;
        for _ in 0..1_000_000 {
            pair.to_server.append(pair.client.output());
            pair.serve();
            let before = pair.to_client.len();
            pair.take(there);
            there = if pair.to_client.len() == before { there + cut } else { cut };
            if pair.client.open_streams() == 0 {
                break;
            }
        }
        for (place, (length, _)) in bodies.iter().enumerate() {
            prop_assert_eq!(pair.got[&(place as u32 * 2 + 1)], (*length, true));
        }
    }

    #[test]
    fn any_frames_are_read_without_panic(
        frames in proptest::collection::vec((0u8..12, any::<u8>(), 0u32..8, proptest::collection::vec(any::<u8>(), 0..40)), 0..30),
    ) {
        let mut wire = Wire::asking();
        let mut input = Vec::new();
        for (kind, flags, stream, payload) in frames {
            let mut one = frame(FrameType::Data, flags, stream, &payload);
            one[3] = kind;
            input.extend(one);
        }
        let _ = wire.send(&input);
    }
}
