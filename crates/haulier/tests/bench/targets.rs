//! Every kind of target and of request.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::ports::free_port;
use crate::program::{Place, end};
use crate::scripted::{Does, Server, fast_cgi, page};

#[test]
fn a_server_on_a_local_socket() {
    let place = Place::new();
    let socket = place.path("web.sock");
    let listener = UnixListener::bind(&socket).expect("a free path");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            thread::spawn(move || {
                let mut piece = [0; 4096];
                while stream.read(&mut piece).is_ok_and(|count| count > 0) {
                    let _ = stream.write_all(&page("by socket"));
                }
            });
        }
    });
    let total = place.total(&["-n", "30", "-c", "3", &format!("unix:{}:/x", socket.display())]);
    assert_eq!(
        (total["requests"].as_u64(), total["bytes"]["body"].as_u64()),
        (Some(30), Some(270))
    );
}

#[test]
fn a_fastcgi_server_without_a_web_server() {
    let place = Place::new();
    let socket = place.path("php.sock");
    fast_cgi(&socket);
    let target = format!("fcgi+unix:{}:/srv/hello.php?a=b", socket.display());
    let run = place.measure(&["-n", "30", "-c", "3", &target]);
    let total = &run["points"][0]["total"];
    assert_eq!(
        (total["requests"].as_u64(), total["connections_opened"].as_u64()),
        (Some(30), Some(3))
    );
    assert_eq!(run["targets"][0]["answer"]["version"], "FastCGI");
    let missing = place.measure(&["-n", "5", &target.replace("hello", "nothing")]);
    assert_eq!(missing["targets"][0]["answer"]["status"], 404);
}

#[test]
fn php_by_fastcgi() {
    let Some(php) = [
        "/usr/bin/php-cgi",
        "/usr/bin/php-cgi8.2",
        "/usr/bin/php-cgi8.3",
        "/usr/bin/php-cgi8.4",
    ]
    .into_iter()
    .find(|path| Path::new(path).exists()) else {
        panic!("php-cgi is missing: this test needs `make setup-test`");
    };
    let place = Place::new();
    let script = place.write("hello.php", "<?php echo 'hello from php';");
    let socket = place.path("php.sock");
    let mut child = Command::new(php)
        .args(["-b", &socket.display().to_string()])
        .env("PHP_FCGI_CHILDREN", "0")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("php-cgi starts");
    for _ in 0..400 {
        if socket.exists() {
            break;
        }
        thread::sleep(Duration::from_millis(25));
    }
    let total = place.total(&[
        "-n",
        "20",
        "-c",
        "1",
        &format!("fcgi+unix:{}:{script}", socket.display()),
    ]);
    let _ = child.kill();
    let _ = child.wait();
    assert_eq!(
        (total["requests"].as_u64(), total["bytes"]["body"].as_u64()),
        (Some(20), Some(280))
    );
}

#[test]
fn tls_with_an_unknown_certificate_needs_insecure() {
    let place = Place::new();
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
            "-days",
            "2",
        ])
        .args([
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost",
            "-keyout",
        ])
        .args([&key, Path::new("-out"), &certificate]));
    assert_eq!(made.code, Some(0), "{made:?}");
    let port = free_port();
    let at = place.path("").display().to_string();
    let config = format!(
        "daemon off; worker_processes 1; pid {at}/pid; error_log {at}/error.log; events {{}}\n\
         http {{ access_log off; server {{ listen 127.0.0.1:{port} ssl; ssl_certificate {at}/cert.pem; ssl_certificate_key {at}/key.pem; return 200 'by tls'; }} }}"
    );
    let config = place.write("nginx.conf", &config);
    let mut server = Command::new("/usr/sbin/nginx")
        .args(["-c", &config])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("nginx is installed");
    for _ in 0..400 {
        if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
            break;
        }
        thread::sleep(Duration::from_millis(25));
    }
    let url = format!("https://localhost:{port}/");
    let kept = place.total(&["-n", "40", "-c", "4", "--insecure", &url]);
    let fresh = place.total(&[
        "-n",
        "10",
        "-c",
        "2",
        "--insecure",
        "--no-keepalive",
        "-f",
        "TLS1.2",
        &url,
    ]);
    let refused = place.bench(&["-n", "4", &url]);
    let pid = rustix::process::Pid::from_child(&server);
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    let _ = server.wait();
    assert_eq!(
        (kept["requests"].as_u64(), kept["connections_opened"].as_u64()),
        (Some(40), Some(4))
    );
    assert_eq!(
        (fresh["requests"].as_u64(), fresh["connections_opened"].as_u64()),
        (Some(10), Some(10))
    );
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("does not answer: TLS"), "{}", refused.stderr);
}

#[test]
fn a_proxy_gets_the_absolute_form() {
    let proxy = Server::start(|_| Does::Answer(page("by proxy")));
    let address = proxy.address.to_string();
    let total = Place::new().total(&[
        "-n",
        "4",
        "-c",
        "2",
        "-X",
        &address,
        "-P",
        "me:word",
        "http://nowhere.test/x",
    ]);
    assert_eq!(total["requests"], 4);
    for asked in proxy.requests() {
        assert_eq!(asked.line, "GET http://nowhere.test/x HTTP/1.1");
        assert!(
            asked.head.contains("proxy-authorization: basic bwu6d29yza==\r\n"),
            "{}",
            asked.head
        );
    }
}

