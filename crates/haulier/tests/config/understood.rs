//! Configurations that are right mean what they say.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::program::{folder, haulier, without_override};

fn check(files: &[(&str, &str)]) -> Value {
    let place = folder(files);
    let answer = haulier(place.path(), &["check", "--json"]);
    let mut said: Value = serde_json::from_str(&answer.stdout).expect("check --json is JSON");
    assert_eq!(said["errors"], 0, "{said:#}");
    assert_eq!(answer.code, Some(0));
    let here = place
        .path()
        .canonicalize()
        .expect("it is there")
        .to_string_lossy()
        .into_owned();
    for site in said["sites"].as_array_mut().into_iter().flatten() {
        if let Some(root) = site["root"].as_str() {
            site["root"] = json!(root.replace(&here, "$HERE"));
        }
    }
    said
}

const FREE_PORT: &str = "[server]\nhttp = \"127.0.0.1:0\"\n";

#[test]
fn a_root_is_enough() {
    let text = format!("{FREE_PORT}[site.a]\nroot = \".\"\n");
    let said = check(&[("haulier.toml", &text), ("index.html", "")]);
    assert_eq!(said["sites"][0]["app"], "static");
    assert_eq!(said["sites"][0]["hosts"], json!(["*"]));
    assert_eq!(said["sites"][0]["root"], "$HERE");
    assert_eq!(said["pools"], json!([]), "no PHP is started for files");
}

#[test]
fn a_site_with_php_gets_a_pool_of_its_own_accord() {
    let text = format!("{FREE_PORT}[site.a]\nroot = \".\"\n");
    let said = check(&[
        ("haulier.toml", &text),
        ("public/index.php", ""),
        ("src/Kernel.php", ""),
    ]);
    assert_eq!(said["sites"][0]["app"], "symfony");
    assert_eq!(said["sites"][0]["root"], "$HERE/public");
    assert_eq!(said["sites"][0]["front"], "/index.php");
    assert_eq!(said["sites"][0]["pool"], "php");
    assert!(said["pools"][0]["workers"].as_u64().is_some_and(|workers| workers >= 1));
}

#[test]
fn the_body_limit_is_phps_unless_something_nearer_is_said() {
    let text = format!(
        "{FREE_PORT}[pool.php.ini]\npost_max_size = \"3M\"\n[site.a]\nroot = \".\"\nhosts = [\"a.example\"]\n\
         [site.b]\nroot = \".\"\nhosts = [\"b.example\"]\n[site.b.limits]\nbody = \"1GiB\"\n"
    );
    let said = check(&[("haulier.toml", &text), ("index.php", "")]);
    assert_eq!(said["sites"][0]["body"], 3 << 20);
    assert_eq!(said["sites"][1]["body"], 1 << 30);
}

#[test]
fn what_scripts_may_have_sent_is_told_with_who_opens_it() {
    let text = format!(
        "{FREE_PORT}[site.a]\nroot = \".\"\napp = \"plain\"\nhosts = [\"a.example\"]\n[site.a.sendfile]\n\
         roots = [\"files\"]\nmap = {{ \"/protected/\" = \"media\" }}\n[site.b]\nroot = \".\"\napp = \"plain\"\n\
         hosts = [\"b.example\"]\n[site.b.sendfile]\nroots = []\n"
    );
    let files = [
        ("haulier.toml", text.as_str()),
        ("index.php", ""),
        ("files/a", ""),
        ("media/b", ""),
    ];
    let place = folder(&files);
    let answer = haulier(place.path(), &["check"]);
    let line = answer
        .stdout
        .lines()
        .find(|line| line.starts_with("scripts of a may have files sent"));
    let line = line.expect(&answer.stdout);
    let places = line.split(';').next().expect("the first part");
    assert!(
        places.contains("/files, as /protected/ from ") && places.ends_with("/media"),
        "{line}"
    );
    let by_root = rustix::process::geteuid().is_root() && answer.stdout.contains(" as www-data");
    assert_eq!(
        line.ends_with("opened as root, also those that www-data may not read"),
        by_root,
        "{line}"
    );
    assert!(!answer.stdout.contains("scripts of b"), "{}", answer.stdout);
    let said = check(&files);
    assert_eq!(said["sites"][0]["sendfile"]["roots"].as_array().map(Vec::len), Some(1));
    assert_eq!(said["sites"][1]["sendfile"], json!({"roots": [], "map": {}}));
}

