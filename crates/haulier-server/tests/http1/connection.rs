//! RFC 9112 §9.3, §9.6: the life of a connection.

use std::time::Duration;

use haulier_server::Limits;

use crate::client::{Client, To};
use crate::site::{LARGE, SMUGGLED, Site, large, wait};

const GET: &str = "GET /ten.txt HTTP/1.1\r\nHost: a\r\n\r\n";

/// Longer than any test.
const FOR_EVER: Duration = Duration::from_secs(600);

#[test]
fn a_connection_carries_many_requests() {
    let site = Site::start();
    let mut client = site.connect();
    for _ in 0..50 {
        let response = client.ask(GET);
        assert_eq!((response.status, response.field("Connection")), (200, None));
        assert_eq!(response.text(), "0123456789");
    }
}

#[test]
fn close_is_honoured_in_any_case_and_place() {
    let site = Site::start();
    for value in ["close", "Close", "keep-alive, close", "x,CLOSE ,y"] {
        let mut client = site.connect();
        let response = client.ask(format!(
            "GET /ten.txt HTTP/1.1\r\nHost: a\r\nConnection: {value}\r\n\r\n"
        ));
        assert_eq!(response.text(), "0123456789");
        assert!(response.closes() && client.is_closed(), "{value}");
    }
}

/// RFC 9112 §9.6: bytes after the last request are not processed.
#[test]
fn a_request_behind_close_is_not_executed() {
    let site = Site::start();
    let mut client = site.connect();
    client.send(format!(
        "GET /ten.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n{SMUGGLED}"
    ));
    assert_eq!(client.response().status, 200);
    assert!(client.is_closed());
    assert!(!site.log().contains("smuggled"));
}

/// RFC 9112 §9.3, appendix C.2.2.
#[test]
fn http_1_0_closes_unless_it_asks_for_keep_alive() {
    let site = Site::start();
    let mut client = site.connect();
    let response = client.ask("GET /ten.txt HTTP/1.0\r\n\r\n");
    assert!(
        response.head.starts_with("HTTP/1.1 200 OK\r\n"),
        "RFC 9110 §2.5: our own version"
    );
    assert!(response.closes() && client.is_closed());

    let mut client = site.connect();
    for _ in 0..3 {
        let response = client.ask("GET /ten.txt HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n");
        assert_eq!(response.field("Connection"), Some("keep-alive"));
        assert_eq!(response.text(), "0123456789");
    }
}

#[test]
fn the_last_request_a_connection_may_carry_is_told_to_close() {
    let site = Site::with_limits(|limits| limits.keepalive_requests = 3);
    let mut client = site.connect();
    assert!(!client.ask(GET).closes());
    assert!(!client.ask(GET).closes());
    assert!(client.ask(GET).closes());
    assert!(client.is_closed());
}

/// CVE-2026-2833: Upgrade is ignored, and the framing stays.
#[test]
fn upgrade_is_ignored() {
    let site = Site::start();
    for lines in [
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n",
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n",
    ] {
        let mut client = site.connect();
        client.send(format!("GET /ten.txt HTTP/1.1\r\nHost: a\r\n{lines}\r\n{GET}"));
        let response = client.response();
        assert_eq!((response.status, response.field("Upgrade")), (200, None));
        assert_eq!(client.response().text(), "0123456789");
    }
    let body = SMUGGLED.len();
    let mut client = site.connect();
    let lines = format!("Connection: Upgrade\r\nUpgrade: x\r\nContent-Length: {body}\r\n");
    client.send(format!(
        "POST /ten.txt HTTP/1.1\r\nHost: a\r\n{lines}\r\n{SMUGGLED}{GET}"
    ));
    assert_eq!(client.response().status, 405);
    assert_eq!(client.response().text(), "0123456789");
    assert!(!site.log().contains("smuggled"));
}

/// RFC 9112 §9.6: half-closed is not closed.
#[test]
fn a_client_that_closed_its_side_still_gets_its_answers() {
    let site = Site::start();
    let mut client = site.connect();
    client.send(format!("{GET}GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n{GET}"));
    client.finish();
    assert_eq!(client.response().text(), "0123456789");
    assert!(client.response().body == *large());
    assert_eq!(client.response().text(), "0123456789");
    assert!(client.is_closed());
}

