//! Servers that cut, stall, lie and change: the result is a failure or the right file.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::peer::{Peer, close, data, honest, honest_head};
use crate::program::DownloadDir;

const MIB: usize = 1024 * 1024;
/// Short timeouts for tests, long enough for a busy machine.
const FAST: [&str; 2] = ["--stall-timeout", "4s"];

fn args<'a>(url: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&[url][..], more].concat()
}

#[test]
fn a_server_that_cuts_is_continued_and_no_byte_comes_twice() {
    let file = data(5 * MIB, 1);
    let served = Arc::clone(&file);
    let peer = Peer::start(move |asked, wire| {
        let (start, end) = honest_head(asked, wire, &served, "\"a\"")?;
        if end - start > MIB {
            wire.body(&served[start..start + MIB])?;
            return close();
        }
        wire.body(&served[start..end])
    });
    let place = DownloadDir::new();
    place.get_well(&[&peer.url("/f.bin")]);
    assert!(place.read("f.bin") == *file);
    assert_eq!(peer.body_bytes(), file.len() as u64);
    assert_eq!(place.names(), ["f.bin"]);
}

#[test]
fn a_server_that_always_cuts_and_gives_no_ranges_never_makes_a_file() {
    let file = data(MIB, 2);
    let peer = Peer::start(move |_, wire| {
        wire.head(&format!("HTTP/1.1 200 OK\nContent-Length: {}\n\n", file.len()))?;
        wire.body(&file[..file.len() - 1])?;
        close()
    });
    let place = DownloadDir::new();
    let ended = place.get(&[&peer.url("/f.bin"), "--retry", "2"]);
    assert_eq!(ended.code, Some(5), "{}", ended.stderr);
    place.assert_no_file("f.bin");
    assert_eq!(peer.requests().len(), 3, "what was there before is no progress");
}

#[test]
fn a_chunked_body_without_its_last_chunk_is_no_file() {
    let peer = Peer::start(|_, wire| {
        wire.head("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n5\nhello\n")?;
        close()
    });
    let place = DownloadDir::new();
    let ended = place.get(&[&peer.url("/f.txt"), "--retry", "0"]);
    assert_eq!(ended.code, Some(5), "{}", ended.stderr);
    assert!(ended.stderr.contains("without its last chunk"), "{}", ended.stderr);
    place.assert_no_file("f.txt");
}

#[test]
fn a_whole_chunked_body_is_a_file() {
    let peer = Peer::start(|_, wire| {
        wire.head("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n5\nhello\n6;x=y\n world\n0\nT: r\n\n")
    });
    let place = DownloadDir::new();
    place.get_well(&[&peer.url("/f.txt")]);
    assert_eq!(place.read("f.txt"), b"hello world");
}

#[test]
fn a_body_that_ends_with_the_connection_is_a_file_with_a_warning_and_a_reset_is_none() {
    let peer = Peer::start(|_, wire| {
        wire.head("HTTP/1.0 200 OK\n\nhello")?;
        close()
    });
    let place = DownloadDir::new();
    let ended = place.get_well(&[&peer.url("/f.txt")]);
    assert_eq!(place.read("f.txt"), b"hello");
    assert!(ended.stderr.contains("cannot be detected"), "{}", ended.stderr);

    let peer = Peer::start(|_, wire| {
        wire.head("HTTP/1.0 200 OK\n\nhello")?;
        thread::sleep(Duration::from_millis(200));
        wire.reset()
    });
    let ended = place.get(&[&peer.url("/g.txt"), "--retry", "0"]);
    assert_eq!(ended.code, Some(5), "{}", ended.stderr);
    place.assert_no_file("g.txt");
}

#[test]
fn a_server_that_stalls_is_given_up_or_continued() {
    let file = data(2 * MIB, 3);
    let served = Arc::clone(&file);
    let peer = Peer::start(move |asked, wire| {
        let (start, end) = honest_head(asked, wire, &served, "\"a\"")?;
        if asked.number == 0 {
            wire.body(&served[..MIB])?;
            thread::sleep(Duration::from_secs(120));
        }
        wire.body(&served[start..end])
    });
    let place = DownloadDir::new();
    let url = peer.url("/f.bin");
    let ended = place.get(&args(&url, &[&FAST[..], &["--retry", "0"]].concat()));
    assert_eq!(ended.code, Some(4), "{}", ended.stderr);
    assert!(ended.stderr.contains("run the same command"), "{}", ended.stderr);
    place.assert_no_file("f.bin");
    place.get_well(&args(&url, &FAST));
    assert!(place.read("f.bin") == *file);
    assert_eq!(peer.body_bytes(), file.len() as u64);
}

