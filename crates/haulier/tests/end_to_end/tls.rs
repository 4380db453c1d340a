//! TLS: hands shaken in every way, and everything HTTP does beneath it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, HandshakeKind, ProtocolVersion, SupportedProtocolVersion};
use serde_json::Value;
use socket2::{Domain, Socket, Type};

use super::support::client::{Connection, PATIENCE, Request};
use super::support::haulier::Haulier;
use super::support::site::Site;
use super::support::tls::{Authority, curl, openssl};
use super::support::{content, wait_until};

const BOTH: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];

/// The site with TLS, and a certificate for `shop.test`.
fn secure(site: Site, authority: &Authority) -> Site {
    site.server("https = \"127.0.0.1:0\"")
        .setting("hosts = [\"shop.test\"]")
        .config(&format!("[site.test.tls]\n{}", authority.lines("shop", &["shop.test"])))
}

fn connect(server: &Haulier, config: &Arc<ClientConfig>) -> Connection {
    Connection::open(server.https()).secured("shop.test", config)
}

fn get(target: &str) -> Request {
    Request::get(target).with("Host", "shop.test")
}

/// A connection whose receive buffer holds little: what is not read stays with the server.
fn narrow(address: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(16 * 1024).expect("a small buffer");
    socket.connect(&address.into()).expect("the server listens");
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    stream
}

#[test]
fn both_versions_serve_and_php_and_the_log_know_it() {
    let authority = Authority::new();
    let site = Site::new().file("a.txt", "page").php(
        "tell.php",
        "echo json_encode([$_SERVER['HTTPS'], $_SERVER['REQUEST_SCHEME'], $_SERVER['SERVER_PORT']]);",
    );
    let server = secure(site, &authority).start();
    for (version, expected) in [(&TLS12, ProtocolVersion::TLSv1_2), (&TLS13, ProtocolVersion::TLSv1_3)] {
        let mut connection = connect(&server, &authority.client(&[version]));
        assert_eq!(connection.ask(&get("/a.txt")).expect(200).text(), "page");
        assert_eq!(connection.wire().connection().protocol_version(), Some(expected));
        // The same connection carries further requests.
        let told: Value = serde_json::from_str(&connection.ask(&get("/tell.php")).expect(200).text()).expect("JSON");
        let port = server.https().port().to_string();
        assert_eq!(told, serde_json::json!(["on", "https", port]));
    }
    assert_eq!(server.access_line_for("/tell.php")["scheme"], "https");
    let url = format!("https://shop.test:{}/a.txt", server.https().port());
    let resolve = format!("shop.test:{}:127.0.0.1", server.https().port());
    let file = authority.file();
    let file = file.to_str().expect("UTF-8");
    for version in ["--tlsv1.2", "--tlsv1.3"] {
        let max = if version == "--tlsv1.2" { "1.2" } else { "1.3" };
        let said = curl(&["--cacert", file, "--resolve", &resolve, version, "--tls-max", max, &url]);
        assert_eq!(said, "page", "{version}");
    }
}

