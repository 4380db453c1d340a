//! MediaWiki with SQLite, as Debian packages it: the API with its tokens, PATH_INFO, resource bundles.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::support::browser::Browser;
use super::support::client::{Request, Response};
use super::support::php_fpm::Socket;
use super::support::site::{Php, Site};
use super::support::{require, run, wait_until};

const PROGRAM: &str = "/usr/share/mediawiki";
const PASSWORD: &str = "horse-battery-9";

/// Installs a wiki with its database into a directory of the test; the program itself is served where it lies.
fn wiki(php: Php) -> Site {
    require("mediawiki", format!("{PROGRAM}/maintenance/install.php"));
    let site = Site::new();
    let state = site.writable("state");
    install(&state);
    let settings = state.join("LocalSettings.php");
    site.at(PROGRAM)
        .run_by(php)
        .config(&format!("[pool.php.env]\nMW_CONFIG_FILE = {settings:?}"))
}

fn install(state: &Path) {
    let data = state.join("data");
    fs::create_dir(&data).expect("the directory is ours");
    let flags = [
        "--dbtype=sqlite",
        "--dbname=wiki",
        "--server=http://127.0.0.1",
        "--scriptpath=",
        "--skins=Vector",
        &format!("--pass={PASSWORD}"),
        &format!("--dbpath={}", data.display()),
        &format!("--confpath={}", state.display()),
    ];
    let script = format!("{PROGRAM}/maintenance/install.php");
    run(Command::new("php").arg(script).args(flags).args(["Test Wiki", "Admin"]));
    let settings = state.join("LocalSettings.php");
    let mut text = fs::read_to_string(&settings).expect("written by the installer");
    // The port is chosen later; and no request shall start a second one in the background.
    let _ = write!(
        text,
        "\n$wgServer = WebRequest::detectServer();\n$wgJobRunRate = 0;\n$wgShowExceptionDetails = true;\n"
    );
    fs::write(&settings, text).expect("the directory is ours");
    run(Command::new("chmod").arg("-R").arg("a+rwX").arg(state));
}

fn json(response: Response) -> Value {
    let text = response.expect(200).text();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn token(browser: &mut Browser, kind: &str) -> String {
    let answer = json(browser.get(&format!("/api.php?action=query&meta=tokens&type={kind}&format=json")));
    answer["query"]["tokens"][format!("{kind}token")]
        .as_str()
        .expect("a token")
        .to_owned()
}

fn visit(php: Php) {
    let server = wiki(php).start();
    let mut browser = Browser::new(server.address());

    let front = browser.get("/index.php/Main_Page").expect(200).text();
    assert!(front.contains("MediaWiki has been installed"), "{front}");

    let login_token = token(&mut browser, "login");
    let login = [
        ("action", "login"),
        ("format", "json"),
        ("lgname", "Admin"),
        ("lgpassword", PASSWORD),
        ("lgtoken", &login_token),
    ];
    let answer = json(browser.submit("/api.php", &login));
    assert_eq!(answer["login"]["result"], "Success", "{answer}");

    let edit_token = token(&mut browser, "csrf");
    let text = "== Boats ==\nThe ''Zoë'' & the ''Ærø'' are in.\n".repeat(2000);
    let edit = [
        ("action", "edit"),
        ("format", "json"),
        ("title", "Harbour/Boats & crew"),
        ("text", &text),
        ("token", &edit_token),
    ];
    let answer = json(browser.submit("/api.php", &edit));
    assert_eq!(answer["edit"]["result"], "Success", "{answer}");

    let page = browser.get("/index.php/Harbour/Boats_%26_crew").expect(200).text();
    assert!(page.contains("<i>Zoë</i> &amp; the <i>Ærø</i>"), "{page}");
    let raw = browser
        .get("/index.php?title=Harbour/Boats_%26_crew&action=raw")
        .expect(200);
    assert_eq!(raw.text(), text.trim_end());
    browser.get("/index.php/No_such_page").expect(404);
    resources(&mut browser);
    browser.get("/LocalSettings.php").expect(404);
}

fn resources(browser: &mut Browser) {
    let target = "/load.php?lang=en&modules=skins.vector.styles.legacy&only=styles&skin=vector";
    let bundle = browser.get(target).expect(200);
    assert!(
        bundle
            .field("Content-Type")
            .is_some_and(|kind| kind.starts_with("text/css"))
    );
    assert!(bundle.body.len() > 5_000, "{} bytes", bundle.body.len());
    // After its answer MediaWiki notes which files the bundle depends on, and that changes the tag.
    wait_until("a bundle whose tag stays", || {
        let bundle = browser.get(target).expect(200);
        let etag = bundle.field("ETag").expect("load.php sends one").to_owned();
        let again = browser.ask(Request::get(target).with("If-None-Match", &etag));
        again.status() == 304
    });
    let logo = browser.get("/resources/assets/change-your-logo.svg").expect(200);
    assert!(
        logo.field("Content-Type")
            .is_some_and(|kind| kind.starts_with("image/svg+xml"))
    );
}

#[test]
fn mediawiki_works_with_php_cgi() {
    visit(Php::Cgi);
}

#[test]
fn mediawiki_works_with_workers_of_our_own() {
    visit(Php::Embedded);
}

#[test]
fn mediawiki_works_with_php_fpm() {
    visit(Php::Fpm(Socket::Tcp));
}

#[test]
fn mediawiki_has_its_pages_under_wiki() {
    let site = wiki(Php::Cgi);
    let settings = site.writable("state").join("LocalSettings.php");
    let mut text = fs::read_to_string(&settings).expect("written by the installer");
    text.push_str("\n$wgArticlePath = '/wiki/$1';\n");
    fs::write(&settings, text).expect("the directory is ours");
    let server = site
        .app("mediawiki")
        .config("[site.test.rewrites]\n\"/wiki/*\" = \"/index.php\"\n[site.test.redirects]\n\"/\" = \"302 /wiki/Main_Page\"\n")
        .start();
    let mut browser = Browser::new(server.address());
    let front = browser.get("/").expect(200).text();
    assert!(front.contains("MediaWiki has been installed"), "{front}");
    assert!(front.contains("href=\"/wiki/Special:RecentChanges\""), "{front}");
    let special = browser.get("/wiki/Special:Version").expect(200).text();
    assert!(special.contains("MediaWiki"), "{special}");
    browser.get("/wiki/No_such/page_%26_more?action=raw").expect(404);
    let edit = browser.get("/wiki/Harbour/Boats_%26_crew").expect(404).text();
    assert!(edit.contains("Harbour/Boats &amp; crew"), "{edit}");
    resources(&mut browser);
    for path in [
        "/maintenance/install.php",
        "/includes/WebStart.php",
        "/LocalSettings.php",
        "/languages/Language.php",
    ] {
        browser.get(path).expect(404);
    }
}
