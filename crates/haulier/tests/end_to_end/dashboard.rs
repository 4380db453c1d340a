//! The dashboard on the admin address: what it says of requests that were really made.

use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::support::client::{Connection, Request};
use super::support::haulier::Haulier;
use super::support::php_fpm::Socket;
use super::support::site::{Php, Site};
use super::support::wait_until;

fn page(server: &Haulier) -> String {
    Connection::open(server.admin())
        .ask(&Request::get("/"))
        .expect(200)
        .text()
}

/// The part of a page that is one section.
fn section<'p>(page: &'p str, id: &str) -> &'p str {
    let begin = page
        .find(&format!("id=\"{id}\""))
        .unwrap_or_else(|| panic!("no {id} in {page}"));
    let rest = &page[begin..];
    &rest[..rest
        .find("</section>")
        .or_else(|| rest.find("</header>"))
        .expect("it ends")]
}

#[test]
fn the_page_is_html_that_may_load_nothing_and_says_that_all_is_well() {
    let server = Site::new().php("index.php", "echo 'hello';").start();
    wait_until("PHP is there", || page(&server).contains("All well"));
    let answer = Connection::open(server.admin()).ask(&Request::get("/")).expect(200);
    assert_eq!(answer.field("Content-Type"), Some("text/html; charset=utf-8"));
    let policy = answer.field("Content-Security-Policy").expect("a policy").to_owned();
    assert!(
        policy.starts_with("default-src 'none'; ") && policy.contains("frame-ancestors 'none'"),
        "{policy}"
    );
    let page = answer.text();
    let config = server.start_line()["config"].as_str().expect("a path").to_owned();
    for fact in [
        config.as_str(),
        &server.address().to_string(),
        &server.pid().to_string(),
        "Pool php",
        "4 not needed yet",
    ] {
        assert!(page.contains(fact), "{fact} in {page}");
    }
    let day = Connection::open(server.admin())
        .ask(&Request::get("/?range=day"))
        .expect(200)
        .text();
    assert!(day.contains("<a href=\"/?range=day\" aria-current=\"true\">"), "{day}");
}

#[test]
fn a_name_that_somebody_else_gave_our_address_gets_no_page() {
    let server = Site::new().file("a.txt", "a").start();
    let request = Request::get("/").with("Host", "evil.example");
    Connection::open(server.admin()).ask(&request).expect(403);
}

#[test]
fn a_request_that_takes_long_is_seen_in_its_worker_and_later_among_the_slowest() {
    let site = Site::new().php(
        "export.php",
        "for ($i = 0; $i < 12000 && !file_exists($_GET['gate']); $i++) { usleep(10000); clearstatcache(); }",
    );
    let gate = site.writable("gates").join("gate");
    let server = site.php("index.php", "echo 'hello';").start();
    server.get("/index.php").expect(200);
    let (target, address) = (format!("/export.php?gate={}", gate.display()), server.address());
    let export = thread::spawn(move || Connection::open(address).ask(&Request::get(&target)).expect(200));
    wait_until("the worker's cell", || {
        let page = page(&server);
        let php = section(&page, "php");
        php.contains("<li class=\"long\">")
            && php.contains("<code>GET /export.php")
            && php.contains("1 of 4 workers busy")
    });
    fs::write(&gate, "").expect("the directory is ours");
    export.join().expect("it was answered");
    wait_until("the slowest request", || {
        let page = page(&server);
        let requests = section(&page, "requests").to_owned();
        requests.contains("The slowest of the last hour") && requests.contains("GET /export.php")
    });
}

#[test]
fn a_request_that_fails_is_named_with_its_reason_its_id_and_what_php_said() {
    let server = Site::new()
        .php("boom.php", "error_log('cannot <b>count</b>'); http_response_code(500);")
        .php("leak.php", "header('X-Sendfile: /etc/passwd');")
        .start();
    let answer = server.get("/boom.php?x=%3Cscript%3E<b>").expect(500);
    let id = answer.field("X-Request-Id").map(str::to_owned);
    server.get("/leak.php").expect(404);
    server.ask_raw("GET / HTTP/1.1\r\n\r\n").expect(400);
    wait_until("both failures", || {
        page(&server).matches("<b>php_error</b>").count() == 1
    });
    let page = page(&server);
    let requests = section(&page, "requests");
    assert!(requests.contains("<b>sendfile_denied</b> <small>404 · "), "{requests}");
    assert!(requests.contains("GET /boom.php?x=%3Cscript%3E&lt;b&gt;"), "{requests}");
    assert!(requests.contains("cannot &lt;b&gt;count&lt;/b&gt;"), "{requests}");
    assert!(
        !requests.contains("bad_request"),
        "what clients do wrong is not listed: {requests}"
    );
    if let Some(id) = id {
        assert!(requests.contains(&id), "{id} in {requests}");
    }
    assert!(
        page.contains("<h1 class=\"bad\">1 request failed in the last minute</h1>"),
        "{page}"
    );
}

