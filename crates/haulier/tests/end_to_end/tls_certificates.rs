//! Where certificates come from: files that change, our own authority, one of the internet.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::version::TLS13;
use serde_json::Value;

use super::support::client::{Connection, Request};
use super::support::haulier::Haulier;
use super::support::site::Site;
use super::support::tls::{Authority, client, curl, openssl};
use super::support::{readable_directory, wait_until};

fn get(target: &str) -> Request {
    Request::get(target).with("Host", "shop.test")
}

/// The certificate shown to who asks for this name.
fn shown(server: &Haulier, authority: &Path, name: &str) -> Option<CertificateDer<'static>> {
    let mut connection = Connection::open(server.https()).secured(name, &client(authority, &[&TLS13]));
    let asked = connection.try_ask(&Request::get("/").with("Host", name));
    asked.ok()?;
    let chain = connection.wire().connection().peer_certificates()?;
    Some(chain[0].clone().into_owned())
}

#[test]
fn a_renewed_file_is_served_without_a_restart_and_a_broken_one_never() {
    let authority = Authority::new();
    let lines = authority.lines("shop", &["shop.test"]);
    let site = Site::new()
        .file("index.html", "page")
        .server("https = \"127.0.0.1:0\"")
        .setting("hosts = [\"shop.test\"]")
        .config(&format!("[site.test.tls]\n{lines}"));
    let server = site.start();
    let ca = authority.file();
    let first = shown(&server, &ca, "shop.test").expect("a certificate");
    let mut held = Connection::open(server.https()).secured("shop.test", &authority.client(&[&TLS13]));
    held.ask(&get("/")).expect(200);

    let key = fs::read(authority.path("shop.key")).expect("it is there");
    fs::write(authority.path("shop.key"), "half of a key").expect("the directory is ours");
    server.wait_for_line("certificate cannot be used");
    assert_eq!(shown(&server, &ca, "shop.test"), Some(first.clone()));
    fs::write(authority.path("shop.key"), key).expect("the directory is ours");

    authority.sign("shop", &["shop.test"], 60);
    wait_until("the new certificate", || {
        shown(&server, &ca, "shop.test").is_some_and(|shown| shown != first)
    });
    held.ask(&get("/")).expect(200);
    server.wait_for_line("certificate read anew");
}

#[test]
fn metrics_and_status_tell_when_certificates_end() {
    let authority = Authority::new();
    let site = Site::new().file("index.html", "page").server("https = \"127.0.0.1:0\"");
    let control = site.writable("run").join("control.sock");
    let server = site
        .setting("hosts = [\"shop.test\"]")
        .server(&format!("control = {control:?}"))
        .config(&format!("[site.test.tls]\n{}", authority.lines("shop", &["shop.test"])))
        .start();
    let left = server
        .metrics()
        .value("haulier_certificate_expiry_seconds{site=\"test\"}");
    assert!((29.0 * 86_400.0..30.1 * 86_400.0).contains(&left), "{left}");
    let output = Haulier::command()
        .arg("status")
        .arg("--socket")
        .arg(&control)
        .output()
        .expect("the binary runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.contains("certificates  1 site, the first ends in 29 days (test)"),
        "{text}"
    );
}

/// `check` on a configuration with this table of TLS: whether it is in order, and what it says.
fn check(hosts: &str, table: &str) -> (bool, String) {
    let directory = readable_directory();
    let site = directory.path().join("site");
    fs::create_dir(&site).expect("the directory is ours");
    fs::write(site.join("index.html"), "page").expect("the directory is ours");
    let text = format!(
        "[server]\nhttp = \"127.0.0.1:0\"\nhttps = \"127.0.0.1:0\"\nadmin = \"off\"\n[site.test]\nroot = \"site\"\n\
         hosts = {hosts}\n[site.test.tls]\n{table}\n"
    );
    let path = directory.path().join("haulier.toml");
    fs::write(&path, text).expect("the directory is ours");
    let output = Haulier::command()
        .args(["check", "-c"])
        .arg(&path)
        .output()
        .expect("the binary runs");
    (
        output.status.success(),
        String::from_utf8_lossy(&output.stdout).into_owned(),
    )
}

