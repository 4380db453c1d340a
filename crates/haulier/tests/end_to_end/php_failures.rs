//! PHP that is busy, slow, dead or gone: always the right status, always back.

use std::fs;
use std::net::SocketAddr;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::Value;

use super::support::client::{Connection, Request, Response};
use super::support::haulier::{Haulier, children_of};
use super::support::load::{Load, assert_only, kill};
use super::support::php_fpm::Socket;
use super::support::site::{Php, Site};
use super::support::{at_some_pace, setting, wait_until};

const HELLO: &str = "echo 'hello';";
const WAIT_FOR_GATE: &str =
    "for ($i = 0; $i < 12000 && !file_exists($_GET['gate']); $i++) { usleep(10000); clearstatcache(); }";

/// Asks on a thread of its own.
fn ask_beside(address: SocketAddr, request: Request) -> JoinHandle<Response> {
    thread::spawn(move || Connection::open(address).ask(&request))
}

/// Whether a worker of the pool is busy.
fn is_busy(server: &Haulier) -> bool {
    let busy = "haulier_php_workers{pool=\"php\",state=\"busy\"}";
    server.metrics().count(busy) > 0
}

/// How many requests wait for a worker.
fn waiting_for_php(server: &Haulier) -> u64 {
    server.metrics().count("haulier_php_queue_length{pool=\"php\"}")
}

#[track_caller]
fn assert_recovered(server: &Haulier) {
    wait_until("the pool to be back", || server.get("/hello.php").status() == 200);
    for _ in 0..20 {
        assert_eq!(server.get("/hello.php").expect(200).text(), "hello");
    }
}

#[test]
fn an_exhausted_pool_queues_then_answers_503_with_retry_after() {
    for php in [Php::Cgi, Php::Embedded, Php::Fpm(Socket::Unix)] {
        let site = Site::new()
            .php("wait.php", &format!("{WAIT_FOR_GATE} echo 'waited';"))
            .php("first.php", HELLO)
            .php("hello.php", HELLO);
        let gate = site.writable("gate").join("open");
        let target = format!("/wait.php?gate={}", gate.display());
        let site = site.file("static.txt", "static").workers(2).run_by(php);
        let server = site.pool("queue = \"2s\"\nqueue_length = 4").start();
        // PHP may take longer to start than anybody may wait here.
        wait_until("PHP to be there", || server.get("/first.php").status() == 200);
        let asked: Vec<_> = (0..20)
            .map(|_| ask_beside(server.address(), Request::get(&target)))
            .collect();
        // 2 run, 4 wait at most, the others are refused at once, the waiting ones after two seconds.
        wait_until("18 refusals", || {
            let log = server.access_log();
            let refused = |line: &&Value| line["path"] == "/wait.php" && line["status"] == 503;
            log.iter().filter(refused).count() == 18
        });
        assert_eq!(server.get("/static.txt").expect(200).text(), "static");
        let refused = server.get("/hello.php").expect(503);
        assert_eq!(server.access_line_for("/hello.php")["reason"], "pool_full");
        let after = refused.field("Retry-After").and_then(|after| after.parse::<u32>().ok());
        assert!(after.is_some_and(|seconds| (1..=60).contains(&seconds)), "{after:?}");
        fs::write(&gate, "").expect("the directory is ours");
        let statuses: Vec<u16> = asked
            .into_iter()
            .map(|asked| asked.join().expect("an answer").status())
            .collect();
        assert_only(&statuses, &[200, 503]);
        assert_eq!(
            statuses.iter().filter(|status| **status == 200).count(),
            2,
            "{statuses:?} by {php:?}"
        );
        assert_recovered(&server);
    }
}

