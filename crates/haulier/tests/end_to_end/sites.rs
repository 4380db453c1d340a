//! What a site says of its paths: routes, rewrites, its name, its own pages, and when it is closed.

use std::fs;
use std::time::Duration;

use serde_json::json;

use super::support::client::{Connection, Request};
use super::support::haulier::Haulier;
use super::support::php_fpm::Socket;
use super::support::site::{Php, Site};
use super::support::{readable_directory, wait_until};

/// `htpasswd -nbB -C 5 anna horse` and `htpasswd -nbm bert horse`.
const USERS: &str =
    "anna:$2y$05$fw8ZTZYW6Hd5pqBbhaLNPO1bPbDHQ5DpPKwUdvth8RA8x.maKiof2\nbert:$apr1$ndRitD5u$YqXU5kuZzjfJBEXNLwdb40\n";
const ANNA: &str = "Basic YW5uYTpob3JzZQ==";
const BERT: &str = "Basic YmVydDpob3JzZQ==";
const WRONG: &str = "Basic YW5uYTp3cm9uZw==";

/// Prints what the script was told.
const TOLD: &str = "foreach (['SCRIPT_NAME', 'PATH_INFO', 'QUERY_STRING', 'REQUEST_URI', 'REMOTE_USER', 'AUTH_TYPE'] as $k) \
                    echo $k, '=', $_SERVER[$k] ?? '-', ' ';";

#[test]
fn a_password_stands_before_files_scripts_and_other_routes() {
    let site = Site::new()
        .file("open.txt", "open")
        .file("admin/a.txt", "secret")
        .php("admin/index.php", TOLD)
        .php("admin/reports/x.php", TOLD)
        .config(
            "[pool.reports]\nworkers = 1\n\
             [[site.test.route]]\npath = \"/admin/*\"\nbasic_auth = \"users\"\n\
             [[site.test.route]]\npath = \"/admin/reports/*\"\npool = \"reports\"\n\
             [[site.test.route]]\npath = \"/admin/hook.txt\"\nbasic_auth = \"off\"\n",
        )
        .file("admin/hook.txt", "hook")
        .setting("pool = \"php\"");
    let users = site.root().parent().expect("a directory of the test").join("users");
    fs::write(&users, USERS).expect("the directory is ours");
    let server = site.start();
    server.get("/open.txt").expect(200);
    assert_eq!(server.get("/admin/hook.txt").expect(200).text(), "hook");
    for path in [
        "/admin/a.txt",
        "/admin/",
        "/admin/nothing",
        "/admin/reports/x.php",
        "/x/../admin/a.txt",
        "/%61dmin/a.txt",
    ] {
        let asked = server.get(path).expect(401);
        assert_eq!(
            asked.field("WWW-Authenticate"),
            Some("Basic realm=\"test\", charset=\"UTF-8\"")
        );
        server.ask(&Request::get(path).with("Authorization", WRONG)).expect(401);
    }
    for user in [ANNA, BERT, ANNA] {
        let answer = server
            .ask(&Request::get("/admin/a.txt").with("Authorization", user))
            .expect(200);
        assert_eq!(answer.text(), "secret");
    }
    let told = server
        .ask(&Request::get("/admin/?a=1").with("Authorization", ANNA))
        .expect(200)
        .text();
    assert!(told.contains("REMOTE_USER=anna AUTH_TYPE=Basic"), "{told}");
    server
        .ask(&Request::post("/admin/reports/x.php", "body").with("Authorization", BERT))
        .expect(200);
    let told = server
        .ask(&Request::get("/open.txt").with("Authorization", WRONG))
        .expect(200);
    assert_eq!(told.text(), "open", "nobody asked for it there");

    fs::write(&users, USERS.replace("anna", "zoe")).expect("the directory is ours");
    wait_until("the changed file to count", || {
        let again = server.ask(&Request::get("/admin/a.txt").with("Authorization", ANNA));
        again.status() == 401
    });
}

