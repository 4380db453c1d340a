//! What becomes of a script's answer: status, fields, framing, streaming (RFC 3875 §6, RFC 9112 §6).

use std::fs;
use std::io::ErrorKind;

use super::support::client::Request;
use super::support::php_fpm::Socket;
use super::support::site::{Php, Site};
use super::support::wait_until;

const ALL: [Php; 3] = [Php::Cgi, Php::Embedded, Php::Fpm(Socket::Unix)];

/// PHP that waits (at most a minute) until the file `$gate` is there.
const WAIT: &str =
    "function wait($gate) { for ($i = 0; $i < 6000 && !file_exists($gate); $i++) { usleep(10000); clearstatcache(); } }
    while (ob_get_level()) ob_end_flush(); ";

#[test]
fn status_and_fields_are_those_of_the_script() {
    let code =
        "http_response_code((int) $_GET['s']); header('X-Own: 1'); header('Content-Type: text/plain'); echo 'body';";
    for php in ALL {
        let server = Site::new().php("s.php", code).run_by(php).start();
        for status in [200, 201, 400, 403, 404, 410, 418, 422] {
            let response = server.get(&format!("/s.php?s={status}")).expect(status);
            assert_eq!(response.text(), "body", "{status} by {php:?}");
            assert_eq!(response.field("X-Own"), Some("1"));
            assert!(
                response
                    .field("Content-Type")
                    .is_some_and(|kind| kind.starts_with("text/plain"))
            );
            assert!(response.field("Status").is_none(), "Status is between PHP and us");
            assert!(response.field("X-Powered-By").is_none(), "nobody needs PHP's version");
        }
    }
}

#[test]
fn every_set_cookie_arrives_in_order() {
    let code = "for ($i = 0; $i < 30; $i++) setcookie(\"c$i\", \"v$i\", 0, '/'); echo 'ok';";
    for php in ALL {
        let server = Site::new().php("c.php", code).run_by(php).start();
        let response = server.get("/c.php").expect(200);
        let cookies = response.head.values("Set-Cookie");
        assert_eq!(cookies.len(), 30, "by {php:?}");
        let in_order = cookies
            .iter()
            .enumerate()
            .all(|(i, cookie)| cookie.starts_with(&format!("c{i}=v{i};")));
        assert!(in_order, "{cookies:?}");
    }
}

#[test]
fn a_location_is_a_redirect() {
    for php in ALL {
        let site = Site::new().php("go.php", "header('Location: /there.php?x=1'); exit;");
        let server = site
            .php("see.php", "header('Location: https://other.example/', true, 303);")
            .run_by(php)
            .start();
        let response = server.get("/go.php").expect(302);
        assert_eq!(response.field("Location"), Some("/there.php?x=1"));
        let response = server.get("/see.php").expect(303);
        assert_eq!(response.field("Location"), Some("https://other.example/"));
    }
}

#[test]
fn exit_ends_the_response_and_not_the_worker() {
    for php in ALL {
        let server = Site::new()
            .php("e.php", "echo 'before'; exit(3); echo 'after';")
            .workers(1)
            .run_by(php)
            .start();
        for _ in 0..20 {
            assert_eq!(server.get("/e.php").expect(200).text(), "before");
        }
    }
}

#[test]
fn early_hints_come_before_the_response() {
    // Stock PHP sends one header block; the second one is its output.
    let code = "header('Status: 103 Early Hints'); header('Link: </a.css>; rel=preload; as=style'); flush();
        echo \"Status: 200 OK\\r\\nContent-Type: text/plain\\r\\n\\r\\nbody\";";
    for php in ALL {
        let server = Site::new().php("hints.php", code).run_by(php).start();
        let response = server.get("/hints.php").expect(200);
        assert_eq!(response.text(), "body");
        assert_eq!(response.interim.len(), 1, "by {php:?}");
        assert_eq!(response.interim[0].status, 103);
        assert_eq!(
            response.interim[0].field("Link"),
            Some("</a.css>; rel=preload; as=style")
        );
        assert!(response.field("Link").is_none());
    }
}

