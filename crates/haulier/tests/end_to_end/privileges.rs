//! Root binds, another account serves.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use rustls::version::TLS13;

use super::support::client::{Connection, Request};
use super::support::haulier::Haulier;
use super::support::site::Site;
use super::support::tls::Authority;
use super::support::{is_root, wait_until};

const NOBODY: u32 = 65_534;

/// The four ids, or the groups, of a line in /proc/PID/status.
fn ids(pid: u32, name: &str) -> Vec<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .expect("the line is there");
    line.split_whitespace()
        .map(|id| id.parse().expect("a number"))
        .collect()
}

#[test]
fn root_is_given_up_for_good_and_php_still_comes_back() {
    assert!(is_root(), "this test changes accounts and needs root");
    let site = Site::new()
        .php("who.php", "echo posix_geteuid(), ' ', getmypid();")
        .file("a.txt", "page");
    let logs = site.writable("logs");
    fs::set_permissions(&logs, fs::Permissions::from_mode(0o755)).expect("the directory is ours");
    std::os::unix::fs::chown(&logs, Some(NOBODY), Some(NOBODY)).expect("root may");
    let file = logs.join("access.log");
    let socket = site.writable("run").join("http.sock");
    let config = format!("[log]\nfile = {file:?}");
    let server = site
        .listen(&format!("[\"127.0.0.1:0\", \"unix:{}\"]", socket.display()))
        .server("user = \"nobody\"")
        .config(&config)
        .start();
    for task in fs::read_dir(format!("/proc/{}/task", server.pid()))
        .expect("it runs")
        .flatten()
    {
        let task: u32 = task.file_name().to_string_lossy().parse().expect("a thread");
        assert_eq!(ids(task, "Uid:"), [NOBODY; 4]);
        assert_eq!(ids(task, "Gid:"), [NOBODY; 4]);
        assert_eq!(ids(task, "Groups:"), [NOBODY], "root's groups are gone");
    }
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it runs");
    for capabilities in ["CapPrm:", "CapEff:", "CapAmb:"] {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(capabilities))
            .expect("a line");
        assert_eq!(u64::from_str_radix(line.trim(), 16), Ok(0), "{capabilities}");
    }
    let (user, worker) = who(&server);
    assert_eq!(user, NOBODY);

    // A killed worker, then a killed master: both come back without root.
    kill(worker);
    let (user, other) = who(&server);
    assert_eq!(user, NOBODY);
    assert_ne!(worker, other);
    let masters = super::support::haulier::children_of(server.pid());
    masters.iter().for_each(|&master| kill(master));
    wait_until("PHP to be started again", || {
        let now = super::support::haulier::children_of(server.pid());
        !now.is_empty() && now.iter().all(|pid| !masters.contains(pid))
    });
    assert_eq!(who(&server).0, NOBODY);

    // The log file can be opened anew by the new account.
    wait_until("lines in the log", || {
        fs::metadata(&file).is_ok_and(|found| found.len() > 0)
    });
    assert_eq!(fs::metadata(&file).expect("it is there").uid(), NOBODY);
    fs::rename(&file, logs.join("access.log.1")).expect("root may");
    server.signal(Signal::USR1);
    wait_until("a new log file", || {
        server.get("/a.txt").expect(200);
        file.exists()
    });
}

