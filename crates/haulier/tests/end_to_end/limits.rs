//! Limits and deadlines of a connection and a request: what is too long, too slow or too much.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use super::support::client::{Connection, Request};
use super::support::haulier::Haulier;
use super::support::site::Site;
use super::support::{at_some_pace, setting, wait_until};

fn page() -> Site {
    Site::new().file("a.txt", "page")
}

#[test]
fn a_request_line_beyond_the_limit_is_414() {
    let server = page().start();
    server.get(&format!("/a.txt?{}", "x".repeat(7000))).expect(200);
    server.get(&format!("/a.txt?{}", "x".repeat(20_000))).expect(414);
}

#[test]
fn a_head_beyond_the_limits_is_431() {
    let server = page().start();
    server
        .ask(&Request::get("/a.txt").with("X-Long", &"x".repeat(30_000)))
        .expect(200);
    server
        .ask(&Request::get("/a.txt").with("X-Long", &"x".repeat(40_000)))
        .expect(431);
    let fields = |count| {
        (0..count).fold(Request::get("/a.txt"), |request, number| {
            request.with(&format!("X{number}"), "1")
        })
    };
    server.ask(&fields(90)).expect(200);
    server.ask(&fields(120)).expect(431);
    server.ask(&fields(2500)).expect(431);
}

#[test]
fn limits_are_those_of_the_configuration() {
    let server = page().limit("header = \"2KiB\"\nheader_fields = 20").start();
    server
        .ask(&Request::get("/a.txt").with("X-Long", &"x".repeat(1500)))
        .expect(200);
    server
        .ask(&Request::get("/a.txt").with("X-Long", &"x".repeat(3000)))
        .expect(431);
    let many = (0..25).fold(Request::get("/a.txt"), |request, number| {
        request.with(&format!("X{number}"), "1")
    });
    server.ask(&many).expect(431);
}

#[test]
fn a_field_too_long_for_fastcgi_is_431_and_the_pool_lives() {
    let site = Site::new()
        .php("hello.php", "echo strlen($_COOKIE['c'] ?? '');")
        .workers(1);
    let server = site.limit("header = \"256KiB\"").start();
    let cookie = |length| Request::get("/hello.php").with("Cookie", &format!("c={}", "x".repeat(length)));
    for _ in 0..3 {
        // A value of 65,536 bytes has no place in a record.
        server.ask(&cookie(70_000)).expect(431);
        assert_eq!(server.ask(&cookie(60_000)).expect(200).text(), "60000");
    }
}

#[test]
fn a_body_beyond_the_limit_is_413_before_it_is_asked_for() {
    let server = Site::new()
        .php("up.php", "echo strlen(file_get_contents('php://input'));")
        .limit("body = \"1MiB\"")
        .start();
    let mut connection = server.connect();
    connection.send("POST /up.php HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2000000\r\n\r\n");
    let response = connection.read_response("POST").expect("an answer").expect(413);
    assert!(
        response.interim.is_empty(),
        "no 100 Continue for a body that is refused"
    );
    assert!(
        connection.is_closed_by_server(),
        "the body may still come: the connection must not be used again"
    );
    server.ask(&Request::post("/up.php", vec![b'x'; 2_000_000])).expect(413);
    assert_eq!(
        server
            .ask(&Request::post("/up.php", vec![b'x'; 1_000_000]))
            .expect(200)
            .text(),
        "1000000"
    );
}

#[test]
fn a_413_names_the_limit_and_the_log_the_setting_too() {
    let site = |line: &str| {
        Site::new()
            .php("up.php", "echo 'up';")
            .ini("post_max_size", "1M")
            .limit(line)
    };
    let rows = [
        (
            "",
            "2000000 bytes, at most 1048576 by PHP's post_max_size",
            "at most 1 MiB.",
        ),
        (
            "body = \"1500KiB\"",
            "2000000 bytes, at most 1536000 by `body` in `[limits]`",
            "at most 1.4 MiB.",
        ),
    ];
    for (line, detail, told) in rows {
        let server = site(line).start();
        let page = server.ask(&Request::post("/up.php", vec![b'x'; 2_000_000])).expect(413);
        assert!(
            page.text().contains(told) && !page.text().contains("post_max_size"),
            "{}",
            page.text()
        );
        let logged = server.access_line_for("/up.php");
        assert!(
            logged["detail"].as_str().is_some_and(|said| said.starts_with(detail)),
            "{logged}"
        );
    }
}

