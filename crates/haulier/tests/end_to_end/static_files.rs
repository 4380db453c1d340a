//! Files of the document root: representation, validators, ranges (RFC 9110 §8, §13, §14).

use std::fs;
use std::thread;
use std::time::Duration;

use super::support::client::{Connection, Request, Response};
use super::support::site::Site;
use super::support::wait_until;

const ALPHABET: &str = "abcdefghijklmnopqrstuvwxyz";

fn alphabet() -> Site {
    Site::new().file("abc.txt", ALPHABET)
}

fn range(range: &str) -> Request {
    Request::get("/abc.txt").with("Range", range)
}

#[test]
fn a_file_comes_with_its_length_type_and_validators() {
    let response = alphabet().start().get("/abc.txt").expect(200);
    assert_eq!(response.text(), ALPHABET);
    assert_eq!(response.field("Content-Length"), Some("26"));
    assert_eq!(response.field("Content-Type"), Some("text/plain; charset=utf-8"));
    assert_eq!(response.field("Accept-Ranges"), Some("bytes"));
    assert!(
        response
            .field("Last-Modified")
            .is_some_and(|date| date.ends_with(" GMT"))
    );
    assert!(response.field("Date").is_some_and(|date| date.ends_with(" GMT")));
    let etag = response.field("ETag").expect("a validator");
    assert!(
        etag.starts_with('"') && etag.ends_with('"'),
        "a strong entity tag: {etag}"
    );
    assert!(
        response
            .field("Server")
            .is_none_or(|server| !server.contains(|letter: char| letter.is_ascii_digit()))
    );
}

#[test]
fn the_type_follows_the_extension() {
    let types = [
        ("a.html", "text/html; charset=utf-8"),
        ("a.css", "text/css; charset=utf-8"),
        ("a.js", "text/javascript; charset=utf-8"),
        ("a.json", "application/json"),
        ("a.svg", "image/svg+xml"),
        ("a.png", "image/png"),
        ("a.jpg", "image/jpeg"),
        ("a.webp", "image/webp"),
        ("a.woff2", "font/woff2"),
        ("a.pdf", "application/pdf"),
        ("a.mp4", "video/mp4"),
        ("A.PNG", "image/png"),
    ];
    let site = types.iter().fold(Site::new(), |site, (name, _)| site.file(name, "x"));
    let server = site.start();
    for (name, expected) in types {
        let response = server.get(&format!("/{name}")).expect(200);
        let is = response.field("Content-Type").unwrap_or_default();
        assert!(is.starts_with(expected), "{name} is {is}, not {expected}");
    }
}

#[test]
fn an_empty_file_is_a_200_of_no_bytes() {
    let response = Site::new().file("empty.txt", "").start().get("/empty.txt").expect(200);
    assert_eq!(response.field("Content-Length"), Some("0"));
}

#[test]
fn head_has_the_fields_of_get_and_no_body() {
    let server = alphabet().start();
    let mut connection = server.connect();
    let get = connection.ask(&Request::get("/abc.txt")).expect(200);
    let head = connection.ask(&Request::head("/abc.txt")).expect(200);
    for name in ["Content-Length", "Content-Type", "ETag", "Last-Modified"] {
        assert_eq!(head.field(name), get.field(name), "{name}");
    }
    connection.ask(&Request::get("/abc.txt")).expect(200);
}

#[test]
fn files_take_no_post() {
    let server = alphabet().start();
    let response = server.ask(&Request::post("/abc.txt", "x=1")).expect(405);
    let allow = response.field("Allow").expect("RFC 9110 §15.5.6 wants Allow");
    assert!(allow.contains("GET") && allow.contains("HEAD"), "{allow}");
    server.ask(&Request::new("DELETE", "/abc.txt")).expect(405);
}

