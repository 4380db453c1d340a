//! Workers of haulier's own under load, in classic and in worker mode: killed, reloaded, deployed anew, and with slow
//! clients.
//!
//! `HAULIER_KILLS=200 HAULIER_RELOADS=20 HAULIER_REQUESTS=50000` is the whole proof (`make reloads`). Without these
//! variables the tests are a fraction of it.

use std::collections::BTreeSet;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::Value;

use super::support::client::{Connection, Request};
use super::support::haulier::Haulier;
use super::support::load::{Crowd, kill};
use super::support::site::{Php, Site};
use super::support::{number, wait_until};

const WORKERS: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Classic,
    Worker,
}

const MODES: [Mode; 2] = [Mode::Classic, Mode::Worker];

/// A script for both modes.
fn script(release: u32) -> String {
    format!(
        "<?php
        $handle = function () {{
            if (isset($_GET['big'])) {{
                for ($i = 0; $i < 160; $i++) {{ echo str_repeat(chr(65 + $i % 26), 65536); }}
                return;
            }}
            usleep(2000);
            echo 'release {release}, ', strlen(file_get_contents('php://input')), ' bytes';
        }};
        if (!isset($_SERVER['FRANKENPHP_WORKER'])) {{ $handle(); return; }}
        while (frankenphp_handle_request($handle)) {{}}"
    )
}

/// A site whose `script` takes every request.
fn site(mode: Mode, root: &Path, script: &Path) -> Site {
    let site = Site::new()
        .run_by(Php::Embedded)
        .workers(WORKERS)
        .at(root)
        .setting("front = \"/index.php\"")
        .config("[log]\naccess = \"errors\"");
    match mode {
        Mode::Classic => site,
        Mode::Worker => site.setting(&format!("worker = {script:?}")),
    }
}

/// A server with one release of the script, and the directory that holds it.
fn serve(mode: Mode) -> (Haulier, tempfile::TempDir) {
    let root = super::support::readable_directory();
    let file = root.path().join("index.php");
    fs::write(&file, script(1)).expect("the directory is ours");
    (site(mode, root.path(), &file).start(), root)
}

fn any<T: Copy>(of: &[T]) -> Option<T> {
    let random = RandomState::new().hash_one(of.len()) as usize;
    of.get(random % of.len().max(1)).copied()
}

/// The worker that ended with this request.
#[track_caller]
fn crashed_with(server: &Haulier, request: &str) -> u64 {
    let find = || {
        let lines = server.lines();
        let line = lines
            .iter()
            .find(|line| line.contains("PHP worker crashed") && line.contains(request))?;
        serde_json::from_str::<Value>(line).ok()?["pid"].as_u64()
    };
    wait_until("a line that names the worker", || find().is_some());
    find().expect("just seen")
}

#[test]
fn workers_killed_at_random_cost_the_requests_that_they_had() {
    let kills = number("HAULIER_KILLS", 20);
    for mode in MODES {
        let (server, _root) = serve(mode);
        // A request that is not idempotent is never sent to a second worker.
        let requests = [Request::get("/"), Request::post("/", "four"), Request::get("/?again")];
        let crowd = Crowd::start(server.address(), 16, &requests);
        crowd.wait_for(100);
        let mut killed = BTreeSet::new();
        while killed.len() < kills {
            crowd.wait_for(20);
            if let Some(worker) = any(&server.php_workers()) {
                kill(worker);
                killed.insert(u64::from(worker));
            }
        }
        crowd.wait_for(100);
        let (answers, failures) = crowd.end();
        println!(
            "{mode:?}: {kills} workers killed, {answers} requests answered, {} failed",
            failures.len()
        );
        assert!(failures.len() <= kills, "{mode:?}: {failures:#?}");
        let failed = || {
            let lines = server.access_log();
            let failed = lines.into_iter().filter(|line| line["status"] == 502);
            failed.collect::<Vec<_>>()
        };
        wait_until("a line for each", || failed().len() == failures.len());
        for line in failed() {
            let worker = crashed_with(&server, line["req_id"].as_str().expect("each request has an id"));
            assert!(killed.contains(&worker), "{mode:?}: {worker} had {line}");
        }
        wait_until("all workers to be back", || server.php_workers().len() >= WORKERS);
    }
}

/// `haulier bench` with 500 requests a second, whatever the answers do.
fn load(server: &Haulier, requests: usize, report: &Path) -> JoinHandle<Output> {
    let mut command = Haulier::command();
    command
        .args(["bench", "-q", "-c", "32", "--rate", "500", "-n", &requests.to_string()])
        .arg("--json")
        .arg(report)
        .arg(format!("http://{}/", server.address()));
    thread::spawn(move || command.output().expect("the binary starts"))
}

