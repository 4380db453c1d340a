//! The transparent mode: scripts pass bodies on by themselves, a rule of the site takes them off PHP.

use std::fs;
use std::sync::Barrier;
use std::thread;

use rustls::version::TLS13;

use super::support::client::{Connection, Request, Response};
use super::support::haulier::{Haulier, descriptors};
use super::support::site::Site;
use super::support::tls::Authority;
use super::support::{content, curl, wait_until};

const LENGTH: usize = 1_000_000;
const RULE: &str = "[site.test.offload]\ntypes = [\"image/*\"]\nextensions = [\"zip\"]";

/// Passes a file on, with what the query wants said before.
const PASSING: &str = "header('Content-Type: ' . ($_GET['type'] ?? 'image/jpeg'));
    foreach ((array) ($_GET['say'] ?? []) as $line) header($line);
    while (ob_get_level()) ob_end_clean();
    fpassthru(fopen(__DIR__ . '/../private/file.bin', 'rb'));";

fn site() -> Site {
    let site = Site::new().php("pass.php", PASSING);
    fs::write(site.writable("private").join("file.bin"), content(LENGTH)).expect("ours");
    site.config(RULE)
}

/// The first answer that is as it is where the script was quick enough. What takes longer than a quarter of a second goes
/// out while the rest is still coming, and on a slow machine that may happen to any.
#[track_caller]
fn quick(server: &Haulier, request: &Request, is_quick: impl Fn(&Response) -> bool) -> Response {
    let mut last = None;
    wait_until("an answer to a quick script", || {
        let answer = server.connect().try_ask(request).ok();
        let found = answer.as_ref().is_some_and(&is_quick);
        last = answer;
        found
    });
    last.expect("just seen")
}

#[test]
fn a_body_that_is_passed_on_gets_a_length_and_a_label() {
    let server = site().start();
    let response = quick(&server, &Request::get("/pass.php"), |response| {
        response.field("Content-Length") == Some("1000000")
    });
    assert!(response.expect(200).body == content(LENGTH));
    let response = server.get("/pass.php").expect(200);
    assert!(response.body == content(LENGTH));
    assert_eq!(
        response.field("Accept-Ranges"),
        None,
        "the script did not say that it is the same each time"
    );
    let line = server.access_line_for("/pass.php");
    assert_eq!(
        (line["handler"].as_str(), line["via"].as_str()),
        (Some("offloaded"), Some("transparent"))
    );
    assert!(line["client_ms"].is_number(), "{line}");

    let ranged = server
        .ask(&Request::get("/pass.php").with("Range", "bytes=5-9"))
        .expect(200);
    assert_eq!(ranged.body.len(), LENGTH);
}

#[test]
fn ranges_and_conditions_are_answered_where_the_script_allows_them() {
    let server = site().start();
    for say in [
        "ETag: \"v1\"",
        "Accept-Ranges: bytes",
        "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT",
    ] {
        let target = format!("/pass.php?say[]={}", super::support::client::encode(say));
        quick(&server, &Request::get(&target), |response| {
            response.field("Accept-Ranges") == Some("bytes")
        });
        let part = server
            .ask(&Request::get(&target).with("Range", "bytes=5-9"))
            .expect(206);
        assert_eq!(part.body, content(LENGTH)[5..10], "{say}");
        assert_eq!(part.field("Content-Range"), Some("bytes 5-9/1000000"));
        server
            .ask(&Request::get(&target).with("Range", "bytes=1000000-"))
            .expect(416);
    }
    let tagged = "/pass.php?say[]=ETag:%20%22v1%22";
    let resumed = Request::get(tagged)
        .with("Range", "bytes=999990-")
        .with("If-Range", "\"v1\"");
    assert_eq!(server.ask(&resumed).expect(206).body, content(LENGTH)[999_990..]);
    let changed = Request::get(tagged)
        .with("Range", "bytes=999990-")
        .with("If-Range", "\"v0\"");
    assert_eq!(server.ask(&changed).expect(200).body.len(), LENGTH);
    server
        .ask(&Request::get(tagged).with("If-None-Match", "\"v1\""))
        .expect(304);
    let never = "/pass.php?say[]=ETag:%20%22v1%22&say[]=Accept-Ranges:%20none";
    assert_eq!(
        server
            .ask(&Request::get(never).with("Range", "bytes=5-9"))
            .expect(200)
            .body
            .len(),
        LENGTH
    );
}

