//! Start, logs and end of the program.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use rustls::version::TLS13;
use serde_json::Value;

use super::support::client::{Connection, Request};
use super::support::haulier::{Haulier, children_of, start_line_address};
use super::support::php_fpm::Socket;
use super::support::site::{Php, Site};
use super::support::tls::Authority;
use super::support::{readable_directory, wait_until};

const WAIT_FOR_GATE: &str =
    "for ($i = 0; $i < 30000 && !file_exists($_GET['gate']); $i++) { usleep(10000); clearstatcache(); } echo 'done';";

/// A server with one request inside PHP, held until the gate file is written.
struct Held {
    server: Haulier,
    gate: PathBuf,
    connection: Connection,
}

impl Held {
    fn start(site: Site) -> Self {
        let site = site.php("wait.php", WAIT_FOR_GATE).file("a.txt", "page");
        let directory = site.writable("gate");
        let (gate, began) = (directory.join("open"), directory.join("began"));
        let server = site
            .php("began.php", &format!("touch({began:?}); include 'wait.php';"))
            .start();
        let mut connection = server.connect();
        connection.send(Request::get(&format!("/began.php?gate={}", gate.display())).to_bytes());
        wait_until("the script to run", || began.exists());
        Self {
            server,
            gate,
            connection,
        }
    }

    fn open_gate(&self) {
        fs::write(&self.gate, "").expect("the directory is ours");
    }
}

#[test]
fn the_start_is_one_json_line_with_the_chosen_port() {
    let server = Site::new().file("a.txt", "a").php("x.php", "echo 1;").start();
    assert_ne!(server.address().port(), 0);
    server.get("/a.txt").expect(200);
    server.access_line_for("/a.txt");
    let lines = server.lines();
    let is_warning = |line: &&String| line.contains("\"level\":\"warn\"");
    let first = lines.iter().find(|line| !is_warning(line)).expect("a line");
    assert!(
        start_line_address(first).is_some(),
        "the first line that is no warning is the start line: {lines:#?}"
    );
    let before = lines.iter().take_while(|line| !line.contains("/a.txt"));
    let starts = before.filter(|line| !is_warning(line)).count();
    assert_eq!(starts, 1, "{lines:#?}");
}

#[test]
fn the_access_log_tells_where_the_time_went() {
    for php in [Php::Cgi, Php::Embedded, Php::Fpm(Socket::Unix)] {
        let site = Site::new()
            .php("hello.php", "usleep(20000); echo 'hello';")
            .file("a.txt", "page")
            .run_by(php);
        let server = site.start();
        let request = Request::get("/hello.php?x=1")
            .with("User-Agent", "test/1")
            .with("Referer", "http://r.example/");
        server.ask(&request).expect(200);
        let line = server.access_line_for("/hello.php");
        for (name, value) in [
            ("method", "GET"),
            ("query", "x=1"),
            ("site", "test"),
            ("handler", "php"),
            ("pool", "php"),
        ] {
            assert_eq!(line[name], value, "{name} in {line}");
        }
        assert_eq!(line["status"], 200);
        assert_eq!(line["ip"], "127.0.0.1");
        assert_eq!(line["ua"], "test/1");
        assert_eq!(line["referer"], "http://r.example/");
        assert!(line["bytes_out"].as_u64().is_some_and(|bytes| bytes >= 5), "{line}");
        assert!(line["req_id"].as_str().is_some_and(|id| !id.is_empty()), "{line}");
        assert!(line["php_ms"].as_f64().is_some_and(|time| time >= 20.0), "{line}");
        assert!(line["dur_ms"].as_f64() >= line["php_ms"].as_f64(), "{line}");
        assert!(line["queue_ms"].as_f64() <= line["dur_ms"].as_f64(), "{line}");
        assert!(line["queue_ms"].is_f64(), "{line}");
        server.get("/a.txt").expect(200);
        let line = server.access_line_for("/a.txt");
        assert_eq!(line["handler"], "static");
        assert!(line["php_ms"].is_null(), "{line}");
    }
}

