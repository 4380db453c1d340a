//! An application with a worker in the shape of Laravel Octane's (tests/apps/octane).

use std::collections::BTreeMap;
use std::path::Path;
use std::thread;

use serde_json::{Value, json};

use super::support::client::{Connection, Request};
use super::support::copy_directory;
use super::support::site::{Php, Site};

const APPLICATION: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/apps/octane");

/// The application, whose workers take this number of requests each.
pub(super) fn application(workers: usize, most_requests: usize) -> Site {
    let site = Site::new();
    let directory = site.root().with_file_name("octane");
    copy_directory(APPLICATION, &directory);
    let public = directory.join("public");
    let worker = public.join("frankenphp-worker.php");
    site.at(&public)
        .run_by(Php::Cgi)
        .workers(workers)
        .pool(&format!(
            "max_requests = 0\nenv = {{ MAX_REQUESTS = \"{most_requests}\", REQUEST_MAX_EXECUTION_TIME = \"30\" }}"
        ))
        .setting("front = \"/frankenphp-worker.php\"")
        .setting(&format!("worker = {worker:?}"))
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn an_octane_shaped_worker_boots_once_and_each_request_has_its_own_sandbox() {
    let server = application(1, 1000).start();
    let mut first = Value::Null;
    for visit in 1..=20 {
        let request = Request::get(&format!("/visit?good=tea{visit}")).with("Cookie", &format!("of={visit}"));
        let told = json_of(&server.ask(&request).expect(200).text());
        assert_eq!(told["visits"], visit, "{told}");
        assert_eq!(told["goods"], json!([format!("tea{visit}")]), "{told}");
        assert_eq!(told["cookies"], json!({"of": visit.to_string()}), "{told}");
        if visit == 1 {
            first = told["pid"].clone();
        }
        assert_eq!(told["pid"], first, "{told}");
    }
    server.get("/broken").expect(500);
    server.wait_for_line("reported: this page is broken");
    server.get("/nowhere").expect(404);
    let form = Request::post("/order", b"good=coffee").with("Content-Type", "application/x-www-form-urlencoded");
    let told = json_of(&server.ask(&form).expect(200).text());
    assert_eq!((&told["form"], &told["pid"]), (&json!({"good": "coffee"}), &first));
    server.wait_for_line("ordered after the response: coffee");
    assert_eq!(
        server.get("/visit").expect(200).text().matches("\"visits\":21").count(),
        1
    );
}

/// Workers that end after five requests each, under visitors that send forms, which are never repeated once begun.
#[test]
fn workers_that_end_by_themselves_cost_no_request() {
    const MOST: usize = 5;
    let server = application(2, MOST).start();
    let address = server.address();
    let visitors: Vec<_> = (0..2)
        .map(|_| {
            thread::spawn(move || {
                let mut connection = Connection::open(address);
                let order =
                    Request::post("/order", b"good=tea").with("Content-Type", "application/x-www-form-urlencoded");
                let mut ask = || {
                    json_of(&connection.ask(&order).expect(200).text())["pid"]
                        .as_u64()
                        .expect("a pid")
                };
                (0..100).map(|_| ask()).collect::<Vec<_>>()
            })
        })
        .collect();
    let mut served: BTreeMap<u64, usize> = BTreeMap::new();
    for visitor in visitors {
        for pid in visitor.join().expect("no request failed") {
            *served.entry(pid).or_default() += 1;
        }
    }
    assert_eq!(served.values().sum::<usize>(), 200);
    assert!(served.values().all(|&count| count <= MOST), "{served:?}");
    server.wait_for_line("terminated after 5 requests");
    let is_error = |line: &String| line.contains("ERROR") || line.contains("\"level\":\"error\"");
    let errors: Vec<_> = server.lines().into_iter().filter(is_error).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    assert!(
        !Path::new("/proc")
            .join(served.keys().next().expect("one").to_string())
            .exists()
    );
}
