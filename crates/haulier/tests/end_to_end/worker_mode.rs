//! Worker mode: a script that stays booted and takes one request after the other.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::support::client::{Connection, Request};
use super::support::haulier::Haulier;
use super::support::load::Crowd;
use super::support::site::Site;
use super::support::wait_until;

/// Counts its requests; `version` is what a deployment changes.
fn counting(version: u32) -> String {
    format!(
        "$count = 0;
        while (frankenphp_handle_request(function () use (&$count) {{
            $count++;
            if (isset($_GET['exit'])) {{ echo 'exit'; exit; }}
            if (isset($_GET['crash'])) {{ posix_kill(getmypid(), 9); }}
            if (isset($_GET['endless'])) {{ set_time_limit(0); for (;;); }}
            echo json_encode(['version' => {version}, 'count' => $count, 'method' => $_SERVER['REQUEST_METHOD'],
                'path' => $_SERVER['REQUEST_URI'], 'body' => file_get_contents('php://input'), 'post' => $_POST]);
        }})) {{}}"
    )
}

/// A site whose front controller stays booted, beside a script that does not.
fn site(workers: usize) -> Site {
    let site = Site::new().workers(workers).php("index.php", &counting(1)).php(
        "classic.php",
        "echo 'classic ', $_SERVER['FRANKENPHP_WORKER'] ?? 'none';",
    );
    let script = site.root().join("index.php");
    site.setting("front = \"/index.php\"")
        .setting(&format!("worker = {script:?}"))
}

fn told(server: &Haulier, path: &str) -> serde_json::Value {
    told_at(server.address(), path)
}

fn told_at(address: SocketAddr, path: &str) -> serde_json::Value {
    let text = Connection::open(address).ask(&Request::get(path)).expect(200).text();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn the_front_controller_stays_booted_and_other_scripts_do_not() {
    let server = site(1).start();
    for count in 1..=10 {
        let told = told(&server, "/some/page");
        assert_eq!(
            (&told["count"], &told["path"]),
            (&count.into(), &"/some/page".into()),
            "{told}"
        );
        assert_eq!(server.get("/classic.php").expect(200).text(), "classic none");
    }
    let form = Request::post("/form", b"a=1&b=2").with("Content-Type", "application/x-www-form-urlencoded");
    let text = Connection::open(server.address()).ask(&form).expect(200).text();
    let told: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(
        (&told["method"], &told["post"]["b"], &told["body"]),
        (&"POST".into(), &"2".into(), &"a=1&b=2".into())
    );
    // One more of them waits, booted, for the place of the other.
    assert_eq!(server.metrics().sum("haulier_php_workers_max{pool=\"php/test\""), 1.0);
}

#[test]
fn what_ends_a_worker_costs_its_request_alone() {
    let server = site(2).pool("timeout = \"2s\"").start();
    told(&server, "/");
    assert_eq!(server.get("/?exit").expect(200).text(), "exit");
    told(&server, "/");
    server.get("/?crash").expect(502);
    told(&server, "/");
    server.get("/?endless").expect(504);
    for _ in 0..10 {
        told(&server, "/");
    }
}

#[test]
fn a_reload_boots_the_new_code_before_it_switches() {
    let site = site(2);
    let script = site.root().join("index.php");
    let server = site.start();
    told(&server, "/");
    let (address, is_over) = (server.address(), AtomicBool::new(false));
    let all_have_begun = Barrier::new(5);
    thread::scope(|scope| {
        let visitors: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut versions = vec![told_at(address, "/")["version"].as_u64().expect("a number")];
                    all_have_begun.wait();
                    while !is_over.load(Ordering::Relaxed) {
                        versions.push(told_at(address, "/")["version"].as_u64().expect("a number"));
                    }
                    versions
                })
            })
            .collect();
        all_have_begun.wait();
        for version in 2..5 {
            fs::write(&script, format!("<?php {}", counting(version))).expect("the directory is ours");
            server.reload();
            assert_eq!(told(&server, "/")["version"], version);
        }
        // A version that does not boot leaves the running one in place.
        fs::write(&script, "<?php throw new Exception('this is no version');").expect("the directory is ours");
        let refused = server.tell(&["reload"]);
        assert!(!refused.status.success(), "{refused:?}");
        assert_eq!(told(&server, "/")["version"], 4);
        is_over.store(true, Ordering::Relaxed);
        for visitor in visitors {
            let versions = visitor.join().expect("no request failed");
            // The threads of the server switch one after the other, so a version may be seen again for a moment.
            assert_eq!((versions.first(), versions.last()), (Some(&1), Some(&4)));
        }
    });
}

