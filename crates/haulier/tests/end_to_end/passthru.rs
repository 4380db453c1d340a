//! Scripts that pass a file on (`readfile` and its kin) in haulier's own workers: the client gets what php-cgi would send,
//! and no byte goes through PHP.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::time::{Duration, SystemTime};

use super::support::client::{Connection, Request, Response};
use super::support::haulier::{Haulier, descriptors};
use super::support::site::{Php, Site};
use super::support::{curl, wait_until};

const LENGTH: usize = 500_000;

/// How scripts pass a file on.
const SCRIPTS: [&str; 16] = [
    "readfile($file);",
    "header('Content-Length: ' . filesize($file)); readfile($file); exit;",
    "header('Content-Length: 1000'); readfile($file);",
    "header('Content-Type: application/octet-stream'); header('ETag: \"v1\"'); readfile($file);",
    "header('Content-Type: image/jpeg'); header('Accept-Ranges: bytes'); fpassthru(fopen($file, 'rb'));",
    "header('Content-Type: image/jpeg'); header('ETag: \"v1\"'); $f = fopen($file, 'rb'); fseek($f, 1000); fpassthru($f);",
    "echo 'before'; readfile($file); echo 'between'; readfile($file); echo 'after';",
    "header('Content-Type: video/mp4'); http_response_code(206); header('Content-Range: bytes 100000-299999/500000');
     stream_copy_to_stream(fopen($file, 'r'), fopen('php://output', 'w'), 200000, 100000);",
    "http_response_code(404); readfile($file);",
    "http_response_code(304); header('ETag: \"v1\"'); readfile($file);",
    "ob_start('ob_gzhandler'); readfile($file);",
    "$f = fopen($file, 'r'); stream_filter_append($f, 'string.rot13'); fpassthru($f);",
    "ob_start(); readfile($file); echo strlen(ob_get_clean());",
    "header('X-Accel-Buffering: no'); echo 'live'; flush(); readfile($file); echo 'end';",
    "header('Content-Encoding: identity'); readfile($file);",
    "while (ob_get_level() > 0) { ob_end_clean(); } flush(); echo readfile($file); fastcgi_finish_request(); readfile($file);",
];

/// Numbered lines, which can be compressed.
fn content(length: usize) -> Vec<u8> {
    let lines = (0..length).map(|number| format!("line {number}\n"));
    let mut text: Vec<u8> = lines.take(length / 6).flat_map(String::into_bytes).collect();
    text.truncate(length);
    text
}

/// Writes a file that was last changed a minute ago.
fn write_old(path: &std::path::Path, content: &[u8]) {
    fs::write(path, content).expect("the directory is ours");
    let file = File::options().write(true).open(path).expect("the file");
    file.set_modified(SystemTime::now() - Duration::from_secs(60))
        .expect("its time");
}

fn site(php: Php) -> Site {
    let mut site = Site::new().run_by(php);
    write_old(&site.writable("private").join("file.bin"), &content(LENGTH));
    for (number, script) in SCRIPTS.iter().enumerate() {
        let code = format!("$file = __DIR__ . '/../private/file.bin'; {script}");
        site = site.php(&format!("{number}.php"), &code);
    }
    site
}

/// What a client sees of a response; the fields of the connection aside.
fn seen(response: &Response) -> (u16, Vec<(String, String)>, Vec<u8>) {
    let aside = ["date", "content-length", "transfer-encoding", "x-request-id"];
    let fields = response.head.fields.iter();
    let mut fields: Vec<_> = fields
        .map(|(name, value)| (name.to_ascii_lowercase(), value.clone()))
        .filter(|(name, _)| !aside.contains(&name.as_str()))
        .collect();
    fields.sort();
    (response.head.status, fields, response.body.clone())
}

