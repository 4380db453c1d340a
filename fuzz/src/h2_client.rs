//! What a server sends over HTTP/2.

use std::collections::HashMap;

use haulier_proto::field::{Fields, is_name, is_value};
use haulier_proto::h2::client::{Client, ClientEvent, ClientLimits, StreamOptions};
use haulier_proto::h2::error::ConnectionError;
use haulier_proto::h2::frame::{FrameHead, HEAD_LENGTH};
use haulier_proto::response_head::{ResponseHead, ResponseLimits};

/// Limits small enough to be met.
const LIMITS: ClientLimits = ClientLimits {
    stream_window: 300,
    connection_window: 66_000,
    table: 200,
    response: ResponseLimits { head: 600, fields: 8 },
    continuations: 2,
    interim: 2,
    answers: 400,
};
const LINES: [(&[u8], &[u8]); 4] = [
    (b":method", b"GET"),
    (b":scheme", b"https"),
    (b":authority", b"a"),
    (b":path", b"/"),
];
/// An empty SETTINGS frame.
const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];

/// What one run came to.
#[derive(Debug, PartialEq)]
struct Session {
    events: Vec<String>,
    output: Vec<u8>,
    error: Option<ConnectionError>,
}

/// The same events and the same answers whatever the pieces; a stream ends once; what is sent is whole frames. SETTINGS
/// are given for nothing: few mutations would find them.
pub fn check(data: &[u8]) {
    let input = [&SETTINGS, data].concat();
    let whole = run([&input[..]].into_iter());
    for pieces in super::cuts(&input) {
        assert_eq!(run(pieces.into_iter()), whole);
    }
    check_frames(&whole.output);
    run([data].into_iter());
}

fn run<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Session {
    let mut client = Client::new(LIMITS);
    // Streams 1, 3, 5 and 7, of which 3 has no body to come and 5 one to send.
    let mut open: HashMap<u32, u64> = (0..4)
        .map(|number| {
            let ask = StreamOptions {
                is_head: number == 1,
                end: number != 2,
            };
            (client.open(ask, LINES).expect("few streams"), 0)
        })
        .collect();
    // The preface is no frame.
    client.output().clear();
    let (mut rest, mut storage) = (Vec::new(), Fields::new());
    let mut session = Session {
        events: Vec::new(),
        output: Vec::new(),
        error: None,
    };
    for piece in pieces {
        rest.extend_from_slice(piece);
        let mut at = 0;
        while session.error.is_none() {
            match client.receive(&rest[at..], &mut storage) {
                Err(error) => session.error = Some(error),
                Ok(step) => {
                    at += step.taken;
                    let Some(event) = step.event else { break };
                    session.events.push(format!("{event:?}"));
                    act(&mut client, event, &mut open);
                    assert!(client.open_streams() <= 4);
                }
            }
        }
        rest.drain(..at);
    }
    if session.error.is_some() {
        assert_eq!(client.receive(b"", &mut storage).err(), session.error);
        assert!(!client.is_open());
    }
    session.output = std::mem::take(client.output());
    session
}

/// Keeps book of the streams: bytes come after a head, and nothing after an end.
fn act(client: &mut Client, event: ClientEvent<'_>, open: &mut HashMap<u32, u64>) {
    let (stream, end) = match event {
        ClientEvent::Head { stream, head, end } => {
            check_head(&head);
            assert!(open.contains_key(&stream));
            (stream, end)
        }
        ClientEvent::Data { stream, data, end } => {
            *open.get_mut(&stream).expect("an open stream") += data.len() as u64;
            if stream == 5 {
                client.send_data(stream, b"more", false);
            }
            (stream, end)
        }
        ClientEvent::Interim { stream, head } => {
            assert!((100..200).contains(&head.status()) && open.contains_key(&stream));
            (stream, false)
        }
        ClientEvent::Trailers { stream, trailers } => {
            check_fields(&trailers);
            (stream, true)
        }
        ClientEvent::Failed { stream, .. } => (stream, true),
        ClientEvent::GoAway { .. } => return,
    };
    if end {
        assert!(open.remove(&stream).is_some(), "a stream ends once");
        assert_eq!(client.send_data(stream, b"late", true), None);
    }
}

fn check_head(head: &ResponseHead) {
    assert!((200..1000).contains(&head.status()));
    check_fields(head.fields());
}

fn check_fields(fields: &Fields) {
    assert!(fields.len() <= LIMITS.response.fields);
    for (name, value) in fields.iter() {
        assert!(is_name(name) && is_value(value));
        assert!(!name.iter().any(u8::is_ascii_uppercase));
    }
}

fn check_frames(mut bytes: &[u8]) {
    while let Some(head) = FrameHead::parse(bytes) {
        let length = HEAD_LENGTH + head.length as usize;
        assert!(length <= bytes.len(), "a whole frame");
        bytes = &bytes[length..];
    }
    assert!(bytes.is_empty(), "nothing but frames");
}
