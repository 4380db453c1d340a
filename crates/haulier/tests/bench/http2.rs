//! HTTP/2: streams, their failures, and real servers.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use haulier_proto::h2::error::ErrorCode;
use serde_json::Value;

use crate::http2_peer::{Asked, Does, Peer, page};
use crate::ports::free_port;
use crate::program::{Place, end};

/// Fails after the two requests before the run.
const LOOKS: usize = 2;

#[test]
fn the_number_of_requests_and_streams_is_exact() {
    let peer = Peer::start(|_| page("hello"));
    let run = Place::new().measure(&[
        "--http",
        "2",
        "--streams",
        "4",
        "-n",
        "101",
        "-c",
        "3",
        &peer.url("/a?b"),
    ]);
    let total = &run["points"][0]["total"];
    assert_eq!(
        (total["requests"].as_u64(), total["connections_opened"].as_u64()),
        (Some(101), Some(3))
    );
    assert_eq!(
        (total["bytes"]["body"].as_u64(), total["failures"]["reset"].as_u64()),
        (Some(505), Some(0))
    );
    assert_eq!(
        (run["load"]["protocol"].as_str(), run["load"]["streams"].as_u64()),
        (Some("HTTP/2"), Some(4))
    );
    assert_eq!(run["targets"][0]["answer"]["version"], "HTTP/2");
    assert_eq!(run["targets"][0]["answer"]["server"], "scripted/2");
    assert_eq!(peer.most_streams(), 4);
    // Two more looked at the answer before.
    let requests = peer.requests();
    assert_eq!((requests.len(), peer.connections()), (103, 5));
    let first = &requests[50];
    assert_eq!((first.method.as_str(), first.target.as_str()), ("GET", "/a?b"));
    assert!(
        first
            .field("user-agent")
            .is_some_and(|name| name.starts_with("haulier/"))
    );
}

#[test]
fn a_posted_body_arrives_whole_and_credentials_with_it() {
    let body = "x".repeat(200_000);
    let peer = Peer::start(|asked| page(&asked.body.len().to_string()));
    let place = Place::new();
    let file = place.write("form", &body);
    let arguments = [
        "--http",
        "2",
        "-n",
        "12",
        "-c",
        "2",
        "-p",
        &file,
        "-A",
        "me:secret",
        "-H",
        "X-Mine: 1",
    ];
    let total = place.total(&[&arguments[..], &[&peer.url("/")]].concat());
    assert_eq!(total["requests"], 12);
    for asked in peer.requests() {
        assert_eq!((asked.method.as_str(), asked.body.len()), ("POST", body.len()));
        assert_eq!(asked.field("authorization"), Some("Basic bWU6c2VjcmV0"));
        assert_eq!(
            (asked.field("x-mine"), asked.field("content-type")),
            (Some("1"), Some("text/plain"))
        );
    }
}

#[test]
fn answers_without_a_body_are_answers() {
    let peer = Peer::start(|_| page("hello"));
    let total = Place::new().total(&["--http", "2", "-i", "-n", "20", "-c", "2", &peer.url("/")]);
    assert_eq!(
        (total["requests"].as_u64(), total["bytes"]["body"].as_u64()),
        (Some(20), Some(0))
    );
}

/// Failures of six requests against a peer that fails after the requests before the run.
#[track_caller]
fn assert_only(class: &str, arguments: &[&str], does: impl Fn(&Asked) -> Does + Send + Sync + 'static) {
    let peer = Peer::start(move |asked| {
        if asked.number < LOOKS {
            page("right")
        } else {
            does(asked)
        }
    });
    let url = peer.url("/");
    let fixed = ["--http", "2", "--streams", "3", "-n", "6", "-c", "1"];
    let arguments = [&fixed[..], arguments, &[url.as_str()]].concat();
    let failures = Place::new().total(&arguments)["failures"].clone();
    for (name, count) in failures.as_object().expect("classes") {
        let expected = if name == class { 6 } else { 0 };
        assert_eq!(count.as_u64(), Some(expected), "{name} in {failures}");
    }
}

#[test]
fn every_failure_of_a_stream_has_its_class() {
    assert_only("reset", &[], |_| Does::Reset(3, 5, ErrorCode::INTERNAL_ERROR));
    assert_only("short_body", &[], |_| Does::Short(3, 5));
    assert_only("status", &[], |_| Does::Answer(503, Vec::new(), b"no".to_vec()));
    assert_only("first_byte_timeout", &["--timeout", "300ms"], |_| Does::Hang);
    assert_only("body_timeout", &["--timeout", "300ms"], |_| Does::HangInBody);
    assert_only("reset", &[], |_| Does::Refuse);
}