#[test]
fn each_way_out_of_php_is_counted_with_the_time_it_saved() {
    let server = site()
        .file("public.txt", "text")
        .php("accel.php", "header('X-Accel-Redirect: /public.txt');")
        .php("named.php", "header('X-Sendfile: ' . __DIR__ . '/public.txt');")
        .php("zend.php", "zend_send_file(__DIR__ . '/public.txt');")
        .php("denied.php", "header('X-Sendfile: /etc/passwd');")
        .start();
    for target in ["/pass.php", "/accel.php", "/named.php", "/zend.php", "/zend.php"] {
        server.get(target).expect(200);
    }
    server.get("/denied.php").expect(404);
    let count = |via| {
        server
            .metrics()
            .count(&format!("haulier_handoffs_total{{site=\"test\",via=\"{via}\"}}"))
    };
    let counts = || ["transparent", "x-accel", "x-sendfile", "zend"].map(count);
    wait_until("all hand-offs in the metrics", || counts() == [1, 1, 1, 2]);
    let metrics = server.metrics();
    let denied = "haulier_errors_total{site=\"test\",reason=\"sendfile_denied\"}";
    assert_eq!(metrics.count(denied), 1);
    assert!(metrics.value("haulier_worker_seconds_saved_total{site=\"test\"}") > 0.0);
}

/// The download script of a hundred WordPress plugins.
#[test]
fn a_download_script_as_wordpress_plugins_have_it_runs_unchanged() {
    let code = "$file = __DIR__ . '/../private/file.bin';
        if (function_exists('apache_setenv')) @apache_setenv('no-gzip', 1);
        @ini_set('zlib.output_compression', 'Off'); @set_time_limit(0); @session_cache_limiter('none');
        nocache(); header('Robots: none'); header('Content-Type: application/octet-stream');
        header('Content-Description: File Transfer');
        header('Content-Disposition: attachment; filename=\"backup 2026.zip\";');
        header('Content-Transfer-Encoding: binary'); header('Accept-Ranges: bytes');
        header('Content-Length: ' . filesize($file));
        while (ob_get_level() > 0) { @ob_end_clean(); } flush(); readfile($file); exit;
        function nocache() { header('Cache-Control: no-cache, must-revalidate, max-age=0'); }";
    let server = site().php("download.php", code).start();
    let response = server.get("/download.php").expect(200);
    assert!(response.body == content(LENGTH));
    assert_eq!(
        response.field("Content-Disposition"),
        Some("attachment; filename=\"backup 2026.zip\";")
    );
    assert_eq!(server.access_line_for("/download.php")["via"], "transparent");
    let mut got = Vec::new();
    while got.len() < LENGTH {
        let last = (got.len() + 333_332).min(LENGTH - 1);
        let range = format!("bytes={}-{last}", got.len());
        got.extend(
            server
                .ask(&Request::get("/download.php").with("Range", &range))
                .expect(206)
                .body,
        );
    }
    assert!(got == content(LENGTH));
    let head = server.ask(&Request::head("/download.php")).expect(200);
    assert_eq!(head.field("Content-Length"), Some("1000000"));
}

