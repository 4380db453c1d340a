//! What `/metrics` and its neighbours on the admin address say, compared with what was done.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::support::client::{Connection, Request};
use super::support::haulier::Haulier;
use super::support::metrics::Metrics;
use super::support::php_fpm::Socket;
use super::support::site::{Php, Site};
use super::support::wait_until;

/// A body of twenty megabytes, made by PHP in small pieces.
const LARGE: &str = "header('Content-Type: text/csv'); for ($i = 0; $i < 320; $i++) { echo str_repeat('x', 65536); }";

fn requests(handler: &str, code: &str) -> String {
    format!("haulier_requests_total{{site=\"test\",handler=\"{handler}\",code=\"{code}\"}}")
}

/// The metrics once everything asked is counted: a response may arrive a moment before that.
#[track_caller]
fn settled(server: &Haulier) -> Metrics {
    let under_way = || {
        let now = server.metrics();
        now.count("haulier_requests_in_flight{site=\"test\"}") + now.count("haulier_connections{proto=\"h1\"}")
    };
    wait_until("no request and no connection", || under_way() == 0);
    server.metrics()
}

#[test]
fn every_metric_is_there_from_the_start() {
    let server = Site::new().php("index.php", "echo 'hello';").start();
    let metrics = server.metrics();
    let zeros = [
        "haulier_requests_total{site=\"test\",handler=\"handed\",code=\"2xx\"}",
        "haulier_request_duration_seconds_count{site=\"test\",handler=\"static\"}",
        "haulier_request_duration_seconds_bucket{le=\"60.0\",site=\"test\",handler=\"php\"}",
        "haulier_response_bytes_total{site=\"test\",handler=\"php\",encoding=\"identity\"}",
        "haulier_requests_in_flight{site=\"test\"}",
        "haulier_connections{proto=\"h1\"}",
        "haulier_php_workers{pool=\"php\",state=\"busy\"}",
        "haulier_php_queue_length{pool=\"php\"}",
        "haulier_php_queue_wait_seconds_count{pool=\"php\"}",
        "haulier_php_busy_seconds_total{pool=\"php\"}",
        "haulier_php_worker_exits_total{pool=\"php\",reason=\"crash\"}",
        "haulier_php_worker_exits_total{pool=\"php\",reason=\"timeout\"}",
        "haulier_php_worker_exits_total{pool=\"php\",reason=\"max_requests\"}",
        "haulier_handoffs_total{site=\"test\",via=\"x-accel\"}",
        "haulier_handoffs_total{site=\"test\",via=\"transparent\"}",
        "haulier_worker_seconds_saved_total{site=\"test\"}",
        "haulier_spool_bytes",
        "haulier_spool_full_total",
        "haulier_errors_total{site=\"test\",reason=\"pool_full\"}",
    ];
    for series in zeros {
        assert_eq!(metrics.value(series), 0.0, "{series}");
    }
    assert_eq!(metrics.count("haulier_php_workers_max{pool=\"php\"}"), 4);
    assert_eq!(metrics.sum("haulier_php_workers{"), 4.0);
    assert_eq!(metrics.sum("haulier_build_info{version="), 1.0);
    wait_until("memory of PHP", || {
        server.metrics().value("haulier_php_memory_bytes{pool=\"php\"}") > 1e6
    });
    for series in [
        "process_resident_memory_bytes",
        "process_open_fds",
        "process_start_time_seconds",
        "process_threads",
    ] {
        assert!(metrics.value(series) > 0.0, "{series}");
    }
}

