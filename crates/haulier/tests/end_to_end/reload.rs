//! Another configuration without a lost request: `reload`, SIGHUP, `stop`, and what is said about it.
//!
//! `HAULIER_RELOADS=20 HAULIER_REQUESTS=50000` is the whole proof; without a word it is a tenth of it.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, StreamOwned};
use serde_json::Value;

use super::support::client::{Connection, Request};
use super::support::haulier::{Haulier, children_of};
use super::support::load::Crowd;
use super::support::site::Site;
use super::support::tls::Authority;
use super::support::{number, require, wait_until};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The pid of the php-cgi master.
fn master(server: &Haulier) -> Vec<u32> {
    children_of(server.pid())
}

#[test]
fn requests_across_reloads_are_all_answered() {
    let (reloads, requests) = (number("HAULIER_RELOADS", 5), number("HAULIER_REQUESTS", 5000));
    let site = Site::new()
        .file("a.txt", "page")
        .php("slow.php", "usleep(3000); echo 'slow';")
        .php("fast.php", "echo 'fast';")
        .config("[log]\naccess = \"errors\"")
        .workers(4);
    let (server, config) = site.start_with_config();
    let pages = ["/a.txt", "/fast.php", "/a.txt", "/slow.php", "/a.txt?x"].map(Request::get);
    let crowd = Crowd::start(server.address(), 8, &pages);
    crowd.wait_for(100);
    for round in 0..reloads {
        // Every round has another pool in place of the last one, and other settings of the site.
        let workers = |round: usize| format!("workers = {}", 4 + round % 2);
        config.replace(&workers(round), &workers(round + 1));
        if round == 0 {
            config.append("[site.test.headers]\nX-Round = \"0\"");
        }
        config.replace(
            &format!("X-Round = \"{round}\""),
            &format!("X-Round = \"{}\"", round + 1),
        );
        let said = server.reload();
        assert!(said.contains(" workers"), "{said}");
        let seen = server.get("/a.txt").expect(200);
        assert_eq!(seen.field("X-Round"), Some((round + 1).to_string().as_str()), "{said}");
        crowd.wait_for(requests / reloads);
    }
    let (answers, failures) = crowd.end();
    assert!(answers >= requests, "{answers}");
    assert!(failures.is_empty(), "{} of {answers}: {failures:#?}", failures.len());
    assert_eq!(
        server
            .metrics()
            .count("haulier_config_reloads_total{result=\"success\"}"),
        reloads as u64
    );
    // The pools of the past are gone, with all their processes.
    wait_until("one php-cgi", || master(&server).len() == 1);
}

fn of_shop(target: &str) -> Request {
    Request::get(target).with("Host", "shop.test")
}

