//! Root binds, another account serves.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use rustls::version::TLS13;

use super::support::client::{Connection, Request};
use super::support::haulier::Haulier;
use super::support::site::{Config, Site};
use super::support::tls::Authority;
use super::support::{is_root, readable_directory, wait_until};

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
fn a_server_without_root_leaves_nothing_behind() {
    assert!(is_root(), "this test changes accounts and needs root");
    for signal in [Signal::TERM, Signal::KILL] {
        let place = readable_directory();
        let control = format!("control = {:?}", place.path().join("control.sock"));
        let site = Site::new().php("a.php", "echo 'a';").server("user = \"nobody\"");
        let site = site.server(&control);
        let (config, _) = site.prepare();
        let mut command = Haulier::command();
        command
            .arg("run")
            .arg("-c")
            .arg(config)
            .env("XDG_RUNTIME_DIR", place.path());
        let mut server = Haulier::start(command, vec![Box::new(site)]);
        server.get("/a.php").expect(200);
        let names = || -> Vec<String> {
            let entries = fs::read_dir(place.path()).expect("it is there").flatten();
            entries
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect()
        };
        assert!(names().iter().any(|name| name.ends_with(".sock")), "{:?}", names());
        assert!(names().iter().any(|name| name.contains("-prelude-")), "{:?}", names());
        server.signal(signal);
        server.wait_within(Duration::from_secs(60)).expect("it ends");
        wait_until("nothing to be left", || names().is_empty());
    }
}

#[test]
fn a_spool_that_cannot_be_written_is_said_at_the_start_and_seldom_afterwards() {
    assert!(is_root(), "this test changes accounts and needs root");
    let code = "header('Content-Type: image/png'); while (ob_get_level()) ob_end_flush();
        for ($i = 0; $i < 100; $i++) { echo str_repeat('x', 60000); flush(); }";
    let site = Site::new()
        .php("long.php", code)
        .server("user = \"nobody\"")
        .config("[site.test.offload]\ntypes = [\"image/*\"]\nmemory = \"0B\"");
    let (config, _) = site.prepare();
    let spool = site.writable("spool");
    fs::set_permissions(&spool, fs::Permissions::from_mode(0o700)).expect("the directory is ours");
    let mut command = Haulier::command();
    command.arg("run").arg("-c").arg(config);
    let server = Haulier::start(command, vec![Box::new(site)]);
    server.wait_for_line("`spool_dir` cannot be written");
    for _ in 0..3 {
        assert_eq!(server.get("/long.php").expect(200).body.len(), 6_000_000);
    }
    server.wait_for_line("cannot spool a response");
    let lines = server.lines();
    let said = lines
        .iter()
        .filter(|line| line.contains("cannot spool a response"))
        .count();
    assert_eq!(said, 1, "{lines:#?}");
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
    let ended = old.wait_within(Duration::from_secs(60));
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
fn a_pool_that_would_run_as_root_is_refused_before_anything_starts() {
    assert!(is_root(), "this test changes accounts and needs root");
    let site = Site::new()
        .php("a.php", "")
        .pool("user = \"root\"")
        .server("user = \"nobody\"");
    let (config, _fpm) = site.prepare();
    let output = Command::new(env!("CARGO_BIN_EXE_haulier"))
        .args(["check", "-c"])
        .arg(&config)
        .output()
        .expect("the binary starts");
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("pool `php` cannot run as `root`"), "{said}");
}

/// Accounts that every Debian has.
const WWW_DATA: u32 = 33;
const BACKUP: u32 = 34;

