//! A new binary in the place of the old one, and not a request lost.

use std::fs;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use rustls::version::{TLS12, TLS13};
use serde_json::Value;

use super::support::client::{Connection, Request};
use super::support::haulier::Haulier;
use super::support::load::Crowd;
use super::support::site::{Config, Site};
use super::support::streams::StreamCrowd;
use super::support::tls::Authority;
use super::support::wait_until;

fn run(config: &Config, more: &[&str]) -> Command {
    let mut command = Haulier::command();
    command.arg("run").args(more).arg("-c").arg(&config.path);
    command
}

#[test]
fn a_new_process_takes_the_place_of_the_old_one_under_load() {
    let site = Site::new()
        .file("a.txt", "page")
        .php("pid.php", "usleep(2000); echo posix_getppid();")
        .config("[log]\naccess = \"errors\"");
    let run_dir = site.writable("run");
    let control = run_dir.join("control.sock");
    let http = run_dir.join("http.sock");
    let (mut old, config) = site
        .listen(&format!("[\"127.0.0.1:0\", \"unix:{}\"]", http.display()))
        .server(&format!("control = {control:?}"))
        .start_with_config();
    let address = old.address();
    let pages = ["/a.txt", "/pid.php", "/a.txt"].map(Request::get);
    let crowd = Crowd::start(address, 6, &pages);
    crowd.wait_for(200);
    let mut downloading = old.connect();
    downloading.send("GET /a.txt HTTP/1.1\r\nHost: x\r\n");
    let new = Haulier::start(run(&config, &["--take-over"]), Vec::new());
    assert_eq!(new.address(), address);
    assert_eq!(new.admin(), old.admin());
    // A request that the old one has begun to read is the old one's to answer.
    downloading.send("\r\n");
    downloading.read_response("GET").expect("an answer").expect(200);
    let status = old.wait_within(Duration::from_secs(60)).expect("it gives way");
    assert_eq!(status.code(), Some(0));
    crowd.wait_for(200);
    let (answers, failures) = crowd.end();
    assert!(failures.is_empty(), "{} of {answers}: {failures:#?}", failures.len());
    let state = new.tell(&["status", "--json"]);
    let state: Value = serde_json::from_slice(&state.stdout).expect("JSON");
    assert_eq!(state["pid"], new.pid());
    assert!(http.exists() && control.exists(), "the sockets are the new one's");
    drop(new);
    assert!(!http.exists() && !control.exists(), "and go with it");
    drop(old);
}

#[test]
fn connections_over_tls_are_taken_over_as_well() {
    let authority = Authority::new();
    let site = Site::new().file("a.txt", "page").server("https = \"127.0.0.1:0\"");
    let control = site.writable("run").join("control.sock");
    let (mut old, config) = site
        .server(&format!("control = {control:?}"))
        .setting("hosts = [\"shop.test\"]")
        .config(&format!(
            "[log]\naccess = \"errors\"\n[site.test.tls]\n{}",
            authority.lines("shop", &["shop.test"])
        ))
        .start_with_config();
    let (plain, secure) = (old.address(), old.https());
    let client = authority.client(&[&TLS13, &TLS12]);
    let open = move || Ok(Connection::try_open(secure)?.secured("shop.test", &client));
    let crowd = Crowd::over(open, 4, &[Request::get("/a.txt").with("Host", "shop.test")]);
    crowd.wait_for(60);
    let new = Haulier::start(run(&config, &["--take-over"]), Vec::new());
    assert_eq!((new.address(), new.https()), (plain, secure), "each socket has its own");
    old.wait_within(Duration::from_secs(60)).expect("it gives way");
    crowd.wait_for(60);
    let (answers, failures) = crowd.end();
    assert!(failures.is_empty(), "{} of {answers}: {failures:#?}", failures.len());
    drop(new);
    drop(old);
}

/// RFC 9113 §6.8: the farewell comes before the end, and what was begun is answered.
#[test]
fn streams_of_http2_are_all_answered_by_the_one_or_the_other() {
    let site = Site::new()
        .file("a.txt", "page")
        .php("slow.php", "usleep(5000); echo 'slow';")
        .config("[log]\naccess = \"errors\"");
    let control = site.writable("run").join("control.sock");
    let (mut old, config) = site.server(&format!("control = {control:?}")).start_with_config();
    let crowd = StreamCrowd::start(old.address(), 4, &["/a.txt", "/slow.php", "/a.txt"]);
    crowd.wait_for(200);
    let new = Haulier::start(run(&config, &["--take-over"]), Vec::new());
    let status = old.wait_within(Duration::from_secs(60)).expect("it gives way");
    assert_eq!(status.code(), Some(0));
    crowd.wait_for(200);
    let (answers, failures) = crowd.end();
    assert!(failures.is_empty(), "{} of {answers}: {failures:#?}", failures.len());
    drop(new);
    drop(old);
}

