//! Compression: every coded answer gives the original bytes, and says what it is (RFC 9110 §8.4, §12.5.3, §15.5.7).

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use super::support::client::{Request, Response};
use super::support::coded::{CODINGS, decode, decode_flushed, decoded, text};
use super::support::haulier::Haulier;
use super::support::site::Site;
use super::support::{curl, require, wait_until};

const BROWSER: &str = "gzip, deflate, br, zstd";

fn asked(server: &Haulier, target: &str, accept: &str) -> Response {
    server.ask(&Request::get(target).with("Accept-Encoding", accept))
}

/// A script that sends a file in one go, as templates do.
const SEND: &str = "header('Content-Type: text/html'); echo file_get_contents(__DIR__ . '/' . basename($_GET['f']));";

/// Waits until a file is sent from a stored variant: its tag is strong then.
fn variant_of(server: &Haulier, target: &str, coding: &str) -> Response {
    let mut found = None;
    wait_until("a stored variant", || {
        let response = asked(server, target, coding).expect(200);
        let is_stored = response
            .field("ETag")
            .is_some_and(|tag| tag.starts_with('"') && tag.contains(coding));
        found = Some(response);
        is_stored
    });
    found.expect("asked at least once")
}

#[test]
fn pages_of_every_size_come_back_in_every_coding() {
    let sizes = [256, 4403, 16_383, 16_384, 65_536, 65_537, 300_000, 4_039_229, 9_000_000];
    let mut site = Site::new().php("send.php", SEND);
    for size in sizes {
        site = site.file(&format!("{size}.html"), text(size));
    }
    let server = site.start();
    for size in sizes {
        let original = text(size);
        for coding in CODINGS {
            let response = asked(&server, &format!("/send.php?f={size}.html"), coding).expect(200);
            assert!(decoded(coding, &response) == original, "{coding} {size} of PHP");
            assert_eq!(response.head.values("Vary"), ["Accept-Encoding"], "{coding} {size}");
            assert!(response.body.len() < size, "{coding} {size}");
            let response = asked(&server, &format!("/{size}.html"), coding).expect(200);
            assert!(decoded(coding, &response) == original, "{coding} {size} of a file");
            assert_eq!(response.head.values("Vary"), ["Accept-Encoding"], "{coding} {size}");
            assert!(response.field("Accept-Ranges").is_none() || response.field("Content-Length").is_some());
        }
        let plain = server.get(&format!("/send.php?f={size}.html")).expect(200);
        assert!(plain.body == original && plain.field("Content-Encoding").is_none());
        assert_eq!(plain.head.values("Vary"), ["Accept-Encoding"]);
    }
}

#[test]
fn a_body_of_64_megabytes_comes_back() {
    let original = text(64 << 20);
    let server = Site::new()
        .php("send.php", SEND)
        .file("big.html", &original)
        .ini("memory_limit", "256M")
        .start();
    for target in ["/send.php?f=big.html", "/big.html"] {
        for coding in ["zstd", "gzip"] {
            let response = asked(&server, target, coding).expect(200);
            assert!(decoded(coding, &response) == original, "{coding} {target}");
        }
    }
}

#[test]
fn nothing_short_is_coded_and_empty_stays_empty() {
    let site = Site::new()
        .php("send.php", SEND)
        .file("0.html", "")
        .file("255.html", text(255));
    let server = site.start();
    for (name, size) in [("0.html", 0), ("255.html", 255)] {
        for target in [format!("/{name}"), format!("/send.php?f={name}")] {
            let response = asked(&server, &target, BROWSER).expect(200);
            assert_eq!(response.field("Content-Encoding"), None, "{target}");
            assert_eq!(response.body, text(size), "{target}");
        }
    }
}