#[test]
fn certificates_are_exchanged_without_a_failed_request_over_tls() {
    let rounds = number("HAULIER_RELOADS", 5);
    let authority = Authority::new();
    let site = Site::new()
        .file("a.txt", "page")
        .php("fast.php", "echo 'fast';")
        .server("https = \"127.0.0.1:0\"")
        .setting("hosts = [\"shop.test\"]")
        .config(&format!(
            "[log]\naccess = \"errors\"\n[site.test.tls]\n{}",
            authority.lines("shop-0", &["shop.test"])
        ));
    let (server, config) = site.start_with_config();
    let address = server.https();
    let shown = || {
        // No session of before: the certificate is shown anew.
        let client = authority.client(&[&TLS13]);
        let mut connection = Connection::open(address).secured("shop.test", &client);
        connection.ask(&of_shop("/a.txt")).expect(200);
        let chain = connection
            .wire()
            .connection()
            .peer_certificates()
            .expect("a certificate");
        chain[0].to_vec()
    };
    let returning = authority.client(&[&TLS13, &TLS12]);
    let visit = || {
        let mut connection = Connection::open(address).secured("shop.test", &returning);
        connection.ask(&of_shop("/a.txt")).expect(200);
        connection.wire().connection().handshake_kind()
    };
    assert_eq!(visit(), Some(HandshakeKind::Full));
    let client = authority.client(&[&TLS13, &TLS12]);
    let open = move || Ok(Connection::try_open(address)?.secured("shop.test", &client));
    let crowd = Crowd::over(open, 6, &["/a.txt", "/fast.php", "/a.txt?x"].map(of_shop));
    crowd.wait_for(60);
    let mut before = shown();
    for round in 0..rounds {
        authority.sign(&format!("shop-{}", round + 1), &["shop.test"], 60);
        config.replace(&format!("shop-{round}."), &format!("shop-{}.", round + 1));
        let said = server.reload();
        let now = shown();
        assert_ne!(now, before, "{said}");
        before = now;
        assert_eq!(visit(), Some(HandshakeKind::Resumed), "sessions outlive a reload");
        crowd.wait_for(60);
    }
    // Under the same name it needs no other configuration: a reload does not wait for the next look.
    authority.sign(&format!("shop-{rounds}"), &["shop.test"], 90);
    server.reload();
    assert_ne!(shown(), before);
    let (answers, failures) = crowd.end();
    assert!(failures.is_empty(), "{} of {answers}: {failures:#?}", failures.len());
}