#[test]
fn a_log_line_cannot_be_forged() {
    let server = Site::new().file("a.txt", "a").start();
    let strange = server.get("/a.txt%0a%7b%22status%22:599%7d").status();
    assert!(matches!(strange, 400 | 404), "{strange}");
    // A control character in a field value is refused; everything else is quoted.
    server
        .ask(&Request::get("/a.txt?refused").with("User-Agent", "\u{1b}[31m"))
        .expect(400);
    let name = "\"},{\"status\":599,\"x\":\"\\u0000\u{e9}";
    server.ask(&Request::get("/a.txt").with("User-Agent", name)).expect(200);
    let line = server.access_line_for("/a.txt");
    assert_eq!(line["status"], 200);
    assert_eq!(line["ua"], name);
    let lines = server.lines();
    assert!(lines.iter().all(|line| !line.contains('\u{1b}')), "{lines:#?}");
    assert!(
        lines.iter().all(|line| serde_json::from_str::<Value>(line).is_ok()),
        "{lines:#?}"
    );
}

#[test]
fn the_access_log_may_be_off_or_for_errors_only() {
    let server = Site::new().file("a.txt", "a").config("[log]\naccess = \"off\"").start();
    server.get("/a.txt").expect(200);
    assert!(server.access_log().is_empty());
    drop(server);
    let code = "for ($i = 0; $i < 99; $i++) header(\"X-$i: \" . str_repeat('a', 999));";
    let site = Site::new().file("a.txt", "a").php("long.php", code);
    let server = site.config("[log]\naccess = \"errors\"").start();
    server.get("/a.txt").expect(200);
    server.get("/long.php").expect(502);
    server.access_line_for("/long.php");
    assert!(server.access_log().iter().all(|line| line["path"] != "/a.txt"));
}

#[test]
fn what_php_says_on_stderr_is_logged_with_the_request() {
    for php in [Php::Cgi, Php::Embedded, Php::Fpm(Socket::Unix)] {
        let site = Site::new()
            .php("warn.php", "error_log('the milk is sour'); echo 'ok';")
            .run_by(php);
        let server = site.ini("log_errors", "1").start();
        server.get("/warn.php").expect(200);
        server.wait_for_line("the milk is sour");
        let id = server.access_line_for("/warn.php")["req_id"]
            .as_str()
            .expect("an id")
            .to_owned();
        let lines = server.lines();
        let said = lines
            .iter()
            .find(|line| line.contains("the milk is sour"))
            .expect("just seen");
        assert!(said.contains(&id), "no {id} in {said}");
    }
}

#[test]
fn an_error_behind_the_head_of_a_response_is_logged_with_the_request() {
    // Longer than what is collected whole, and a pause: the head is with the client when the script breaks.
    let breaks = "echo str_repeat('x', 1_000_000); flush(); usleep(400_000); throw new Exception('the milk is gone');";
    for offload in [None, Some("[site.test.offload]\ntypes = [\"text/html\"]")] {
        let site = Site::new().php("breaks.php", breaks).ini("log_errors", "1");
        let server = site.config(offload.unwrap_or_default()).start();
        server.get("/breaks.php").expect(200);
        server.wait_for_line("the milk is gone");
        let id = server.access_line_for("/breaks.php")["req_id"].to_string();
        let said = server
            .lines()
            .into_iter()
            .find(|line| line.contains("the milk is gone"));
        assert!(
            said.as_ref().is_some_and(|line| line.contains(id.trim_matches('"'))),
            "{id}: {said:?}"
        );
    }
}

#[test]
fn the_error_that_ended_a_script_stands_in_the_access_log_before_its_notes() {
    let ends = "error_log('only a note'); throw new Exception('the milk is gone');";
    let server = Site::new().php("ends.php", ends).ini("log_errors", "1").start();
    server.get("/ends.php").expect(500);
    let message = server.access_line_for("/ends.php")["php_message"].to_string();
    assert!(
        message.contains("PHP Fatal error: ") && message.contains("the milk is gone"),
        "{message}"
    );
}