#[test]
fn curl_and_php_read_what_was_coded() {
    let original = text(48_000);
    let read = "header('Content-Type: text/plain');
        $context = stream_context_create(['http' => ['header' => 'Accept-Encoding: gzip']]);
        echo md5(gzdecode(file_get_contents('http://127.0.0.1:' . $_SERVER['SERVER_PORT'] . '/page.php', false, $context)));";
    let server = Site::new()
        .php("page.php", "echo file_get_contents(__DIR__ . '/page.html');")
        .php("read.php", read)
        .file("page.html", &original)
        .start();
    for path in ["page.php", "page.html"] {
        let url = format!("http://{}/{path}", server.address());
        assert!(curl(&["--compressed", &url]) == original, "{path}");
    }
    let text = server.get("/read.php").expect(200).text();
    let file = Command::new("/usr/bin/php")
        .args(["-r", "echo md5(stream_get_contents(STDIN));"])
        .stdin(std::process::Stdio::from(file_with(&original)))
        .output();
    match file {
        Ok(output) if output.status.success() => assert_eq!(text.as_bytes(), output.stdout),
        other => panic!("php does not run: {other:?}"),
    }
}

fn file_with(content: &[u8]) -> fs::File {
    use std::io::{Seek, Write};
    let mut file = tempfile::tempfile().expect("a temporary file");
    file.write_all(content).expect("room");
    file.rewind().expect("its start");
    file
}

#[test]
fn a_short_page_has_a_length_and_keeps_the_connection() {
    let server = Site::new()
        .php("p.php", "echo str_repeat('a page of words. ', 200);")
        .start();
    let mut connection = server.connect();
    for coding in CODINGS {
        let response = connection
            .ask(&Request::get("/p.php").with("Accept-Encoding", coding))
            .expect(200);
        assert_eq!(
            response.field("Content-Length"),
            Some(response.body.len().to_string().as_str())
        );
        assert_eq!(decoded(coding, &response), "a page of words. ".repeat(200).as_bytes());
    }
}

#[test]
fn weights_decide_and_nothing_acceptable_is_plain() {
    let server = Site::new().file("a.css", text(5000)).start();
    for (accept, expected) in [
        ("gzip;q=0.5, br;q=0.4", Some("gzip")),
        ("gzip;q=0, *", Some("br")),
        ("identity;q=0", None),
        ("*;q=0", None),
        ("deflate", None),
    ] {
        let response = asked(&server, "/a.css", accept).expect(200);
        assert_eq!(response.field("Content-Encoding"), expected, "{accept}");
        assert_eq!(response.field("Vary"), Some("Accept-Encoding"), "{accept}");
    }
}

#[test]
fn what_must_not_be_coded_is_not() {
    let send = |fields: &str| format!("{fields} echo str_repeat('words and more words. ', 500);");
    let server = Site::new()
        .php(
            "transform.php",
            &send("header('Cache-Control: private, no-transform');"),
        )
        .php("image.php", &send("header('Content-Type: image/png');"))
        .php(
            "coded.php",
            "header('Content-Encoding: gzip'); echo gzencode(str_repeat('words ', 500));",
        )
        .php("digest.php", &send("header('Content-Digest: sha-256=:AAAA:');"))
        .php(
            "part.php",
            &send("http_response_code(206); header('Content-Range: bytes 0-10999/20000');"),
        )
        .php(
            "random.php",
            "header('Content-Type: text/plain'); echo random_bytes(3000);",
        )
        .file("a.woff2", text(5000))
        .file("a.css", text(5000))
        .start();
    for path in [
        "/transform.php",
        "/image.php",
        "/digest.php",
        "/part.php",
        "/random.php",
        "/a.woff2",
    ] {
        let response = asked(&server, path, BROWSER);
        assert_eq!(response.field("Content-Encoding"), None, "{path}");
    }
    let response = asked(&server, "/coded.php", BROWSER).expect(200);
    assert_eq!(
        response.head.values("Content-Encoding"),
        ["gzip"],
        "once, by PHP itself"
    );
    assert_eq!(decode("gzip", &response.body), "words ".repeat(500).as_bytes());
    let part = Request::get("/a.css")
        .with("Accept-Encoding", BROWSER)
        .with("Range", "bytes=10-19");
    let response = server.ask(&part).expect(206);
    assert_eq!(
        (response.field("Content-Encoding"), &response.body[..]),
        (None, &text(5000)[10..20])
    );
    assert_eq!(response.field("Vary"), Some("Accept-Encoding"));
}

