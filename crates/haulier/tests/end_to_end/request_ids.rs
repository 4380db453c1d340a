//! One id for a request: in the answer, in the log, in PHP, and at the proxy in front.

use std::collections::HashSet;

use super::support::client::{Request, Response};
use super::support::haulier::Haulier;
use super::support::php_fpm::Socket;
use super::support::site::{Php, Site};

const TELL: &str = "echo $_SERVER['REQUEST_ID'] ?? '-', ' ', $_SERVER['HTTP_X_REQUEST_ID'] ?? '-';";

fn id_of(answer: &Response) -> String {
    answer.field("X-Request-Id").expect("an id").to_owned()
}

/// What PHP was told, which is the same under both names.
#[track_caller]
fn told(answer: &Response) -> String {
    let text = answer.text();
    let (id, field) = text.split_once(' ').expect("two words");
    assert_eq!(id, field);
    id.to_owned()
}

#[test]
fn php_the_answer_and_the_log_have_the_same_id() {
    for php in [Php::Cgi, Php::Embedded, Php::Fpm(Socket::Unix)] {
        let server = Site::new().php("tell.php", TELL).run_by(php).start();
        // A stranger's word is nobody's id.
        let request = Request::get("/tell.php").with("X-Request-Id", "strange");
        let answer = server.ask(&request).expect(200);
        let id = id_of(&answer);
        assert_eq!(told(&answer), id);
        assert!(
            id.len() == 32 && id.bytes().all(|digit| digit.is_ascii_hexdigit()),
            "{id}"
        );
        assert_eq!(server.access_line_for("/tell.php")["req_id"], id);
    }
}

#[test]
fn an_id_is_on_every_error_and_on_nothing_that_is_only_a_file() {
    let server = Site::new()
        .php("own.php", "header('X-Request-Id: own'); echo 'x';")
        .php("send.php", "header('X-Sendfile: ' . __DIR__ . '/a.txt');")
        .file("a.txt", "a")
        .start();
    for (target, status) in [("/missing", 404), ("/%00", 400)] {
        let answer = server.get(target).expect(status);
        assert!(answer.text().contains(&id_of(&answer)), "{}", answer.text());
        assert_eq!(server.access_line_for(target)["req_id"], id_of(&answer), "{target}");
    }
    let refused = server.ask_raw("GET / HTTP/1.1\r\n\r\n").expect(400);
    assert!(refused.text().contains(&id_of(&refused)), "{}", refused.text());
    assert_eq!(
        id_of(&server.get("/own.php").expect(200)),
        "own",
        "the application's own word stays"
    );
    assert_eq!(
        id_of(&server.get("/send.php").expect(200)).len(),
        32,
        "PHP has answered that"
    );
    let file = server.get("/a.txt").expect(200);
    assert_eq!(file.field("X-Request-Id"), None);
}

#[test]
fn the_word_of_a_trusted_proxy_is_the_id() {
    let server = Site::new()
        .php("tell.php", TELL)
        .server("trusted_proxies = [\"127.0.0.1\"]")
        .start();
    let ask = |target: &str, id: &str| server.ask(&Request::get(target).with("X-Request-Id", id));
    let answer = ask("/tell.php", "edge-7:f3a").expect(200);
    assert_eq!(
        (told(&answer), id_of(&answer)),
        ("edge-7:f3a".into(), "edge-7:f3a".into())
    );
    assert_eq!(server.access_line_for("/tell.php")["req_id"], "edge-7:f3a");
    assert_eq!(id_of(&ask("/missing", "edge-8").expect(404)), "edge-8");
    for id in ["<script>", "a b", "", &"a".repeat(129)] {
        let answer = ask("/tell.php", id).expect(200);
        assert_eq!((told(&answer).len(), id_of(&answer).len()), (32, 32), "{id:?}");
    }
}

#[test]
fn no_id_comes_twice_from_any_thread_or_server() {
    let start = || Site::new().php("tell.php", TELL).server("threads = 4").start();
    let servers: [Haulier; 2] = [start(), start()];
    let ids: HashSet<String> = (0..400)
        .map(|number| id_of(&servers[number % 2].get("/tell.php").expect(200)))
        .collect();
    assert_eq!(ids.len(), 400);
}
