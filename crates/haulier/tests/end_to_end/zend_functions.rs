//! The functions of the Zend Download Server, defined by the prelude of our own pools.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::support::client::Request;
use super::support::content;
use super::support::php_fpm::Socket;
use super::support::site::{Php, Site};

#[test]
fn zend_send_file_ends_the_script_and_sends_the_file() {
    let site = Site::new()
        .php("plain.php", "echo 'dropped'; header('X-Before: 1'); zend_send_file(__DIR__ . '/../private/a b%.jpg'); echo 'after';")
        .php("typed.php", "haulier_send_file(__DIR__ . '/../private/a b%.jpg', 'image/x-own');")
        .php("lines.php", "zend_send_file(__DIR__ . '/../private/a b%.jpg', 'image/png', \"X-One: 1\\r\\nSet-Cookie: a=1\\r\\nSet-Cookie: b=2\");")
        .php("names.php", "zend_send_file(__DIR__ . '/../private/a b%.jpg', null, ['Content-Type' => 'a/b', 'X-Two: 2']);");
    let private = site.writable("private");
    fs::write(private.join("a b%.jpg"), content(200_000)).expect("ours");
    let server = site
        .config(&format!("[site.test.sendfile]\nroots = [{private:?}]"))
        .start();
    let plain = server.get("/plain.php").expect(200);
    assert!(plain.body == content(200_000));
    assert_eq!(plain.field("Content-Type"), Some("image/jpeg"), "by extension");
    assert_eq!(plain.field("X-Before"), None, "headers set before are dropped");
    assert_eq!(plain.field("X-Haulier-Send"), None);
    assert_eq!(
        server.get("/typed.php").expect(200).field("Content-Type"),
        Some("image/x-own")
    );
    let lines = server.get("/lines.php").expect(200);
    assert_eq!(
        (lines.field("X-One"), lines.field("Content-Type")),
        (Some("1"), Some("image/png"))
    );
    assert_eq!(lines.head.values("Set-Cookie"), ["a=1", "b=2"]);
    let names = server.get("/names.php").expect(200);
    assert_eq!(
        (names.field("X-Two"), names.field("Content-Type")),
        (Some("2"), Some("a/b"))
    );
    let part = server
        .ask(&Request::get("/plain.php").with("Range", "bytes=7-9"))
        .expect(206);
    assert_eq!(part.body, content(200_000)[7..10]);
    let line = server.access_line_for("/plain.php");
    assert_eq!(
        (line["handler"].as_str(), line["via"].as_str()),
        (Some("handed"), Some("zend"))
    );
}

#[test]
fn zend_send_file_returns_false_when_it_cannot() {
    let code = "$r = [zend_send_file(__DIR__ . '/nothing'), zend_send_file(__DIR__), zend_send_file(null), zend_send_file('')];
        foreach ([__DIR__ . '/closed.bin'] as $f) $r[] = zend_send_file($f);
        echo json_encode($r); flush(); echo json_encode(zend_send_file(__FILE__)); echo json_encode(zend_send_buffer('x'));";
    let site = Site::new()
        .php("false.php", code)
        .file("closed.bin", "x")
        .ini("output_buffering", "0");
    fs::set_permissions(site.root().join("closed.bin"), fs::Permissions::from_mode(0o000)).expect("ours");
    let server = site.start();
    let text = server.get("/false.php").expect(200).text();
    // PHP as root reads whatever it wants: only then would the last of the five be sent.
    assert_eq!(text, "[false,false,false,false,false]falsefalse");
}

#[test]
fn zend_send_file_takes_every_way_to_write_a_path() {
    let site = Site::new()
        .file("pic.png", content(70_000))
        .link("link.png", "pic.png")
        .php(
            "sub/get.php",
            "chdir(__DIR__); var_dump(zend_send_file(urldecode($_GET['f'])));",
        );
    let root = site.root().display().to_string();
    let server = site.start();
    for path in [
        "../pic.png".to_owned(),
        format!("{root}/sub/../pic.png"),
        format!("{root}//pic.png"),
        format!("{root}/link.png"),
    ] {
        let response = server.get(&format!("/sub/get.php?f={path}")).expect(200);
        assert!(response.body == content(70_000), "{path}");
        assert_eq!(response.field("Content-Type"), Some("image/png"), "{path}");
    }
    for path in [
        format!("{root}/pic.png/"),
        format!("{root}/pic.png%2500"),
        format!("{root}/sub/.."),
        "/".to_owned(),
        "php://memory".to_owned(),
        format!("file://{root}/pic.png"),
    ] {
        let text = server.get(&format!("/sub/get.php?f={path}")).expect(200).text();
        assert_eq!(text, "bool(false)\n", "{path}");
    }
}