#[test]
fn a_script_sends_early_hints_by_headers_send_while_it_works() {
    let site = Site::new();
    let gate = site.writable("gate").join("open");
    let code = format!(
        "{WAIT} header('Link: </a.css>; rel=preload; as=style'); header('Link: </b.js>', false); header('X-A: 1');
        $sent = [headers_send(103), headers_send(200)]; wait({gate:?}); echo json_encode($sent);
        flush(); echo headers_send(103);"
    );
    let server = site.php("hints.php", &code).start();
    let mut connection = server.connect();
    connection.send(Request::get("/hints.php").to_bytes());
    let early = connection.read_head().expect("an interim head");
    assert_eq!(early.status, 103);
    assert_eq!(early.values("Link"), ["</a.css>; rel=preload; as=style", "</b.js>"]);
    assert_eq!(early.field("X-A"), None, "hints are links");
    fs::write(&gate, "").expect("the directory is ours");
    let response = connection.read_response("GET").expect("an answer").expect(200);
    assert!(response.interim.is_empty());
    assert_eq!(
        (response.text().as_str(), response.field("X-A")),
        ("[0,-1]-1", Some("1"))
    );
    assert_eq!(response.head.values("Link").len(), 2, "they stay fields of the answer");
}

#[test]
fn an_http_1_0_client_gets_no_interim_response_and_no_chunks() {
    let code = "header('Status: 103 Early Hints'); header('Link: </a.css>'); flush();
        echo \"Status: 200 OK\\r\\nContent-Type: text/plain\\r\\n\\r\\nbody\";";
    let server = Site::new().php("hints.php", code).start();
    let mut connection = server.connect();
    connection.send("GET /hints.php HTTP/1.0\r\nHost: x\r\n\r\n");
    let response = connection.read_response("GET").expect("an answer").expect(200);
    assert!(response.interim.is_empty());
    assert!(response.field("Transfer-Encoding").is_none());
    assert_eq!(response.text(), "body");
}

#[test]
fn events_and_unbuffered_answers_arrive_at_once() {
    let kinds = [
        "header('Content-Type: text/event-stream');",
        "header('X-Accel-Buffering: no');",
    ];
    for php in ALL {
        for kind in kinds {
            let site = Site::new();
            let gate = site.writable("gate").join("open");
            let code =
                format!("{WAIT} {kind} echo \"data: 1\\n\\n\"; flush(); wait({gate:?}); echo \"data: 2\\n\\n\";");
            let server = site.php("events.php", &code).run_by(php).start();
            let mut connection = server.connect();
            connection.send(Request::get("/events.php").to_bytes());
            let head = connection.read_head().expect("a head before the end of the script");
            assert_eq!(head.field("Transfer-Encoding"), Some("chunked"), "{head:?}");
            assert_eq!(connection.read_chunk().expect("the first event"), b"data: 1\n\n");
            fs::write(&gate, "").expect("the directory is ours");
            assert_eq!(connection.read_chunk().expect("the second event"), b"data: 2\n\n");
            assert!(connection.read_chunk().expect("the end").is_empty());
        }
    }
}

#[test]
fn a_slow_reader_does_not_hold_the_worker() {
    for php in ALL {
        let site = Site::new().php(
            "big.php",
            "for ($i = 0; $i < 400; $i++) echo str_repeat(chr(65 + $i % 26), 65536);",
        );
        let server = site.php("hello.php", "echo 'hello';").workers(1).run_by(php).start();
        let mut slow = server.connect();
        slow.send(Request::get("/big.php").to_bytes());
        let head = slow.read_head().expect("a head");
        assert_eq!(head.status, 200);
        // One worker: this answer means that the big one has left it, though its reader has not moved.
        assert_eq!(server.get("/hello.php").expect(200).text(), "hello");
        slow.send(Request::get("/hello.php").to_bytes());
        let mut length = 0;
        if head.field("Transfer-Encoding").is_some() {
            loop {
                let chunk = slow.read_chunk().expect("the rest");
                if chunk.is_empty() {
                    break;
                }
                length += chunk.len();
            }
        } else {
            length = slow.read_exactly(400 * 65536).expect("the rest").len();
        }
        assert_eq!(length, 400 * 65536);
        assert_eq!(slow.read_response("GET").expect("the next answer").text(), "hello");
    }
}

