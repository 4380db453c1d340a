//! phpSysInfo: an endpoint that takes more than a second, for queue and time-out.

use std::thread;

use serde_json::Value;

use super::support::client::{Connection, Request};
use super::support::php_fpm::Socket;
use super::support::site::{Php, Site};
use super::support::{require, wait_until};

/// Measures the processor for a second before it answers.
const SLOW: &str = "/xml.php?json";

fn information(php: Php) -> Site {
    require("phpsysinfo", "/usr/share/phpsysinfo/xml.php");
    Site::new().at("/usr/share/phpsysinfo").run_by(php)
}

fn visit(php: Php) {
    let server = information(php).workers(2).start();
    let page = server.get("/").expect(200).text();
    assert!(page.contains("phpSysInfo"), "{page}");
    let script = server.get("/js.php?name=jquery").expect(200);
    assert!(
        script
            .field("Content-Type")
            .is_some_and(|kind| kind.contains("javascript")),
        "{:?}",
        script.head
    );
    let address = server.address();
    // Twice as many as there are workers: the second pair waits for the first.
    let ask_four = || {
        let asked: Vec<_> = (0..4)
            .map(|_| thread::spawn(move || Connection::open(address).ask(&Request::get(SLOW))))
            .collect();
        for asked in asked {
            let text = asked.join().expect("an answer").expect(200).text();
            let facts: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
            assert!(facts["Vitals"]["@attributes"]["Kernel"].is_string(), "{facts}");
        }
    };
    let waited = || {
        server
            .access_log()
            .iter()
            .filter_map(|line| line["queue_ms"].as_f64())
            .fold(0.0, f64::max)
    };
    wait_until("a request that waited half a second", || {
        ask_four();
        waited() > 500.0
    });
}

#[test]
fn phpsysinfo_works_with_php_cgi() {
    visit(Php::Cgi);
}

#[test]
fn phpsysinfo_works_with_workers_of_our_own() {
    visit(Php::Embedded);
}

#[test]
fn phpsysinfo_works_with_php_fpm() {
    visit(Php::Fpm(Socket::Unix));
}

#[test]
fn a_slow_endpoint_meets_the_timeout_and_the_rest_goes_on() {
    for php in [Php::Cgi, Php::Embedded, Php::Fpm(Socket::Unix)] {
        let server = information(php).workers(2).pool("timeout = \"700ms\"").start();
        let address = server.address();
        let slow = thread::spawn(move || Connection::open(address).ask(&Request::get(SLOW)));
        server.get("/gfx/images/Debian.png").expect(200);
        slow.join().expect("an answer").expect(504);
        server.get(SLOW).expect(504);
        // What is quick is in time, if not on every machine at once.
        wait_until("an answer of the others", || {
            let answer = server.get("/js.php?name=jquery");
            answer.status() == 200 && answer.body.len() > 10_000
        });
    }
}
