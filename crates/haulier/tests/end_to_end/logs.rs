//! Access logs: their forms, files that are rotated, readers that stall.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

use super::support::client::Request;
use super::support::site::Site;
use super::support::wait_until;

fn lines(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn combined_lines_are_what_other_tools_read() {
    let site = Site::new().file("a.txt", "page");
    let file = site.writable("logs").join("access.log");
    let server = site
        .config(&format!("[log]\nformat = \"combined\"\nfile = {file:?}"))
        .start();
    let request = Request::get("/a.txt?q=\"1\"")
        .with("Referer", "http://r.example/")
        .with("User-Agent", "test \"quoted\" \\1");
    server.ask(&request).expect(200);
    server.ask(&Request::head("/missing")).expect(404);
    wait_until("two lines", || lines(&file).len() == 2);
    // Two connections may be on two threads, each of which logs after it has sent.
    let mut written = lines(&file);
    written.sort_by_key(|line| line.contains("HEAD"));
    let (before, rest) = written[0].split_once(" [").expect("a time in brackets");
    let (time, rest) = rest.split_once("] ").expect("its end");
    assert_eq!(before, "127.0.0.1 - -");
    assert_eq!(time.len(), "06/Nov/1994:08:49:37 +0000".len(), "{time}");
    assert!(
        time.ends_with(" +0000") && time.as_bytes()[2] == b'/' && time.as_bytes()[11] == b':',
        "{time}"
    );
    assert_eq!(
        rest,
        r#""GET /a.txt?q=\"1\" HTTP/1.1" 200 4 "http://r.example/" "test \"quoted\" \\1""#
    );
    assert!(
        written[1].ends_with(r#""HEAD /missing HTTP/1.1" 404 0 "-" "-""#),
        "{}",
        written[1]
    );
    let mode = file.metadata().expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o640, "logs are nobody else's business");
    assert!(server.access_log().is_empty(), "the log is in its file");
}

#[test]
fn a_rotated_file_is_opened_anew_on_sigusr1_and_no_line_is_lost() {
    let site = Site::new().file("a.txt", "page");
    let directory = site.writable("logs");
    let file = directory.join("access.log");
    let server = site.config(&format!("[log]\nfile = {file:?}")).start();
    const ROUNDS: usize = 5;
    const REQUESTS: usize = 40;
    let mut connection = server.connect();
    for round in 0..ROUNDS {
        for number in 0..REQUESTS {
            connection
                .ask(&Request::get(&format!("/a.txt?{round}.{number}")))
                .expect(200);
        }
        fs::rename(&file, directory.join(format!("access.log.{round}"))).expect("the directory is ours");
        server.signal(Signal::USR1);
        connection.ask(&Request::get("/a.txt?after")).expect(200);
        wait_until("the file to be made anew", || {
            let _ = server.get("/a.txt?again");
            file.exists()
        });
    }
    let all = || -> Vec<String> {
        let rotated = (0..ROUNDS).flat_map(|round| lines(&directory.join(format!("access.log.{round}"))));
        rotated.chain(lines(&file)).collect()
    };
    let numbered = |lines: &[String]| lines.iter().filter(|line| has_number(line)).count();
    wait_until("every line", || numbered(&all()) == ROUNDS * REQUESTS);
    for line in all() {
        serde_json::from_str::<Value>(&line).unwrap_or_else(|error| panic!("{error} in {line}"));
    }
}

/// Whether the query of a line is one of the numbered requests.
fn has_number(line: &str) -> bool {
    serde_json::from_str::<Value>(line)
        .is_ok_and(|line| line["query"].as_str().is_some_and(|query| query.contains('.')))
}

#[test]
fn a_site_may_have_its_own_log() {
    let site = Site::new().file("a.txt", "page");
    let directory = site.writable("logs");
    let (own, errors) = (directory.join("own.log"), directory.join("errors.log"));
    let root = site.root().display().to_string();
    let tables = format!(
        "[site.own]\nroot = {root:?}\napp = \"static\"\nhosts = [\"own.example\"]\n[site.own.log]\nfile = {own:?}\n\
         format = \"combined\"\n[site.errors]\nroot = {root:?}\napp = \"static\"\nhosts = [\"errors.example\"]\n\
         [site.errors.log]\nfile = \"logs/errors.log\"\naccess = \"errors\"\n\
         [site.silent]\nroot = {root:?}\napp = \"static\"\nhosts = [\"silent.example\"]\nlog = {{ access = \"off\" }}\n"
    );
    let server = site.config(&tables).start();
    for host in ["own.example", "errors.example", "silent.example", "other.example"] {
        for path in ["/a.txt", "/missing"] {
            let bytes = format!("GET {path}?{host} HTTP/1.1\r\nHost: {host}\r\n\r\n");
            server.ask_raw(bytes).expect(if path == "/a.txt" { 200 } else { 404 });
        }
    }
    wait_until("the lines of every log", || {
        lines(&own).len() == 2 && lines(&errors).len() == 1 && server.access_log().len() == 2
    });
    let found = |line: &String| line.contains("\"GET /a.txt?own.example HTTP/1.1\" 200");
    assert!(lines(&own).iter().any(found));
    let line: Value = serde_json::from_str(&lines(&errors)[0]).expect("JSON in a file");
    assert_eq!(
        (line["site"].as_str(), line["status"].as_u64()),
        (Some("errors"), Some(404))
    );
    assert!(server.access_log().iter().all(|line| line["site"] == "test"));
}

#[test]
fn a_log_file_nobody_reads_holds_nobody_up() {
    let site = Site::new().file("a.txt", "page");
    let pipe = site.writable("logs").join("pipe");
    let made = std::process::Command::new("mkfifo")
        .arg(&pipe)
        .status()
        .expect("mkfifo is there");
    assert!(made.success());
    // Held open and never read: the pipe is full after 64 KiB.
    let _reader = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&pipe)
        .expect("a pipe of ours");
    let server = site.config(&format!("[log]\nfile = {pipe:?}")).start();
    let agent = "x".repeat(2000);
    let mut connection = server.connect();
    for _ in 0..900 {
        connection
            .ask(&Request::get("/a.txt").with("User-Agent", &agent))
            .expect(200);
    }
}
