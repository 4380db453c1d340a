//! RFC 9113 §3: the start of HTTP/2.

use std::net::Ipv4Addr;

use haulier_proto::h2::PREFACE;
use haulier_proto::h2::error::ErrorCode;
use haulier_proto::h2::frame::FrameType;

use crate::peer::{Peer, frame, head, hello};
use crate::site::{Site, wait};
use std::time::Duration;

/// §3.3
#[test]
fn a_client_that_knows_is_answered_on_the_same_listener_as_every_other() {
    let site = Site::start();
    let mut peer = Peer::connect(&site);
    assert_eq!(peer.fetch("/ten.txt").expect(200).text(), "0123456789");
    assert_eq!(site.get("/ten.txt", "").text(), "0123456789");
    assert_eq!(peer.fetch("/ten.txt").expect(200).text(), "0123456789");
    let log = site.log_until(|log| log.lines().count() >= 3);
    assert_eq!(log.matches(r#""http":"2.0""#).count(), 2, "{log}");
    assert_eq!(log.matches(r#""http":"1.1""#).count(), 1, "{log}");
}

/// §3.4
#[test]
fn our_settings_come_first_and_theirs_are_acknowledged() {
    let site = Site::start();
    let mut peer = Peer::connect(&site);
    let first = peer.frame().expect("a frame");
    assert_eq!((first.kind, first.flags), (FrameType::Settings, 0));
    let ack = peer.frame().expect("a frame");
    assert_eq!(ack.kind, FrameType::WindowUpdate);
    let ack = peer.frame().expect("a frame");
    assert_eq!((ack.kind, ack.flags, ack.payload.len()), (FrameType::Settings, 1, 0));
}

#[test]
fn a_preface_may_come_in_pieces() {
    let site = Site::start();
    let whole = [hello(&[]), head(1, "GET", "/ten.txt", &[], true)].concat();
    for cut in [1, 3, 14, 16, 18, 23, 24, 30, whole.len() - 1] {
        let mut peer = Peer::silent(site.address());
        peer.send(&whole[..cut]);
        wait(Duration::from_millis(20));
        peer.send(&whole[cut..]);
        assert_eq!(peer.answer(1).expect(200).text(), "0123456789", "cut at {cut}");
    }
    let mut peer = Peer::silent(site.address());
    for byte in whole {
        peer.send([byte]);
    }
    peer.answer(1).expect(200);
}

#[test]
fn frames_that_come_with_the_preface_are_answered_at_once() {
    let site = Site::start();
    let mut peer = Peer::silent(site.address());
    let requests: Vec<u8> = (0..20)
        .flat_map(|n| head(2 * n + 1, "GET", "/ten.txt", &[], true))
        .collect();
    peer.send([hello(&[]), requests].concat());
    for n in 0..20 {
        assert_eq!(peer.answer(2 * n + 1).expect(200).text(), "0123456789");
    }
}

#[test]
fn a_preface_that_goes_wrong_behind_its_first_line_ends_the_connection() {
    let site = Site::start();
    let mut peer = Peer::silent(site.address());
    peer.send(b"PRI * HTTP/2.0\r\n\r\n");
    wait(Duration::from_millis(20));
    peer.send(b"XX\r\n\r\n");
    peer.assert_ends_with(ErrorCode::PROTOCOL_ERROR);
    let mut client = site.connect();
    assert_eq!(
        client.ask("PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n").status,
        505,
        "that is HTTP/1.1"
    );
}

/// §3.4, and RFC 9112 §2.2: only bytes that appear to be HTTP get a 400.
#[test]
fn a_preface_of_something_else_ends_the_connection_without_a_word() {
    let site = Site::start();
    let mut client = site.connect();
    client.send("INVALID CONNECTION PREFACE\r\n\r\n");
    assert!(client.is_closed(), "with nothing before the end");
    site.log_until(|log| log.contains(r#""reason":"bad_request""#));
    assert_eq!(site.ask("INVALID /preface XTTP/1.1\r\n\r\n").status, 400);
    let plain = Site::start_with(|settings| settings.http2 = false);
    assert_eq!(plain.ask("INVALID CONNECTION PREFACE\r\n\r\n").status, 400);
}

#[test]
fn the_first_frame_must_be_settings() {
    let site = Site::start();
    let mut peer = Peer::silent(site.address());
    peer.send([&PREFACE[..], &frame(FrameType::Ping, 0, 0, &[0; 8])].concat());
    peer.assert_ends_with(ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn a_preface_behind_a_request_of_http_1_is_refused() {
    let site = Site::start();
    let mut client = site.connect();
    assert_eq!(client.ask("GET /ten.txt HTTP/1.1\r\nHost: a\r\n\r\n").status, 200);
    let answer = client.ask(PREFACE);
    assert_eq!(answer.status, 505);
    assert!(client.is_closed());
}

#[test]
fn a_server_that_was_told_not_to_refuses_the_preface() {
    let site = Site::start_with(|settings| settings.http2 = false);
    assert_eq!(site.ask(hello(&[])).status, 505);
}

#[test]
fn a_proxy_header_may_stand_before_the_preface() {
    let site = Site::start_with(|settings| {
        settings.proxy_protocol = true;
        settings.trusted_proxies = vec!["127.0.0.1".parse().expect("a network")];
    });
    let mut peer = Peer::silent(site.address());
    let client = Ipv4Addr::new(192, 0, 2, 7);
    peer.send(format!("PROXY TCP4 {client} 127.0.0.1 4711 80\r\n"));
    peer.send([hello(&[]), head(1, "GET", "/ten.txt", &[], true)].concat());
    peer.answer(1).expect(200);
    site.log_until(|log| log.contains(r#""ip":"192.0.2.7""#) && log.contains(r#""http":"2.0""#));
}