#[test]
fn tls_comes_and_goes_with_a_reload() {
    let authority = Authority::new();
    let table = format!("[site.test.tls]\n{}", authority.lines("shop", &["shop.test"]));
    let site = Site::new().file("a.txt", "page").setting("hosts = [\"shop.test\"]");
    let (server, config) = site.start_with_config();
    config.replace("[server]\n", "[server]\nhttps = \"127.0.0.1:0\"\n");
    config.append(&table);
    server.reload();
    let state = server.tell(&["status", "--json"]);
    let state: Value = serde_json::from_slice(&state.stdout).expect("JSON");
    assert_eq!(state["certificates"][0]["site"], "test");
    let address = state["listen"][1].as_str().and_then(|address| address.parse().ok());
    let address: std::net::SocketAddr = address.unwrap_or_else(|| panic!("no second address in {state}"));
    let mut held = Connection::open(address).secured("shop.test", &authority.client(&[&TLS13]));
    held.ask(&of_shop("/a.txt")).expect(200);
    let sent_away = server.ask(&of_shop("/a.txt")).expect(308);
    let there = format!("https://shop.test:{}/a.txt", address.port());
    assert_eq!(sent_away.field("Location"), Some(there.as_str()));
    // What is wrong with a certificate is the configuration's fault: nothing changes.
    config.replace("shop.pem", "gone.pem");
    let refused = server.tell(&["reload"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    held.ask(&of_shop("/a.txt")).expect(200);
    config.replace("gone.pem", "shop.pem");

    config.replace("https = \"127.0.0.1:0\"\n", "");
    config.replace(&table, "");
    server.reload();
    server.ask(&of_shop("/a.txt")).expect(200);
    wait_until("nobody to listen there", || TcpStream::connect(address).is_err());
    held.ask(&of_shop("/a.txt")).expect(200);
}

#[test]
fn streams_of_http2_across_reloads_are_all_answered() {
    require("nghttp2-client", "/usr/bin/h2load");
    let (reloads, requests) = (number("HAULIER_RELOADS", 4), number("HAULIER_REQUESTS", 4000));
    let site = Site::new()
        .file("a.txt", "page")
        .php("slow.php", "usleep(3000); echo 'slow';")
        .config("[log]\naccess = \"errors\"")
        .workers(4);
    let (server, config) = site.start_with_config();
    let pages = ["/a.txt", "/slow.php"].map(|page| format!("http://{}{page}", server.address()));
    let mut load = Command::new("/usr/bin/h2load");
    // 1000 requests a connection is what `keepalive_requests` allows.
    let clients = requests.div_ceil(500);
    load.args(["-n", &requests.to_string(), "-c", &clients.to_string(), "-m", "4"])
        .args(&pages);
    let loading = std::thread::spawn(move || load.output().expect("h2load runs"));
    let answered = || server.metrics().sum("haulier_requests_total{site=\"test\"") as usize;
    for round in 0..reloads {
        wait_until("its part of the requests", || answered() >= requests * round / reloads);
        let workers = |round: usize| format!("workers = {}", 4 + round % 2);
        config.replace(&workers(round), &workers(round + 1));
        server.reload();
    }
    let output = loading.join().expect("no panic");
    let said = text(&output.stdout);
    let expected = format!("{requests} done, {requests} succeeded, 0 failed, 0 errored, 0 timeout");
    assert!(said.contains(&expected), "{said}");
    assert!(said.contains(&format!("{requests} 2xx")), "{said}");
}

#[test]
fn a_gigabyte_on_its_way_is_not_disturbed() {
    const LENGTH: u64 = 1 << 30;
    const STEP: u64 = 16 << 20;
    let site = Site::new();
    let path = site.root().join("big.bin");
    let file = fs::File::create(&path).expect("the directory is ours");
    file.set_len(LENGTH).expect("a file with holes takes no room");
    for place in (0..LENGTH).step_by(STEP as usize) {
        file.write_all_at(&place.to_be_bytes(), place).expect("some blocks");
    }
    let (server, config) = site.start_with_config();
    let mut connection = server.connect();
    connection.send(Request::get("/big.bin").to_bytes());
    let head = connection.read_head().expect("a head");
    assert_eq!(head.field("Content-Length"), Some(LENGTH.to_string().as_str()));
    let zeros = vec![0; STEP as usize];
    let mut place = 0;
    while place < LENGTH {
        let piece = connection.read_exactly(STEP as usize).expect("all of it");
        assert_eq!(piece[..8], place.to_be_bytes(), "at {place}");
        assert!(piece[8..] == zeros[8..], "at {place}");
        if place == 2 * STEP || place == LENGTH / 2 {
            config.append(&format!(
                "[site.test{place}]\nroot = \".\"\nhosts = [\"{place}.example\"]"
            ));
            let said = server.reload();
            assert!(said.contains("1 download draining"), "{said}");
        }
        place += STEP;
    }
    connection
        .ask(&Request::get("/big.bin").with("Range", "bytes=0-7"))
        .expect(206);
}

#[test]
fn a_script_goes_on_in_its_old_pool_and_new_requests_meet_the_new_one() {
    let site = Site::new()
        .php("old.php", "echo str_repeat('x', 100000); flush(); touch($_GET['dir'] . '/began'); for ($i = 0; $i < 6000 && !file_exists($_GET['dir'] . '/open'); $i++) { usleep(10000); clearstatcache(); } echo getenv('ROUND');")
        .php("env.php", "echo getenv('ROUND');")
        .pool("env = { ROUND = \"one\" }");
    let directory = site.writable("gate");
    let (server, config) = site.start_with_config();
    let mut held = server.connect();
    held.send(Request::get(&format!("/old.php?dir={}", directory.display())).to_bytes());
    wait_until("the script to run", || directory.join("began").exists());
    let before = master(&server);
    config.replace("ROUND = \"one\"", "ROUND = \"two\"");
    let said = server.reload();
    assert!(said.contains("pool php env changed"), "{said}");
    assert_eq!(server.get("/env.php").expect(200).text(), "two");
    assert_eq!(master(&server).len(), 2, "the old pool still has a request");
    fs::write(directory.join("open"), "").expect("the directory is ours");
    let answer = held.read_response("GET").expect("its end").expect(200);
    assert!(answer.text().ends_with("xone"));
    wait_until("the old pool to be gone", || {
        master(&server).iter().all(|pid| !before.contains(pid))
    });
}

#[test]
fn grace_ends_an_old_pool_that_does_not_finish() {
    let site = Site::new()
        .php(
            "hang.php",
            "touch($_GET['began']); for ($i = 0; $i < 6000; $i++) { usleep(10000); }",
        )
        .php("env.php", "echo getenv('ROUND');")
        .server("grace = \"1s\"")
        .pool("env = { ROUND = \"one\" }");
    let began = site.writable("gate").join("began");
    let (server, config) = site.start_with_config();
    let mut held = server.connect();
    held.send(Request::get(&format!("/hang.php?began={}", began.display())).to_bytes());
    wait_until("the script to run", || began.exists());
    config.replace("ROUND = \"one\"", "ROUND = \"two\"");
    server.reload();
    server.wait_for_line("requests were still running when the pool ended");
    let answer = held.read_response("GET").expect("an answer");
    assert!(matches!(answer.status(), 502 | 503), "{}", answer.status());
    assert_eq!(server.get("/env.php").expect(200).text(), "two");
    wait_until("one php-cgi", || master(&server).len() == 1);
}

#[test]
fn a_broken_configuration_changes_nothing_and_says_what_check_says() {
    let site = Site::new().file("a.txt", "page").php("a.php", "echo 'php';");
    let (server, config) = site.start_with_config();
    let before = master(&server);
    config.replace("workers = 4", "workerz = 4");
    let refused = server.tell(&["reload"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let said = text(&refused.stderr);
    let mut check = Haulier::command();
    check.args(["check", "-c"]).arg(&config.path);
    let checked = text(&check.output().expect("the binary starts").stdout);
    assert!(said.contains("did you mean `workers`?"), "{said}");
    for line in checked.lines().filter(|line| line.contains("workerz")) {
        assert!(said.contains(line), "{line:?} is missing in {said}");
    }
    assert!(said.trim_end().ends_with("haulier.toml: 1 error"), "{said}");
    // Whoever looks for the reason later has only the log.
    server.wait_for_line("workerz");
    server.wait_for_line("not reloaded");
    server.get("/a.txt").expect(200);
    server.get("/a.php").expect(200);
    assert_eq!(master(&server), before);
    let reloads = |result: &str| {
        server
            .metrics()
            .count(&format!("haulier_config_reloads_total{{result={result:?}}}"))
    };
    assert_eq!((reloads("success"), reloads("failure")), (0, 1));
    config.replace("workerz = 4", "workers = 4");
    assert!(server.reload().contains("nothing changed"));
    assert_eq!(master(&server), before, "what is the same stays as it is");
    assert_eq!((reloads("success"), reloads("failure")), (1, 1));
}

#[test]
fn what_the_machine_refuses_changes_nothing_either() {
    let site = Site::new().file("a.txt", "page");
    let (server, config) = site.start_with_config();
    let holder = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = holder.local_addr().expect("bound");
    config.replace(
        "http = \"127.0.0.1:0\"",
        &format!("http = [\"127.0.0.1:0\", \"{taken}\"]"),
    );
    let refused = server.tell(&["reload"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let said = text(&refused.stderr);
    assert!(said.contains(&format!("cannot listen on {taken}")), "{said}");
    server.get("/a.txt").expect(200);
    drop(holder);
    server.reload();
    Connection::open(taken).ask(&Request::get("/a.txt")).expect(200);
}

#[test]
fn addresses_come_and_go_and_connections_stay() {
    let site = Site::new().file("a.txt", "page");
    let socket = site.writable("run").join("http.sock");
    let (server, config) = site.start_with_config();
    let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let second = free.local_addr().expect("bound");
    drop(free);
    let more = format!("http = [\"127.0.0.1:0\", \"{second}\", \"unix:{}\"]", socket.display());
    config.replace("http = \"127.0.0.1:0\"", &more);
    let said = server.reload();
    assert!(said.contains("[server] http changed"), "{said}");
    let mut kept = Connection::open(second);
    kept.ask(&Request::get("/a.txt")).expect(200);
    assert!(socket.exists());
    let mut first = server.connect();
    config.replace(&more, "http = \"127.0.0.1:0\"");
    server.reload();
    wait_until("the address to be left", || TcpStream::connect(second).is_err());
    assert!(!socket.exists());
    kept.ask(&Request::get("/a.txt")).expect(200);
    first.ask(&Request::get("/a.txt")).expect(200);
    server.get("/a.txt").expect(200);
}

/// What a socket answers to one request, over TLS or without.
fn over_socket(socket: &Path, tls: Option<&Arc<ClientConfig>>) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let request = b"GET /a.txt HTTP/1.1\r\nHost: shop.test\r\nConnection: close\r\n\r\n";
    let mut said = Vec::new();
    match tls {
        None => {
            stream.write_all(request)?;
            stream.read_to_end(&mut said)?;
        }
        Some(config) => {
            let name = ServerName::try_from("shop.test").expect("a name");
            let connection = ClientConnection::new(Arc::clone(config), name).expect("a configuration");
            let mut stream = StreamOwned::new(connection, stream);
            stream.write_all(request)?;
            stream.read_to_end(&mut said)?;
        }
    }
    Ok(text(&said))
}

#[test]
fn a_socket_becomes_one_with_tls_and_one_without_again() {
    let authority = Authority::new();
    let client = authority.client(&[&TLS13]);
    let site = Site::new()
        .file("a.txt", "page")
        .setting("hosts = [\"shop.test\"]")
        .config(&format!(
            "[site.test.tls]\nredirect = false\n{}",
            authority.lines("shop", &["shop.test"])
        ));
    let socket = site.writable("run").join("http.sock");
    let plain = format!("http = [\"127.0.0.1:0\", \"unix:{}\"]", socket.display());
    let (server, config) = site
        .listen(&format!("[\"127.0.0.1:0\", \"unix:{}\"]", socket.display()))
        .server("https = \"127.0.0.1:0\"")
        .start_with_config();
    assert!(over_socket(&socket, None).expect("an answer").ends_with("page"));
    config.replace(&plain, "http = \"127.0.0.1:0\"");
    let secure = format!("https = [\"127.0.0.1:0\", \"unix:{}\"]", socket.display());
    config.replace("https = \"127.0.0.1:0\"", &secure);
    server.reload();
    let said = over_socket(&socket, Some(&client)).expect("an answer over TLS");
    assert!(said.starts_with("HTTP/1.1 200") && said.ends_with("page"), "{said}");
    config.replace("http = \"127.0.0.1:0\"", &plain);
    config.replace(&secure, "https = \"127.0.0.1:0\"");
    server.reload();
    assert!(over_socket(&socket, None).expect("an answer").ends_with("page"));
    assert!(over_socket(&socket, Some(&client)).is_err(), "no more TLS there");
    drop(server);
    assert!(!socket.exists(), "it goes with its server");
}

#[test]
fn the_change_is_told_and_what_waits_for_a_start_is_named() {
    let site = Site::new().file("a.txt", "page").php("a.php", "echo 1;");
    let other = site.writable("other");
    fs::write(other.join("b.txt"), "other").expect("the directory is ours");
    let (server, config) = site.start_with_config();
    config.replace("workers = 4", "workers = 6");
    config.replace("[server]", "[server]\nthreads = 7\ngrace = \"9s\"");
    config.append(&format!(
        "[site.blog]\nroot = {other:?}\nhosts = [\"blog.example\"]\napp = \"static\""
    ));
    let said = server.reload();
    for words in [
        "reloaded in ",
        "pool php 4→6 workers",
        "site blog added",
        "[server] grace changed",
        "; [server] threads with the next start",
    ] {
        assert!(said.contains(words), "no {words:?} in {said}");
    }
    let blog = Request::get("/b.txt").with("Host", "blog.example");
    assert_eq!(server.ask(&blog).expect(200).text(), "other");
    assert_eq!(server.metrics().count("haulier_php_workers_max{pool=\"php\"}"), 6);
    let status = text(&server.tell(&["status"]).stdout);
    assert!(status.contains("(reloaded "), "{status}");
    config.replace("[site.blog]", "[site.news]");
    let said = server.reload();
    assert!(said.contains("site news added, site blog removed"), "{said}");
    server.ask(&blog).expect(200);
}

#[test]
fn counters_go_on_counting() {
    let site = Site::new().file("a.txt", "page").php("a.php", "echo 1;");
    let (server, config) = site.start_with_config();
    for _ in 0..3 {
        server.get("/a.txt").expect(200);
        server.get("/a.php").expect(200);
    }
    let files = "haulier_requests_total{site=\"test\",handler=\"static\",code=\"2xx\"}";
    let waits = "haulier_php_queue_wait_seconds_count{pool=\"php\"}";
    wait_until("three of each", || server.metrics().count(files) == 3);
    let waited = server.metrics().count(waits);
    assert!(waited >= 3);
    config.replace("workers = 4", "workers = 2");
    server.reload();
    server.get("/a.txt").expect(200);
    server.get("/a.php").expect(200);
    wait_until("the fourth", || server.metrics().count(files) == 4);
    wait_until("the old pool to be gone", || master(&server).len() == 1);
    assert!(server.metrics().count(waits) > waited);
    assert_eq!(server.metrics().count("haulier_requests_in_flight{site=\"test\"}"), 0);
}

#[test]
fn sighup_reloads_and_a_mistake_is_in_the_log() {
    let (server, config) = Site::new().file("a.txt", "page").start_with_config();
    config.append("[site.test.headers]\nX-New = \"1\"");
    server.signal(Signal::HUP);
    server.wait_for_line("reloaded in ");
    assert_eq!(server.get("/a.txt").expect(200).field("X-New"), Some("1"));
    config.append("[nonsense]");
    server.signal(Signal::HUP);
    server.wait_for_line("not reloaded");
    server.wait_for_line("haulier.toml:");
    assert_eq!(server.get("/a.txt").expect(200).field("X-New"), Some("1"));
}

#[test]
fn php_starts_anew_when_its_ini_has_changed_or_somebody_wants_it() {
    let site = Site::new().php("limit.php", "echo ini_get('memory_limit');");
    let ini = site.writable("ini");
    fs::write(ini.join("php.ini"), "memory_limit = 61M\n").expect("the directory is ours");
    let (server, _config) = site.pool(&format!("env = {{ PHPRC = {ini:?} }}")).start_with_config();
    assert_eq!(server.get("/limit.php").expect(200).text(), "61M");
    fs::write(ini.join("php.ini"), "memory_limit = 62M \n").expect("the directory is ours");
    let said = server.reload();
    assert!(
        said.contains("pool php started anew: PHP or its php.ini changed"),
        "{said}"
    );
    assert_eq!(server.get("/limit.php").expect(200).text(), "62M");
    let before = master(&server);
    let said = text(&server.tell(&["reload", "--php"]).stdout);
    assert!(said.contains("pool php started anew: asked for"), "{said}");
    wait_until("another master alone", || {
        let now = master(&server);
        now.len() == 1 && now != before
    });
    server.get("/limit.php").expect(200);
}

/// Its new PHP never answers, and that for as long as a request may take.
#[test]
fn nobody_who_wants_the_end_waits_for_a_reload() {
    let site = Site::new().php("a.php", "echo 'php';");
    let wrapper = site.writable("bin").join("php-cgi");
    let real = fs::canonicalize("/usr/bin/php-cgi").expect("PHP is installed");
    let text = format!(
        "#!/bin/sh\n[ -n \"$HAULIER_WORKERS\" ] && exec sleep 600\nexec {} \"$@\"\n",
        real.display()
    );
    fs::write(&wrapper, text).expect("the directory is ours");
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let (mut server, config) = site.start_with_config();
    config.replace(
        "[pool.php]\n",
        &format!("[pool.php]\nphp = {wrapper:?}\ntimeout = \"10m\"\n"),
    );
    server.signal(Signal::HUP);
    let started = || children_of(server.pid()).into_iter().any(is_asleep);
    wait_until("the new PHP to start", started);
    server.get("/a.php").expect(200);
    server.signal(Signal::TERM);
    let status = server.wait_within(Duration::from_secs(60)).expect("it ends");
    assert_eq!(status.code(), Some(0));
}

fn is_asleep(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "sleep")
}

#[test]
fn stop_waits_for_what_runs_and_stop_now_does_not() {
    for now in [false, true] {
        // Neither grace nor script come to their end by themselves while the test waits.
        let site = Site::new()
            .php(
                "hang.php",
                "touch($_GET['dir'] . '/began'); for ($i = 0; $i < 60000 && !file_exists($_GET['dir'] . '/open'); $i++) { usleep(10000); clearstatcache(); } echo 'done';",
            )
            .server("grace = \"10m\"")
            .pool("timeout = \"10m\"");
        let directory = site.writable("gate");
        let mut server = site.start();
        let mut held = server.connect();
        held.send(Request::get(&format!("/hang.php?dir={}", directory.display())).to_bytes());
        wait_until("the script to run", || directory.join("began").exists());
        let control = server.control();
        let arguments: &[&str] = if now { &["stop", "--now"] } else { &["stop"] };
        let mut command = Haulier::command();
        command.args(arguments).arg("--socket").arg(&control);
        let stopping = std::thread::spawn(move || command.output().expect("the binary starts"));
        if !now {
            server.wait_for_line("stopping");
            assert!(
                server.wait_within(Duration::from_millis(300)).is_none(),
                "it drains first"
            );
            fs::write(directory.join("open"), "").expect("the directory is ours");
            assert_eq!(
                held.read_response("GET").expect("the answer").expect(200).text(),
                "done"
            );
        }
        wait_until("the stop to be over", || stopping.is_finished());
        let output: Output = stopping.join().expect("no panic");
        assert!(output.status.success(), "{output:?}");
        let said = text(&output.stdout);
        assert!(
            said.contains("stopping: 1 connection") && said.contains("stopped after "),
            "{said}"
        );
        let status = server.wait_within(Duration::from_secs(60)).expect("it is gone");
        assert_eq!(status.code(), Some(0));
        assert!(!control.exists());
    }
}

#[test]
fn nobody_to_tell_is_said() {
    let mut command = Haulier::command();
    command.args(["reload", "--socket", "/no/such/socket"]);
    let output = command.output().expect("the binary starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("is it running"), "{output:?}");
}

/// A project with a configuration of its own, served for its developer.
fn serve(directory: &Path, site: Site) -> Haulier {
    let mut command = Haulier::command();
    command
        .arg("serve")
        .arg(directory)
        .args(["--listen", "127.0.0.1:0"])
        .current_dir(directory);
    Haulier::start(command, vec![Box::new(site)])
}

#[test]
fn serve_reloads_by_itself_when_its_configuration_changes() {
    let site = Site::new().file("a.txt", "page");
    let directory = site.root().to_owned();
    let file = directory.join("haulier.toml");
    let write = |more: &str| {
        fs::write(&file, format!("[site.app]\nroot = \".\"\napp = \"static\"\n{more}\n"))
            .expect("the directory is ours");
    };
    write("");
    let server = serve(&directory, site);
    write("[site.app.headers]\nX-New = \"1\"");
    server.wait_for_line("site app headers changed");
    assert_eq!(server.get("/a.txt").expect(200).field("X-New"), Some("1"));
    write("[site.app.headerz]");
    server.wait_for_line("not reloaded");
    write("[site.app.headers]\nX-New = \"2\"");
    wait_until("the second header", || {
        server.get("/a.txt").expect(200).field("X-New") == Some("2")
    });
}
