//! Closed loops, open loops, counts, times, slow clients.

use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use crate::program::{Place, percentile};
use crate::scripted::{Does, Server, after, freezing, page};

#[test]
fn the_number_of_requests_and_connections_is_exact() {
    let server = Server::start(|_| Does::Answer(page("x")));
    let total = Place::new().total(&["-n", "101", "-c", "7", &server.url("/")]);
    assert_eq!(
        (total["requests"].as_u64(), total["connections_opened"].as_u64()),
        (Some(101), Some(7))
    );
    assert_eq!(total["statuses"]["200"], 101);
    // Two more looked at the answer before.
    assert_eq!(server.requests().len(), 103);
    let threads = Place::new().total(&["-n", "101", "-c", "7", "--threads", "3", &server.url("/")]);
    assert_eq!(threads["requests"], 101);
    // A thread that gets no processor in time finds nothing left to ask for.
    let opened = threads["connections_opened"].as_u64().expect("a number");
    assert!((2..=7).contains(&opened), "{opened} connections");
}

#[test]
fn without_keep_alive_every_request_has_its_connection() {
    let server = Server::start(|_| Does::Answer(page("x")));
    let total = Place::new().total(&["-n", "60", "-c", "4", "--no-keepalive", &server.url("/")]);
    assert_eq!(
        (total["requests"].as_u64(), total["connections_opened"].as_u64()),
        (Some(60), Some(60))
    );
    assert_eq!(total["connect"]["count"], 60);
    assert_eq!(server.connections(), 62);
}

#[test]
fn a_request_to_a_server_that_closes_is_repeated_on_a_new_connection() {
    let server = Server::start(|asked| {
        let answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx".to_vec();
        if asked.number % 3 == 2 {
            Does::AnswerAndClose(answer)
        } else {
            Does::Answer(page("x"))
        }
    });
    let total = Place::new().total(&["-n", "90", "-c", "1", &server.url("/")]);
    assert_eq!(
        (total["requests"].as_u64(), total["failures"]["short_body"].as_u64()),
        (Some(90), Some(0))
    );
    // Thirty were closed after an answer; the last two answers came on one more.
    assert_eq!(total["connections_opened"], 31);
}

#[test]
fn chunked_bodies_are_counted_without_their_framing() {
    let server = Server::start(|_| {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        Does::Answer(format!("{head}5\r\nhello\r\n3;a=b\r\n, w\r\n0\r\n\r\n").into_bytes())
    });
    let total = Place::new().total(&["-n", "20", "-c", "2", &server.url("/")]);
    assert_eq!(
        (total["requests"].as_u64(), total["bytes"]["body"].as_u64()),
        (Some(20), Some(160))
    );
    assert_eq!(total["connections_opened"], 2);
}

#[test]
fn a_timed_run_ends_in_time() {
    let server = Server::start(|_| after(Duration::from_millis(5), "x"));
    let begun = Instant::now();
    let total = Place::new().total(&["--duration", "700ms", "--warmup", "0", "-c", "2", &server.url("/")]);
    assert!(begun.elapsed() < Duration::from_secs(60));
    assert_eq!(total["duration_s"], 0.7);
    assert!(total["requests"].as_u64().expect("a count") > 2, "{total}");
}

/// The server freezes for a second of every five. A closed loop sends nothing meanwhile and shows milliseconds.
#[test]
fn an_open_loop_sees_the_freeze_that_a_closed_loop_hides() {
    // A machine that stalls by itself shows that to both; then there is nothing to compare.
    let found = (0..3)
        .map(|_| open_and_closed())
        .find(|(seen, hidden)| hidden < &(seen / 2));
    assert!(found.is_some(), "the closed loop has seen as much as the open one");
}

/// The 95th percentiles of an open and of a closed loop on a server that freezes now and then, µs.
fn open_and_closed() -> (u64, u64) {
    let open = thread::spawn(|| {
        let server = freezing();
        Place::new().total(&[
            "--rate",
            "100",
            "--duration",
            "10s",
            "-c",
            "40",
            "--warmup",
            "0",
            &server.url("/"),
        ])
    });
    let closed = thread::spawn(|| {
        let server = freezing();
        Place::new().total(&["--duration", "10s", "-c", "5", "--warmup", "0", &server.url("/")])
    });
    let (open, closed) = (open.join().expect("measured"), closed.join().expect("measured"));
    let seen = percentile(&open["latency"], 99.0);
    assert!(seen > 900_000, "p99 of the open loop is {seen} µs");
    assert!(open["sent_late"]["count"].as_u64().expect("a count") > 0);
    assert!(percentile(&open["service"], 50.0) <= percentile(&open["latency"], 50.0));
    (percentile(&open["latency"], 95.0), percentile(&closed["latency"], 95.0))
}

#[test]
fn a_rate_is_kept_by_both_kinds_of_arrivals() {
    for arrivals in ["constant", "poisson"] {
        let server = Server::start(|_| Does::Answer(page("x")));
        let url = server.url("/");
        let arguments = [
            "--rate",
            "200/s",
            "--arrivals",
            arrivals,
            "-n",
            "300",
            "-c",
            "20",
            "--seed",
            "5",
            &url,
        ];
        let total = Place::new().total(&arguments);
        assert_eq!(total["requests"], 300, "{arrivals}");
        let seconds = total["duration_s"].as_f64().expect("a time");
        assert!(seconds > 1.2, "{arrivals}: 300 at 200 a second took {seconds} s");
    }
}