#[test]
fn addresses_and_denied_paths_are_judged_after_decoding() {
    let server = Site::new()
        .file("in/a.txt", "in")
        .file("out/a.txt", "out")
        .file("gone/a.txt", "gone")
        .config(
            "[[site.test.route]]\npath = \"/in/*\"\nallow = [\"127.0.0.0/8\", \"::1\"]\n\
             [[site.test.route]]\npath = \"/out/*\"\nallow = [\"192.0.2.0/24\"]\n\
             [[site.test.route]]\npath = \"/gone/*\"\ndeny = true\n",
        )
        .start();
    server.get("/in/a.txt").expect(200);
    for path in ["/out/a.txt", "/out/nothing", "/o%75t/a.txt"] {
        server.get(path).expect(403);
    }
    server.get("/gone/a.txt").expect(404);
    server.get("/g%6fne/a.txt").expect(404);
}

#[test]
fn a_client_that_asks_too_often_is_told_when_to_come_again() {
    let server = Site::new()
        .file("a.txt", "a")
        .file("login", "b")
        .limit("requests_per_ip = \"1000/h\"")
        .config("[[site.test.route]]\npath = \"/login\"\nrate = \"2/h\"\n")
        .start();
    server.get("/login").expect(200);
    server.get("/login").expect(200);
    let refused = server.get("/login").expect(429);
    let wait: u64 = refused
        .field("Retry-After")
        .and_then(|value| value.parse().ok())
        .expect("seconds");
    assert!((1..=1800).contains(&wait), "{wait}");
    server.get("/a.txt").expect(200);
    assert_eq!(server.access_line_for("/login")["status"], 200);

    let server = Site::new()
        .file("a.txt", "a")
        .limit("requests_per_ip = \"1000/h\"")
        .config("[site.test.limits]\nrequests_per_ip = \"3/d\"\n")
        .start();
    let mut connection = server.connect();
    for expected in [200, 200, 200, 429, 429] {
        connection.ask(&Request::get("/a.txt")).expect(expected);
    }
}

#[test]
fn each_route_has_its_pool() {
    let server = Site::new()
        .php("a.php", "echo getenv('POOL'), ' ', $_SERVER['SCRIPT_NAME'];")
        .php("reports/a.php", "echo getenv('POOL'), ' ', $_SERVER['SCRIPT_NAME'];")
        .setting("pool = \"php\"")
        .config(
            "[pool.php.env]\nPOOL = \"first\"\n[pool.reports]\nworkers = 1\nenv = { POOL = \"second\" }\n\
             [[site.test.route]]\npath = \"/reports/*\"\npool = \"reports\"\n",
        )
        .start();
    assert_eq!(server.get("/a.php").expect(200).text(), "first /a.php");
    assert_eq!(server.get("/reports/a.php").expect(200).text(), "second /reports/a.php");
}