#[test]
fn sigterm_lets_running_requests_finish() {
    for php in [Php::Cgi, Php::Embedded, Php::Fpm(Socket::Unix)] {
        let mut held = Held::start(Site::new().run_by(php));
        let mut idle = held.server.connect();
        idle.ask(&Request::get("/a.txt")).expect(200);
        held.server.signal(Signal::TERM);
        assert!(idle.is_closed_by_server(), "an idle connection is closed at once");
        wait_until("no more accepting", || {
            TcpStream::connect(held.server.address()).is_err()
        });
        assert!(
            held.server.wait_within(Duration::from_millis(300)).is_none(),
            "a request is still running"
        );
        held.open_gate();
        let response = held.connection.read_response("GET").expect("the answer").expect(200);
        assert_eq!(response.text(), "done");
        let status = held
            .server
            .wait_within(Duration::from_secs(60))
            .expect("it ends after its last request");
        assert_eq!(status.code(), Some(0));
    }
}

#[test]
fn a_second_sigterm_stops_at_once() {
    // Neither the grace nor the script's time is over by then.
    let patient = Site::new().server("grace = \"10m\"").pool("timeout = \"10m\"");
    let mut held = Held::start(patient);
    held.server.signal(Signal::TERM);
    assert!(
        held.server.wait_within(Duration::from_millis(500)).is_none(),
        "it drains first"
    );
    held.server.signal(Signal::TERM);
    held.server
        .wait_within(Duration::from_secs(60))
        .expect("it ends at once");
}

/// Who looks for a download that broke off finds it in the log.
#[test]
fn what_a_stop_breaks_off_is_logged() {
    let big = "x".repeat(8_000_000);
    for secure in [false, true] {
        let authority = Authority::new();
        let mut site = Site::new()
            .file("big.bin", &big)
            .file("small.txt", "small")
            .php(
                "big.php",
                "while (ob_get_level()) ob_end_flush(); readfile(__DIR__ . '/big.bin');",
            )
            .server("grace = \"1s\"")
            .setting("hosts = [\"localhost\"]");
        if secure {
            site = site
                .server("https = \"127.0.0.1:0\"")
                .config(&format!("[site.test.tls]\n{}", authority.lines("site", &["localhost"])));
        }
        let mut server = site.start();
        let idle = server.connect();
        let connect = || match secure {
            false => server.connect(),
            true => Connection::open(server.https()).secured("localhost", &authority.client(&[&TLS13])),
        };
        let mut readers: Vec<Connection> = Vec::new();
        for path in ["/big.bin", "/big.php"] {
            let mut reader = connect();
            reader.send(Request::get(path).to_bytes());
            reader.read_head().expect("a head");
            readers.push(reader);
        }
        server.signal(Signal::TERM);
        let status = server.wait_within(Duration::from_secs(60)).expect("it ends");
        assert_eq!(status.code(), Some(0));
        for path in ["/big.bin", "/big.php"] {
            let line = server.access_line_for(path);
            assert_eq!(line["reason"], "server_stopped", "{line}");
            assert!(
                line["bytes_out"].as_u64().is_some_and(|sent| sent < 8_000_000),
                "{line}"
            );
        }
        drop((idle, readers));
    }
}

