//! A Symfony login page (tests/apps/symfony): container, routing, form, CSRF token, session, Twig.

use std::fs;

use super::support::browser::{Browser, input_value};
use super::support::client::Request;
use super::support::haulier::Haulier;
use super::support::php_fpm::Socket;
use super::support::site::{Php, Site};
use super::support::{content, copy_directory, require};

const APPLICATION: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/apps/symfony");
const PACKAGES: [(&str, &str); 7] = [
    (
        "php-symfony-framework-bundle",
        "Symfony/Bundle/FrameworkBundle/FrameworkBundle.php",
    ),
    ("php-symfony-twig-bundle", "Symfony/Bundle/TwigBundle/TwigBundle.php"),
    ("php-symfony-twig-bridge", "Symfony/Bridge/Twig/AppVariable.php"),
    ("php-symfony-form", "Symfony/Component/Form/Form.php"),
    ("php-symfony-validator", "Symfony/Component/Validator/Validation.php"),
    (
        "php-symfony-security-csrf",
        "Symfony/Component/Security/Csrf/CsrfTokenManager.php",
    ),
    (
        "php-symfony-translation",
        "Symfony/Component/Translation/Translator.php",
    ),
];

/// A copy of the application; `app` is left to detection.
fn application(php: Php) -> Site {
    for (package, file) in PACKAGES {
        require(package, format!("/usr/share/php/{file}"));
    }
    let site = Site::new();
    let root = site.root().with_file_name("symfony");
    copy_directory(APPLICATION, &root);
    site.at(root).run_by(php).app("auto")
}

fn visit(php: Php) {
    visit_at(&application(php).start());
}

/// The same application, booted once.
pub(super) fn booted() -> Site {
    let site = application(Php::Cgi);
    let front = site.root().join("public/index.php");
    site.setting(&format!("worker = {front:?}"))
}

#[test]
fn a_symfony_site_works_in_worker_mode() {
    let server = booted().start();
    visit_at(&server);
    visit_at(&server);
}

fn visit_at(server: &Haulier) {
    let mut browser = Browser::new(server.address());

    let style = browser.get("/css/forms.css").expect(200);
    assert_eq!(style.field("Content-Type"), Some("text/css; charset=utf-8"));

    // Nobody is logged in: the front controller sends the visitor to the form.
    let form = browser.get("/").expect(200);
    let size = form.body.len();
    assert!((4000..5000).contains(&size), "the login page has {size} bytes");
    let token = input_value(&form.text(), "login[_token]");

    let forged = login(&mut browser, "correct horse", "forged");
    assert!(forged.contains("The CSRF token is invalid"), "{forged}");
    let wrong = login(&mut browser, "wrong", &token);
    assert!(wrong.contains("Unknown user name or wrong password"), "{wrong}");
    let token = input_value(&wrong, "login[_token]");
    let welcome = login(&mut browser, "correct horse", &token);
    assert!(welcome.contains("Welcome, editor"), "{welcome}");
    assert!(
        browser.get("/").expect(200).text().contains("Welcome, editor"),
        "the session holds"
    );
    assert!(
        Browser::new(server.address())
            .get("/")
            .expect(200)
            .text()
            .contains("Log in"),
        "and is nobody else's"
    );

    assert_eq!(
        browser.get("/pages/7/edit").expect(200).text(),
        r#"{"section":"pages","id":7,"action":"edit"}"#
    );
    assert_eq!(
        browser.get("/index.php/media/3").expect(200).text(),
        r#"{"section":"media","id":3,"action":"list"}"#
    );
    browser.get("/pages/seven").expect(404);
    let refused = browser.ask(Request::get("/logout")).expect(405);
    assert_eq!(refused.field("Allow"), Some("POST"));

    let token = input_value(&welcome, "token");
    let out = browser.submit("/logout", &[("token", &token)]).expect(200).text();
    assert!(out.contains("Log in"), "{out}");
    // Outside public/ nothing is there, and only the front controller runs.
    for path in [
        "/src/Kernel.php",
        "/../src/Kernel.php",
        "/templates/login.html.twig",
        "/css/none.php",
    ] {
        assert!(matches!(browser.ask(Request::get(path)).status(), 400 | 404), "{path}");
    }
}

fn login(browser: &mut Browser, password: &str, token: &str) -> String {
    let values = [
        ("login[username]", "editor"),
        ("login[password]", password),
        ("login[language]", "en"),
        ("login[submit]", ""),
        ("login[_token]", token),
    ];
    browser.submit("/login", &values).text()
}

#[test]
fn a_symfony_site_works_with_php_cgi() {
    visit(Php::Cgi);
}

#[test]
fn a_symfony_site_works_with_workers_of_our_own() {
    visit(Php::Embedded);
}

#[test]
fn a_symfony_site_works_with_php_fpm() {
    visit(Php::Fpm(Socket::Unix));
}

/// BinaryFileResponse changes over by itself, for files beneath a root; others it passes through as ever.
#[test]
fn a_binary_file_response_is_handed_over() {
    for php in [Php::Cgi, Php::Embedded, Php::Fpm(Socket::Unix)] {
        let site = application(php);
        let files = site.root().join("files");
        fs::create_dir(&files).expect("a copy of ours");
        fs::write(files.join("report of 2026.pdf"), content(400_000)).expect("a copy of ours");
        let server = site.start();

        let response = server.get("/download/report").expect(200);
        assert!(response.body == content(400_000), "by {php:?}");
        assert_eq!(response.field("Content-Type"), Some("application/pdf"));
        assert_eq!(
            response.field("Content-Disposition"),
            Some("attachment; filename=report.pdf")
        );
        let line = server.access_line_for("/download/report");
        assert_eq!(
            (line["handler"].as_str(), line["via"].as_str()),
            (Some("handed"), Some("x-accel")),
            "{line}"
        );
        let part = server
            .ask(&Request::get("/download/report").with("Range", "bytes=1000-1999"))
            .expect(206);
        assert_eq!(part.body, content(400_000)[1000..2000]);
        let forged = Request::get("/download/report")
            .with("X-Sendfile-Type", "X-Evil")
            .with("X-Accel-Mapping", "/=/evil/");
        let response = server.ask(&forged).expect(200);
        assert!(response.body == content(400_000));
        assert_eq!(response.field("X-Evil"), None);

        let elsewhere = server.get("/download/elsewhere").expect(200);
        assert!(elsewhere.text().contains("class Request"), "{}", elsewhere.text());
        assert_eq!(server.access_line_for("/download/elsewhere")["handler"], "php");
    }
}