#[test]
fn half_a_head_and_an_end_is_answered_with_nothing_or_a_refusal() {
    let site = Site::start();
    let mut client = site.connect();
    client.send("GET /ten.txt HTTP/1.1\r\nHost");
    client.finish();
    if let Some(response) = client.try_response(To::Get) {
        assert_eq!(response.status, 400);
    }
    assert!(client.is_closed());
}

/// Connections that break off are forgotten in every state.
#[test]
fn connections_that_break_off_leave_nothing_behind() {
    let site = Site::start();
    for request in [
        "",
        "GET",
        GET,
        "GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx",
    ] {
        for _ in 0..10 {
            site.connect_narrow().send(request);
        }
    }
    // Connections are accepted in order, so all of them were accepted before this response.
    assert_eq!(site.ask(GET).status, 200);
    site.assert_connections_fall_to(0);
}

/// RFC 9112 §9.6: the refusal must reach a client that is still sending.
#[test]
fn a_refusal_is_readable_though_the_client_goes_on_sending() {
    let site = Site::start();
    for _ in 0..10 {
        let mut client = site.connect();
        client.send("BAD\r\n\r\n");
        client.send("x".repeat(256 * 1024));
        assert_eq!(client.response().status, 400);
        assert!(client.is_closed());
    }
}