/// A full socket withholds a byte of what was encrypted already. The next call must pass over it wherever it lies: in the
/// head, in a piece of the body, or in what ends a chunk.
#[test]
fn long_bodies_of_php_arrive_to_the_byte_by_a_client_that_pauses() {
    const LENGTH: usize = 20_000_000;
    let authority = Authority::new();
    let whole = content(LENGTH);
    let site = Site::new()
        .file("big.bin", &whole)
        .php("whole.php", "readfile(__DIR__ . '/big.bin');")
        .php(
            "length.php",
            &format!("header('Content-Length: {LENGTH}'); readfile(__DIR__ . '/big.bin');"),
        )
        .php(
            "pieces.php",
            "$file = fopen(__DIR__ . '/big.bin', 'r'); while (!feof($file)) { echo fread($file, 65537); flush(); }",
        )
        .php(
            "rule.php",
            "header('Content-Type: video/mp4'); readfile(__DIR__ . '/big.bin');",
        )
        .config("[site.test.offload]\ntypes = [\"video/*\"]");
    let server = secure(site, &authority).start();
    for version in ["1.1", "1.0"] {
        for target in ["/whole.php", "/length.php", "/pieces.php", "/rule.php"] {
            let mut connection = connect(&server, &authority.client(&BOTH));
            connection.send(format!(
                "GET {target} HTTP/{version}\r\nHost: shop.test\r\nConnection: close\r\n\r\n"
            ));
            wait_until("a response that waits for its client", || {
                server.metrics().count("haulier_responses_sending{site=\"test\"}") > 0
            });
            let response = connection.read_response("GET").expect("a whole answer").expect(200);
            let wrong = response.body.iter().zip(&whole).position(|(one, other)| one != other);
            assert_eq!((response.body.len(), wrong), (LENGTH, None), "{target}, HTTP/{version}");
            server.access_line_for(target);
        }
    }
}

#[test]
fn only_the_newest_version_is_spoken_where_that_is_asked_for() {
    let authority = Authority::new();
    let site = secure(Site::new().file("a.txt", "page"), &authority).config("[tls]\nmin = \"1.3\"");
    let server = site.start();
    connect(&server, &authority.client(&[&TLS13]))
        .ask(&get("/a.txt"))
        .expect(200);
    let refused = connect(&server, &authority.client(&[&TLS12])).try_ask(&get("/a.txt"));
    assert!(refused.is_err(), "TLS 1.2 is not spoken");
}

#[test]
fn the_name_a_client_asks_for_chooses_the_certificate() {
    let authority = Authority::new();
    let site = secure(Site::new().file("a.txt", "shop"), &authority);
    let other = site.writable("other");
    std::fs::write(other.join("a.txt"), "blog").expect("the directory is ours");
    let tables = format!(
        "[site.blog]\nroot = {other:?}\nhosts = [\"*.blog.test\"]\napp = \"static\"\n[site.blog.tls]\n{}",
        authority.lines("blog", &["*.blog.test"])
    );
    let server = site.config(&tables).start();
    let config = authority.client(&BOTH);
    let ask = |name: &str| {
        let mut connection = Connection::open(server.https()).secured(name, &config);
        connection.try_ask(&Request::get("/a.txt").with("Host", name))
    };
    assert_eq!(ask("shop.test").expect("its certificate").text(), "shop");
    assert_eq!(ask("a.blog.test").expect("its certificate").text(), "blog");
    // A name nobody here has: no certificate would be right, so none is shown.
    let error = ask("other.test").expect_err("no certificate").to_string();
    assert!(error.contains("AccessDenied") || error.contains("alert"), "{error}");
    let nameless = openssl(server.https(), &["-noservername"]);
    assert!(nameless.contains("-----BEGIN CERTIFICATE-----"), "{nameless}");
}

#[test]
fn a_client_that_comes_back_resumes_its_session() {
    let authority = Authority::new();
    let server = secure(Site::new().file("a.txt", "page"), &authority).start();
    for version in BOTH {
        let config = authority.client(&[version]);
        let kind = || {
            let mut connection = connect(&server, &config);
            connection.ask(&get("/a.txt")).expect(200);
            connection.wire().connection().handshake_kind()
        };
        assert_eq!(kind(), Some(HandshakeKind::Full));
        assert_eq!(kind(), Some(HandshakeKind::Resumed), "{version:?}");
    }
    let session = authority.path("session");
    let session = session.to_str().expect("UTF-8");
    let first = openssl(
        server.https(),
        &["-tls1_2", "-servername", "shop.test", "-sess_out", session],
    );
    assert!(first.contains("New, TLSv1.2"), "{first}");
    let second = openssl(
        server.https(),
        &["-tls1_2", "-servername", "shop.test", "-sess_in", session],
    );
    assert!(second.contains("Reused, TLSv1.2"), "{second}");
}