#[test]
fn what_was_asked_is_what_was_counted() {
    let server = Site::new()
        .php("index.php", "echo 'hello';")
        .php("boom.php", "http_response_code(500); echo 'boom';")
        .file("a.txt", "0123456789")
        .setting("redirects = { \"/old\" = \"/new\" }")
        .setting("deny = [\"/secret/*\"]")
        .start();
    let before = server.metrics();
    for target in [
        "/a.txt",
        "/a.txt",
        "/a.txt",
        "/index.php",
        "/index.php",
        "/old",
        "/secret/x",
        "/missing",
    ] {
        server.get(target);
    }
    server.get("/boom.php").expect(500);
    server.ask_raw("GET / HTTP/1.1\r\n\r\n").expect(400);
    let after = settled(&server);
    let more = |series: &str| after.value(series) - before.value(series);
    let expected = [
        ("static", "2xx", 3.0),
        ("php", "2xx", 2.0),
        ("php", "5xx", 1.0),
        ("redirect", "3xx", 1.0),
        ("denied", "4xx", 1.0),
        ("error", "4xx", 1.0),
        ("static", "4xx", 0.0),
    ];
    for (handler, code, count) in expected {
        assert_eq!(more(&requests(handler, code)), count, "{handler} {code}");
    }
    assert_eq!(
        more("haulier_requests_total{site=\"(none)\",handler=\"error\",code=\"4xx\"}"),
        1.0
    );
    assert_eq!(
        more("haulier_errors_total{site=\"(none)\",reason=\"bad_request\"}"),
        1.0
    );
    assert_eq!(
        more("haulier_request_duration_seconds_count{site=\"test\",handler=\"static\"}"),
        3.0
    );
    assert_eq!(more("haulier_php_queue_wait_seconds_count{pool=\"php\"}"), 3.0);
    let bytes = more("haulier_response_bytes_total{site=\"test\",handler=\"static\",encoding=\"identity\"}");
    assert!(
        (300.0..3000.0).contains(&bytes),
        "three heads and thirty bytes are {bytes}"
    );
    assert!(more("haulier_php_busy_seconds_total{pool=\"php\"}") > 0.0);
}

#[test]
fn bytes_are_told_by_the_coding_they_went_out_in() {
    let text = "word by word ".repeat(4000);
    let long = "header('Content-Type: text/html'); for ($i = 0; $i < 100; $i++) { echo str_repeat('word ', 1000); }";
    let server = Site::new()
        .php("short.php", "echo str_repeat('word ', 500);")
        .php("long.php", long)
        .file("a.txt", text.as_str())
        .file("a.txt.gz", [&[0x1f, 0x8b, 8][..], &[7; 997]].concat())
        .start();
    let asks = [
        ("/short.php", "br", "php"),
        ("/long.php", "zstd", "php"),
        ("/a.txt", "gzip", "static"),
        ("/a.txt", "identity", "static"),
    ];
    let mut bodies = Vec::new();
    for (target, coding, _) in asks {
        let response = server
            .ask(&Request::get(target).with("Accept-Encoding", coding))
            .expect(200);
        assert_eq!(
            response.field("Content-Encoding").unwrap_or("identity"),
            coding,
            "{target}"
        );
        bodies.push(response.body.len() as f64);
    }
    let metrics = settled(&server);
    let sent = |handler: &str, coding: &str| {
        metrics.value(&format!(
            "haulier_response_bytes_total{{site=\"test\",handler=\"{handler}\",encoding=\"{coding}\"}}"
        ))
    };
    for ((target, coding, handler), body) in asks.into_iter().zip(bodies) {
        let bytes = sent(handler, coding);
        // With its head, and what frames a body without a length.
        assert!(
            (body..body + 1500.0).contains(&bytes),
            "{target} in {coding}: {bytes} of {body}"
        );
    }
    assert_eq!(
        sent("php", "identity") + sent("static", "br") + sent("static", "dcz"),
        0.0
    );
}

#[test]
fn hosts_and_paths_that_clients_make_up_make_no_series() {
    let server = Site::new()
        .php("index.php", "echo 'hello';")
        .setting("hosts = [\"known.example\"]")
        .start();
    let before = server.metrics();
    for number in 0..200 {
        let target = format!("/made-up-{number}/%22%7D{number}?site=made-up-{number}");
        let host = ["known.example".to_owned(), format!("made-up-{number}.example")][number % 2].clone();
        let method = if number % 7 == 0 {
            format!("MADEUP{number}")
        } else {
            "GET".to_owned()
        };
        server.ask(&Request::new(&method, &target).with("Host", &host));
    }
    let after = settled(&server);
    let new: Vec<_> = after
        .names()
        .into_iter()
        .filter(|name| !before.names().contains(name))
        .collect();
    assert_eq!(new, Vec::<&str>::new());
    assert_eq!(after.names().len(), before.names().len());
    assert!(!after.names().iter().any(|name| name.contains("made-up")));
    assert_eq!(
        after.sum("haulier_requests_total{") - before.sum("haulier_requests_total{"),
        200.0
    );
}

