//! DokuWiki, as Debian packages it: sessions, forms with tokens, media with ranges, style sheets with validators.

use std::fs;
use std::path::Path;

use super::support::browser::{Browser, input_value};
use super::support::client::Request;
use super::support::php_fpm::Socket;
use super::support::site::{Php, Site};
use super::support::{copy_directory, require, wait_until};

/// MD5, the oldest kind of hash DokuWiki reads, of "horse battery".
const USER: &str = "anna:1180894762e4cc92dad5a90ed6f8ca9a:Anna Example:anna@wiki.example:admin,user\n";

/// A wiki of this test's own: program, configuration and pages are copies, so that /etc and /var stay as they are.
fn wiki(php: Php) -> Site {
    require("dokuwiki", "/usr/share/dokuwiki/doku.php");
    let site = Site::new();
    let beside = site.root().parent().expect("a directory of the test").to_owned();
    let (root, conf, data) = (beside.join("wiki"), beside.join("conf"), beside.join("data"));
    copy_directory("/usr/share/dokuwiki", &root);
    copy_directory("/etc/dokuwiki", &conf);
    copy_directory("/var/lib/dokuwiki/data", &data);
    configure(&root, &conf, &data);
    site.at(root).run_by(php)
}

fn configure(root: &Path, conf: &Path, data: &Path) {
    let preload = format!(
        "<?php\nif (!defined('DOKU_CONF')) define('DOKU_CONF', '{}/');\n",
        conf.display()
    );
    fs::write(root.join("inc/preload.php"), preload).expect("a copy of ours");
    let local = format!(
        "<?php\n$conf['savedir'] = '{}';\n$conf['title'] = 'Test Wiki';\n$conf['useacl'] = 1;\n\
         $conf['superuser'] = '@admin';\n$conf['updatecheck'] = 0;\n",
        data.display()
    );
    fs::write(conf.join("local.php"), local).expect("a copy of ours");
    fs::write(conf.join("users.auth.php"), format!("# <?php exit()?>\n{USER}")).expect("a copy of ours");
    fs::write(conf.join("acl.auth.php"), "# <?php exit()?>\n*\t@ALL\t1\n*\t@user\t8\n").expect("a copy of ours");
}

fn visit(php: Php) {
    let server = wiki(php).app("dokuwiki").start();
    let mut browser = Browser::new(server.address());

    let front = browser.get("/doku.php").expect(200);
    assert!(front.text().contains("Test Wiki"), "{}", front.text());
    assert!(
        !browser
            .get("/doku.php?id=harbour&do=edit")
            .text()
            .contains("name=\"wikitext\""),
        "strangers do not edit"
    );

    log_in(&mut browser);
    edit(
        &mut browser,
        "====== Harbour ======\nThe tide is //high// & the boats are in.",
    );
    edit(&mut browser, "====== Harbour ======\nThe tide is //low//.");
    let history = browser.get("/doku.php?id=harbour&do=revisions").expect(200);
    assert!(
        history.text().matches("name=\"rev2[]\"").count() >= 2,
        "{}",
        history.text()
    );

    media(&mut browser);
    style_sheet(&mut browser);
    for path in [
        "/inc/init.php",
        "/conf/users.auth.php",
        "/data/pages/harbour.txt",
        "/bin/wantedpages.php",
        "/.htaccess",
    ] {
        browser.get(path).expect(404);
    }
}

fn log_in(browser: &mut Browser) {
    let form = browser.get("/doku.php?id=start&do=login").expect(200).text();
    let token = input_value(&form, "sectok");
    let wrong = [
        ("id", "start"),
        ("do", "login"),
        ("sectok", &token),
        ("u", "anna"),
        ("p", "wrong"),
    ];
    assert!(
        !browser
            .submit("/doku.php?id=start", &wrong)
            .text()
            .contains("Anna Example")
    );
    let right = [
        ("id", "start"),
        ("do", "login"),
        ("sectok", &token),
        ("u", "anna"),
        ("p", "horse battery"),
    ];
    let page = browser.submit("/doku.php?id=start", &right).expect(200).text();
    assert!(page.contains("Anna Example"), "{page}");
}

fn edit(browser: &mut Browser, text: &str) {
    let form = browser.get("/doku.php?id=harbour&do=edit").expect(200).text();
    let values = [
        ("id", "harbour"),
        ("sectok", &input_value(&form, "sectok")),
        ("changecheck", &input_value(&form, "changecheck")),
        ("date", &input_value(&form, "date")),
        ("prefix", "."),
        ("suffix", ""),
        ("target", "section"),
        ("summary", "by the test"),
        ("wikitext", text),
        ("do[save]", "1"),
    ];
    let page = browser.submit("/doku.php?id=harbour", &values).expect(200).text();
    let word = if text.contains("high") {
        "<em>high</em> &amp; the boats"
    } else {
        "<em>low</em>"
    };
    assert!(page.contains(word), "{page}");
    let raw = browser.get("/doku.php?id=harbour&do=export_raw").expect(200).text();
    assert_eq!(raw.trim(), text);
}

fn media(browser: &mut Browser) {
    let target = "/lib/exe/fetch.php?media=wiki:dokuwiki-128.png";
    let whole = browser.get(target).expect(200);
    assert_eq!(whole.field("Content-Type"), Some("image/png"));
    assert!(whole.body.starts_with(b"\x89PNG"));
    let part = browser
        .ask(Request::get(target).with("Range", "bytes=100-299"))
        .expect(206);
    assert_eq!(part.body, whole.body[100..300]);
    assert_eq!(
        part.field("Content-Range"),
        Some(format!("bytes 100-299/{}", whole.body.len()).as_str())
    );
}

