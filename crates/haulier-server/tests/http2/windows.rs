//! RFC 9113 §5.2 and §6.9: flow control, both ways.

use std::time::Duration;

use haulier_proto::h2::error::ErrorCode;
use haulier_proto::h2::frame::FrameType;

use crate::peer::{Peer, data, frame, settings_payload, window_update};
use crate::site::{Site, at_some_pace, large, wait};

const LENGTH: &str = "<?php echo strlen(file_get_contents('php://input')), ' ', md5(file_get_contents('php://input'));";

#[test]
fn a_body_goes_as_far_as_the_window_and_on_when_it_opens() {
    let site = Site::start();
    let mut peer = Peer::connect_with(&site, &[(4, 4)]);
    peer.stop_reading();
    let stream = peer.get("/ten.txt");
    assert_eq!(
        peer.answer_until(stream, |answer| answer.body.len() == 4).text(),
        "0123"
    );
    peer.send(window_update(stream, 3));
    assert_eq!(
        peer.answer_until(stream, |answer| answer.body.len() == 7).text(),
        "0123456"
    );
    peer.send(frame(FrameType::Settings, 0, 0, &settings_payload(&[(4, 7)])));
    assert_eq!(peer.answer(stream).expect(200).text(), "0123456789");
}

#[test]
fn a_file_comes_through_windows_of_any_size() {
    let site = Site::start();
    for window in [1_000_u32, 16_384, 65_535, 100_000, 1 << 24] {
        let mut peer = Peer::connect_with(&site, &[(4, window)]);
        let wanted = &large()[..if window < 10_000 { 1 << 18 } else { 1 << 22 }];
        let range = format!("bytes=0-{}", wanted.len() - 1);
        let stream = peer.request("GET", "/large.bin", &[("range", &range)], true);
        let answer = peer.answer(stream).expect(206);
        assert!(answer.body == wanted, "with a window of {window}");
    }
}

#[test]
fn an_upload_of_many_windows_arrives_whole() {
    let site = Site::with_php(&[("up.php", LENGTH)], |_| {});
    let mut peer = Peer::connect(&site);
    let body = &large()[..3_000_000];
    let stream = peer.request("POST", "/up.php", &[], false);
    let (mut at, mut window) = (0, 65_536);
    while at < body.len() {
        while window == 0 {
            let frame = peer.frame().expect("a wider window");
            if frame.kind == FrameType::WindowUpdate && frame.stream == stream {
                window += u32::from_be_bytes(frame.payload[..].try_into().expect("four bytes")) as usize;
            }
        }
        let piece = window.min(10_000).min(body.len() - at);
        peer.send(data(stream, &body[at..at + piece], at + piece == body.len()));
        at += piece;
        window -= piece;
    }
    assert!(peer.answer(stream).expect(200).text().starts_with("3000000 "));
}

/// A body that the client does not take is not kept forever.
#[test]
fn a_stream_whose_window_stays_shut_is_reset_and_the_connection_lives() {
    let site = Site::with_limits(|limits| limits.send_timeout = Duration::from_millis(300));
    let mut peer = Peer::connect_with(&site, &[(4, 0)]);
    peer.stop_reading();
    let streams = [peer.get("/ten.txt"), peer.get("/large.bin")];
    for stream in streams {
        let answer = peer.answer(stream);
        assert_eq!((answer.status, answer.reset), (200, Some(ErrorCode::CANCEL)));
    }
    peer.send(frame(FrameType::Settings, 0, 0, &settings_payload(&[(4, 65_535)])));
    peer.assert_alive();
    let log = site.log_until(|log| log.matches("send_timeout").count() >= 2);
    assert_eq!(log.matches("send_timeout").count(), 2);
}

#[test]
fn a_reader_that_takes_a_little_now_and_then_is_kept() {
    at_some_pace(Duration::from_millis(100), |step| {
        let site = Site::with_limits(|limits| limits.send_timeout = 4 * step);
        let mut peer = Peer::connect_with(&site, &[(4, 1)]);
        peer.stop_reading();
        let stream = peer.get("/ten.txt");
        for taken in 1..10 {
            peer.answer_until(stream, |answer| answer.body.len() == taken);
            wait(step);
            peer.send(window_update(stream, 1));
        }
        assert_eq!(peer.answer(stream).expect(200).text(), "0123456789");
    });
}

#[test]
fn a_window_that_opens_byte_by_byte_is_given_up_and_the_connection_lives() {
    let site = Site::with_limits(|limits| {
        limits.min_send_rate = 1000;
        limits.send_rate_over = Duration::from_secs(1);
    });
    let mut peer = Peer::connect_with(&site, &[(4, 1)]);
    peer.stop_reading();
    let stream = peer.get("/large.bin");
    let mut taken = 1;
    let answer = loop {
        let answer = peer.answer_until(stream, |answer| answer.body.len() == taken || answer.reset.is_some());
        if answer.reset.is_some() {
            break answer;
        }
        assert!(taken < 5000, "it is served for ever");
        wait(Duration::from_millis(10));
        peer.send(window_update(stream, 1));
        taken += 1;
    };
    assert_eq!((answer.status, answer.reset), (200, Some(ErrorCode::CANCEL)));
    peer.send(frame(FrameType::Settings, 0, 0, &settings_payload(&[(4, 65_535)])));
    peer.assert_alive();
    site.log_until(|log| log.contains("send_too_slow"));
}

#[test]
fn a_client_that_takes_nothing_off_its_socket_is_cut_off() {
    let site = Site::with_limits(|limits| limits.send_timeout = Duration::from_millis(300));
    let mut peer = Peer::connect_narrow(&site, &[(4, 1 << 30)]);
    peer.stop_reading();
    peer.send(window_update(0, 1 << 30));
    peer.get("/large.bin");
    site.log_until(|log| log.contains("client_gone"));
    site.assert_connections_fall_to(0);
}