#[test]
fn without_root_the_configuration_can_still_be_exchanged() {
    assert!(is_root(), "this test changes accounts and needs root");
    let site = Site::new()
        .php("who.php", "echo posix_geteuid(), ' ', getmypid();")
        .file("a.txt", "page");
    let (server, config) = site.server("user = \"nobody\"").start_with_config();
    let (_, worker) = who(&server);
    let said = server.reload();
    assert!(said.contains("nothing changed"), "{said}");
    let masters = super::support::haulier::children_of(server.pid());
    assert_eq!(masters.len(), 1, "the pool is the same, whoever looks at it: {worker}");
    config.replace("workers = 4", "workers = 2");
    let said = server.reload();
    assert!(said.contains("pool php 4→2 workers"), "{said}");
    assert_eq!(who(&server).0, NOBODY);
    wait_until("the old pool to be gone", || {
        let now = super::support::haulier::children_of(server.pid());
        now.len() == 1 && now != masters
    });
    config.replace("user = \"nobody\"", "user = \"www-data\"");
    let refused = server.tell(&["reload"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("only root can serve as `www-data`"), "{said}");
    server.get("/a.txt").expect(200);
}

#[test]
fn a_key_that_only_root_may_read_is_served_on_after_a_reload() {
    assert!(is_root(), "this test changes accounts and needs root");
    let authority = Authority::new();
    let lines = authority.lines("shop", &["shop.test"]);
    let private = |file: &str| {
        fs::set_permissions(authority.path(file), fs::Permissions::from_mode(0o600)).expect("root may");
    };
    private("shop.key");
    let site = Site::new()
        .file("a.txt", "page")
        .server("user = \"nobody\"\nhttps = \"127.0.0.1:0\"")
        .setting("hosts = [\"shop.test\"]")
        .config(&format!("[site.test.tls]\n{lines}"));
    let (server, config) = site.start_with_config();
    let visit = || {
        let client = authority.client(&[&TLS13]);
        let mut connection = Connection::open(server.https()).secured("shop.test", &client);
        connection
            .ask(&Request::get("/a.txt").with("Host", "shop.test"))
            .expect(200)
    };
    visit();
    // Another way to speak needs another acceptor, with the certificate that is there.
    config.append("[tls]\nmin = \"1.3\"");
    server.reload();
    server.wait_for_line("Permission denied");
    visit();
    // One that was never read cannot be served.
    authority.sign("other", &["shop.test"], 30);
    private("other.key");
    config.replace("shop.", "other.");
    config.replace("other.test", "shop.test");
    let refused = server.tell(&["reload"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("site `test` has no certificate"), "{said}");
    visit();
}

#[test]
fn root_takes_over_from_one_that_has_left_root() {
    assert!(is_root(), "this test changes accounts and needs root");
    let site = Site::new().php("who.php", "echo posix_geteuid(), ' ', getmypid();");
    let control = site.writable("run").join("control.sock");
    let (mut old, config) = site
        .server(&format!("user = \"nobody\"\ncontrol = {control:?}"))
        .start_with_config();
    who(&old);
    let mut command = Haulier::command();
    command.args(["run", "--take-over", "-c"]).arg(&config.path);
    let new = Haulier::start(command, Vec::new());
    assert_eq!(new.address(), old.address());
    let ended = old.wait_within(std::time::Duration::from_secs(20));
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
    assert_eq!(who(&new).0, NOBODY);
    drop(new);
    drop(old);
}

fn who(server: &Haulier) -> (u32, u32) {
    // While PHP starts again a request may be told so.
    let mut text = String::new();
    wait_until("an answer of PHP", || {
        let response = server.get("/who.php");
        text = response.text();
        response.status() == 200
    });
    let (user, pid) = text.split_once(' ').expect("two numbers");
    (user.parse().expect("a number"), pid.parse().expect("a number"))
}

fn kill(pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).expect("a pid")).expect("not zero");
    kill_process(pid, Signal::KILL).expect("it runs");
}

#[test]
fn a_pool_of_another_account_is_explained_before_anything_starts() {
    assert!(is_root(), "this test changes accounts and needs root");
    let site = Site::new()
        .php("a.php", "")
        .pool("user = \"www-data\"")
        .server("user = \"nobody\"");
    let (config, _fpm) = site.prepare();
    let output = Command::new(env!("CARGO_BIN_EXE_haulier"))
        .args(["check", "-c"])
        .arg(&config)
        .output()
        .expect("the binary starts");
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("pool `php` cannot run as `www-data`"), "{said}");
}