#[test]
fn other_types_other_statuses_and_short_bodies_are_left_alone() {
    let server = site()
        .php(
            "small.php",
            "header('Content-Type: image/png'); echo str_repeat('x', 5000);",
        )
        .php(
            "missing.php",
            "http_response_code(404); header('Content-Type: image/png'); echo str_repeat('x', 500000);",
        )
        .start();
    server.get("/pass.php?type=text/html").expect(200);
    server.get("/small.php").expect(200);
    server.get("/missing.php").expect(404);
    for path in ["/pass.php", "/small.php", "/missing.php"] {
        assert_eq!(server.access_line_for(path)["handler"], "php", "{path}");
    }
}

#[test]
fn a_slow_script_is_not_waited_for() {
    let site = site().writable_for_gate();
    let gate = site.root().with_file_name("gates").join("gate");
    let code = format!(
        "header('Content-Type: image/png'); while (ob_get_level()) ob_end_flush();
        echo str_repeat('a', 100000); flush();
        for ($i = 0; $i < 12000 && !file_exists('{}'); $i++) {{ usleep(10000); clearstatcache(); }}
        echo str_repeat('b', 100000);",
        gate.display()
    );
    let server = site.php("slow.php", &code).start();
    let mut connection = server.connect();
    connection.send(Request::get("/slow.php").to_bytes());
    let head = connection.read_head().expect("a head before the end");
    assert_eq!(head.field("Transfer-Encoding"), Some("chunked"));
    fs::write(&gate, "").expect("ours");
    let mut body = Vec::new();
    loop {
        let chunk = connection.read_chunk().expect("a chunk");
        if chunk.is_empty() {
            break;
        }
        body.extend(chunk);
    }
    assert!(body == [vec![b'a'; 100_000], vec![b'b'; 100_000]].concat());
    assert_eq!(server.access_line_for("/slow.php")["handler"], "offloaded");
}

#[test]
fn a_full_spool_passes_through_and_says_so() {
    let site = Site::new().php("pass.php", PASSING);
    fs::write(site.writable("private").join("file.bin"), content(LENGTH)).expect("ours");
    let server = site
        .config(&format!("{RULE}\nmemory = \"0B\"\nspool = \"300KB\""))
        .start();
    let response = server.get("/pass.php").expect(200);
    assert!(response.body == content(LENGTH));
    server.wait_for_line("spool_full");
    let again = server.get("/pass.php").expect(200);
    assert!(again.body == content(LENGTH), "what the first one took is given back");
}

/// A script that goes on for minutes behind a client that left would else hold what others need.
#[test]
fn the_spool_has_its_room_back_when_the_client_leaves_and_not_when_the_script_ends() {
    let site = site().writable_for_gate();
    let gate = site.root().with_file_name("gates").join("gate");
    let code = format!(
        "header('Content-Type: image/png'); while (ob_get_level()) ob_end_flush();
        echo str_repeat('a', 8000000); flush();
        for ($i = 0; $i < 12000 && !file_exists('{}'); $i++) {{ usleep(10000); clearstatcache(); }}",
        gate.display()
    );
    let server = site
        .php("goes-on.php", &code)
        .config("memory = \"0B\"\nspool = \"20MB\"")
        .start();
    let mut leaving = server.connect();
    leaving.send(Request::get("/goes-on.php").to_bytes());
    leaving.read_head().expect("a head");
    wait_until("a body in the spool", || {
        server.metrics().value("haulier_spool_bytes") > 1_000_000.0
    });
    leaving.reset();
    wait_until("an empty spool while the script still runs", || {
        let metrics = server.metrics();
        metrics.value("haulier_spool_bytes") == 0.0
            && metrics.count("haulier_php_workers{pool=\"php\",state=\"busy\"}") == 1
    });
    fs::write(&gate, "").expect("ours");
}

#[test]
fn without_a_rule_a_body_shorter_than_announced_is_cut_off_and_the_script_blamed() {
    let short = "header('Content-Length: 5000000'); echo str_repeat('x', 4_000_000);";
    let server = Site::new().php("short.php", short).start();
    let mut connection = server.connect();
    connection.send(Request::get("/short.php").to_bytes());
    assert!(connection.read_response("GET").is_err(), "it is not complete");
    let line = server.access_line_for("/short.php");
    assert_eq!(
        (&line["status"], &line["reason"]),
        (&200.into(), &"bad_response".into()),
        "{line}"
    );
}