#[test]
fn zend_send_file_asks_for_its_account_where_not_everybody_may_read() {
    let code = "$f = __DIR__ . '/../private/own.png'; file_put_contents($f, str_repeat('own', 1000)); chmod($f, 0600);
        if (isset($_GET['lock'])) chmod($f, 0); var_dump(zend_send_file($f));";
    let site = Site::new().php("own.php", code);
    let private = site.writable("private");
    let server = site
        .config(&format!("[site.test.sendfile]\nroots = [{private:?}]"))
        .start();
    assert_eq!(server.get("/own.php").expect(200).text(), "own".repeat(1000));
    // PHP is not run as root.
    assert_eq!(server.get("/own.php?lock").expect(200).text(), "bool(false)\n");
}

#[test]
fn what_php_would_code_or_buffer_is_dropped_with_its_fields() {
    let site = Site::new()
        .file("pic.png", content(70_000))
        .php("file.php", "echo 'dropped'; zend_send_file(__DIR__ . '/pic.png');")
        .php("nested.php", "ob_start(function ($text) { return strrev($text); }); echo 'a'; ob_start(); echo 'b'; zend_send_file(__DIR__ . '/pic.png');")
        .php("buffer.php", "echo 'dropped'; zend_send_buffer(str_repeat('0123456789', 3000), 'image/x-own');")
        .php(
            "locked.php",
            "ob_start(null, 0, PHP_OUTPUT_HANDLER_STDFLAGS ^ PHP_OUTPUT_HANDLER_REMOVABLE); echo 'a';
                zend_send_file(__DIR__ . '/pic.png');",
        );
    let server = site
        .ini("zlib.output_compression", "On")
        .ini("error_reporting", "-1")
        .start();
    for (path, expected) in [
        ("/file.php", content(70_000)),
        ("/nested.php", content(70_000)),
        ("/locked.php", content(70_000)),
        ("/buffer.php", "0123456789".repeat(3000).into_bytes()),
    ] {
        let request = Request::get(path).with("Accept-Encoding", "gzip");
        let response = server.ask(&request).expect(200);
        assert_eq!(response.field("Content-Encoding"), None, "{path}");
        assert!(response.body == expected, "{path}");
    }
}

#[test]
fn zend_functions_are_bound_by_the_roots() {
    let site = Site::new()
        .php("passwd.php", "zend_send_file('/etc/passwd');")
        .php("source.php", "zend_send_file(__FILE__);")
        .php(
            "forged.php",
            "header('X-Haulier-Send: 0000 file /etc/passwd'); echo 'own body';",
        );
    let server = site.start();
    for path in ["/passwd.php", "/source.php"] {
        let response = server.get(path).expect(404);
        assert_eq!(response.field("X-Haulier-Send"), None);
    }
    server.wait_for_line("/etc/passwd lies outside the roots");
    let forged = server.get("/forged.php").expect(200);
    assert_eq!(
        (forged.text().as_str(), forged.field("X-Haulier-Send")),
        ("own body", None)
    );
}

#[test]
fn zend_send_buffer_sends_the_buffer_alone() {
    let code = "echo 'dropped'; header('X-Before: 1'); ob_start(); echo 'too';
        zend_send_buffer(str_repeat('0123456789', 30000), 'application/x-own', 'X-Own: 1'); echo 'after';";
    let server = Site::new().php("buffer.php", code).start();
    let response = server.get("/buffer.php").expect(200);
    assert!(response.body == "0123456789".repeat(30_000).as_bytes());
    assert_eq!(response.field("Content-Type"), Some("application/x-own"));
    assert_eq!((response.field("X-Own"), response.field("X-Before")), (Some("1"), None));
    assert_eq!(response.field("Content-Length"), Some("300000"));
    assert_eq!(response.field("X-Haulier-Send"), None);
    let line = server.access_line_for("/buffer.php");
    assert_eq!(
        (line["handler"].as_str(), line["via"].as_str()),
        (Some("offloaded"), Some("zend"))
    );
}

