//! Several pools side by side, and the settings of pools as the configuration has them.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use serde_json::Value;

use super::support::client::{Connection, Request};
use super::support::haulier::{Haulier, children_of};
use super::support::load::{Load, assert_only, kill};
use super::support::php_fpm::{PhpFpm, Socket};
use super::support::site::Site;
use super::support::{is_root, wait_until};

/// A page of the site with this host name.
fn page(host: &str, target: &str) -> Request {
    Request::new("GET", target).with("Host", host)
}

/// How many lines of the access log have which status and reason for paths of this kind.
fn outcomes(server: &Haulier, path: &str) -> BTreeMap<(u64, String), usize> {
    let mut outcomes = BTreeMap::new();
    for line in server.access_log().iter().filter(|line| line["path"] == path) {
        let reason = line["reason"].as_str().unwrap_or_default().to_owned();
        *outcomes
            .entry((line["status"].as_u64().unwrap_or(0), reason))
            .or_default() += 1;
    }
    outcomes
}

fn count(outcomes: &BTreeMap<(u64, String), usize>) -> usize {
    outcomes.values().sum()
}

/// Two sites, three pools: workers of one are killed, another has too few and gets what a route names, and one is two
/// php-fpm of which one stops and starts again.
#[test]
fn under_load_and_harm_every_request_gets_a_promised_answer_with_its_reason() {
    let (mut mortal, steady) = (PhpFpm::start(Socket::Unix, 4, &[]), PhpFpm::start(Socket::Tcp, 4, &[]));
    let site = Site::new()
        .php("killed.php", "usleep(3000); echo 'hello';")
        .php("narrow/page.php", "usleep(300000); echo 'hello';")
        .php("narrow/stuck.php", "sleep(60);")
        .php("fpm.php", "usleep(3000); echo 'hello';");
    let root = site.root().display().to_string();
    let config = format!(
        r#"
[pool.narrow]
workers = 1
queue = "1s"
queue_length = 2
timeout = "10s"
[pool.fpm]
servers = [{:?}, {:?}]
connections = 3
[[site.test.route]]
path = "/narrow/*"
pool = "narrow"
[site.fpm]
hosts = ["fpm.test"]
root = {root:?}
app = "plain"
pool = "fpm"
"#,
        mortal.server(),
        steady.server()
    );
    let server = site.setting("pool = \"php\"").config(&config).start();
    server.get("/killed.php").expect(200);
    let killed = Load::start(server.address(), 3, &page("localhost", "/killed.php"));
    let narrow = Load::start(server.address(), 6, &page("localhost", "/narrow/page.php"));
    let external = Load::start(server.address(), 4, &page("fpm.test", "/fpm.php"));
    for round in 0..6 {
        // Nobody's second attempt is killed too.
        for load in [&killed, &external] {
            load.wait_for(10);
        }
        if let Some(pid) = worker_of_php(&server) {
            kill(pid);
        }
        match round {
            1 | 4 => mortal.stop(),
            2 | 5 => mortal.start_again(),
            _ => {}
        }
    }
    for load in [&killed, &narrow, &external] {
        load.wait_for(1);
    }
    let (killed, narrow, external) = (killed.statuses(), narrow.statuses(), external.statuses());
    server.ask(&page("localhost", "/narrow/stuck.php")).expect(504);
    assert_eq!(server.access_line_for("/narrow/stuck.php")["reason"], "php_timeout");
    assert_only(&killed, &[200]);
    assert_only(&external, &[200]);
    assert_only(&narrow, &[200, 503]);
    assert!(narrow.contains(&503), "{narrow:?}");
    for (path, statuses, promised) in [
        ("/killed.php", &killed, &[(200, "")][..]),
        ("/fpm.php", &external, &[(200, "")]),
        ("/narrow/page.php", &narrow, &[(200, ""), (503, "pool_full")]),
    ] {
        let first = usize::from(path == "/killed.php");
        wait_until("a log line for every answer", || {
            count(&outcomes(&server, path)) == statuses.len() + first
        });
        let outcomes = outcomes(&server, path);
        let known = |(status, reason): &(u64, String)| promised.contains(&(*status, reason.as_str()));
        assert!(outcomes.keys().all(known), "{path}: {outcomes:?}");
    }
    server.wait_for_line("FastCGI server does not answer and is left out");
    server.wait_for_line("FastCGI server answers again");
}

