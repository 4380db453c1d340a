//! RFC 9113 §6.8: the end of a connection, without losing a request.

use std::time::Duration;

use haulier_proto::h2::error::ErrorCode;
use haulier_proto::h2::frame::FrameType;

use crate::client::Client;
use crate::peer::{Peer, frame, pong};
use crate::site::{Site, at_some_pace, wait};

const GATE: &str = "<?php while (!file_exists(__DIR__ . '/go')) { usleep(5000); clearstatcache(); } echo 'open';";

/// Reads the first GOAWAY, acknowledges its PING, and reads the last GOAWAY.
fn assert_farewell(peer: &mut Peer, last: u32) {
    let announced = peer.control(FrameType::GoAway);
    assert_eq!(
        (announced.last_stream(), announced.code()),
        (0x7fff_ffff, ErrorCode::NO_ERROR)
    );
    let ping = peer.control(FrameType::Ping);
    peer.send(pong(&ping));
    let said = peer.control(FrameType::GoAway);
    assert_eq!((said.last_stream(), said.code()), (last, ErrorCode::NO_ERROR));
}

#[test]
fn a_drain_answers_what_runs_and_what_was_under_way() {
    // The server waits a second for the acknowledgement of its PING, whatever the pace.
    at_some_pace(Duration::ZERO, |_| {
        let site = Site::with_php(&[("gate.php", GATE)], |_| {});
        let mut peer = Peer::connect(&site);
        let running = peer.get("/gate.php");
        peer.assert_alive();
        site.drain();
        let announced = peer.control(FrameType::GoAway);
        assert_eq!(announced.last_stream(), 0x7fff_ffff);
        // The client had not read GOAWAY when it sent this.
        peer.assert_alive();
        let ping = peer.control(FrameType::Ping);
        peer.send(pong(&ping));
        assert_eq!(peer.control(FrameType::GoAway).last_stream(), 5);
        let late = peer.get("/ten.txt");
        assert_eq!(peer.answer(late).reset, Some(ErrorCode::REFUSED_STREAM));
        std::fs::write(site.root().join("go"), "").expect("the directory is ours");
        assert_eq!(peer.answer(running).expect(200).text(), "open");
        assert!(peer.rest().is_empty(), "then it is over");
        site.assert_connections_fall_to(0);
    });
}

#[test]
fn a_drain_ends_an_idle_connection_at_once() {
    let site = Site::start();
    let mut peer = Peer::connect(&site);
    peer.assert_alive();
    site.drain();
    assert_farewell(&mut peer, 1);
    assert!(peer.rest().is_empty());
}

#[test]
fn a_client_that_answers_no_ping_is_not_waited_for() {
    let site = Site::start();
    let mut peer = Peer::connect(&site);
    peer.assert_alive();
    site.drain();
    assert_eq!(peer.control(FrameType::GoAway).last_stream(), 0x7fff_ffff);
    assert_eq!(peer.control(FrameType::GoAway).last_stream(), 1);
    assert!(peer.rest().is_empty());
}

#[test]
fn an_idle_connection_is_told_before_it_is_closed() {
    at_some_pace(Duration::from_millis(300), |idle| {
        let site = Site::with_limits(|limits| limits.idle_timeout = idle);
        let mut peer = Peer::connect(&site);
        peer.assert_alive();
        assert_farewell(&mut peer, 1);
        assert!(peer.rest().is_empty());
        site.assert_connections_fall_to(0);
    });
}

#[test]
fn an_idle_connection_makes_room_at_once_for_a_newcomer() {
    let site = Site::with_limits(|limits| {
        limits.connections = 1;
        limits.idle_timeout = Duration::from_secs(600);
    });
    let mut peer = Peer::connect(&site);
    peer.assert_alive();
    assert_eq!(site.get("/ten.txt", "").status, 200);
    let said = peer.control(FrameType::GoAway);
    assert_eq!((said.last_stream(), said.code()), (1, ErrorCode::NO_ERROR));
    assert!(peer.rest().is_empty());
}