#[test]
fn check_says_what_is_wrong_with_a_certificate_and_where() {
    let authority = Authority::new();
    let (good, good_key) = authority.sign("good", &["shop.test"], 60);
    let (old, old_key) = authority.sign("old", &["shop.test"], -3);
    let (soon, soon_key) = authority.sign("soon", &["shop.test"], 3);
    let files = |chain: &Path, key: &Path| format!("cert = {chain:?}\nkey = {key:?}");
    let missing = Path::new("/nonexistent/x.pem");
    let shop = "[\"shop.test\"]";
    let rows: [(&str, String, bool, &[&str]); 12] = [
        (
            shop,
            files(&good, &good_key),
            true,
            &["certificate for shop.test: from"],
        ),
        (
            shop,
            files(&good, &old_key),
            false,
            &["error[tls::key]", "belongs to another certificate", "haulier.toml:10:7"],
        ),
        (
            shop,
            files(missing, &good_key),
            false,
            &["error[tls::cert]", "cannot read", "haulier.toml:9:8"],
        ),
        (
            shop,
            files(&good, missing),
            false,
            &["error[tls::key]", "cannot read", "haulier.toml:10:7"],
        ),
        (
            shop,
            files(&good_key, &good_key),
            false,
            &["error[tls::cert]", "no certificate in PEM form"],
        ),
        (shop, format!("key = {good_key:?}"), false, &["`key` without `cert`"]),
        (
            shop,
            files(&old, &old_key),
            true,
            &["warning[tls::cert]", "ended 3 days ago", "haulier.toml:9:8"],
        ),
        (
            shop,
            files(&soon, &soon_key),
            true,
            &["warning[tls::cert]", "ends in 2 days"],
        ),
        (
            "[\"shop.test\", \"www.shop.test\"]",
            files(&good, &good_key),
            true,
            &["warning[tls::cert]", "is not for `www.shop.test`"],
        ),
        (
            "[\"*\"]",
            "mode = \"auto\"".to_owned(),
            false,
            &["error[tls::name]", "answers to every host"],
        ),
        (
            "[\"*.example.com\"]",
            String::new(),
            false,
            &["error[tls::name]", "no certificate for `*.example.com`"],
        ),
        (shop, "mode = \"locl\"".to_owned(), false, &["did you mean \"local\"?"]),
    ];
    for (hosts, table, expected, texts) in rows {
        let (is_good, said) = check(hosts, &table);
        assert_eq!(is_good, expected, "{table}\n{said}");
        for text in texts {
            assert!(said.contains(text), "{text} in\n{said}");
        }
    }
}

#[test]
fn names_no_authority_knows_get_a_certificate_of_our_own() {
    let site = Site::new().file("index.html", "page");
    let state = site.writable("state");
    let server = site
        .server("https = \"127.0.0.1:0\"")
        .setting("hosts = [\"shop.test\", \"localhost\"]")
        .config(&format!("[tls]\nstate = {state:?}"))
        .start();
    let authority = state.join("local/authority.pem");
    assert!(shown(&server, &authority, "shop.test").is_some());
    assert!(shown(&server, &authority, "localhost").is_some());
    let mode = |path: &Path| {
        use std::os::unix::fs::PermissionsExt;
        fs::metadata(path).expect("it is there").permissions().mode() & 0o777
    };
    assert_eq!(mode(&state.join("local/authority.key")), 0o600);
}

/// `serve --https` in a project of one page; its state lies below.
fn serve(directory: &Path, arguments: &[&str]) -> Haulier {
    fs::write(directory.join("index.html"), "page").expect("the directory is ours");
    let mut command = Haulier::command();
    command
        .args(["serve", "--https", "--listen", "127.0.0.1:0"])
        .args(arguments)
        .arg(directory)
        .env("STATE_DIRECTORY", directory.join(".state"));
    Haulier::start(command, Vec::new())
}

