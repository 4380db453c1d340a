//! Worker mode: a script that stays booted and takes one request after the other.

use std::fs;
use std::net::SocketAddr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::support::client::{Connection, Request};
use super::support::haulier::Haulier;
use super::support::site::Site;

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
