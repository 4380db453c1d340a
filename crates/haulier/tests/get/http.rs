//! Redirects, credentials, proxies, codings, local sockets.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::peer::{Peer, data, honest, honest_head};
use crate::program::DownloadDir;
use crate::verifying::sha256;

fn hello(wire: &mut crate::peer::Wire) -> std::io::Result<()> {
    wire.head("HTTP/1.1 200 OK\nContent-Length: 5\n\nhello")
}

#[test]
fn a_name_below_localhost_is_this_machine() {
    let peer = Peer::start(|_, wire| hello(wire));
    let place = DownloadDir::new();
    let url = peer.url("/f.txt").replace("127.0.0.1", "shop.localhost");
    place.get_well(&[&url, "-o", "f.txt"]);
    assert_eq!(place.read("f.txt"), b"hello");
}

#[test]
fn credentials_stay_with_the_host_they_were_given_for() {
    let other = Peer::start(|_, wire| hello(wire));
    let there = other.url("/f.txt").replace("127.0.0.1", "localhost");
    let peer = Peer::start(move |asked, wire| {
        if asked.line.starts_with("GET /near ") {
            return wire.head("HTTP/1.1 302 Found\nLocation: /far\nContent-Length: 0\n\n");
        }
        wire.head(&format!("HTTP/1.1 302 Found\nLocation: {there}\nContent-Length: 0\n\n"))
    });
    let place = DownloadDir::new();
    place.get_well(&[
        &peer.url("/near"),
        "-o",
        "f.txt",
        "--user",
        "me:secret",
        "-H",
        "Cookie: a=b",
    ]);
    assert_eq!(place.read("f.txt"), b"hello");
    for asked in peer.requests() {
        assert_eq!(asked.field("authorization"), Some("Basic bWU6c2VjcmV0"));
    }
    assert_eq!(
        peer.connections(),
        1,
        "a redirect on the same host uses the same connection"
    );
    let asked = &other.requests()[0];
    assert_eq!((asked.field("authorization"), asked.field("cookie")), (None, None));
}

/// Every connection of a download goes to the redirect's target itself.
#[test]
fn credentials_stay_behind_on_further_connections_and_of_a_list_elsewhere() {
    let file = data(24 << 20, 3);
    let served = Arc::clone(&file);
    let other = Peer::start(move |asked, wire| {
        let (start, end) = honest_head(asked, wire, &served, "\"a\"")?;
        wire.slow_body(&served[start..end], 4_000_000)
    });
    let there = other.url("/f.bin");
    let peer =
        Peer::start(move |_, wire| wire.head(&format!("HTTP/1.1 302 Found\nLocation: {there}\nContent-Length: 0\n\n")));
    let sum = format!("{}  f.bin\n", sha256(&file));
    let lists = Peer::start(move |_, wire| {
        let length = sum.len();
        wire.head(&format!("HTTP/1.1 200 OK\nContent-Length: {length}\n\n"))?;
        wire.body(sum.as_bytes())
    });
    let place = DownloadDir::new();
    let checksums = lists.url("/SHA256SUMS");
    let secrets = ["--user", "me:secret", "-H", "Cookie: a=b", "-H", "Host: inner.example"];
    let arguments = [
        peer.url("/f.bin"),
        "--checksums".into(),
        checksums,
        "-x".into(),
        "4".into(),
    ];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(secrets).collect();
    place.get_well(&arguments);
    assert!(place.read("f.bin") == *file);
    assert_eq!(peer.requests()[0].field("cookie"), Some("a=b"));
    assert!(other.requests().len() > 1, "one connection proves nothing");
    for asked in other.requests().iter().chain(&lists.requests()) {
        assert_eq!((asked.field("authorization"), asked.field("cookie")), (None, None));
        assert_ne!(asked.field("host"), Some("inner.example"));
    }
}

#[test]
fn netrc_and_tokens_and_addresses_bring_credentials() {
    let peer = Peer::start(|_, wire| hello(wire));
    let place = DownloadDir::new();
    fs::write(place.path(".netrc"), "machine 127.0.0.1 login me password secret\n").expect("written");
    place.get_well(&[&peer.url("/a"), "-o", "a"]);
    place.get_well(&[&peer.url("/b"), "-o", "b", "--no-netrc"]);
    place.get_well(&[&peer.url("/c"), "-o", "c", "--bearer", "token"]);
    place.get_well(&[&peer.url("/d").replace("http://", "http://you:word@"), "-o", "d"]);
    let sent: Vec<_> = peer
        .requests()
        .iter()
        .map(|asked| asked.field("authorization").unwrap_or("-").to_owned())
        .collect();
    assert_eq!(sent, ["Basic bWU6c2VjcmV0", "-", "Bearer token", "Basic eW91OndvcmQ="]);
}