#[test]
fn a_server_that_never_answers_is_a_time_out() {
    let peer = Peer::start(|_, _| {
        thread::sleep(Duration::from_secs(120));
        close()
    });
    let ended = DownloadDir::new().get(&[&peer.url("/f"), "--answer-timeout", "300ms", "--retry", "0"]);
    assert_eq!(ended.code, Some(4), "{}", ended.stderr);
}

/// The false claims of a server about the range it sends.
fn lying_peer(file: Arc<Vec<u8>>, lie: impl Fn(usize, usize, usize) -> String + Send + Sync + 'static) -> Peer {
    Peer::start(move |asked, wire| match asked.range(file.len()) {
        None => {
            let length = file.len();
            wire.head(&format!(
                "HTTP/1.1 200 OK\nContent-Length: {length}\nAccept-Ranges: bytes\nETag: \"a\"\n\n"
            ))?;
            if asked.number == 0 {
                wire.body(&file[..length / 2])?;
                return close();
            }
            wire.body(&file)
        }
        Some((start, end)) => {
            wire.head(&lie(start, end, file.len()))?;
            wire.body(&file[start..end])?;
            close()
        }
    })
}

#[test]
fn false_ranges_are_never_put_into_the_file() {
    type Lie = fn(usize, usize, usize) -> String;
    let lies: [(&str, Lie); 7] = [
        ("another start", |start, end, all| {
            part("\"a\"", start + 1, end, all, end - start)
        }),
        ("from the beginning", |start, end, all| {
            part("\"a\"", 0, end - start, all, end - start)
        }),
        ("another length", |start, end, all| {
            part("\"a\"", start, end, all + 1, end - start)
        }),
        ("another tag", |start, end, all| {
            part("\"b\"", start, end, all, end - start)
        }),
        ("another framing", |start, end, all| {
            part("\"a\"", start, end, all, end - start - 1)
        }),
        ("no Content-Range", |start, end, _| {
            format!(
                "HTTP/1.1 206 Partial Content\nETag: \"a\"\nContent-Length: {}\n\n",
                end - start
            )
        }),
        ("200 with a part", |start, end, _| {
            format!("HTTP/1.1 200 OK\nETag: \"a\"\nContent-Length: {}\n\n", end - start)
        }),
    ];
    for (number, (name, lie)) in lies.into_iter().enumerate() {
        let file = data(MIB, 10 + number as u64);
        let peer = lying_peer(Arc::clone(&file), lie);
        let place = DownloadDir::new();
        let ended = place.get(&[&peer.url("/f.bin")]);
        assert_eq!(ended.code, Some(0), "{name}: {}", ended.stderr);
        assert!(place.read("f.bin") == *file, "{name}");
    }
}

fn part(tag: &str, start: usize, end: usize, total: usize, length: usize) -> String {
    let last = end - 1;
    format!(
        "HTTP/1.1 206 Partial Content\nETag: {tag}\nContent-Length: {length}\nContent-Range: bytes {start}-{last}/{total}\n\n"
    )
}

#[test]
fn a_file_that_changes_is_fetched_anew_and_never_mixed() {
    let (old, new) = (data(2 * MIB, 4), data(2 * MIB, 5));
    let (first, second) = (Arc::clone(&old), Arc::clone(&new));
    let peer = Peer::start(move |asked, wire| {
        if asked.number > 0 {
            return honest(asked, wire, &second, "\"new\"");
        }
        honest_head(asked, wire, &first, "\"old\"")?;
        wire.body(&first[..MIB])?;
        close()
    });
    let place = DownloadDir::new();
    let ended = place.get_well(&[&peer.url("/f.bin")]);
    assert!(place.read("f.bin") == *new);
    assert!(
        ended.stderr.contains("the file changed on the server; starting again"),
        "{}",
        ended.stderr
    );
    assert_eq!(peer.requests()[1].field("if-range"), Some("\"old\""));
}

#[test]
fn a_file_that_never_stays_the_same_is_given_up() {
    let peer = Peer::start(|asked, wire| {
        let file = data(MIB, 100 + asked.number as u64);
        let tag = format!("\"{}\"", asked.number);
        honest_head(asked, wire, &file, &tag)?;
        wire.body(&file[..MIB / 2])?;
        close()
    });
    let place = DownloadDir::new();
    let ended = place.get(&[&peer.url("/f.bin"), "--retry", "2"]);
    assert!(matches!(ended.code, Some(5 | 8)), "{ended:?}");
    place.assert_no_file("f.bin");
}

