//! The first hour with `haulier serve`: edits show, the environment is there, nothing ends a session at the debugger.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime};

use super::support::client::Request;
use super::support::haulier::Haulier;
use super::support::site::Site;
use super::support::wait_until;

/// `haulier serve` for the project, with more variables in its environment.
#[track_caller]
fn serve(site: Site, environment: &[(&str, &str)]) -> Haulier {
    let mut command = Haulier::command();
    command
        .arg("serve")
        .arg(site.root())
        .args(["--listen", "127.0.0.1:0", "--workers", "2"])
        .envs(environment.iter().copied());
    Haulier::start(command, vec![Box::new(site)])
}

/// Writes a file as if it had been there for an hour: caches trust it.
fn settle(path: &Path, content: &str) {
    fs::write(path, content).expect("the directory is ours");
    let file = fs::File::options().write(true).open(path).expect("just written");
    let hour = Duration::from_secs(3600);
    file.set_modified(SystemTime::now() - hour).expect("it is ours");
}

const INCLUDING: &str = "echo 'outer 1 '; include __DIR__ . '/inner.php'; include __DIR__ . '/current/linked.php';";

/// A page that includes a file, and another behind a symbolic link; all of it has been there for a while.
fn settled_site() -> Site {
    let site = Site::new().php("index.php", INCLUDING).file("style.css", "");
    let root = site.root();
    settle(&root.join("index.php"), &format!("<?php {INCLUDING}"));
    settle(&root.join("inner.php"), "<?php echo 'inner 1 ';");
    settle(&root.join("style.css"), "css 1");
    for release in ["1", "2"] {
        fs::create_dir(root.join(release)).expect("the directory is ours");
        let script = root.join(release).join("linked.php");
        settle(&script, &format!("<?php echo 'release {release}';"));
    }
    symlink("1", root.join("current")).expect("the directory is ours");
    site
}

#[test]
fn an_edit_is_seen_at_the_next_request_wherever_it_was_made() {
    let site = settled_site();
    let root = site.root().to_owned();
    let server = serve(site, &[]);
    for _ in 0..4 {
        assert_eq!(server.get("/").expect(200).text(), "outer 1 inner 1 release 1");
        assert_eq!(server.get("/style.css").expect(200).text(), "css 1");
    }
    fs::write(root.join("inner.php"), "<?php echo 'inner 2 ';").expect("the directory is ours");
    assert_eq!(server.get("/").expect(200).text(), "outer 1 inner 2 release 1");
    fs::write(
        root.join("index.php"),
        format!("<?php {}", INCLUDING.replace("outer 1", "outer 2")),
    )
    .expect("the directory is ours");
    assert_eq!(server.get("/").expect(200).text(), "outer 2 inner 2 release 1");
    symlink("2", root.join("next")).expect("the directory is ours");
    fs::rename(root.join("next"), root.join("current")).expect("the directory is ours");
    for _ in 0..4 {
        assert_eq!(server.get("/").expect(200).text(), "outer 2 inner 2 release 2");
    }
    fs::write(root.join("style.css"), "css 2").expect("the directory is ours");
    assert_eq!(server.get("/style.css").expect(200).text(), "css 2");
    fs::write(root.join("index.html"), "first").expect("the directory is ours");
    assert_eq!(server.get("/").expect(200).text(), "first", "it comes before index.php");
}

#[test]
fn what_the_project_says_of_opcache_holds() {
    let site = settled_site();
    let root = site.root().to_owned();
    let settings = "[site.app]\nroot = \".\"\n[pool.php.ini]\n\"opcache.validate_timestamps\" = \"0\"\n";
    fs::write(root.join("haulier.toml"), settings).expect("the directory is ours");
    let server = serve(site, &[]);
    assert_eq!(server.get("/").expect(200).text(), "outer 1 inner 1 release 1");
    fs::write(root.join("inner.php"), "<?php echo 'inner 2 ';").expect("the directory is ours");
    assert_eq!(server.get("/").expect(200).text(), "outer 1 inner 1 release 1");
}

#[test]
fn php_has_the_environment_of_the_shell_and_a_request_none_of_it() {
    let tell = "header('Content-Type: application/json'); echo json_encode([getenv('APP_ENV'), getenv('HOME'), \
        getenv('HAULIER_OWN'), $_SERVER['HTTP_PROXY'] ?? null, $_SERVER['HTTPS'] ?? null, getenv('LISTEN_FDS'), \
        $_SERVER['REMOTE_USER'] ?? null]);";
    let environment = [
        ("APP_ENV", "dev"),
        ("HOME", "/home/me"),
        ("HAULIER_OWN", "1"),
        ("HTTP_PROXY", "http://evil.example"),
        ("HTTPS", "on"),
        ("REMOTE_USER", "admin"),
        ("LISTEN_FDS", "0"),
    ];
    let server = serve(Site::new().php("tell.php", tell), &environment);
    assert_eq!(
        server.get("/tell.php").expect(200).text(),
        "[\"dev\",\"\\/home\\/me\",false,null,null,false,null]"
    );

    let site = Site::new()
        .php("tell.php", tell)
        .file("haulier.toml", "[site.app]\nroot = \".\"\n[pool.php]\nenv_copy = []\n");
    let server = serve(site, &environment);
    let told = server.get("/tell.php").expect(200).text();
    assert!(told.starts_with("[false,false,"), "the project's word holds: {told}");
}