#[test]
fn a_worker_killed_in_the_middle_is_counted_and_missed_by_nobody() {
    let server = Site::new()
        .workers(1)
        .php("index.php", "echo 'hello';")
        .php("die.php", "posix_kill(getmypid(), 9);")
        .start();
    server.get("/index.php").expect(200);
    server.get("/die.php").expect(502);
    server.get("/index.php").expect(200);
    let metrics = settled(&server);
    assert_eq!(
        metrics.count("haulier_php_worker_exits_total{pool=\"php\",reason=\"crash\"}"),
        1
    );
    assert_eq!(
        metrics.count("haulier_errors_total{site=\"test\",reason=\"php_crashed\"}"),
        1
    );
    assert_eq!(metrics.count(&requests("error", "5xx")), 1);
}

#[test]
fn a_body_that_breaks_off_has_the_reason_of_the_worker_that_broke() {
    let server = Site::new()
        .php(
            "half.php",
            "header('Content-Length: 1000000'); echo str_repeat('x', 200000); flush(); posix_kill(getmypid(), 9);",
        )
        .start();
    let mut connection = server.connect();
    connection.send(Request::get("/half.php").to_bytes());
    assert!(connection.read_response("GET").is_err(), "a cut body is no response");
    assert_eq!(server.access_line_for("/half.php")["reason"], "php_crashed");
    let metrics = settled(&server);
    assert_eq!(
        metrics.count("haulier_errors_total{site=\"test\",reason=\"php_crashed\"}"),
        1
    );
    assert_eq!(
        metrics.count("haulier_errors_total{site=\"test\",reason=\"client_gone\"}"),
        0
    );
}

#[test]
fn a_slow_reader_of_a_large_page_is_worker_time_saved() {
    let server = Site::new()
        .workers(1)
        .php("export.php", LARGE)
        .php("index.php", "echo 'hello';")
        .start();
    let mut reader = server.connect();
    reader.send(Request::get("/export.php").to_bytes());
    let head = reader.read_head().expect("a head");
    assert_eq!(head.status, 200);
    let sending = "haulier_responses_sending{site=\"test\"}";
    wait_until("a download under way", || server.metrics().count(sending) == 1);
    // The only worker answers others while the client has not read a byte of the body.
    server.get("/index.php").expect(200);
    wait_until("a worker that is done", || {
        server
            .metrics()
            .count("haulier_php_workers{pool=\"php\",state=\"busy\"}")
            == 0
    });
    assert!(server.metrics().value("haulier_spool_bytes") > 1e6);
    let waited = Instant::now();
    thread::sleep(Duration::from_secs(1));
    let waited = waited.elapsed().as_secs_f64();
    let mut received = 0;
    while let Ok(chunk) = reader.read_chunk() {
        if chunk.is_empty() {
            break;
        }
        received += chunk.len();
    }
    assert_eq!(received, 320 * 65536);
    let saved = "haulier_worker_seconds_saved_total{site=\"test\"}";
    wait_until("the time the worker was spared", || {
        server.metrics().value(saved) >= waited
    });
    let metrics = server.metrics();
    assert!(metrics.value("haulier_response_bytes_total{site=\"test\",handler=\"php\",encoding=\"identity\"}") > 20e6);
    assert_eq!(metrics.count(sending), 0);
    drop(reader);
    wait_until("an empty spool", || {
        server.metrics().value("haulier_spool_bytes") == 0.0
    });
}