#[test]
fn sites_may_live_in_files_of_their_own() {
    let text = format!("include = [\"sites/*.toml\"]\n{FREE_PORT}");
    let said = check(&[
        ("haulier.toml", &text),
        ("sites/b.toml", "[site.b]\nroot = \"../b\"\nhosts = [\"b.example\"]\n"),
        ("sites/a.toml", "[site.a]\nroot = \"../a\"\nhosts = [\"a.example\"]\n"),
        ("sites/.hidden.toml", "not toml"),
        ("a/index.html", ""),
        ("b/index.html", ""),
    ]);
    let roots: Vec<&Value> = said["sites"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|site| &site["root"])
        .collect();
    assert_eq!(roots, ["$HERE/a", "$HERE/b"], "relative to the file that says it");
}

#[test]
fn an_external_pool_needs_no_php_here() {
    let text = format!(
        "{FREE_PORT}[pool.web]\nservers = [\"unix:/run/nowhere.sock\", \"127.0.0.1:9000\"]\nconnections = 10\n\
         remote_root = \"/var/www\"\nenv = {{ APP_ENV = \"prod\" }}\n[site.a]\nroot = \".\"\napp = \"front\"\n"
    );
    let said = check(&[("haulier.toml", &text), ("index.php", "")]);
    assert_eq!(
        said["pools"],
        json!([{"name": "web", "workers": 20, "php": null, "run": null, "remark": null}])
    );
    assert_eq!(said["sites"][0]["front"], "/index.php");
}

#[test]
fn root_without_another_account_is_a_warning_that_can_be_lifted() {
    let warns = |user: &str| {
        let text = format!("{FREE_PORT}{user}[site.a]\nroot = \".\"\n");
        let said = check(&[("haulier.toml", &text), ("index.html", "")]);
        let findings = said["findings"].as_array().cloned().unwrap_or_default();
        findings.iter().any(|finding| finding["code"] == "server::user")
    };
    assert_eq!(warns(""), rustix::process::geteuid().is_root());
    if rustix::process::geteuid().is_root() {
        assert!(!warns("user = \"nobody\"\n") && !warns("user = \"root\"\n"));
    }
}

#[test]
fn tls_that_is_asked_for_and_turned_off_is_a_warning() {
    let text = "[server]\nhttp = \"127.0.0.1:0\"\nhttps = [\"127.0.0.1:0\"]\n[tls]\nmode = \"off\"\ncert = \"chain.pem\"\n\
                [site.a]\nroot = \".\"\nhosts = [\"a.example\"]\n[site.a.tls]\nmode = \"off\"\ncert = \"own.pem\"\n";
    let said = check(&[("haulier.toml", text), ("index.html", "")]);
    let findings = said["findings"].as_array().expect("a list");
    let mut lines: Vec<_> = findings
        .iter()
        .filter(|finding| finding["code"] == "tls::mode")
        .map(|finding| finding["line"].as_u64())
        .collect();
    lines.sort();
    assert_eq!(lines, [Some(3), Some(6), Some(12)], "{said:#}");
}

#[test]
fn a_pool_nobody_uses_is_a_warning() {
    let text = format!("{FREE_PORT}[pool.lonely]\n[site.a]\nroot = \".\"\n");
    let said = check(&[("haulier.toml", &text), ("index.html", "")]);
    let findings = said["findings"].as_array().expect("a list");
    let pools: Vec<_> = findings
        .iter()
        .filter(|finding| finding["code"] == "config::pool")
        .map(|finding| (finding["message"].as_str(), finding["line"].as_u64()))
        .collect();
    assert_eq!(pools, [(Some("pool `lonely` is used by no site"), Some(3))]);
}