#[test]
fn a_body_shorter_than_announced_is_an_error_and_no_truncated_file() {
    let code = "header('Content-Type: image/png'); header('Content-Length: 900000');
        while (ob_get_level()) ob_end_flush(); echo str_repeat('x', 500000);";
    let server = site().php("short.php", code).start();
    quick(&server, &Request::get("/short.php"), |response| {
        response.status() == 502
    });
    wait_until("its reason in the log", || {
        let lines = server.access_log();
        let mut refused = lines.iter().filter(|line| line["status"] == 502).peekable();
        refused.peek().is_some() && refused.all(|line| line["reason"] == "bad_response")
    });
}

/// 200 clients that stop in the middle of their download, and four workers.
#[test]
fn two_hundred_slow_readers_leave_the_workers_to_others() {
    const READERS: usize = 200;
    let site = site()
        .php("light.php", "echo 'light';")
        .php(
            "named.php",
            "header('Content-Type: image/jpeg'); header('X-Sendfile: ' . realpath(__DIR__ . '/../private/file.bin'));",
        )
        .php(
            "zend.php",
            "zend_send_file(__DIR__ . '/../private/file.bin', 'image/jpeg');",
        );
    let private = site.root().with_file_name("private");
    let server = site
        .config(&format!("[site.test.sendfile]\nroots = [{private:?}]"))
        .start();
    let (address, whole) = (server.address(), content(LENGTH));
    // `pass.php` with a type that no rule names: drained all the same.
    for target in ["/named.php", "/zend.php", "/pass.php", "/pass.php?type=video/mp4"] {
        let (reading, served) = (Barrier::new(READERS + 1), Barrier::new(READERS + 1));
        thread::scope(|scope| {
            for _ in 0..READERS {
                scope.spawn(|| {
                    let mut connection = Connection::open(address);
                    connection.send(Request::get(target).with("Connection", "close").to_bytes());
                    let begun = connection.read_some();
                    reading.wait();
                    served.wait();
                    let rest = connection.read_to_end();
                    let all = [begun.expect("the beginning"), rest.expect("the rest")].concat();
                    assert!(ends_with_body(&all, &whole), "{target}: {} bytes", all.len());
                });
            }
            reading.wait();
            for _ in 0..20 {
                assert_eq!(server.get("/light.php").expect(200).text(), "light");
            }
            served.wait();
        });
    }
}

