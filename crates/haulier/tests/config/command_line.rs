//! Arguments, answers and exit codes.

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use crate::program::{command, folder, haulier};

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn alone_it_lists_its_commands_and_fails() {
    let answer = haulier(here(), &[]);
    assert_eq!(answer.code, Some(2));
    for command in ["serve", "run", "check", "get"] {
        assert!(answer.stderr.contains(&format!("\n  {command} ")), "{}", answer.stderr);
    }
}

#[test]
fn help_goes_to_standard_output() {
    let answer = haulier(here(), &["--help"]);
    assert_eq!((answer.code, answer.stderr.as_str()), (Some(0), ""));
    assert!(answer.stdout.contains("Serve a project without configuration"));
    let answer = haulier(here(), &["serve", "--help"]);
    for flag in [
        "--listen",
        "--public",
        "--workers",
        "--php",
        "--app",
        "--root",
        "--open",
        "--write",
        "--quiet",
    ] {
        assert!(answer.stdout.contains(flag), "{flag} is missing:\n{}", answer.stdout);
    }
}

#[test]
fn the_version_is_one_line_with_the_features() {
    let answer = haulier(here(), &["--version"]);
    assert_eq!(answer.code, Some(0));
    assert_eq!(answer.stdout.lines().count(), 1);
    assert!(
        answer
            .stdout
            .starts_with(concat!("haulier ", env!("CARGO_PKG_VERSION"))),
        "{}",
        answer.stdout
    );
    assert_eq!(answer.stdout.contains("+mimalloc"), cfg!(feature = "mimalloc"));
}

#[test]
fn wrong_arguments_are_wrong_usage() {
    let wrong: [&[&str]; 6] = [
        &["sevre"],
        &["serve", "--listen", "8080"],
        &["serve", "--workers", "0"],
        &["serve", "--workers", "many"],
        &["run", "--app", "plain"],
        &["-q", "-v", "check"],
    ];
    for arguments in wrong {
        let answer = haulier(here(), arguments);
        assert_eq!(answer.code, Some(2), "{arguments:?}");
        assert!(answer.stderr.starts_with("error:"), "{arguments:?}: {}", answer.stderr);
    }
}

#[test]
fn without_a_configuration_run_says_where_it_looked() {
    let empty = folder(&[]);
    let answer = haulier(empty.path(), &["run", "-c", "nowhere.toml"]);
    assert_eq!(answer.code, Some(2));
    assert!(
        answer.stderr.contains("cannot read nowhere.toml: No such file"),
        "{}",
        answer.stderr
    );
    if !Path::new("/etc/haulier/haulier.toml").exists() {
        let answer = haulier(empty.path(), &["run"]);
        assert_eq!(answer.code, Some(2));
        assert!(
            answer
                .stderr
                .contains("looked for ./haulier.toml and /etc/haulier/haulier.toml"),
            "{}",
            answer.stderr
        );
    }
}

#[test]
fn run_prints_what_is_wrong_and_starts_nothing() {
    let place = folder(&[
        ("haulier.toml", "[server]\ngrace = 30\n[site.a]\nroot = \".\"\n"),
        ("index.html", ""),
    ]);
    let answer = haulier(place.path(), &["run"]);
    assert_eq!((answer.code, answer.stdout.as_str()), (Some(2), ""));
    assert!(
        answer.stderr.contains("error[config::unit]: `grace` needs a unit"),
        "{}",
        answer.stderr
    );
    assert!(answer.stderr.ends_with("haulier.toml: 1 error\n"), "{}", answer.stderr);
}

#[test]
fn colours_come_only_when_asked_for() {
    let place = folder(&[("haulier.toml", "[server]\ngrace = 30\n")]);
    let plain = haulier(place.path(), &["check"]);
    assert!(!plain.stdout.contains('\x1b'), "standard output is no terminal here");
    let colored = haulier(place.path(), &["check", "--color", "always"]);
    assert!(colored.stdout.contains('\x1b'));
    let refused = command(place.path())
        .args(["check"])
        .env("NO_COLOR", "1")
        .output()
        .expect("the program starts");
    assert!(!refused.stdout.contains(&0x1b));
}

