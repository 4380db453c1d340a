//! Compression dictionaries (RFC 9842): what a client has is not sent again, and nobody's secrets become one.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest, Sha256};

use super::support::client::{Request, Response};
use super::support::coded::{decoded, text};
use super::support::haulier::Haulier;
use super::support::site::Site;
use super::support::{require, wait_until};

const BROWSER: &str = "gzip, br, zstd, dcb, dcz";

/// How a client names what it holds (RFC 9842 §2.2).
fn held(dictionary: &[u8]) -> String {
    format!(":{}:", BASE64_STANDARD.encode(Sha256::digest(dictionary)))
}

fn asked(server: &Haulier, target: &str, dictionary: &[u8]) -> Response {
    let request = Request::get(target).with("Accept-Encoding", BROWSER);
    server.ask(&request.with("Available-Dictionary", &held(dictionary)))
}

/// The original of a `dcz` body: the head of RFC 9842 §5, then a frame that the reference tool reads.
#[track_caller]
fn decoded_with(dictionary: &[u8], response: &Response) -> Vec<u8> {
    assert_eq!(response.field("Content-Encoding"), Some("dcz"), "{:?}", response.head);
    assert_eq!(response.body[..8], [0x5e, 0x2a, 0x4d, 0x18, 0x20, 0, 0, 0]);
    assert_eq!(response.body[8..40], Sha256::digest(dictionary)[..]);
    require("zstd", "/usr/bin/zstd");
    let directory = tempfile::tempdir().expect("a directory");
    let (known, coded) = (directory.path().join("known"), directory.path().join("coded.zst"));
    fs::write(&known, dictionary).expect("a file");
    fs::write(&coded, &response.body).expect("a file");
    let mut tool = Command::new("/usr/bin/zstd");
    let output = tool.arg("-dcD").args([&known, &coded]).output().expect("zstd runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn vary(response: &Response) -> Vec<String> {
    let values = response.head.values("Vary").join(", ").to_ascii_lowercase();
    let mut members: Vec<String> = values.split(", ").map(ToOwned::to_owned).collect();
    members.sort();
    members
}

const BOTH: [&str; 2] = ["accept-encoding", "available-dictionary"];

/// Writes a file that nobody takes for one that is still being written.
fn deploy(site: &Path, name: &str, content: &[u8]) {
    let path = site.join(name);
    let new = site.join("new.tmp");
    fs::write(&new, content).expect("a file");
    let file = fs::File::options().write(true).open(&new).expect("it");
    file.set_modified(SystemTime::now() - Duration::from_secs(60))
        .expect("a time");
    fs::rename(new, path).expect("the same directory");
}

/// Whether a copy lies in the directory of stored variants.
fn has_dictionary(spool: &Path) -> bool {
    let stores = fs::read_dir(spool).expect("it is there").filter_map(Result::ok);
    stores
        .filter_map(|store| fs::read_dir(store.path()).ok())
        .flatten()
        .filter_map(Result::ok)
        .any(|file| {
            file.path()
                .extension()
                .is_some_and(|extension| extension == "dictionary")
        })
}

#[test]
fn the_last_version_of_a_file_is_the_dictionary_of_the_next() {
    let first = text(60_000);
    let mut second = first.clone();
    second.splice(30_000..30_000, b"and now for something completely different ".repeat(3));
    let site = Site::new()
        .file("index.html", "x")
        // Another thread may believe in the first version for a second longer.
        .server("threads = 1")
        .setting("dictionary.static = \"previous\"");
    // Where the site's server keeps what it makes.
    let (root, spool) = (site.root().to_owned(), site.writable("spool"));
    deploy(&root, "app.js", &first);
    let server = site.start();

    let response = asked(&server, "/app.js", b"something else").expect(200);
    assert_eq!(response.field("Use-As-Dictionary"), Some("match=\"/app.js\""));
    assert_eq!(vary(&response), BOTH);
    let coding = response.field("Content-Encoding").expect("a coding").to_owned();
    assert_eq!(decoded(&coding, &response), first, "nobody has what the client holds");

    // Copy and difference are made behind the answers; until then there is a usual coding.
    wait_until("a copy of the first version", || has_dictionary(&spool));
    deploy(&root, "app.js", &second);
    let mut found = None;
    wait_until("the second version as what it has over the first", || {
        let response = asked(&server, "/app.js", &first).expect(200);
        let is_there = response.field("Content-Encoding") == Some("dcz");
        found = Some(response);
        is_there
    });
    let response = found.expect("asked at least once");
    assert!(response.body.len() < 400, "{} bytes", response.body.len());
    assert_eq!(decoded_with(&first, &response), second);
    assert_eq!(vary(&response), BOTH);
    assert_eq!(response.field("Use-As-Dictionary"), Some("match=\"/app.js\""));

    // Its tag is its own, and gets a 304 like every other of the file.
    let tag = response.field("ETag").expect("a tag").to_owned();
    assert!(tag.starts_with('"') && tag.contains("dcz"), "{tag}");
    let again = Request::get("/app.js")
        .with("Accept-Encoding", BROWSER)
        .with("If-None-Match", &tag);
    let unchanged = server.ask(&again).expect(304);
    assert_eq!(vary(&unchanged), BOTH);

    // Others get it as before.
    let plain = server.get("/app.js").expect(200);
    assert_eq!((plain.field("Content-Encoding"), &plain.body), (None, &second));
}

#[test]
fn a_name_with_a_content_hash_is_announced_for_all_its_versions() {
    let (first, second) = (text(20_000), [text(20_000), b"more".to_vec()].concat());
    let site = Site::new()
        .file("index.html", "x")
        .setting("dictionary.static = \"previous\"\ndictionary.files = [\"/assets/*\"]");
    let assets = site.root().join("assets");
    fs::create_dir(&assets).expect("a directory");
    deploy(&assets, "app.3f9ab12c.js", &first);
    deploy(&assets, "app.77b1c0de.js", &second);
    let server = site.start();
    let response = asked(&server, "/assets/app.3f9ab12c.js", b"").expect(200);
    assert_eq!(response.field("Use-As-Dictionary"), Some("match=\"/assets/app.*.js\""));
    wait_until("the new name as what it has over the old one", || {
        let response = asked(&server, "/assets/app.77b1c0de.js", &first).expect(200);
        let is_there = response.field("Content-Encoding") == Some("dcz");
        if is_there {
            assert_eq!(decoded_with(&first, &response), second);
        }
        is_there
    });
}

#[test]
fn files_are_no_dictionaries_unless_the_site_says_so() {
    let site = Site::new().file("app.js", text(20_000)).file("page.html", text(20_000));
    let server = site.start();
    let response = asked(&server, "/app.js", b"").expect(200);
    assert_eq!(response.field("Use-As-Dictionary"), None);
    assert_eq!(vary(&response), ["accept-encoding"]);
}

/// A page with a shell, and something that belongs to its visitor alone.
const PAGE: &str = r#"
    $user = $_COOKIE['user'] ?? 'nobody';
    header('Content-Type: text/html; charset=utf-8');
    header('Set-Cookie: seen=1');
    echo file_get_contents(__DIR__ . '/shell.html');
    echo '<p>', $_SERVER['REQUEST_URI'], ' for ', $user, ' over ', $_SERVER['REQUEST_SCHEME'], '</p>';
    if (isset($_GET['long'])) { echo str_repeat(file_get_contents(__DIR__ . '/shell.html'), 10); }
    if (isset($_GET['slow'])) { flush(); usleep(300000); echo '<p>late</p>'; }
"#;

/// The dictionary of the pages, and where it lies.
fn shell_of(server: &Haulier, target: &str) -> (String, Response) {
    let mut place = None;
    wait_until("a shell", || {
        let request = Request::get(target).with("Accept-Encoding", BROWSER);
        let response = server.ask(&request).expect(200);
        place = response.field("Link").map(ToOwned::to_owned);
        place.is_some()
    });
    let link = place.expect("waited for");
    let (place, rest) = link[1..].split_once('>').expect("a link");
    assert_eq!(rest, "; rel=\"compression-dictionary\"");
    (place.to_owned(), server.get(place).expect(200))
}

#[test]
fn pages_of_a_route_are_sent_as_what_they_have_over_its_public_shell() {
    let shell = text(50_000);
    let server = Site::new()
        .file("shell.html", &shell)
        .php("index.php", PAGE)
        .setting("front = \"index.php\"")
        .setting("dictionary.pages = { \"/wiki/*\" = \"/wiki/Main?public\" }")
        .start();
    let (place, dictionary) = shell_of(&server, "/wiki/Other");
    assert_eq!(
        dictionary.field("Use-As-Dictionary"),
        Some("match=\"/wiki/*\", match-dest=(\"document\")")
    );
    assert_eq!(dictionary.field("Cache-Control"), Some("public, max-age=604800"));
    assert!(
        dictionary.text().contains("/wiki/Main?public for nobody over https"),
        "asked without cookies"
    );
    let hash: String = Sha256::digest(&dictionary.body)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert!(place.ends_with(&hash), "{place}");

    let page = |target: &str, cookie: &str| {
        let request = Request::get(target)
            .with("Accept-Encoding", BROWSER)
            .with("Cookie", cookie);
        server
            .ask(&request.with("Available-Dictionary", &held(&dictionary.body)))
            .expect(200)
    };
    let response = page("/wiki/Other", "user=alice");
    assert!(response.body.len() < 200, "{} bytes", response.body.len());
    let original = decoded_with(&dictionary.body, &response);
    assert_eq!(
        original,
        [&shell[..], b"<p>/wiki/Other for alice over http</p>"].concat()
    );
    assert_eq!(vary(&response), BOTH);
    assert_eq!(response.field("Link"), None, "the client has the newest one");

    // A long page goes another way through the server, and one that pauses a third.
    let response = page("/wiki/Other?long", "user=bob");
    let original = decoded_with(&dictionary.body, &response);
    assert_eq!(
        original.len(),
        shell.len() * 11 + "<p>/wiki/Other?long for bob over http</p>".len()
    );
    assert!(response.body.len() < 2000, "{} bytes", response.body.len());
    let response = page("/wiki/Other?slow", "user=bob");
    assert!(decoded_with(&dictionary.body, &response).ends_with(b"<p>late</p>"));

    // What one visitor got is in no dictionary.
    assert!(!shell_of(&server, "/wiki/Other").1.text().contains("alice"));
    // Other routes, other clients, and other dictionaries.
    let other = server
        .ask(&Request::get("/blog").with("Accept-Encoding", BROWSER))
        .expect(200);
    assert_eq!(
        (other.field("Link"), vary(&other)),
        (None, vec!["accept-encoding".to_owned()])
    );
    let old = server
        .ask(&Request::get("/wiki/X").with("Accept-Encoding", "br"))
        .expect(200);
    assert!(old.field("Link").is_some() && old.field("Content-Encoding") == Some("br"));
    assert_eq!(vary(&old), BOTH);
    let unknown = asked(&server, "/wiki/X", b"unknown").expect(200);
    assert_ne!(unknown.field("Content-Encoding"), Some("dcz"));
    server.get("/.well-known/haulier/dictionary/0000").expect(200);
    assert!(
        server
            .metrics()
            .value("haulier_compress_in_bytes_total{site=\"test\",encoding=\"dcz\"}")
            > 0.0
    );
}

#[test]
fn a_shell_that_cannot_be_had_is_told_and_pages_go_on_without() {
    let server = Site::new()
        .php("index.php", "http_response_code(404); echo 'none';")
        .setting("front = \"index.php\"")
        .setting("dictionary.pages = { \"/*\" = \"/missing\" }")
        .start();
    server.wait_for_line("cannot make a dictionary of this page");
    server.wait_for_line("it answers with status 404");
    server.get("/x").expect(404);
}