#[test]
fn error_pages_are_coded_too() {
    let server = Site::new().file("a.txt", "a").start();
    let plain = server.get("/none").expect(404);
    for coding in CODINGS {
        let response = asked(&server, "/none", coding).expect(404);
        let page = decoded(coding, &response);
        // The request's number differs.
        assert_eq!(page.len(), plain.body.len());
        assert!(page.starts_with(b"<!DOCTYPE html>"));
    }
}

#[test]
fn a_file_gets_a_variant_that_is_made_once_and_outlives_the_process() {
    let original = text(30_000);
    let site = Site::new().file("a.js", &original);
    let spool = site.writable("spool");
    let server = site.start();
    let quick = asked(&server, "/a.js", "br").expect(200);
    assert!(decoded("br", &quick) == original);
    for coding in CODINGS {
        let response = variant_of(&server, "/a.js", coding);
        assert!(decoded(coding, &response) == original);
        assert_eq!(
            response.field("Content-Length"),
            Some(response.body.len().to_string().as_str())
        );
        assert!(
            coding != "br" || response.body.len() < quick.body.len(),
            "higher levels are smaller"
        );
    }
    let stored = fs::read_dir(&spool)
        .expect("the spool directory")
        .flatten()
        .next()
        .expect("the store");
    assert_eq!(fs::read_dir(stored.path()).expect("the store").count(), 3);
}

#[test]
fn a_file_that_changes_is_never_sent_in_an_old_variant() {
    // Another thread may believe in the old content for a second longer.
    let site = Site::new().file("a.css", text(20_000)).server("threads = 1");
    let root = site.root().to_owned();
    let server = site.start();
    variant_of(&server, "/a.css", "gzip");
    let newer: Vec<u8> = text(20_000).into_iter().rev().collect();
    fs::write(root.join("a.css"), &newer).expect("the directory is ours");
    wait_until("the new content", || {
        decode("gzip", &asked(&server, "/a.css", "gzip").body) == newer
    });
    for _ in 0..20 {
        assert!(decode("gzip", &asked(&server, "/a.css", "gzip").body) == newer);
    }
}

#[test]
fn any_tag_of_a_file_is_answered_304_with_that_tag_and_vary() {
    let server = Site::new().file("a.css", text(20_000)).start();
    let mut tags = vec![server.get("/a.css").field("ETag").expect("a tag").to_owned()];
    tags.push(
        asked(&server, "/a.css", "gzip")
            .field("ETag")
            .expect("a tag")
            .to_owned(),
    );
    for coding in CODINGS {
        tags.push(
            variant_of(&server, "/a.css", coding)
                .field("ETag")
                .expect("a tag")
                .to_owned(),
        );
    }
    for tag in &tags {
        for accept in ["gzip", "br", "identity"] {
            let request = Request::get("/a.css")
                .with("If-None-Match", tag)
                .with("Accept-Encoding", accept);
            let response = server.ask(&request).expect(304);
            assert_eq!(response.field("ETag"), Some(tag.as_str()), "asked with {accept}");
            assert_eq!(response.field("Vary"), Some("Accept-Encoding"));
        }
    }
    let mut different = tags.clone();
    different.sort();
    different.dedup();
    assert!(different.len() >= 4, "every coding has a tag of its own: {tags:?}");
    let request = Request::get("/a.css")
        .with("If-None-Match", "\"other\"")
        .with("Accept-Encoding", "gzip");
    server.ask(&request).expect(200);
}

