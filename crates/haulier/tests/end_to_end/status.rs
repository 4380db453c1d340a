//! `haulier status`, the control socket it asks on, and several servers on one machine.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::support::client::{Connection, Request};
use super::support::haulier::Haulier;
use super::support::site::Site;
use super::support::wait_until;

fn control_of(server: &Haulier) -> PathBuf {
    PathBuf::from(server.start_line()["control"].as_str().expect("a control socket"))
}

fn status(arguments: &[&str], runtime: &Path) -> Output {
    let mut command = Haulier::command();
    command.arg("status").args(arguments);
    looking_only_in(&mut command, runtime)
        .output()
        .expect("the binary starts")
}

/// Neither this machine's servers nor those of other tests are to be found.
fn looking_only_in<'c>(command: &'c mut Command, runtime: &Path) -> &'c mut Command {
    command
        .env("RUNTIME_DIRECTORY", runtime)
        .env("XDG_RUNTIME_DIR", runtime)
        .env("TMPDIR", runtime)
}

fn status_of(server: &Haulier, arguments: &[&str]) -> String {
    let control = control_of(server);
    let control = control.to_str().expect("text");
    let output = status(&[&["--socket", control], arguments].concat(), Path::new("/nowhere"));
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn status_says_what_the_server_is_doing() {
    let gate = tempfile::tempdir().expect("a directory");
    let gate = gate.path().join("gate");
    let server = Site::new()
        .php("index.php", "echo 'hello';")
        .php(
            "export.php",
            "for ($i = 0; $i < 12000 && !file_exists($_GET['gate']); $i++) { usleep(10000); clearstatcache(); }",
        )
        .file("a.txt", "a")
        .start();
    for target in ["/a.txt", "/a.txt", "/a.txt", "/index.php"] {
        server.get(target).expect(200);
    }
    let target = format!("/export.php?gate={}", gate.display());
    let address = server.address();
    let export = thread::spawn(move || Connection::open(address).ask(&Request::get(&target)).expect(200));
    wait_until("a request that takes long", || {
        status_of(&server, &[]).contains("GET /export.php ")
    });
    let text = status_of(&server, &[]);
    let config = server.start_line()["config"].as_str().expect("a path").to_owned();
    assert!(
        text.contains(&format!("config {config}  pid {}", server.pid())),
        "{text}"
    );
    assert!(
        text.contains("75%") && text.contains("25%"),
        "three of four were static: {text}"
    );
    assert!(text.contains("php    1/4      0         0"), "{text}");
    assert!(
        text.contains("downloads  0 active") && text.contains("PHP saved: "),
        "{text}"
    );

    let state: Value = serde_json::from_str(&status_of(&server, &["--json"])).expect("one line of JSON");
    assert_eq!(state["pid"], server.pid());
    assert_eq!(state["sites"][0]["name"], "test");
    assert_eq!(state["sites"][0]["requests_total"], 4);
    assert_eq!(state["sites"][0]["in_flight"], 1);
    assert_eq!(state["pools"][0]["busy"], 1);
    assert_eq!(
        state["pools"][0]["running"][0]["pid"].as_u64().map(|pid| pid > 1),
        Some(true)
    );
    let served: Value = serde_json::from_str(
        &Connection::open(server.admin())
            .ask(&Request::get("/api/state.json"))
            .expect(200)
            .text(),
    )
    .expect("JSON");
    assert_eq!(
        served["pools"][0]["busy"], state["pools"][0]["busy"],
        "the same numbers everywhere"
    );
    fs::write(&gate, "").expect("the directory is ours");
    export.join().expect("it was answered");
}

#[test]
fn a_script_that_streams_large_bodies_is_named_with_the_rule_that_would_spare_it() {
    let server = Site::new()
        .php(
            "export.php",
            "header('Content-Type: text/csv; charset=utf-8'); for ($i = 0; $i < 40; $i++) { echo str_repeat('x', 65536); }",
        )
        .php("index.php", "echo str_repeat('x', 1000000);")
        .start();
    for target in ["/export.php?a=1", "/export.php?a=2", "/index.php"] {
        server.get(target).expect(200);
    }
    wait_until("the end of both", || {
        status_of(&server, &[]).contains("test /export.php       2   5 MB")
    });
    let text = status_of(&server, &[]);
    assert!(
        text.contains("\n[site.test.offload]\ntypes = [\"text/csv\"]\n"),
        "{text}"
    );
    assert!(!text.contains("/index.php"), "a megabyte is not worth a rule: {text}");
}

#[test]
fn the_control_socket_is_its_owners_alone_and_goes_with_the_server() {
    let site = Site::new().file("a.txt", "a");
    let path = site.writable("run").join("my-control.sock");
    let server = site
        .server(&format!("control = {:?}", path.display().to_string()))
        .start();
    assert_eq!(control_of(&server), path);
    assert_eq!(
        fs::metadata(&path).expect("it is there").permissions().mode() & 0o777,
        0o600
    );
    let mut stream = UnixStream::connect(&path).expect("it listens");
    let mut answers = BufReader::new(stream.try_clone().expect("a second handle"));
    let mut ask = |line: &str| {
        stream.write_all(line.as_bytes()).expect("it reads");
        let mut answer = String::new();
        answers.read_line(&mut answer).expect("it answers");
        serde_json::from_str::<Value>(&answer).expect("a line of JSON")
    };
    assert_eq!(ask("{\"command\":\"status\"}\n")["state"]["pid"], server.pid());
    assert!(ask("{\"command\":\"explode\"}\n")["error"].is_string());
    assert!(ask("\u{1}nonsense\n")["error"].is_string());
    assert_eq!(
        ask("{\"command\":\"status\"}\n")["state"]["listen"],
        json!([server.address()])
    );
    drop(server);
    assert!(!path.exists());
}

#[test]
fn without_a_server_status_says_so() {
    let nowhere = tempfile::tempdir().expect("a directory");
    let output = status(&[], nowhere.path());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(said(&output).contains("no haulier is running here"), "{output:?}");
    let named = status(&["--socket", "/nowhere/control.sock"], nowhere.path());
    assert_eq!(named.status.code(), Some(1), "{named:?}");
    assert!(said(&named).contains("/nowhere/control.sock"), "{named:?}");
}

#[test]
fn two_servers_on_one_machine_are_told_apart() {
    let runtime = tempfile::tempdir().expect("a directory");
    let first = start_in(&runtime, "first");
    let alone = status(&["--json"], runtime.path());
    let alone: Value = serde_json::from_slice(&alone.stdout).expect("the only one is found");
    assert_eq!(alone["pid"], first.pid());

    let second = start_in(&runtime, "second");
    assert_ne!(control_of(&first), control_of(&second));
    let both = status(&[], runtime.path());
    assert_eq!(both.status.code(), Some(1), "{both:?}");
    for server in [&first, &second] {
        let path = control_of(server);
        assert!(
            path.starts_with(runtime.path()) && said(&both).contains(path.to_str().expect("text")),
            "{both:?}"
        );
        let state: Value = serde_json::from_str(&status_of(server, &["--json"])).expect("JSON");
        assert_eq!(state["pid"], server.pid());
    }
    drop(first);
    let left = status(&["--json"], runtime.path());
    let left: Value = serde_json::from_slice(&left.stdout).expect("only one is left");
    assert_eq!(left["pid"], second.pid());
}

fn start_in(runtime: &TempDir, name: &str) -> Haulier {
    let site = Site::new().file("a.txt", name);
    let (config, _) = site.prepare();
    let mut command = Haulier::command();
    looking_only_in(&mut command, runtime.path())
        .arg("run")
        .arg("-c")
        .arg(&config);
    Haulier::start(command, vec![Box::new(site)])
}

#[test]
fn an_admin_address_that_is_taken_stops_run_and_names_the_key() {
    let holder = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = holder.local_addr().expect("bound");
    let site = Site::new().file("a.txt", "a");
    let (config, _) = site.prepare();
    let text = fs::read_to_string(&config).expect("just written");
    let text = text.replace("admin = \"localhost:0\"", &format!("admin = \"{taken}\""));
    fs::write(&config, &text).expect("the directory is ours");
    let refused = Haulier::command()
        .arg("run")
        .arg("-c")
        .arg(&config)
        .output()
        .expect("the binary starts");
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(said(&refused).contains(&taken.to_string()), "{refused:?}");
    assert!(said(&refused).contains("`admin` in `[server]`"), "{refused:?}");

    // `serve` in the same place takes the next free one and says which.
    fs::write(site.root().join("haulier.toml"), text).expect("the directory is ours");
    let mut command = Haulier::command();
    command.arg("serve").arg(site.root()).args(["--listen", "127.0.0.1:0"]);
    let server = Haulier::start(command, vec![Box::new(site)]);
    assert_ne!(server.admin(), taken);
    server.metrics();
}

#[test]
fn a_control_socket_that_is_taken_stops_run_and_names_the_key() {
    let site = Site::new().file("a.txt", "a");
    let path = site.writable("run").join("control.sock");
    let site = site.server(&format!("control = {:?}", path.display().to_string()));
    let (config, _) = site.prepare();
    let server = site.start();
    let refused = Haulier::command()
        .arg("run")
        .arg("-c")
        .arg(&config)
        .output()
        .expect("the binary starts");
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(said(&refused).contains("`control` in `[server]`"), "{refused:?}");
    assert!(path.exists(), "the first one keeps its socket");
    assert!(status_of(&server, &[]).contains("haulier "));
}

#[test]
fn watching_prints_again_and_again_until_nobody_reads() {
    let server = Site::new().file("a.txt", "a").start();
    let mut command = Haulier::command();
    command
        .args(["status", "--watch", "--json", "--socket"])
        .arg(control_of(&server));
    let mut child = command
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    for _ in 0..2 {
        let line = lines.next().expect("another line").expect("text");
        assert_eq!(serde_json::from_str::<Value>(&line).expect("JSON")["pid"], server.pid());
    }
    drop(lines);
    assert!(
        child.wait().expect("it ends").success(),
        "a reader that has gone away is no failure"
    );
}

#[test]
fn tools_for_php_fpm_find_its_words_while_every_worker_is_busy() {
    let site = Site::new()
        .php("hello.php", "echo 'hello';")
        .php(
            "wait.php",
            "while (!file_exists($_GET['gate'])) { usleep(10000); clearstatcache(); }",
        )
        .workers(1);
    let gate = site.writable("gates").join("open");
    let server = site.start();
    server.get("/hello.php").expect(200);
    let address = server.address();
    let target = format!("/wait.php?gate={}", gate.display());
    let waiting = thread::spawn(move || Connection::open(address).ask(&Request::get(&target)));
    let ask = |path: &str| Connection::open(server.admin()).ask(&Request::get(path));
    let json = || serde_json::from_str::<Value>(&ask("/fpm/php?json").expect(200).text()).expect("JSON");
    wait_until("the only worker to be busy", || json()["active processes"] == 1);
    let said = json();
    for (name, value) in [
        ("accepted conn", 2),
        ("idle processes", 0),
        ("total processes", 1),
        ("max active processes", 1),
        ("listen queue", 0),
        ("listen queue len", 512),
    ] {
        assert_eq!(said[name], value, "{name} in {said}");
    }
    assert!(said["max children reached"].as_u64() >= Some(1), "{said}");
    let text = ask("/fpm/php").expect(200).text();
    assert!(
        text.starts_with("pool:                 php\nprocess manager:      static\n"),
        "{text}"
    );
    ask("/fpm/other").expect(404);
    fs::write(&gate, "").expect("the directory is ours");
    waiting.join().expect("it was answered").expect(200);
}