#[test]
fn the_admin_address_answers_get_for_loopback_names_only() {
    let server = Site::new().file("a.txt", "a").start();
    let ask = |request: &Request| Connection::open(server.admin()).ask(request);
    for (request, status) in [
        (Request::get("/metrics"), 200),
        (Request::get("/metrics").with("Host", "127.0.0.1:4870"), 200),
        (Request::get("/metrics").with("Host", "[::1]:4870"), 200),
        (Request::get("/metrics").with("Host", "evil.example"), 403),
        (Request::get("/healthz").with("Host", "evil.example:4870"), 403),
        (Request::post("/metrics", "x"), 405),
        (Request::new("DELETE", "/"), 405),
        (Request::head("/metrics"), 405),
        (Request::get("/a.txt"), 404),
        (Request::get("/"), 200),
    ] {
        assert_eq!(ask(&request).status(), status, "{request:?}");
    }
    let metrics = ask(&Request::get("/metrics"));
    assert_eq!(
        metrics.field("Content-Type"),
        Some("application/openmetrics-text; version=1.0.0; charset=utf-8")
    );
    assert_eq!(metrics.field("Connection"), Some("close"));
    let mut connection = Connection::open(server.admin());
    connection.send("nonsense\r\n\r\n");
    assert_eq!(connection.read_response("GET").expect("an answer").status(), 400);
    // Nothing of this counts as traffic of a site.
    assert_eq!(server.metrics().sum("haulier_requests_total{"), 0.0);
}

#[test]
fn a_client_that_says_nothing_keeps_nobody_from_the_metrics() {
    let server = Site::new().file("a.txt", "a").start();
    let silent: Vec<_> = (0..10).map(|_| Connection::open(server.admin())).collect();
    server.metrics();
    drop(silent);
}

/// The machine may be busy with other things, so the best of several counts.
fn best_of_several(mut ask: impl FnMut()) -> Duration {
    let took = (0..5).map(|_| {
        let start = Instant::now();
        ask();
        start.elapsed()
    });
    took.min().expect("several")
}

#[test]
fn a_hundred_silent_clients_keep_no_health_check_waiting() {
    let server = Site::new().file("a.txt", "a").start();
    let mut silent = Vec::new();
    let took = best_of_several(|| {
        silent.extend((0..100).map(|_| Connection::open(server.admin())));
        Connection::open(server.admin())
            .ask(&Request::get("/healthz"))
            .expect(200);
    });
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert!(silent[0].is_closed_by_server());
}

#[test]
fn a_hundred_silent_clients_of_the_control_socket_keep_no_command_waiting() {
    let server = Site::new().file("a.txt", "a").start();
    let mut silent = Vec::new();
    let took = best_of_several(|| {
        // Its queue is short: connecting waits for the server.
        silent.extend((0..100).map(|_| UnixStream::connect(server.control()).expect("it listens")));
        assert!(server.tell(&["status", "--json"]).status.success());
        server.reload();
    });
    assert!(took < Duration::from_secs(4), "{took:?}");
}

#[test]
fn a_server_without_descriptors_still_tells_how_it_is() {
    let site = Site::new();
    for number in 0..60 {
        let file = fs::File::create(site.root().join(format!("{number}.bin"))).expect("the directory is ours");
        file.set_len(64 << 20).expect("a file of nothing");
    }
    let server = site.start_with_descriptors(64);
    let downloads: Vec<Connection> = (0..60)
        .map(|number| {
            let mut connection = server.connect();
            connection.send(format!("GET /{number}.bin HTTP/1.1\r\nHost: a\r\n\r\n"));
            connection
        })
        .collect();
    let is_pause = |line: &&String| line.contains("new ones wait") || line.contains("accepting pauses");
    wait_until("a lack of room", || server.lines().iter().any(|line| is_pause(&line)));
    for _ in 0..20 {
        Connection::open(server.admin())
            .ask(&Request::get("/healthz"))
            .expect(200);
        let status = server.tell(&["status", "--json"]);
        assert!(status.status.success(), "{status:?}");
    }
    let said = server.lines().iter().filter(is_pause).count();
    assert!(said <= 6, "{said} lines about a lack of room");
    drop(downloads);
}