#[test]
fn a_connection_that_breaks_fails_the_requests_on_it() {
    assert_only("protocol", &["--streams", "1"], |_| Does::Garbage);
    assert_only("short_body", &["--streams", "1"], |_| Does::Close);
}

/// The peer sends GOAWAY, like nginx after `keepalive_requests`.
#[test]
fn a_server_that_takes_no_more_streams_is_asked_on_another_connection() {
    let peer = Peer::start(|asked| if asked.number % 7 == 6 { Does::Last } else { page("x") });
    let total = Place::new().total(&["--http", "2", "-n", "200", "-c", "2", &peer.url("/")]);
    assert_eq!(total["requests"], 200, "{total}");
    assert!(total["connections_opened"].as_u64().expect("a number") > 10, "{total}");
    let failures = total["failures"].as_object().expect("classes");
    assert!(failures.values().all(|count| count == 0), "{total}");
}

#[test]
fn without_keep_alive_every_request_has_its_connection() {
    let peer = Peer::start(|_| page("x"));
    let total = Place::new().total(&["--http", "2", "--no-keepalive", "-n", "40", "-c", "4", &peer.url("/")]);
    assert_eq!(
        (total["requests"].as_u64(), total["connections_opened"].as_u64()),
        (Some(40), Some(40))
    );
    assert_eq!(peer.most_streams(), 1);
}

#[test]
fn an_open_loop_keeps_its_rate_by_streams() {
    let peer = Peer::start(|_| {
        thread::sleep(Duration::from_millis(1));
        page("x")
    });
    let total = Place::new().total(&[
        "--http",
        "2",
        "--streams",
        "50",
        "-c",
        "2",
        "--rate",
        "100",
        "-n",
        "100",
        "--duration",
        "20s",
        "--warmup",
        "0",
        &peer.url("/"),
    ]);
    assert_eq!(total["requests"], 100, "{total}");
    assert_eq!(total["service"]["count"], 100);
    let seconds = total["duration_s"].as_f64().expect("a number");
    assert!(seconds > 0.9, "{seconds} s for 100 requests at 100 a second");
}

#[test]
fn lists_of_addresses_are_requested_by_streams_too() {
    let peer = Peer::start(|asked| page(&asked.target));
    let place = Place::new();
    let list = place.write("urls", "/a\nHEAD /b\n/c?{1..3}\n");
    let total = place.total(&["--http", "2", "--urls", &list, "-n", "90", "-c", "2", &peer.url("/")]);
    assert_eq!(total["requests"], 90, "{total}");
    let targets: std::collections::BTreeSet<String> = peer.requests().into_iter().map(|asked| asked.target).collect();
    assert!(
        targets.is_superset(&["/a", "/b", "/c?1", "/c?2", "/c?3"].map(str::to_owned).into()),
        "{targets:?}"
    );
}

#[test]
fn arguments_that_exclude_each_other_are_refused() {
    for (arguments, words) in [
        (
            &["--streams", "3", "--http", "1", "http://a/"][..],
            "--streams is for --http 2",
        ),
        (&["--http", "2", "--read", "1KB/s", "http://a/"], "slow readers"),
        (&["--http", "2", "--ab", "http://a/"], "ab has no HTTP/2"),
        (&["--http", "2", "fcgi://127.0.0.1:9000/x.php"], "FastCGI"),
        (&["--http", "2", "-X", "a:1", "http://a/"], "needs https"),
        (&["--http", "2", "--framing-check", "http://a/"], "--framing-check"),
        (
            &["--http", "2", "--no-keepalive", "--streams", "2", "http://a/"],
            "one stream",
        ),
        (&["--http", "3", "http://a/"], "expected 1 or 2"),
    ] {
        let ended = Place::new().bench(arguments);
        assert_eq!(ended.code, Some(2), "{arguments:?}: {ended:?}");
        assert!(ended.stderr.contains(words), "{arguments:?}: {}", ended.stderr);
    }
}

#[test]
fn the_first_exchange_is_shown_as_text() {
    let peer = Peer::start(|_| page("hello"));
    let ended = Place::new().bench(&["--http", "2", "-v", "4", "-n", "3", "-c", "1", &peer.url("/x")]);
    for words in [
        ":path: /x",
        "HTTP/2 200",
        "server: scripted/2",
        "hello",
        "10 streams on each",
    ] {
        let said = [ended.stderr.as_str(), ended.stdout.as_str()].concat();
        assert!(said.contains(words), "no {words} in {said}");
    }
}