#[test]
fn fields_cookies_credentials_and_methods_are_sent() {
    let server = Server::start(|_| Does::Answer(page("x")));
    let url = server.url("/x");
    let arguments = [
        "-n", "2", "-c", "1", "-m", "PATCH", "--body", "text", "-T", "a/b", "-H", "X-One: 1", "-C", "a=b", "-C", "c=d",
        "-A", "me:word", "--accept", "gzip", &url,
    ];
    assert_eq!(Place::new().total(&arguments)["requests"], 2);
    // What may change something is not asked beforehand.
    assert_eq!(server.requests().len(), 2);
    let asked = &server.requests()[0];
    assert_eq!(
        (asked.line.as_str(), asked.body.as_slice()),
        ("PATCH /x HTTP/1.1", &b"text"[..])
    );
    for line in [
        "x-one: 1\r\n",
        "cookie: a=b; c=d\r\n",
        "content-type: a/b\r\n",
        "authorization: basic bwu6d29yza==",
        "accept-encoding: gzip\r\n",
    ] {
        assert!(asked.head.contains(line), "{line} in {}", asked.head);
    }
}

#[test]
fn a_list_of_addresses_is_requested_in_order() {
    let server = Server::start(|_| Does::Answer(page("x")));
    let place = Place::new();
    let list = place.write("urls", "/a\n/b?c=d\n# not this\nHEAD /e\n");
    let empty = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n";
    assert!(empty.len() > 1);
    let total = place.total(&["-n", "9", "-c", "1", "--urls", &list, &server.url("/ignored")]);
    // The HEAD request is answered with a body by this server: it cannot be told from the next answer.
    assert_eq!(
        total["requests"].as_u64().zip(total["failures"]["protocol"].as_u64()),
        Some((6, 3))
    );
    let lines: Vec<String> = server.requests().into_iter().skip(2).map(|asked| asked.line).collect();
    assert_eq!(
        &lines[..3],
        ["GET /a HTTP/1.1", "GET /b?c=d HTTP/1.1", "HEAD /e HTTP/1.1"]
    );
}

#[test]
fn an_access_log_is_replayed_faster() {
    let server = Server::start(|_| Does::Answer(page("x")));
    let place = Place::new();
    let line = |second: u32, path: &str| {
        format!("1.2.3.4 - - [10/Oct/2026:13:55:{second:02} +0000] \"GET {path} HTTP/1.1\" 200 5\n")
    };
    let log = place.write(
        "access.log",
        &[line(0, "/a"), line(0, "/b"), line(4, "/c"), line(8, "/a")].concat(),
    );
    let run = place.measure(&["replay", &log, "--speed", "8", "--base", &server.url("")]);
    assert_eq!(
        (run["kind"].as_str(), run["points"][0]["total"]["requests"].as_u64()),
        (Some("replay"), Some(4))
    );
    let seconds = run["points"][0]["total"]["duration_s"].as_f64().expect("a time");
    assert!(seconds > 0.99, "eight seconds at eight times the speed took {seconds}");
    let lines: Vec<String> = server.requests().into_iter().skip(2).map(|asked| asked.line).collect();
    assert_eq!(
        lines,
        ["/a", "/b", "/c", "/a"].map(|path| format!("GET {path} HTTP/1.1"))
    );
}

#[test]
fn the_time_of_a_silent_connection_is_measured() {
    let closing = Server::start(|asked| {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx".to_vec();
        // The looks are kept apart: they close by themselves.
        let _ = asked;
        Does::AnswerAndClose(answer)
    });
    let keeping = Server::start(|_| Does::Answer(page("x")));
    let ended = Place::new().bench(&[
        "--framing-check",
        "--timeout",
        "1s",
        &format!("closes={}", closing.url("/")),
        &format!("keeps={}", keeping.url("/")),
    ]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert!(
        lines[0].starts_with("closes: ") && lines[0].ends_with("closes with the body"),
        "{lines:?}"
    );
    assert!(
        lines[1].starts_with("keeps: ") && lines[1].contains("more than 1 s"),
        "{lines:?}"
    );
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let place = Place::new();
    for (arguments, word) in [
        (&["nonsense://x/"][..], "no scheme"),
        (&["http://a/", "http://a/"], "two targets"),
        (&["--base", "http://a/", "http://b/"], "--base is for replay"),
        (&["replay", "log"], "needs --base"),
        (&["-m", "G T", "http://a/"], "no method"),
        (&["--pid", "x", "http://a/"], "process number"),
        (&["--rate", "fast", "http://a/"], "--rate"),
        (&["-k", "--no-keepalive", "http://a/"], "cannot be used with"),
    ] {
        let ended = place.bench(arguments);
        assert_eq!(ended.code, Some(2), "{arguments:?}: {ended:?}");
        assert!(ended.stderr.contains(word), "{arguments:?}: {}", ended.stderr);
    }
    assert!(
        fs::read_dir(place.path("")).expect("ours").next().is_none(),
        "nothing was left behind"
    );
}

#[test]
fn a_name_below_localhost_is_this_machine_and_an_unknown_one_is_reported() {
    let server = Server::start(|_| Does::Answer(page("x")));
    let url = server.url("/").replace("127.0.0.1", "shop.localhost");
    let total = Place::new().total(&["-n", "4", &url]);
    assert_eq!(total["requests"], 4);
    let unknown = Place::new().bench(&["-n", "4", "login=http://nowhere.invalid/"]);
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
    assert!(unknown.stderr.contains("nowhere.invalid"), "{}", unknown.stderr);
}