#[test]
fn the_protocol_is_agreed_on_and_one_we_do_not_speak_is_refused() {
    let authority = Authority::new();
    let server = secure(Site::new().file("a.txt", "page"), &authority).start();
    let said = openssl(server.https(), &["-servername", "shop.test", "-alpn", "http/1.1"]);
    assert!(said.contains("ALPN protocol: http/1.1"), "{said}");
    let said = openssl(server.https(), &["-servername", "shop.test", "-alpn", "http/1.1,h2"]);
    assert!(said.contains("ALPN protocol: h2"), "ours decides: {said}");
    let said = openssl(server.https(), &["-servername", "shop.test", "-alpn", "spdy/3"]);
    assert!(said.contains("no application protocol"), "{said}");
    let said = openssl(server.https(), &["-servername", "shop.test"]);
    assert!(said.contains("No ALPN negotiated"), "{said}");
    // What old versions and weak ciphers are for is long over.
    for weak in [
        &["-tls1_1"][..],
        &["-tls1_2", "-cipher", "AES128-SHA:ECDHE-RSA-AES128-SHA256"],
    ] {
        let said = openssl(server.https(), &[weak, &["-servername", "shop.test"]].concat());
        assert!(!said.contains("-----BEGIN CERTIFICATE-----"), "{weak:?}: {said}");
    }
}

#[test]
fn clients_without_tls_are_sent_where_it_is() {
    let authority = Authority::new();
    let site = Site::new()
        .file("a.txt", "page")
        .file(".well-known/acme-challenge/of-another", "proof");
    let server = secure(site, &authority).start();
    let port = server.https().port();
    let answer = server.ask(&get("/a%20b.txt?c=d&e")).expect(308);
    let expected = format!("https://shop.test:{port}/a%20b.txt?c=d&e");
    assert_eq!(answer.field("Location"), Some(expected.as_str()));
    assert_eq!(answer.field("Strict-Transport-Security"), None);
    let posted = server.ask(&Request::post("/a.txt", "x").with("Host", "shop.test"));
    assert_eq!(posted.status(), 308, "method and body stay");
    // Another program may prove that the name is ours by a file.
    assert_eq!(
        server
            .ask(&get("/.well-known/acme-challenge/of-another"))
            .expect(200)
            .text(),
        "proof"
    );
    let mut connection = connect(&server, &authority.client(&BOTH));
    let page = connection.ask(&get("/a.txt")).expect(200);
    assert_eq!(page.field("Strict-Transport-Security"), None, "only when asked for");
}

#[test]
fn browsers_are_told_to_insist_on_tls_when_that_is_asked_for() {
    let authority = Authority::new();
    let site = Site::new().file("a.txt", "page").php("index.php", "echo 'php';");
    let site = site
        .server("https = \"127.0.0.1:0\"")
        .setting("hosts = [\"shop.test\"]")
        .config(&format!(
            "[site.test.tls]\nhsts = \"1y\"\n{}",
            authority.lines("shop", &["shop.test"])
        ));
    let server = site.start();
    let mut connection = connect(&server, &authority.client(&BOTH));
    for target in ["/a.txt", "/index.php", "/missing"] {
        let answer = connection.ask(&get(target));
        assert_eq!(
            answer.field("Strict-Transport-Security"),
            Some("max-age=31536000"),
            "{target}"
        );
    }
    let answer = server.ask(&get("/a.txt")).expect(308);
    assert_eq!(answer.field("Strict-Transport-Security"), None, "RFC 6797 §7.2");
}

#[test]
fn a_site_may_serve_both_ways() {
    let authority = Authority::new();
    let site = Site::new()
        .file("a.txt", "page")
        .server("https = \"127.0.0.1:0\"")
        .setting("hosts = [\"shop.test\"]")
        .config(&format!(
            "[site.test.tls]\nredirect = false\n{}",
            authority.lines("shop", &["shop.test"])
        ));
    let server = site.start();
    server.ask(&get("/a.txt")).expect(200);
    connect(&server, &authority.client(&BOTH))
        .ask(&get("/a.txt"))
        .expect(200);
}