#[test]
fn large_bodies_arrive_whole_and_the_connection_goes_on() {
    let site = Site::start();
    let mut client = site.connect();
    for _ in 0..2 {
        let response = client.ask("GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(response.field("Content-Length"), Some(LARGE.to_string().as_str()));
        assert!(response.body == *large());
    }
    assert_eq!(client.ask(GET).text(), "0123456789");
}

#[test]
fn draining_closes_idle_connections_and_finishes_the_others() {
    let site = Site::start();
    let mut idle = site.connect();
    assert_eq!(idle.ask(GET).status, 200);
    let mut busy = site.connect_narrow();
    busy.send("GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n");
    // Its head has come, so the response has begun; most of the body is still waiting for room.
    let head = busy.try_response(To::Head).expect("a response");
    assert_eq!(head.status, 200);
    site.drain();
    assert!(idle.is_closed());
    assert_eq!(busy.rest().len(), LARGE);
    site.assert_connections_fall_to(0);
}

#[test]
fn a_server_that_announces_its_end_serves_on_and_closes_after_each_answer() {
    let site = Site::start();
    let mut idle = site.connect();
    assert!(!idle.ask(GET).closes());
    site.announce_end();
    while !site.ask(GET).closes() {
        wait(Duration::from_millis(20));
    }
    let answer = idle.ask(GET);
    assert!(answer.status == 200 && answer.closes());
    assert!(idle.is_closed());
}

#[test]
fn what_a_stop_breaks_off_before_its_answer_is_503() {
    let script = "<?php touch(__DIR__ . '/began'); sleep(600);";
    let mut site = Site::with_php(&[("sleep.php", script)], |_| {});
    let mut client = site.connect();
    client.send("GET /sleep.php HTTP/1.1\r\nHost: a\r\n\r\n");
    while !site.root().join("began").exists() {
        wait(Duration::from_millis(5));
    }
    site.abort();
    let answer = client.response();
    assert!(answer.status == 503 && answer.closes());
    assert!(client.is_closed());
}

/// An incomplete request: its connection is in use.
const BEGUN: &str = "GET /ten.txt HTTP/1.1\r\nHost: a\r\n";

#[test]
fn a_newcomer_gets_the_place_of_the_connection_that_has_been_idle_longest() {
    let site = Site::with_limits(|limits| {
        limits.connections = 3;
        limits.idle_timeout = FOR_EVER;
    });
    let mut used = site.connect();
    assert_eq!(used.ask(GET).status, 200);
    let (mut longest, mut shorter) = (site.connect(), site.connect());
    assert_eq!(longest.ask(GET).status, 200);
    // Idle since another tick of the clock.
    wait(Duration::from_millis(250));
    assert_eq!(shorter.ask(GET).status, 200);
    used.send(BEGUN);
    wait(Duration::from_millis(250));
    assert_eq!(site.connect().ask(GET).status, 200);
    assert!(longest.is_closed());
    assert_eq!(shorter.ask(GET).status, 200);
    used.send("\r\n");
    assert_eq!(used.response().status, 200);
}

#[test]
fn a_hundred_idle_connections_keep_no_newcomer_waiting() {
    let site = Site::start_with(|settings| {
        settings.threads = 2;
        settings.limits.connections = 100;
        settings.limits.idle_timeout = FOR_EVER;
    });
    let mut crowd: Vec<Client> = (0..100).map(|_| site.connect()).collect();
    for client in &mut crowd {
        assert_eq!(client.ask(GET).status, 200);
    }
    for _ in 0..150 {
        let mut newcomer = site.connect();
        assert_eq!(newcomer.ask(GET).status, 200);
        crowd.push(newcomer);
    }
}

#[test]
fn a_thread_without_idle_connections_asks_the_others_for_room() {
    let site = Site::start_with(|settings| {
        settings.threads = 4;
        settings.limits.connections = 1;
        settings.limits.idle_timeout = FOR_EVER;
    });
    // Each is idle on the thread that the kernel chose; the next connection comes to any thread.
    let mut held = Vec::new();
    for _ in 0..24 {
        let mut client = site.connect();
        assert_eq!(client.ask(GET).status, 200);
        held.push(client);
    }
}

#[test]
fn newcomers_wait_for_their_turn_where_every_connection_is_used() {
    let site = Site::with_limits(|limits| {
        limits.connections = 2;
        limits.head_timeout = FOR_EVER;
    });
    let (mut first, mut second) = (site.connect(), site.connect());
    assert_eq!(first.ask(GET).status, 200);
    assert_eq!(second.ask(GET).status, 200);
    first.send(BEGUN);
    second.send(BEGUN);
    wait(Duration::from_millis(50));
    let mut third = site.connect();
    third.send(GET);
    assert!(third.is_silent_for(Duration::from_millis(300)));
    drop(first);
    assert_eq!(third.response().status, 200);
    second.send("\r\n");
    assert_eq!(second.response().status, 200);
}

fn two_of_an_address(limits: &mut Limits) {
    limits.connections_per_ip = 2;
    limits.local_per_ip = true;
    limits.idle_timeout = FOR_EVER;
    limits.head_timeout = FOR_EVER;
}

#[test]
fn an_address_with_too_many_connections_loses_its_longest_idle_one() {
    let site = Site::with_limits(two_of_an_address);
    let (mut first, mut second) = (site.connect(), site.connect());
    assert_eq!(first.ask(GET).status, 200);
    wait(Duration::from_millis(250));
    assert_eq!(second.ask(GET).status, 200);
    assert_eq!(site.ask(GET).status, 200);
    assert!(first.is_closed());
}

#[test]
fn an_address_that_uses_all_its_connections_gets_no_further_one() {
    let site = Site::with_limits(two_of_an_address);
    let (mut first, mut second) = (site.connect(), site.connect());
    for client in [&mut first, &mut second] {
        assert_eq!(client.ask(GET).status, 200);
        client.send(BEGUN);
    }
    wait(Duration::from_millis(50));
    let mut third = site.connect();
    let refused = third.try_response(To::Get);
    assert!(refused.is_none_or(|response| response.status == 503));
    drop((first, second));
    site.assert_connections_fall_to(0);
    assert_eq!(site.ask(GET).status, 200);
}

#[test]
fn this_machine_may_have_more_connections_than_an_address_unless_somebody_says_so() {
    let site = Site::with_limits(|limits| limits.connections_per_ip = 2);
    let mut clients: Vec<Client> = (0..5).map(|_| site.connect()).collect();
    for client in &mut clients {
        assert_eq!(client.ask(GET).status, 200);
        client.send(BEGUN);
    }
    assert_eq!(site.ask(GET).status, 200);
}