#[test]
fn grace_ends_what_does_not_finish() {
    let mut held = Held::start(Site::new().server("grace = \"1s\""));
    held.server.signal(Signal::TERM);
    let answer = held.connection.read_response("GET").expect("an answer").expect(503);
    assert_eq!(answer.field("Connection"), Some("close"));
    assert_eq!(held.server.access_line_for("/began.php")["reason"], "server_stopped");
    let status = held
        .server
        .wait_within(Duration::from_secs(60))
        .expect("grace is one second");
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_lame_duck_serves_on_and_says_that_it_leaves() {
    let site = Site::new()
        .file("a.txt", "page")
        .server("lame_duck = \"10m\"\nthreads = 1");
    let mut server = site.server("probes = \"127.0.0.1:0\"").start();
    let probe = |server: &Haulier, path: &str| Connection::open(server.probes()).ask(&Request::get(path));
    let mut idle = server.connect();
    let answer = idle.ask(&Request::get("/a.txt")).expect(200);
    assert_eq!(answer.field("Connection"), None);
    probe(&server, "/readyz").expect(200);
    server.signal(Signal::TERM);
    wait_until("a server that is not ready", || {
        probe(&server, "/readyz").status() == 503
    });
    probe(&server, "/livez").expect(200);
    wait_until("answers that say so", || {
        server.get("/a.txt").expect(200).field("Connection") == Some("close")
    });
    let answer = idle.ask(&Request::get("/a.txt")).expect(200);
    assert_eq!(answer.field("Connection"), Some("close"));
    assert!(idle.is_closed_by_server());
    // Whoever does not want to wait says so again: then it ends as ever.
    server.signal(Signal::TERM);
    let status = server.wait_within(Duration::from_secs(60)).expect("it ends");
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_lame_duck_that_is_over_is_a_stop() {
    let site = Site::new().file("a.txt", "page").server("lame_duck = \"300ms\"");
    let mut server = site.start();
    let said = server.tell(&["stop"]);
    assert!(said.status.success(), "{said:?}");
    let status = server.wait_within(Duration::from_secs(60)).expect("it ends");
    assert_eq!(status.code(), Some(0));
}

#[test]
fn what_haulier_has_inherited_does_not_reach_php() {
    let site = Site::new().php(
        "open.php",
        "foreach (glob('/proc/self/fd/*') as $fd) { echo @readlink($fd), \"\\n\"; }",
    );
    let (config, _) = site.prepare();
    let mut command = Command::new("sh");
    command.args(["-c", "exec 8</etc/passwd 9>>/dev/full; exec \"$0\" \"$@\""]);
    command.arg(env!("CARGO_BIN_EXE_haulier"));
    command.arg("run").arg("-c").arg(config);
    let server = Haulier::start(command, vec![Box::new(site)]);
    let open = server.get("/open.php").expect(200).text();
    assert!(open.contains("socket:"), "{open}");
    assert!(!open.contains("/etc/passwd") && !open.contains("/dev/full"), "{open}");
}

#[test]
fn what_a_killed_haulier_left_is_removed_by_the_next_one() {
    let place = readable_directory();
    let start = || {
        let site = Site::new().php("a.php", "echo 'a';");
        let (config, _) = site.prepare();
        let mut command = Haulier::command();
        command
            .arg("run")
            .arg("-c")
            .arg(config)
            .env("XDG_RUNTIME_DIR", place.path());
        let server = Haulier::start(command, vec![Box::new(site)]);
        server.get("/a.php").expect(200);
        server
    };
    let folders = || -> Vec<String> {
        let entries = fs::read_dir(place.path()).expect("it is there").flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| !name.ends_with(".sock")).collect()
    };
    let mut killed = start();
    let left = folders();
    assert!(!left.is_empty(), "a folder for sockets, at least");
    killed.signal(Signal::KILL);
    killed.wait_within(Duration::from_secs(60)).expect("it is gone");
    assert_eq!(folders().len(), left.len());
    let next = start();
    let now = folders();
    assert!(now.iter().all(|name| !left.contains(name)), "{left:?}, then {now:?}");
    // Those of one that lives stay.
    let beside = start();
    assert!(now.iter().all(|name| folders().contains(name)));
    drop((next, beside));
    assert_eq!(folders(), Vec::<String>::new());
}

#[test]
fn a_pool_may_have_less_grace_than_the_server() {
    let mut held = Held::start(Site::new().pool("grace = \"1s\""));
    held.server.signal(Signal::TERM);
    held.connection.read_response("GET").expect("an answer").expect(503);
    let status = held
        .server
        .wait_within(Duration::from_secs(60))
        .expect("nothing is left to wait for");
    assert_eq!(status.code(), Some(0));
}

#[test]
fn php_ends_when_the_server_ends() {
    for signal in [Signal::TERM, Signal::KILL] {
        let mut server = Site::new().php("hello.php", "echo 'hello';").start();
        server.get("/hello.php").expect(200);
        // The first worker may answer before the last one is forked.
        wait_until("four workers", || server.php_workers().len() >= 4);
        let masters = children_of(server.pid());
        wait_until("four workers and one in reserve", || server.php_workers().len() == 5);
        let family: Vec<u32> = masters.iter().copied().chain(server.php_workers()).collect();
        server.signal(signal);
        server.wait_within(Duration::from_secs(60)).expect("it ends");
        let runs = |pid: &u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.contains("(php-cgi") && !stat.contains(") Z ")
        };
        wait_until("PHP to be gone", || !family.iter().any(runs));
    }
}