/// However much was announced: nothing of it went out before the script ended.
#[test]
fn a_short_body_of_a_long_announcement_is_502() {
    for length in [5, 40_000] {
        let code = format!("header('Content-Length: 900000'); echo str_repeat('x', {length});");
        let server = Site::new().php("cut.php", &code).start();
        server.get("/cut.php").expect(502);
        let line = server.access_line_for("/cut.php");
        assert_eq!(line["reason"], "bad_response", "{length}: {line}");
    }
}

#[test]
fn a_wrong_content_length_never_desynchronises_the_connection() {
    let codes = [
        (
            "longer.php",
            "header('Content-Length: 5'); echo 'hello, and an HTTP/1.1 200 OK to follow';",
        ),
        ("shorter.php", "header('Content-Length: 500'); echo 'hello';"),
        ("zero.php", "header('Content-Length: 0'); echo 'hello';"),
        ("negative.php", "header('Content-Length: -1'); echo 'hello';"),
        (
            "huge.php",
            "header('Content-Length: 99999999999999999999999'); echo 'hello';",
        ),
        ("words.php", "header('Content-Length: five'); echo 'hello';"),
        (
            "twice.php",
            "header('Content-Length: 3'); header('Content-Length: 5', false); echo 'hello';",
        ),
        (
            "coded.php",
            "header('Transfer-Encoding: chunked'); echo \"5\\r\\nhello\\r\\n0\\r\\n\\r\\n\";",
        ),
        ("nobody.php", "http_response_code(204); echo 'hello';"),
        (
            "unchanged.php",
            "http_response_code(304); header('Content-Length: 5'); echo 'hello';",
        ),
        (
            "hop.php",
            "header('Connection: close, X-Own'); header('Keep-Alive: timeout=1'); header('X-Own: 1'); echo 'hello';",
        ),
    ];
    for php in ALL {
        let site = codes
            .iter()
            .fold(Site::new().file("next.txt", "NEXT"), |site, (name, code)| {
                site.php(name, code)
            });
        let server = site.run_by(php).start();
        for (name, _) in codes {
            let mut connection = server.connect();
            connection.send(Request::get(&format!("/{name}")).to_bytes());
            connection.send(Request::get("/next.txt").to_bytes());
            match connection.read_response("GET") {
                // A body that ended early must end the connection with it.
                Err(error) => assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{name} by {php:?}: {error}"),
                Ok(first) if first.field("Connection") == Some("close") => {
                    assert!(connection.is_closed_by_server(), "{name} by {php:?} said close");
                }
                Ok(_) => {
                    let next = connection
                        .read_response("GET")
                        .unwrap_or_else(|error| panic!("{name} by {php:?}: {error}"));
                    assert_eq!(next.expect(200).text(), "NEXT", "{name} by {php:?}");
                }
            }
        }
        server.wait_for_line("the body is longer than its Content-Length");
    }
}

#[test]
fn a_length_from_the_script_is_kept_when_it_is_right() {
    let server = Site::new()
        .php("l.php", "header('Content-Length: 5'); echo 'hello';")
        .start();
    let mut connection = server.connect();
    for _ in 0..3 {
        let response = connection.ask(&Request::get("/l.php")).expect(200);
        assert_eq!(
            (response.field("Content-Length"), response.text().as_str()),
            (Some("5"), "hello")
        );
    }
    let head = connection.ask(&Request::head("/l.php")).expect(200);
    assert_eq!(head.field("Content-Length"), Some("5"));
    assert_eq!(connection.ask(&Request::get("/l.php")).text(), "hello");
}

#[test]
fn a_buffered_answer_of_known_size_gets_its_length() {
    let server = Site::new().php("h.php", "echo 'hello';").start();
    assert_eq!(server.get("/h.php").expect(200).field("Content-Length"), Some("5"));
}

#[test]
fn a_flood_on_stderr_harms_neither_answer_nor_pool() {
    let code = "for ($i = 0; $i < 5000; $i++) error_log(str_repeat('noise ', 100)); echo 'quiet';";
    for php in ALL {
        let server = Site::new()
            .php("noise.php", code)
            .ini("log_errors", "1")
            .workers(1)
            .run_by(php)
            .start();
        for _ in 0..3 {
            assert_eq!(server.get("/noise.php").expect(200).text(), "quiet", "by {php:?}");
        }
    }
}