/// A server that ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

fn start(command: &mut Command, port: u16) -> Server {
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let server = Server(command.spawn().expect("the server starts"));
    for _ in 0..600 {
        if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return server;
        }
        thread::sleep(Duration::from_millis(50));
    }
    panic!("the server does not listen");
}

/// nginx with a page of 12 bytes over HTTP/2 alone.
fn nginx(place: &Place, port: u16, listen: &str, more: &str) -> Server {
    let program = "/usr/sbin/nginx";
    assert!(
        Path::new(program).exists(),
        "{program} is missing: this test needs `make setup-test`"
    );
    let at = place.path("nginx");
    fs::create_dir(&at).expect("ours");
    let at = at.display();
    let config = place.write(
        "nginx.conf",
        &format!(
            "daemon off; worker_processes 1; pid {at}/pid; error_log {at}/error.log; events {{}}\n\
             http {{ access_log off; client_body_temp_path {at}/b; proxy_temp_path {at}/p; fastcgi_temp_path {at}/f;\n\
             uwsgi_temp_path {at}/u; scgi_temp_path {at}/s;\n\
             server {{ listen 127.0.0.1:{port} {listen}; {more} location / {{ return 200 'hello, world'; }} }} }}\n"
        ),
    );
    start(Command::new(program).args(["-c", &config]), port)
}

#[track_caller]
fn assert_good(total: &Value, requests: u64) {
    assert_eq!(
        (total["requests"].as_u64(), total["bytes"]["body"].as_u64()),
        (Some(requests), Some(requests * 12)),
        "{total}"
    );
}

/// nginx sends GOAWAY after 1,000 requests on a connection.
#[test]
fn nginx_answers_every_stream_and_its_goaway_is_no_failure() {
    let (place, port) = (Place::new(), free_port());
    let _server = nginx(&place, port, "http2", "");
    let url = format!("http://127.0.0.1:{port}/");
    let total = place.total(&["--http", "2", "-n", "5000", "-c", "2", "--streams", "20", &url]);
    assert_good(&total, 5000);
    assert!(total["connections_opened"].as_u64().expect("a number") >= 5, "{total}");
}

#[test]
fn a_target_that_does_not_agree_on_http2_is_refused() {
    let (place, port) = (Place::new(), free_port());
    let (certificate, key) = (place.path("cert.pem"), place.path("key.pem"));
    let made = end(Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
        ])
        .args(["-days", "2", "-subj", "/CN=localhost", "-keyout"])
        .args([&key, Path::new("-out"), &certificate]));
    assert_eq!(made.code, Some(0), "{made:?}");
    let keys = format!(
        "ssl_certificate {}; ssl_certificate_key {};",
        certificate.display(),
        key.display()
    );
    let server = nginx(&place, port, "ssl http2", &keys);
    let url = format!("https://127.0.0.1:{port}/");
    let arguments = ["--http", "2", "--insecure", "-n", "300", "-c", "2", &url];
    assert_good(&place.total(&arguments), 300);
    drop(server);
    fs::remove_dir_all(place.path("nginx")).expect("ours");
    let _server = nginx(&place, port, "ssl", &keys);
    let ended = place.bench(&arguments);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("does not answer"), "{}", ended.stderr);
}

/// haulier takes 1,000 requests on a connection; the fastest of three may reach that.
#[test]
fn haulier_answers_every_request() {
    let (place, port) = (Place::new(), free_port());
    fs::create_dir(place.path("root")).expect("ours");
    place.write("root/page.txt", "hello, world");
    let root = place.path("root").display().to_string();
    let config = place.write(
        "haulier.toml",
        &format!(
            "[server]\nhttp = \"127.0.0.1:{port}\"\nadmin = \"off\"\n[site.files]\nroot = \"{root}\"\napp = \"static\"\n[log]\naccess = \"off\"\n"
        ),
    );
    let _server = start(
        Command::new(env!("CARGO_BIN_EXE_haulier")).args(["run", "-c", &config]),
        port,
    );
    let url = format!("http://127.0.0.1:{port}/page.txt");
    for streams in ["1", "10", "100"] {
        let total = place.total(&["--http", "2", "-n", "2400", "-c", "3", "--streams", streams, &url]);
        assert_good(&total, 2400);
        let opened = total["connections_opened"].as_u64().expect("a number");
        assert!((3..=5).contains(&opened), "{streams} streams: {total}");
    }
}