#[test]
fn two_servers_share_a_port_only_if_told_to() {
    let first = Site::new().file("a.txt", "first").server("reuse_port = true").start();
    let port = first.address().port();
    let site = Site::new().file("a.txt", "second");
    let (config, _) = site.prepare();
    let text = fs::read_to_string(&config)
        .expect("just written")
        .replace("127.0.0.1:0", &format!("127.0.0.1:{port}"));
    fs::write(&config, &text).expect("the directory is ours");
    let refused = finish(Haulier::command().arg("run").arg("-c").arg(&config));
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned() + &String::from_utf8_lossy(&refused.stdout);
    assert!(said.contains(&port.to_string()), "the error names the port: {said}");

    fs::write(&config, text.replace("[server]", "[server]\nreuse_port = true")).expect("the directory is ours");
    let mut command = Haulier::command();
    command.arg("run").arg("-c").arg(&config);
    let second = Haulier::start(command, vec![Box::new(site)]);
    assert_eq!(second.address().port(), port);
    let mut seen = Vec::new();
    wait_until("an answer of both", || {
        seen.push(first.get("/a.txt").expect(200).text());
        seen.contains(&"first".into()) && seen.contains(&"second".into())
    });
}

#[test]
fn serve_needs_no_configuration() {
    let site = Site::new().php("index.php", "echo 'home';").file("docs/a.txt", "a");
    let mut command = Haulier::command();
    command
        .arg("serve")
        .arg(site.root())
        .args(["--listen", "127.0.0.1:0", "--workers", "2"]);
    let server = Haulier::start(command, vec![Box::new(site)]);
    assert_eq!(server.get("/").expect(200).text(), "home");
    assert!(
        server.get("/docs/").expect(200).text().contains("a.txt"),
        "serve shows a simple listing"
    );
    server.get("/missing").expect(404);
}

/// Projects by what they are: the files that tell, and a page that is no file, where the front controller has it.
const PROJECTS: [(&str, &str, Option<&str>); 6] = [
    ("symfony", "public/index.php src/Kernel.php", Some("/products/7")),
    ("laravel", "public/index.php artisan", Some("/products/7")),
    ("wordpress", "index.php wp-config.php", Some("/hello-world/")),
    ("drupal", "index.php core/lib/Drupal.php", Some("/node/7")),
    ("plain", "index.php", None),
    ("static", "index.html", None),
];

#[test]
fn every_kind_of_project_is_served_by_one_word() {
    for (kind, files, page) in PROJECTS {
        let directory = readable_directory();
        for name in files.split(' ') {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("the directory is ours");
            let content = match name {
                "index.html" => "front of /",
                _ => "<?php echo 'front of ', $_SERVER['REQUEST_URI'];",
            };
            fs::write(path, content).expect("the directory is ours");
        }
        let mut command = Haulier::command();
        command
            .arg("serve")
            .arg(directory.path())
            .args(["--listen", "127.0.0.1:0"]);
        let server = Haulier::start(command, vec![Box::new(directory)]);
        let line: Value = serde_json::from_str(&server.lines()[0]).expect("the start line");
        assert_eq!(line["sites"][0]["app"], kind, "{line}");
        assert_eq!(server.get("/").expect(200).text(), "front of /", "{kind}");
        match page {
            Some(page) => assert_eq!(
                server.get(page).expect(200).text(),
                format!("front of {page}"),
                "{kind}"
            ),
            None => _ = server.get("/missing").expect(404),
        }
    }
}