#[test]
fn health_is_that_of_the_pools() {
    let healthy = |server: &Haulier| Connection::open(server.admin()).ask(&Request::get("/healthz"));
    let (server, fpm) = Site::new()
        .php("index.php", "echo 'hello';")
        .pool("keep_conn = true")
        .run_by(Php::Fpm(Socket::Unix))
        .start_beside_fpm();
    server.get("/index.php").expect(200);
    healthy(&server).expect(200);
    let metrics = server.metrics();
    assert_eq!(metrics.sum("haulier_upstream_up{pool=\"php\",server=\"unix:"), 1.0);
    wait_until("a connection that is kept for a while", || {
        server.get("/index.php").expect(200);
        server
            .metrics()
            .sum("haulier_upstream_connections{pool=\"php\",server=\"unix:")
            == 1.0
    });
    assert_eq!(metrics.sum("haulier_php_workers{pool=\"php\""), 4.0);
    drop(fpm);
    server.get("/index.php").expect(502);
    assert!(healthy(&server).expect(503).text().contains("php"));
    let ask = |path: &str| Connection::open(server.admin()).ask(&Request::get(path));
    assert!(ask("/readyz").expect(503).text().contains("php"));
    ask("/livez").expect(200);
    assert_eq!(server.metrics().sum("haulier_upstream_up{"), 0.0);

    let files = Site::new().file("a.txt", "a").start();
    healthy(&files).expect(200);
}

#[test]
fn probes_may_have_an_address_that_tells_nothing_else() {
    let server = Site::new()
        .file("a.txt", "a")
        .server("probes = \"127.0.0.1:0\"")
        .start();
    let ask = |request: Request| Connection::open(server.probes()).ask(&request);
    for path in ["/livez", "/readyz"] {
        assert_eq!(ask(Request::get(path)).expect(200).text(), "ok\n");
        // By the name of a pod or a balancer.
        ask(Request::get(path).with("Host", "pod.example")).expect(200);
        Connection::open(server.admin()).ask(&Request::get(path)).expect(200);
    }
    for path in ["/", "/metrics", "/healthz", "/api/state.json"] {
        ask(Request::get(path)).expect(404);
    }
}

#[test]
fn a_php_that_is_ended_from_outside_is_counted_and_comes_back() {
    let server = Site::new().php("index.php", "echo 'hello';").start();
    server.get("/index.php").expect(200);
    let master = super::support::haulier::children_of(server.pid());
    let master = Pid::from_raw(i32::try_from(master[0]).expect("a pid")).expect("not zero");
    kill_process(master, Signal::KILL).expect("it runs");
    wait_until("a new php-cgi", || {
        server
            .metrics()
            .count("haulier_php_worker_exits_total{pool=\"php\",reason=\"master\"}")
            == 1
    });
    server.get("/index.php").expect(200);
    Connection::open(server.admin())
        .ask(&Request::get("/healthz"))
        .expect(200);
}

#[test]
fn the_admin_address_may_be_a_socket_file_or_nothing() {
    let site = Site::new().file("a.txt", "a");
    let path = site.writable("run").join("admin.sock");
    let (config, _) = site.prepare();
    let text = fs::read_to_string(&config).expect("just written");
    let with = |admin: &str| text.replace("admin = \"localhost:0\"", &format!("admin = {admin:?}"));
    let start = |text: String| {
        fs::write(&config, text).expect("the directory is ours");
        let mut command = Haulier::command();
        command.arg("run").arg("-c").arg(&config);
        Haulier::start(command, Vec::new())
    };
    let server = start(with(&format!("unix:{}", path.display())));
    let mut stream = UnixStream::connect(&path).expect("it listens");
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers and closes");
    assert!(
        answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("ok\n"),
        "{answer}"
    );
    drop(server);
    assert!(!path.exists(), "the file goes with the server");

    let server = start(with("off"));
    assert!(server.start_line()["admin"].is_null());
    server.get("/a.txt").expect(200);
}