/// Another link, renamed over the first.
fn point(place: &Path, release: u32) {
    let next = place.join("next");
    symlink(release.to_string(), &next).expect("the directory is ours");
    fs::rename(next, place.join("current")).expect("the directory is ours");
}

/// A link to the first of two releases.
fn releases(place: &Path) -> PathBuf {
    for release in [1, 2] {
        let directory = place.join(release.to_string());
        fs::create_dir(&directory).expect("the directory is ours");
        fs::write(directory.join("index.php"), script(release)).expect("the directory is ours");
    }
    point(place, 1);
    place.join("current")
}

#[test]
fn reloads_and_deployments_under_load_cost_no_request() {
    let (rounds, requests) = (number("HAULIER_RELOADS", 4), number("HAULIER_REQUESTS", 2000));
    for mode in MODES {
        let place = super::support::readable_directory();
        let current = releases(place.path());
        let site = site(mode, &current, &current.join("index.php"));
        let report = site.writable("report").join("load.json");
        let (server, config) = site.start_with_config();
        let loading = load(&server, requests, &report);
        let answered = || server.metrics().sum("haulier_requests_total{site=\"test\"") as usize;
        for round in 0..rounds {
            wait_until("its part of the requests", || answered() >= requests * round / rounds);
            let release = 2 - round as u32 % 2;
            point(place.path(), release);
            wait_until("the next release", || {
                let text = server.get("/").expect(200).text();
                text.contains(&format!("release {release}"))
            });
            // Another number of workers makes another pool, even where no script stays booted.
            let workers = |round: usize| format!("workers = {}", WORKERS + round % 2);
            config.replace(&workers(round), &workers(round + 1));
            server.reload();
        }
        let output = loading.join().expect("no panic");
        assert!(output.status.success(), "{mode:?}: {output:?}");
        let run: Value = serde_json::from_slice(&fs::read(&report).expect("a report")).expect("JSON");
        let point = &run["points"][0];
        let slice = &point["slices"][0];
        println!(
            "{mode:?}: {rounds} reloads and deployments, {requests} requests; µs: p50 {}, p99 {}, longest {}",
            slice["p50_us"], slice["p99_us"], slice["max_us"]
        );
        assert_eq!(point["total"]["statuses"]["200"], requests, "{mode:?}: {point}");
        assert_eq!(slice["failed"], 0, "{mode:?}: {point}");
    }
}

/// The pool of the site has no busy worker, and a page is answered.
#[track_caller]
fn assert_no_worker_is_held(server: &Haulier, mode: Mode) {
    let pool = if mode == Mode::Worker { "php/test" } else { "php" };
    let busy = format!("haulier_php_workers{{pool={pool:?},state=\"busy\"}}");
    wait_until("no worker to be busy", || server.metrics().count(&busy) == 0);
    assert_eq!(server.get("/").expect(200).text(), "release 1, 0 bytes");
}

#[test]
fn slow_readers_hold_no_worker() {
    const LENGTH: usize = 160 * 65536;
    for mode in MODES {
        let (server, _root) = serve(mode);
        let mut readers: Vec<Connection> = (0..2 * WORKERS).map(|_| server.connect()).collect();
        for reader in &mut readers {
            reader.send(Request::get("/?big").to_bytes());
            assert_eq!(reader.read_head().expect("a head").status, 200, "{mode:?}");
        }
        assert_no_worker_is_held(&server, mode);
        for mut reader in readers {
            let mut length = 0;
            while let Some(chunk) = reader.read_chunk().ok().filter(|chunk| !chunk.is_empty()) {
                length += chunk.len();
            }
            assert_eq!(length, LENGTH, "{mode:?}");
        }
    }
}

#[test]
fn slow_senders_hold_no_worker() {
    const BODY: &str = "ten bytes!";
    for mode in MODES {
        let (server, _root) = serve(mode);
        let mut senders: Vec<Connection> = (0..2 * WORKERS).map(|_| server.connect()).collect();
        for sender in &mut senders {
            sender.send(format!(
                "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n",
                BODY.len()
            ));
        }
        for two in BODY.as_bytes().chunks(2) {
            assert_no_worker_is_held(&server, mode);
            thread::sleep(Duration::from_secs(1));
            for sender in &mut senders {
                sender.send(two);
            }
        }
        for mut sender in senders {
            let answer = sender.read_response("POST").expect("an answer").expect(200);
            assert_eq!(answer.text(), "release 1, 10 bytes", "{mode:?}");
        }
    }
}