#[test]
fn all_request_bodies_together_take_no_more_disk_than_they_may() {
    let site = Site::new().writable_for_gate();
    let gate = site.root().with_file_name("gates").join("gate");
    let code = format!(
        "for ($i = 0; $i < 12000 && !file_exists('{}'); $i++) {{ usleep(10000); clearstatcache(); }} echo 'ran';",
        gate.display()
    );
    let server = site.php("up.php", &code).limit("body_spool = \"300KiB\"").start();
    let body = || Request::post("/up.php", vec![b'x'; 200 * 1024]);
    let mut first = server.connect();
    first.send(body().to_bytes());
    let busy = "haulier_php_workers{pool=\"php\",state=\"busy\"}";
    wait_until("the first is there as a whole", || server.metrics().count(busy) == 1);
    wait_until("no room for another", || {
        let mut second = server.connect();
        second.send(body().to_bytes());
        if !second.hears_something_within(Duration::from_millis(500)) {
            second.reset();
            return false;
        }
        second.read_response("POST").is_ok_and(|answer| answer.status() == 503)
    });
    wait_until("a line that says why", || {
        server
            .access_log()
            .iter()
            .any(|line| line["reason"] == "body_spool_full")
    });
    server.wait_for_line("`body_spool` is used up");
    fs::write(&gate, "").expect("ours");
    first.read_response("POST").expect("an answer").expect(200);
    wait_until("room again", || server.ask(&body()).status() == 200);
}

#[test]
fn a_chunked_body_beyond_the_limit_is_413() {
    let server = Site::new()
        .php("up.php", "echo 'ran';")
        .limit("body = \"64KiB\"")
        .start();
    let mut connection = server.connect();
    connection.send("POST /up.php HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    for _ in 0..20 {
        // The answer may come and the connection end while we are still sending.
        let _ = connection.try_send(format!("{:x}\r\n{}\r\n", 8192, "x".repeat(8192)));
    }
    connection.read_response("POST").expect("an answer").expect(413);
}

#[test]
fn a_chunk_that_is_announced_beyond_the_limit_is_413_before_its_bytes_come() {
    let server = Site::new()
        .php("up.php", "echo 'ran';")
        .limit("body = \"64KiB\"")
        .start();
    let head = "POST /up.php HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    for size in ["8000000000000005\r\n", "10001\r\n", "8000\r\n"] {
        let mut connection = server.connect();
        connection.send(head);
        if size == "8000\r\n" {
            // The second half is too much: 0x8001 + 0x8000.
            connection.send(format!("8001\r\n{}\r\n", "x".repeat(0x8001)));
        }
        connection.send(size);
        let response = connection.read_response("POST").expect("an answer");
        assert_eq!(response.status(), 413, "{size:?}: 408 is the end of the wait for bytes");
    }
    let mut connection = server.connect();
    connection.send(format!("{head}10000\r\n{}\r\n0\r\n\r\n", "x".repeat(0x10000)));
    connection.read_response("POST").expect("an answer").expect(200);
}