#[test]
fn a_503_says_in_the_log_which_limit_was_met_and_in_development_who_holds_the_workers() {
    let site = Site::new().php("wait.php", WAIT_FOR_GATE).php("hello.php", HELLO);
    let gate = site.writable("gate").join("open");
    let target = format!("/wait.php?gate={}", gate.display());
    let server = site.workers(1).pool("queue = \"300ms\"").start();
    let busy = ask_beside(server.address(), Request::get(&target));
    wait_until("the worker to be busy", || is_busy(&server));
    let page = server.get("/hello.php").expect(503).text();
    assert!(!page.contains("pool"), "that is nothing for visitors: {page}");
    let line = server.access_line_for("/hello.php");
    let detail = line["detail"].as_str().unwrap_or_default();
    assert_eq!(
        detail,
        "waited 0.3 s, as long as `queue` of pool php allows; 1 of 1 workers busy (`workers`), 0 requests waiting"
    );
    fs::write(&gate, "").expect("the directory is ours");
    busy.join().expect("an answer").expect(200);

    let site = Site::new().php("wait.php", WAIT_FOR_GATE).php("hello.php", HELLO);
    let gate = site.writable("gate").join("open");
    let target = format!("/wait.php?gate={}", gate.display());
    let settings = "[site.app]\nroot = \".\"\n[pool.php]\nworkers = 1\nqueue_length = 0\n";
    let site = site.file("haulier.toml", settings);
    let mut command = Haulier::command();
    command.arg("serve").arg(site.root()).args(["--listen", "127.0.0.1:0"]);
    let server = Haulier::start(command, vec![Box::new(site)]);
    wait_until("PHP to be there", || server.get("/hello.php").status() == 200);
    // With nobody in the queue every moment counts.
    wait_until("the worker to be free", || !is_busy(&server));
    let busy = ask_beside(server.address(), Request::get(&target));
    wait_until("the worker to be busy", || is_busy(&server));
    wait_until("the request to be noted", || {
        let page = server.get("/hello.php").text();
        page.contains("`queue_length` of pool php lets 0 wait; 1 of 1 workers busy")
            && page.contains("GET /wait.php (req ")
    });
    fs::write(&gate, "").expect("the directory is ours");
    busy.join().expect("an answer").expect(200);
}

#[test]
fn waiting_requests_are_served_in_the_order_they_came() {
    let site = Site::new().php("wait.php", WAIT_FOR_GATE).workers(1);
    let directory = site.writable("gate");
    let (gate, order) = (directory.join("open"), directory.join("order"));
    let code = format!("file_put_contents({order:?}, $_GET['n'] . ' ', FILE_APPEND); echo 'noted';");
    let server = site.php("note.php", &code).pool("queue = \"60s\"").start();
    let first = ask_beside(
        server.address(),
        Request::get(&format!("/wait.php?gate={}", gate.display())),
    );
    wait_until("the worker to be busy", || is_busy(&server));
    let waiting: Vec<_> = (0..8)
        .map(|number| {
            let asked = ask_beside(server.address(), Request::get(&format!("/note.php?n={number}")));
            wait_until("one more to wait", || waiting_for_php(&server) == number + 1);
            asked
        })
        .collect();
    fs::write(&gate, "").expect("the directory is ours");
    first.join().expect("an answer").expect(200);
    for asked in waiting {
        asked.join().expect("an answer").expect(200);
    }
    assert_eq!(fs::read_to_string(order).expect("notes"), "0 1 2 3 4 5 6 7 ");
}

#[test]
fn a_request_that_takes_too_long_is_504_and_its_worker_is_replaced() {
    for php in [Php::Cgi, Php::Embedded, Php::Fpm(Socket::Unix)] {
        at_some_pace(Duration::from_secs(1), |limit| one_that_takes_too_long(php, limit));
    }
}

fn one_that_takes_too_long(php: Php, limit: Duration) {
    let site = Site::new()
        .php("slow.php", "sleep(300); echo 'late';")
        .php("hello.php", HELLO)
        .file("s.txt", "static");
    let limit = format!("timeout = {:?}", setting(limit));
    let server = site.workers(2).run_by(php).pool(&limit).start();
    let asked: Vec<_> = (0..2)
        .map(|_| ask_beside(server.address(), Request::get("/slow.php")))
        .collect();
    assert_eq!(server.get("/s.txt").expect(200).text(), "static");
    for asked in asked {
        asked.join().expect("an answer").expect(504);
    }
    let line = server.access_line_for("/slow.php");
    assert_eq!(line["reason"], "php_timeout", "{line}");
    if !matches!(php, Php::Fpm(_)) {
        assert_recovered(&server);
    }
}