#[test]
fn another_project_answers_under_a_prefix() {
    let other = readable_directory();
    for (name, content) in [
        ("index.php", format!("<?php {TOLD} echo $_SERVER['SCRIPT_FILENAME'];")),
        ("style.css", "body{}".to_owned()),
        ("sub/x.txt", "x".to_owned()),
        ("a.secret", "s".to_owned()),
        (".env", "e".to_owned()),
    ] {
        let path = other.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("ours");
        fs::write(path, content).expect("ours");
    }
    let server = Site::new()
        .php("index.php", "echo 'outer';")
        .file("wikis", "another name")
        .setting("deny = [\"*.secret\"]")
        .setting("headers = { X-Site = \"test\" }")
        .setting("cache = { \"/wiki/*.css\" = \"10m\" }")
        .config(&format!(
            "[[site.test.route]]\npath = \"/wiki/*\"\nroot = {:?}\napp = \"front\"\n\
             [[site.test.route]]\npath = \"/wiki/sub/*\"\nallow = []\n",
            other.path()
        ))
        .start();
    assert_eq!(server.get("/").expect(200).text(), "outer");
    assert_eq!(server.get("/wikis").expect(200).text(), "another name");
    let slash = server.get("/wiki?a=b").expect(308);
    assert_eq!(slash.field("Location"), Some("/wiki/?a=b"));
    let sheet = server.get("/wiki/style.css").expect(200);
    assert_eq!(
        (sheet.field("X-Site"), sheet.field("Cache-Control")),
        (Some("test"), Some("public, max-age=600"))
    );
    let told = server.get("/wiki/Some/Page?x=1").expect(200).text();
    let file = other.path().canonicalize().expect("ours").join("index.php");
    assert!(
        told.contains("SCRIPT_NAME=/wiki/index.php") && told.contains("REQUEST_URI=/wiki/Some/Page?x=1"),
        "{told}"
    );
    assert!(told.ends_with(&file.display().to_string()), "{told}");
    let told = server.get("/wiki/index.php/info").expect(200).text();
    assert!(told.contains("SCRIPT_NAME=/wiki/index.php PATH_INFO=/info"), "{told}");
    for path in ["/wiki/a.secret", "/wiki/.env"] {
        server.get(path).expect(404);
    }
    server.get("/wiki/sub/x.txt").expect(403);
    server.get("/wiki/index.php/sub/x.txt").expect(403);
    server.get("/wiki/%2e%2e/index.php").expect(200);
}

/// What follows a script is its own business: a rule for the script holds, whatever that is.
#[test]
fn rules_for_a_script_hold_for_everything_behind_it() {
    let site = Site::new()
        .php("adminer.php", "echo 'adminer ', $_SERVER['REMOTE_USER'] ?? '-';")
        .php("tools/a.php", "echo 'tool';")
        .php("install.php", "echo 'installed';")
        .php("login.php", "echo 'login';")
        .php("open.php", "echo 'open', $_SERVER['PATH_INFO'];")
        .setting("deny = [\"/install.php\"]")
        .config(
            "[[site.test.route]]\npath = \"/adminer.php\"\nbasic_auth = \"users\"\n\
             [[site.test.route]]\npath = \"/tools/*.php\"\nallow = []\n\
             [[site.test.route]]\npath = \"/login.php\"\nrate = \"2/h\"\n",
        );
    let users = site.root().parent().expect("a directory of the test").join("users");
    fs::write(&users, USERS).expect("the directory is ours");
    let server = site.start();
    for path in ["/adminer.php", "/adminer.php/x", "/adminer.php/x.css"] {
        server.get(path).expect(401);
    }
    let admitted = server
        .ask(&Request::get("/adminer.php/x").with("Authorization", ANNA))
        .expect(200);
    assert_eq!(admitted.text(), "adminer anna");
    for path in ["/tools/a.php", "/tools/a.php/x"] {
        server.get(path).expect(403);
    }
    for path in ["/install.php", "/install.php/x"] {
        server.get(path).expect(404);
    }
    for (path, status) in [("/login.php/a", 200), ("/login.php", 200), ("/login.php/b", 429)] {
        server.get(path).expect(status);
    }
    assert_eq!(server.get("/open.php/a/b").expect(200).text(), "open/a/b");
}

#[test]
fn a_rewrite_is_not_seen_by_the_client() {
    let server = Site::new()
        .php("index.php", TOLD)
        .file("news/2026/1.html", "first")
        .file("admin/secret.txt", "secret")
        .config(
            "[site.test.rewrites]\n\"/wiki/*\" = \"/index.php?title=*\"\n\"/blog/*\" = \"/news/*\"\n\"/any/*\" = \"/*\"\n\
             [[site.test.route]]\npath = \"/admin/*\"\nallow = []\n",
        )
        .start();
    let told = server.get("/wiki/A%20B/%26c?x=1").expect(200).text();
    let expected =
        "SCRIPT_NAME=/index.php PATH_INFO=- QUERY_STRING=title=A%20B/%26c&x=1 REQUEST_URI=/wiki/A%20B/%26c?x=1";
    assert!(told.starts_with(expected), "{told}");
    assert_eq!(server.get("/blog/2026/1.html").expect(200).text(), "first");
    server.get("/any/admin/secret.txt").expect(403);
    server.get("/any/.htaccess").expect(404);
    let posted = server.ask(&Request::post("/wiki/X", "a=b")).expect(200).text();
    assert!(posted.contains("QUERY_STRING=title=X "), "{posted}");
}

