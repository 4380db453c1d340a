//! The example site that `make demo` serves: every page of it, as a visitor meets them.

use std::thread;
use std::time::Duration;

use super::support::browser::{Browser, input_value};
use super::support::client::{Connection, Request};
use super::support::haulier::Haulier;
use super::support::php_fpm::Socket;
use super::support::site::{Php, Site};
use super::support::{at_some_pace, copy_directory};

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/site");

/// A copy, so that the guest book of the original stays as it is; `app` is left to detection.
fn example(php: Php) -> Site {
    let site = Site::new();
    let root = site.root().with_file_name("example");
    copy_directory(EXAMPLE, &root);
    let data = site.writable("guestbook");
    site.at(root)
        .run_by(php)
        .app("auto")
        .config(&format!("[pool.php.env]\nSITE_DATA = {data:?}"))
}

fn visit(php: Php) {
    let server = example(php).start();
    let mut browser = Browser::new(server.address());

    let stores = browser.get("/").expect(200).text();
    assert!(
        stores.contains("Harbour Stores") && stores.contains("class=\"cards\""),
        "{stores}"
    );
    let found = browser.get("/?q=zzzz%3Cscript%3E").expect(200).text();
    assert!(
        found.contains("zzzz&lt;script&gt;") && !found.contains("zzzz<script>"),
        "{found}"
    );
    browser.get("/item.php?id=nothing").expect(404);
    assert!(
        browser
            .get("/request.php/more?a=1")
            .expect(200)
            .text()
            .contains("/more")
    );

    sign_the_guest_book(&mut browser);
    pictures_and_download(&mut browser);
    a_slow_page_slows_nobody(&server);
    for path in [
        "/src/page.php",
        "/../src/page.php",
        "/data/catalogue.json",
        "/../data/catalogue.json",
        "/missing",
    ] {
        assert!(matches!(browser.ask(Request::get(path)).status(), 400 | 404), "{path}");
    }
}

fn sign_the_guest_book(browser: &mut Browser) {
    let form = browser.get("/guestbook.php").expect(200).text();
    let token = input_value(&form, "token");
    let sign = |token: &str, words: &str| {
        Request::form("/guestbook.php", &[("token", token), ("name", "Zoë"), ("words", words)])
    };
    browser.ask(sign("forged", "hello")).expect(403);
    browser.ask(sign(&token, "")).expect(422);
    let signed = browser.ask(sign(&token, "A fine <harbour> & good tea")).expect(303);
    assert_eq!(signed.field("Location"), Some("/guestbook.php#entries"));
    let page = browser.get("/guestbook.php").expect(200).text();
    assert!(
        page.contains("A fine &lt;harbour&gt; &amp; good tea") && page.contains("Thank you, Zoë"),
        "{page}"
    );
}

fn pictures_and_download(browser: &mut Browser) {
    let harbour = browser.get("/assets/harbour.svg").expect(200);
    assert!(
        harbour
            .field("Content-Type")
            .is_some_and(|kind| kind.starts_with("image/svg+xml"))
    );
    let picture = browser.get("/picture.php").expect(200);
    assert!(
        picture
            .field("Content-Type")
            .is_some_and(|kind| kind.starts_with("image/"))
    );
    assert!(picture.body.len() > 1000);
    let table = browser.get("/download.php").expect(200);
    assert_eq!(
        table.field("Content-Length"),
        Some(table.body.len().to_string().as_str())
    );
    assert!(table.body.len() > 500_000, "{} bytes", table.body.len());
    assert!(
        table
            .field("Content-Disposition")
            .is_some_and(|value| value.contains("tides-2026.csv"))
    );
    assert_eq!(table.text().lines().count(), 17_521);
}

fn a_slow_page_slows_nobody(server: &Haulier) {
    let address = server.address();
    at_some_pace(Duration::from_millis(500), |wait| {
        let target = format!("/slow.php?s={}", wait.as_secs_f64());
        let slow = thread::spawn(move || Connection::open(address).ask(&Request::get(&target)));
        server.get("/").expect(200);
        server.get("/assets/style.css").expect(200);
        let is_first = slow.is_finished();
        slow.join().expect("an answer").expect(200);
        assert!(!is_first, "the slow page waits {wait:?}");
    });
}

#[test]
fn the_example_site_works_with_php_cgi() {
    visit(Php::Cgi);
}

#[test]
fn the_example_site_works_with_workers_of_our_own() {
    visit(Php::Embedded);
}

#[test]
fn the_example_site_works_with_php_fpm() {
    visit(Php::Fpm(Socket::Unix));
}

#[test]
fn the_example_site_works_with_serve_and_no_configuration() {
    let site = Site::new();
    let root = site.root().with_file_name("example");
    copy_directory(EXAMPLE, &root);
    let mut command = Haulier::command();
    command.arg("serve").arg(&root).args(["-l", "127.0.0.1:0"]);
    let server = Haulier::start(command, vec![Box::new(site)]);
    let mut browser = Browser::new(server.address());
    assert!(browser.get("/").expect(200).text().contains("Harbour Stores"));
    sign_the_guest_book(&mut browser);
}