#[test]
fn expect_continue_is_answered_before_the_body() {
    let server = Site::new().php("up.php", "readfile('php://input');").start();
    let mut connection = server.connect();
    connection.send("POST /up.php HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
    assert_eq!(connection.read_head().expect("an interim answer").status, 100);
    connection.send("body");
    assert_eq!(
        connection.read_response("POST").expect("an answer").expect(200).text(),
        "body"
    );
}

#[test]
fn a_head_that_trickles_in_is_cut_off() {
    let server = page().limit("head_timeout = \"1s\"").start();
    let mut connection = server.connect();
    connection.send("GET /a.txt HTTP/1.1\r\n");
    // A byte now and then is no progress: the deadline is for the whole head.
    wait_until("the head to be cut off", || {
        thread::sleep(Duration::from_millis(100));
        connection.try_send("X").is_err() || connection.hears_something_within(Duration::from_millis(1))
    });
    if let Ok(response) = connection.read_response("GET") {
        assert_eq!(response.status(), 408);
    }
}

#[test]
fn a_body_that_stalls_is_408() {
    let server = Site::new()
        .php("up.php", "echo 'ran';")
        .limit("body_timeout = \"1s\"")
        .start();
    let mut connection = server.connect();
    connection.send("POST /up.php HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nhalf");
    let response = connection.read_response("POST").expect("an answer").expect(408);
    assert!(!response.text().contains("ran"));
    assert!(connection.is_closed_by_server());
}

/// The default site is patient, the other one is not.
fn with_an_impatient_site(site: Site, line: &str) -> Haulier {
    let root = site.root().display().to_string();
    site.config(&format!(
        "[site.hasty]\nhosts = [\"hasty.test\"]\nroot = {root:?}\napp = \"plain\"\n[site.hasty.limits]\n{line} = \"1s\""
    ))
    .start()
}

#[test]
fn a_site_may_have_less_patience_with_bodies_than_the_others() {
    let server = with_an_impatient_site(Site::new().php("up.php", "echo 'ran';"), "body_timeout");
    let [mut patient, mut hasty] = ["patient", "hasty"].map(|host| {
        let mut connection = server.connect();
        connection.send(format!(
            "POST /up.php HTTP/1.1\r\nHost: {host}.test\r\nContent-Length: 8\r\n\r\nhalf"
        ));
        connection
    });
    hasty.read_response("POST").expect("an answer").expect(408);
    patient.send("half");
    let answer = patient.read_response("POST").expect("an answer").expect(200);
    assert_eq!(answer.text(), "ran");
}

#[test]
fn a_site_may_have_less_patience_with_idle_connections_and_stalled_readers() {
    let server = with_an_impatient_site(Site::new().php("a.php", "echo 'page';"), "idle_timeout");
    let (mut patient, mut hasty) = (server.connect(), server.connect());
    patient.ask(&Request::get("/a.php")).expect(200);
    hasty
        .ask(&Request::get("/a.php").with("Host", "hasty.test"))
        .expect(200);
    assert!(hasty.is_closed_by_server());
    patient.ask(&Request::get("/a.php")).expect(200);
    // The site of the last request counts.
    patient
        .ask(&Request::get("/a.php").with("Host", "hasty.test"))
        .expect(200);
    assert!(patient.is_closed_by_server());

    let site = Site::new().php("a.php", "").file("big.bin", vec![7; 30_000_000]);
    let server = with_an_impatient_site(site, "send_timeout");
    let mut stalled = server.connect();
    stalled.send("GET /big.bin HTTP/1.1\r\nHost: hasty.test\r\n\r\n");
    wait_until("the one who takes nothing to be cut off", || {
        server.access_log().iter().any(|line| line["path"] == "/big.bin")
    });
    assert!(stalled.read_response("GET").is_err(), "not all of it can have come");
}

#[test]
fn an_idle_connection_is_closed() {
    let server = page().limit("idle_timeout = \"1s\"").start();
    let mut connection = server.connect();
    connection.ask(&Request::get("/a.txt")).expect(200);
    assert!(connection.is_closed_by_server());
}

#[test]
fn a_connection_carries_as_many_requests_as_it_may() {
    let server = page().limit("keepalive_requests = 3").start();
    let mut connection = server.connect();
    for number in 1..=3 {
        let response = connection.ask(&Request::get("/a.txt")).expect(200);
        assert_eq!(
            response.field("Connection") == Some("close"),
            number == 3,
            "answer {number}"
        );
    }
    assert!(connection.is_closed_by_server());
}

#[test]
fn a_reader_that_stalls_is_cut_off() {
    let server = Site::new()
        .file("big.bin", vec![7; 30_000_000])
        .limit("send_timeout = \"1s\"")
        .start();
    let mut connection = server.connect();
    connection.send(Request::get("/big.bin").to_bytes());
    connection.read_head().expect("a head");
    // The line is written when the exchange is over, and we have read nothing but the head.
    assert_eq!(server.access_line_for("/big.bin")["reason"], "send_timeout");
    let rest = connection.read_to_end().map_or(0, |rest| rest.len());
    assert!(rest < 30_000_000, "the whole file came");
}

/// The buffers between us hold several megabytes, and the kernel tells a server of room only when a third of its own is
/// free. Until then the reader is slow, not gone.
#[test]
fn a_slow_reader_behind_large_buffers_is_not_cut_off() {
    at_some_pace(Duration::from_secs(3), |patience| {
        let server = Site::new()
            .file("big.bin", vec![7; 40_000_000])
            .limit(&format!("send_timeout = {:?}", setting(patience)))
            .start();
        let url = format!("http://{}/big.bin", server.address());
        let mut curl = Command::new("curl")
            .args(["-sS", "--limit-rate", "100K", "-o", "/dev/null", &url])
            .stderr(Stdio::piped())
            .spawn()
            .expect("curl runs");
        thread::sleep(4 * patience);
        let has_ended = curl.try_wait().expect("it is ours").is_some();
        let _ = curl.kill();
        let output = curl.wait_with_output().expect("it ends");
        assert!(!has_ended, "it was cut off");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    });
}

#[test]
fn stalled_clients_leave_others_alone() {
    let site = page().php("up.php", "echo 'ran';").php("hello.php", "echo 'hello';");
    let server = site.file("big.bin", vec![7; 20_000_000]).start();
    let address = server.address();
    let starts = [
        "GET /a.txt HTTP/1.1\r\nHost: x\r\nX-Slow: ",
        "POST /up.php HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nslow",
        "GET /big.bin HTTP/1.1\r\nHost: x\r\n\r\n",
        "G",
        "POST /up.php HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5",
    ];
    let stall = |number: usize| {
        let mut connection = Connection::open(address);
        connection.send(starts[number % starts.len()]);
        connection
    };
    let stalled: Vec<Connection> = (0..500).map(stall).collect();
    for _ in 0..5 {
        server.assert_answers_in_time("/a.txt", "many stalled clients");
    }
    assert_eq!(server.get("/hello.php").expect(200).text(), "hello");
    drop(stalled);
}

#[test]
fn running_out_of_descriptors_pauses_and_never_spins() {
    let server = page().limit("head_timeout = \"60s\"").start_with_descriptors(64);
    let mut crowd: Vec<Connection> = (0..100).map(|_| server.connect()).collect();
    for connection in &mut crowd {
        connection.send("GET /a.txt HTTP/1.1\r\n");
    }
    // On a slow machine it may have something to do for a while.
    wait_until("two seconds with little use of the processor", || {
        let before = server.cpu_time();
        thread::sleep(Duration::from_secs(2));
        server.cpu_time() - before < Duration::from_millis(300)
    });
    drop(crowd);
    wait_until("room for a new connection", || server.get("/a.txt").status() == 200);
}

#[test]
fn idle_connections_make_room_where_descriptors_run_out() {
    let server = page().limit("idle_timeout = \"10m\"").start_with_descriptors(64);
    let mut crowd = Vec::new();
    for _ in 0..200 {
        let mut connection = server.connect();
        connection.ask(&Request::get("/a.txt")).expect(200);
        crowd.push(connection);
    }
    server.wait_for_line("the longest idle ones are closed");
}

#[test]
fn connections_of_one_address_may_be_limited() {
    let server = page().limit("connections_per_ip = 5").start();
    let mut held: Vec<Connection> = (0..5).map(|_| server.connect()).collect();
    for connection in &mut held {
        connection.ask(&Request::get("/a.txt")).expect(200);
        // It is used: an idle one would make room.
        connection.send("GET /a.txt HTTP/1.1\r\n");
    }
    let mut sixth = server.connect();
    let answer = sixth.try_ask(&Request::get("/a.txt"));
    assert!(answer.is_err() || answer.is_ok_and(|answer| matches!(answer.status(), 429 | 503)));
    drop(held);
    wait_until("a free place", || {
        server
            .connect()
            .try_ask(&Request::get("/a.txt"))
            .is_ok_and(|it| it.status() == 200)
    });
}