#[test]
fn the_timeout_ends_with_the_response_head() {
    at_some_pace(Duration::from_secs(1), |limit| {
        let pause = limit.as_micros() * 2 / 5;
        let code = format!(
            "while (ob_get_level()) ob_end_flush(); header('X-Accel-Buffering: no');
            for ($i = 0; $i < 6; $i++) {{ echo \"$i\\n\"; flush(); usleep({pause}); }}"
        );
        let limit = format!("timeout = {:?}", setting(limit));
        let server = Site::new().php("long.php", &code).pool(&limit).start();
        assert_eq!(server.get("/long.php").expect(200).text(), "0\n1\n2\n3\n4\n5\n");
    });
}

#[test]
fn workers_killed_under_load_cost_their_request_only() {
    let server = Site::new()
        .php("hello.php", "usleep(2000); echo 'hello';")
        .workers(4)
        .start();
    assert_recovered(&server);
    let load = Load::start(server.address(), 4, &Request::get("/hello.php"));
    let killed = 12;
    for _ in 0..killed {
        load.wait_for(3);
        wait_until("a worker to kill", || {
            let worker = server.php_workers().first().copied();
            worker.map(kill).is_some()
        });
    }
    load.wait_for(3);
    let statuses = load.statuses();
    assert_only(&statuses, &[200, 502]);
    let failed = statuses.iter().filter(|status| **status == 502).count();
    assert!(failed <= killed, "{failed} requests failed for {killed} killed workers");
    assert_recovered(&server);
}

#[test]
fn a_killed_php_master_is_replaced() {
    let server = Site::new().php("hello.php", HELLO).workers(2).start();
    assert_recovered(&server);
    for master in children_of(server.pid()) {
        kill(master);
    }
    assert_recovered(&server);
    wait_until("two workers and one in reserve", || server.php_workers().len() == 3);
}

#[test]
fn children_of_php_fpm_killed_under_load_cost_their_request_only() {
    let site = Site::new()
        .php("hello.php", "usleep(2000); echo 'hello';")
        .workers(4)
        .run_by(Php::Fpm(Socket::Unix));
    let (server, fpm) = site.start_beside_fpm();
    assert_recovered(&server);
    let load = Load::start(server.address(), 4, &Request::get("/hello.php"));
    for _ in 0..8 {
        load.wait_for(3);
        if let Some(child) = fpm.children().first() {
            kill(*child);
        }
    }
    load.wait_for(3);
    assert_only(&load.statuses(), &[200, 502]);
    assert_recovered(&server);
}

#[test]
fn php_fpm_may_stop_and_start_under_load() {
    for socket in [Socket::Unix, Socket::Tcp] {
        let site = Site::new()
            .php("hello.php", "usleep(2000); echo 'hello';")
            .workers(3)
            .run_by(Php::Fpm(socket));
        let (server, mut fpm) = site.start_beside_fpm();
        assert_recovered(&server);
        let load = Load::start(server.address(), 3, &Request::get("/hello.php"));
        for _ in 0..2 {
            load.wait_for(10);
            fpm.stop();
            load.wait_for(10);
            fpm.start_again();
        }
        load.wait_for(10);
        assert_only(&load.statuses(), &[200, 502, 503]);
        assert_recovered(&server);
    }
}

#[test]
fn an_idle_connection_that_went_stale_is_not_the_clients_matter() {
    let (server, mut fpm) = Site::new()
        .php("hello.php", HELLO)
        .run_by(Php::Fpm(Socket::Unix))
        .start_beside_fpm();
    assert_recovered(&server);
    fpm.stop();
    fpm.start_again();
    for _ in 0..10 {
        assert_eq!(server.get("/hello.php").expect(200).text(), "hello");
    }
}

#[test]
fn php_that_is_not_there_is_a_502_with_its_reason() {
    let (server, mut fpm) = Site::new()
        .php("hello.php", HELLO)
        .run_by(Php::Fpm(Socket::Unix))
        .start_beside_fpm();
    fpm.stop();
    let status = server.get("/hello.php").status();
    assert!(matches!(status, 502 | 503), "{status}");
    let line = server.access_line_for("/hello.php");
    assert_eq!(line["reason"], "connect_refused", "{line}");
    fpm.start_again();
    assert_recovered(&server);
}

/// Whether the kernel tells how a process has ended that is nobody's child here (6.15).
fn tells_ends() -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(15))
}