/// A server that becomes `nobody`, whose own site runs PHP as that, with a site and a pool of `www-data` and of `backup`
/// each. Each of these has a secret beside its document root, which it alone may read.
fn with_two_accounts(pools: &str) -> (Haulier, Config) {
    assert!(is_root(), "this test changes accounts and needs root");
    let site = Site::new().php("who.php", "echo posix_geteuid(), ' ', getmypid();");
    let mut config = String::new();
    for (name, uid) in [("www-data", WWW_DATA), ("backup", BACKUP)] {
        let home = site.writable(name);
        let root = home.join("public");
        fs::create_dir(&root).expect("the directory is ours");
        let secrets = ["www-data", "backup"].map(|name| home.with_file_name(name).join("secret"));
        let script = format!(
            "<?php echo json_encode([posix_geteuid(), posix_getegid(), getmypid(), \
             @file_get_contents({:?}), @file_get_contents({:?})]);",
            secrets[0], secrets[1]
        );
        fs::write(root.join("who.php"), script).expect("the directory is ours");
        fs::write(root.join("stuck.php"), "<?php sleep(60);").expect("the directory is ours");
        let secret = home.join("secret");
        fs::write(&secret, format!("of {name}")).expect("the directory is ours");
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("root may");
        // haulier looks at scripts and sends files; it is not let in by being root.
        fs::set_permissions(&root, fs::Permissions::from_mode(0o750)).expect("root may");
        for (path, group) in [(&home, uid), (&root, NOBODY), (&secret, uid)] {
            std::os::unix::fs::chown(path, Some(uid), Some(group)).expect("root may");
        }
        config += &format!(
            "[site.{name}]\nhosts = [\"{name}.test\"]\nroot = {root:?}\napp = \"plain\"\npool = {name:?}\n\
             [pool.{name}]\nuser = {name:?}\nworkers = 2\ntimeout = \"1s\"\n{pools}\n"
        );
    }
    site.server("user = \"nobody\"")
        .setting("pool = \"php\"")
        .config(&config)
        .start_with_config()
}

/// What the script of this account says: user, group, process, and both secrets as far as it could read them.
fn visit(server: &Haulier, name: &str) -> serde_json::Value {
    let request = Request::get("/who.php").with("Host", &format!("{name}.test"));
    let mut text = String::new();
    // While PHP starts again a request may be told so.
    wait_until("an answer of PHP", || {
        let response = server.ask(&request);
        text = response.text();
        response.status() == 200
    });
    serde_json::from_str(&text).expect("the script speaks JSON")
}

/// The process that stayed root.
fn spawner_of(server: &Haulier) -> u32 {
    let children = super::support::haulier::children_of(server.pid());
    let is_spawner = |pid: &u32| {
        fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| line.split(|&byte| byte == 0).nth(1) == Some(b"php-spawner"))
    };
    children.into_iter().find(is_spawner).expect("a spawner")
}

fn word(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
    u64::from_str_radix(line.trim(), 16).expect("a hexadecimal number")
}

/// A process and all that come from it.
fn family(pid: u32) -> Vec<u32> {
    let children = super::support::haulier::children_of(pid);
    std::iter::once(pid)
        .chain(children.into_iter().flat_map(family))
        .collect()
}

fn is_alive(pid: u32) -> bool {
    let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = state.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| state != 'Z')
}

#[test]
fn pools_of_two_accounts_see_only_their_own_files_although_haulier_is_a_third() {
    let (mut server, _config) = with_two_accounts("recycle = { requests = 20 }");
    for task in fs::read_dir(format!("/proc/{}/task", server.pid()))
        .expect("it runs")
        .flatten()
    {
        let task: u32 = task.file_name().to_string_lossy().parse().expect("a thread");
        assert_eq!(ids(task, "Uid:"), [NOBODY; 4]);
    }
    assert_eq!(word(server.pid(), "CapPrm:"), 0);
    assert_eq!(who(&server).0, NOBODY, "a pool that names nobody runs as haulier does");

    let (www, backup) = (visit(&server, "www-data"), visit(&server, "backup"));
    assert_eq!((&www[0], &www[1]), (&WWW_DATA.into(), &WWW_DATA.into()));
    assert_eq!((&www[3], &www[4]), (&"of www-data".into(), &false.into()));
    assert_eq!((&backup[0], &backup[1]), (&BACKUP.into(), &BACKUP.into()));
    assert_eq!((&backup[3], &backup[4]), (&false.into(), &"of backup".into()));

    // The one that is still root can change accounts, and little else; what it starts can do nothing of the kind.
    let spawner = spawner_of(&server);
    assert_eq!(ids(spawner, "Uid:"), [0; 4]);
    let few = word(spawner, "CapEff:");
    assert!(few != 0 && few.count_ones() <= 7, "{few:x}");
    let worker = u32::try_from(www[2].as_u64().expect("a number")).expect("a pid");
    assert_eq!(word(worker, "CapPrm:"), 0);
    assert_eq!(word(worker, "SigBlk:"), 0, "signals reach PHP");
    assert_eq!(ids(worker, "Uid:"), [WWW_DATA; 4]);
    assert!(!ids(worker, "Groups:").contains(&0));
    let memory = server.metrics().value("haulier_php_memory_bytes{pool=\"www-data\"}");
    assert!(memory > 1e6, "{memory}");

    // A worker that is killed, one that hangs, and one that has done its share: all are replaced.
    kill(worker);
    assert_ne!(visit(&server, "www-data")[2], www[2]);
    let workers = php_of(spawner);
    server
        .ask(&Request::get("/stuck.php").with("Host", "backup.test"))
        .expect(504);
    wait_until("the one that hung to be gone", || {
        workers.iter().any(|&pid| !is_alive(pid))
    });
    let mut seen = std::collections::BTreeSet::new();
    wait_until("workers to be replaced by new ones", || {
        seen.insert(visit(&server, "backup")[2].as_u64());
        seen.len() > 3
    });
    // So is a master.
    let masters = super::support::haulier::children_of(spawner);
    assert_eq!(masters.len(), 2);
    masters.iter().for_each(|&master| kill(master));
    wait_until("both to be started again", || {
        let now = super::support::haulier::children_of(spawner);
        now.len() == 2 && now.iter().all(|pid| !masters.contains(pid))
    });
    assert_eq!(visit(&server, "www-data")[3], "of www-data");

    let everybody = family(server.pid());
    assert!(everybody.len() > 8, "{everybody:?}");
    server.signal(Signal::TERM);
    assert!(
        server
            .wait_within(Duration::from_secs(60))
            .is_some_and(|status| status.success())
    );
    assert!(
        !everybody.iter().any(|&pid| is_alive(pid)),
        "a stop leaves nobody behind"
    );
}

