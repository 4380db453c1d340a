//! Addresses of every kind, and who is believed about a client.

use std::io::{Read, Write};
use std::net::Ipv6Addr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::support::client::Request;
use super::support::haulier::Haulier;
use super::support::site::Site;
use super::support::wait_until;

/// What PHP is told about the client and us.
const TELL: &str = "echo json_encode(array_map(fn ($name) => $_SERVER[$name] ?? null, array_combine($names = ['REMOTE_ADDR', \
    'HTTPS', 'REQUEST_SCHEME', 'SERVER_PORT', 'SERVER_NAME', 'HTTP_HOST', 'HTTP_X_FORWARDED_FOR', 'HTTP_FORWARDED', \
    'HTTP_X_FORWARDED_PROTO'], $names)));";

fn told(server: &Haulier, request: &Request) -> Value {
    let text = server.ask(request).expect(200).text();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn raw(server: &Haulier, bytes: impl AsRef<[u8]>) -> Value {
    let text = server.ask_raw(bytes).expect(200).text();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn several_addresses_and_a_socket_serve_the_same() {
    let site = Site::new().php("tell.php", TELL).file("a.txt", "page");
    let socket = site.writable("run").join("http.sock");
    let addresses = format!("[\"127.0.0.1:0\", \"[::1]:0\", \"unix:{}\"]", socket.display());
    let server = site.listen(&addresses).server("socket_mode = \"0640\"").start();
    server.get("/a.txt").expect(200);
    let line = server.start_line();
    let listens = line["listen"].as_array().expect("a list");
    assert_eq!(listens.len(), 3, "{line}");
    assert!(line["ts"].is_f64(), "one form of time everywhere: {line}");
    let v6 = listens[1].as_str().expect("text").parse().expect("an address");
    assert_eq!(told_at_v6(v6)["REMOTE_ADDR"], "::1");

    let mode = socket.metadata().expect("the socket is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    let said = ask_socket(&socket, "/tell.php");
    assert!(
        said.contains("\"REMOTE_ADDR\":\"127.0.0.1\"") && said.contains("\"SERVER_PORT\":\"80\""),
        "{said}"
    );
    drop(server);
    assert!(!socket.exists(), "the socket goes with its server");
}

fn told_at_v6(address: std::net::SocketAddr) -> Value {
    assert_eq!(address.ip(), Ipv6Addr::LOCALHOST);
    let mut connection = super::support::client::Connection::open(address);
    let text = connection.ask(&Request::get("/tell.php")).expect(200).text();
    serde_json::from_str(&text).expect("JSON")
}

fn ask_socket(socket: &Path, target: &str) -> String {
    let mut stream = UnixStream::connect(socket).expect("somebody listens");
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .expect("a time-out");
    write!(stream, "GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("it takes a request");
    let mut said = String::new();
    stream.read_to_string(&mut said).expect("an answer to its end");
    assert!(said.starts_with("HTTP/1.1 200 "), "{said}");
    said
}

#[test]
fn a_file_larger_than_every_buffer_comes_through_a_socket() {
    let content = "0123456789abcdef".repeat(256 * 1024);
    let site = Site::new().file("large.txt", &content);
    let socket = site.writable("run").join("http.sock");
    let server = site
        .listen(&format!("[\"127.0.0.1:0\", \"unix:{}\"]", socket.display()))
        .start();
    let said = ask_socket(&socket, "/large.txt");
    assert!(said.ends_with(&content), "{} bytes came", said.len());
    assert_eq!(server.access_line_for("/large.txt")["ip"], "127.0.0.1");
}

#[test]
fn a_killed_servers_socket_is_taken_over() {
    let site = Site::new().file("a.txt", "page");
    let socket = site.writable("run").join("http.sock");
    drop(std::os::unix::net::UnixListener::bind(&socket).expect("a free path"));
    assert!(socket.exists());
    let _server = site
        .listen(&format!("[\"127.0.0.1:0\", \"unix:{}\"]", socket.display()))
        .start();
    ask_socket(&socket, "/a.txt");
}

#[test]
fn strangers_are_not_believed_and_php_never_hears_them() {
    let server = Site::new()
        .php("tell.php", TELL)
        .server("trusted_proxies = [\"10.0.0.0/8\"]")
        .start();
    let request = Request::get("/tell.php")
        .with("X-Forwarded-For", "192.0.2.7")
        .with("X-Forwarded-Proto", "https")
        .with("X-Forwarded-Host", "evil.example")
        .with("Forwarded", "for=192.0.2.7;proto=https");
    let told = told(&server, &request);
    assert_eq!(told["REMOTE_ADDR"], "127.0.0.1", "{told}");
    assert_eq!(told["REQUEST_SCHEME"], "http", "{told}");
    for name in [
        "HTTPS",
        "HTTP_X_FORWARDED_FOR",
        "HTTP_X_FORWARDED_PROTO",
        "HTTP_FORWARDED",
    ] {
        assert_eq!(told[name], Value::Null, "{name} in {told}");
    }
    assert_ne!(told["SERVER_NAME"], "evil.example");
    let line = server.access_line_for("/tell.php");
    assert_eq!(
        (&line["ip"], &line["proxy"], &line["scheme"]),
        (&json!("127.0.0.1"), &Value::Null, &Value::Null)
    );
}

#[test]
fn a_trusted_proxy_says_who_the_client_is() {
    let server = Site::new()
        .php("tell.php", TELL)
        .server("trusted_proxies = [\"127.0.0.1\", \"10.0.0.0/8\"]")
        .start();
    // Whoever wrote the first address, it was not a proxy of ours.
    let request = Request::get("/tell.php")
        .with("X-Forwarded-For", "6.6.6.6, 192.0.2.7, 10.1.2.3")
        .with("X-Forwarded-Proto", "https")
        .with("X-Forwarded-Host", "shop.example:8443");
    let heard = told(&server, &request);
    let expected = [
        ("REMOTE_ADDR", "192.0.2.7"),
        ("HTTPS", "on"),
        ("REQUEST_SCHEME", "https"),
        ("SERVER_PORT", "8443"),
        ("SERVER_NAME", "shop.example"),
        ("HTTP_HOST", "shop.example:8443"),
    ];
    for (name, value) in expected {
        assert_eq!(heard[name], value, "{name} in {heard}");
    }
    let line = server.access_line_for("/tell.php");
    assert_eq!(line["ip"], "192.0.2.7", "{line}");
    assert_eq!(line["proxy"], "127.0.0.1", "{line}");
    assert_eq!(line["scheme"], "https", "{line}");
    assert_eq!(line["host"], "shop.example:8443", "{line}");

    let request = Request::get("/tell.php").with("Forwarded", "for=\"[2001:db8::7]:1234\";proto=https;host=b.example");
    let heard = told(&server, &request);
    assert_eq!(heard["REMOTE_ADDR"], "2001:db8::7", "{heard}");
    assert_eq!(
        (&heard["SERVER_PORT"], &heard["HTTP_HOST"]),
        (&json!("443"), &json!("b.example"))
    );
    let heard = told(&server, &Request::get("/tell.php"));
    assert_eq!(heard["REMOTE_ADDR"], "127.0.0.1", "a proxy may ask for itself: {heard}");
}

#[test]
fn a_proxy_header_names_the_client_of_the_whole_connection() {
    let server = Site::new()
        .php("tell.php", TELL)
        .server("trusted_proxies = [\"127.0.0.0/8\"]\nproxy_protocol = true")
        .start();
    let mut connection = server.connect();
    connection.send("PROXY TCP4 192.0.2.7 192.0.2.80 40000 443\r\n");
    for _ in 0..2 {
        let text = connection.ask(&Request::get("/tell.php")).expect(200).text();
        let heard: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(
            (&heard["REMOTE_ADDR"], &heard["SERVER_PORT"]),
            (&json!("192.0.2.7"), &json!("443"))
        );
        assert_eq!(heard["HTTPS"], Value::Null, "version 1 does not say so");
    }
    drop(connection);
    // RFC 8446 §6: TLS behind the header, in one piece with it.
    let mut greeted = server.connect();
    greeted.send(b"PROXY TCP4 192.0.2.7 192.0.2.80 40000 443\r\n\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03");
    assert_eq!(
        greeted.read_to_end().expect("an alert, and the end"),
        b"\x15\x03\x01\x00\x02\x02\x28"
    );
    let line = server.access_line_for("/tell.php");
    assert_eq!(
        (&line["ip"], &line["proxy"]),
        (&json!("192.0.2.7"), &json!("127.0.0.1"))
    );

    // Version 2, IPv6, with the extension that says TLS; in three pieces.
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x21\x00\x2c".to_vec();
    header.extend("2001:db8::7".parse::<Ipv6Addr>().expect("an address").octets());
    header.extend("2001:db8::80".parse::<Ipv6Addr>().expect("an address").octets());
    header.extend([0x9c, 0x40, 0x01, 0xbb]);
    header.extend([0x20, 0, 5, 1, 0, 0, 0, 0]);
    let mut connection = server.connect();
    for piece in [&header[..5], &header[5..30], &header[30..]] {
        connection.send(piece);
        std::thread::sleep(Duration::from_millis(30));
    }
    let text = connection.ask(&Request::get("/tell.php")).expect(200).text();
    let heard: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(
        (&heard["REMOTE_ADDR"], &heard["HTTPS"]),
        (&json!("2001:db8::7"), &json!("on"))
    );

    // A health check of the proxy itself.
    let local = [
        &b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00"[..],
        b"GET /tell.php HTTP/1.1\r\nHost: a\r\n\r\n",
    ]
    .concat();
    assert_eq!(raw(&server, local)["REMOTE_ADDR"], "127.0.0.1");
}

#[test]
fn a_proxy_without_its_header_is_refused() {
    let server = Site::new()
        .file("a.txt", "page")
        .server("trusted_proxies = [\"127.0.0.1\"]\nproxy_protocol = true")
        .start();
    server.get("/a.txt").expect(400);
    server
        .ask_raw("PROXY TCP4 nonsense\r\nGET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect(400);
    server.wait_for_line("no PROXY header");
    wait_until("the refusal in the access log", || {
        server.access_log().iter().any(|line| line["reason"] == "proxy_header")
    });
}

#[test]
fn a_stranger_may_not_send_a_proxy_header() {
    let server = Site::new()
        .php("tell.php", TELL)
        .server("trusted_proxies = [\"10.0.0.0/8\"]\nproxy_protocol = true")
        .start();
    server
        .ask_raw("PROXY TCP4 192.0.2.7 192.0.2.80 1 2\r\nGET /tell.php HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect(400);
    assert_eq!(told(&server, &Request::get("/tell.php"))["REMOTE_ADDR"], "127.0.0.1");
}

#[test]
fn the_limit_of_one_address_does_not_count_for_a_proxy() {
    let limited = |server: &str| {
        let site = Site::new().file("a.txt", "page").limit("connections_per_ip = 1");
        site.server(server).start()
    };
    let server = limited("trusted_proxies = [\"127.0.0.1\"]");
    let mut held = server.connect();
    held.ask(&Request::get("/a.txt")).expect(200);
    server.get("/a.txt").expect(200);
    drop(held);
    let server = limited("");
    let mut held = server.connect();
    held.ask(&Request::get("/a.txt")).expect(200);
    // While it is used: an idle one would make room.
    held.send("GET /a.txt HTTP/1.1\r\n");
    server.get("/a.txt").expect(503);
}