#[test]
fn ranges_are_of_the_file_unless_the_tag_of_a_variant_is_named() {
    let original = text(30_000);
    let server = Site::new().file("a.css", &original).start();
    let variant = variant_of(&server, "/a.css", "zstd");
    let part = |tag: Option<&str>| {
        let request = Request::get("/a.css")
            .with("Accept-Encoding", "zstd")
            .with("Range", "bytes=5-14");
        server.ask(&match tag {
            Some(tag) => request.with("If-Range", tag),
            None => request,
        })
    };
    let response = part(None).expect(206);
    assert_eq!(
        (response.field("Content-Encoding"), &response.body[..]),
        (None, &original[5..15])
    );
    // Each thread learns of a variant by itself; one that does not know it sends the whole (RFC 9110 §13.1.5).
    wait_until("a part of the variant", || {
        let response = part(variant.field("ETag"));
        let is_part = response.status() == 206;
        assert!(!is_part || response.field("Content-Encoding") == Some("zstd"));
        assert!(!is_part || response.body == variant.body[5..15]);
        is_part
    });
}

#[test]
fn a_script_gets_back_the_tag_it_gave() {
    let page = "header('ETag: \"v1\"'); header('Content-Type: text/html');
        if (($_SERVER['HTTP_IF_NONE_MATCH'] ?? '') === '\"v1\"') { http_response_code(304); exit; }
        echo str_repeat('a page that is tagged. ', 300);";
    let server = Site::new().php("t.php", page).start();
    assert_eq!(
        server.get("/t.php").field("ETag"),
        Some("\"v1\""),
        "the plain body is what PHP tagged"
    );
    for coding in CODINGS {
        let response = asked(&server, "/t.php", coding).expect(200);
        let tag = response.field("ETag").expect("a tag").to_owned();
        assert_eq!(tag, format!("W/\"v1-{coding}\""), "other bytes, the same meaning");
        let request = Request::get("/t.php")
            .with("Accept-Encoding", coding)
            .with("If-None-Match", &tag);
        let response = server.ask(&request).expect(304);
        assert_eq!(response.field("ETag"), Some(tag.as_str()));
        assert_eq!(response.field("Vary"), Some("Accept-Encoding"));
    }
}

#[test]
fn head_says_what_get_would() {
    let server = Site::new()
        .php("p.php", "echo str_repeat('words ', 1000);")
        .file("a.css", text(5000))
        .start();
    for target in ["/p.php", "/a.css"] {
        let response = server
            .ask(&Request::head(target).with("Accept-Encoding", "gzip"))
            .expect(200);
        assert_eq!(response.field("Vary"), Some("Accept-Encoding"), "{target}");
        let plain = text(5000).len().to_string();
        assert_ne!(
            response.field("Content-Length"),
            Some(plain.as_str()),
            "{target}: the length of another body"
        );
    }
}

/// The gates: the script goes on only when the test has read what came before.
#[test]
fn every_flush_arrives_at_once_and_can_be_read() {
    let wait = "function wait($gate) {
            for ($i = 0; $i < 6000 && !file_exists($gate); $i++) { usleep(10000); clearstatcache(); }
        }
        while (ob_get_level()) ob_end_flush();";
    for (name, kind) in [("stream.php", "text/plain"), ("events.php", "text/event-stream")] {
        for coding in CODINGS {
            let site = Site::new();
            let gates = site.writable("gates");
            let code = format!(
                "{wait} header('Content-Type: {kind}');
                for ($n = 0; $n < 5; $n++) {{
                    echo \"data: event number $n of this stream\\n\\n\"; flush(); wait('{}/' . $n);
                }}",
                gates.display()
            );
            let server = site.php(name, &code).start();
            let mut connection = server.connect();
            connection.send(
                Request::get(&format!("/{name}"))
                    .with("Accept-Encoding", coding)
                    .to_bytes(),
            );
            let head = connection.read_head().expect("a head, before the end of the body");
            assert_eq!(head.field("Content-Encoding"), Some(coding));
            let (mut coded, mut expected) = (Vec::new(), String::new());
            for number in 0..5 {
                expected.push_str(&format!("data: event number {number} of this stream\n\n"));
                while decode_flushed(coding, &coded) != expected.as_bytes() {
                    let chunk = connection.read_chunk().expect("a chunk");
                    assert!(
                        !chunk.is_empty(),
                        "{coding}: the end came before event {number} of {name}"
                    );
                    coded.extend_from_slice(&chunk);
                }
                fs::write(gates.join(number.to_string()), "").expect("the directory is ours");
            }
            loop {
                let chunk = connection.read_chunk().expect("a chunk");
                if chunk.is_empty() {
                    break;
                }
                coded.extend_from_slice(&chunk);
            }
            assert_eq!(decode(coding, &coded), expected.as_bytes(), "{coding} {name}");
        }
    }
}

