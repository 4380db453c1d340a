//! The cost of a multiplexed hello in the HTTP/2 state machine: 32 requests per read as from h2load, all answers in one
//! buffer. `cargo bench -p haulier-proto --bench h2_hello` prints the best of ten rounds; the goal is 200 ns.

use std::time::Instant;

use haulier_proto::field::Fields;
use haulier_proto::h2::PREFACE;
use haulier_proto::h2::connection::{Connection, ServerEvent};
use haulier_proto::h2::frame::{END_HEADERS, END_STREAM, FrameType, write_small, write_window_update};
use haulier_proto::h2::hpack::encode;
use haulier_proto::h2::limits::Limits;

const STREAMS: u32 = 32;
const READS: u32 = 50_000;

fn main() {
    let now = Instant::now();
    let mut connection = Connection::new(Limits::default(), now);
    let mut storage = Fields::new();
    let mut input = PREFACE.to_vec();
    write_small(&mut input, FrameType::Settings, 0, 0, &[]);
    write_window_update(&mut input, 0, 0x7000_0000);
    let mut next = 1;
    request(&mut input, &mut next, &first_block());
    let block = response_block();
    serve(&mut connection, &input, now, &mut storage, &block);
    let rounds = (0..10).map(|_| {
        let start = Instant::now();
        for _ in 0..READS {
            input.clear();
            for _ in 0..STREAMS {
                request(&mut input, &mut next, LATER_BLOCK);
            }
            serve(&mut connection, &input, now, &mut storage, &block);
        }
        start.elapsed() / (READS * STREAMS)
    });
    let best = rounds.min().unwrap_or_default();
    println!("{best:?} a request");
}

fn request(input: &mut Vec<u8>, next: &mut u32, block: &[u8]) {
    write_small(input, FrameType::Headers, END_HEADERS | END_STREAM, *next, block);
    *next += 2;
}

/// The first request puts path, authority and agent into the dynamic table, to which the later ones refer.
fn first_block() -> Vec<u8> {
    let mut block = vec![0x82, 0x86];
    for (index, value) in [(4, "/hello"), (1, "127.0.0.1:8080"), (58, "h2load nghttp2/1.52.0")] {
        block.extend_from_slice(&[0x40 | index, value.len() as u8]);
        block.extend_from_slice(value.as_bytes());
    }
    block
}

const LATER_BLOCK: &[u8] = &[0x82, 0x86, 0xc0, 0xbf, 0xbe];

fn response_block() -> Vec<u8> {
    let mut fields = Fields::new();
    fields.append("Server", "haulier");
    fields.append("Date", "Sat, 21 Nov 2026 15:06:35 GMT");
    fields.append("Content-Type", "text/plain");
    fields.append("Content-Length", "6");
    encode::block(200, &fields)
}

fn serve(connection: &mut Connection, input: &[u8], now: Instant, storage: &mut Fields, block: &[u8]) {
    let mut taken = 0;
    loop {
        let step = connection
            .receive(&input[taken..], now, storage)
            .expect("a sound client");
        taken += step.taken;
        match step.event {
            Some(ServerEvent::Request { stream, head, .. }) => {
                assert_eq!(connection.respond(stream, block, b"hello\n"), Some(6));
                *storage = head.into_storage();
            }
            Some(other) => panic!("{other:?}"),
            None => break,
        }
    }
    connection.output().clear();
}
