//! Checksums: given, listed in a file, or sent by the server.

use std::fs;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use crate::peer::{Peer, data};
use crate::program::DownloadDir;

pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Serves `file` with further field lines.
fn serving(file: &Arc<Vec<u8>>, fields: String) -> Peer {
    let file = Arc::clone(file);
    Peer::start(move |_, wire| {
        let length = file.len();
        wire.head(&format!(
            "HTTP/1.1 200 OK\nContent-Length: {length}\nETag: \"a\"\n{fields}\n"
        ))?;
        wire.body(&file)
    })
}

#[test]
fn a_given_checksum_decides() {
    let file = data(3_000_000, 1);
    let peer = serving(&file, String::new());
    let place = DownloadDir::new();
    let ended = place.get(&[&peer.url("/f.bin"), "--sha256", &sha256(b"another")]);
    assert_eq!(ended.code, Some(9), "{}", ended.stderr);
    assert!(
        ended.stderr.contains(&sha256(&file)),
        "what was found is told: {}",
        ended.stderr
    );
    assert_eq!(place.names(), [""; 0], "wrong bytes are not kept to be continued");

    let ended = place.get_well(&[&peer.url("/f.bin"), "--sha256", &sha256(&file), "--json"]);
    let verified = &ended.event("finished")["verified"][0];
    assert_eq!(verified["source"], "the given checksum");
    assert!(place.read("f.bin") == *file);
    let asked = peer.requests().len();
    place.get_well(&[&peer.url("/f.bin"), "--sha256", &sha256(&file)]);
    assert_eq!(
        peer.requests().len(),
        asked,
        "a file that is there and right needs no server"
    );
}

#[test]
fn digests_that_come_along_are_checked_old_and_new() {
    let file = data(500_000, 2);
    let digest = STANDARD.encode(Sha256::digest(&**file));
    let wrong = STANDARD.encode(Sha256::digest(b"another"));
    for (good, field) in [
        (true, format!("Repr-Digest: sha-256=:{digest}:\n")),
        (false, format!("Repr-Digest: sha-256=:{wrong}:\n")),
        (true, format!("Digest: SHA-256={digest}\n")),
        (false, format!("Digest: SHA-256={wrong}\n")),
        (false, "Content-MD5: kAFQmDzST7DWlj99KOF/cg==\n".to_owned()),
    ] {
        let peer = serving(&file, field.clone());
        let place = DownloadDir::new();
        let ended = place.get(&[&peer.url("/f.bin"), "--require-digest"]);
        assert_eq!(ended.code, Some(if good { 0 } else { 9 }), "{field}: {}", ended.stderr);
        assert_eq!(place.path("f.bin").exists(), good, "{field}");
        assert_eq!(
            peer.requests()[0].field("want-repr-digest"),
            Some("sha-256=10, sha-512=5")
        );
    }
}

#[test]
fn where_a_digest_is_required_none_is_a_failure() {
    let peer = serving(&data(1000, 3), String::new());
    let place = DownloadDir::new();
    let ended = place.get(&[&peer.url("/f.bin"), "--require-digest"]);
    assert_eq!(ended.code, Some(9), "{}", ended.stderr);
    place.assert_no_file("f.bin");
}

#[test]
fn a_checksum_file_is_read_from_here_and_from_a_server() {
    let file = data(100_000, 4);
    let list = format!("{}  other.bin\n{} *f.bin\n", sha256(b"other"), sha256(&file));
    let (served, text) = (Arc::clone(&file), list.clone());
    let peer = Peer::start(move |asked, wire| {
        let body = if asked.line.contains("SHA256SUMS") {
            text.as_bytes()
        } else {
            &served[..]
        };
        wire.head(&format!("HTTP/1.1 200 OK\nContent-Length: {}\n\n", body.len()))?;
        wire.body(body)
    });
    let place = DownloadDir::new();
    place.get_well(&[&peer.url("/f.bin"), "--checksums", &peer.url("/SHA256SUMS")]);
    fs::write(place.path("sums"), list).expect("written");
    place.get_well(&[&peer.url("/f.bin"), "--checksums", "sums", "--update"]);
    let ended = place.get(&[&peer.url("/other.bin"), "--checksums", "sums"]);
    assert_eq!(ended.code, Some(9), "{}", ended.stderr);
    let ended = place.get(&[&peer.url("/unlisted.bin"), "--checksums", "sums"]);
    assert_eq!(ended.code, Some(9), "{}", ended.stderr);
    assert_eq!(place.names(), ["f.bin", "sums"]);
}