#[test]
fn a_connection_with_an_open_stream_makes_no_room() {
    let site = Site::with_php(&[("gate.php", GATE)], |settings| settings.limits.connections = 1);
    let mut peer = Peer::connect(&site);
    let running = peer.get("/gate.php");
    peer.assert_alive();
    let mut newcomer = Client::connect(site.address());
    newcomer.send("GET /ten.txt HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(newcomer.is_silent_for(Duration::from_millis(300)));
    std::fs::write(site.root().join("go"), "").expect("the directory is ours");
    assert_eq!(peer.answer(running).expect(200).text(), "open");
    assert_eq!(newcomer.response().status, 200);
}

#[test]
fn a_server_that_announces_its_end_serves_on_and_says_so_with_every_answer() {
    let site = Site::start();
    let mut peer = Peer::connect(&site);
    peer.assert_alive();
    site.announce_end();
    loop {
        let mut other = Peer::connect(&site);
        other.assert_alive();
        if other.control.iter().any(|frame| frame.kind == FrameType::GoAway) {
            break;
        }
        wait(Duration::from_millis(20));
    }
    peer.assert_alive();
    assert_eq!(peer.control(FrameType::GoAway).last_stream(), 0x7fff_ffff);
}

#[test]
fn what_a_stop_breaks_off_before_its_answer_is_told_so() {
    let mut site = Site::with_php(&[("gate.php", GATE)], |_| {});
    let mut peer = Peer::connect(&site);
    let running = peer.get("/gate.php");
    peer.assert_alive();
    site.abort();
    peer.answer(running).expect(503);
    assert_eq!(peer.control(FrameType::GoAway).last_stream(), 3);
}

#[test]
fn a_ping_now_and_then_does_not_keep_a_connection() {
    at_some_pace(Duration::from_millis(100), |step| {
        let site = Site::with_limits(|limits| limits.idle_timeout = 4 * step);
        let mut peer = Peer::connect(&site);
        peer.assert_alive();
        for _ in 0..30 {
            peer.send(crate::peer::ping([0; 8], 0));
            let frame = peer.frame().expect("a frame");
            if frame.kind == FrameType::GoAway {
                return;
            }
            wait(step);
        }
        panic!("a long time of nothing but PING");
    });
}

#[test]
fn requests_now_and_then_keep_a_connection() {
    at_some_pace(Duration::from_millis(200), |step| {
        let site = Site::with_limits(|limits| limits.idle_timeout = 5 * step);
        let mut peer = Peer::connect(&site);
        for _ in 0..6 {
            wait(2 * step);
            peer.assert_alive();
        }
        assert!(peer.control.iter().all(|frame| frame.kind != FrameType::GoAway));
    });
}

#[test]
fn a_connection_carries_as_many_requests_as_it_may() {
    let site = Site::with_limits(|limits| limits.keepalive_requests = 3);
    let mut peer = Peer::connect(&site);
    for _ in 0..3 {
        peer.assert_alive();
    }
    assert_farewell(&mut peer, 5);
    assert!(peer.rest().is_empty());
}

#[test]
fn a_client_that_says_goaway_gets_its_answers_first() {
    let site = Site::with_php(&[("gate.php", GATE)], |_| {});
    let mut peer = Peer::connect(&site);
    let running = peer.get("/gate.php");
    peer.send(frame(FrameType::GoAway, 0, 0, &[0; 8]));
    std::fs::write(site.root().join("go"), "").expect("the directory is ours");
    assert_eq!(peer.answer(running).expect(200).text(), "open");
    assert!(peer.rest().is_empty());
}

#[test]
fn a_client_that_sends_nothing_more_gets_its_answers_first() {
    let site = Site::with_php(&[("gate.php", GATE)], |_| {});
    let mut peer = Peer::connect(&site);
    let running = peer.get("/gate.php");
    peer.assert_alive();
    peer.finish();
    std::fs::write(site.root().join("go"), "").expect("the directory is ours");
    assert_eq!(peer.answer(running).expect(200).text(), "open");
    assert!(peer.rest().is_empty());
}

#[test]
fn a_client_that_is_gone_costs_nothing_further() {
    let site = Site::start();
    for _ in 0..20 {
        let mut peer = Peer::connect_with(&site, &[(4, 100)]);
        let stream = peer.get("/large.bin");
        peer.answer_until(stream, |answer| answer.body.len() >= 100);
    }
    site.assert_connections_fall_to(0);
    let log = site.log_until(|log| log.matches("client_gone").count() >= 20);
    assert_eq!(log.matches("client_gone").count(), 20);
}