#[test]
fn one_of_several_names_is_the_one_to_be_known_by() {
    let site = |canonical: &str| {
        Site::new()
            .file("a.txt", "a")
            .setting("hosts = [\"www.shop.example\", \"*.shop.example\", \"shop.example\"]")
            .setting(&format!("canonical = {canonical:?}"))
            .start()
    };
    let server = site("www.shop.example");
    let ask = |host: &str| server.ask(&Request::get("/a.txt?x=%20y").with("Host", host));
    ask("www.shop.example").expect(200);
    ask("WWW.Shop.Example:8080").expect(200);
    let sent = ask("shop.example:8080").expect(308);
    assert_eq!(
        sent.field("Location"),
        Some("http://www.shop.example:8080/a.txt?x=%20y")
    );
    let sent = ask("old.shop.example").expect(308);
    assert_eq!(sent.field("Location"), Some("http://www.shop.example/a.txt?x=%20y"));
    let server = site("https://www.shop.example");
    let sent = server
        .ask(&Request::get("/").with("Host", "shop.example:80"))
        .expect(308);
    assert_eq!(sent.field("Location"), Some("https://www.shop.example/"));
}

#[test]
fn errors_of_ours_have_the_pages_of_the_site() {
    let server = Site::new()
        .file("404.html", "<h1>Nothing here</h1>")
        .php("error.php", "header('X-Made-By: site'); http_response_code(200); echo 'Sorry: ', $_SERVER['REDIRECT_STATUS'], ' ', $_SERVER['REQUEST_METHOD'], ' ', $_SERVER['REQUEST_URI'], file_get_contents('php://input');")
        .php("own.php", "http_response_code(404); echo 'of the script';")
        .php("crash.php", "posix_kill(getmypid(), SIGKILL);")
        .file("secret/a.txt", "s")
        .setting("errors = { 404 = \"/404.html\", 403 = \"error.php\", 413 = \"/error.php\", 502 = \"/404.html\" }")
        .config("[site.test.limits]\nbody = \"10B\"\n[[site.test.route]]\npath = \"/secret/*\"\nallow = []\n")
        .start();
    let page = server.get("/nothing").expect(404);
    assert_eq!(page.text(), "<h1>Nothing here</h1>");
    assert!(
        page.field("Content-Type")
            .is_some_and(|kind| kind.starts_with("text/html"))
    );
    assert!(page.field("ETag").is_none() && page.field("X-Request-Id").is_some());
    server.ask(&Request::head("/nothing")).expect(404);
    server.get("/404.html").expect(200);
    assert_eq!(server.get("/own.php").expect(404).text(), "of the script");
    let page = server.get("/secret/a.txt?x").expect(403);
    assert_eq!(page.text(), "Sorry: 403 GET /secret/a.txt?x");
    assert_eq!(page.field("X-Made-By"), Some("site"));
    let page = server
        .ask(&Request::post("/own.php", "more than ten bytes"))
        .expect(413);
    assert_eq!(page.text(), "Sorry: 413 GET /own.php");
    let page = server.get("/crash.php").expect(502);
    assert_eq!(page.text(), "<h1>Nothing here</h1>");
    assert_eq!(server.access_line_for("/crash.php")["reason"], "php_crashed");
}