#[test]
fn php_starts_when_the_first_script_appears_and_a_framework_is_recognised_when_it_is_there() {
    let site = Site::new();
    let root = site.root().to_owned();
    let server = serve(site, &[]);
    server.get("/").expect(200);
    assert!(server.php_workers().is_empty(), "there is nothing to run");
    fs::write(
        root.join("index.php"),
        "<?php echo 'front of ', $_SERVER['REQUEST_URI'];",
    )
    .expect("the directory is ours");
    wait_until("PHP to answer", || server.get("/").text() == "front of /");
    server.wait_for_line("has changed: PHP files in .");
    server.get("/products/7").expect(404);

    fs::create_dir_all(root.join("public")).expect("the directory is ours");
    fs::create_dir_all(root.join("src")).expect("the directory is ours");
    fs::write(root.join("src/Kernel.php"), "<?php").expect("the directory is ours");
    fs::rename(root.join("index.php"), root.join("public/index.php")).expect("the directory is ours");
    wait_until("the front controller", || {
        server.get("/products/7").text() == "front of /products/7"
    });
    server.wait_for_line("has changed: Symfony in ./public");

    // Another branch, for a while: what was recognised stays.
    fs::rename(root.join("public/index.php"), root.join("away")).expect("the directory is ours");
    server.get("/products/7").expect(500);
    fs::rename(root.join("away"), root.join("public/index.php")).expect("the directory is ours");
    assert_eq!(server.get("/products/7").expect(200).text(), "front of /products/7");
    let workers = server.php_workers();
    assert!(!workers.is_empty());
}

#[test]
fn what_the_project_says_it_is_it_stays() {
    let site = Site::new().file("haulier.toml", "[site.app]\nroot = \".\"\napp = \"static\"\n");
    let root = site.root().to_owned();
    let server = serve(site, &[]);
    fs::write(root.join("index.php"), "<?php echo 'front';").expect("the directory is ours");
    thread::sleep(Duration::from_secs(2));
    server.get("/index.php").expect(404);
}

#[test]
fn a_htaccess_is_mentioned_once_at_the_start() {
    let site = Site::new()
        .php("index.php", "echo 'x';")
        .file(".htaccess", "RewriteEngine On\nRewriteRule ^a$ /b\n");
    let server = serve(site, &[]);
    server.wait_for_line(".htaccess is not read (RewriteEngine, RewriteRule)");
    server.get("/").expect(200);
    let said = server.lines();
    assert_eq!(
        said.iter().filter(|line| line.contains("is not read")).count(),
        1,
        "{said:#?}"
    );
}

#[test]
fn a_script_that_stands_still_is_not_ended_and_the_terminal_says_that_it_runs() {
    // The usual limit is a minute, and so is the time until the line.
    let site = Site::new().php("still.php", "set_time_limit(0); sleep(63); echo 'went on';");
    let server = serve(site, &[]);
    let mut connection = server.connect();
    connection.send(Request::get("/still.php").to_bytes());
    assert!(connection.hears_something_within(Duration::from_secs(180)));
    let answer = connection.read_response("GET").expect("an answer");
    assert_eq!(answer.expect(200).text(), "went on");
    server.wait_for_line("slow request");
    let said = server.lines();
    let slow = said.iter().filter(|line| line.contains("slow request"));
    assert_eq!(slow.count(), 1, "once is enough: {said:#?}");
}

/// Answers with `version` and with what another file says, and knows how many requests there were.
fn booted(version: u32) -> String {
    format!(
        "<?php $said = require __DIR__ . '/../src/said.php'; $count = 0;
        while (frankenphp_handle_request(function () use ($said, &$count) {{ echo '{version} ', $said, ' ', ++$count; }}));"
    )
}

/// A project that is made to stay booted.
fn bootable() -> Site {
    let site = Site::new()
        .file("src/said.php", "<?php return 'first';")
        .file("composer.json", "{}");
    site.file("public/worker.php", booted(1))
}