#[test]
fn a_rate_that_cannot_be_reached_is_named() {
    let server = Server::start(|_| after(Duration::from_millis(50), "x"));
    let run = Place::new().measure(&[
        "--rate",
        "500",
        "--duration",
        "1s",
        "-c",
        "2",
        "--warmup",
        "0",
        &server.url("/"),
    ]);
    let warnings = run["warnings"].to_string();
    assert!(warnings.contains("target rate not reached"), "{warnings}");
    assert!(run["points"][0]["total"]["waited_for_connection"].as_u64() > Some(0));
}

/// A server that answers at once, but freezes between two moments of a run. The two requests before it do not count.
fn away(from: Duration, to: Duration) -> Server {
    let begun = OnceLock::new();
    Server::start(move |asked| {
        if asked.number >= 2 {
            let at = begun.get_or_init(Instant::now).elapsed();
            if (from..to).contains(&at) {
                thread::sleep(to - at);
            }
        }
        Does::Answer(page("x"))
    })
}

/// The server is frozen when the slice ends. Requests that were due meanwhile found no connection. They are sent
/// nevertheless, their wait is in the latency, and they count in no rate.
#[test]
fn requests_due_before_the_end_are_sent_and_waited_for_after_it() {
    let server = away(Duration::from_millis(1500), Duration::from_millis(2500));
    let total = Place::new().total(&[
        "--rate",
        "200",
        "--duration",
        "2s",
        "-c",
        "4",
        "--threads",
        "1",
        "--warmup",
        "0",
        &server.url("/"),
    ]);
    let good = total["requests"].as_u64().expect("a count");
    let unanswered = total["failures"]["unanswered"].as_u64().expect("a count");
    assert_eq!(good + unanswered, 400, "{total}");
    assert_eq!(total["latency"]["count"], 400);
    // A quarter of them was due while nobody was there.
    let p90 = percentile(&total["latency"], 90.0);
    let p99 = percentile(&total["latency"], 99.0);
    assert!(p90 > 500_000 && p99 > 800_000, "p90 is {p90} µs, p99 {p99} µs");
    assert_eq!(total["duration_s"], 2.0);
    let rate = total["requests_per_second"].as_f64().expect("a rate");
    assert!(rate < 190.0, "{rate} a second, of which a quarter came behind the end");
}

#[test]
fn unanswered_requests_are_counted() {
    let server = away(Duration::from_millis(500), Duration::from_secs(60));
    let run = Place::new().measure(&[
        "--rate",
        "200",
        "--duration",
        "1s",
        "-c",
        "4",
        "--threads",
        "1",
        "--warmup",
        "0",
        &server.url("/"),
    ]);
    let total = &run["points"][0]["total"];
    let good = total["requests"].as_u64().expect("a count");
    let unanswered = total["failures"]["unanswered"].as_u64().expect("a count");
    assert_eq!(good + unanswered, 200, "{total}");
    assert!(unanswered > 50, "{unanswered} of about a hundred");
    assert_eq!(run["points"][0]["slices"][0]["failed"], unanswered);
    // They are in the latency with what they have waited: half a second of the slice, and the grace behind it.
    assert_eq!(total["latency"]["count"], 200);
    let longest = total["latency"]["max_us"].as_u64().expect("a time");
    assert!(longest > 1_200_000, "the longest is {longest} µs");
    assert!(total["waited_for_connection"].as_u64() > Some(50), "{total}");
    let warnings = run["warnings"].to_string();
    assert!(warnings.contains(&format!("{unanswered} unanswered")), "{warnings}");
}

#[test]
fn a_rate_of_new_connections_opens_one_for_each_request() {
    let server = Server::start(|_| Does::Answer(page("x")));
    let total = Place::new().total(&["--conn-rate", "100", "-n", "50", &server.url("/")]);
    assert_eq!(
        (total["requests"].as_u64(), total["connections_opened"].as_u64()),
        (Some(50), Some(50))
    );
}

#[test]
fn slow_readers_and_slow_senders_keep_their_rate() {
    let server = Server::start(|_| Does::Answer(page(&"x".repeat(40_000))));
    let read = Place::new().total(&["-n", "2", "-c", "2", "--read", "80KB/s", &server.url("/")]);
    assert_eq!(
        (read["requests"].as_u64(), read["bytes"]["body"].as_u64()),
        (Some(2), Some(80_000))
    );
    let shortest = read["latency"]["min_us"].as_u64().expect("a time");
    assert!(shortest > 400_000, "40 KB at 80 KB/s took {shortest} µs");
    let body = "y".repeat(20_000);
    let send = Place::new().total(&[
        "-n",
        "2",
        "-c",
        "2",
        "--send",
        "40KB/s",
        "--body",
        &body,
        &server.url("/"),
    ]);
    assert_eq!(send["requests"], 2);
    let shortest = send["latency"]["min_us"].as_u64().expect("a time");
    assert!(shortest > 400_000, "20 KB at 40 KB/s took {shortest} µs");
    assert!(server.requests().iter().any(|asked| asked.body.len() == 20_000));
}

#[test]
fn memory_does_not_grow_with_the_number_of_requests() {
    let server = Server::start(|_| Does::Answer(page("x")));
    let memory = |count: &str| {
        let total = Place::new().total(&["-n", count, "-c", "8", &server.url("/")]);
        assert_eq!(total["requests"].to_string(), count);
        total["generator"]["rss_bytes"].as_u64().expect("measured")
    };
    let (few, many) = (memory("1000"), memory("20000"));
    assert!(many < few + 3_000_000, "{few} bytes became {many}");
}