#[test]
fn a_crash_is_a_502_and_an_error_line_that_names_the_request() {
    let site = Site::new()
        .php("crash.php", "usleep(200000); posix_kill(getmypid(), 11); sleep(5);")
        .php("hello.php", HELLO);
    let server = site.workers(2).start();
    for _ in 0..5 {
        server.get("/crash.php").expect(502);
        assert_eq!(server.get("/hello.php").expect(200).text(), "hello");
    }
    assert_eq!(server.access_line_for("/crash.php")["reason"], "php_crashed");
    let is_it = |line: &&String| line.contains("PHP worker crashed") && line.contains("/crash.php");
    wait_until("five error lines with the request", || {
        server.lines().iter().filter(is_it).count() == 5
    });
    let tells_ends = tells_ends();
    // A worker that ends before it was looked at leaves no word of how.
    let mut ends = 0;
    for line in server.lines().iter().filter(is_it) {
        let line: Value = serde_json::from_str(line).expect("JSON");
        assert!(line["pid"].is_u64(), "{line}");
        assert!(
            line["request"]
                .as_str()
                .is_some_and(|request| request.contains("(req ")),
            "{line}"
        );
        let span = line["after"].as_str().expect("a span");
        assert!(span.ends_with(" ms") || span.ends_with(" s"), "{line}");
        assert!(
            line["ended"].is_null() || line["ended"] == "signal 11 (SIGSEGV)",
            "{line}"
        );
        ends += usize::from(line["ended"].is_string());
    }
    assert!(!tells_ends || ends > 0, "{:#?}", server.lines());
}

#[test]
fn a_worker_that_dies_inside_its_answer_cuts_the_connection() {
    let code = "while (ob_get_level()) ob_end_flush(); header('X-Accel-Buffering: no');
        echo 'half'; flush(); usleep(200000); posix_kill(getmypid(), 9); sleep(5);";
    let server = Site::new().php("half.php", code).php("hello.php", HELLO).start();
    let mut connection = server.connect();
    connection.send(Request::get("/half.php").to_bytes());
    let answer = connection.read_response("GET");
    assert!(answer.is_err(), "a client must see that this was not all: {answer:?}");
    assert_recovered(&server);
}

#[test]
fn a_fatal_error_is_a_500_with_the_message_in_the_log_only() {
    for php in [Php::Cgi, Php::Embedded, Php::Fpm(Socket::Unix)] {
        let site = Site::new()
            .php("fatal.php", "no_such_function();")
            .php("hello.php", HELLO);
        let server = site
            .ini("display_errors", "0")
            .ini("log_errors", "1")
            .run_by(php)
            .start();
        let response = server.get("/fatal.php").expect(500);
        assert!(!response.text().contains("no_such_function"));
        server.wait_for_line("no_such_function");
        assert_recovered(&server);
    }
}

#[test]
fn a_client_that_leaves_during_its_upload_costs_no_worker() {
    let site = Site::new().php("hello.php", HELLO).workers(1);
    let ran = site.writable("ran").join("it");
    let server = site.php("up.php", &format!("touch({ran:?}); echo 'got it';")).start();
    for chunked in [false, true].repeat(10) {
        let mut connection = server.connect();
        if chunked {
            connection.send("POST /up.php HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n400\r\nhalf");
        } else {
            connection.send("POST /up.php HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nhalf");
        }
    }
    assert_recovered(&server);
    assert!(!ran.exists(), "the script ran for half a body");
}