#[test]
fn a_project_that_is_made_for_it_stays_booted_and_an_edit_boots_it_anew() {
    let site = bootable();
    let root = site.root().to_owned();
    let server = serve(site, &[]);
    let line = server.start_line().to_string();
    assert!(
        line.contains("public/worker.php stays booted") && line.contains("--no-worker"),
        "{line}"
    );
    let counts: Vec<String> = (0..6).map(|_| server.get("/some/page").expect(200).text()).collect();
    assert!(counts.iter().all(|said| said.starts_with("1 first ")), "{counts:?}");
    assert!(
        counts.iter().any(|said| said.ends_with(" 3")),
        "two workers remember: {counts:?}"
    );
    fs::write(root.join("src/said.php"), "<?php return 'second';").expect("the directory is ours");
    wait_until("the edit", || {
        server.get("/").expect(200).text().starts_with("1 second ")
    });

    // An edit that does not boot is named, and what ran before goes on.
    fs::write(root.join("src/said.php"), "<?php return 'third").expect("the directory is ours");
    server.wait_for_line("said.php is not served: the workers that run go on");
    server.wait_for_line("PHP Parse error");
    assert!(server.get("/").expect(200).text().starts_with("1 second "));
    fs::write(root.join("public/worker.php"), booted(2)).expect("the directory is ours");
    fs::write(root.join("src/said.php"), "<?php return 'third';").expect("the directory is ours");
    wait_until("both edits", || {
        server.get("/").expect(200).text().starts_with("2 third ")
    });
}

/// `haulier serve` for the project with these arguments.
#[track_caller]
fn serve_with(site: Site, arguments: &[&str]) -> Haulier {
    let mut command = Haulier::command();
    command
        .arg("serve")
        .arg(site.root())
        .args(["--listen", "127.0.0.1:0", "--workers", "1"])
        .args(arguments);
    Haulier::start(command, vec![Box::new(site)])
}

#[test]
fn worker_mode_is_switched_on_and_off_by_an_argument() {
    let tell = "echo $_SERVER['FRANKENPHP_WORKER'] ?? 'classic';";
    let site = || {
        Site::new().php("index.php", tell).php(
            "loop.php",
            &format!("while (frankenphp_handle_request(function () {{ {tell} }}));"),
        )
    };
    let server = serve_with(site(), &["--worker", "loop.php"]);
    assert_eq!(server.get("/loop.php").expect(200).text(), "1");
    assert_eq!(server.get("/index.php").expect(200).text(), "classic");
    let server = serve_with(bootable().php("public/index.php", tell), &["--no-worker"]);
    assert_eq!(server.get("/index.php").expect(200).text(), "classic");
    assert_eq!(server.start_line()["pools"].as_array().map(Vec::len), Some(1));

    let place = site();
    let mut command = Haulier::command();
    command.arg("serve").arg(place.root()).arg("--worker");
    let output = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && said.contains("is made to stay booted"),
        "{said}"
    );
}

/// A Symfony project whose runtime is that of `runtime/frankenphp-symfony`, with a stand-in for the runtime itself.
fn symfony() -> Site {
    let runtime = "<?php $class = $_SERVER['APP_RUNTIME'] ?? 'none';
        $handle = function () use ($class) { echo $class, ' ', $_SERVER['FRANKENPHP_WORKER'] ?? 'classic'; };
        isset($_SERVER['FRANKENPHP_WORKER']) || exit($handle());
        while (frankenphp_handle_request($handle));";
    let packages = r#"{"packages": [{"name": "runtime/frankenphp-symfony", "version": "0.2.0"}]}"#;
    Site::new()
        .file("composer.json", "{}")
        .file("vendor/composer/installed.json", packages)
        .file("vendor/autoload_runtime.php", runtime)
        .file("src/Kernel.php", "<?php")
        .php(
            "public/index.php",
            "require_once dirname(__DIR__) . '/vendor/autoload_runtime.php';",
        )
}

#[test]
fn the_runtime_that_symfony_needs_is_set_and_written_down() {
    let site = symfony();
    let configuration = site.root().join("haulier.toml");
    let server = serve_with(site, &["--write"]);
    let told = r"Runtime\FrankenPhpSymfony\Runtime 1";
    assert_eq!(server.get("/login").expect(200).text(), told);
    assert_eq!(server.get("/").expect(200).text(), told);
    let line = server.start_line().to_string();
    assert!(
        line.contains("public/index.php stays booted (runtime/frankenphp-symfony)"),
        "{line}"
    );
    let text = fs::read_to_string(&configuration).expect("it is written");
    assert!(
        text.contains("worker = \"public/index.php\"") && text.contains("APP_RUNTIME"),
        "{text}"
    );

    let site = symfony().file("haulier.toml", text);
    let server = serve_with(site, &[]);
    assert_eq!(server.get("/login").expect(200).text(), told, "as it was written");
    let server = serve_with(symfony(), &["--no-worker"]);
    assert_eq!(server.get("/login").expect(200).text(), "none classic");
}
