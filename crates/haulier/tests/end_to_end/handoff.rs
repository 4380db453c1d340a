//! Scripts that name a file and are done: X-Sendfile, X-LIGHTTPD-send-file, X-Sendfile2 and X-Accel-Redirect.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::thread;
use std::time::Duration;

use super::support::client::{Request, Response, encode};
use super::support::content;
use super::support::haulier::Haulier;
use super::support::php_fpm::Socket;
use super::support::run;
use super::support::site::{Php, Site};

/// Names a file in the field that the query says, with the fields of a usual download script.
const NAMING: &str = "header('Content-Type: application/pdf');
    header('Content-Disposition: attachment; filename=\"x.pdf\"');
    setcookie('seen', '1');
    header($_GET['field'] . ': ' . $_GET['path']);
    echo 'nobody sees this';";

const LENGTH: usize = 300_000;

/// A site with private files beside its document root.
fn site() -> Site {
    let site = Site::new().php("get.php", NAMING);
    let private = site.writable("private");
    fs::write(private.join("file.bin"), content(LENGTH)).expect("the directory is ours");
    fs::write(private.join("a b%20c.bin"), "odd").expect("the directory is ours");
    site.config(&format!("[site.test.sendfile]\nroots = [{private:?}]"))
}

fn private(site: &Site) -> String {
    site.root().with_file_name("private").display().to_string()
}

fn target(field: &str, path: &str) -> String {
    format!("/get.php?field={field}&path={}", encode(path))
}

/// What must hold of everything a client gets: the order stays between PHP and us.
#[track_caller]
fn expect_no_order(response: &Response) {
    for (name, value) in &response.head.fields {
        let name = name.to_ascii_lowercase();
        let is_order = name.contains("sendfile") || name.contains("send-file") || name.starts_with("x-accel");
        assert!(!is_order && !name.starts_with("x-haulier"), "{name}: {value}");
    }
}

#[test]
fn the_file_goes_out_with_the_fields_of_the_script() {
    for php in [Php::Cgi, Php::Embedded, Php::Fpm(Socket::Unix)] {
        let site = site().run_by(php);
        let path = format!("{}/file.bin", private(&site));
        let server = site.start();
        for field in ["X-Sendfile", "x-sendfile", "X-LIGHTTPD-send-file"] {
            let response = server.get(&target(field, &path)).expect(200);
            assert!(response.body == content(LENGTH), "{field} by {php:?}");
            assert_eq!(response.field("Content-Length"), Some("300000"));
            assert_eq!(response.field("Content-Type"), Some("application/pdf"));
            assert_eq!(
                response.field("Content-Disposition"),
                Some("attachment; filename=\"x.pdf\"")
            );
            assert!(
                response
                    .field("Set-Cookie")
                    .is_some_and(|cookie| cookie.starts_with("seen=1"))
            );
            assert_eq!(response.field("Accept-Ranges"), Some("bytes"));
            assert!(response.field("ETag").is_some() && response.field("Last-Modified").is_some());
            expect_no_order(&response);
        }
        let line = server.access_line_for("/get.php");
        assert_eq!(
            (line["handler"].as_str(), line["via"].as_str()),
            (Some("handed"), Some("x-sendfile"))
        );
        assert!(line["php_ms"].is_number() && line["client_ms"].is_number(), "{line}");
    }
}