#[test]
fn clients_that_leave_while_waiting_are_not_served() {
    let site = Site::new()
        .php("wait.php", WAIT_FOR_GATE)
        .php("hello.php", HELLO)
        .workers(1);
    let directory = site.writable("gate");
    let (gate, count) = (directory.join("open"), directory.join("count"));
    let server = site
        .php("count.php", &format!("file_put_contents({count:?}, 'x', FILE_APPEND);"))
        .pool("queue = \"60s\"")
        .start();
    let first = ask_beside(
        server.address(),
        Request::get(&format!("/wait.php?gate={}", gate.display())),
    );
    wait_until("the worker to be busy", || is_busy(&server));
    let mut left = Vec::new();
    for _ in 0..20 {
        let mut connection = server.connect();
        connection.send(Request::get("/count.php").to_bytes());
        left.push(connection);
    }
    wait_until("all of them to wait", || waiting_for_php(&server) == 20);
    // A reset: after a mere end of sending a client may still be listening.
    left.into_iter().for_each(Connection::reset);
    thread::sleep(Duration::from_millis(500));
    fs::write(&gate, "").expect("the directory is ours");
    first.join().expect("an answer").expect(200);
    assert_recovered(&server);
    let served = fs::read(&count).map_or(0, |notes| notes.len());
    assert!(served <= 2, "{served} of 20 requests without a client ran");
}

#[test]
fn clients_that_leave_during_the_answer_cost_no_worker() {
    let code = "for ($i = 0; $i < 200; $i++) echo str_repeat('x', 65536);";
    let server = Site::new()
        .php("big.php", code)
        .php("hello.php", HELLO)
        .workers(1)
        .start();
    for _ in 0..10 {
        let mut connection = server.connect();
        connection.send(Request::get("/big.php").to_bytes());
        connection.read_head().expect("a head");
        connection.reset();
    }
    assert_recovered(&server);
}

#[test]
fn workers_are_replaced_after_their_requests_and_none_is_lost() {
    let site = Site::new()
        .php("hello.php", "header('X-Pid: ' . getmypid()); echo 'hello';")
        .workers(2);
    let server = site.pool("max_requests = 20").start();
    let mut pids = Vec::new();
    for _ in 0..200 {
        let response = server.get("/hello.php").expect(200);
        pids.push(response.field("X-Pid").expect("a pid").to_owned());
    }
    pids.sort_unstable();
    pids.dedup();
    assert!(pids.len() >= 5, "200 requests by {} workers", pids.len());
}

#[test]
fn whoever_works_on_a_site_sees_the_last_words_of_a_worker_that_crashed() {
    let site = Site::new().php(
        "crash.php",
        "file_put_contents('php://stderr', \"zend_mm_heap corrupted\\n\"); usleep(300000); \
         posix_kill(getmypid(), 9); sleep(9);",
    );
    let mut command = Haulier::command();
    command.arg("serve").arg(site.root()).args(["--listen", "127.0.0.1:0"]);
    let server = Haulier::start(command, vec![Box::new(site)]);
    let page = server.get("/crash.php").expect(502).text();
    assert!(page.contains("Reason: php_crashed"), "{page}");
    assert!(page.contains("zend_mm_heap corrupted"), "{page}");
    assert!(page.contains("the PHP worker with pid "), "{page}");
    assert!(
        !tells_ends() || page.contains(" ended by signal 9 (SIGKILL) after 3"),
        "{page}"
    );
    server.wait_for_line("PHP worker crashed");
    let line = server
        .lines()
        .into_iter()
        .find(|line| line.contains("PHP worker crashed"));
    let line: Value = serde_json::from_str(&line.expect("a line")).expect("JSON");
    let id = page.split("Request ").nth(1).and_then(|rest| rest.split('<').next());
    assert!(
        id.is_some_and(|id| line["request"] == format!("GET /crash.php (req {id})")),
        "{line} {page}"
    );
}
