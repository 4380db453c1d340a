//! Shaarli, as Debian packages it: one front controller, installed, logged in to and filled through its own forms.

use std::fs;
use std::process::Command;

use super::support::browser::{Browser, input_value};
use super::support::site::{Php, Site};
use super::support::{copy_directory, require, run};

/// A copy of the program, so that /var/lib stays as it is; it keeps its data below itself.
fn links() -> Site {
    require("shaarli", "/usr/share/shaarli/index.php");
    let site = Site::new();
    let root = site.root().parent().expect("a directory of the test").join("shaarli");
    copy_directory("/usr/share/shaarli", &root);
    for name in ["data", "cache", "tmp", "pagecache"] {
        fs::create_dir_all(root.join(name)).expect("the directory is ours");
    }
    // Debian wrote the places of its own into the program.
    let places = format!(
        "s#/usr/share/shaarli#{0}#g; s#/var/lib/shaarli/data#{0}/data#g; s#/var/cache/shaarli#{0}#g",
        root.display()
    );
    run(Command::new("find")
        .arg(&root)
        .args(["-name", "*.php", "-exec", "sed", "-i", &places, "{}", "+"]));
    run(Command::new("chmod").arg("-R").arg("a+rwX").arg(&root));
    site.at(root).run_by(Php::Cgi).app("shaarli")
}

#[test]
fn shaarli_is_installed_and_filled_through_its_front_controller() {
    let server = links().start();
    let mut browser = Browser::new(server.address());
    let form = browser.get("/").expect(200).text();
    assert!(form.contains("id=\"installform\""), "{form}");
    let install = [
        ("setlogin", "anna"),
        ("setpassword", "horse battery"),
        ("title", "Harbour links"),
        ("continent", "Europe"),
        ("city", "Copenhagen"),
        ("language", "en"),
        ("Save", "Install"),
    ];
    browser.submit("/install", &install).expect(200);
    let form = browser.get("/login").expect(200).text();
    let login = [
        ("login", "anna"),
        ("password", "horse battery"),
        ("token", &input_value(&form, "token")),
    ];
    let page = browser.submit("/login", &login).expect(200).text();
    assert!(page.contains("/admin/logout"), "{page}");
    let form = browser
        .get("/admin/shaare?post=https%3A%2F%2Fboats.example%2F&title=Boats")
        .expect(200)
        .text();
    let link = [
        ("lf_linkdate", ""),
        ("lf_id", ""),
        ("lf_url", "https://boats.example/"),
        ("lf_title", "Boats & crew"),
        ("lf_description", "All of them"),
        ("lf_tags", "harbour"),
        ("save_edit", "Save"),
        ("token", &input_value(&form, "token")),
    ];
    browser.submit("/admin/shaare", &link).expect(200);
    let page = browser.get("/tags/list").expect(200).text();
    assert!(page.contains("harbour"), "{page}");
    let page = browser.get("/?searchterm=crew").expect(200).text();
    assert!(
        page.contains("Boats &amp; crew") && page.contains("Harbour links"),
        "{page}"
    );
    browser.get("/no/such/page").expect(404);
    for path in [
        "/data/config.json.php",
        "/data/datastore.php",
        "/init.php",
        "/application/Utils.php",
        "/tmp/",
    ] {
        browser.get(path).expect(404);
    }
    let sheet = browser.get("/tpl/default/css/shaarli.min.css").expect(200);
    assert!(
        sheet
            .field("Content-Type")
            .is_some_and(|kind| kind.starts_with("text/css"))
    );
}
