//! RFC 9113 §5: concurrent streams.

use haulier_proto::h2::error::ErrorCode;

use crate::peer::{Peer, data, head, reset, window_update};
use crate::site::{LARGE, Site, large};

/// Holds a worker until the file it names exists.
const GATE: &str =
    "<?php while (!file_exists(__DIR__ . $_GET['gate'])) { usleep(5000); clearstatcache(); } echo 'open';";

#[test]
fn a_thousand_streams_one_after_the_other() {
    let site = Site::with_limits(|limits| limits.keepalive_requests = 2000);
    let mut peer = Peer::connect(&site);
    for _ in 0..1000 {
        assert_eq!(peer.fetch("/ten.txt").expect(200).text(), "0123456789");
    }
}

#[test]
fn requests_of_one_read_are_all_answered() {
    let site = Site::start();
    let mut peer = Peer::connect(&site);
    let mut requests = Vec::new();
    let paths = ["/ten.txt", "/sub/", "/missing", "/empty.txt"];
    let streams: Vec<_> = (0..80).map(|_| peer.take_stream()).collect();
    for (place, &stream) in streams.iter().enumerate() {
        requests.extend(head(stream, "GET", paths[place % 4], &[], true));
    }
    peer.send(requests);
    for (place, &stream) in streams.iter().enumerate() {
        peer.answer(stream).expect(if place % 4 == 2 { 404 } else { 200 });
    }
}

#[test]
fn a_slow_script_holds_nobody_else_up() {
    let site = Site::with_php(&[("gate.php", GATE)], |_| {});
    let mut peer = Peer::connect(&site);
    let slow = peer.get("/gate.php?gate=/go");
    for _ in 0..10 {
        assert_eq!(peer.fetch("/ten.txt").expect(200).text(), "0123456789");
    }
    assert_eq!(peer.so_far(slow).status, 0);
    std::fs::write(site.root().join("go"), "").expect("the directory is ours");
    assert_eq!(peer.answer(slow).expect(200).text(), "open");
}

/// All bodies wait for their windows, which open in one write, so the order is the server's choice.
#[test]
fn large_bodies_take_turns() {
    let site = Site::start();
    let mut peer = Peer::connect_with(&site, &[(4, 0)]);
    let streams: Vec<_> = (0..4).map(|_| peer.get("/large.bin")).collect();
    for &stream in &streams {
        peer.answer_until(stream, |answer| answer.status == 200);
    }
    let opened: Vec<_> = streams
        .iter()
        .map(|&stream| window_update(stream, LARGE as u32))
        .collect();
    peer.send([opened.concat(), window_update(0, 1 << 26)].concat());
    let first = peer.answer(streams[0]).expect(200);
    assert!(first.body == large(), "every byte in its place");
    for &stream in &streams[1..] {
        assert!(
            peer.so_far(stream).body.len() > LARGE / 2,
            "the others were served beside it"
        );
        assert!(peer.answer(stream).expect(200).body == large());
    }
}

/// §5.1.2
#[test]
fn one_stream_more_than_allowed_is_refused_and_may_come_again() {
    let site = Site::with_php(&[("gate.php", GATE)], |settings| settings.limits.h2_streams = 3);
    let mut peer = Peer::connect(&site);
    let open: Vec<_> = (0..3).map(|_| peer.get("/gate.php?gate=/go")).collect();
    let more = peer.get("/ten.txt");
    assert_eq!(peer.answer(more).reset, Some(ErrorCode::REFUSED_STREAM));
    std::fs::write(site.root().join("go"), "").expect("the directory is ours");
    for stream in open {
        assert_eq!(peer.answer(stream).expect(200).text(), "open");
    }
    peer.assert_alive();
}

/// §5.4.2
#[test]
fn a_stream_the_client_gives_up_is_over_and_the_others_go_on() {
    let site = Site::with_php(&[("gate.php", GATE)], |_| {});
    let mut peer = Peer::connect_with(&site, &[(4, 1000)]);
    let script = peer.get("/gate.php?gate=/go");
    let file = peer.get("/large.bin");
    peer.answer_until(file, |answer| answer.body.len() >= 1000);
    peer.send([reset(script), reset(file)].concat());
    peer.assert_alive();
    std::fs::write(site.root().join("go"), "").expect("the directory is ours");
    site.log_until(|log| log.matches("client_gone").count() >= 2);
    peer.assert_alive();
    assert_eq!(peer.so_far(script).status, 0);
}

#[test]
fn a_body_given_up_in_the_middle_ends_its_handler() {
    let site = Site::with_php(&[("up.php", "<?php echo 'ran';")], |_| {});
    let mut peer = Peer::connect(&site);
    let stream = peer.request("POST", "/up.php", &[("content-length", "100000")], false);
    peer.send([data(stream, &[b'x'; 1000], false), reset(stream)].concat());
    peer.assert_alive();
    site.log_until(|log| log.contains("client_gone"));
    peer.assert_alive();
}