#[test]
fn a_body_that_breaks_off_is_not_passed_off_as_whole() {
    let code = "header('Content-Type: text/html'); header('Content-Length: 500000');
        echo str_repeat('short of what was said. ', 5000);";
    let server = Site::new().php("short.php", code).start();
    for coding in CODINGS {
        let mut connection = server.connect();
        let answer = connection.try_ask(&Request::get("/short.php").with("Accept-Encoding", coding));
        assert!(answer.is_err(), "{coding}: {:?}", answer.map(|response| response.head));
    }
}

/// The sidecars of `a.js`, made by the reference tools.
fn with_sidecars(level_of_zstd: &[&str]) -> Site {
    let site = Site::new().file("a.js", text(50_000));
    let file = site.root().join("a.js");
    let tools: [(&str, &str, Vec<&str>); 3] = [
        ("zstd", "/usr/bin/zstd", [&["-q", "-k"], level_of_zstd].concat()),
        ("brotli", "/usr/bin/brotli", vec!["-k", "-q", "3"]),
        ("gzip", "/bin/gzip", vec!["-k", "-2"]),
    ];
    for (package, program, arguments) in tools {
        require(package, program);
        let status = Command::new(program)
            .args(arguments)
            .arg(&file)
            .status()
            .expect("the tool starts");
        assert!(status.success(), "{program}");
    }
    site
}

#[test]
fn sidecars_are_sent_as_they_are() {
    let site = with_sidecars(&["-2"]);
    let root = site.root().to_owned();
    let server = site.start();
    for (coding, extension) in [("zstd", "zst"), ("br", "br"), ("gzip", "gz")] {
        let response = asked(&server, "/a.js", coding).expect(200);
        let sidecar = fs::read(root.join(format!("a.js.{extension}"))).expect("it was made");
        assert!(response.body == sidecar, "{coding}");
        assert_eq!(response.field("Content-Type"), Some("text/javascript; charset=utf-8"));
        assert!(response.field("ETag").is_some_and(|tag| tag.starts_with('"')));
        assert!(decoded(coding, &response) == text(50_000));
    }
    let of_sidecar = asked(&server, "/a.js", "gzip");
    let of_sidecar = of_sidecar.field("ETag").expect("a tag").to_owned();
    let newer = fs::read(root.join("a.js.gz"))
        .map(|_| ())
        .and_then(|()| fs::remove_file(root.join("a.js.gz")));
    assert!(newer.is_ok());
    wait_until("the sidecar to be forgotten", || {
        let response = asked(&server, "/a.js", "gzip").expect(200);
        assert!(decoded("gzip", &response) == text(50_000));
        response.field("ETag").is_some_and(|tag| tag != of_sidecar)
    });
}

#[test]
fn a_copy_never_wins_over_a_coding_that_the_client_likes_better() {
    let server = Site::new().file("a.css", text(20_000)).start();
    variant_of(&server, "/a.css", "gzip");
    for _ in 0..20 {
        let response = asked(&server, "/a.css", "gzip;q=0.1, br;q=1").expect(200);
        assert_eq!(response.field("Content-Encoding"), Some("br"));
    }
    variant_of(&server, "/a.css", "br");
    let response = asked(&server, "/a.css", "gzip, br;q=0.9").expect(200);
    assert_eq!(response.field("Content-Encoding"), Some("gzip"));
}