#[test]
fn whoever_takes_one_port_for_the_other_is_told() {
    let authority = Authority::new();
    let server = secure(Site::new().file("a.txt", "page"), &authority).start();
    let mut plain = Connection::open(server.https());
    let answer = plain.ask(&get("/a.txt")).expect(400);
    assert!(answer.text().contains("https://"), "{}", answer.text());
    assert!(plain.is_closed_by_server() || answer.field("Connection").is_none());
    assert_eq!(server.access_line_for("/a.txt")["reason"], "plain_http");

    let mut greeting = Connection::open(server.address()).secured("shop.test", &authority.client(&BOTH));
    let error = greeting.try_ask(&get("/a.txt")).expect_err("no TLS there");
    assert!(error.to_string().contains("HandshakeFailure"), "{error}");
}

#[test]
fn noise_and_slow_greetings_are_ended_and_small_pieces_are_not() {
    let authority = Authority::new();
    let site = secure(Site::new().file("a.txt", "page"), &authority).limit("head_timeout = \"1s\"");
    let server = site.start();
    let ends = |bytes: &[u8]| {
        let mut connection = Connection::open(server.https());
        connection.send(bytes);
        connection.is_closed_by_server() || connection.read_to_end().is_ok_and(|rest| rest.len() < 16)
    };
    assert!(ends(b"\x80\x2e\x01\x03\x01"), "SSL 2");
    assert!(ends(b"\x16\x03\x01\x00\x05nonsense and more"), "a record of noise");
    assert!(ends(b"\x16\x03\x01\xff\xff"), "a record longer than any may be");
    assert!(
        ends(&[b"\x16\x03\x01\x40\x00\x01\x00\xff\xff".as_slice(), &[0; 0x4000]].concat()),
        "half of a greeting"
    );
    let began = Instant::now();
    assert!(ends(b"\x16\x03\x01"), "a greeting that never comes");
    assert!(began.elapsed() >= Duration::from_millis(900), "it was waited for");

    // Byte by byte, as a bad line delivers it, to somebody more patient.
    let server = secure(Site::new().file("a.txt", "page"), &authority).start();
    let mut connection = connect(&server, &authority.client(&BOTH));
    let mut greeting = Vec::new();
    connection
        .wire()
        .connection()
        .write_tls(&mut greeting)
        .expect("a greeting");
    for byte in greeting.chunks(1) {
        (&mut connection.wire().socket()).write_all(byte).expect("it is read");
    }
    connection.ask(&get("/a.txt")).expect(200);
}

#[test]
fn a_handshake_that_never_ends_takes_no_more_than_its_share() {
    let authority = Authority::new();
    let server = secure(Site::new().file("a.txt", "page"), &authority).start();
    let before = server.resident();
    let mut stream = TcpStream::connect(server.https()).expect("the server listens");
    stream.set_write_timeout(Some(PATIENCE)).expect("a time-out");
    // Records of an endless greeting: a handshake message of 16 MB, a piece in each.
    let mut sent = 0_usize;
    let mut record = vec![0x16, 3, 1, 0x40, 0];
    record.extend([1, 0xff, 0xff, 0xff]);
    record.resize(5 + 0x4000, 0);
    while sent < 64 << 20 && stream.write_all(&record).is_ok() {
        sent += record.len();
        record[5..9].fill(0);
    }
    assert!(sent < 32 << 20, "{sent} bytes of a handshake were taken");
    assert!(server.resident() < before + (8 << 20));
}