/// No condition and no range of the request is about the page.
#[test]
fn the_page_for_an_error_may_be_a_file_that_a_script_names() {
    let server = Site::new()
        .file("sorry.html", "<h1>We are sorry</h1>")
        .php("error.php", "header('X-Accel-Redirect: /sorry.html');")
        .setting("errors = { 404 = \"/error.php\" }")
        .start();
    for request in [
        Request::get("/nothing"),
        Request::get("/nothing").with("Range", "bytes=0-3"),
        Request::get("/nothing").with("If-Modified-Since", "Fri, 01 Jan 2100 00:00:00 GMT"),
    ] {
        let page = server.ask(&request).expect(404);
        assert_eq!(page.text(), "<h1>We are sorry</h1>");
        assert!(page.field("Content-Range").is_none() && page.field("X-Accel-Redirect").is_none());
    }
}

#[test]
fn a_closed_site_says_when_to_come_again() {
    let site = |allow: &str| {
        let site = Site::new()
            .file("closed.html", "back soon")
            .php("index.php", "echo 'open';");
        let table = format!(
            "[site.test.maintenance]\nfile = \"closed\"\npage = \"/closed.html\"\nretry_after = \"10m\"\nallow = [{allow}]\n"
        );
        let switch = site.root().parent().expect("a directory of the test").join("closed");
        (site.config(&table).start(), switch)
    };
    let (server, switch) = site("");
    server.get("/").expect(200);
    fs::write(&switch, "").expect("ours");
    wait_until("the site to close", || server.get("/").status() == 503);
    let closed = server.ask(&Request::post("/index.php", "a=b")).expect(503);
    assert_eq!(
        (closed.text().as_str(), closed.field("Retry-After")),
        ("back soon", Some("600"))
    );
    assert_eq!(server.access_line_for("/index.php")["reason"], "maintenance");
    fs::remove_file(&switch).expect("ours");
    wait_until("the site to open", || server.get("/").status() == 200);

    let (server, switch) = site("\"127.0.0.1\"");
    fs::write(&switch, "").expect("ours");
    for _ in 0..3 {
        server.get("/").expect(200);
        std::thread::sleep(Duration::from_millis(600));
    }
}

#[test]
fn a_thousand_sites_start_at_once_and_answer_by_name() {
    let directory = readable_directory();
    let mut text = "[server]\nhttp = \"127.0.0.1:0\"\n".to_owned();
    for number in 0..1000 {
        let root = directory.path().join(format!("s{number}"));
        fs::create_dir(&root).expect("ours");
        fs::write(root.join("index.html"), format!("site {number}")).expect("ours");
        text.push_str(&format!(
            "[site.s{number}]\nhosts = [\"s{number}.example\"]\nroot = \"s{number}\"\n[[site.s{number}.route]]\npath = \"/x/*\"\ndeny = true\n"
        ));
    }
    let config = directory.path().join("haulier.toml");
    fs::write(&config, text).expect("ours");
    let mut command = Haulier::command();
    command.arg("run").arg("-c").arg(&config);
    let server = Haulier::start(command, vec![Box::new(directory)]);
    // Under a second where nothing else runs. Of the processor, because others may want it too, and unoptimised.
    let took = server.cpu_time();
    assert!(took < Duration::from_secs(10), "{took:?}");
    let mut connection = Connection::open(server.address());
    for number in [0, 1, 500, 999] {
        let answer = connection.ask(&Request::get("/").with("Host", &format!("s{number}.example")));
        assert_eq!(answer.expect(200).text(), format!("site {number}"));
    }
    connection
        .ask(&Request::get("/").with("Host", "s1000.example"))
        .expect(421);
    println!("1000 sites started with {took:?} of the processor");
}

#[test]
fn a_site_in_development_explains_a_blank_error() {
    let site = Site::new().php("index.php", "throw new RuntimeException('the tide is out');");
    let mut command = Haulier::command();
    let directory = site.root().to_owned();
    command.args(["serve", "--listen", "127.0.0.1:0"]).arg(&directory);
    let server = Haulier::start(command, vec![Box::new(site)]);
    let page = server.get("/").expect(500).text();
    for part in ["php_error", "the tide is out", "Stack trace"] {
        assert!(page.contains(part), "{part} is not in {page}");
    }

    let server = Site::new()
        .php("index.php", "throw new RuntimeException('the tide is out');")
        .start();
    let page = server.get("/").expect(500).text();
    assert!(!page.contains("tide"), "{page}");
}