#[test]
fn another_number_of_threads_and_other_addresses_take_over_as_well() {
    let site = Site::new().file("a.txt", "page").server("threads = 3");
    let control = site.writable("run").join("control.sock");
    let (mut old, config) = site
        .listen("[\"127.0.0.1:0\", \"[::1]:0\"]")
        .server(&format!("control = {control:?}"))
        .start_with_config();
    config.replace("threads = 3", "threads = 2");
    config.replace("http = [\"127.0.0.1:0\", \"[::1]:0\"]", "http = \"127.0.0.1:0\"");
    let new = Haulier::start(run(&config, &["--take-over"]), Vec::new());
    assert_eq!(new.address(), old.address());
    old.wait_within(Duration::from_secs(60)).expect("it gives way");
    new.wait_for_line("names its address");
    for _ in 0..20 {
        new.get("/a.txt").expect(200);
    }
    drop(new);
    drop(old);
}

#[test]
fn a_new_process_that_cannot_start_leaves_the_old_one_alone() {
    let site = Site::new().file("a.txt", "page");
    let control = site.writable("run").join("control.sock");
    let (old, config) = site.server(&format!("control = {control:?}")).start_with_config();
    config.replace("[site.test]", "[site.test]\nnonsense = 1");
    let output = run(&config, &["--take-over"]).output().expect("the binary starts");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    config.replace("nonsense = 1", "");
    config.append(&format!(
        "[log]\nfile = {:?}",
        control.parent().expect("a directory").join("control.sock/x")
    ));
    let output = run(&config, &["--take-over"]).output().expect("the binary starts");
    assert!(!output.status.success(), "{output:?}");
    old.get("/a.txt").expect(200);
    assert!(control.exists());
    old.tell(&["status"]);
}

/// It had the sockets in hand already when another address proved taken.
#[test]
fn sockets_stay_with_the_old_one_when_the_new_one_fails_late() {
    let site = Site::new().file("a.txt", "page");
    let run_dir = site.writable("run");
    let [control, web] = ["control", "web"].map(|name| run_dir.join(format!("{name}.sock")));
    let (mut old, config) = site
        .listen(&format!("[\"127.0.0.1:0\", \"unix:{}\"]", web.display()))
        .server(&format!("control = {control:?}"))
        .start_with_config();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("it is bound");
    config.replace("http = [", &format!("http = [\"{address}\", "));
    let output = run(&config, &["--take-over"]).output().expect("the binary starts");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let reaches = |path: &Path| UnixStream::connect(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    reaches(&web);
    assert!(old.tell(&["status"]).status.success());
    // Those that are left to the next one go with it, and not with the old one.
    config.replace(&format!("\"{address}\", "), "");
    let mut new = Haulier::start(run(&config, &["--take-over"]), Vec::new());
    old.wait_within(Duration::from_secs(60)).expect("it gives way");
    reaches(&web);
    reaches(&control);
    new.signal(Signal::TERM);
    new.wait_within(Duration::from_secs(60)).expect("it ends");
    assert!(!web.exists() && !control.exists());
    drop(old);
}

#[test]
fn without_anybody_to_relieve_it_says_so() {
    let site = Site::new().file("a.txt", "page");
    let control = site.writable("run").join("control.sock");
    let site = site.server(&format!("control = {control:?}"));
    let (path, _fpm) = site.prepare();
    let output = run(&Config { path }, &["--take-over"])
        .output()
        .expect("the binary starts");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("take-over") && said.contains("control.sock"), "{said}");
}

#[test]
fn one_take_over_after_another_leaves_nothing_behind() {
    let site = Site::new().file("a.txt", "page").php("a.php", "echo 1;");
    let control = site.writable("run").join("control.sock");
    let (mut current, config) = site.server(&format!("control = {control:?}")).start_with_config();
    let address = current.address();
    for _ in 0..3 {
        let next = Haulier::start(run(&config, &["--take-over"]), Vec::new());
        assert_eq!(next.address(), address);
        current.wait_within(Duration::from_secs(60)).expect("it gives way");
        let holder = std::mem::replace(&mut current, next);
        // The directory of the site lives as long as the first one.
        std::mem::forget(holder);
        current.get("/a.php").expect(200);
    }
    wait_until("listening sockets of one process", || {
        let table = fs::read_to_string("/proc/net/tcp").expect("/proc is mounted");
        let local = format!("0100007F:{:04X}", address.port());
        let rows = table.lines().filter(|row| row.contains(&local) && row.contains(" 0A "));
        rows.count() <= std::thread::available_parallelism().map_or(1, usize::from)
    });
}