#[test]
fn a_response_head_beyond_the_limit_is_502_and_the_pool_lives() {
    for php in ALL {
        let site = Site::new().php(
            "huge.php",
            "for ($i = 0; $i < 200; $i++) header(\"X-$i: \" . str_repeat('a', 1000)); echo 1;",
        );
        let server = site.php("hello.php", "echo 'hello';").workers(1).run_by(php).start();
        for _ in 0..3 {
            server.get("/huge.php").expect(502);
            assert_eq!(server.access_line_for("/huge.php")["reason"], "bad_response");
            assert_eq!(server.get("/hello.php").expect(200).text(), "hello", "by {php:?}");
        }
    }
}

#[test]
fn finishing_early_answers_before_the_script_ends() {
    let site = Site::new();
    let gate = site.writable("gate").join("open");
    let code = format!("{WAIT} echo 'done'; fastcgi_finish_request(); wait({gate:?});");
    let server = site.php("finish.php", &code).run_by(Php::Fpm(Socket::Unix)).start();
    assert_eq!(server.get("/finish.php").expect(200).text(), "done");
    fs::write(&gate, "").expect("the directory is ours");
}

/// Its child is still at work, whatever it has said: the next one must not wait for it.
#[test]
fn a_child_that_finished_early_keeps_nobody_waiting() {
    for socket in [Socket::Unix, Socket::Tcp] {
        let site = Site::new();
        let gate = site.writable("gate").join("open");
        let code = format!("{WAIT} echo 'done'; fastcgi_finish_request(); wait({gate:?});");
        let site = site.php("finish.php", &code).php("next.php", "echo 'next';");
        let server = site.run_by(Php::Fpm(socket)).start();
        assert_eq!(server.get("/finish.php").expect(200).text(), "done");
        for _ in 0..8 {
            assert_eq!(server.get("/next.php").expect(200).text(), "next");
        }
        fs::write(&gate, "").expect("the directory is ours");
    }
}

/// It goes behind its last answer, and takes nobody's request with it.
#[test]
fn children_that_are_replaced_lose_no_request() {
    let site = Site::new().php("hello.php", "echo 'hello';");
    let (server, mut fpm) = site.run_by(Php::Fpm(Socket::Unix)).start_beside_fpm();
    fpm.replace_children_after(2);
    for _ in 0..60 {
        assert_eq!(
            server.ask(&Request::post("/hello.php", "x")).expect(200).text(),
            "hello"
        );
    }
}

#[test]
fn field_values_of_a_script_cannot_split_the_response() {
    let code = "header('X-A: ' . $_GET['v']); header('Location: /?' . urlencode($_GET['v'])); echo 'x';";
    let server = Site::new().php("split.php", code).start();
    let mut connection = server.connect();
    let response = connection.ask(&Request::get("/split.php?v=a%0d%0aX-Injected:%20yes"));
    assert!(response.field("X-Injected").is_none());
    connection.ask(&Request::get("/split.php?v=b")).expect(302);
}

#[test]
fn a_header_line_that_is_none_is_dropped_and_told_once() {
    let code = "header('Invalid'); header('X-A: 1'); header('Na me: x'); echo 'all of it';";
    for php in ALL {
        let server = Site::new().php("odd.php", code).run_by(php).start();
        for _ in 0..3 {
            let response = server.get("/odd.php").expect(200);
            assert_eq!(
                (response.text().as_str(), response.field("X-A")),
                ("all of it", Some("1"))
            );
            assert_eq!(response.head.field("Invalid"), None);
        }
        let is_told = |line: &&String| line.contains("a malformed header line was dropped") && line.contains("odd.php");
        wait_until("a line about it", || server.lines().iter().any(|line| is_told(&line)));
        assert_eq!(server.lines().iter().filter(is_told).count(), 1, "by {php:?}");
    }
}

#[test]
fn reset_content_has_no_body() {
    for (name, body) in [
        ("short.php", "echo 'x';"),
        ("long.php", "echo str_repeat('x', 500000);"),
    ] {
        let server = Site::new()
            .php(name, &format!("http_response_code(205); {body}"))
            .start();
        let mut connection = server.connect();
        for _ in 0..2 {
            let response = connection.ask(&Request::get(&format!("/{name}"))).expect(205);
            assert_eq!(
                (response.field("Content-Length"), response.body.len()),
                (Some("0"), 0),
                "{name}"
            );
        }
    }
}