#[test]
fn a_page_answers_for_everything_that_is_no_file_and_starts_no_php() {
    let site = Site::new()
        .file("index.html", "the application")
        .file("assets/app.js", "script")
        .file(".env", "secret")
        .file(
            "api/index.php",
            "<?php echo 'api ', $_SERVER['PATH_INFO'] ?? $_SERVER['REQUEST_URI'];",
        )
        .setting("front = \"/index.html\"");
    let server = site.start();
    for target in ["/", "/products/7", "/deep/er/path?x=1", "/assets/", "/missing.png"] {
        let answer = server.get(target).expect(200);
        assert_eq!(answer.text(), "the application", "{target}");
        assert_eq!(answer.field("Content-Type"), Some("text/html; charset=utf-8"));
        assert!(answer.field("ETag").is_some());
    }
    assert_eq!(server.get("/assets/app.js").expect(200).text(), "script");
    server.get("/.env").expect(404);
    server.ask(&Request::post("/products", "x")).expect(405);
    assert!(server.php_workers().is_empty());

    // The same where PHP has a part.
    let site = Site::new().file("index.html", "the application");
    let api = site.writable("api");
    fs::write(api.join("index.php"), "<?php echo 'api ', $_SERVER['REQUEST_URI'];").expect("it is ours");
    let route = format!("[[site.test.route]]\npath = \"/api/*\"\nroot = {api:?}\nfront = \"/index.php\"\n");
    let server = site.setting("front = \"/index.html\"").config(&route).start();
    assert_eq!(server.get("/api/orders/1").expect(200).text(), "api /api/orders/1");
    assert_eq!(server.get("/orders/1").expect(200).text(), "the application");
}

#[test]
fn a_script_that_fails_without_a_word_gets_an_error_page() {
    let throw = "header('Access-Control-Allow-Origin: *'); throw new RuntimeException('the tide is out');";
    for php in [Php::Cgi, Php::Embedded, Php::Fpm(Socket::Unix)] {
        let site = || {
            Site::new()
                .php("throws.php", throw)
                .php("breaks.php", "function (")
                .php("empty.php", "http_response_code(503); header('Retry-After: 77');")
                .php("told.php", "http_response_code(500); echo 'its own words';")
                .php("missing.php", "http_response_code(404);")
                .ini("display_errors", "0")
                .ini("log_errors", "1")
                .run_by(php)
        };
        let server = site().start();
        let page = server.get("/throws.php").expect(500);
        let id = page.field("X-Request-Id").expect("an id").to_owned();
        assert!(page.text().contains("500 Internal Server Error"), "{}", page.text());
        assert!(page.text().contains(&format!("Request {id}")), "{}", page.text());
        assert!(!page.text().contains("tide"), "{}", page.text());
        assert_eq!(page.field("Access-Control-Allow-Origin"), Some("*"));
        assert_eq!(page.field("Content-Type"), Some("text/html; charset=utf-8"));
        let line = server.access_line_for("/throws.php");
        assert_eq!((&line["req_id"], &line["reason"]), (&json!(id), &json!("php_error")));
        let said = line["php_message"].as_str().unwrap_or_default();
        assert!(said.contains("the tide is out"), "{line}");
        assert!(server.get("/breaks.php").expect(500).text().contains("Request "));
        let busy = server.get("/empty.php").expect(503);
        assert!(busy.field("Retry-After") == Some("77") && busy.text().contains("Request "));
        assert_eq!(server.get("/told.php").expect(500).text(), "its own words");
        assert_eq!(
            server.get("/missing.php").expect(404).text(),
            "",
            "that is the script's own answer"
        );

        let server = site()
            .file("sorry.html", "SORRY")
            .php("busy.php", "echo 'BUSY ', $_SERVER['REDIRECT_STATUS'];")
            .setting("errors = { 500 = \"/sorry.html\", 503 = \"/busy.php\" }")
            .start();
        let page = server.get("/throws.php").expect(500);
        assert_eq!(
            (page.text().as_str(), page.field("Access-Control-Allow-Origin")),
            ("SORRY", Some("*"))
        );
        assert!(page.field("X-Request-Id").is_some());
        assert_eq!(server.get("/empty.php").expect(503).text(), "BUSY 503");
        assert_eq!(server.get("/told.php").expect(500).text(), "its own words");
        let said = server.access_line_for("/throws.php")["php_message"].to_string();
        assert!(said.contains("the tide is out"), "{said}");
    }
}