#[test]
fn conditions_and_ranges_are_answered_as_for_any_file() {
    let site = site();
    let target = target("X-Sendfile", &format!("{}/file.bin", private(&site)));
    let server = site.start();
    let whole = server.get(&target).expect(200);
    let etag = whole.field("ETag").expect("of the file").to_owned();
    let ask = |name, value: &str| server.ask(&Request::get(&target).with(name, value));

    let part = ask("Range", "bytes=100-299").expect(206);
    assert_eq!(part.body, whole.body[100..300]);
    assert_eq!(part.field("Content-Range"), Some("bytes 100-299/300000"));
    assert_eq!(part.field("Content-Type"), Some("application/pdf"));
    let end = ask("Range", "bytes=-5").expect(206);
    assert_eq!(end.body, whole.body[LENGTH - 5..]);
    let parts = ask("Range", "bytes=0-1,10-11").expect(206);
    let kind = parts.field("Content-Type").expect("a type");
    assert!(kind.starts_with("multipart/byteranges"), "{kind}");
    assert_eq!(parts.text().matches("Content-Type: application/pdf").count(), 2);
    let none = ask("Range", "bytes=300000-").expect(416);
    assert_eq!(none.field("Content-Range"), Some("bytes */300000"));
    expect_no_order(&none);

    let unchanged = ask("If-None-Match", &etag).expect(304);
    assert_eq!(unchanged.field("ETag"), Some(etag.as_str()));
    assert_eq!(unchanged.field("Content-Type"), None);
    let resumed = Request::get(&target)
        .with("Range", "bytes=200000-")
        .with("If-Range", &etag);
    assert_eq!(server.ask(&resumed).expect(206).body, whole.body[200_000..]);
    let changed = Request::get(&target)
        .with("Range", "bytes=200000-")
        .with("If-Range", "\"other\"");
    assert_eq!(server.ask(&changed).expect(200).body.len(), LENGTH);
    ask("If-Match", "\"other\"").expect(412);

    let head = server.ask(&Request::head(&target)).expect(200);
    assert_eq!(head.field("Content-Length"), Some("300000"));
    let posted = server
        .ask(&Request::post(&target, "x").with("Range", "bytes=0-1"))
        .expect(200);
    assert_eq!(posted.body.len(), LENGTH, "a range is for GET");
}

#[test]
fn a_download_that_broke_off_is_resumed_to_the_byte() {
    let site = site();
    let target = target("X-Sendfile", &format!("{}/file.bin", private(&site)));
    let server = site.start();
    let mut got = Vec::new();
    let mut etag = String::new();
    while got.len() < LENGTH {
        let mut request = Request::get(&target);
        if !got.is_empty() {
            request = request
                .with("Range", &format!("bytes={}-", got.len()))
                .with("If-Range", &etag);
        }
        let mut connection = server.connect();
        connection.send(request.to_bytes());
        let head = connection.read_head().expect("a head");
        assert_eq!(head.status, if got.is_empty() { 200 } else { 206 });
        etag = head.field("ETag").expect("a validator").to_owned();
        let left = LENGTH - got.len();
        got.extend(connection.read_exactly(left.min(70_001)).expect("bytes of the file"));
        connection.reset();
    }
    assert!(got == content(LENGTH));
}