#[test]
fn a_project_is_tried_with_tls_by_one_word() {
    let directory = readable_directory();
    let server = serve(directory.path(), &[]);
    assert_eq!(server.https(), server.address(), "one port");
    let authority = directory.path().join(".state/local/authority.pem");
    let authority = authority.to_str().expect("UTF-8");
    let port = server.https().port();
    for host in ["localhost", "127.0.0.1"] {
        let page = curl(&["--cacert", authority, &format!("https://{host}:{port}/")]);
        assert_eq!(page, "page", "{host}");
    }
    let anything = openssl(server.https(), &["-servername", "whatever.example"]);
    assert!(anything.contains("-----BEGIN CERTIFICATE-----"), "{anything}");
    // A browser that was given the address without its scheme.
    let answer = server.ask(&Request::get("/a?b=c").with("Host", &format!("localhost:{port}")));
    let expected = format!("https://localhost:{port}/a?b=c");
    assert_eq!(answer.expect(308).field("Location"), Some(expected.as_str()));
    drop(server);
    let again = serve(directory.path(), &[]);
    let port = again.https().port();
    let page = curl(&["--cacert", authority, &format!("https://localhost:{port}/")]);
    assert_eq!(page, "page", "the authority of yesterday is that of today");
}

#[test]
fn trust_says_what_it_did_in_every_store_and_undoes_it() {
    // The stores of this machine are not ours to change: an account without rights asks, with a home of its own.
    let home = readable_directory();
    let database = home.path().join(".pki/nssdb");
    fs::create_dir_all(&database).expect("the directory is ours");
    let certutil = |arguments: &[&str]| {
        let mut command = Command::new("certutil");
        command
            .args(arguments)
            .arg("-d")
            .arg(format!("sql:{}", database.display()));
        command.output().expect("certutil of libnss3-tools runs")
    };
    assert!(certutil(&["-N", "--empty-password"]).status.success());
    super::support::run(Command::new("chown").args(["-R", "nobody"]).arg(home.path()));
    let trust = |arguments: &[&str]| {
        let output = Command::new("setpriv")
            .args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"])
            .arg(env!("CARGO_BIN_EXE_haulier"))
            .arg("trust")
            .args(arguments)
            .env("HOME", home.path())
            .env_remove("STATE_DIRECTORY")
            .env_remove("XDG_STATE_HOME")
            .output()
            .expect("the binary runs");
        let texts = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        texts.concat()
    };
    let said = trust(&[]);
    assert!(said.contains("only root may change"), "{said}");
    assert!(said.contains("nssdb: trusts it now"), "{said}");
    assert!(home.path().join(".local/state/haulier/local/authority.key").exists());
    let list = || String::from_utf8_lossy(&certutil(&["-L"]).stdout).into_owned();
    assert!(list().contains("haulier-local-authority"), "{}", list());
    assert!(trust(&[]).contains("nssdb: trusts it already"));
    let undone = trust(&["--undo"]);
    assert!(undone.contains("nssdb: trusts it no longer"), "{undone}");
    assert!(!list().contains("haulier-local-authority"), "{}", list());
}

/// Waits until the certificate of this name is there, as `authority` signed it.
fn wait_for_certificate(server: &Haulier, authority: &Path, name: &str) -> CertificateDer<'static> {
    let find = || shown(server, authority, name);
    wait_until(&format!("a certificate for {name}"), || find().is_some());
    find().expect("just seen")
}

mod pebble {
    //! A real authority: Pebble, which looks at names as Let's Encrypt does.

    use std::path::PathBuf;
    use std::process::{Child, Stdio};

    use super::*;
    use crate::support::ports::free_port;

    /// Pebble with its name server, which finds every name on this machine.
    struct Pebble {
        directory: tempfile::TempDir,
        children: Vec<Child>,
        port: u16,
        management: u16,
    }

    /// The program, or a word that the test was not run.
    fn program(name: &str) -> Option<PathBuf> {
        let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
        let places = std::env::var_os("PATH").unwrap_or_default();
        let mut places: Vec<PathBuf> = std::env::split_paths(&places).collect();
        places.push(home.join("go/bin"));
        let found = places
            .into_iter()
            .map(|place| place.join(name))
            .find(|path| path.is_file());
        if found.is_none() {
            eprintln!("SKIPPED: {name} is missing (setup/test.sh installs it where Go is there)");
        }
        found
    }

