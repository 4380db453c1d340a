//! HTTP/2 with other people's clients, and with enemies.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use haulier_proto::field::Fields;
use haulier_proto::h2::PREFACE;
use haulier_proto::h2::frame::{
    END_HEADERS, END_STREAM, FrameHead, FrameType, HEAD_LENGTH, write_data, write_reset, write_small,
    write_window_update,
};
use haulier_proto::h2::hpack::encode;
use rustix::process::Signal;

use super::support::haulier::Haulier;
use super::support::site::Site;
use super::support::tls::Authority;
use super::support::{content, curl, require, wait_until};

fn example() -> Site {
    Site::new()
        .file("hello.txt", "hello")
        .file("big.bin", content(3_000_000))
        .file("page.html", "<p>text that compresses well</p>\n".repeat(1000))
        .php(
            "echo.php",
            "echo $_SERVER['SERVER_PROTOCOL'], ' ', strlen(file_get_contents('php://input'));",
        )
        .php(
            "events.php",
            "header('Content-Type: text/event-stream'); while (ob_get_level()) ob_end_flush();
            for ($i = 0; $i < 4; $i++) { echo \"data: $i\\n\\n\"; flush(); usleep(100000); }",
        )
        .php("broken.php", "throw new Exception('no');")
}

/// What curl gets over HTTP/2.
#[track_caller]
fn curled(server: &Haulier, path: &str, arguments: &[&str]) -> Vec<u8> {
    let url = format!("http://{}{path}", server.address());
    curl(&[&["--http2-prior-knowledge"], arguments, &[&url]].concat())
}

/// The head that curl shows, in lower case, and the body behind it.
#[track_caller]
fn curled_with_head(server: &Haulier, path: &str, arguments: &[&str]) -> (String, Vec<u8>) {
    let mut output = curled(server, path, &[&["-i"], arguments].concat());
    let at = output
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .expect("a head");
    let body = output.split_off(at + 4);
    (String::from_utf8_lossy(&output).to_lowercase(), body)
}

#[test]
fn curl_gets_files_whole_and_in_part() {
    let server = example().start();
    let big = content(3_000_000);
    let (head, body) = curled_with_head(&server, "/hello.txt", &[]);
    assert!(head.starts_with("http/2 200") && body == b"hello", "{head}");
    assert!(curled(&server, "/big.bin", &[]) == big);
    let (head, body) = curled_with_head(&server, "/big.bin", &["-r", "1000000-1999999"]);
    assert!(
        head.starts_with("http/2 206") && body == big[1_000_000..2_000_000],
        "{head}"
    );
    let (head, body) = curled_with_head(&server, "/hello.txt", &["-I"]);
    assert!(head.contains("content-length: 5") && body.is_empty(), "{head}");
    let etag = head
        .split("etag: ")
        .nth(1)
        .and_then(|rest| rest.lines().next())
        .expect("a tag");
    let condition = format!("If-None-Match: {etag}");
    let (head, body) = curled_with_head(&server, "/hello.txt", &["-H", &condition]);
    assert!(head.starts_with("http/2 304") && body.is_empty(), "{head}");
    let line = server.access_line_for("/big.bin");
    assert_eq!((&line["http"], &line["handler"]), (&"2.0".into(), &"static".into()));
}

#[test]
fn curl_gets_what_is_compressed() {
    let server = example().start();
    let plain = "<p>text that compresses well</p>\n".repeat(1000);
    for coding in ["gzip", "br", "zstd"] {
        let accepts = format!("Accept-Encoding: {coding}");
        let (head, body) = curled_with_head(&server, "/page.html", &["-H", &accepts]);
        assert!(head.contains(&format!("content-encoding: {coding}")), "{head}");
        assert!(body.len() < plain.len() / 10);
    }
    assert_eq!(curled(&server, "/page.html", &["--compressed"]), plain.as_bytes());
}

#[test]
fn curl_uploads_to_php_and_reads_its_answers() {
    let site = example();
    let upload = site.root().join("big.bin").display().to_string();
    let server = site.start();
    assert_eq!(curled(&server, "/echo.php", &["-d", "a=1"]), b"HTTP/2.0 3");
    assert_eq!(curled(&server, "/echo.php", &["-T", &upload]), b"HTTP/2.0 3000000");
    let slow = ["-T", &upload, "--limit-rate", "3M", "-H", "Expect: 100-continue"];
    assert_eq!(curled(&server, "/echo.php", &slow), b"HTTP/2.0 3000000");
    let events = curled(&server, "/events.php", &["-N"]);
    assert_eq!(events, b"data: 0\n\ndata: 1\n\ndata: 2\n\ndata: 3\n\n");
    for (path, status) in [("/missing", "404"), ("/broken.php", "500"), ("/.git/config", "404")] {
        let (head, _) = curled_with_head(&server, path, &[]);
        assert!(head.starts_with(&format!("http/2 {status}")), "{path}: {head}");
    }
}

#[test]
fn an_event_stream_ends_with_its_reader() {
    let endless = "header('Content-Type: text/event-stream'); while (ob_get_level()) ob_end_flush();
        for ($i = 0; ; $i++) { echo \"data: $i\\n\\n\"; flush(); usleep(50000); }";
    let server = Site::new().php("endless.php", endless).workers(1).start();
    require("curl", "/usr/bin/curl");
    let mut reader = Command::new("/usr/bin/curl")
        .args(["-sS", "-N", "--http2-prior-knowledge"])
        .arg(format!("http://{}/endless.php", server.address()))
        .stdout(Stdio::piped())
        .spawn()
        .expect("curl runs");
    let mut read = [0; "data: 0\n\ndata: 1\n\n".len()];
    let came = reader.stdout.take().expect("piped").read_exact(&mut read);
    reader.kill().expect("it runs");
    reader.wait().expect("it ends");
    came.expect("two events");
    assert_eq!(&read, b"data: 0\n\ndata: 1\n\n");
    wait_until("the script to end", || {
        server
            .metrics()
            .count("haulier_php_workers{pool=\"php\",state=\"busy\"}")
            == 0
    });
    assert_eq!(server.access_line_for("/endless.php")["reason"], "client_gone");
}

#[test]
fn nghttp_gets_several_things_over_one_connection() {
    require("nghttp2-client", "/usr/bin/nghttp");
    let server = example().start();
    let urls = ["/hello.txt", "/echo.php", "/big.bin", "/missing", "/hello.txt"];
    let urls = urls.map(|path| format!("http://{}{path}", server.address()));
    let output = Command::new("/usr/bin/nghttp")
        .arg("-ns")
        .args(urls)
        .output()
        .expect("nghttp runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    let answered = |path: &str, status: &str| {
        let line = said.lines().find(|line| line.ends_with(path));
        line.is_some_and(|line| line.contains(&format!(" {status} ")))
    };
    for (path, status) in [
        ("/hello.txt", "200"),
        ("/echo.php", "200"),
        ("/big.bin", "200"),
        ("/missing", "404"),
    ] {
        assert!(answered(path, status), "{path} is not {status} in\n{said}");
    }
}

#[test]
fn h2load_finds_nothing_failed() {
    require("nghttp2-client", "/usr/bin/h2load");
    let server = example().limit("keepalive_requests = 100_000").start();
    for (path, requests) in [
        ("/hello.txt", "5000"),
        ("/echo.php", "500"),
        ("/page.html", "1000"),
        ("/big.bin", "60"),
    ] {
        let url = format!("http://{}{path}", server.address());
        let mut command = Command::new("/usr/bin/h2load");
        command.args(["-n", requests, "-c", "10", "-m", "16", &url]);
        let output = command.output().expect("h2load runs");
        let said = String::from_utf8_lossy(&output.stdout);
        let all = format!("{requests} succeeded, 0 failed, 0 errored, 0 timeout");
        assert!(said.contains(&all), "{path}:\n{said}");
    }
    wait_until("all connections to close", || {
        server.metrics().count("haulier_connections{proto=\"h2\"}") == 0
    });
}

#[test]
fn connections_are_counted_by_their_protocol() {
    let server = example().start();
    let mut enemy = Enemy::connect(server.address());
    enemy.send(&head(1, "/hello.txt", &[], true));
    enemy.read_until("an answer", |read| read.contains_data(1));
    let metrics = server.metrics();
    assert_eq!(metrics.count("haulier_connections{proto=\"h2\"}"), 1);
    assert_eq!(metrics.count("haulier_connections{proto=\"h1\"}"), 0);
}

/// Its connection has ended while PHP was still at work: the answer finds nobody, and nothing of it may stay.
#[test]
fn an_answer_to_a_connection_that_has_ended_leaves_nothing_behind() {
    let site = example().php(
        "late.php",
        "touch($_GET['dir'] . '/began'); for ($i = 0; $i < 6000 && !file_exists($_GET['dir'] . '/open'); $i++) { usleep(10000); clearstatcache(); } echo str_repeat('x', 20000);",
    );
    let gate = site.writable("gate");
    let server = site.start();
    let path = format!("/late.php?dir={}", gate.display());
    // No window at all, and one that is large enough for all of it.
    for window in [0_u32, 1 << 20] {
        let settings = [&[0, 4][..], &window.to_be_bytes()].concat();
        let mut enemy = Enemy::connect_with(server.address(), &settings);
        enemy.send(&head(1, &path, &[], true));
        wait_until("the script to run", || gate.join("began").exists());
        enemy.send(&small(FrameType::Data, 0, 0, b"DATA on no stream"));
        drop(enemy);
        std::fs::write(gate.join("open"), "").expect("the directory is ours");
        server.access_line_for("/late.php");
        let is_over = || {
            let metrics = server.metrics();
            metrics.count("haulier_connections{proto=\"h2\"}") == 0
                && metrics.count("haulier_responses_sending{site=\"test\"}") == 0
        };
        wait_until("the connection to be gone", is_over);
        std::fs::remove_file(gate.join("open")).expect("it is there");
        std::fs::remove_file(gate.join("began")).expect("it is there");
    }
}

#[test]
fn a_stop_waits_for_what_is_still_sent() {
    let mut server = example().start();
    let address = server.address();
    let mut reader = Enemy::connect(address);
    reader.send(&head(1, "/big.bin", &[], true));
    reader.read_until("a part", |read| read.bytes_of(1) > 10_000);
    server.signal(Signal::TERM);
    reader.windows_open = true;
    let mut opened = Vec::new();
    write_window_update(&mut opened, 0, 3_000_000);
    write_window_update(&mut opened, 1, 3_000_000);
    reader.send(&opened);
    reader.read_until("the rest", |read| read.bytes_of(1) == 3_000_000);
    drop(reader);
    let status = server.wait_within(Duration::from_secs(60));
    assert!(status.is_some_and(|status| status.success()), "{status:?}");
}

/// All of its cases, over TLS and on a port that speaks HTTP/1.1 as well; those that only `--strict` runs are skipped
/// without it.
#[test]
fn h2spec_finds_nothing_wrong_with_and_without_tls_strictly_or_not() {
    let Some(h2spec) = find_h2spec() else {
        println!("SKIPPED: conformance of HTTP/2 needs h2spec (`make test` installs it where Go is)");
        return;
    };
    let authority = Authority::new();
    let table = format!(
        "[site.test.tls]\nredirect = false\n{}",
        authority.lines("site", &["localhost"])
    );
    let site = example().server("https = \"127.0.0.1:0\"");
    let server = site.setting("hosts = [\"localhost\"]").config(&table).start();
    for (path, strict, tls) in [
        ("/", false, false),
        ("/echo.php", false, false),
        ("/hello.txt", true, false),
        ("/echo.php", true, false),
        ("/hello.txt", false, true),
        ("/echo.php", true, true),
    ] {
        let port = if tls { server.https() } else { server.address() }.port();
        let mut command = Command::new(&h2spec);
        command.args(["-h", "localhost", "-p", &port.to_string(), "-o", "10", "-P", path]);
        command
            .args(strict.then_some("--strict"))
            .args(tls.then_some("-t"))
            .args(tls.then_some("-k"));
        let output = command.output().expect("h2spec runs");
        let said = String::from_utf8_lossy(&output.stdout);
        let sum = said.lines().last().unwrap_or_default();
        let number = |what: &str| {
            let part = sum.split(", ").find(|part| part.ends_with(what));
            part.and_then(|part| part.split(' ').next()?.parse::<u32>().ok())
        };
        println!("h2spec of {path}, strict: {strict}, TLS: {tls}: {sum}");
        assert_eq!(number("failed"), Some(0), "{path}:\n{said}");
        let expected = if strict { 146 } else { 145 };
        assert!(number("passed") >= Some(expected), "{path}:\n{said}");
    }
}

fn find_h2spec() -> Option<PathBuf> {
    let of_go = Command::new("go").args(["env", "GOPATH"]).output().ok();
    let of_go = of_go.map(|output| PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()).join("bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(of_go);
    places
        .map(|place| place.join("h2spec"))
        .find(|program| program.is_file())
}

/// What a flood sends for each stream.
type Make = fn(u32) -> Vec<u8>;

/// Each flood comes over several connections at once, and a new client is answered meanwhile.
#[test]
fn floods_end_their_connections_and_nobody_else_notices() {
    let server = example().limit("keepalive_requests = 1_000_000").start();
    let before = server.resident();
    let floods: [(&str, Make); 6] = [
        ("rapid reset", |stream| {
            [head(stream, "/echo.php", &[], true), reset(stream)].concat()
        }),
        ("made to reset", |stream| {
            [head(stream, "/big.bin", &[], true), update(stream, 0)].concat()
        }),
        ("ping", |_| small(FrameType::Ping, 0, 0, &[7; 8])),
        ("settings", |_| small(FrameType::Settings, 0, 0, &[0, 4, 0, 0, 0, 100])),
        ("priority", |stream| {
            small(FrameType::Priority, 0, stream, &[0, 0, 0, 0, 1])
        }),
        ("continuation", |stream| {
            let kind = if stream == 1 {
                FrameType::Headers
            } else {
                FrameType::Continuation
            };
            small(kind, 0, 1, &[0; 1000])
        }),
    ];
    for (name, make) in floods {
        let address = server.address();
        let flood = move || {
            let mut enemy = Enemy::connect(address);
            for number in 0..3000 {
                if !enemy.try_send(&make(2 * number + 1)) {
                    break;
                }
            }
            enemy.read_until("the end", |read| read.goaway == Some(11));
        };
        let enemies: Vec<_> = (0..8).map(|_| thread::spawn(flood)).collect();
        server.assert_answers_in_time("/hello.txt", name);
        for enemy in enemies {
            enemy.join().unwrap_or_else(|_| panic!("{name} does not end"));
        }
        server.assert_answers_in_time("/hello.txt", name);
    }
    let grown = server.resident().saturating_sub(before);
    assert!(grown < 48 << 20, "floods cost {grown} bytes");
}

/// Heads that one byte stands for, on streams that a zero window keeps open.
#[test]
fn bombs_of_references_hold_little_memory() {
    let server = example().start();
    let before = server.resident();
    let mut enemies: Vec<_> = (0..10)
        .map(|_| Enemy::connect_with(server.address(), &[0, 4, 0, 0, 0, 0]))
        .collect();
    for enemy in &mut enemies {
        for number in 0..100 {
            let mut block = block("/hello.txt", &[]);
            if number == 0 {
                // A line of 3,900 bytes for the table; each byte 0xbe is that line again.
                block.extend([0x40, 1, b'x', 0x7f, 0x80 | 61, 29]);
                block.extend([b'y'; 3900]);
            }
            block.resize(block.len() + 7, 0xbe);
            enemy.try_send(&small(
                FrameType::Headers,
                END_HEADERS | END_STREAM,
                2 * number + 1,
                &block,
            ));
        }
    }
    server.assert_answers_in_time("/hello.txt", "bombs");
    let grown = server.resident().saturating_sub(before);
    assert!(grown < 32 << 20, "1,000 held heads cost {grown} bytes");
    server.assert_answers_in_time("/hello.txt", "bombs held");
}

/// Uploads that nobody reads are bounded by the connection's window.
#[test]
fn uploads_beside_each_other_hold_no_more_than_their_window() {
    let waits = "while (!file_exists(__DIR__ . '/go')) { usleep(5000); clearstatcache(); } echo 'done';";
    let server = Site::new()
        .php("waits.php", waits)
        .workers(1)
        .limit("body = \"100MiB\"")
        .start();
    let before = server.resident();
    let mut enemies: Vec<_> = (0..10).map(|_| Enemy::connect(server.address())).collect();
    for enemy in &mut enemies {
        for stream in (0..16).map(|number| 2 * number + 1) {
            enemy.send(&head(stream, "/waits.php", &[("content-length", "60000")], false));
            // One byte is missing: the script does not begin.
            let mut body = Vec::new();
            write_data(&mut body, stream, &[b'x'; 59_999], false, 16_384);
            enemy.send(&body);
        }
    }
    assert_eq!(server.get("/missing").status(), 404);
    let grown = server.resident().saturating_sub(before);
    assert!(grown < 64 << 20, "10 MB of uploads cost {grown} bytes");
}

#[test]
fn a_thousand_streams_of_slow_readers_cost_little_and_come_to_their_end() {
    let length = 300_000;
    let server = example().file("large.bin", content(length)).start();
    let before = server.resident();
    let mut readers: Vec<_> = (0..10).map(|_| Enemy::connect(server.address())).collect();
    for reader in &mut readers {
        let all: Vec<u8> = (0..100)
            .flat_map(|number| head(2 * number + 1, "/large.bin", &[], true))
            .collect();
        reader.send(&all);
    }
    for reader in &mut readers {
        reader.read_until("as much as the window allows", |read| read.bytes() == 65_535);
    }
    server.assert_answers_in_time("/hello.txt", "slow readers");
    let grown = server.resident().saturating_sub(before);
    assert!(grown < 32 << 20, "1,000 answers that wait cost {grown} bytes");
    for reader in &mut readers {
        reader.windows_open = true;
        let mut opened = Vec::new();
        write_window_update(&mut opened, 0, 65_535);
        for number in 0..100 {
            write_window_update(&mut opened, 2 * number + 1, length as u32);
        }
        reader.send(&opened);
        reader.read_until("all of it", |read| read.bytes() == 100 * length);
    }
    assert!(server.lines().iter().all(|line| !line.contains("client_gone")));
}

/// A client that does what it likes.
struct Enemy {
    stream: TcpStream,
    input: Vec<u8>,
    read: Seen,
    /// Whether it opens the connection's window again as data comes.
    windows_open: bool,
}

/// What a client has seen.
#[derive(Debug, Default)]
struct Seen {
    /// Bytes of bodies by stream, from stream 1 on.
    bodies: Vec<usize>,
    /// The code of GOAWAY.
    goaway: Option<u32>,
}

impl Seen {
    fn bytes(&self) -> usize {
        self.bodies.iter().sum()
    }

    fn bytes_of(&self, stream: u32) -> usize {
        self.bodies.get(stream as usize / 2).copied().unwrap_or(0)
    }

    fn contains_data(&self, stream: u32) -> bool {
        self.bytes_of(stream) > 0
    }
}

impl Enemy {
    fn connect(address: SocketAddr) -> Self {
        Self::connect_with(address, &[])
    }

    /// With this payload of SETTINGS.
    fn connect_with(address: SocketAddr, settings: &[u8]) -> Self {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .expect("a time-out");
        stream
            .set_write_timeout(Some(Duration::from_secs(60)))
            .expect("a time-out");
        let mut enemy = Self {
            stream,
            input: Vec::new(),
            read: Seen::default(),
            windows_open: false,
        };
        enemy.send(PREFACE);
        enemy.send(&small(FrameType::Settings, 0, 0, settings));
        enemy
    }

    #[track_caller]
    fn send(&mut self, bytes: &[u8]) {
        assert!(self.try_send(bytes), "the server has closed");
    }

    /// False if the server has closed.
    fn try_send(&mut self, bytes: &[u8]) -> bool {
        match self.stream.write_all(bytes) {
            Ok(()) => true,
            Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => false,
            Err(error) => panic!("cannot send: {error}"),
        }
    }

    /// Reads until something was seen.
    #[track_caller]
    fn read_until(&mut self, what: &str, is_seen: impl Fn(&Seen) -> bool) {
        let mut piece = vec![0; 64 * 1024];
        while !is_seen(&self.read) {
            match self.stream.read(&mut piece) {
                Ok(0) => panic!("closed before {what}: {:?}", self.read),
                Ok(length) => self.input.extend_from_slice(&piece[..length]),
                // A reset may overtake what was said before it.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("no {what}: {error}"),
            }
            self.take_frames();
        }
    }

    fn take_frames(&mut self) {
        let mut at = 0;
        let mut credit = 0;
        while let Some(head) = FrameHead::parse(&self.input[at..])
            && let Some(payload) = self
                .input
                .get(at + HEAD_LENGTH..at + HEAD_LENGTH + head.length as usize)
        {
            at += HEAD_LENGTH + payload.len();
            match head.kind {
                FrameType::Data => {
                    let place = head.stream as usize / 2;
                    self.read.bodies.resize(self.read.bodies.len().max(place + 1), 0);
                    self.read.bodies[place] += payload.len();
                    credit += head.length;
                }
                FrameType::GoAway => self.read.goaway = payload[4..8].try_into().ok().map(u32::from_be_bytes),
                _ => {}
            }
        }
        self.input.drain(..at);
        if self.windows_open && credit > 0 {
            self.try_send(&update(0, credit));
        }
    }
}

fn small(kind: FrameType, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    write_small(&mut out, kind, flags, stream, payload);
    out
}

fn update(stream: u32, increment: u32) -> Vec<u8> {
    let mut out = Vec::new();
    write_window_update(&mut out, stream, increment);
    out
}

fn reset(stream: u32) -> Vec<u8> {
    let mut out = Vec::new();
    write_reset(&mut out, stream, haulier_proto::h2::error::ErrorCode::CANCEL);
    out
}

fn head(stream: u32, path: &str, fields: &[(&str, &str)], end: bool) -> Vec<u8> {
    let flags = if end { END_HEADERS | END_STREAM } else { END_HEADERS };
    small(FrameType::Headers, flags, stream, &block(path, fields))
}

fn block(path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut lines = Fields::new();
    let method = if fields.is_empty() { "GET" } else { "POST" };
    for (name, value) in [
        (":method", method),
        (":scheme", "http"),
        (":authority", "x"),
        (":path", path),
    ] {
        lines.append(name, value);
    }
    for (name, value) in fields {
        lines.append(name, value);
    }
    let mut block = Vec::new();
    encode::fields(&mut block, &lines);
    block
}