#[test]
fn files_ranges_and_heads_are_the_same_as_without() {
    let authority = Authority::new();
    let bytes = content(3 << 20);
    let site = Site::new().file("large.bin", &bytes).file("small.txt", "0123456789");
    let server = secure(site, &authority).start();
    for version in BOTH {
        let mut connection = connect(&server, &authority.client(&[version]));
        let whole = connection.ask(&get("/large.bin")).expect(200);
        assert!(whole.body == bytes, "{} bytes came", whole.body.len());
        let part = connection
            .ask(&get("/large.bin").with("Range", "bytes=1000000-2999999"))
            .expect(206);
        assert!(part.body == bytes[1_000_000..3_000_000]);
        let several = connection
            .ask(&get("/small.txt").with("Range", "bytes=0-1,5-6"))
            .expect(206);
        assert!(several.text().contains("01") && several.text().contains("56"));
        let head = connection.ask(&Request::head("/large.bin").with("Host", "shop.test"));
        assert_eq!(head.field("Content-Length"), Some("3145728"));
        let tag = whole.field("ETag").expect("a tag").to_owned();
        connection
            .ask(&get("/large.bin").with("If-None-Match", &tag))
            .expect(304);
        let last = connection
            .ask(&get("/small.txt").with("Connection", "close"))
            .expect(200);
        assert_eq!(last.text(), "0123456789");
        assert!(connection.is_closed_by_server());
    }
}

#[test]
fn a_slow_reader_gets_every_byte_once_and_holds_little() {
    let authority = Authority::new();
    let bytes = content(24 << 20);
    let site = Site::new().file("large.bin", &bytes).php(
        "stream.php",
        "for ($i = 0; $i < 3000; $i++) { echo str_repeat(chr(97 + $i % 26), 1000); if ($i % 100 == 0) flush(); }",
    );
    let server = secure(site, &authority).start();
    let config = authority.client(&BOTH);
    let readers: Vec<_> = (0..20)
        .map(|number| {
            let stream = narrow(server.https());
            let mut wire = super::support::tls::Wire::secure(stream, "shop.test", &config);
            let target = if number % 2 == 0 { "/large.bin" } else { "/stream.php" };
            let request = format!("GET {target} HTTP/1.1\r\nHost: shop.test\r\nConnection: close\r\n\r\n");
            wire.write_all(request.as_bytes()).expect("it is read");
            wire
        })
        .collect();
    wait_until("downloads under way", || {
        server.metrics().count("haulier_responses_sending{site=\"test\"}") >= 10
    });
    assert!(server.resident() < 96 << 20, "{} bytes", server.resident());
    let expected: Vec<u8> = (0..3000).flat_map(|i| [97 + (i % 26) as u8; 1000]).collect();
    for (number, mut wire) in readers.into_iter().enumerate().take(4) {
        let mut answer = Vec::new();
        let mut piece = [0; 5000];
        // In small bites, so that the server has to stop and go on.
        loop {
            match wire.read(&mut piece).expect("bytes") {
                0 => break,
                count => answer.extend_from_slice(&piece[..count]),
            }
        }
        let body = answer.windows(4).position(|end| end == b"\r\n\r\n").expect("a head") + 4;
        if number % 2 == 0 {
            assert!(answer[body..] == bytes, "{} bytes came", answer.len() - body);
        } else {
            let joined = unchunk(&answer[..body], &answer[body..]);
            assert!(joined == expected, "{} bytes came", joined.len());
        }
    }
}

/// The body behind a head, whichever way it is framed.
fn unchunk(head: &[u8], mut body: &[u8]) -> Vec<u8> {
    if !String::from_utf8_lossy(head).contains("chunked") {
        return body.to_vec();
    }
    let mut joined = Vec::new();
    loop {
        let end = body.windows(2).position(|end| end == b"\r\n").expect("a chunk head");
        let size = std::str::from_utf8(&body[..end]).expect("ASCII");
        let size = usize::from_str_radix(size, 16).expect("a size");
        if size == 0 {
            return joined;
        }
        joined.extend_from_slice(&body[end + 2..end + 2 + size]);
        body = &body[end + 2 + size + 2..];
    }
}

