//! HTTP/2: by TLS, by option, and failing streams.

use std::fs;

use haulier_proto::h2::error::ErrorCode;

use crate::http2_peer::{Asked, Does, Peer, page};
use crate::peer::data;
use crate::program::DownloadDir;
use crate::servers::{haulier, nginx, three_downloads};
use crate::tls::certificate;

const MIB: usize = 1024 * 1024;

/// The answer of an honest server: the whole file, or the requested part if its validator matches.
fn honest(asked: &Asked, data: &[u8]) -> Does {
    let tag = "\"v1\"";
    let line = |name: &str, value: String| (name.to_owned(), value);
    let span = asked.field("range").and_then(|range| {
        let (start, end) = range.strip_prefix("bytes=")?.split_once('-')?;
        let end = end.parse::<usize>().map_or(data.len(), |last| last + 1);
        Some((start.parse::<usize>().ok()?, end.min(data.len())))
    });
    let agrees = asked.field("if-range").is_none_or(|given| given == tag);
    let etag = line("etag", tag.to_owned());
    match span.filter(|(start, end)| agrees && start < end) {
        Some((start, end)) => {
            let range = format!("bytes {start}-{}/{}", end - 1, data.len());
            Does::Answer(206, vec![etag, line("content-range", range)], data[start..end].to_vec())
        }
        None => Does::Answer(
            200,
            vec![etag, line("accept-ranges", "bytes".to_owned())],
            data.to_vec(),
        ),
    }
}

/// The server refuses HTTP/1 by status, so that a download that succeeds came by HTTP/2.
#[test]
fn tls_gives_it_and_it_is_taken() {
    let keys = DownloadDir::new();
    let (certificate, key) = certificate(&keys);
    let lines = format!(
        "ssl_certificate {certificate}; ssl_certificate_key {key};\n\
         set $wrong 1; if ($server_protocol = HTTP/2.0) {{ set $wrong 0; }} if ($wrong = 1) {{ return 505; }}"
    );
    let server = nginx(&lines, "ssl http2");
    let file = data(20 * MIB, 3);
    fs::write(server.root().join("f.bin"), &**file).expect("written");
    let url = format!("https://localhost:{}/f.bin", server.address.port());
    let place = DownloadDir::new();
    let get = |arguments: &[&str]| {
        let mut command = place.command(&[&[url.as_str(), "--retry", "0"], arguments].concat());
        command
            .env("SSL_CERT_FILE", &certificate)
            .output()
            .expect("the binary runs")
    };
    for (name, arguments) in [("best.bin", &[][..]), ("two.bin", &["--http", "2"])] {
        let ended = get(&[&["-o", name], arguments].concat());
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        assert!(place.read(name) == **file, "{name}");
    }
    assert_eq!(get(&["-o", "one.bin", "--http", "1"]).status.code(), Some(7));
}

#[test]
fn a_server_without_it_is_asked_by_http1_unless_it_is_demanded() {
    let keys = DownloadDir::new();
    let (certificate, key) = certificate(&keys);
    let server = nginx(
        &format!("ssl_certificate {certificate}; ssl_certificate_key {key};"),
        "ssl",
    );
    fs::write(server.root().join("f.bin"), b"over HTTP/1.1").expect("written");
    let url = format!("https://localhost:{}/f.bin", server.address.port());
    let place = DownloadDir::new();
    let get = |arguments: &[&str]| {
        let mut command = place.command(&[&[url.as_str(), "--retry", "0"], arguments].concat());
        command
            .env("SSL_CERT_FILE", &certificate)
            .output()
            .expect("the binary runs")
    };
    assert!(get(&[]).status.success());
    assert_eq!(place.read("f.bin"), b"over HTTP/1.1");
    assert_eq!(get(&["--http", "2", "-o", "two.bin"]).status.code(), Some(11));
    place.assert_no_file("two.bin");
}

#[test]
fn our_own_server_is_downloaded_from_and_downloads_go_on() {
    three_downloads(&haulier(), &["--http", "2"]);
}

#[test]
fn nginx_is_downloaded_from_by_http2_and_downloads_go_on() {
    three_downloads(&nginx("", "http2"), &["--http", "2"]);
}

