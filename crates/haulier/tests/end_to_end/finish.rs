//! `fastcgi_finish_request()`: the client has its answer, the script goes on. As php-fpm does it, also by php-cgi.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;

use super::support::client::{Request, Response};
use super::support::haulier::Haulier;
use super::support::php_fpm::Socket;
use super::support::site::{Php, Site};
use super::support::{coded, content, curl, wait_until};

const ALL: [Php; 3] = [Php::Cgi, Php::Embedded, Php::Fpm(Socket::Unix)];

/// What a script does once its client has the answer: it waits for its gate, writes more, and tells what it saw.
const AFTERWARDS: &str = "
    for ($i = 0; $i < 6000 && !file_exists(\"$dir/gate\"); $i++) { usleep(10000); clearstatcache(); }
    echo 'dropped';
    $seen[] = fastcgi_finish_request();
    $seen[] = [ob_get_level(), headers_sent(), connection_status(), session_status()];
    register_shutdown_function(function () use ($dir, &$seen) { file_put_contents(\"$dir/seen\", json_encode($seen)); });";

/// A site with such a script, and the directory where it looks for its gate.
fn finishing(site: Site, before: &str) -> (Site, PathBuf) {
    let dir = site.writable("behind");
    let code = format!("$dir = {dir:?}; {before} $seen = [fastcgi_finish_request()]; {AFTERWARDS}");
    (site.php("finish.php", &code), dir)
}

/// Lets the script go on that waits; gives what it saw.
#[track_caller]
fn seen(dir: &Path) -> String {
    assert!(!dir.join("seen").exists(), "the script waited for its gate");
    fs::write(dir.join("gate"), "").expect("ours");
    let seen = || fs::read_to_string(dir.join("seen")).unwrap_or_default();
    wait_until("the end of the script", || !seen().is_empty());
    seen()
}

/// What the client gets of a script that finishes after `before`, and what that sees afterwards.
#[track_caller]
fn finished(php: Php, before: &str, request: &Request) -> (Response, String) {
    let (site, dir) = finishing(Site::new(), before);
    let server = site.run_by(php).start();
    let response = server.ask(request);
    (response, seen(&dir))
}

fn busy_workers(server: &Haulier) -> u64 {
    server
        .metrics()
        .count("haulier_php_workers{pool=\"php\",state=\"busy\"}")
}

#[test]
fn the_answer_is_complete_at_once_and_the_script_goes_on_as_under_php_fpm() {
    let get = Request::get("/finish.php");
    for (before, status, body, fields, expected) in [
        (
            "echo 'hello';",
            200,
            "hello",
            &[("Content-Length", "5")][..],
            "[true,false,[0,true,0,1]]",
        ),
        (
            "ob_start(function ($text) { return strtoupper($text); }); ob_start(); http_response_code(201); header('X-A: 1'); echo 'hello';",
            201,
            "HELLO",
            &[("X-A", "1"), ("Content-Length", "5")],
            "[true,false,[0,true,0,1]]",
        ),
        (
            "header('X-A: 1');",
            200,
            "",
            &[("X-A", "1"), ("Content-Length", "0")],
            "[true,false,[0,true,0,1]]",
        ),
        (
            "header('Location: /there');",
            302,
            "",
            &[("Location", "/there")],
            "[true,false,[0,true,0,1]]",
        ),
        ("http_response_code(204);", 204, "", &[], "[true,false,[0,true,0,1]]"),
        (
            "echo 'a'; flush(); echo 'b';",
            200,
            "ab",
            &[("Content-Length", "2")],
            "[true,false,[0,true,0,1]]",
        ),
        (
            "session_start(); echo 'hello';",
            200,
            "hello",
            &[],
            "[true,false,[0,true,0,2]]",
        ),
    ] {
        for php in ALL {
            let (response, seen) = finished(php, before, &get);
            let response = response.expect(status);
            assert_eq!(response.text(), body, "{before} by {php:?}");
            for (name, value) in fields {
                assert_eq!(response.field(name), Some(*value), "{before} by {php:?}");
            }
            assert_eq!(seen, expected, "{before} by {php:?}");
        }
    }
}

#[test]
fn head_and_post_are_finished_like_get() {
    for php in ALL {
        let (head, _) = finished(php, "header('X-A: 1'); echo 'hello';", &Request::head("/finish.php"));
        assert_eq!(head.expect(200).field("X-A"), Some("1"), "by {php:?}");
        let post = Request::post("/finish.php", "a=b");
        let (post, _) = finished(php, "echo file_get_contents('php://input');", &post);
        assert_eq!(post.expect(200).text(), "a=b", "by {php:?}");
    }
}

#[test]
fn a_long_body_is_whole_before_the_script_ends_whatever_way_it_takes() {
    let long = "for ($i = 0; $i < 40; $i++) echo str_repeat(chr(65 + $i % 26), 65528);";
    let expected: Vec<u8> = (0..40_u8).flat_map(|i| [65 + i % 26].repeat(65_528)).collect();
    for before in [
        long.to_owned(),
        format!("while (ob_get_level()) ob_end_flush(); {long}"),
        format!("header('Content-Length: {}'); {long}", expected.len()),
        format!("header('X-Accel-Buffering: no'); {long}"),
        format!(
            "echo 'A'; flush(); usleep(300000); ob_start(); {long} ob_start(function ($text) {{ return substr($text, 1); }}); echo 'x';"
        ),
    ] {
        let (response, _) = finished(Php::Cgi, &before, &Request::get("/finish.php"));
        let body = response.expect(200).body;
        let body = if before.starts_with("echo 'A'") {
            &body[1..]
        } else {
            &body[..]
        };
        assert!(body == expected, "{before}: {} bytes", body.len());
    }
}

#[test]
fn compression_http2_and_offload_end_where_the_script_has_finished() {
    let text = "echo str_repeat('what compresses well ', 20000);";
    let expected = "what compresses well ".repeat(20_000).into_bytes();
    for coding in ["gzip", "br", "zstd"] {
        let request = Request::get("/finish.php").with("Accept-Encoding", coding);
        let (response, _) = finished(Php::Cgi, text, &request);
        let response = response.expect(200);
        assert_eq!(response.field("Content-Encoding"), Some(coding));
        assert!(coded::decoded(coding, &response) == expected, "{coding}");
    }
    let (site, dir) = finishing(Site::new(), text);
    let server = site.start();
    let url = format!("http://{}/finish.php", server.address());
    assert!(curl(&["--http2-prior-knowledge", &url]) == expected);
    seen(&dir);

    let offload = "[site.test.offload]\ntypes = [\"image/*\"]";
    let (site, dir) = finishing(
        Site::new().config(offload),
        &format!("header('Content-Type: image/png'); {text}"),
    );
    let server = site.start();
    assert!(server.get("/finish.php").expect(200).body == expected);
    seen(&dir);

    let before = "header('X-Sendfile: ' . __DIR__ . '/pic.png');";
    let (site, dir) = finishing(Site::new().file("pic.png", content(100_000)), before);
    let server = site.start();
    assert!(server.get("/finish.php").expect(200).body == content(100_000));
    seen(&dir);
}

#[test]
fn an_event_stream_may_be_finished_too() {
    let before = "header('Content-Type: text/event-stream'); echo \"data: 1\\n\\n\"; flush();";
    let (response, _) = finished(Php::Cgi, before, &Request::get("/finish.php"));
    assert_eq!(response.expect(200).text(), "data: 1\n\n");
}

#[test]
fn the_worker_is_busy_until_the_script_ends_and_free_again_afterwards() {
    let (site, dir) = finishing(Site::new().workers(1), "echo 'hello';");
    let server = site.php("next.php", "echo 'next';").start();
    let mut connection = server.connect();
    assert_eq!(connection.ask(&Request::get("/finish.php")).expect(200).text(), "hello");
    let pid = server.access_line_for("/finish.php")["php_pid"].clone();
    assert_eq!(busy_workers(&server), 1, "it is at work");
    connection.send(Request::get("/next.php").to_bytes());
    assert!(
        !connection.hears_something_within(Duration::from_millis(300)),
        "nobody is free"
    );
    seen(&dir);
    assert_eq!(connection.read_response("GET").expect("an answer").text(), "next");
    assert_eq!(server.access_line_for("/next.php")["php_pid"], pid, "the same worker");
    wait_until("a free worker", || busy_workers(&server) == 0);
    let noise = |line: &String| line.contains("crashed") || line.contains("error log");
    assert!(!server.lines().iter().any(noise), "{:#?}", server.lines());
}

#[test]
fn a_client_that_leaves_does_not_end_the_script() {
    let (site, dir) = finishing(Site::new(), "echo 'hello';");
    let server = site.start();
    let mut connection = server.connect();
    connection.ask(&Request::get("/finish.php")).expect(200);
    connection.reset();
    assert_eq!(seen(&dir), "[true,false,[0,true,0,1]]");
}

#[test]
fn what_the_script_writes_afterwards_never_stops_it() {
    let before = "register_shutdown_function(function () { for ($i = 0; $i < 2000; $i++) { echo str_repeat('x', 65536); flush(); }
        error_log('the last word'); }); echo 'hello';";
    let (site, dir) = finishing(Site::new(), before);
    let server = site.ini("log_errors", "1").workers(1).start();
    let mut connection = server.connect();
    assert_eq!(connection.ask(&Request::get("/finish.php")).expect(200).text(), "hello");
    // That function runs before the one that tells.
    seen(&dir);
    server.wait_for_line("the last word");
}

#[test]
fn a_script_that_never_ends_is_ended_after_the_time_of_its_pool() {
    for afterwards in ["sleep(60);", "while (true) { echo str_repeat('x', 10000); flush(); }"] {
        let code = format!("echo 'hello'; fastcgi_finish_request(); set_time_limit(0); {afterwards}");
        let site = Site::new().php("finish.php", &code).php("next.php", "echo 'next';");
        let server = site.workers(1).pool("timeout = \"1s\"").start();
        assert_eq!(server.get("/finish.php").expect(200).text(), "hello");
        server.wait_for_line("did not end within `timeout` after fastcgi_finish_request()");
        assert_eq!(server.get("/next.php").expect(200).text(), "next");
        assert_eq!(
            server.access_line_for("/finish.php")["status"],
            200,
            "its answer was complete"
        );
    }
}

#[test]
fn a_stop_waits_for_scripts_behind_their_answers() {
    let (site, dir) = finishing(Site::new(), "echo 'hello';");
    let mut server = site.start();
    server.get("/finish.php").expect(200);
    server.signal(Signal::TERM);
    assert!(server.wait_within(Duration::from_millis(700)).is_none(), "it waits");
    assert_eq!(seen(&dir), "[true,false,[0,true,0,1]]");
    let status = server.wait_within(Duration::from_secs(30)).expect("it ends");
    assert!(status.success(), "{status}");
}

#[test]
fn nothing_that_is_logged_ends_an_answer_but_the_function() {
    let code = "error_log(str_repeat('0', 32), 4); error_log(\"x\\n\" . bin2hex(random_bytes(16)), 4); echo 'all ';
        flush(); error_log(bin2hex(random_bytes(16))); echo 'of it';";
    let server = Site::new().php("log.php", code).ini("log_errors", "1").start();
    assert_eq!(server.get("/log.php").expect(200).text(), "all of it");
    let secret = "phpinfo(); print_r($GLOBALS); print_r(getenv()); print_r(get_defined_constants());";
    let server = Site::new().run_by(Php::Cgi).php("info.php", secret).php("line.php", "$r = new ReflectionFunction('fastcgi_finish_request');
        preg_match(\"/error_log\\('([0-9a-f]{32})', 4\\)/\", file_get_contents($r->getFileName()), $found); echo $found[1];").start();
    let marker = server.get("/line.php").expect(200).text();
    assert_eq!(marker.len(), 32);
    assert!(
        !server.get("/info.php").expect(200).text().contains(&marker),
        "pages of PHP's do not show it"
    );
}
