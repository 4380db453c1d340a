//! Access logs: their forms, files that are rotated, readers that stall.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

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
fn the_user_of_a_password_is_named_and_forges_no_line() {
    let site = Site::new().file("a.txt", "page").file("open/a.txt", "page");
    // htpasswd -s: the password is "horse" for both.
    let sha = "{SHA}CRtQNYhcABcP7J7PJCJJM+PeP8w=";
    let users = site.writable("logs").join("users");
    fs::write(&users, format!("anna:{sha}\nann [x] \"y\":{sha}\n")).expect("the directory is ours");
    let file = users.with_file_name("access.log");
    let server = site
        .config(&format!(
            "[[site.test.route]]\npath = \"/*\"\nbasic_auth = {users:?}\n[[site.test.route]]\npath = \"/open/*\"\n\
             basic_auth = \"off\"\n[site.test.log]\nformat = \"combined\"\nfile = {file:?}"
        ))
        .start();
    // `anna:horse`, `anna:cow` and `ann [x] "y":horse`
    let ask = |target: &str, credentials: &str| {
        let request = Request::get(target).with("Authorization", &format!("Basic {credentials}"));
        server.ask(&request).status()
    };
    assert_eq!(ask("/a.txt?1", "YW5uYTpob3JzZQ=="), 200);
    assert_eq!(ask("/a.txt?2", "YW5uYTpjb3c="), 401);
    assert_eq!(ask("/a.txt?3", "YW5uIFt4XSAieSI6aG9yc2U="), 200);
    assert_eq!(ask("/open/a.txt?4", "YW5uYTpob3JzZQ=="), 200);
    wait_until("four lines", || lines(&file).len() == 4);
    for (query, user) in [
        ("?1 ", "anna"),
        ("?2 ", "anna"),
        ("?3 ", r#"ann\x20[x]\x20\"y\""#),
        ("?4 ", "-"),
    ] {
        let found = lines(&file).into_iter().find(|line| line.contains(query));
        let line = found.expect("a line for each");
        assert!(line.starts_with(&format!("127.0.0.1 - {user} [")), "{line}");
    }
}

#[test]
fn json_lines_name_the_user_and_the_pool_that_ran_the_script() {
    let site = Site::new().php("a.php", "echo 1;").php("reports/a.php", "echo 1;");
    let users = site.writable("users").join("users");
    fs::write(&users, "anna:{SHA}CRtQNYhcABcP7J7PJCJJM+PeP8w=\n").expect("the directory is ours");
    let server = site
        .setting("pool = \"php\"")
        .config(&format!(
            "[pool.reports]\nworkers = 1\n[[site.test.route]]\npath = \"/reports/*\"\npool = \"reports\"\n\
             basic_auth = {users:?}\n"
        ))
        .start();
    server.get("/a.php").expect(200);
    let request = Request::get("/reports/a.php").with("Authorization", "Basic YW5uYTpob3JzZQ==");
    server.ask(&request).expect(200);
    let line = server.access_line_for("/reports/a.php");
    assert_eq!(
        (line["pool"].as_str(), line["user"].as_str()),
        (Some("reports"), Some("anna"))
    );
    let line = server.access_line_for("/a.php");
    assert_eq!((line["pool"].as_str(), line["user"].as_str()), (Some("php"), None));
}

#[test]
fn no_form_of_a_line_lets_a_name_turn_it_around() {
    for format in ["text", "json", "combined"] {
        let site = Site::new().file("a.txt", "page");
        let file = site.writable("logs").join("access.log");
        let server = site
            .config(&format!("[site.test.log]\nformat = \"{format}\"\nfile = {file:?}"))
            .start();
        server.ask_raw("GET /\u{202e}gpj.exe HTTP/1.1\r\nHost: x\r\nUser-Agent: \u{2066}\u{2028}\r\n\r\n");
        wait_until("a line", || lines(&file).len() == 1);
        let line = &lines(&file)[0];
        assert!(!line.contains(['\u{202e}', '\u{2066}', '\u{2028}']), "{line:?}");
        assert!(line.contains("gpj.exe"), "{line:?}");
    }
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

/// A file system of 64 KiB, gone with the value.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    /// `None` where this account may not mount.
    fn mount(place: &Path) -> Option<Self> {
        let arguments = ["-t", "tmpfs", "-o", "size=64k,mode=0755", "tmpfs"];
        let mounted = Command::new("mount").args(arguments).arg(place).status();
        let is_mounted = mounted.is_ok_and(|status| status.success());
        is_mounted.then(|| Self(place.to_owned()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_costs_lines_that_are_counted_and_joins_none() {
    let site = Site::new().file("a.txt", "page");
    let place = site.writable("logs");
    let Some(_disk) = SmallDisk::mount(&place) else {
        eprintln!("SKIPPED: only root mounts a small disk");
        return;
    };
    let (file, filler) = (place.join("access.log"), place.join("filler"));
    let server = site.config(&format!("[log]\nfile = {file:?}")).start();
    let ask = |count: usize| {
        for _ in 0..count {
            server
                .ask(&Request::get("/a.txt").with("User-Agent", &"x".repeat(300)))
                .expect(200);
        }
    };
    let lost = || {
        server
            .metrics()
            .count("haulier_log_lines_lost_total{reason=\"failed\"}") as usize
    };
    ask(1);
    wait_until("a line", || lines(&file).len() == 1);
    // As much as there is room for.
    fs::write(&filler, vec![b'x'; 65_536]).expect_err("a page has the log");
    ask(60);
    wait_until("a lost line", || lost() > 0);
    fs::remove_file(&filler).expect("it is there");
    ask(20);
    server.wait_for_line("access log lines were lost");
    wait_until("every line written or counted", || lines(&file).len() + lost() == 81);
    for line in lines(&file) {
        let line: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_eq!(line["path"], "/a.txt");
    }
}

#[test]
fn a_log_file_nobody_reads_holds_nobody_up() {
    let site = Site::new().file("a.txt", "page");
    let pipe = site.writable("logs").join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().expect("mkfifo is there");
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
