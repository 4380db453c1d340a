//! `haulier config`: what holds, where it came from, and that it is a configuration again.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::program::{Answer, folder, haulier};

/// A configuration in two files that uses every kind of value and every way to write a table.
const MAIN: &str = r#"include = ["sites/*.toml"]

[server]
http = ["127.0.0.1:0", "[::1]:0"]
trusted_proxies = [
  "10.0.0.0/8",  # the inner ones
  "::1",
]
[log]
file = "access.log"
[pool.php]
workers = 0x2
recycle = { age = "1h", requests = 500 }
[pool.php.ini]
memory_limit = "64M"
"opcache.enable" = true
[pool.php.env]
SECRET = "${HAULIER_SECRET:-${}}"
[pool.fpm]
servers = ["unix:/run/nowhere.sock"]
env = { "A B" = "1" }
[site.a]
root = "a"
hosts = ["a.example"]
pool = "php"
log = { access = "errors" }
"#;

const INCLUDED: &str = r#"[site.b]
root = "../b"
pool = "fpm"
hosts = ["b.example"]
limits.body = "1GiB"
[site.b.cache]
"/build/*" = "1y immutable"
[site.b.sendfile]
roots = ["../b"]
[site.b.headers]
X-Frame-Options = "SAMEORIGIN"
[site.b.maintenance]
file = "../closed"
[[site.b.route]]
path = "/w/*"
root = "../a"
rate = "5/m burst 10"
[[site.b.route]]
path = "/w/open/*"
basic_auth = "off"
"#;

fn project() -> tempfile::TempDir {
    folder(&[
        ("haulier.toml", &MAIN.replace("-${}}", "-word}")),
        ("sites/b.toml", INCLUDED),
        ("a/index.php", ""),
        ("b/index.php", ""),
    ])
}

fn ask(place: &Path, arguments: &[&str]) -> Answer {
    let answer = haulier(place, arguments);
    assert_eq!(
        answer.code,
        Some(0),
        "{arguments:?}: {}{}",
        answer.stdout,
        answer.stderr
    );
    answer
}

/// All values, without where they came from.
fn values(json: &Value) -> Value {
    match json {
        Value::Object(entries) if entries.len() == 2 && entries.contains_key("from") => entries["value"].clone(),
        Value::Object(entries) => entries
            .iter()
            .map(|(name, value)| (name.clone(), values(value)))
            .collect(),
        Value::Array(list) => list.iter().map(values).collect(),
        other => other.clone(),
    }
}

fn json(place: &Path, arguments: &[&str]) -> Value {
    let answer = ask(place, arguments);
    serde_json::from_str(&answer.stdout).expect("--json is JSON")
}

#[test]
fn what_it_prints_is_a_clean_configuration_that_means_the_same() {
    let place = project();
    let printed = ask(place.path(), &["config"]).stdout;
    let elsewhere = folder(&[("printed.toml", &printed)]);
    let said: Value = json(elsewhere.path(), &["check", "--json", "-c", "printed.toml"]);
    // What root serves, and which port another server has, is not about the file.
    let of_the_machine = ["server::user", "bind"];
    let findings = said["findings"].as_array().expect("a list");
    let is_clean = |finding: &Value| of_the_machine.iter().any(|code| finding["code"] == *code);
    assert!(findings.iter().all(is_clean), "{said:#}\n{printed}");
    let before = values(&json(place.path(), &["config", "--json"]));
    let after = values(&json(elsewhere.path(), &["config", "--json", "-c", "printed.toml"]));
    assert_eq!(before, after);
    let again = ask(elsewhere.path(), &["config", "-c", "printed.toml"]).stdout;
    let without_origin = |text: &str| -> Vec<String> {
        let lines = text
            .lines()
            .map(|line| line.rsplit_once("  # ").map_or(line, |(setting, _)| setting));
        lines.map(|line| line.trim_end().to_owned()).collect()
    };
    assert_eq!(without_origin(&printed), without_origin(&again));
}

