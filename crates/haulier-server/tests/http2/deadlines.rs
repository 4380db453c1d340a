//! Timeouts of slow clients.

use std::time::Duration;

use haulier_proto::h2::PREFACE;
use haulier_proto::h2::error::ErrorCode;
use haulier_proto::h2::frame::{END_STREAM, FrameType};

use crate::peer::{Peer, block, data, frame};
use crate::site::{Site, at_some_pace, wait};

fn impatient(head: Duration) -> Site {
    Site::with_limits(|limits| limits.head_timeout = head)
}

#[test]
fn a_preface_that_does_not_come_to_its_end_is_not_waited_for() {
    at_some_pace(Duration::from_millis(300), |head| {
        let site = impatient(head);
        for part in [&PREFACE[..20], &PREFACE[..]] {
            let mut peer = Peer::silent(site.address());
            peer.send(part);
            peer.assert_ends_with(ErrorCode::ENHANCE_YOUR_CALM);
        }
        site.assert_connections_fall_to(0);
    });
}

#[test]
fn a_head_has_a_deadline_however_it_trickles() {
    let block = block("GET", "/ten.txt", &[]);
    at_some_pace(Duration::from_millis(100), |step| {
        let site = impatient(3 * step);
        let mut peer = Peer::connect(&site);
        peer.send(frame(FrameType::Headers, END_STREAM, 1, &block));
        for _ in 0..8 {
            wait(step);
            peer.send(frame(FrameType::Continuation, 0, 1, b""));
        }
        peer.assert_ends_with(ErrorCode::ENHANCE_YOUR_CALM);
        let mut peer = Peer::connect(&site);
        peer.assert_alive();
        peer.send(&frame(FrameType::Headers, END_STREAM, 3, &block)[..12]);
        peer.assert_ends_with(ErrorCode::ENHANCE_YOUR_CALM);
    });
}

#[test]
fn a_body_that_stops_costs_its_stream_alone() {
    let site = Site::with_php(&[("up.php", "<?php echo 'ran';")], |settings| {
        settings.limits.body_timeout = Duration::from_millis(300);
    });
    let mut peer = Peer::connect(&site);
    let stream = peer.request("POST", "/up.php", &[("content-length", "10")], false);
    peer.send(data(stream, b"123", false));
    assert_eq!(peer.answer_until(stream, |answer| answer.complete).status, 408);
    peer.assert_alive();
    let unwanted = peer.request("POST", "/ten.txt", &[("content-length", "10")], false);
    peer.answer_until(unwanted, |answer| answer.complete);
    peer.assert_alive();
}

#[test]
fn a_body_that_comes_slowly_but_steadily_is_waited_for() {
    at_some_pace(Duration::from_millis(100), |step| {
        let site = Site::with_php(&[("up.php", "<?php readfile('php://input');")], |settings| {
            settings.limits.body_timeout = 6 * step;
            settings.limits.idle_timeout = 3 * step;
            settings.limits.head_timeout = 3 * step;
        });
        let mut peer = Peer::connect(&site);
        let stream = peer.request("POST", "/up.php", &[], false);
        let whole = data(stream, b"0123456789", true);
        let (head, body) = whole.split_at(9);
        peer.send(head);
        for byte in body {
            wait(step);
            peer.send([*byte]);
        }
        assert_eq!(peer.answer(stream).expect(200).text(), "0123456789");
    });
}