#[test]
fn uploads_and_event_streams_pass() {
    let authority = Authority::new();
    let site = Site::new()
        .php(
            "hash.php",
            "echo strlen($b = file_get_contents('php://input')), ' ', md5($b);",
        )
        .php(
            "events.php",
            "header('Content-Type: text/event-stream'); foreach ([1, 2, 3] as $i) { echo \"data: $i\\n\\n\"; \
             ob_flush(); flush(); while (!file_exists(\"../gates/$i\")) usleep(5000); clearstatcache(); }",
        )
        .writable_for_gate();
    let site = secure(site, &authority);
    let gates = site.writable("gates");
    let server = site.limit("body = \"32MiB\"").start();
    let config = authority.client(&BOTH);
    let bytes = content(8 << 20);
    let mut connection = connect(&server, &config);
    let answer = connection.ask(&Request::post("/hash.php", bytes.clone()).with("Host", "shop.test"));
    let expected = curl_md5(&bytes);
    assert_eq!(answer.expect(200).text(), format!("{} {expected}", bytes.len()));

    let mut stream = connect(&server, &config);
    stream.send(get("/events.php").to_bytes());
    assert_eq!(stream.read_head().expect("a head").status, 200);
    for number in 1..=3 {
        let mut said = String::new();
        while !said.contains(&format!("data: {number}")) {
            said += &String::from_utf8_lossy(&stream.read_some().expect("an event"));
        }
        std::fs::write(gates.join(number.to_string()), "").expect("the directory is ours");
    }
}

/// The MD5 of some bytes, by a program everybody has.
fn curl_md5(bytes: &[u8]) -> String {
    let mut child = Command::new("md5sum")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("md5sum runs");
    child.stdin.take().expect("piped").write_all(bytes).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    String::from_utf8_lossy(&output.stdout)[..32].to_owned()
}

#[test]
fn a_thousand_idle_connections_hold_little() {
    let authority = Authority::new();
    let site = secure(Site::new().file("a.txt", "page"), &authority);
    let server = site.limit("idle_timeout = \"5m\"").start();
    let config = authority.client(&[&TLS13]);
    let open = |count: usize| -> Vec<Connection> {
        (0..count)
            .map(|_| {
                let mut connection = connect(&server, &config);
                connection.ask(&get("/a.txt")).expect(200);
                connection
            })
            .collect()
    };
    // What a thread keeps for itself is there after the first of them.
    let first = open(100);
    let before = server.resident();
    let more = open(1000);
    let each = server.resident().saturating_sub(before) / 1000;
    eprintln!("an idle connection holds {each} bytes");
    assert!(each < 16 * 1024, "{each} bytes a connection");
    drop((first, more));
}

#[test]
fn a_proxy_header_comes_before_the_greeting() {
    let authority = Authority::new();
    let site = Site::new()
        .php("tell.php", "echo $_SERVER['REMOTE_ADDR'], ' ', $_SERVER['HTTPS'];")
        .server("trusted_proxies = [\"127.0.0.0/8\"]\nproxy_protocol = true");
    let server = secure(site, &authority).start();
    let mut connection = Connection::open(server.https());
    for piece in ["PROXY TCP4 192.0.2.7 ", "192.0.2.80 40000 443\r\n"] {
        connection.send(piece);
        thread::sleep(Duration::from_millis(20));
    }
    let mut connection = connection.secured("shop.test", &authority.client(&BOTH));
    assert_eq!(connection.ask(&get("/tell.php")).expect(200).text(), "192.0.2.7 on");
    let mut stranger = connect(&server, &authority.client(&BOTH));
    stranger.try_ask(&get("/tell.php")).expect_err("without its header");
}