#[test]
fn a_client_sees_no_difference_to_php_cgi() {
    for ini in ["0", "4096"] {
        let ours = site(Php::Embedded).ini("output_buffering", ini).start();
        let theirs = site(Php::Cgi).ini("output_buffering", ini).start();
        for (number, script) in SCRIPTS.iter().enumerate() {
            let target = format!("/{number}.php");
            for request in [
                Request::get(&target),
                Request::head(&target),
                Request::get(&target).with("Accept-Encoding", "gzip"),
                Request::post(&target, b"a=b"),
            ] {
                let (ours, theirs) = (ours.ask(&request), theirs.ask(&request));
                let what = format!("{script} {request:?} output_buffering={ini}");
                let (status, fields, body) = seen(&ours);
                let expected = seen(&theirs);
                // A file is a download with ranges, where the script allows them.
                let fields: Vec<_> = if expected.1.iter().any(|(name, _)| name == "accept-ranges") {
                    fields
                } else {
                    fields.into_iter().filter(|(name, _)| name != "accept-ranges").collect()
                };
                assert_eq!((status, &fields), (expected.0, &expected.1), "{what}");
                let is_coded = fields.iter().any(|(_, value)| value == "gzip");
                assert!(
                    is_coded || body == expected.2,
                    "{what}: {} of {} bytes",
                    body.len(),
                    expected.2.len()
                );
            }
        }
    }
}

#[test]
fn a_coded_file_is_the_file() {
    let server = site(Php::Embedded).start();
    for target in ["/0.php", "/6.php"] {
        let plain = server.get(target).expect(200).body;
        let url = format!("http://{}{target}", server.address());
        let coded = curl(&["-s", "--compressed", "-w", "%{size_download}", &url]);
        assert!(coded.starts_with(&plain), "{target}");
        let size: usize = String::from_utf8_lossy(&coded[plain.len()..])
            .parse()
            .expect("a number");
        assert!(size < plain.len() / 2, "{target}: {size} bytes");
    }
}

#[test]
fn a_whole_file_is_a_download_with_a_length_and_with_ranges_where_the_script_allows_them() {
    let server = site(Php::Embedded).start();
    let whole = server.get("/0.php").expect(200);
    assert_eq!(whole.field("Content-Length"), Some("500000"));
    assert_eq!(whole.field("Accept-Ranges"), None);
    let line = server.access_line_for("/0.php");
    assert_eq!(
        (line["handler"].as_str(), line["via"].as_str()),
        (Some("handed"), Some("readfile"))
    );
    for target in ["/3.php", "/4.php"] {
        assert_eq!(server.get(target).expect(200).field("Accept-Ranges"), Some("bytes"));
        let part = server
            .ask(&Request::get(target).with("Range", "bytes=1000-1999"))
            .expect(206);
        assert_eq!(part.body, content(LENGTH)[1000..2000], "{target}");
        assert_eq!(part.field("Content-Range"), Some("bytes 1000-1999/500000"));
    }
    server
        .ask(&Request::get("/3.php").with("If-None-Match", "\"v1\""))
        .expect(304);
    // Of a part of a file there are no ranges.
    let part = server
        .ask(&Request::get("/5.php").with("Range", "bytes=0-9"))
        .expect(200);
    assert!(part.body == content(LENGTH)[1000..]);
    assert_eq!(part.field("Accept-Ranges"), None);
}

#[test]
fn php_is_free_while_slow_clients_read() {
    const LONG: u64 = 10 << 20;
    let site = Site::new()
        .run_by(Php::Embedded)
        .workers(2)
        .php("long.php", "readfile(__DIR__ . '/../private/long.bin');")
        .php("hello.php", "echo 'hello';");
    let path = site.writable("private").join("long.bin");
    let file = File::create(&path).expect("ours");
    file.set_len(LONG).expect("a file with a hole");
    file.write_all_at(b"end", LONG - 3).expect("ours");
    file.set_modified(SystemTime::now() - Duration::from_secs(60))
        .expect("its time");
    let server = site.start();
    server.get("/hello.php").expect(200);
    let open = || {
        let all = descriptors(server.pid());
        all.iter().filter(|name| name.ends_with("/long.bin")).count()
    };
    let mut readers: Vec<Connection> = (0..16).map(|_| server.connect()).collect();
    for reader in &mut readers {
        reader.send(Request::get("/long.php").to_bytes());
        let head = reader.read_head().expect("a head");
        assert_eq!(head.field("Content-Length"), Some("10485760"));
    }
    assert_eq!(server.get("/hello.php").expect(200).text(), "hello");
    assert_eq!(open(), 16, "each reader has its file");
    wait_until("idle workers", || {
        server.metrics().sum("haulier_php_workers{pool=\"php\",state=\"busy\"}") == 0.0
    });
    for (number, mut reader) in readers.into_iter().enumerate() {
        if number % 2 == 0 {
            let body = reader.read_exactly(LONG as usize).expect("the file");
            assert!(body.ends_with(b"\0end"));
        }
    }
    wait_until("closed files", || open() == 0);
}

