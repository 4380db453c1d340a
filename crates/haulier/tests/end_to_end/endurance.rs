//! Many requests through one worker: its memory and its descriptors stay as they were.
//!
//! `HAULIER_REQUESTS=100000` is the whole proof (`make endurance`); without a word it is a hundredth of it.

use std::collections::BTreeMap;
use std::fs;

use super::octane;
use super::support::client::{Connection, Request};
use super::support::haulier::Haulier;
use super::support::site::Site;
use super::symfony;

/// Growth of memory that is none, in thousandths: allocators round, and a table doubles now and then.
const FLAT: u64 = 10;

/// Requests of a connection; the server closes one after ten thousand.
const CONNECTION: usize = 1000;

/// Memory and descriptors of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Footprint {
    /// Kibibytes that it shares with no other process.
    memory: u64,
    descriptors: usize,
}

fn footprints(server: &Haulier) -> BTreeMap<u32, Footprint> {
    server
        .php_workers()
        .into_iter()
        .map(|pid| (pid, footprint(pid)))
        .collect()
}

fn footprint(pid: u32) -> Footprint {
    let maps = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("a process of ours");
    let kibibytes = |name: &str| {
        let line = maps.lines().find_map(|line| line.strip_prefix(name)).expect(name);
        line.trim()
            .trim_end_matches(" kB")
            .parse::<u64>()
            .expect("a size in kB")
    };
    Footprint {
        memory: kibibytes("Private_Dirty:"),
        descriptors: fs::read_dir(format!("/proc/{pid}/fd"))
            .expect("a process of ours")
            .count(),
    }
}

/// Sends `HAULIER_REQUESTS` requests for each of these targets in turn.
fn endure(site: Site, targets: &[&str]) {
    let requests = std::env::var("HAULIER_REQUESTS")
        .ok()
        .and_then(|text| text.parse().ok());
    let requests: usize = requests.unwrap_or(1000);
    let server = site.start();
    let ask = |count: usize| {
        let mut connection = Connection::open(server.address());
        for (number, target) in targets.iter().cycle().take(count).enumerate() {
            if number % CONNECTION == CONNECTION - 1 {
                connection = Connection::open(server.address());
            }
            connection.ask(&Request::get(target)).expect(200);
        }
    };
    // What is loaded and cached at first belongs to the application.
    ask(requests / 5);
    let before = footprints(&server);
    ask(requests - requests / 5);
    let after = footprints(&server);
    println!("{requests} requests for {targets:?}: {before:?}, then {after:?}");
    for (pid, before) in before {
        let after = after.get(&pid).unwrap_or_else(|| panic!("the worker {pid} has ended"));
        assert_eq!(after.descriptors, before.descriptors, "descriptors of {pid}");
        assert!(
            after.memory * 1000 <= before.memory * (1000 + FLAT),
            "{pid} has grown: {before:?}, {after:?}"
        );
    }
}

#[test]
fn a_loop_does_not_grow() {
    let site = Site::new().workers(1).pool("max_requests = 0").php(
        "index.php",
        "while (frankenphp_handle_request(function () { echo 'hello ', $_SERVER['REQUEST_URI']; })) {}",
    );
    let script = site.root().join("index.php");
    let site = site
        .setting("front = \"/index.php\"")
        .setting(&format!("worker = {script:?}"));
    endure(site, &["/", "/a?b=c"]);
}

#[test]
fn a_symfony_site_does_not_grow() {
    let site = symfony::booted().workers(1).pool("max_requests = 0");
    endure(site, &["/pages/7/edit", "/login"]);
}

#[test]
fn an_octane_shaped_worker_does_not_grow() {
    endure(octane::application(1, usize::MAX >> 1), &["/visit?good=tea"]);
}