#[test]
fn a_route_keeps_a_script_of_its_own_booted_and_can_leave_that_of_the_site() {
    let site = Site::new()
        .workers(1)
        .php("index.php", &counting(1))
        .php("api/worker.php", &counting(2))
        .php("api/old.php", "echo 'classic';");
    let (index, worker) = (site.root().join("index.php"), site.root().join("api/worker.php"));
    let server = site
        .setting(&format!("worker = {index:?}"))
        .config(&format!(
            "[[site.test.route]]\npath = \"/api/*\"\nworker = {worker:?}\n[[site.test.route]]\npath = \"/legacy/*\"\nworker = \"off\""
        ))
        .start();
    for count in 1..4 {
        let (of_site, of_route) = (told(&server, "/page"), told(&server, "/api/users/7"));
        assert_eq!((&of_site["version"], &of_site["count"]), (&1.into(), &count.into()));
        assert_eq!((&of_route["version"], &of_route["count"]), (&2.into(), &count.into()));
        assert_eq!(of_route["path"], "/api/users/7");
        assert_eq!(server.get("/api/old.php").expect(200).text(), "classic");
    }
    server.get("/legacy/page").expect(500); // without a worker the function refuses to be called
    assert_eq!(told(&server, "/page")["count"], 4);
    let pools = server.metrics();
    for pool in ["php/test", "php/test/api"] {
        assert_eq!(
            pools.sum(&format!("haulier_php_workers_max{{pool=\"{pool}\"")),
            1.0,
            "{pool}"
        );
    }
}

/// A wrapper of php-cgi that says it is PHP 8.0.9, which haulier has no workers for.
fn php_of_another_version(site: &Site) -> PathBuf {
    let wrapper = site.writable("bin").join("php-cgi");
    let text = "#!/bin/sh\n[ -n \"$PHP_FCGI_CHILDREN\" ] && exec php-cgi \"$@\"\nsed \"s/PHP_VERSION/'8.0.9'/\" | php-cgi \"$@\"\n";
    fs::write(&wrapper, text).expect("the directory is ours");
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).expect("it is ours");
    wrapper
}