#[test]
fn a_booted_script_passes_files_on_in_the_same_way() {
    let code = "$file = __DIR__ . '/../private/file.bin';
        while (frankenphp_handle_request(function () use ($file) { header('ETag: \"v1\"'); readfile($file); })) {}";
    let site = site(Php::Embedded).php("worker.php", code);
    let script = site.root().join("worker.php");
    let server: Haulier = site
        .setting("front = \"/worker.php\"")
        .setting(&format!("worker = {script:?}"))
        .start();
    for _ in 0..3 {
        assert!(server.get("/page").expect(200).body == content(LENGTH));
        let part = server
            .ask(&Request::get("/page").with("Range", "bytes=5-9"))
            .expect(206);
        assert_eq!(part.body, content(LENGTH)[5..10]);
    }
    assert_eq!(server.access_line_for("/page")["via"], "readfile");
}

#[test]
fn a_file_that_a_script_names_is_opened_by_php() {
    let file = "$file = __DIR__ . '/../private/' . ($_GET['name'] ?? 'file.bin');";
    let mapped = "[$directory, $prefix] = explode('=', $_SERVER['HTTP_X_ACCEL_MAPPING']);
        header('X-Accel-Redirect: ' . $prefix . substr(realpath($file), strlen($directory)));";
    let site = site(Php::Embedded)
        .php(
            "named.php",
            &format!("{file} header('X-Sendfile: ' . $file); echo 'dropped';"),
        )
        .php("mapped.php", &format!("{file} {mapped}"))
        .php("zend.php", &format!("{file} zend_send_file($file);"))
        .php(
            "guarded.php",
            &format!("{file} ini_set('open_basedir', __DIR__); header('X-Sendfile: ' . $file);"),
        )
        .php("passwd.php", "header('X-Sendfile: /etc/passwd');");
    let private = site.writable("private");
    for (name, content) in [
        ("empty.bin", ""),
        ("a b.bin", "blank"),
        (".hidden", "dotfile"),
        ("closed.bin", "closed"),
    ] {
        write_old(&private.join(name), content.as_bytes());
    }
    fs::set_permissions(private.join("closed.bin"), fs::Permissions::from_mode(0o600)).expect("ours");
    let server = site
        .config(&format!("[site.test.sendfile]\nroots = [{private:?}]"))
        .start();
    for (target, via) in [
        ("/named.php", "x-sendfile"),
        ("/mapped.php", "x-accel"),
        ("/zend.php", "zend"),
    ] {
        let whole = server.get(target).expect(200);
        assert!(whole.body == content(LENGTH), "{target}");
        assert_eq!(whole.field("Content-Length"), Some("500000"));
        assert_eq!(whole.field("X-Haulier-Send"), None);
        let etag = whole.field("ETag").expect("of the file").to_owned();
        let head = server.ask(&Request::head(target)).expect(200);
        assert_eq!(
            (head.field("Content-Length"), head.field("ETag")),
            (Some("500000"), Some(&*etag))
        );
        let part = server.ask(&Request::get(target).with("Range", "bytes=5-9")).expect(206);
        assert_eq!(part.body, content(LENGTH)[5..10]);
        server
            .ask(&Request::get(target).with("If-None-Match", &etag))
            .expect(304);
        let line = server.access_line_for(target);
        assert_eq!(
            (line["handler"].as_str(), line["via"].as_str()),
            (Some("handed"), Some(via))
        );
        let empty = server.get(&format!("{target}?name=empty.bin")).expect(200);
        assert_eq!(
            (empty.field("Content-Length"), empty.body.len()),
            (Some("0"), 0),
            "{target}"
        );
    }
    assert_eq!(server.get("/named.php?name=a%2520b.bin").expect(200).text(), "blank");
    for (target, why) in [
        ("/guarded.php", "file.bin may not be read by PHP"),
        ("/named.php?name=closed.bin", "closed.bin may not be read by PHP"),
        ("/named.php?name=missing.bin", "missing.bin does not exist for PHP"),
        ("/named.php?name=.hidden", ".hidden is a dotfile"),
        ("/passwd.php", "/etc/passwd lies outside the roots"),
    ] {
        server.get(target).expect(404);
        server.wait_for_line(why);
    }
    let open = || {
        let all = descriptors(server.pid());
        all.iter().filter(|name| name.contains("/private/")).count()
    };
    wait_until("closed files", || open() == 0);
}