/// The workers of all masters of the spawner.
fn php_of(spawner: u32) -> Vec<u32> {
    let masters = super::support::haulier::children_of(spawner);
    masters
        .into_iter()
        .flat_map(super::support::haulier::children_of)
        .collect()
}

#[test]
fn nothing_that_haulier_has_started_outlives_it() {
    let (server, _config) = with_two_accounts("");
    visit(&server, "www-data");
    let everybody = family(server.pid());
    kill(server.pid());
    wait_until("all to be gone", || !everybody.iter().any(|&pid| is_alive(pid)));
}

#[test]
fn without_the_one_that_stayed_root_the_rest_of_the_site_goes_on() {
    let (server, _config) = with_two_accounts("queue = \"1s\"");
    visit(&server, "www-data");
    let spawner = spawner_of(&server);
    let theirs = family(spawner);
    kill(spawner);
    wait_until("what it had started to be gone", || {
        !theirs.iter().any(|&pid| is_alive(pid))
    });
    server.wait_for_line("has ended: restart haulier");
    server
        .ask(&Request::get("/who.php").with("Host", "www-data.test"))
        .expect(503);
    assert_eq!(who(&server).0, NOBODY);
}

#[test]
fn a_reload_starts_as_other_accounts_what_was_settled_before_and_nothing_else() {
    let (server, config) = with_two_accounts("max_requests = 500");
    let before = visit(&server, "www-data");
    let said = server.reload();
    assert!(said.contains("nothing changed"), "{said}");
    // Fresh processes, and other limits of ours: the same program as the same account.
    let fresh = server.tell(&["reload", "--php"]);
    assert!(fresh.status.success(), "{fresh:?}");
    let after = visit(&server, "www-data");
    assert_ne!(before[2], after[2]);
    config.replace("max_requests = 500", "max_requests = 400");
    server.reload();
    assert_eq!(visit(&server, "backup")[4], "of backup");
    let spawner = spawner_of(&server);
    wait_until("the pools before to be gone", || {
        super::support::haulier::children_of(spawner).len() == 2
    });
    // Another program, another account, more of them.
    for (old, new) in [
        ("timeout = \"1s\"", "timeout = \"1s\"\nenv = { MORE = \"1\" }"),
        ("user = \"backup\"", "user = \"games\""),
        ("user = \"backup\"\nworkers = 2", "user = \"backup\"\nworkers = 3"),
    ] {
        config.replace(old, new);
        let refused = server.tell(&["reload"]);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(said.contains("has changed since haulier left root"), "{said}");
        assert!(said.contains("haulier run --take-over"), "{said}");
        config.replace(new, old);
    }
    assert_eq!(visit(&server, "backup")[4], "of backup");
}