#[test]
fn a_slow_download_is_listed_with_its_progress_while_it_lasts() {
    let site = Site::new().php("file.php", "header('X-Sendfile: ' . $_GET['path']);");
    let file = site.root().join("film.bin");
    fs::write(&file, vec![7_u8; 40_000_000]).expect("the directory is ours");
    let server = site.start();
    let mut client = TcpStream::connect(server.address()).expect("it listens");
    let request = format!("GET /file.php?path={} HTTP/1.1\r\nHost: test\r\n\r\n", file.display());
    std::io::Write::write_all(&mut client, request.as_bytes()).expect("sent");
    let mut piece = vec![0; 200_000];
    let mut seen = String::new();
    for _ in 0..600 {
        client.read_exact(&mut piece).expect("forty megabytes are more");
        seen = page(&server);
        if section(&seen, "downloads").contains("/file.php") {
            break;
        }
        thread::sleep(Duration::from_millis(100));
    }
    let downloads = section(&seen, "downloads");
    assert!(
        downloads.contains("of 40 MB <progress") && downloads.contains("127.0.0.1"),
        "{downloads}"
    );
    assert!(
        section(&seen, "facts").contains("0/4"),
        "no worker is busy with it: {seen}"
    );
    drop(client);
    wait_until("the end of it", || {
        !section(&page(&server), "downloads").contains("/file.php")
    });
}

#[test]
fn downloads_that_stand_in_the_kernel_are_counted_listed_and_have_their_rate() {
    let site = Site::new();
    fs::write(site.root().join("film.bin"), vec![7_u8; 30_000_000]).expect("the directory is ours");
    let server = site.start();
    let address = server.address();
    let ended = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let ended = Arc::clone(&ended);
            thread::spawn(move || {
                let mut client = TcpStream::connect(address).expect("it listens");
                std::io::Write::write_all(&mut client, b"GET /film.bin HTTP/1.1\r\nHost: test\r\n\r\n").expect("sent");
                // Far less than the kernel took at once: no turn of the sender tells anything for long.
                let mut piece = vec![0; 20_000];
                while !ended.load(Ordering::Relaxed) && client.read_exact(&mut piece).is_ok() {
                    thread::sleep(Duration::from_millis(50));
                }
            })
        })
        .collect();
    wait_until("all three with a rate", || {
        let page = page(&server);
        let downloads = section(&page, "downloads");
        let listed = downloads.matches("<code>/film.bin</code>").count();
        downloads.contains("3 long responses on the way") && listed == 3 && !downloads.contains(">0 B/s<")
    });
    ended.store(true, Ordering::Relaxed);
    readers.into_iter().for_each(|reader| reader.join().expect("it read"));
}

#[test]
fn a_message_of_php_is_there_to_its_end() {
    let text = "word ".repeat(150);
    let server = Site::new()
        .php(
            "short.php",
            "throw new RuntimeException('the stock of article 4711 is below zero');",
        )
        .php(
            "long.php",
            &format!("error_log('begin {text}END'); http_response_code(500);"),
        )
        .start();
    server.get("/short.php");
    server.get("/long.php").expect(500);
    wait_until("both", || {
        let page = page(&server);
        let requests = section(&page, "requests");
        requests.contains("the stock of article 4711 is below zero")
            && requests.contains("<details class=\"message\"")
            && requests.contains("word END")
    });
}

#[test]
fn a_script_that_streams_stands_with_the_rule_that_would_fix_it() {
    let server = Site::new()
        .php(
            "export.php",
            "header('Content-Type: text/csv'); for ($i = 0; $i < 40; $i++) { echo str_repeat('x', 65536); }",
        )
        .start();
    server.get("/export.php").expect(200);
    wait_until("the script's row", || {
        let page = page(&server);
        section(&page, "downloads").contains("[site.test.offload]\ntypes = [&quot;text/csv&quot;]")
    });
}

#[test]
fn servers_that_somebody_else_runs_have_their_state_and_time_to_connect() {
    let (server, fpm) = Site::new()
        .php("index.php", "echo 'hello';")
        .run_by(Php::Fpm(Socket::Tcp))
        .start_beside_fpm();
    server.get("/index.php").expect(200);
    let seen = page(&server);
    let sites = section(&seen, "sites");
    assert!(
        sites.contains("<b class=\"up\">up</b>") && sites.contains(" ms"),
        "{sites}"
    );
    drop(fpm);
    server.get("/index.php").expect(502);
    wait_until("it is seen to be down", || {
        let page = page(&server);
        section(&page, "sites").contains("<b class=\"down\">down</b>") && !page.contains("All well")
    });
}