/// Pipes, memory, files: each takes its part, and over every protocol the client gets the same.
#[test]
fn a_long_body_arrives_whole_wherever_it_waited() {
    let authority = Authority::new();
    let lengths = [9_000, 65_400, 70_000, 131_072, 400_000, 3_000_000];
    let pass = "header('Content-Type: ' . $_GET['type']); while (ob_get_level()) ob_end_clean();
        readfile(__DIR__ . '/../private/' . $_GET['length']);";
    for budget in [
        "",
        "memory = \"0B\"",
        "memory = \"200KB\"",
        "memory = \"150KB\"\nspool = \"250KB\"",
    ] {
        let site = Site::new().php("pass.php", pass);
        let private = site.writable("private");
        for length in lengths {
            fs::write(private.join(length.to_string()), content(length)).expect("ours");
        }
        let server = site
            .server("https = \"127.0.0.1:0\"")
            .config(&format!(
                "{RULE}\n{budget}\n[site.test.tls]\nredirect = false\n{}",
                authority.lines("here", &["localhost"])
            ))
            .start();
        server.get("/pass.php?type=image/png&length=400000").expect(200);
        let pipes = || {
            let links = descriptors(server.pid());
            links.iter().filter(|link| link.starts_with("pipe:")).count()
        };
        let before = pipes();
        for (length, kind) in lengths
            .iter()
            .flat_map(|length| [(length, "image/png"), (length, "font/x")])
        {
            let target = format!("/pass.php?type={kind}&length={length}");
            let (path, expected) = (target.as_str(), content(*length));
            let plain = server.get(path).expect(200);
            assert!(plain.body == expected, "{budget} {path}");
            let mut secured = Connection::open(server.https()).secured("localhost", &authority.client(&[&TLS13]));
            let secret = secured.ask(&Request::get(path).with("Connection", "close")).expect(200);
            assert!(secret.body == expected, "{budget} {path} over TLS");
            let url = format!("http://{}{path}", server.address());
            let output = curl(&["--http2-prior-knowledge", &url]);
            assert!(output == expected, "{budget} {path} over HTTP/2");
            let output = curl(&["--limit-rate", "20M", "--http1.0", &url]);
            assert!(output == expected, "{budget} {path} over HTTP/1.0");

            // One that leaves in the middle of it.
            let mut leaving = server.connect();
            leaving.send(Request::get(path).to_bytes());
            leaving.read_head().expect("a head");
            leaving.reset();
        }
        wait_until("an empty spool", || {
            let metrics = server.metrics();
            metrics.value("haulier_spool_memory_bytes") + metrics.value("haulier_spool_bytes") == 0.0
        });
        wait_until("no more pipes than before", || pipes() <= before);
    }
}

/// A thousand clients in the middle of their downloads cost descriptors, and a spool, but no memory to speak of.
#[test]
fn a_thousand_readers_at_once_take_no_memory() {
    const READERS: usize = 1000;
    let site = site().php(
        "named.php",
        "header('X-Sendfile: ' . realpath(__DIR__ . '/../private/short.bin'));",
    );
    let site = site.php(
        "short.php",
        "header('Content-Type: image/png'); while (ob_get_level()) ob_end_clean();
        readfile(__DIR__ . '/../private/short.bin');",
    );
    let private = site.root().with_file_name("private");
    let whole = content(200_000);
    fs::write(private.join("short.bin"), &whole).expect("ours");
    let server = site
        .config(&format!("[site.test.sendfile]\nroots = [{private:?}]"))
        .limit("send_timeout = \"5m\"")
        .pool("queue = \"5m\"\nqueue_length = 2000")
        .start();
    for target in ["/named.php", "/short.php"] {
        server.get(target).expect(200);
        let before = server.resident();
        let mut readers: Vec<Connection> = (0..READERS).map(|_| server.connect()).collect();
        for reader in &mut readers {
            reader.send(Request::get(target).to_bytes());
        }
        for reader in &mut readers {
            let head = reader.read_head().expect("a head");
            assert_eq!(head.status, 200, "{target}");
        }
        let grown = server.resident().saturating_sub(before);
        assert!(grown < 64 << 20, "{target}: {grown} bytes more");
        for reader in &mut readers {
            assert!(reader.read_exactly(200_000).expect("a body") == whole, "{target}");
        }
    }
}

/// Whether a message ends in this body, in one piece or in chunks.
fn ends_with_body(message: &[u8], body: &[u8]) -> bool {
    if message.ends_with(body) {
        return true;
    }
    let Some(start) = message.windows(4).position(|window| window == b"\r\n\r\n") else {
        return false;
    };
    let mut rest = &message[start + 4..];
    let mut joined = Vec::new();
    while let Some(end) = rest.windows(2).position(|window| window == b"\r\n") {
        let size = std::str::from_utf8(&rest[..end])
            .ok()
            .and_then(|size| usize::from_str_radix(size, 16).ok());
        let Some(size) = size.filter(|&size| size > 0 && rest.len() >= end + 4 + size) else {
            break;
        };
        joined.extend_from_slice(&rest[end + 2..end + 2 + size]);
        rest = &rest[end + 4 + size..];
    }
    joined == body
}