#[test]
fn an_error_page_that_fails_as_well_leaves_ours() {
    let server = Site::new()
        .php("throws.php", "throw new RuntimeException('first');")
        .php("sorry.php", "throw new RuntimeException('second');")
        .ini("display_errors", "0")
        .setting("errors = { 404 = \"/sorry.php\", 500 = \"/sorry.php\" }")
        .start();
    for (target, status) in [("/throws.php", 500), ("/missing", 404)] {
        let page = server.get(target).expect(status).text();
        assert!(page.contains("Request ") && !page.contains("second"), "{page}");
    }
}

#[test]
fn the_way_through_the_front_controller_is_no_way_around_a_password() {
    let server = Site::new()
        .php("index.php", TOLD)
        .app("front")
        .config("[[site.test.route]]\npath = \"/admin/*\"\nallow = []\n")
        .start();
    for path in [
        "/admin/x",
        "/index.php/admin/x",
        "/index.php/./admin//x",
        "/index.php/%61dmin/x",
    ] {
        server.get(path).expect(403);
    }
    server.get("/index.php/public").expect(200);
}

#[test]
fn scripts_may_have_other_extensions_and_uploads_still_run_none_of_them() {
    let site = || {
        let site = Site::new().php("index.php", "echo 'front';");
        let site = site
            .file("page.phtml", "<?php echo 'phtml';")
            .file("old.php5", "<?php echo 'five';");
        let site = site
            .file("wp-config.php", "<?php")
            .file("wp-content/uploads/evil.phtml", "<?php echo 'evil';");
        site.app("wordpress")
    };
    let server = site().setting("script_extensions = [\".php\", \".phtml\"]").start();
    assert_eq!(server.get("/page.phtml").expect(200).text(), "phtml");
    assert_eq!(server.get("/page.phtml/info").expect(200).text(), "phtml");
    let evil = server.get("/wp-content/uploads/evil.phtml");
    assert!(!evil.text().contains("evil"), "{}", evil.text());
    // What is not named neither runs nor shows its source.
    assert!(!server.get("/old.php5").text().contains("five"));
    drop(server);
    let server = site().start();
    assert!(!server.get("/page.phtml").text().contains("phtml"));
}

#[test]
fn a_nextcloud_tells_calendars_and_address_books_where_they_are() {
    let site = Site::new()
        .file("occ", "")
        .file("remote.php", "<?php echo 'dav';")
        .php("index.php", TOLD)
        .app("nextcloud")
        .setting("redirects = { \"/.well-known/caldav\" = \"302 /elsewhere\" }")
        .start();
    let moved = site.get("/.well-known/carddav").expect(301);
    assert_eq!(moved.field("Location"), Some("/remote.php/dav/"));
    let moved = site.get("/.well-known/caldav").expect(302);
    assert_eq!(
        moved.field("Location"),
        Some("/elsewhere"),
        "the site's own word comes first"
    );
    let told = site.get("/.well-known/webfinger?resource=acct:a").expect(200).text();
    assert!(
        told.contains("SCRIPT_NAME=/index.php") && told.contains("QUERY_STRING=resource=acct:a"),
        "{told}"
    );
}