#[test]
fn a_taken_port_names_its_holder() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound socket");
    let place = folder(&[("index.html", "")]);
    let answer = haulier(place.path(), &["serve", "--listen", &address.to_string()]);
    assert_eq!(answer.code, Some(1));
    let expected = format!("cannot listen on {address}: ");
    assert!(answer.stderr.contains(&expected), "{}", answer.stderr);
    assert!(
        answer
            .stderr
            .contains(&format!("(pid {}) listens there", std::process::id())),
        "{}",
        answer.stderr
    );
}

#[test]
fn check_tells_a_taken_port_as_well() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound socket");
    let text = format!("[server]\nhttp = \"{address}\"\n[site.a]\nroot = \".\"\n");
    let place = folder(&[("haulier.toml", &text), ("index.html", "")]);
    let answer = haulier(place.path(), &["check"]);
    assert_eq!(answer.code, Some(2));
    assert!(
        answer.stdout.contains("error[bind]: cannot listen on"),
        "{}",
        answer.stdout
    );
    assert!(answer.stdout.contains("\nhaulier.toml: 1 error"), "{}", answer.stdout);
}

#[test]
fn serve_refuses_what_is_no_directory() {
    let place = folder(&[("page.html", "")]);
    let answer = haulier(place.path(), &["serve", "page.html"]);
    assert_eq!(answer.code, Some(2));
    assert!(answer.stderr.contains("page.html is a file"), "{}", answer.stderr);
    let answer = haulier(place.path(), &["serve", "nowhere"]);
    assert_eq!(answer.code, Some(2));
    let answer = haulier(place.path(), &["serve", "--root", "nowhere"]);
    assert_eq!(answer.code, Some(2));
    assert!(answer.stderr.contains("nowhere is no directory"), "{}", answer.stderr);
}

#[test]
fn serve_names_the_applications_it_knows() {
    let place = folder(&[("index.php", "")]);
    let answer = haulier(place.path(), &["serve", "--app", "wordpres"]);
    assert_eq!(answer.code, Some(2));
    assert!(
        answer.stderr.contains("no application is called \"wordpres\""),
        "{}",
        answer.stderr
    );
    assert!(
        answer.stderr.contains("known: auto, laravel, symfony"),
        "{}",
        answer.stderr
    );
}

#[test]
fn serve_never_overwrites_a_configuration_and_starts_with_it() {
    let place = folder(&[("haulier.toml", "[site.a]\nroot = \".\"\n"), ("index.html", "")]);
    // This machine has no such address: what is written is written before.
    let answer = haulier(place.path(), &["serve", "--write", "--listen", "203.0.113.1:9"]);
    assert_eq!(answer.code, Some(1), "{}", answer.stderr);
    let kept = fs::read_to_string(place.path().join("haulier.toml")).expect("still there");
    assert_eq!(kept, "[site.a]\nroot = \".\"\n");
}

#[test]
fn a_folder_with_php_and_no_php_cgi_says_what_to_install() {
    let place = folder(&[("index.php", "")]);
    let answer = haulier(place.path(), &["serve", "--php", "/no/such/php-cgi"]);
    assert_eq!(answer.code, Some(2));
    assert!(
        answer.stderr.contains("/no/such/php-cgi is no php-cgi: No such file"),
        "{}",
        answer.stderr
    );
}

#[test]
fn what_serve_writes_reproduces_what_it_found() {
    let place = folder(&[("web/index.php", ""), ("readme.txt", "")]);
    let arguments = [
        "serve",
        "--root",
        "web",
        "--app",
        "front",
        "--workers",
        "2",
        "--write",
        "--listen",
        "203.0.113.1:9",
    ];
    let answer = haulier(place.path(), &arguments);
    assert_eq!(
        answer.code,
        Some(1),
        "this machine has no such address: {}",
        answer.stderr
    );
    let written = fs::read_to_string(place.path().join("haulier.toml")).expect("it was written");
    assert_eq!(
        written,
        "[pool.php]\nworkers = 2\n\n[site.app]\nroot = \"web\"\napp = \"front\"\n"
    );
    let answer = haulier(place.path(), &["check", "--json"]);
    let said: serde_json::Value = serde_json::from_str(&answer.stdout).expect("check --json is JSON");
    assert_eq!(said["sites"][0]["front"], "/index.php");
    assert!(
        said["sites"][0]["root"]
            .as_str()
            .is_some_and(|root| root.ends_with("/web")),
        "{said}"
    );
}