#[test]
fn without_roots_the_functions_send_by_themselves() {
    let site = Site::new()
        .file("pic.png", content(100_000))
        .php("get.php", "zend_send_file(__DIR__ . '/pic.png', 'image/png');")
        .config("[site.test.sendfile]\nroots = []");
    let server = site.start();
    let response = server.get("/get.php").expect(200);
    assert!(response.body == content(100_000));
    assert_eq!(response.field("Content-Type"), Some("image/png"));
}

#[test]
fn a_prepended_file_of_the_pool_still_runs_before_the_script() {
    let site = Site::new()
        .php(
            "own/first.php",
            "$greeting = 'hello from before'; function own_helper() { return 'helped'; }",
        )
        .php(
            "see.php",
            "echo $greeting, ' ', own_helper(), ' ', function_exists('zend_send_file') ? 'and ours' : 'alone';",
        );
    let first = site.root().join("own/first.php").display().to_string();
    let server = site.ini("auto_prepend_file", &first).start();
    assert_eq!(
        server.get("/see.php").expect(200).text(),
        "hello from before helped and ours"
    );
}

#[test]
fn a_prepended_file_of_a_user_ini_still_runs() {
    let site = Site::new()
        .php("first.php", "$greeting = 'by the directory';")
        .php("see.php", "echo $greeting;");
    let first = site.root().join("first.php").display().to_string();
    let both = "require ini_get_all()['auto_prepend_file']['global_value']; $greeting = 'both';";
    let site = site
        .file(".user.ini", format!("auto_prepend_file = \"{first}\"\n"))
        .php("sub/both.php", both)
        .php(
            "sub/see.php",
            "echo $greeting, function_exists('zend_send_file') ? ' defined' : ' missing';",
        );
    let second = site.root().join("sub/both.php").display().to_string();
    let server = site
        .file("sub/.user.ini", format!("auto_prepend_file = \"{second}\"\n"))
        .start();
    assert_eq!(server.get("/see.php").expect(200).text(), "by the directory");
    assert_eq!(server.get("/sub/see.php").expect(200).text(), "both defined");
}

#[test]
fn the_prelude_can_be_turned_off_and_keeps_out_of_open_basedir() {
    let code = "echo function_exists('zend_send_file') ? 'defined' : 'plain';";
    let server = Site::new()
        .php("see.php", code)
        .ini("auto_prepend_file", "none")
        .start();
    assert_eq!(server.get("/see.php").expect(200).text(), "plain");
    let site = Site::new().php("see.php", code);
    let root = site.root().display().to_string();
    let server = site.ini("open_basedir", &root).start();
    assert_eq!(server.get("/see.php").expect(200).text(), "plain");
    server.wait_for_line("open_basedir is set");
}

/// What docs/downloads.md says of php-fpm: a copy of the prelude, named in the pool.
#[test]
fn php_fpm_has_the_functions_by_a_line_in_its_pool() {
    let site = Site::new()
        .file("pic.png", content(100_000))
        .php("get.php", "zend_send_file(__DIR__ . '/pic.png');")
        .run_by(Php::Fpm(Socket::Unix));
    let prelude = site.writable("haulier").join("prelude.php");
    fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/src/prelude.php"), &prelude).expect("ours");
    let server = site.ini("auto_prepend_file", &prelude.display().to_string()).start();
    let response = server.get("/get.php").expect(200);
    assert!(response.body == content(100_000));
    assert_eq!(response.field("Content-Type"), Some("image/png"));
    let line = server.access_line_for("/get.php");
    assert_eq!(
        (line["handler"].as_str(), line["via"].as_str()),
        (Some("handed"), Some("zend"))
    );
}