#[test]
fn a_stop_lets_a_download_finish_and_says_goodbye() {
    let authority = Authority::new();
    let bytes = content(8 << 20);
    let mut server = secure(Site::new().file("large.bin", &bytes), &authority).start();
    let mut wire = super::support::tls::Wire::secure(narrow(server.https()), "shop.test", &authority.client(&BOTH));
    wire.write_all(b"GET /large.bin HTTP/1.1\r\nHost: shop.test\r\n\r\n")
        .expect("it is read");
    let mut answer = vec![0; 1000];
    wire.read_exact(&mut answer).expect("the first bytes");
    server.signal(rustix::process::Signal::TERM);
    // An end without close_notify would be an error here.
    wire.read_to_end(&mut answer).expect("the rest, to an end that is said");
    assert!(answer.ends_with(&bytes[bytes.len() - 10_000..]));
    assert!(
        server
            .wait_within(Duration::from_secs(60))
            .is_some_and(|status| status.success())
    );
}

#[test]
fn the_preface_of_http2_is_refused_where_the_handshake_did_not_agree_on_it() {
    let authority = Authority::new();
    let server = secure(Site::new().file("a.txt", "page"), &authority).start();
    for protocols in [vec![], vec![b"http/1.1".to_vec()]] {
        let mut config = ClientConfig::clone(&authority.client(&BOTH));
        config.alpn_protocols = protocols;
        let mut connection = connect(&server, &Arc::new(config));
        connection.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
        // An answer of HTTP/1.1, and the end.
        connection.read_response("GET").expect("an answer").expect(505);
        assert!(connection.is_closed_by_server());
    }
}

#[test]
fn http2_is_spoken_with_clients_that_can() {
    let authority = Authority::new();
    let bytes = content(5 << 20);
    let site = Site::new().file("large.bin", &bytes).php(
        "tell.php",
        "echo $_SERVER['SERVER_PROTOCOL'], ' ', $_SERVER['HTTPS'], ' ', strlen(file_get_contents('php://input'));",
    );
    let server = secure(site, &authority).limit("body = \"32MiB\"").start();
    let port = server.https().port();
    let file = authority.file();
    let upload = authority.path("upload.bin");
    std::fs::write(&upload, &bytes).expect("the directory is ours");
    let fetched = authority.path("fetched.bin");
    let (origin, resolve) = (
        format!("https://shop.test:{port}"),
        format!("shop.test:{port}:127.0.0.1"),
    );
    let ask = |version: &str, arguments: &[&str]| {
        let own = [
            "--cacert",
            file.to_str().expect("UTF-8"),
            "--resolve",
            &resolve,
            "--http2",
            version,
        ];
        curl(&[&own[..], arguments].concat())
    };
    for version in ["--tlsv1.2", "--tlsv1.3"] {
        let told = ask(version, &["-w", " %{http_version}", &format!("{origin}/tell.php")]);
        assert_eq!(told, "HTTP/2.0 on 0 2");
        let data = format!("@{}", upload.display());
        let told = ask(version, &["--data-binary", &data, &format!("{origin}/tell.php")]);
        assert_eq!(told, format!("HTTP/2.0 on {}", bytes.len()));
        let output = fetched.to_str().expect("UTF-8");
        // Slower than the server sends: it has to stop and go on.
        ask(
            version,
            &["-o", output, "--limit-rate", "4M", &format!("{origin}/large.bin")],
        );
        assert!(std::fs::read(&fetched).expect("it is there") == bytes);
    }
    let many = format!("{origin}/large.bin?[1-8]");
    let sizes = ask(
        "--tlsv1.3",
        &["-Z", "-o", "/dev/null", "-w", "%{size_download}\n", &many],
    );
    assert_eq!(sizes, format!("{}\n", bytes.len()).repeat(8));
    assert!(server.metrics().names().contains(&"haulier_connections{proto=\"h2\"}"));
    let line = server.access_line_for("/tell.php");
    assert_eq!(
        (&line["http"], &line["scheme"]),
        (&serde_json::json!("2.0"), &serde_json::json!("https"))
    );
}