#[test]
fn a_known_entity_tag_gets_304_with_the_same_validators() {
    let server = alphabet().start();
    let fresh = server.get("/abc.txt");
    let etag = fresh.field("ETag").expect("a validator");
    for known in [
        etag.to_owned(),
        format!("W/{etag}"),
        format!("\"other\", {etag}"),
        "*".into(),
    ] {
        let response = server
            .ask(&Request::get("/abc.txt").with("If-None-Match", &known))
            .expect(304);
        assert_eq!(response.field("ETag"), Some(etag));
        assert!(response.field("Content-Type").is_none(), "a 304 describes nothing");
    }
    server
        .ask(&Request::get("/abc.txt").with("If-None-Match", "\"other\""))
        .expect(200);
}

#[test]
fn dates_are_validators_unless_an_entity_tag_is_given() {
    let server = alphabet().start();
    let fresh = server.get("/abc.txt");
    let modified = fresh.field("Last-Modified").expect("a date");
    let since = |date: &str| Request::get("/abc.txt").with("If-Modified-Since", date);
    server.ask(&since(modified)).expect(304);
    server.ask(&since("Sun, 06 Nov 1994 08:49:37 GMT")).expect(200);
    server.ask(&since("yesterday")).expect(200);
    // RFC 9110 §13.1.3: ignored beside If-None-Match.
    server
        .ask(&since(modified).with("If-None-Match", "\"other\""))
        .expect(200);
}

#[test]
fn a_failed_precondition_is_412() {
    let server = alphabet().start();
    let etag = server.get("/abc.txt").field("ETag").expect("a validator").to_owned();
    server
        .ask(&Request::get("/abc.txt").with("If-Match", "\"other\""))
        .expect(412);
    server
        .ask(&Request::get("/abc.txt").with("If-Match", &etag))
        .expect(200);
    let old = "Sun, 06 Nov 1994 08:49:37 GMT";
    server
        .ask(&Request::get("/abc.txt").with("If-Unmodified-Since", old))
        .expect(412);
}

#[test]
fn one_range_is_a_206() {
    let server = alphabet().start();
    let rows = [
        ("bytes=0-4", "abcde", "bytes 0-4/26"),
        ("bytes=20-", "uvwxyz", "bytes 20-25/26"),
        ("bytes=-3", "xyz", "bytes 23-25/26"),
        ("bytes=24-99", "yz", "bytes 24-25/26"),
        ("bytes=-99", ALPHABET, "bytes 0-25/26"),
        ("bytes=5-5", "f", "bytes 5-5/26"),
    ];
    for (asked, body, place) in rows {
        let response = server.ask(&range(asked)).expect(206);
        assert_eq!(response.text(), body, "{asked}");
        assert_eq!(response.field("Content-Range"), Some(place), "{asked}");
        assert_eq!(
            response.field("Content-Length"),
            Some(body.len().to_string().as_str()),
            "{asked}"
        );
    }
}

#[test]
fn a_range_beyond_the_end_is_416_and_a_wrong_one_is_ignored() {
    let server = alphabet().start();
    for asked in ["bytes=26-", "bytes=99-100", "bytes=-0"] {
        let response = server.ask(&range(asked)).expect(416);
        assert_eq!(response.field("Content-Range"), Some("bytes */26"), "{asked}");
    }
    for asked in [
        "bytes=5-2",
        "bytes=a-b",
        "lines=1-2",
        "bytes=",
        "bytes=18446744073709551616-",
        "bytes 0-4",
    ] {
        let status = server.ask(&range(asked)).status();
        assert!(matches!(status, 200 | 416), "{asked}: {status}");
    }
    assert_eq!(
        server
            .ask(&Request::head("/abc.txt").with("Range", "bytes=0-4"))
            .status(),
        200,
        "only GET has ranges"
    );
}

