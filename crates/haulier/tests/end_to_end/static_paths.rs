//! What must never leave the document root, in every spelling: traversal, hidden files, PHP source.

use std::fs;

use super::support::client::Request;
use super::support::haulier::Haulier;
use super::support::site::Site;

/// Asks for every path and fails with all that were not refused.
#[track_caller]
fn assert_refused(server: &Haulier, paths: &[&str], secret: &str) {
    let mut leaks = Vec::new();
    for path in paths {
        let mut connection = server.connect();
        connection.send(format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        ));
        let response = connection.read_response("GET").expect("an answer, not silence");
        if !matches!(response.status(), 400 | 404) || response.text().contains(secret) {
            leaks.push(format!("{path}: {} {:?}", response.status(), response.text()));
        }
    }
    assert!(leaks.is_empty(), "not refused:\n{}", leaks.join("\n"));
}

#[test]
fn nothing_outside_the_root_is_served_however_it_is_spelt() {
    let site = Site::new().file("a.txt", "inside").file("dir/b.txt", "inside");
    fs::write(site.root().join("../outside.txt"), "OUTSIDE").expect("a file beside the root");
    let server = site.start();
    let paths = [
        "/../outside.txt",
        "/dir/../../outside.txt",
        "/%2e%2e/outside.txt",
        "/..%2foutside.txt",
        "/%2e%2e%2foutside.txt",
        "/dir/%2e%2e/%2e%2e/outside.txt",
        "/..%5coutside.txt",
        "/..\\outside.txt",
        "/%252e%252e/outside.txt",
        "/%252e%252e%252foutside.txt",
        "/%c0%ae%c0%ae/outside.txt",
        "/%e0%80%ae%e0%80%ae/outside.txt",
        "/.%00./outside.txt",
        "/a.txt%00.html",
        "/a.txt/",
        "/a.txt/x",
        "/....//outside.txt",
        "/..;/outside.txt",
        "/dir/..%00/outside.txt",
        "/%",
        "/%2",
        "/%zz",
        "//../outside.txt",
        "/./../outside.txt",
    ];
    assert_refused(&server, &paths, "OUTSIDE");
    assert_eq!(server.get("/a.txt").expect(200).text(), "inside");
}

#[test]
fn dot_segments_inside_the_root_resolve() {
    let server = Site::new().file("a.txt", "inside").file("dir/b.txt", "b").start();
    for path in ["/dir/../a.txt", "/./a.txt", "/dir/%2e%2e/a.txt"] {
        assert_eq!(server.get(path).expect(200).text(), "inside", "{path}");
    }
}

#[test]
fn names_are_decoded_exactly_once() {
    let site = Site::new()
        .file("a b.txt", "space")
        .file("100%.txt", "percent")
        .file("ä/ö.txt", "umlaut");
    let server = site.file("a+b.txt", "plus").file("%41.txt", "literal").start();
    let rows = [
        ("/a%20b.txt", "space"),
        ("/100%25.txt", "percent"),
        ("/%C3%A4/%c3%b6.txt", "umlaut"),
        ("/a+b.txt", "plus"),
        ("/%2541.txt", "literal"),
    ];
    for (path, content) in rows {
        assert_eq!(server.get(path).expect(200).text(), content, "{path}");
    }
    server.get("/A.txt").expect(404);
    // A slash or NUL that hides in a percent-encoding is no part of a name.
    for path in ["/%C3%A4%2F%c3%b6.txt", "/a%20b.txt%00"] {
        assert!(matches!(server.get(path).status(), 400 | 404), "{path}");
    }
}

#[test]
fn hidden_files_and_backups_are_not_there() {
    let hidden = [
        ".env",
        ".git/config",
        "sub/.htpasswd",
        "index.php~",
        "config.php.bak",
        "config.bak",
        ".page.php.swp",
        "page.swp",
        "composer.json",
        "composer.lock",
        "package.json",
        "package-lock.json",
    ];
    let site = hidden.iter().fold(Site::new(), |site, name| site.file(name, "SECRET"));
    let server = site.file(".well-known/security.txt", "open").start();
    let mut paths: Vec<String> = hidden.iter().map(|name| format!("/{name}")).collect();
    paths.extend(["/%2eenv", "/.%65nv", "/x/../.env", "/./.git/config"].map(String::from));
    assert_refused(&server, &paths.iter().map(String::as_str).collect::<Vec<_>>(), "SECRET");
    assert_eq!(server.get("/.well-known/security.txt").expect(200).text(), "open");
}