#[test]
fn a_broken_configuration_is_exit_code_2_with_its_place() {
    let site = Site::new().file("a.txt", "a").setting("rooot = \"x\"");
    let (config, _) = site.prepare();
    let refused = finish(Haulier::command().arg("run").arg("-c").arg(&config));
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        said.contains("rooot") && said.contains("did you mean `root`?"),
        "{said}"
    );
}

/// Runs a command that must end by itself within a minute.
fn finish(command: &mut Command) -> Output {
    let output = Command::new("timeout")
        .arg("60")
        .arg(command.get_program())
        .args(command.get_args())
        .output();
    let output = output.expect("timeout(1) is part of coreutils");
    assert_ne!(
        output.status.code(),
        Some(124),
        "still running after a minute: {output:?}"
    );
    output
}

/// A child that is ended with the test, however the test ends.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_log_nobody_reads_holds_nobody_up() {
    let site = Site::new().file("a.txt", "page");
    let (config, _) = site.prepare();
    // Both streams into one pipe, of which we read the start line only.
    let script = format!(
        "exec {} run -c {} 2>&1",
        env!("CARGO_BIN_EXE_haulier"),
        config.display()
    );
    let mut child = Ended(
        Command::new("sh")
            .arg("-c")
            .arg(script)
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell"),
    );
    let output = BufReader::with_capacity(1, child.0.stdout.as_mut().expect("piped"));
    let address = output
        .lines()
        .map_while(Result::ok)
        .find_map(|line| start_line_address(&line));
    // The pipe takes 64 KiB; this is ten times that.
    let mut connection = Connection::open(address.expect("a start line"));
    for _ in 0..900 {
        connection
            .ask(&Request::get(&format!("/a.txt?{}", "x".repeat(700))))
            .expect(200);
    }
}

/// Starts haulier in `directory` until it listens; what it said on standard output and in its start line.
fn started(directory: &Path, arguments: &[&str]) -> (String, Value) {
    let (out, err) = (directory.join("out"), directory.join("err"));
    let file = |path: &Path| fs::File::create(path).expect("the directory is ours");
    let mut child = Ended(
        Haulier::command()
            .args(arguments)
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(file(&out))
            .stderr(file(&err))
            .spawn()
            .expect("the binary starts"),
    );
    let line = || {
        let text = fs::read_to_string(&err).expect("it is there");
        let mut objects = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        objects.find(|object| object["msg"] == "listening")
    };
    wait_until("the start line", || {
        assert_eq!(
            child.0.try_wait().expect("ours"),
            None,
            "{}",
            fs::read_to_string(&err).expect("text")
        );
        line().is_some()
    });
    drop(child);
    (fs::read_to_string(&out).expect("text"), line().expect("just seen"))
}

#[test]
fn all_a_server_says_is_on_standard_error_and_what_became_of_the_configuration_is_said() {
    let place = tempfile::tempdir().expect("a directory");
    fs::write(place.path().join("index.html"), "hello").expect("the directory is ours");
    let serve = ["serve", "--listen", "127.0.0.1:0"];
    let (out, line) = started(place.path(), &serve);
    assert_eq!(
        (out.as_str(), &line["config"], &line["note"]),
        ("", &Value::Null, &Value::Null)
    );
    let (_, line) = started(place.path(), &[&serve[..], &["--write"]].concat());
    assert!(
        line["note"]
            .as_str()
            .is_some_and(|note| note.contains("haulier.toml is written")),
        "{line}"
    );
    let written = fs::read_to_string(place.path().join("haulier.toml")).expect("written");
    let (_, line) = started(place.path(), &[&serve[..], &["--write"]].concat());
    assert_eq!(line["config"], "haulier.toml");
    assert!(
        line["note"]
            .as_str()
            .is_some_and(|note| note.contains("--write leaves it as it is")),
        "{line}"
    );
    assert_eq!(
        fs::read_to_string(place.path().join("haulier.toml")).expect("kept"),
        written
    );
}
