//! Timeouts (row 10). They are short here; the checks say "not before" and "at all", never "within".

use std::time::{Duration, Instant};

use crate::client::To;
use crate::site::{Site, at_some_pace, wait};

const GET: &str = "GET /ten.txt HTTP/1.1\r\nHost: a\r\n\r\n";

/// Time since `start`, in milliseconds.
fn elapsed(start: Instant) -> u128 {
    start.elapsed().as_millis()
}

#[allow(clippy::disallowed_methods, reason = "the clock of the tests")]
fn now() -> Instant {
    Instant::now()
}

/// Slowloris: the timeout is for the whole head, not for a byte.
#[test]
fn a_head_that_trickles_meets_its_deadline() {
    let site = Site::with_limits(|limits| limits.head_timeout = Duration::from_millis(600));
    let start = now();
    let mut client = site.connect();
    client.send("GET /ten.txt HTTP/1.1\r\n");
    for _ in 0..100 {
        client.send("X: y\r\n");
        if !client.is_silent_for(Duration::from_millis(100)) {
            break;
        }
    }
    let response = client.try_response(To::Get);
    assert!(elapsed(start) >= 600, "too early, after {} ms", elapsed(start));
    assert!(response.is_some_and(|response| response.status == 408 && response.closes()));
    assert!(client.is_closed());
    site.assert_connections_fall_to(0);
}

/// Requests in quick succession are many heads, not a slow one.
#[test]
fn the_deadline_of_a_head_begins_anew_with_each_request() {
    at_some_pace(Duration::from_millis(250), |step| {
        let site = Site::with_limits(|limits| limits.head_timeout = 6 * step);
        let mut client = site.connect();
        let (begin, end) = GET.split_at(10);
        client.send(begin);
        for _ in 0..12 {
            wait(step);
            client.send(format!("{end}{begin}"));
            assert_eq!(client.response().status, 200);
        }
    });
}

#[test]
fn an_idle_connection_is_closed_in_silence() {
    let site = Site::with_limits(|limits| limits.idle_timeout = Duration::from_millis(400));
    let mut client = site.connect();
    assert_eq!(client.ask(GET).status, 200);
    let start = now();
    assert!(client.is_closed());
    assert!(elapsed(start) >= 300, "too early, after {} ms", elapsed(start));
    site.assert_connections_fall_to(0);
}

#[test]
fn a_connection_that_never_speaks_is_closed() {
    let site = Site::with_limits(|limits| {
        limits.idle_timeout = Duration::from_millis(400);
        limits.head_timeout = Duration::from_millis(400);
    });
    assert!(
        site.connect()
            .try_response(To::Get)
            .is_none_or(|response| response.status == 408)
    );
    site.assert_connections_fall_to(0);
}

#[test]
fn a_request_body_that_stalls_ends_the_connection() {
    let site = Site::with_limits(|limits| limits.body_timeout = Duration::from_millis(400));
    let mut client = site.connect();
    client.send("POST /ten.txt HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf");
    assert!(matches!(client.response().status, 405 | 408));
    assert!(client.is_closed());
    site.assert_connections_fall_to(0);
}

/// Slow read: a client that takes nothing does not keep its connection.
#[test]
fn a_client_that_does_not_read_is_cut_off() {
    let site = Site::with_limits(|limits| limits.send_timeout = Duration::from_millis(500));
    let mut client = site.connect_narrow();
    client.send("GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.try_response(To::Head).map(|response| response.status), Some(200));
    site.assert_connections_fall_to(0);
    assert!(client.rest().len() < crate::site::LARGE);
}

/// It never stalls for a whole timeout, and would be served for ever.
#[test]
fn a_client_that_takes_next_to_nothing_is_given_up() {
    let site = Site::with_limits(|limits| {
        limits.min_send_rate = 1_000_000;
        limits.send_rate_over = Duration::from_secs(1);
    });
    let mut client = site.connect_narrow();
    client.send("GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.try_response(To::Head).map(|response| response.status), Some(200));
    for _ in 0..4 {
        wait(Duration::from_millis(100));
        client.exactly(2000);
    }
    let log = site.log_until(|log| log.contains("send_too_slow"));
    assert!(!log.contains("send_timeout"), "{log}");
    site.assert_connections_fall_to(0);
}

/// A client that reads slowly, but reads, gets everything.
#[test]
fn a_slow_reader_gets_its_body() {
    at_some_pace(Duration::from_millis(500), |step| {
        let site = Site::with_limits(|limits| limits.send_timeout = 6 * step);
        let mut client = site.connect_narrow();
        client.send("GET /large.bin HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert_eq!(client.try_response(To::Head).map(|response| response.status), Some(200));
        let mut taken = 0;
        for _ in 0..8 {
            wait(step);
            taken += client.exactly(1024 * 1024).len();
        }
        assert_eq!(taken + client.rest().len(), crate::site::LARGE);
    });
}

/// Many stalled clients do not slow down the others.
#[test]
fn stalled_clients_leave_the_others_alone() {
    let site = Site::start();
    let stalled: Vec<_> = (0..200)
        .map(|number| {
            let mut client = site.connect_narrow();
            client.send(match number % 3 {
                0 => "GET /ten.txt HTTP/1.1\r\nHost: a\r\nX: ",
                1 => "POST /ten.txt HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nx",
                _ => "GET /large.bin HTTP/1.1\r\nHost: a\r\n\r\n",
            });
            client
        })
        .collect();
    for _ in 0..20 {
        assert_eq!(site.ask(GET).text(), "0123456789");
    }
    drop(stalled);
    site.assert_connections_fall_to(0);
}