#[test]
fn several_ranges_are_multipart() {
    let server = alphabet().start();
    let response = server.ask(&range("bytes=0-1,10-12,-1")).expect(206);
    let kind = response.field("Content-Type").expect("a type");
    let boundary = kind
        .strip_prefix("multipart/byteranges; boundary=")
        .expect("RFC 9110 §14.6")
        .trim_matches('"');
    let text = response.text();
    let parts: Vec<&str> = text.split(&format!("--{boundary}")).collect();
    assert_eq!(parts.len(), 5, "preamble, three parts, end: {text}");
    assert!(parts[4].starts_with("--"), "the last boundary ends the body: {text}");
    for (part, (place, body)) in parts[1..4]
        .iter()
        .zip([("0-1", "ab"), ("10-12", "klm"), ("25-25", "z")])
    {
        let (head, content) = part.split_once("\r\n\r\n").expect("part head");
        assert!(head.contains(&format!("bytes {place}/26")), "{head}");
        assert!(head.to_ascii_lowercase().contains("content-type: text/plain"), "{head}");
        assert_eq!(content, format!("{body}\r\n"));
    }
}

#[test]
fn many_or_overlapping_ranges_never_cost_more_than_the_file() {
    let server = Site::new().file("abc.txt", ALPHABET.repeat(1000)).start();
    let many = (0..1000).map(|start| format!("{start}-")).collect::<Vec<_>>().join(",");
    let small = (0..17)
        .map(|start| format!("{0}-{0}", start * 2))
        .collect::<Vec<_>>()
        .join(",");
    for asked in [many, small, "0-,0-,0-".into()] {
        let response = server.ask(&range(&format!("bytes={asked}")));
        assert!(matches!(response.status(), 200 | 206 | 416), "{}", response.status());
        assert!(
            response.body.len() < 26_000 + 1000,
            "{} bytes for a file of 26,000",
            response.body.len()
        );
    }
}

#[test]
fn if_range_gives_the_whole_file_when_it_changed() {
    let server = alphabet().start();
    let fresh = server.get("/abc.txt");
    let etag = fresh.field("ETag").expect("a validator");
    let modified = fresh.field("Last-Modified").expect("a date");
    let ask = |validator: &str| server.ask(&range("bytes=0-4").with("If-Range", validator));
    ask(etag).expect(206);
    ask("\"other\"").expect(200);
    ask("Sun, 06 Nov 1994 08:49:37 GMT").expect(200);
    // RFC 9110 §13.1.5: a weak validator never matches.
    ask(&format!("W/{etag}")).expect(200);
    // A date counts once it is strong; a file written this second may still change in it.
    assert!(matches!(ask(modified).status(), 200 | 206));
}