#[test]
fn validators_of_the_script_stand() {
    let site = Site::new().file("public.txt", "text").php(
        "own.php",
        "header('ETag: \"mine\"'); header('Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT');
        header('X-Accel-Redirect: /public.txt');",
    );
    let server = site.start();
    let response = server.get("/own.php").expect(200);
    assert_eq!(response.field("ETag"), Some("\"mine\""));
    assert_eq!(response.field("Last-Modified"), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
    server
        .ask(&Request::get("/own.php").with("If-None-Match", "\"mine\""))
        .expect(304);
    let since = Request::get("/own.php").with("If-Modified-Since", "Sun, 06 Nov 1994 08:49:37 GMT");
    server.ask(&since).expect(304);
}

#[test]
fn a_name_counts_as_it_stands_and_then_decoded() {
    let site = site();
    let directory = private(&site);
    let server = site.start();
    for name in ["a b%20c.bin", "a%20b%2520c.bin"] {
        assert_eq!(
            server
                .get(&target("X-Sendfile", &format!("{directory}/{name}")))
                .expect(200)
                .text(),
            "odd"
        );
    }
    for roundabout in ["../private/./file.bin", "./file.bin", "/file.bin"] {
        let order = target("X-Sendfile", &format!("{directory}/{roundabout}"));
        assert_eq!(server.get(&order).expect(200).body.len(), LENGTH, "{roundabout}");
    }
}

#[test]
fn a_doubled_slash_in_an_x_accel_redirect_is_one() {
    let site = Site::new().php("get.php", NAMING).file("data/a.txt", "here");
    let data = site.root().join("data").display().to_string();
    let server = site
        .config(&format!("[site.test.sendfile.map]\n\"/protected\" = {data:?}"))
        .start();
    for location in ["/protected/a.txt", "/protected//a.txt", "/protected///a.txt"] {
        let response = server.get(&target("X-Accel-Redirect", location)).expect(200);
        assert_eq!(response.text(), "here", "{location}");
    }
    for location in ["/protected//etc/passwd", "/protected//../get.php"] {
        server.get(&target("X-Accel-Redirect", location)).expect(404);
    }
}

#[test]
fn a_coding_is_that_of_the_scripts_own_body_and_not_of_the_file() {
    let site = Site::new()
        .file("public.txt", "text")
        .php("own.php", "header('X-Accel-Redirect: /public.txt');");
    let server = site.ini("zlib.output_compression", "1").start();
    let response = server
        .ask(&Request::get("/own.php").with("Accept-Encoding", "gzip"))
        .expect(200);
    assert_eq!(
        (response.text().as_str(), response.field("Content-Encoding")),
        ("text", None)
    );
}

#[test]
fn what_a_script_says_besides_the_file_stands_without_the_file_too() {
    let site = Site::new().file("public.txt", "text").php(
        "own.php",
        "header('Set-Cookie: a=1'); header('Cache-Control: private'); header('Content-Type: image/png');
        header('Content-Disposition: attachment'); header('X-Accel-Redirect: /public.txt');",
    );
    let server = site.start();
    for (field, value, status) in [("Range", "bytes=20-", 416), ("If-Match", "\"other\"", 412)] {
        let response = server.ask(&Request::get("/own.php").with(field, value)).expect(status);
        assert_eq!(response.field("Set-Cookie"), Some("a=1"), "{status}");
        assert_eq!(response.field("Cache-Control"), Some("private"), "{status}");
        for of_the_file in ["Content-Disposition", "Content-Type", "ETag", "Last-Modified"] {
            assert_eq!(response.field(of_the_file), None, "{status}");
        }
        assert_eq!(response.head.values("Accept-Ranges").len(), usize::from(status == 416));
    }
}

#[test]
fn a_root_may_come_later_and_be_replaced() {
    let site = Site::new().php("get.php", NAMING);
    let exports = site.root().with_file_name("exports");
    let file = exports.join("a.txt");
    let server = site
        .config(&format!("[site.test.sendfile]\nroots = [{exports:?}]"))
        .start();
    let get = || server.get(&target("X-Sendfile", &file.display().to_string()));
    get().expect(404);
    for content in ["first", "second"] {
        fs::create_dir(&exports).expect("ours");
        fs::write(&file, content).expect("ours");
        assert_eq!(get().expect(200).text(), content);
        fs::remove_dir_all(&exports).expect("ours");
        get().expect(404);
    }
}

#[test]
fn an_x_accel_redirect_is_mapped_to_a_directory() {
    let site = Site::new().php("get.php", NAMING);
    let (files, deeper) = (site.writable("files"), site.writable("deeper"));
    fs::write(files.join("a b.txt"), "files").expect("the directory is ours");
    fs::write(deeper.join("c.txt"), "deeper").expect("the directory is ours");
    fs::write(site.root().join("c.txt"), "public").expect("the directory is ours");
    let map =
        format!("[site.test.sendfile]\nmap = {{ \"/protected/\" = {files:?}, \"/protected/deep\" = {deeper:?} }}");
    let server = site.config(&map).start();
    let get = |path: &str| server.get(&target("X-Accel-Redirect", path));
    assert_eq!(get("/protected/a b.txt").expect(200).text(), "files");
    assert_eq!(get("/protected/a%20b.txt").expect(200).text(), "files");
    assert_eq!(get("/protected/a%20b.txt?version=2").expect(200).text(), "files");
    assert_eq!(get("/protected/deep/c.txt").expect(200).text(), "deeper");
    get("/protected/deeper/c.txt").expect(404);
    get("/protected/../deeper/c.txt").expect(404);
    expect_no_order(&get("/c.txt").expect(404));
    server.wait_for_line("has no prefix of `map`");
    let lines = server.access_log();
    assert!(lines.iter().any(|line| line["via"] == "x-accel"), "{lines:#?}");
}

/// As by X-Sendfile: an upload directory often is a link to where there is room.
#[test]
fn a_link_in_one_place_may_lead_into_another_one() {
    for mapped in [true, false] {
        let site = Site::new().php("get.php", NAMING);
        let (files, archive, foreign) = (
            site.writable("files"),
            site.writable("archive"),
            site.writable("foreign"),
        );
        fs::write(archive.join("a.txt"), "archived").expect("the directory is ours");
        fs::write(foreign.join("a.txt"), "nobody's").expect("the directory is ours");
        for place in [files.as_path(), site.root()] {
            symlink(&archive, place.join("old")).expect("the directory is ours");
            symlink(&foreign, place.join("foreign")).expect("the directory is ours");
        }
        let (setting, prefix) = if mapped {
            let map = format!("map = {{ \"/files/\" = {files:?}, \"/archive/\" = {archive:?} }}");
            (map, "/files")
        } else {
            (format!("roots = [{files:?}, {archive:?}]"), "")
        };
        let server = site.config(&format!("[site.test.sendfile]\n{setting}")).start();
        let get = |path: &str| server.get(&target("X-Accel-Redirect", &format!("{prefix}{path}")));
        assert_eq!(get("/old/a.txt").expect(200).text(), "archived");
        get("/foreign/a.txt").expect(404);
        server.wait_for_line("/foreign/a.txt is a symbolic link out of its root");
    }
}

#[test]
fn without_a_map_an_x_accel_redirect_is_a_path_in_the_document_root() {
    let site = Site::new()
        .php("get.php", NAMING)
        .file("data/secret.txt", "for those who may")
        .setting("deny = [\"/data/*\"]");
    let server = site.start();
    server.get("/data/secret.txt").expect(404);
    assert_eq!(
        server
            .get(&target("X-Accel-Redirect", "/data/secret.txt"))
            .expect(200)
            .text(),
        "for those who may"
    );
}

#[test]
fn without_roots_and_map_nothing_is_sent_for_a_script() {
    let site = Site::new()
        .php("get.php", NAMING)
        .file("data/secret.txt", "for those who may");
    let directory = site.root().display().to_string();
    let server = site.config("[site.test.sendfile]\nroots = []").start();
    for target in [
        target("X-Accel-Redirect", "/data/secret.txt"),
        target("X-Sendfile", &format!("{directory}/data/secret.txt")),
    ] {
        expect_no_order(&server.get(&target).expect(404));
    }
    server.wait_for_line("/data/secret.txt cannot be sent");
}

#[test]
fn parts_of_files_follow_each_other() {
    let site = Site::new().php(
        "parts.php",
        "http_response_code(206); header('Content-Range: bytes 5-9/100');
        header('X-LIGHTTPD-send-file2: ' . $_GET['parts']);",
    );
    let directory = site.writable("private");
    fs::write(directory.join("a b.txt"), "0123456789").expect("the directory is ours");
    fs::write(directory.join("c.txt"), "abcdef").expect("the directory is ours");
    let here = directory.display();
    let server = site
        .config(&format!("[site.test.sendfile]\nroots = [{directory:?}]"))
        .start();
    let get = |parts: String| server.get(&format!("/parts.php?parts={}", encode(&parts)));
    let one = get(format!("{here}/a%20b.txt 5-9")).expect(206);
    assert_eq!(
        (one.text().as_str(), one.field("Content-Range")),
        ("56789", Some("bytes 5-9/100"))
    );
    let two = get(format!("{here}/a%20b.txt 8-, {here}/c.txt 0-2")).expect(206);
    assert_eq!((two.text().as_str(), two.field("Content-Length")), ("89abc", Some("5")));
    assert_eq!(get(format!("{here}/c.txt 4-400")).expect(206).text(), "ef");
    expect_no_order(&get(format!("{here}/c.txt")).expect(404));
    expect_no_order(&get("/etc/passwd 0-".to_owned()).expect(404));
}

#[test]
fn what_lies_outside_or_is_no_plain_file_is_404_and_said_in_the_log() {
    // Here haulier opens the file by its name; `passthru` has the same for PHP.
    let site = site()
        .run_by(Php::Cgi)
        .php("private.php", "echo 'source';")
        .link("out.bin", "/etc/passwd")
        .file(".env", "SECRET=1");
    let directory = private(&site);
    let place = Path::new(&directory);
    fs::write(place.join(".env"), "SECRET=1").expect("ours");
    fs::create_dir(place.join(".git")).expect("ours");
    fs::write(place.join(".git/config"), "x").expect("ours");
    for script in ["run.php", "upper.PHP", "old.phtml", "db.inc"] {
        fs::write(place.join(script), "<?php // source").expect("ours");
    }
    for (link, to) in [
        ("passwd.txt", "/etc/passwd"),
        ("pic.jpg", "run.php"),
        ("env.txt", ".env"),
        ("etc", "/etc"),
        ("loop", "loop"),
    ] {
        symlink(to, place.join(link)).expect("ours");
    }
    symlink("file.bin", place.join("inside.bin")).expect("ours");
    run(std::process::Command::new("mkfifo").arg(place.join("fifo")));
    let root = site.root().display().to_string();
    let server = site.start();
    let attacks = [
        "/etc/passwd",
        "/etc/shadow",
        "/dev/zero",
        "/proc/self/environ",
        "etc/passwd",
        "file:///etc/passwd",
        "//etc//passwd",
        &format!("{directory}/../../../../../../etc/passwd"),
        &format!("{directory}/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd"),
        &format!("{directory}/file.bin%00.txt"),
        &format!("{directory}x"),
        &directory,
        &format!("{directory}/"),
        &format!("{directory}/file.bin/"),
        &format!("{directory}/nothing"),
        &format!("{directory}/.env"),
        &format!("{directory}/%2eenv"),
        &format!("{directory}/.git/config"),
        &format!("{directory}/run.php"),
        &format!("{directory}/run.php."),
        &format!("{directory}/upper.PHP"),
        &format!("{directory}/old.phtml"),
        &format!("{directory}/db.inc"),
        &format!("{directory}/passwd.txt"),
        &format!("{directory}/pic.jpg"),
        &format!("{directory}/env.txt"),
        &format!("{directory}/etc/passwd"),
        &format!("{directory}/loop"),
        &format!("{directory}/fifo"),
        &format!("{root}/get.php"),
    ];
    for path in attacks {
        for field in ["X-Sendfile", "X-LIGHTTPD-send-file"] {
            let response = server.get(&target(field, path)).expect(404);
            expect_no_order(&response);
            assert_eq!(response.field("Set-Cookie"), None, "{path}");
            assert!(!response.text().contains(&directory), "{path}: {}", response.text());
        }
    }
    for path in [
        "/etc/passwd",
        "/../private/file.bin",
        "/.env",
        "/get.php",
        "/out.bin",
        "@named",
        "",
    ] {
        // An empty field is no order: the script's own body goes out.
        let expected = if path.is_empty() { 200 } else { 404 };
        expect_no_order(&server.get(&target("X-Accel-Redirect", path)).expect(expected));
    }
    let denied = server
        .lines()
        .into_iter()
        .filter(|line| line.contains("sendfile_denied"));
    let warnings: Vec<String> = denied.filter(|line| line.contains("\"tried\"")).collect();
    let says = |text: &str| warnings.iter().any(|line| line.contains(text));
    assert!(says("/etc/shadow lies outside the roots"), "{warnings:#?}");
    assert!(says(&format!("{directory}/.env is a dotfile")) && says("is a symbolic link out of its root"));
    assert!(
        says("run.php is a script")
            && says("fifo does not exist or is not a regular file")
            && says("\"script\":\"/get.php\"")
    );
    assert_eq!(
        server
            .get(&target("X-Sendfile", &format!("{directory}/inside.bin")))
            .expect(200)
            .body
            .len(),
        LENGTH
    );
}

#[test]
fn a_status_of_the_script_stands_and_an_error_never_shows_the_field() {
    let site = Site::new()
        .file("sorry.txt", "we are sorry")
        .php(
            "410.php",
            "http_response_code(410); header('X-Accel-Redirect: /sorry.txt');",
        )
        .php(
            "204.php",
            "http_response_code(204); header('X-Accel-Redirect: /sorry.txt');",
        )
        .php(
            "bad.php",
            "header('Content-Length: none'); header('X-Sendfile: /etc/passwd'); echo 'x';",
        )
        .php(
            "fatal.php",
            "header('X-Sendfile: /etc/passwd'); header('X-Accel-Expires: 5'); nothing();",
        );
    let server = site.ini("display_errors", "0").start();
    let gone = server
        .ask(&Request::get("/410.php").with("Range", "bytes=0-1"))
        .expect(410);
    assert_eq!(
        (gone.text().as_str(), gone.field("Accept-Ranges")),
        ("we are sorry", None)
    );
    expect_no_order(&gone);
    expect_no_order(&server.get("/204.php").expect(204));
    expect_no_order(&server.get("/bad.php"));
    expect_no_order(&server.get("/fatal.php"));
}

/// RFC 9110 §14.3: a script that counts downloads, say, wants none of them in parts.
#[test]
fn a_script_may_refuse_ranges() {
    let site = site().php(
        "whole.php",
        "header('Accept-Ranges: none'); header('X-Sendfile: ' . $_GET['path']);",
    );
    let path = encode(&format!("{}/file.bin", private(&site)));
    let server = site.start();
    let request = Request::get(&format!("/whole.php?path={path}"));
    let whole = server.ask(&request.with("Range", "bytes=0-9")).expect(200);
    assert_eq!((whole.body.len(), whole.field("Accept-Ranges")), (LENGTH, Some("none")));
    assert_eq!(whole.field("Content-Range"), None);
}

#[test]
fn a_script_that_goes_on_does_not_keep_the_client_waiting() {
    let site = Site::new().file("public.txt", "text").writable_for_gate();
    let gate = site.root().with_file_name("gates").join("gate");
    let code = format!(
        "header('X-Accel-Redirect: /public.txt'); while (ob_get_level()) ob_end_flush(); echo ' '; flush();
        for ($i = 0; $i < 12000 && !file_exists('{0}'); $i++) {{ usleep(10000); clearstatcache(); }}
        file_put_contents('{0}.done', 'x');",
        gate.display()
    );
    let server = site.php("goes_on.php", &code).start();
    assert_eq!(server.get("/goes_on.php").expect(200).text(), "text");
    let done = gate.with_extension("done");
    assert!(!done.exists(), "the script is still at work");
    fs::write(&gate, "").expect("ours");
    super::support::wait_until("the script's own end", || done.exists());
}

/// From its second time on a file stays open: whatever happens to it, nobody may notice.
#[test]
fn a_file_handed_off_again_and_again_is_the_one_that_is_there() {
    // Here haulier opens the file by its name, and may keep it open.
    let site = site().run_by(Php::Cgi);
    let directory = site.root().with_file_name("private");
    let (file, other) = (directory.join("again.bin"), directory.join("other.bin"));
    let secret = directory.with_file_name("secret");
    let write = |path: &Path, text: &str| fs::write(path, text).expect("the directory is ours");
    write(&secret, "outside");
    write(&file, "first");
    let target = target("X-Sendfile", file.to_str().expect("text"));
    let server = site.start();
    let again = |expected: &str| {
        // What changed less than two seconds ago is not held.
        thread::sleep(Duration::from_millis(2100));
        // One of the two threads gets three of them: the first is noted, the second held, the third sent from there.
        let answers: Vec<_> = (0..5).map(|_| server.get(&target).expect(200)).collect();
        for answer in &answers {
            assert_eq!(answer.text(), expected);
            assert_eq!(answer.field("ETag"), answers[0].field("ETag"));
        }
        answers[0].field("ETag").expect("of the file").to_owned()
    };
    let first = again("first");
    assert!(open_names(&server).contains("again.bin"), "it is held");
    write(&file, "the second, written in its place");
    assert_ne!(again("the second, written in its place"), first);
    write(&other, "third");
    fs::rename(&other, &file).expect("ours");
    again("third");

    fs::remove_file(&file).expect("ours");
    server.get(&target).expect(404);
    symlink(&secret, &file).expect("ours");
    server.get(&target).expect(404);
    fs::remove_file(&file).expect("ours");
    write(&file, "back");
    again("back");

    // Of the same length, twice within a tick of the clock.
    for text in ["one", "two", "six"] {
        fs::write(&file, text).expect("the directory is ours");
        assert_eq!(server.get(&target).expect(200).text(), text);
    }

    // A deployment: the name leads elsewhere, and what it led to is still there.
    let moved = directory.with_file_name("moved");
    fs::rename(&directory, &moved).expect("ours");
    fs::create_dir(&directory).expect("ours");
    write(&file, "of the new release");
    again("of the new release");
}

/// An export that a script makes for one download.
#[test]
fn a_file_handed_off_once_is_not_held() {
    let site = site();
    let file = site.root().with_file_name("private").join("export.bin");
    fs::write(&file, content(LENGTH)).expect("the directory is ours");
    let target = target("X-Sendfile", file.to_str().expect("text"));
    let server = site.start();
    assert!(server.get(&target).expect(200).body == content(LENGTH));
    fs::remove_file(&file).expect("ours");
    server.get("/get.php?field=X-None&path=").expect(200);
    let open = open_names(&server);
    assert!(!open.contains("export.bin"), "{open}");
}

/// What the server has open.
fn open_names(server: &Haulier) -> String {
    let open = fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("ours");
    let names = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    names.map(|name| format!("{}\n", name.display())).collect()
}

#[test]
fn five_gigabytes_are_told_and_sent_from_any_place() {
    const SIZE: u64 = 5 << 30;
    let site = site();
    let path = format!("{}/large.bin", private(&site));
    let file = File::create(&path).expect("ours");
    file.set_len(SIZE).expect("a sparse file");
    file.write_all_at(b"the very end", SIZE - 12).expect("ours");
    let target = target("X-Sendfile", &path);
    let server = site.start();
    let head = server.ask(&Request::head(&target)).expect(200);
    assert_eq!(head.field("Content-Length"), Some("5368709120"));
    let end = server
        .ask(&Request::get(&target).with("Range", "bytes=-12"))
        .expect(206);
    assert_eq!(
        (end.text().as_str(), end.field("Content-Range")),
        ("the very end", Some("bytes 5368709108-5368709119/5368709120"))
    );
    let beyond_4_gib = server
        .ask(&Request::get(&target).with("Range", "bytes=4294967290-4294967309"))
        .expect(206);
    assert_eq!(beyond_4_gib.body, vec![0; 20]);
    let mut connection = server.connect();
    connection.send(Request::get(&target).to_bytes());
    assert_eq!(
        connection.read_head().expect("a head").field("Content-Length"),
        Some("5368709120")
    );
    connection.read_exactly(1 << 20).expect("the beginning");
    connection.reset();
}

#[test]
fn a_clients_copies_of_our_announcements_never_reach_php() {
    let site = Site::new().php(
        "told.php",
        "echo json_encode([$_SERVER['HTTP_X_SENDFILE_TYPE'] ?? null, $_SERVER['HTTP_X_ACCEL_MAPPING'] ?? null,
        $_SERVER['MOD_X_SENDFILE_ENABLED'] ?? null]);",
    );
    let root = site.root().canonicalize().expect("there").display().to_string();
    let server = site.start();
    let forged = Request::get("/told.php")
        .with("X-Sendfile-Type", "X-Evil")
        .with("X-Accel-Mapping", "/=/");
    let told: serde_json::Value = serde_json::from_str(&server.ask(&forged).expect(200).text()).expect("JSON");
    assert_eq!(told[0], "X-Accel-Redirect");
    assert_eq!(told[1], format!("{root}/=/.haulier-root-0/"));
    assert_eq!(told[2], "1");

    let off = Site::new()
        .php(
            "told.php",
            "echo json_encode($_SERVER['HTTP_X_SENDFILE_TYPE'] ?? null);",
        )
        .config("[site.test.sendfile]\nroots = []");
    let server = off.start();
    assert_eq!(server.ask(&forged).expect(200).text(), "null");
}