#[test]
fn a_sidecar_that_is_wrong_is_ignored_and_said_so() {
    // Window 2^27: what browsers show as an empty page.
    let site = with_sidecars(&["--ultra", "-22", "--long=27", "--no-content-size"]);
    let root = site.root().to_owned();
    let old = SystemTime::now() - Duration::from_secs(100_000);
    let gzip = fs::File::options()
        .write(true)
        .open(root.join("a.js.gz"))
        .expect("it was made");
    gzip.set_modified(old).expect("a time");
    fs::write(root.join("a.js.br"), "").expect("the directory is ours");
    let wide = fs::read(root.join("a.js.zst")).expect("it was made");
    let server = site.start();
    for coding in CODINGS {
        let response = asked(&server, "/a.js", coding).expect(200);
        assert!(decoded(coding, &response) == text(50_000), "{coding}");
    }
    server.wait_for_line("older than its file");
    server.wait_for_line("it is empty");
    // zstd reduces the window to the content of a short file, whatever it is told; then the sidecar is fine.
    if wide.get(5).is_some_and(|window| window >> 3 > 13) {
        server.wait_for_line("over 8 MiB");
    }
}

#[test]
fn settings_hold_for_the_site() {
    let page = "echo str_repeat('words and words. ', 100);";
    let off = Site::new()
        .php("p.php", page)
        .config("[compress]\nlevel = \"off\"")
        .start();
    let response = asked(&off, "/p.php", BROWSER).expect(200);
    assert_eq!(
        (response.field("Content-Encoding"), response.field("Vary")),
        (None, None)
    );

    let some = "[compress]\nalgorithms = [\"gzip\"]\n[site.test.compress]\nmin_size = \"2KiB\"\ntypes = [\"text/css\"]";
    let server = Site::new()
        .php("p.php", page)
        .file("a.css", text(3000))
        .file("b.css", text(1900))
        .config(some)
        .start();
    assert_eq!(
        asked(&server, "/a.css", BROWSER).field("Content-Encoding"),
        Some("gzip")
    );
    assert_eq!(asked(&server, "/a.css", "br").field("Content-Encoding"), None);
    assert_eq!(asked(&server, "/b.css", BROWSER).field("Content-Encoding"), None);
    assert_eq!(asked(&server, "/p.php", BROWSER).field("Content-Encoding"), None);
}

#[test]
fn explicit_levels_and_the_log_agree() {
    let code = "echo str_repeat('words and words. ', 20000);";
    let server = Site::new()
        .php("p.php", code)
        .config("[compress]\nzstd = 9\nstore = \"0B\"")
        .start();
    let response = asked(&server, "/p.php", "zstd").expect(200);
    let window = response.body[5];
    assert!(
        response.body[4] & 0x20 != 0 || 10 + (window >> 3) <= 21,
        "a dynamic window is at most 2 MiB"
    );
    let line = server.access_line_for("/p.php");
    let label = line["enc"].as_str().expect("the coding is in the log");
    assert!(label.starts_with("zstd:9:"), "{label}");
    assert_eq!(line["enc_in"], 340_000);
    assert_eq!(line["enc_out"], response.body.len());
}

#[test]
fn with_no_secrets_a_cookie_beside_its_query_is_sent_plain() {
    let code = "setcookie('s', 'secret'); echo str_repeat('words. ', 200), $_GET['q'] ?? '';";
    let server = Site::new()
        .php("p.php", code)
        .setting("compress = { no_secrets = true }")
        .start();
    assert_eq!(
        asked(&server, "/p.php?q=guess+me", "gzip").field("Content-Encoding"),
        None
    );
    assert_eq!(asked(&server, "/p.php", "gzip").field("Content-Encoding"), Some("gzip"));
}

