//! Names, times, and files that exist already.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use crate::peer::{Peer, data, honest};
use crate::program::DownloadDir;

fn naming(disposition: &'static str) -> Peer {
    Peer::start(move |_, wire| {
        wire.head(&format!(
            "HTTP/1.1 200 OK\nContent-Length: 5\nContent-Disposition: {disposition}\n\nhello"
        ))
    })
}

#[test]
fn the_server_names_the_file_and_never_its_place() {
    for (disposition, name) in [
        ("attachment; filename=\"report 1.pdf\"", "report 1.pdf"),
        ("attachment; filename*=UTF-8''na%C3%AFve.txt", "naïve.txt"),
        ("attachment; filename=\"../../../../tmp/evil\"", "evil"),
        ("attachment; filename=\"/etc/passwd\"", "passwd"),
        ("attachment; filename=\".bashrc\"", "bashrc"),
        ("attachment; filename=\"..\"", "f.bin"),
    ] {
        let place = DownloadDir::new();
        place.get_well(&[&naming(disposition).url("/f.bin?x=/y")]);
        assert_eq!(place.names(), [name], "{disposition}");
    }
}

#[test]
fn another_file_of_that_name_is_never_replaced_unasked() {
    let file = data(10_000, 1);
    let served = Arc::clone(&file);
    let peer = Peer::start(move |asked, wire| honest(asked, wire, &served, "\"a\""));
    let place = DownloadDir::new();
    fs::write(place.path("f.bin"), "mine").expect("written");
    place.get_well(&[&peer.url("/f.bin")]);
    assert_eq!(place.read("f.bin"), b"mine");
    assert!(place.read("f.1.bin") == *file);
    place.get_well(&[&peer.url("/f.bin")]);
    assert_eq!(
        place.names(),
        ["f.1.bin", "f.bin"],
        "the numbered one is complete already"
    );
    place.get_well(&[&peer.url("/f.bin"), "-o", "f.bin"]);
    assert!(place.read("f.bin") == *file, "-o says which file it is");
}

#[test]
fn update_replaces_what_the_server_changed_and_only_that() {
    let peer = Peer::start(|asked, wire| {
        let tag = if asked.number < 2 { "\"a\"" } else { "\"b\"" };
        if asked.field("if-none-match") == Some(tag) {
            return wire.head(&format!("HTTP/1.1 304 Not Modified\nETag: {tag}\n\n"));
        }
        wire.head(&format!("HTTP/1.1 200 OK\nContent-Length: 3\nETag: {tag}\n\n{tag}"))
    });
    let place = DownloadDir::new();
    let url = peer.url("/f.txt");
    for expected in ["\"a\"", "\"a\"", "\"b\""] {
        place.get_well(&[&url, "--update"]);
        assert_eq!(place.read("f.txt"), expected.as_bytes());
    }
    assert_eq!(place.names(), ["f.txt"]);
}

#[test]
fn a_file_is_as_old_as_the_servers() {
    let peer = Peer::start(|_, wire| {
        wire.head("HTTP/1.1 200 OK\nContent-Length: 5\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\n\nhello")
    });
    let place = DownloadDir::new();
    place.get_well(&[&peer.url("/f.txt")]);
    let modified = fs::metadata(place.path("f.txt")).expect("there").modified();
    assert_eq!(modified.expect("known"), UNIX_EPOCH + Duration::from_secs(784_111_777));
    let ended = place.get_well(&[&peer.url("/f.txt"), "--json"]);
    assert_eq!(
        ended.event("finished")["already_complete"],
        true,
        "length and date are the same"
    );
}

#[test]
fn several_files_of_one_name_come_side_by_side() {
    let peer = Peer::start(|asked, wire| {
        let digit = asked.line.as_bytes()[5] as char;
        wire.head(&format!("HTTP/1.1 200 OK\nContent-Length: 1\n\n{digit}"))
    });
    let place = DownloadDir::new();
    let urls: Vec<String> = (1..=6).map(|number| peer.url(&format!("/{number}/f.txt"))).collect();
    let arguments: Vec<&str> = urls.iter().map(String::as_str).collect();
    place.get_well(&arguments);
    let names = place.names();
    assert_eq!(names.len(), 6, "{names:?}");
    let mut digits: Vec<u8> = names.iter().flat_map(|name| place.read(name)).collect();
    digits.sort_unstable();
    assert_eq!(digits, b"123456");
}

#[test]
fn an_empty_file_is_a_file() {
    let peer = Peer::start(|_, wire| wire.head("HTTP/1.1 200 OK\nContent-Length: 0\n\n"));
    let place = DownloadDir::new();
    place.get_well(&[&peer.url("/f.txt")]);
    assert_eq!(place.read("f.txt"), b"");
}

#[test]
fn events_tell_the_whole_story_in_json() {
    let file = data(100_000, 2);
    let served = Arc::clone(&file);
    let peer = Peer::start(move |asked, wire| honest(asked, wire, &served, "\"a\""));
    let place = DownloadDir::new();
    let ended = place.get_well(&[&peer.url("/f.bin"), "--json"]);
    let started = ended.event("started");
    assert_eq!(
        (started["total"].as_u64(), started["kept"].as_u64()),
        (Some(100_000), Some(0))
    );
    let finished = ended.event("finished");
    assert_eq!(finished["bytes"], 100_000);
    assert_eq!(finished["etag"], "\"a\"");
    assert_eq!(finished["url"], peer.url("/f.bin"));
    let failed = place.get(&["http://127.0.0.1:1/x", "--json", "--retry", "0"]);
    assert_eq!(failed.event("failed")["class"], "connect");
}