/// A worker of the pool `php`, the one with four of them and one in reserve.
fn worker_of_php(server: &Haulier) -> Option<u32> {
    let families = children_of(server.pid()).into_iter().map(children_of);
    families.into_iter().find(|family| family.len() >= 4)?.first().copied()
}

#[test]
fn a_pool_of_our_own_obeys_all_its_settings() {
    let site = Site::new()
        .php(
            "which.php",
            "header('X-Pid: ' . getmypid()); \
             echo json_encode([ini_get('precision'), ini_set('memory_limit', '1G'), posix_getrlimit()['soft openfiles']]);",
        )
        .php("slow.php", "usleep(4000000); echo 'hello';");
    let log = site.writable("log").join("slow.log");
    let tables = format!(
        r#"
[pool.other]
workers = {{ min = 1, max = 3, idle = "200ms" }}
recycle = {{ requests = 5, memory = "200MiB", age = "1h" }}
ini = {{ precision = 7 }}
ini_admin = {{ memory_limit = "90M" }}
nice = 1
rlimits = {{ files = 200 }}
slow = {{ after = "1s", log = {log:?} }}
body_timeout = "30s"
"#
    );
    let server = site.setting("pool = \"other\"").config(&tables).start();
    let mut pids = Vec::new();
    for _ in 0..12 {
        let response = server.get("/which.php").expect(200);
        assert_eq!(response.text(), r#"["7",false,200]"#);
        pids.push(response.field("X-Pid").expect("a pid").to_owned());
    }
    pids.sort();
    pids.dedup();
    assert!(pids.len() >= 3, "five requests a worker: {pids:?}");
    server.get("/slow.php").expect(200);
    let lines = fs::read_to_string(log).expect("the log");
    // A slow machine may have made the others slow too.
    let line = lines.lines().find(|line| line.contains("GET /slow.php"));
    let line: Value = serde_json::from_str(line.expect("a line of it")).expect("a JSON object");
    assert_eq!((&line["pool"], &line["waits_for"]), (&"other".into(), &"sleep".into()));
}

#[test]
fn php_fpm_is_watched_by_its_ping() {
    let (mut mortal, steady) = (PhpFpm::start(Socket::Unix, 3, &[]), PhpFpm::start(Socket::Unix, 3, &[]));
    let pool = format!(
        r#"
[pool.fpm]
servers = [{:?}, {:?}]
connections = 2
health = {{ path = "/ping", every = "100ms", fail = 2, recover = 2 }}
"#,
        mortal.server(),
        steady.server()
    );
    let site = Site::new().php("hello.php", "echo 'hello';");
    let server = site.setting("pool = \"fpm\"").config(&pool).start();
    server.get("/hello.php").expect(200);
    mortal.stop();
    server.wait_for_line("is left out");
    for _ in 0..5 {
        server.ask(&Request::post("/hello.php", "x")).expect(200);
    }
    mortal.start_again();
    server.wait_for_line("answers again");
    server.get("/hello.php").expect(200);
}

#[test]
fn what_php_fpm_says_of_itself_is_on_the_dashboard_and_in_the_metrics() {
    let fpm = PhpFpm::start(Socket::Tcp, 3, &[]);
    let asked_at = |status: &str| {
        let health = format!("health = {{ path = \"/ping\", status = {status:?}, every = \"100ms\" }}");
        let pool = format!(
            "\n[pool.fpm]\nservers = [{:?}]\nconnections = 1\n{health}\n",
            fpm.server()
        );
        let site = Site::new().php("hello.php", "echo 'hello';");
        site.setting("pool = \"fpm\"").config(&pool).start()
    };
    let wrong = asked_at("/elsewhere");
    wrong.wait_for_line("does not tell its status there");
    wrong.get("/hello.php").expect(200);
    drop(wrong);
    let server = asked_at("/status");
    let metrics = server.metrics();
    assert_eq!(
        metrics.sum("haulier_upstream_queue_length{pool=\"fpm\""),
        0.0,
        "there from the start"
    );
    server.get("/hello.php").expect(200);
    // The child that answers is one of them.
    wait_until("its word", || {
        server.metrics().sum("haulier_upstream_active{pool=\"fpm\"") >= 1.0
    });
    wait_until("its word on the dashboard", || {
        let page = Connection::open(server.admin()).ask(&Request::get("/").with("Host", "localhost"));
        let page = page.expect(200).text();
        page.contains("Its queue") && page.contains(" of 3")
    });
}

/// As in a container without CAP_SYS_PTRACE, where PHP runs as another user.
#[test]
fn without_the_right_to_look_into_php_a_time_out_still_ends_the_right_worker() {
    if !is_root() {
        println!("skipped: only root can give a capability up and still run PHP as another user");
        return;
    }
    let site = Site::new()
        .php("pid.php", "echo getmypid();")
        .php("stuck.php", "set_time_limit(0); while (true);")
        .workers(2)
        .pool("timeout = \"1s\"");
    let (config, _) = site.prepare();
    let mut command = Command::new("setpriv");
    command
        .args(["--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"])
        .arg(Haulier::command().get_program())
        .args(["run", "-c"])
        .arg(config);
    let server = Haulier::start(command, vec![Box::new(site)]);
    server.wait_for_line("cannot be told apart here");
    // PHP may take longer to start than it has for an answer.
    let pid = || {
        let mut text = String::new();
        wait_until("an answer of PHP", || {
            let answer = server.get("/pid.php");
            text = answer.text();
            answer.status() == 200
        });
        text
    };
    pid();
    for _ in 0..3 {
        server.get("/stuck.php").expect(504);
    }
    let pid = pid();
    let line = server.access_line_for("/stuck.php");
    assert_eq!(line["reason"], "php_timeout");
    wait_until("both workers to run", || {
        let workers = children_of(server.pid());
        workers.len() == 2 && workers.iter().any(|worker| worker.to_string() == pid)
    });
}

#[test]
fn a_file_prepended_for_good_runs_beside_the_functions_of_haulier() {
    let site = Site::new().php("own.php", "const OWN = 'mine';").php(
        "page.php",
        "echo OWN, ' ', function_exists('zend_send_file') ? 'yes' : 'no', ' ', \
             var_export(ini_set('auto_prepend_file', 'x'), true);",
    );
    let own = site.root().join("own.php");
    let line = format!("ini_admin = {{ auto_prepend_file = {own:?} }}");
    let server = site.pool(&line).start();
    assert_eq!(server.get("/page.php").expect(200).text(), "mine yes false");
}

#[test]
fn a_pool_that_may_rest_ends_its_php_and_starts_it_for_the_next_request() {
    let site = Site::new().php("pid.php", "echo getmypid();");
    let server = site
        .setting("pool = \"rare\"")
        .config("[pool.rare]\nworkers = { min = 0, max = 2, idle = \"500ms\", spawn_rate = 8 }\n")
        .start();
    let mut pids = std::collections::BTreeSet::new();
    for _ in 0..3 {
        pids.insert(server.get("/pid.php").expect(200).text());
        wait_until("no PHP to be left", || children_of(server.pid()).is_empty());
    }
    assert_eq!(pids.len(), 3, "{pids:?}");
    let metrics = server.metrics();
    let exits = metrics.count("haulier_php_worker_exits_total{pool=\"rare\",reason=\"master\"}");
    assert_eq!(exits, 0, "nobody ended unasked");
    Connection::open(server.admin())
        .ask(&Request::get("/healthz"))
        .expect(200);
    assert!(!server.lines().iter().any(|line| line.contains("\"level\":\"error\"")));
}

#[test]
fn visitors_with_one_session_meet_one_php_fpm() {
    let fpms = [PhpFpm::start(Socket::Unix, 3, &[]), PhpFpm::start(Socket::Tcp, 3, &[])];
    let site = Site::new().php("who.php", "echo posix_getppid();");
    let config = format!(
        "[pool.web]\nservers = [{:?}, {:?}]\nconnections = 2\nbalance = \"hash:cookie:SHOP\"\n",
        fpms[0].server(),
        fpms[1].server()
    );
    let server = site.setting("pool = \"web\"").config(&config).start();
    let visit = |session: &str| {
        let request = Request::get("/who.php").with("Cookie", &format!("a=b; SHOP={session}"));
        server.ask(&request).expect(200).text()
    };
    let sessions: Vec<String> = (0..16).map(|number| format!("s{number}")).collect();
    let homes: Vec<String> = sessions.iter().map(|session| visit(session)).collect();
    assert!(
        homes.iter().any(|home| *home != homes[0]),
        "both have visitors: {homes:?}"
    );
    for (session, home) in sessions.iter().zip(&homes) {
        assert_eq!(visit(session), *home);
    }
}

/// A site with one worker, which a script holds until the gate opens, and what is told by those that have run.
fn held_site() -> (Site, std::path::PathBuf) {
    let site = Site::new();
    let dir = site.writable("queue");
    let note = format!("file_put_contents('{}/ran', $_GET['n'], FILE_APPEND);", dir.display());
    let held = format!(
        "{note} for ($i = 0; $i < 6000 && !file_exists('{}/open'); $i++) {{ usleep(10000); clearstatcache(); }}",
        dir.display()
    );
    let site = site.workers(1).php("held.php", &held);
    (site.php("page.php", &format!("{note} echo $_GET['n'];")), dir)
}

#[track_caller]
fn wait_for_queue(server: &Haulier, length: u64) {
    let queued = || server.metrics().count("haulier_php_queue_length{pool=\"php\"}");
    wait_until("so many to wait", || queued() == length);
}

#[test]
fn requests_whose_clients_have_left_the_queue_do_not_run() {
    let (site, dir) = held_site();
    let server = site.pool("queue = \"60s\"").start();
    let mut first = server.connect();
    first.send(Request::get("/held.php?n=H").to_bytes());
    wait_until("the worker to be taken", || dir.join("ran").exists());
    let mut patient = server.connect();
    patient.send(Request::get("/page.php?n=P").to_bytes());
    let mut silent = server.connect();
    silent.send(Request::get("/page.php?n=S").to_bytes());
    silent.finish_sending();
    for _ in 0..5 {
        let mut gone = server.connect();
        gone.send(Request::get("/page.php?n=x").to_bytes());
    }
    let lines = || server.access_log();
    let left = || lines().iter().filter(|line| line["reason"] == "client_gone").count();
    wait_until("the end of those that left", || left() == 5);
    let mut late = server.connect();
    late.send(Request::get("/page.php?n=L").to_bytes());
    wait_for_queue(&server, 3);
    fs::write(dir.join("open"), "").expect("ours");
    assert_eq!(late.read_response("GET").expect("an answer").text(), "L");
    assert_eq!(patient.read_response("GET").expect("an answer").text(), "P");
    let silent = silent.read_response("GET").expect("half-closed is not closed");
    assert_eq!(silent.text(), "S");
    assert!(silent.interim.iter().all(|head| head.status == 102));
    assert_eq!(
        fs::read_to_string(dir.join("ran")).expect("ours"),
        "HPLS",
        "it came last"
    );
}

#[test]
fn a_client_of_tls_that_has_left_the_queue_is_not_served_either() {
    let authority = super::support::tls::Authority::new();
    let (site, dir) = held_site();
    let server = site
        .pool("queue = \"60s\"")
        .server("https = \"127.0.0.1:0\"")
        .config(&format!("[site.test.tls]\n{}", authority.lines("site", &["localhost"])))
        .start();
    let client = authority.client(rustls::ALL_VERSIONS);
    let connect = || Connection::open(server.https()).secured("localhost", &client);
    let mut first = connect();
    first.send(Request::get("/held.php?n=H").to_bytes());
    wait_until("the worker to be taken", || dir.join("ran").exists());
    let mut gone = connect();
    gone.send(Request::get("/page.php?n=x").to_bytes());
    wait_for_queue(&server, 1);
    gone.finish_sending();
    wait_for_queue(&server, 0);
    fs::write(dir.join("open"), "").expect("ours");
    first.read_response("GET").expect("an answer");
    assert_eq!(fs::read_to_string(dir.join("ran")).expect("ours"), "H");
}

#[test]
fn where_memory_is_out_php_dies_before_the_server() {
    let score = |pid: u32| -> i32 {
        let text = fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).expect("it runs");
        text.trim().parse().expect("a number")
    };
    let server = Site::new().php("hello.php", "echo 'hello';").start();
    server.get("/hello.php").expect(200);
    let ours = score(server.pid());
    let php = || [children_of(server.pid()), server.php_workers()].concat();
    wait_until("a master and its four children", || php().len() >= 5);
    for pid in php() {
        assert_eq!(score(pid), (ours + 500).min(1000));
    }
}