#[test]
fn every_value_says_where_it_came_from() {
    let place = project();
    let said = json(place.path(), &["config", "--json"]);
    let from = |pointer: &str| said.pointer(&format!("{pointer}/from")).cloned().unwrap_or_default();
    let value = |pointer: &str| said.pointer(&format!("{pointer}/value")).cloned().unwrap_or_default();
    assert_eq!(from("/server/http"), "haulier.toml:4");
    assert_eq!(from("/server/trusted_proxies"), "haulier.toml:5");
    assert_eq!(from("/server/grace"), "default");
    assert_eq!(from("/server/threads"), "found here");
    assert_eq!(
        (value("/pool/php/workers"), from("/pool/php/workers")),
        (2.into(), "haulier.toml:12".into())
    );
    assert_eq!(from("/pool/php/ini/opcache.enable"), "haulier.toml:16");
    assert_eq!(from("/site/b/root"), "sites/b.toml:2");
    assert_eq!(
        (value("/site/b/limits/body"), from("/site/b/limits/body")),
        ("1GiB".into(), "sites/b.toml:5".into())
    );
    assert_eq!(from("/site/b/cache/~1build~1*"), "sites/b.toml:7");
    assert_eq!(value("/site/a/app"), "plain");
    assert_eq!(said.pointer("/pool/fpm/workers"), None, "it is nobody's default there");
    assert_eq!(said.pointer("/pool/php/servers"), None);
    let root = value("/site/b/root");
    let root = Path::new(root.as_str().expect("text"));
    assert!(root.is_absolute(), "paths hold anywhere");
    let real = |path: &Path| path.canonicalize().expect("it is there");
    assert_eq!(real(root), real(&place.path().join("b")));
}

#[test]
fn secrets_stay_where_they_are() {
    let place = project();
    let printed = crate::program::command(place.path())
        .args(["config"])
        .env("HAULIER_SECRET", "hunter2")
        .output()
        .expect("the program starts");
    let printed = String::from_utf8(printed.stdout).expect("text");
    assert!(printed.contains("SECRET = \"${HAULIER_SECRET:-word}\""), "{printed}");
    assert!(!printed.contains("hunter2"), "{printed}");
}

#[test]
fn a_pool_nobody_wrote_is_shown_with_its_defaults() {
    let place = folder(&[("haulier.toml", "[site.a]\nroot = \".\"\n"), ("index.php", "")]);
    let said = json(place.path(), &["config", "--json"]);
    assert_eq!(said["pool"]["php"]["workers"]["from"], "found here");
    assert_eq!(said["site"]["a"]["pool"]["value"], "php");
}

#[test]
fn mistakes_are_explained_as_by_check() {
    let place = folder(&[
        ("haulier.toml", "[server]\ngrace = 30\n[site.a]\nroot = \".\"\n"),
        ("index.html", ""),
    ]);
    let answer = haulier(place.path(), &["config"]);
    assert_eq!((answer.code, answer.stdout.as_str()), (Some(2), ""));
    assert!(answer.stderr.contains("error[config::unit]"), "{}", answer.stderr);
}

/// `site.NAME.limits` → `body`, as the schema and the reference page name them.
type Names = BTreeSet<(String, String)>;

fn names_of_schema(schema: &Value, table: &str, names: &mut Names) {
    let mut below = |name: &str, schema: &Value| {
        let table = if table.is_empty() {
            name.to_owned()
        } else {
            format!("{table}.{name}")
        };
        names_of_schema(schema, &table, names);
    };
    let Some(properties) = schema["properties"].as_object() else {
        return;
    };
    for (name, property) in properties {
        let forms = property["anyOf"]
            .as_array()
            .cloned()
            .unwrap_or_else(|| vec![property.clone()]);
        for form in &forms {
            if form["additionalProperties"]["properties"].is_object() {
                below(&format!("{name}.NAME"), &form["additionalProperties"]);
            }
            let table = if form["items"].is_object() {
                &form["items"]
            } else {
                form
            };
            below(name, table);
        }
    }
    if !table.is_empty() {
        names.extend(properties.keys().map(|name| (table.to_owned(), name.clone())));
    }
}