    impl Pebble {
        /// An authority that asks at these two ports and signs for so many seconds; `None` if it is not installed.
        fn start(http: u16, tls: u16, validity: u64) -> Option<Self> {
            let (pebble, names) = (program("pebble")?, program("pebble-challtestsrv")?);
            let directory = readable_directory();
            let authority = Authority::new();
            let (chain, key) = authority.sign("pebble", &["localhost", "127.0.0.1"], 30);
            fs::copy(authority.file(), directory.path().join("root.pem")).expect("the directory is ours");
            let (port, management, dns, control) = (free_port(), free_port(), free_port(), free_port());
            let config = serde_json::json!({"pebble": {
                "listenAddress": format!("127.0.0.1:{port}"),
                "managementListenAddress": format!("127.0.0.1:{management}"),
                "certificate": chain, "privateKey": key,
                "httpPort": http, "tlsPort": tls,
                "ocspResponderURL": "", "externalAccountBindingRequired": false,
                "retryAfter": {"authz": 1, "order": 1},
                "profiles": {"default": {"description": "short", "validityPeriod": validity}},
            }});
            let path = directory.path().join("pebble.json");
            fs::write(&path, config.to_string()).expect("the directory is ours");
            let servers = Command::new(names)
                .args(["-defaultIPv4", "127.0.0.1", "-defaultIPv6", ""])
                .args(["-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", ""])
                .args([
                    "-dnsserver",
                    &format!("127.0.0.1:{dns}"),
                    "-management",
                    &format!("127.0.0.1:{control}"),
                ])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("it starts");
            let log = fs::File::create(directory.path().join("log")).expect("the directory is ours");
            let authority_process = Command::new(pebble)
                .arg("-config")
                .arg(&path)
                .args(["-dnsserver", &format!("127.0.0.1:{dns}")])
                .env("PEBBLE_VA_NOSLEEP", "1")
                .stdout(log.try_clone().expect("a file"))
                .stderr(log)
                .spawn()
                .expect("it starts");
            // It keeps its own key only as long as `authority` keeps the files.
            let started = Self {
                directory,
                children: vec![servers, authority_process],
                port,
                management,
            };
            let root = started.root();
            wait_until("the authority", || {
                Command::new("curl")
                    .args(["-sf", "--cacert", root.to_str().expect("UTF-8"), &started.url()])
                    .output()
                    .is_ok_and(|output| output.status.success())
            });
            drop(authority);
            Some(started)
        }

        /// Who signed the certificate it is reached by.
        fn root(&self) -> PathBuf {
            self.directory.path().join("root.pem")
        }

        fn url(&self) -> String {
            format!("https://localhost:{}/dir", self.port)
        }

        /// The authority whose certificates it gives out, as a file.
        fn issuer(&self) -> PathBuf {
            let url = format!("https://localhost:{}/roots/0", self.management);
            let text = curl(&["--cacert", self.root().to_str().expect("UTF-8"), &url]);
            let path = self.directory.path().join("issuer.pem");
            fs::write(&path, text).expect("the directory is ours");
            path
        }

        /// A site of these hosts whose certificates it gives; it listens on the ports that are asked.
        fn site(&self, http: u16, tls: u16, hosts: &str, more: &str) -> Haulier {
            let site = Site::new()
                .file("index.html", "page")
                .listen(&format!("\"127.0.0.1:{http}\""))
                .server(&format!("https = \"127.0.0.1:{tls}\""))
                .setting(&format!("hosts = {hosts}"));
            let state = self.directory.path().join("state");
            let site = site.config(&format!(
                "[tls]\ndirectory = {:?}\nemail = \"ops@shop.example.com\"\nstate = {state:?}\n{more}",
                self.url()
            ));
            let (config, _) = site.prepare();
            let mut command = Haulier::command();
            command
                .args(["run", "-c"])
                .arg(config)
                .env("SSL_CERT_FILE", self.root());
            Haulier::start(command, vec![Box::new(site)])
        }
    }

    impl Drop for Pebble {
        fn drop(&mut self) {
            for child in &mut self.children {
                let _ = child.kill();
                let _ = child.wait();
            }
            if std::thread::panicking() {
                let log = fs::read_to_string(self.directory.path().join("log"));
                eprintln!("log of the authority:\n{}", log.unwrap_or_default());
            }
        }
    }