#[test]
fn request_bodies_are_never_inflated() {
    let server = Site::new()
        .php("len.php", "echo strlen(file_get_contents('php://input'));")
        .start();
    let request = Request::post("/len.php", vec![0x1f, 0x8b, 8, 0, 0]).with("Content-Encoding", "gzip");
    assert_eq!(server.ask(&request).expect(200).text(), "5");
}

/// Coded bodies wait in the spool for slow readers, not in coders.
#[test]
fn a_thousand_slow_readers_of_coded_pages_hold_little_memory() {
    let code = "header('Content-Type: text/html'); readfile(__DIR__ . '/book.html');";
    let server = Site::new()
        .php("p.php", code)
        .file("book.html", text(4_039_229))
        .pool("queue = \"300s\"\nqueue_length = 2000")
        .start();
    let request = Request::get("/p.php").with("Accept-Encoding", "zstd").to_bytes();
    let mut readers: Vec<_> = (0..1000).map(|_| server.connect()).collect();
    for connection in &mut readers {
        connection.send(&request);
    }
    let mut most = 0;
    for connection in &mut readers {
        let head = connection.read_head().expect("a head");
        assert_eq!(head.field("Content-Encoding"), Some("zstd"));
        most = most.max(server.resident());
    }
    assert!(most < 400 << 20, "{} MiB for 1,000 slow readers", most >> 20);
}

/// Streams keep a coder each, a small one, or none when there are many.
#[test]
fn a_thousand_open_event_streams_hold_little_memory() {
    let responder = EventResponder::start();
    let config = format!(
        "[pool.events]\nservers = [{:?}]\nconnections = 1000",
        responder.server()
    );
    let server = Site::new()
        .file("events.php", "")
        .app("plain")
        .setting("pool = \"events\"")
        .config(&config)
        .start();
    let request = Request::get("/events.php").with("Accept-Encoding", "zstd").to_bytes();
    let mut readers: Vec<_> = (0..1000).map(|_| server.connect()).collect();
    for connection in &mut readers {
        connection.send(&request);
    }
    let mut coded = 0;
    for connection in &mut readers {
        let head = connection.read_head().expect("a head");
        assert_eq!(head.field("Content-Type"), Some("text/event-stream"));
        let event = connection.read_chunk().expect("an event");
        match head.field("Content-Encoding") {
            Some(coding) => {
                coded += 1;
                assert_eq!(decode_flushed(coding, &event), EVENT);
            }
            None => assert_eq!(event, EVENT),
        }
    }
    assert!((1..1000).contains(&coded), "{coded} streams are coded");
    let memory = server.resident();
    assert!(memory < 400 << 20, "{} MiB for 1,000 event streams", memory >> 20);
}

/// What a coder keeps back behind a long piece must follow when the script has nothing more to say.
#[test]
fn a_long_event_arrives_to_its_end_before_the_next_one() {
    let site = Site::new();
    let gates = site.writable("gates");
    let code = format!(
        "header('Content-Type: text/event-stream'); while (ob_get_level()) ob_end_flush(); mt_srand(1); $text = '';
        for ($i = 0; $i < $_GET['n']; $i++) $text .= chr(mt_rand(97, 122));
        echo \"data: $text the end\\n\\n\"; flush(); $gate = '{}/' . $_GET['gate'];
        for ($i = 0; $i < 6000 && !file_exists($gate); $i++) {{ usleep(10000); clearstatcache(); }}",
        gates.display()
    );
    let server = site.php("events.php", &code).start();
    for coding in CODINGS {
        for length in [30_000, 60_000, 65_500, 100_000] {
            let gate = format!("{coding}-{length}");
            let mut connection = server.connect();
            let target = format!("/events.php?n={length}&gate={gate}");
            connection.send(Request::get(&target).with("Accept-Encoding", coding).to_bytes());
            let head = connection.read_head().expect("a head");
            assert_eq!(head.field("Content-Encoding"), Some(coding));
            let mut coded = Vec::new();
            while !decode_flushed(coding, &coded).ends_with(b" the end\n\n") {
                let chunk = connection.read_chunk().expect("a chunk");
                assert!(!chunk.is_empty(), "{coding} {length}: the script's own end came first");
                coded.extend_from_slice(&chunk);
            }
            fs::write(gates.join(gate), "").expect("the directory is ours");
        }
    }
}