#[test]
fn a_stream_that_ends_too_early_is_continued_and_never_called_complete() {
    let file = data(3 * MIB, 5);
    for cut in [Does::Short as fn(usize, usize) -> Does, |some, all| {
        Does::Reset(some, all, ErrorCode::INTERNAL_ERROR)
    }] {
        let content = file.clone();
        let peer = Peer::start(move |asked| {
            if asked.number == 0 {
                cut(MIB, content.len())
            } else {
                honest(asked, &content)
            }
        });
        let place = DownloadDir::new();
        place.get_well(&["--http", "2", &peer.url("/f.bin")]);
        assert!(place.read("f.bin") == **file);
        assert_eq!(peer.requests().len(), 2);

        let peer = Peer::start(move |_| cut(MIB, 3 * MIB));
        let ended = place.get(&["--http", "2", "--retry", "1", "-o", "g.bin", &peer.url("/g.bin")]);
        assert_eq!(ended.code, Some(5), "{}", ended.stderr);
        place.assert_no_file("g.bin");
    }
}

#[test]
fn a_body_beyond_its_length_is_no_file() {
    let peer = Peer::start(|_| Does::Short(10, 5));
    let place = DownloadDir::new();
    let ended = place.get(&["--http", "2", "--retry", "0", &peer.url("/f.bin")]);
    assert_eq!(ended.code, Some(8), "{}", ended.stderr);
    place.assert_no_file("f.bin");
}

#[test]
fn a_request_that_was_not_taken_is_sent_again() {
    let file = data(MIB, 9);
    let content = file.clone();
    let peer = Peer::start(move |asked| {
        if asked.number < 2 {
            Does::Refuse
        } else {
            honest(asked, &content)
        }
    });
    let place = DownloadDir::new();
    place.get_well(&["--http", "2", &peer.url("/f.bin")]);
    assert!(place.read("f.bin") == **file);
}

#[test]
fn a_connection_that_says_goodbye_is_left_and_the_next_file_comes_on_another() {
    let peer = Peer::start(|_| Does::Last);
    let place = DownloadDir::new();
    place.get_well(&["--http", "2", "-j", "1", &peer.url("/a.txt"), &peer.url("/b.txt")]);
    assert_eq!(
        (place.read("a.txt"), place.read("b.txt")),
        (b"x".to_vec(), b"x".to_vec())
    );
    assert_eq!(peer.connections(), 2);
}

#[test]
fn files_of_one_server_share_a_connection_and_redirects_are_followed_on_it() {
    let peer = Peer::start(|asked| match asked.target.as_str() {
        "/old" => {
            let location = ("location".to_owned(), "/new.txt".to_owned());
            Does::Answer(302, vec![location], b"elsewhere".to_vec())
        }
        other => page(other),
    });
    let place = DownloadDir::new();
    let urls = ["/old", "/b.txt", "/c.txt"].map(|path| peer.url(path));
    place.get_well(&["--http", "2", "-j", "1", &urls[0], &urls[1], &urls[2]]);
    assert_eq!(place.read("b.txt"), b"/b.txt");
    assert!(
        place.names().iter().any(|name| place.read(name) == b"/new.txt"),
        "{:?}",
        place.names()
    );
    assert_eq!((peer.connections(), peer.most_streams()), (1, 1));
}

#[test]
fn a_server_that_falls_silent_is_given_up() {
    let peer = Peer::start(|asked| {
        if asked.number == 0 {
            Does::HangInBody
        } else {
            Does::Hang
        }
    });
    let place = DownloadDir::new();
    let ended = place.get(&[
        "--http",
        "2",
        "--retry",
        "1",
        "--stall-timeout",
        "400ms",
        "--answer-timeout",
        "400ms",
        &peer.url("/f.bin"),
    ]);
    assert_eq!(ended.code, Some(4), "{}", ended.stderr);
    place.assert_no_file("f.bin");
}

#[test]
fn what_is_no_http2_is_no_file() {
    for does in [|| Does::Garbage, || Does::Close] {
        let peer = Peer::start(move |_| does());
        let place = DownloadDir::new();
        let ended = place.get(&["--http", "2", "--retry", "0", &peer.url("/f.bin")]);
        assert!(matches!(ended.code, Some(5 | 8)), "{ended:?}");
        place.assert_no_file("f.bin");
    }
}