    #[test]
    fn certificates_are_ordered_by_http() {
        let (http, tls) = (free_port(), free_port());
        let Some(pebble) = Pebble::start(http, tls, 7_776_000) else {
            return;
        };
        let hosts = "[\"shop.example.com\", \"www.shop.example.com\"]";
        let server = pebble.site(http, tls, hosts, "challenge = \"http-01\"");
        let issuer = pebble.issuer();
        let first = wait_for_certificate(&server, &issuer, "shop.example.com");
        wait_for_certificate(&server, &issuer, "www.shop.example.com");
        let left = server
            .metrics()
            .value("haulier_certificate_expiry_seconds{site=\"test\"}");
        assert!((89.0 * 86_400.0..90.1 * 86_400.0).contains(&left), "{left}");
        let answer = server.ask(&Request::get("/").with("Host", "shop.example.com"));
        assert_eq!(answer.status(), 308, "now that there is a certificate");
        let page = Connection::open(server.admin()).ask(&Request::get("/").with("Host", "localhost"));
        let page = page.expect(200).text();
        let table = page.split("Of sites with TLS, the first to end first").nth(1);
        let table = table.and_then(|rest| rest.split("</table>").next()).expect("a table");
        assert!(table.contains("<b class=\"up\">ends in 89 days</b>"), "{table}");
        drop(server);
        // What was ordered is there after a restart, without an order.
        let server = pebble.site(http, tls, hosts, "");
        assert_eq!(shown(&server, &issuer, "shop.example.com"), Some(first));
        let challenges = walk(&pebble.directory.path().join("state"), "challenges");
        assert_eq!(fs::read_dir(challenges).expect("it is there").count(), 0);
    }

    #[test]
    fn certificates_are_ordered_by_tls_alone_and_renewed_in_time() {
        let (http, tls) = (free_port(), free_port());
        let Some(pebble) = Pebble::start(http, tls, 24) else {
            return;
        };
        // Another port than the one that is asked.
        let other = free_port();
        let server = pebble.site(other, tls, "[\"shop.example.com\"]", "challenge = \"tls-alpn-01\"");
        let issuer = pebble.issuer();
        let first = wait_for_certificate(&server, &issuer, "shop.example.com");
        let mut held = Connection::open(server.https()).secured("shop.example.com", &client(&issuer, &[&TLS13]));
        let request = Request::get("/").with("Host", "shop.example.com");
        held.ask(&request).expect(200);
        wait_until("a renewed certificate", || {
            // A connection that is used does not notice.
            held.ask(&request).expect(200);
            std::thread::sleep(Duration::from_millis(200));
            shown(&server, &issuer, "shop.example.com").is_some_and(|shown| shown != first)
        });
    }

    #[test]
    fn of_two_servers_on_one_name_one_orders_and_both_serve() {
        let (http, tls) = (free_port(), free_port());
        let Some(pebble) = Pebble::start(http, tls, 7_776_000) else {
            return;
        };
        let one = pebble.site(http, tls, "[\"shop.example.com\"]", "");
        let two = pebble.site(
            free_port(),
            free_port(),
            "[\"shop.example.com\"]",
            "challenge = \"http-01\"",
        );
        let issuer = pebble.issuer();
        let of_one = wait_for_certificate(&one, &issuer, "shop.example.com");
        let of_two = wait_for_certificate(&two, &issuer, "shop.example.com");
        assert_eq!(of_one, of_two);
        let orders = |server: &Haulier| {
            let lines = server.lines();
            lines
                .iter()
                .filter(|line| line.contains("certificate received"))
                .count()
        };
        assert_eq!(orders(&one) + orders(&two), 1);
    }