#[test]
fn symbolic_links_are_followed_inside_the_root_only() {
    let site = Site::new().file("real/a.txt", "inside");
    let outside = site.writable("outside");
    fs::write(outside.join("o.txt"), "OUTSIDE").expect("a file beside the root");
    let site = site
        .link("in.txt", "real/a.txt")
        .link("indir", "real")
        .link("loop", "loop");
    let site = site
        .link("out.txt", outside.join("o.txt"))
        .link("outdir", &outside)
        .link("up", "../outside/o.txt");
    let server = site.link("passwd", "/etc/passwd").start();
    assert_eq!(server.get("/in.txt").expect(200).text(), "inside");
    assert_eq!(server.get("/indir/a.txt").expect(200).text(), "inside");
    assert_refused(&server, &["/out.txt", "/outdir/o.txt", "/up", "/loop"], "OUTSIDE");
    assert_refused(&server, &["/passwd"], "root:");
}

#[test]
fn php_source_never_leaves_whatever_the_spelling() {
    let site = Site::new()
        .php("secret.php", "/* SOURCE */ echo 'ran';")
        .file("a.jpg", "<?php /* SOURCE */ echo 'ran';");
    let site = site
        .file("lib/inc.php", "<?php /* SOURCE */")
        .file("old.php.bak", "<?php /* SOURCE */");
    let server = site.file("copy.php~", "<?php /* SOURCE */").start();
    let spellings = [
        "/secret.php",
        "/secret.php/",
        "/secret.php%00.txt",
        "/secret.php%00",
        "/secret.php%20",
        "/secret.php.",
        "/secret.php%2e",
        "/secret.PHP",
        "/secret.php/x.txt",
        "/secret.php%2fx.txt",
        "/secret.php;x.txt",
        "/secret.php::$DATA",
        "/secret.php%5c",
        "/secret%2ephp",
        "/%73ecret.php",
        "/secret.php~",
        "/copy.php~",
        "/old.php.bak",
        "/lib/inc.php",
        "//secret.php",
        "/./secret.php",
        "/secret.php?x=.txt",
    ];
    let mut leaks = Vec::new();
    for spelling in spellings {
        for request in [
            Request::get(spelling),
            Request::get(spelling).with("Range", "bytes=0-99"),
        ] {
            let response = server.ask(&request);
            if response.text().contains("SOURCE") {
                leaks.push(spelling);
            }
        }
    }
    assert!(leaks.is_empty(), "source sent for {leaks:?}");
    assert_eq!(server.get("/secret.php").expect(200).text(), "ran");
}

#[test]
fn only_files_with_a_script_extension_run() {
    let code = "<?php echo 'R' . 'AN';";
    let site = Site::new()
        .php("x.php", "echo 'x';")
        .file("evil.jpg", code)
        .file("uploads/evil.txt", code);
    let server = site.file("evil.php.jpg", code).file("evil.pHp5", code).start();
    let paths = [
        "/evil.jpg",
        "/evil.jpg/x.php",
        "/evil.jpg/",
        "/evil.jpg%00.php",
        "/evil.jpg%20.php",
        "/evil.jpg%20/x.php",
        "/evil.php.jpg",
        "/evil.php.jpg/x.php",
        "/uploads/evil.txt/x.php",
        "/uploads/evil.txt%0a.php",
        "/evil.pHp5",
        "/nothing.php",
        "/nothing.php/x.php",
        "/x/x.php",
    ];
    for path in paths {
        let response = server.get(path);
        assert!(!response.text().contains("RAN"), "{path} ran");
        assert!(
            matches!(response.status(), 200 | 400 | 404),
            "{path}: {}",
            response.status()
        );
    }
    for path in ["/evil.jpg/x.php", "/nothing.php", "/uploads/evil.txt/x.php", "/x/x.php"] {
        server.get(path).expect(404);
    }
}

#[test]
fn a_redirect_never_leaves_the_site() {
    let server = Site::new().file("docs/index.html", "x").start();
    for path in [
        "//docs",
        "//evil.example/..%2f..%2fdocs",
        "/%0d%0aX-Injected:%20yes/../docs",
        "//evil.example/../docs",
    ] {
        let response = server.get(path);
        assert!(response.field("X-Injected").is_none(), "{path}");
        if let Some(location) = response.field("Location") {
            let inside = location.strip_prefix("http://localhost").unwrap_or(location);
            assert!(
                inside.starts_with('/') && !inside.starts_with("//"),
                "{path} leads to {location}"
            );
        }
    }
}
