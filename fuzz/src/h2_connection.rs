//! What a client sends over HTTP/2.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use haulier_proto::field::{Fields, is_name, is_value};
use haulier_proto::h2::PREFACE;
use haulier_proto::h2::connection::{Connection, ServerEvent};
use haulier_proto::h2::error::{ConnectionError, ErrorCode};
use haulier_proto::h2::frame::{FrameHead, HEAD_LENGTH};
use haulier_proto::h2::limits::Limits;
use haulier_proto::head::RequestHead;

/// Limits small enough to be met.
const LIMITS: Limits = Limits {
    streams: 4,
    stream_window: 300,
    connection_window: 66_000,
    header_list: 600,
    fields: 8,
    path: 60,
    all_heads: 900,
    table: 200,
    continuations: 2,
    resets: 5,
    control_frames: 20,
    stall: Duration::from_secs(30),
};
const HEAD: &[u8] = &[0x88];

/// What one run came to.
#[derive(Debug, PartialEq)]
struct Session {
    events: Vec<String>,
    output: Vec<u8>,
    taken: usize,
    error: Option<ConnectionError>,
}

/// The same events and the same answers whatever the pieces; what is sent is whole frames; what is asked of the
/// driver is bounded. The preface is given for nothing: few mutations would find it.
pub fn check(data: &[u8]) {
    let input = [PREFACE, data].concat();
    let whole = run([&input[..]].into_iter());
    for pieces in super::cuts(&input) {
        assert_eq!(run(pieces.into_iter()), whole);
    }
    check_frames(&whole.output);
    if whole.error.is_none() {
        assert!(
            input.len() - whole.taken < HEAD_LENGTH + 16_384,
            "no more than a frame is left"
        );
    }
    // Without the preface it is judged too.
    run([data].into_iter());
}

fn run<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Session {
    let now = Instant::now();
    let mut connection = Connection::new(LIMITS, now);
    let mut storage = Fields::new();
    let (mut rest, mut held) = (Vec::new(), HashMap::new());
    let mut session = Session {
        events: Vec::new(),
        output: Vec::new(),
        taken: 0,
        error: None,
    };
    for piece in pieces {
        rest.extend_from_slice(piece);
        let mut at = 0;
        while session.error.is_none() {
            match connection.receive(&rest[at..], now, &mut storage) {
                Err(error) => session.error = Some(error),
                Ok(step) => {
                    at += step.taken;
                    let Some(event) = step.event else { break };
                    session.events.push(format!("{event:?}"));
                    act(&mut connection, event, &mut held);
                    let most = LIMITS.connection_window as usize;
                    assert!(held.values().sum::<usize>() <= most, "uploads stay within the window");
                    assert!(connection.open_streams() <= LIMITS.streams as usize);
                }
            }
        }
        rest.drain(..at);
        session.taken += at;
    }
    if session.error.is_some() {
        assert_eq!(connection.receive(b"", now, &mut storage).err(), session.error);
        // A failed call takes nothing, and how much earlier ones took depends on the pieces.
        session.taken = 0;
    }
    session.output = std::mem::take(connection.output());
    session
}

/// Answers by the number of the stream: at once, with a body larger than the window, by giving up, or not at all.
/// `held` are the bytes of bodies that nobody used up.
fn act(connection: &mut Connection, event: ServerEvent<'_>, held: &mut HashMap<u32, usize>) {
    match event {
        ServerEvent::Request { stream, head, .. } => {
            check_head(&head);
            match stream % 8 {
                1 => assert!(connection.respond(stream, HEAD, b"hello").is_some()),
                3 => assert!(connection.respond(stream, HEAD, &[b'x'; 70_000]).is_some()),
                5 => connection.reset(stream, ErrorCode::CANCEL),
                _ => connection.queue(stream),
            }
        }
        ServerEvent::Refused { stream, error } => {
            assert!(matches!(error.status(), 414 | 431));
            assert!(connection.respond(stream, HEAD, b"").is_some());
        }
        ServerEvent::Data { stream, data, .. } => {
            *held.entry(stream).or_default() += data.len();
            if stream % 16 == 7 {
                connection.consume(stream, data.len());
                held.remove(&stream);
            }
            while let Some(writable) = connection.next_writable() {
                assert!(connection.room(writable) > 0);
                let end = writable % 3 == 0;
                connection.send_data(writable, b"more", end);
                if connection.send_data(writable, b"", false).is_none() {
                    held.remove(&writable);
                }
            }
        }
        ServerEvent::Reset { stream, .. } => {
            assert_eq!(connection.respond(stream, HEAD, b"late"), None);
            held.remove(&stream);
        }
        ServerEvent::GoAway { .. } => connection.shut_down(),
    }
}

/// Nothing of a head could mean something else in HTTP/1 text or a CGI variable.
fn check_head(head: &RequestHead) {
    assert!(is_name(head.method_name()));
    let words = [
        head.target(),
        head.path(),
        head.query().unwrap_or_default(),
        head.authority().expect("an authority"),
    ];
    for word in words {
        assert!(!word.iter().any(|&byte| byte <= b' ' || byte == 0x7f || byte == b'#'));
    }
    assert!(head.path().is_empty() || head.path().starts_with(b"/"));
    assert_eq!(head.fields().get_all("host").count(), 1);
    assert!(head.fields().get_all("cookie").count() <= 1);
    assert!(head.fields().len() <= LIMITS.fields as usize + 2);
    for (name, value) in head.fields().iter() {
        assert!(is_name(name) && is_value(value) && value == value.trim_ascii());
        assert!(!name.iter().any(u8::is_ascii_uppercase));
        assert!(!matches!(
            name,
            b"connection" | b"transfer-encoding" | b"upgrade" | b"keep-alive"
        ));
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