#[test]
fn a_php_without_workers_of_ours_runs_as_php_cgi_and_the_package_is_named() {
    let site = Site::new().php("a.php", "echo getenv('PHP_FCGI_CHILDREN') > 0 ? 'php-cgi' : 'ours';");
    let wrapper = php_of_another_version(&site);
    let (server, config) = site.pool(&format!("php = {wrapper:?}")).start_with_config();
    assert_eq!(server.get("/a.php").expect(200).text(), "php-cgi");
    assert_eq!(server.start_line()["pools"][0]["run"], "cgi");
    server.wait_for_line("php8.0-dev is installed");
    let check = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_haulier"));
        let output = command
            .arg("check")
            .arg("-c")
            .arg(&config.path)
            .output()
            .expect("it runs");
        (
            output.status.success(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    };
    let (is_right, said) = check();
    assert!(
        is_right && said.contains("php-cgi takes requests itself, since"),
        "{said}"
    );
    config.replace("[pool.php]\n", "[pool.php]\nrun = \"embed\"\n");
    let (is_right, said) = check();
    assert!(!is_right && said.contains("php8.0-dev is installed"), "{said}");

    let server = Site::new()
        .php("a.php", "echo getenv('PHP_FCGI_CHILDREN') > 0 ? 'php-cgi' : 'ours';")
        .start();
    assert_eq!(
        server.get("/a.php").expect(200).text(),
        "ours",
        "where it was built for this PHP"
    );
}

/// A release whose script stays booted, with a file beside it.
fn release(place: &Path, number: u32, code: &str) {
    let public = place.join("releases").join(number.to_string()).join("public");
    fs::create_dir_all(&public).expect("the directory is ours");
    fs::write(public.join("index.php"), format!("<?php {code}")).expect("the directory is ours");
    fs::write(public.join("a.txt"), format!("release {number}")).expect("the directory is ours");
}

/// As deployment tools do it: another link, renamed over the first.
fn point(place: &Path, number: u32) {
    let next = place.join("next");
    symlink(Path::new("releases").join(number.to_string()), &next).expect("the directory is ours");
    fs::rename(next, place.join("current")).expect("the directory is ours");
}

#[test]
fn a_deployment_boots_the_next_release_before_it_is_served() {
    let site = Site::new().workers(2).php("unused.php", "");
    let place = site.writable("deploy");
    for number in [1, 2, 4] {
        release(&place, number, &counting(number));
    }
    release(&place, 3, "throw new Exception('no table of that name');");
    point(&place, 1);
    let script = place.join("current/public/index.php");
    let server = site
        .at(place.join("current/public"))
        .setting(&format!("worker = {script:?}"))
        .config("[log]\naccess = \"errors\"")
        .start();
    assert_eq!(told(&server, "/")["version"], 1);
    let crowd = Crowd::start(server.address(), 4, &["/page", "/a.txt"].map(Request::get));
    crowd.wait_for(50);
    let is_served = |number: u32| {
        let file = server.get("/a.txt").expect(200).text();
        told(&server, "/")["version"] == number && file == format!("release {number}")
    };
    point(&place, 2);
    wait_until("release 2", || is_served(2));
    crowd.wait_for(50);

    // The next one does not boot: files and pages stay those of the one before.
    point(&place, 3);
    server.wait_for_line("releases/3 is not served: the workers that run go on");
    server.wait_for_line("no table of that name");
    assert!(is_served(2));
    let status = String::from_utf8(server.tell(&["status"]).stdout).expect("text");
    assert!(
        status.contains("not booted") && status.contains("no table of that name"),
        "{status}"
    );
    crowd.wait_for(50);

    point(&place, 4);
    wait_until("release 4", || is_served(4));
    crowd.wait_for(50);
    let status = String::from_utf8(server.tell(&["status"]).stdout).expect("text");
    assert!(!status.contains("not booted"), "{status}");
    let (answers, failures) = crowd.end();
    assert!(failures.is_empty(), "{} of {answers}: {failures:#?}", failures.len());
}

#[test]
fn a_script_that_grows_is_named_by_status_metrics_and_dashboard() {
    let site = Site::new().workers(1).php(
        "index.php",
        "function handle() { static $all; $all[] = str_repeat('x', 4000); } while (frankenphp_handle_request('handle')) {}",
    );
    let script = site.root().join("index.php");
    let server = site
        .pool("max_requests = 0")
        .setting("front = \"/index.php\"")
        .setting(&format!("worker = {script:?}"))
        .start();
    let mut connection = server.connect();
    for _ in 0..700 {
        connection.ask(&Request::get("/")).expect(200);
    }
    let metrics = server.metrics();
    assert!(metrics.value("haulier_php_kept_bytes{pool=\"php/test\"}") > 2_800_000.0);
    let growth = metrics.value("haulier_php_kept_growth_bytes{pool=\"php/test\"}");
    assert!((4000.0..4400.0).contains(&growth), "{growth}");
    let status = server.tell(&["status"]);
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(status.contains("memory     a worker of php/test keeps 3"), "{status}");
    let page = Connection::open(server.admin())
        .ask(&Request::get("/"))
        .expect(200)
        .text();
    let named = format!("php/test: {} keeps 4 KB more with each request", script.display());
    assert!(page.contains(&named), "{page}");
}