/// A site's own word on what its answers depend on is added to ours.
#[test]
fn a_vary_of_the_site_does_not_take_that_of_the_coding_away() {
    let site = Site::new()
        .file("page.html", text(300_000))
        .php("send.php", SEND)
        .setting("headers = { Vary = \"Origin\" }");
    let server = site.start();
    for (target, coding) in [
        ("/send.php?f=page.html", "br"),
        ("/page.html", "gzip"),
        ("/page.html", "identity"),
    ] {
        let response = asked(&server, target, coding).expect(200);
        let vary = response.head.values("Vary").join(", ");
        assert!(
            vary.contains("Accept-Encoding") && vary.contains("Origin"),
            "{target} {coding}: {vary}"
        );
    }
    let tag = variant_of(&server, "/page.html", "gzip")
        .field("ETag")
        .expect("a tag")
        .to_owned();
    let request = Request::get("/page.html")
        .with("Accept-Encoding", "gzip")
        .with("If-None-Match", &tag);
    let unchanged = server.ask(&request).expect(304);
    assert!(unchanged.head.values("Vary").join(", ").contains("Accept-Encoding"));
}

/// A body that comes little by little is not kept until there is much of it.
#[test]
fn slow_steady_output_does_not_wait_for_its_end() {
    let site = Site::new();
    let gate = site.writable("gate").join("open");
    let code = format!(
        "header('Content-Type: text/plain'); while (ob_get_level()) ob_end_flush();
        for ($i = 0; $i < 12000 && !file_exists('{}'); $i++) {{ echo \"row $i\\n\"; flush(); usleep(5000); clearstatcache(); }}",
        gate.display()
    );
    let server = site.php("rows.php", &code).start();
    let mut connection = server.connect();
    connection.send(Request::get("/rows.php").to_bytes());
    connection.read_head().expect("a head, long before the end");
    assert!(!connection.read_chunk().expect("a chunk").is_empty());
    fs::write(&gate, "").expect("the directory is ours");
}

const EVENT: &[u8] = b"data: the first event of a stream that goes on for as long as somebody listens\n\n";

/// A FastCGI server that answers with one event and says nothing further: a thousand of them in PHP are a thousand
/// processes.
struct EventResponder {
    path: PathBuf,
    _directory: TempDir,
}

impl EventResponder {
    fn start() -> Self {
        let directory = super::support::readable_directory();
        let path = directory.path().join("events.sock");
        let listener = UnixListener::bind(&path).expect("a socket");
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                std::thread::spawn(move || Self::answer(stream));
            }
        });
        Self {
            path,
            _directory: directory,
        }
    }

    fn server(&self) -> String {
        format!("unix:{}", self.path.display())
    }

    /// FastCGI 1.0 §3.3 and §6.2: records of eight bytes and their content, until STDIN ends; then STDOUT.
    fn answer(mut stream: UnixStream) -> io::Result<()> {
        loop {
            let mut header = [0; 8];
            stream.read_exact(&mut header)?;
            let content = usize::from(u16::from_be_bytes([header[4], header[5]])) + usize::from(header[6]);
            stream.read_exact(&mut vec![0; content])?;
            if header[1] == 5 && content == 0 {
                break;
            }
        }
        let answer = [b"Content-Type: text/event-stream\r\n\r\n", EVENT].concat();
        let [high, low] = (answer.len() as u16).to_be_bytes();
        stream.write_all(&[&[1, 6, 0, 1, high, low, 0, 0], &answer[..]].concat())?;
        // Until the server hangs up.
        stream.read_exact(&mut [0])
    }
}