#[test]
fn the_schema_knows_the_settings_of_the_reference_and_no_others() {
    let schema: Value = json(Path::new("/"), &["config", "--schema"]);
    let mut of_schema = Names::new();
    names_of_schema(&schema, "", &mut of_schema);
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/config.md");
    let page = fs::read_to_string(page).expect("the page is there");
    let (_, reference) = page.split_once("<!-- reference -->").expect("the reference begins");
    let mut of_page = Names::new();
    let mut table = String::new();
    for line in reference.lines() {
        if let Some(header) = line.strip_prefix("### `[") {
            table = header.trim_matches(['[', ']', '`']).to_owned();
        } else if let Some((name, _)) = line.strip_prefix("| `").and_then(|rest| rest.split_once('`')) {
            of_page.insert((table.clone(), name.to_owned()));
        }
    }
    assert!(of_page.len() > 50, "{of_page:?}");
    assert_eq!(of_schema, of_page);
}

#[test]
fn completions_are_scripts_of_their_shells() {
    for (shell, begins) in [("bash", "_haulier()"), ("zsh", "#compdef haulier"), ("fish", "")] {
        let script = ask(Path::new("/"), &["completions", shell]).stdout;
        assert!(
            script.starts_with(begins) && script.contains("haulier"),
            "{shell}: {script}"
        );
    }
    let answer = haulier(Path::new("/"), &["completions", "cmd.exe"]);
    assert_eq!(answer.code, Some(2));
}

#[test]
fn check_live_calls_the_servers_and_starts_php() {
    let socket = tempfile::tempdir().expect("a temporary folder");
    let web = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = web.local_addr().expect("bound");
    // Something that speaks HTTP.
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = web.accept().expect("a caller");
        std::io::Read::read(&mut stream, &mut [0; 64]).expect("its question");
        std::io::Write::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n").expect("it listens");
    });
    let text = format!(
        "[server]\nhttp = \"127.0.0.1:0\"\n[pool.php]\nworkers = 1\n[pool.gone]\nservers = [\"unix:{}/gone.sock\"]\n\
         [pool.web]\nservers = [\"{address}\"]\n",
        socket.path().display()
    );
    let sites = ["php", "gone", "web"].map(|pool| {
        format!("[site.{pool}]\nroot = \".\"\napp = \"plain\"\nhosts = [\"{pool}.example\"]\npool = \"{pool}\"\n")
    });
    let place = folder(&[("haulier.toml", &(text + &sites.join(""))), ("index.php", "")]);
    let answer = haulier(place.path(), &["check", "--json"]);
    assert_eq!(
        answer.code,
        Some(0),
        "without --live nobody is called: {}",
        answer.stdout
    );
    let answer = haulier(place.path(), &["check", "--live"]);
    assert_eq!(answer.code, Some(2), "{}", answer.stdout);
    answering.join().expect("it was called");
    assert!(answer.stdout.contains("pool `gone`: unix:"), "{}", answer.stdout);
    assert!(answer.stdout.contains("is php-fpm running"), "{}", answer.stdout);
    assert!(
        answer.stdout.contains("its answer is no FastCGI record"),
        "{}",
        answer.stdout
    );
    assert!(!answer.stdout.contains("pool `php`"), "{}", answer.stdout);
}

#[test]
fn what_cannot_be_written_or_bound_is_said_before_the_start() {
    let place = folder(&[("index.html", ""), ("plain-file", "")]);
    let here = place.path().display();
    let text = format!(
        "[server]\nhttp = [\"127.0.0.1:0\", \"unix:{here}/plain-file\", \"unix:{here}/no/x.sock\"]\n\
         spool_dir = \"/proc\"\n[site.a]\nroot = \".\"\n"
    );
    fs::write(place.path().join("haulier.toml"), text).expect("the folder is ours");
    let answer = haulier(place.path(), &["check"]);
    assert_eq!(answer.code, Some(2));
    for expected in ["a file that is no socket is in the way", "there is no such directory"] {
        assert!(answer.stdout.contains(expected), "{expected}: {}", answer.stdout);
    }
}