    #[test]
    fn a_name_that_is_not_ours_is_said_with_the_authoritys_reason() {
        let (http, tls) = (free_port(), free_port());
        let Some(pebble) = Pebble::start(http, tls, 7_776_000) else {
            return;
        };
        // Nobody listens where the authority asks.
        let server = pebble.site(
            free_port(),
            free_port(),
            "[\"shop.example.com\"]",
            "challenge = \"http-01\"",
        );
        server.wait_for_line("no certificate");
        let line = server.lines().into_iter().find(|line| line.contains("no certificate"));
        let line: Value = serde_json::from_str(&line.expect("just seen")).expect("JSON");
        assert!(
            line["error"].as_str().is_some_and(|error| error.contains("refused")),
            "{line}"
        );
        assert!(
            line["again_in_s"].as_u64().is_some_and(|seconds| seconds >= 300),
            "{line}"
        );
        // A page that cannot be had by TLS is not sent there.
        server
            .ask(&Request::get("/").with("Host", "shop.example.com"))
            .expect(200);
    }

    /// `check --live` with certificates of the authority at `url`, where names have the addresses of this file.
    fn check_live(pebble: &Pebble, url: &str, hosts: &str, names: Option<&Path>) -> (Option<i32>, String) {
        let place = readable_directory();
        fs::create_dir(place.path().join("site")).expect("the directory is ours");
        fs::write(place.path().join("site/index.html"), "page").expect("the directory is ours");
        let state = place.path().join("state");
        let text = format!(
            "[server]\nhttp = \"127.0.0.1:0\"\nhttps = \"127.0.0.1:0\"\nadmin = \"off\"\n[tls]\ndirectory = {url:?}\n\
             state = {state:?}\n[site.test]\nroot = \"site\"\nhosts = {hosts}\n"
        );
        let config = place.path().join("haulier.toml");
        fs::write(&config, text).expect("the directory is ours");
        let mut command = match names {
            None => Haulier::command(),
            Some(names) => {
                let mut command = Command::new("unshare");
                let script = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";
                command.args(["--mount", "sh", "-c", script]).arg(names);
                command.arg(Haulier::command().get_program());
                command
            }
        };
        command.args(["check", "--live", "-c"]).arg(&config);
        let output = command.env("SSL_CERT_FILE", pebble.root()).output().expect("it runs");
        let made = walk(&state, "certificates");
        assert!(!made.exists(), "nothing is ordered: {made:?}");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), said)
    }

    #[test]
    fn check_live_asks_the_authority_and_where_names_lead_and_orders_nothing() {
        let Some(pebble) = Pebble::start(free_port(), free_port(), 7_776_000) else {
            return;
        };
        let nobody = format!("https://localhost:{}/dir", free_port());
        let (code, said) = check_live(&pebble, &nobody, "[\"shop.nowhere.example\"]", None);
        assert_eq!(code, Some(2), "{said}");
        assert!(
            said.contains("error[live::authority]") && said.contains("refused"),
            "{said}"
        );
        assert!(
            said.contains("error[live::name]: shop.nowhere.example has no address"),
            "{said}"
        );
        let page = format!("https://localhost:{}/roots/0", pebble.management);
        let (_, said) = check_live(&pebble, &page, "[\"shop.nowhere.example\"]", None);
        assert!(said.contains("no directory of an ACME server"), "{said}");

        let allowed = Command::new("unshare")
            .args(["--mount", "true"])
            .stderr(Stdio::null())
            .status();
        if !allowed.is_ok_and(|status| status.success()) {
            println!("SKIPPED: names with addresses of our own need a mount namespace");
            return;
        }
        let names = pebble.directory.path().join("hosts");
        let lines = "127.0.0.1 localhost here.nowhere.example\n192.0.2.7 away.nowhere.example\n";
        fs::write(&names, lines).expect("the directory is ours");
        let hosts = "[\"here.nowhere.example\", \"away.nowhere.example\"]";
        let (code, said) = check_live(&pebble, &pebble.url(), hosts, Some(&names));
        assert_eq!(code, Some(0), "{said}");
        assert!(
            said.contains("warning[live::name]: away.nowhere.example leads to 192.0.2.7, no address of this machine"),
            "{said}"
        );
        assert_eq!(said.matches("live::").count(), 1, "{said}");
    }

    /// The directory of this name somewhere below.
    fn walk(directory: &Path, name: &str) -> PathBuf {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let below = entries.map(|entry| entry.path()).filter(|path| path.is_dir());
        let found = below.map(|path| if path.ends_with(name) { path } else { walk(&path, name) });
        found.filter(|path| path.ends_with(name)).last().unwrap_or_default()
    }
}