fn style_sheet(browser: &mut Browser) {
    let sheet = browser.get("/lib/exe/css.php?t=dokuwiki").expect(200);
    assert!(
        sheet
            .field("Content-Type")
            .is_some_and(|kind| kind.starts_with("text/css"))
    );
    assert!(sheet.body.len() > 50_000, "{} bytes of CSS", sheet.body.len());
    let mut etag = sheet.field("ETag").expect("DokuWiki sends one").to_owned();
    // What it made in the second its settings were written in it makes again, under another tag.
    wait_until("an unchanged style sheet", || {
        let answer = browser.ask(Request::get("/lib/exe/css.php?t=dokuwiki").with("If-None-Match", &etag));
        etag = answer.field("ETag").expect("DokuWiki sends one").to_owned();
        answer.status() == 304
    });
    let logo = browser.get("/lib/tpl/dokuwiki/images/logo.png").expect(200);
    assert_eq!(logo.field("Content-Type"), Some("image/png"));
}

#[test]
fn dokuwiki_works_with_php_cgi() {
    visit(Php::Cgi);
}

#[test]
fn dokuwiki_works_with_workers_of_our_own() {
    visit(Php::Embedded);
}

#[test]
fn dokuwiki_works_with_php_fpm() {
    visit(Php::Fpm(Socket::Unix));
}

/// `$conf['xsendfile']`: 1 is lighttpd's field, 2 Apache's, 3 nginx's, which names a path in the document root.
#[test]
fn dokuwiki_hands_media_over_in_each_of_its_three_ways() {
    for (setting, via) in [(1, "x-sendfile"), (2, "x-sendfile"), (3, "x-accel")] {
        let site = wiki(Php::Cgi).app("dokuwiki");
        let (root, conf) = (site.root().to_owned(), site.root().with_file_name("conf"));
        let data = site.root().with_file_name("data");
        let inside = root.join("data");
        fs::rename(&data, &inside).expect("a copy of ours");
        let local = conf.join("local.php");
        let written = fs::read_to_string(&local).expect("written above");
        let moved = written.replace(&data.display().to_string(), &inside.display().to_string());
        fs::write(&local, format!("{moved}$conf['xsendfile'] = {setting};\n")).expect("a copy of ours");
        let server = site.start();
        let target = "/lib/exe/fetch.php?media=wiki:dokuwiki-128.png";
        let expected = fs::read(inside.join("media/wiki/dokuwiki-128.png")).expect("DokuWiki brings it");
        let whole = server.get(target).expect(200);
        assert!(whole.body == expected, "xsendfile = {setting}");
        assert_eq!(whole.field("Content-Type"), Some("image/png"));
        let part = server
            .ask(&Request::get(target).with("Range", "bytes=100-299"))
            .expect(206);
        assert_eq!(part.body, expected[100..300]);
        let line = server.access_line_for("/lib/exe/fetch.php");
        assert_eq!(
            (line["handler"].as_str(), line["via"].as_str()),
            (Some("handed"), Some(via)),
            "{line}"
        );
        server.get("/data/media/wiki/dokuwiki-128.png").expect(404);
    }
}

#[test]
fn dokuwiki_works_under_a_sub_path() {
    let wiki = wiki(Php::Cgi);
    let root = wiki.root().to_owned();
    let outer = root.parent().expect("a directory of the test").join("site");
    fs::write(outer.join("index.html"), "the harbour's own page").expect("the directory is ours");
    let route = format!("[[site.test.route]]\npath = \"/docs/wiki/*\"\nroot = {root:?}\napp = \"dokuwiki\"\n");
    let server = wiki.at(outer).app("plain").config(&route).start();
    let mut browser = Browser::new(server.address());
    assert_eq!(browser.get("/").expect(200).text(), "the harbour's own page");
    let front = browser.get("/docs/wiki").expect(200).text();
    assert!(front.contains("Test Wiki"), "{front}");
    for link in ["/docs/wiki/lib/exe/css.php", "/docs/wiki/doku.php?id=start"] {
        assert!(front.contains(link), "{link} is not in {front}");
    }
    let form = browser.get("/docs/wiki/doku.php?id=start&do=login").expect(200).text();
    let login = [
        ("id", "start"),
        ("do", "login"),
        ("sectok", &*input_value(&form, "sectok")),
        ("u", "anna"),
        ("p", "horse battery"),
    ];
    let page = browser
        .submit("/docs/wiki/doku.php?id=start", &login)
        .expect(200)
        .text();
    assert!(page.contains("Anna Example"), "{page}");
    let media = browser
        .get("/docs/wiki/lib/exe/fetch.php?media=wiki:dokuwiki-128.png")
        .expect(200);
    assert!(media.body.starts_with(b"\x89PNG"));
    browser.get("/docs/wiki/lib/tpl/dokuwiki/images/logo.png").expect(200);
    for path in [
        "/docs/wiki/conf/users.auth.php",
        "/docs/wiki/data/pages/x.txt",
        "/docs/wiki/inc/init.php",
        "/doku.php",
    ] {
        browser.get(path).expect(404);
    }
}