#[test]
fn a_large_file_arrives_whole_at_any_pace() {
    let content: Vec<u8> = (0..6_000_000_u32).map(|index| (index / 7) as u8).collect();
    let server = Site::new().file("large.bin", &content).start();
    assert!(server.get("/large.bin").expect(200).body == content, "bytes differ");
    let mut slow = server.connect();
    slow.send(Request::get("/large.bin").to_bytes());
    let head = slow.read_head().expect("a head");
    assert_eq!(head.field("Content-Length"), Some("6000000"));
    let mut received = 0;
    while received < content.len() {
        let piece = slow.read_some().expect("more of the file");
        assert!(content[received..].starts_with(&piece), "bytes differ after {received}");
        received += piece.len();
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_replaced_file_is_noticed_and_never_mixed_with_the_old_one() {
    let site = Site::new().file("page.html", "old".repeat(1000));
    let path = site.root().join("page.html");
    let server = site.start();
    let old = server.get("/page.html").expect(200);
    let new = "brand-new".repeat(1000);
    fs::write(path.with_extension("next"), &new).expect("a file");
    fs::rename(path.with_extension("next"), &path).expect("a rename");
    wait_until("the new content", || {
        let response = server.get("/page.html").expect(200);
        let is_new = response.text() == new;
        assert!(
            is_new || response.body == old.body,
            "neither old nor new: {} bytes",
            response.body.len()
        );
        assert_eq!(
            is_new,
            response.field("ETag") != old.field("ETag"),
            "the tag goes with the content"
        );
        is_new
    });
    fs::remove_file(path).expect("a file to remove");
    wait_until("the 404", || server.get("/page.html").status() == 404);
}

#[test]
fn a_directory_shows_its_index_and_wants_its_slash() {
    let site = Site::new()
        .file("index.html", "front")
        .file("docs/index.html", "inside")
        .file("empty/x.txt", "x");
    let server = site.start();
    assert_eq!(server.get("/").expect(200).text(), "front");
    assert_eq!(server.get("/docs/").expect(200).text(), "inside");
    let redirect = server.get("/docs?a=b&c").expect(308);
    assert!(
        redirect
            .field("Location")
            .is_some_and(|to| to.ends_with("/docs/?a=b&c")),
        "{:?}",
        redirect.head
    );
    // No listing outside `serve`.
    server.get("/empty/").expect(404);
}

#[test]
fn rules_of_the_site_set_cache_headers_redirect_and_deny() {
    let site = Site::new()
        .file("build/app.js", "1")
        .file("a.txt", "a")
        .file("secret/a.txt", "a");
    let site = site.setting("deny = [\"/secret/*\"]\nheaders = { \"X-Frame-Options\" = \"DENY\" }");
    let site = site.setting("redirects = { \"/old\" = \"/a.txt\", \"/blog/*\" = \"https://blog.example/*\" }");
    let server = site.setting("cache = { \"/build/*\" = \"1y immutable\" }").start();
    let built = server.get("/build/app.js").expect(200);
    let cache = built.field("Cache-Control").expect("a rule");
    assert!(
        cache.contains("max-age=31536000") && cache.contains("immutable"),
        "{cache}"
    );
    let plain = server.get("/a.txt").expect(200);
    assert!(
        plain
            .field("Cache-Control")
            .is_none_or(|cache| !cache.contains("immutable"))
    );
    assert_eq!(plain.field("X-Frame-Options"), Some("DENY"));
    for path in [
        "/secret/a.txt",
        "/%73ecret/a.txt",
        "/x/../secret/a.txt",
        "//secret/a.txt",
    ] {
        let status = server.get(path).status();
        assert!(matches!(status, 400 | 404), "{path}: {status}");
    }
    assert_redirect(&server.get("/old"), "/a.txt");
    assert_redirect(&server.get("/blog/2026/x?y=1"), "https://blog.example/2026/x");
}

fn assert_redirect(response: &Response, to: &str) {
    assert!((300..400).contains(&response.status()), "{}", response.status());
    assert!(
        response.field("Location").is_some_and(|location| location.contains(to)),
        "{:?}",
        response.head
    );
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let site = (0..50).fold(Site::new(), |site, number| {
        site.file(&format!("{number}.txt"), number.to_string())
    });
    let server = site.start();
    let mut connection: Connection = server.connect();
    let all: Vec<u8> = (0..50)
        .flat_map(|number| Request::get(&format!("/{number}.txt")).to_bytes())
        .collect();
    connection.send(all);
    connection.finish_sending();
    for number in 0..50 {
        let response = connection.read_response("GET").expect("an answer to each").expect(200);
        assert_eq!(response.text(), number.to_string());
    }
    assert!(connection.is_closed_by_server());
}

#[test]
fn text_names_the_charset_of_its_site() {
    for (setting, expected) in [
        ("charset = \"utf-8\"", "text/html; charset=utf-8"),
        ("charset = \"Windows-1252\"", "text/html; charset=windows-1252"),
        ("charset = \"off\"", "text/html"),
    ] {
        let server = Site::new()
            .file("a.html", "<meta charset=windows-1252>")
            .file("a.png", "x")
            .setting(setting)
            .start();
        let content_type = |target| server.get(target).expect(200).field("Content-Type").map(str::to_owned);
        assert_eq!(content_type("/a.html").as_deref(), Some(expected));
        assert_eq!(content_type("/a.png").as_deref(), Some("image/png"));
    }
}