#[test]
fn a_weak_validator_continues_nothing() {
    let (old, new) = (data(MIB, 6), data(MIB, 7));
    let (first, second) = (Arc::clone(&old), Arc::clone(&new));
    let peer = Peer::start(move |asked, wire| {
        assert_eq!(asked.field("range"), None);
        if asked.number > 0 {
            return honest(asked, wire, &second, "W/\"same\"");
        }
        honest_head(asked, wire, &first, "W/\"same\"")?;
        wire.body(&first[..MIB / 2])?;
        close()
    });
    let place = DownloadDir::new();
    let ended = place.get_well(&[&peer.url("/f.bin")]);
    assert!(place.read("f.bin") == *new);
    assert!(ended.stderr.contains("all of it is fetched again"), "{}", ended.stderr);
}

#[test]
fn framing_in_doubt_is_no_file() {
    for head in [
        "HTTP/1.1 200 OK\nContent-Length: 5\nContent-Length: 6\n\nhello!",
        "HTTP/1.1 200 OK\nContent-Length: 5\nTransfer-Encoding: chunked\n\n5\nhello\n0\n\n",
        "HTTP/1.1 200 OK\nTransfer-Encoding: gzip, chunked\n\n0\n\n",
        "HTTP/1.1 200 OK\nContent-Length: -5\n\nhello",
        "220 ftp.example.com ready\n",
        "HTTP/1.1 206 Partial Content\nContent-Range: bytes 0-4/5\nContent-Length: 5\n\nhello",
    ] {
        let peer = Peer::start(move |_, wire| {
            wire.head(head)?;
            close()
        });
        let place = DownloadDir::new();
        let ended = place.get(&[&peer.url("/f"), "--retry", "0"]);
        assert_eq!(ended.code, Some(8), "{head}: {}", ended.stderr);
        assert_eq!(place.names(), [""; 0], "{head}");
    }
}

#[test]
fn a_download_ends_with_its_last_byte_though_the_server_keeps_the_connection() {
    let file = data(MIB, 8);
    let served = Arc::clone(&file);
    let peer = Peer::start(move |asked, wire| {
        honest(asked, wire, &served, "\"a\"")?;
        thread::sleep(Duration::from_secs(120));
        Ok(())
    });
    let place = DownloadDir::new();
    let begun = Instant::now();
    place.get_well(&[&peer.url("/f.bin")]);
    assert!(begun.elapsed() < Duration::from_secs(100), "{:?}", begun.elapsed());
    assert!(place.read("f.bin") == *file);
}

#[test]
fn retry_after_is_honoured() {
    let peer = Peer::start(|asked, wire| match asked.number {
        0 => wire.head("HTTP/1.1 503 Service Unavailable\nRetry-After: 2\nContent-Length: 0\n\n"),
        _ => wire.head("HTTP/1.1 200 OK\nContent-Length: 5\n\nhello"),
    });
    let place = DownloadDir::new();
    let begun = Instant::now();
    place.get_well(&[&peer.url("/f.txt")]);
    assert!(begun.elapsed() >= Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!(place.read("f.txt"), b"hello");
}

#[test]
fn every_kind_of_failure_has_its_exit_code() {
    let peer = Peer::start(|asked, wire| {
        let path = asked.line.split(' ').nth(1).unwrap_or_default();
        match path {
            "/500" => wire.head("HTTP/1.1 500 Internal Server Error\nContent-Length: 0\n\n"),
            "/loop" => wire.head("HTTP/1.1 302 Found\nLocation: /loop\nContent-Length: 0\n\n"),
            "/file" => wire.head("HTTP/1.1 302 Found\nLocation: file:///etc/passwd\nContent-Length: 0\n\n"),
            "/good" => wire.head("HTTP/1.1 200 OK\nContent-Length: 0\n\n"),
            _ => wire.head("HTTP/1.1 404 Not Found\nContent-Length: 0\n\n"),
        }
    });
    let place = DownloadDir::new();
    let code = |arguments: &[&str]| place.get(&[arguments, &["--retry", "0"]].concat()).code;
    assert_eq!(code(&[&peer.url("/none")]), Some(6));
    assert_eq!(code(&[&peer.url("/500")]), Some(7));
    assert_eq!(code(&[&peer.url("/loop")]), Some(12));
    assert_eq!(code(&[&peer.url("/file")]), Some(12));
    assert_eq!(code(&["http://127.0.0.1:1/x"]), Some(3));
    assert_eq!(code(&["ftp://127.0.0.1/x"]), Some(2));
    assert_eq!(code(&[&peer.url("/good"), "-O", "/dev/null/none"]), Some(10));
    assert_eq!(code(&[&peer.url("/good"), "--public-only"]), Some(3));
    assert_eq!(code(&[&peer.url("/none"), &peer.url("/500")]), Some(1));
    assert_eq!(code(&[&peer.url("/good"), &peer.url("/none")]), Some(6));
}