#[test]
fn a_proxy_is_asked_with_the_whole_address() {
    let proxy = Peer::start(|_, wire| hello(wire));
    let place = DownloadDir::new();
    let by_flag = proxy.url("").replace("http://", "http://p:q@");
    place.get_well(&["http://example.invalid/f?x=1", "-o", "f", "--proxy", &by_flag]);
    let asked = &proxy.requests()[0];
    assert_eq!(asked.line, "GET http://example.invalid/f?x=1 HTTP/1.1");
    assert_eq!(asked.field("host"), Some("example.invalid"));
    assert_eq!(asked.field("proxy-authorization"), Some("Basic cDpx"));
    let by_variable = place
        .command(&["http://example.invalid/g", "-o", "g"])
        .env("http_proxy", proxy.url(""))
        .status();
    assert!(by_variable.expect("the binary runs").success());
    let direct = Peer::start(|_, wire| hello(wire));
    let past = place
        .command(&[&direct.url("/h"), "-o", "h"])
        .env("http_proxy", "http://127.0.0.1:1")
        .env("no_proxy", "127.0.0.1")
        .status();
    assert!(past.expect("the binary runs").success());
}

#[test]
fn https_goes_through_a_tunnel_and_a_refused_one_is_told() {
    let proxy = Peer::start(|_, wire| wire.head("HTTP/1.1 403 Forbidden\nContent-Length: 0\n\n"));
    let ended = DownloadDir::new().get(&["https://example.invalid/f", "--proxy", &proxy.url(""), "--retry", "0"]);
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert_eq!(proxy.requests()[0].line, "CONNECT example.invalid:443 HTTP/1.1");
}

#[test]
fn a_local_socket_is_a_server() {
    let place = DownloadDir::new();
    let socket = place.path("web.sock");
    let listener = UnixListener::bind(&socket).expect("bound");
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
            .expect("written");
        thread::sleep(Duration::from_millis(500));
    });
    place.get_well(&[&format!("unix:{}:/f.txt", socket.display())]);
    assert_eq!(place.read("f.txt"), b"hello");
    server.join().expect("no panic");
}

/// `hello` with gzip -9.
const HELLO_GZIP: &[u8] = &[
    0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 3, 0xcb, 0x48, 0xcd, 0xc9, 0xc9, 7, 0, 0x86, 0xa6, 0x10, 0x36, 5, 0, 0, 0,
];

#[test]
fn a_content_coding_is_taken_off_only_where_it_was_asked_for() {
    let peer = Peer::start(|asked, wire| {
        let cut = usize::from(asked.line.contains("cut"));
        let body = &HELLO_GZIP[..HELLO_GZIP.len() - cut];
        wire.head(&format!(
            "HTTP/1.1 200 OK\nContent-Encoding: gzip\nContent-Length: {}\n\n",
            body.len()
        ))?;
        wire.body(body)
    });
    let place = DownloadDir::new();
    place.get_well(&[&peer.url("/plain.txt"), "--compressed"]);
    assert_eq!(place.read("plain.txt"), b"hello");
    assert_eq!(peer.requests()[0].field("accept-encoding"), Some("gzip, br, zstd"));
    place.get_well(&[&peer.url("/coded.gz")]);
    assert_eq!(place.read("coded.gz"), HELLO_GZIP);
    assert_eq!(peer.requests()[1].field("accept-encoding"), Some("identity"));
    let ended = place.get(&[&peer.url("/cut.txt"), "--compressed", "--retry", "0"]);
    assert_eq!(ended.code, Some(8), "{}", ended.stderr);
    place.assert_no_file("cut.txt");
}

#[test]
fn standard_output_gets_the_bytes_and_a_cut_is_continued() {
    let file = data(3 << 20, 1);
    let served = Arc::clone(&file);
    let peer = Peer::start(move |asked, wire| {
        let (start, end) = honest_head(asked, wire, &served, "\"a\"")?;
        if asked.number == 0 {
            wire.body(&served[..1 << 20])?;
            return crate::peer::close();
        }
        wire.body(&served[start..end])
    });
    let ended = DownloadDir::new().get_well(&[&peer.url("/f"), "-o", "-", "-q"]);
    assert!(ended.stdout == **file, "{} bytes of {}", ended.stdout.len(), file.len());
    assert_eq!(ended.stderr, "");
    assert_eq!(peer.body_bytes(), file.len() as u64);
}

#[test]
fn a_rate_limit_holds_for_all_files_together() {
    let file = data(500_000, 2);
    let served = Arc::clone(&file);
    let peer = Peer::start(move |asked, wire| honest(asked, wire, &served, "\"a\""));
    let place = DownloadDir::new();
    let begun = Instant::now();
    place.get_well(&[&peer.url("/a"), &peer.url("/b"), "--limit", "500KB/s"]);
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(1900), "{took:?}");
    assert_eq!(place.names(), ["a", "b"]);
}
