//! RFC 9113 §4 and §6: frames, as far as the driver handles them.

use haulier_proto::h2::error::ErrorCode;
use haulier_proto::h2::frame::{ACK, END_HEADERS, END_STREAM, FrameType};

use crate::peer::{Peer, block, frame, ping};
use crate::site::Site;

/// §6.7
#[test]
fn a_ping_is_answered_beside_requests() {
    let site = Site::start();
    let mut peer = Peer::connect(&site);
    let stream = peer.get("/large.bin");
    peer.send(ping(*b"12345678", 0));
    let pong = peer.control(FrameType::Ping);
    assert_eq!((pong.flags, &pong.payload[..]), (ACK, &b"12345678"[..]));
    peer.answer(stream).expect(200);
}

/// §5.5
#[test]
fn an_unknown_frame_is_ignored() {
    let site = Site::start();
    let mut peer = Peer::connect(&site);
    let mut unknown = frame(FrameType::Ping, 0xff, 7, b"whatever it is");
    unknown[3] = 0xfa;
    peer.send(unknown);
    peer.assert_alive();
}

/// §4.2
#[test]
fn a_frame_too_large_ends_the_connection() {
    let site = Site::start();
    let mut peer = Peer::connect(&site);
    peer.send(frame(FrameType::Data, 0, 1, &[0; 16_385]));
    peer.assert_ends_with(ErrorCode::FRAME_SIZE_ERROR);
    site.assert_connections_fall_to(0);
}

/// §4.3
#[test]
fn a_field_block_nobody_can_read_ends_the_connection() {
    let site = Site::start();
    let mut peer = Peer::connect(&site);
    peer.send(frame(FrameType::Headers, END_HEADERS | END_STREAM, 1, &[0xff; 10]));
    peer.assert_ends_with(ErrorCode::COMPRESSION_ERROR);
}

/// §6.10
#[test]
fn a_head_may_come_in_several_frames_and_reads() {
    let site = Site::start();
    let mut peer = Peer::connect(&site);
    let stream = peer.take_stream();
    let block = block("GET", "/ten.txt", &[("x-long", &"long".repeat(100))]);
    let (first, rest) = block.split_at(10);
    let (second, third) = rest.split_at(100);
    for (kind, flags, part) in [
        (FrameType::Headers, END_STREAM, first),
        (FrameType::Continuation, 0, second),
        (FrameType::Continuation, END_HEADERS, third),
    ] {
        peer.send(frame(kind, flags, stream, part));
        crate::site::wait(std::time::Duration::from_millis(10));
    }
    peer.answer(stream).expect(200);
}

#[test]
fn frames_byte_by_byte_are_the_same_frames() {
    let site = Site::start();
    let mut peer = Peer::connect(&site);
    let stream = peer.take_stream();
    for byte in crate::peer::head(stream, "GET", "/ten.txt", &[], true) {
        peer.send([byte]);
    }
    assert_eq!(peer.answer(stream).expect(200).text(), "0123456789");
}

#[test]
fn answers_before_a_fault_are_still_sent() {
    let site = Site::start();
    let mut peer = Peer::connect(&site);
    let stream = peer.take_stream();
    let request = crate::peer::head(stream, "GET", "/ten.txt", &[], true);
    peer.send([request, frame(FrameType::Ping, 0, 0, b"short")].concat());
    assert_eq!(peer.answer(stream).expect(200).text(), "0123456789");
    peer.assert_ends_with(ErrorCode::FRAME_SIZE_ERROR);
}
