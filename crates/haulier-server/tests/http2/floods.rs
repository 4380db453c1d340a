//! RFC 9113 §10.5, rows 24 and 25: too many frames of a harmless kind. The end-to-end tests measure the memory of the
//! real binary.

use haulier_proto::h2::error::ErrorCode;
use haulier_proto::h2::frame::{END_HEADERS, END_STREAM, FrameType, PRIORITY};

use crate::peer::{Peer, block, data, frame, head, ping, reset, window_update};
use crate::site::Site;

/// Sends the frames of `make` for each stream until the server ends the connection.
fn assert_enough(site: &Site, most: u32, mut make: impl FnMut(u32) -> Vec<u8>) {
    let mut peer = Peer::connect(site);
    for number in 0..most {
        peer.send(make(2 * number + 1));
    }
    let goaway = peer.control(FrameType::GoAway);
    assert_eq!(goaway.code(), ErrorCode::ENHANCE_YOUR_CALM);
    peer.rest();
    Peer::connect(site).assert_alive();
}

/// CVE-2023-44487
#[test]
fn rapid_reset_ends_the_connection() {
    let site = Site::start();
    assert_enough(&site, 400, |stream| {
        [head(stream, "GET", "/large.bin", &[], true), reset(stream)].concat()
    });
}

/// CVE-2025-8671
#[test]
fn making_us_reset_ends_the_connection() {
    let site = Site::start();
    assert_enough(&site, 400, |stream| {
        [head(stream, "GET", "/large.bin", &[], true), window_update(stream, 0)].concat()
    });
}

/// CVE-2019-9512 and similar ones.
#[test]
fn frames_that_carry_nothing_end_the_connection() {
    let site = Site::start();
    assert_enough(&site, 2000, |_| ping([0; 8], 0));
    assert_enough(&site, 2000, |_| frame(FrameType::Settings, 0, 0, &[]));
    assert_enough(&site, 2000, |stream| {
        frame(FrameType::Priority, 0, stream, &[0, 0, 0, 0, 1])
    });
    assert_enough(&site, 2000, |stream| {
        let opening = if stream == 1 {
            head(1, "POST", "/ten.txt", &[], false)
        } else {
            Vec::new()
        };
        [opening, frame(FrameType::Data, 0, 1, &[])].concat()
    });
}

/// CVE-2024-27316
#[test]
fn continuation_without_end_ends_the_connection() {
    let site = Site::start();
    assert_enough(&site, 50, |stream| {
        let kind = if stream == 1 {
            FrameType::Headers
        } else {
            FrameType::Continuation
        };
        frame(kind, if stream == 1 { END_STREAM } else { 0 }, 1, &[0x82; 10])
    });
}

/// CVE-2016-6581, CVE-2026-49975: one byte refers to a long line.
#[test]
fn a_bomb_of_references_is_431_and_the_connection_lives() {
    let site = Site::start();
    let mut peer = Peer::connect(&site);
    let mut bomb = block("GET", "/ten.txt", &[]);
    bomb.extend([0x40, 1, b'x', 0x7f, 0x80 | 0x01, 0x1e]);
    bomb.extend([b'y'; 3968]);
    bomb.resize(15_000, 0x80 | 62);
    let stream = peer.take_stream();
    peer.send(frame(FrameType::Headers, END_HEADERS | END_STREAM, stream, &bomb));
    peer.answer(stream).expect(431);
    peer.assert_alive();
}

#[test]
fn a_stream_that_depends_on_itself_ends_the_connection() {
    let site = Site::start();
    let mut peer = Peer::connect(&site);
    let payload = [&[0, 0, 0, 1, 0][..], &block("GET", "/ten.txt", &[])].concat();
    peer.send(frame(
        FrameType::Headers,
        END_HEADERS | END_STREAM | PRIORITY,
        1,
        &payload,
    ));
    peer.assert_ends_with(ErrorCode::PROTOCOL_ERROR);
}

/// The connection's window limits the memory of uploads, whoever reads them.
#[test]
fn more_than_the_window_ends_the_connection() {
    let site = Site::start();
    let mut peer = Peer::connect(&site);
    let stream = peer.request("POST", "/ten.txt", &[("expect", "100-continue")], false);
    let mut sent = 0;
    while sent <= 2 * 1024 * 1024 {
        peer.send(data(stream, &[0; 16_384], false));
        sent += 16_384;
    }
    // The response came without the body, so its later bytes count for the connection alone.
    peer.answer_until(stream, |answer| answer.complete);
    peer.assert_alive();
}

#[test]
fn as_many_resets_as_a_browser_makes_are_nothing() {
    let site = Site::start();
    let mut peer = Peer::connect_with(&site, &[(4, 100)]);
    for _ in 0..150 {
        let stream = peer.get("/large.bin");
        peer.send(reset(stream));
    }
    peer.assert_alive();
}