#[test]
fn what_only_root_can_give_php_is_refused_where_haulier_leaves_root() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can become another account");
        return;
    }
    let text = format!(
        "{FREE_PORT}user = \"www-data\"\n[pool.php]\ngroup = \"root\"\nnice = -5\nrlimits = {{ files = 1_000_000_000 }}\n\
         [site.a]\nroot = \".\"\napp = \"plain\"\n"
    );
    let place = folder(&[("haulier.toml", &text), ("index.php", "")]);
    let answer = haulier(place.path(), &["check", "--json"]);
    let said: Value = serde_json::from_str(&answer.stdout).expect("check --json is JSON");
    let errors: Vec<&str> = said["findings"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|finding| finding["severity"] == "error")
        .filter_map(|finding| finding["message"].as_str())
        .collect();
    assert_eq!(
        errors,
        [
            "`group` of pool `php` without `user`",
            "`nice` of pool `php` needs root",
            "`files` of `rlimits` is more than haulier has itself"
        ],
        "{said:#}"
    );
}

#[test]
fn a_page_for_everything_starts_no_php() {
    let text = format!("{FREE_PORT}[site.a]\nroot = \".\"\nfront = \"/index.html\"\n");
    let said = check(&[("haulier.toml", &text), ("index.html", "")]);
    assert_eq!(said["sites"][0]["front"], "/index.html");
    assert_eq!((&said["sites"][0]["pool"], &said["pools"]), (&Value::Null, &json!([])));
    let said = check(&[("haulier.toml", &text), ("index.html", ""), ("api.php", "")]);
    assert_eq!(said["sites"][0]["pool"], "php", "scripts beside it run as ever");
}

#[test]
fn a_htaccess_with_rules_is_mentioned() {
    let text = format!("{FREE_PORT}[site.a]\nroot = \".\"\n");
    let files = [
        ("haulier.toml", text.as_str()),
        ("index.html", ""),
        (".htaccess", "Redirect /a /b\n"),
    ];
    let place = folder(&files);
    let answer = haulier(place.path(), &["check"]);
    assert!(
        answer.stdout.contains("/.htaccess is not read (Redirect): "),
        "{}",
        answer.stdout
    );
    assert!(answer.stdout.contains("docs/from-apache.md"), "{}", answer.stdout);
    assert_eq!(
        check(&files)["warnings"],
        check(&files[..2])["warnings"],
        "it is no mistake"
    );
}

#[test]
fn a_folder_that_cannot_be_read_is_no_folder_without_php() {
    let text = format!("{FREE_PORT}[site.a]\nroot = \"project\"\n");
    let place = folder(&[
        ("haulier.toml", &text),
        ("project/a.html", ""),
        ("project/closed/index.php", ""),
    ]);
    let close = |path: &str, mode| {
        let path = place.path().join(path);
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
    };
    close("project/closed", 0o000);
    let answer = without_override(place.path(), &["check"]);
    let inside = format!("{}/project/closed cannot be read by `", place.path().display());
    assert!(
        answer.stdout.contains("warning[site::root]") && answer.stdout.contains(&inside),
        "{}",
        answer.stdout
    );
    close("project", 0o000);
    let answer = without_override(place.path(), &["check"]);
    let project = format!(
        "error[site::root]: {}/project cannot be read by `",
        place.path().display()
    );
    assert!(
        answer.stdout.contains(&project) && answer.stdout.contains("setfacl -m u:"),
        "{}",
        answer.stdout
    );
    assert_eq!(answer.code, Some(2), "{}", answer.stdout);
    let served = without_override(place.path(), &["serve", "project", "--listen", "127.0.0.1:0"]);
    assert!(
        served.stderr.contains("project cannot be read by `"),
        "{}",
        served.stderr
    );
    assert_eq!(served.code, Some(2));
    close("project", 0o755);
    close("project/closed", 0o755);
}

#[test]
fn a_site_of_images_alone_is_called_so() {
    let text = format!("{FREE_PORT}[site.a]\nimages = {{ store = \"pictures\" }}\n");
    let files = [("haulier.toml", text.as_str()), ("pictures/x", "")];
    let answer = haulier(folder(&files).path(), &["check"]);
    assert!(answer.stdout.contains("site a: Images in "), "{}", answer.stdout);
    assert!(!answer.stdout.contains("Static files"), "{}", answer.stdout);
    let site = &check(&files)["sites"][0];
    assert_eq!(site["root"], json!(null));
    assert!(
        site["images"].as_str().is_some_and(|store| store.ends_with("pictures")),
        "{site}"
    );
}
