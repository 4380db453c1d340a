//! Interrupted runs: the next one continues where the last one stopped.

use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::peer::{Peer, close, data, honest, honest_head};
use crate::program::DownloadDir;

const MIB: usize = 1024 * 1024;
/// The bytes that a killed run may lose: those written since its record was saved last.
const SEGMENT: u64 = 8 * MIB as u64;

/// Serves `file` at 40 MB/s for each connection.
fn slow(file: &Arc<Vec<u8>>) -> Peer {
    let file = Arc::clone(file);
    Peer::start(move |asked, wire| {
        let (start, end) = honest_head(asked, wire, &file, "\"a\"")?;
        wire.slow_body(&file[start..end], 40_000_000)
    })
}

#[test]
fn twenty_kills_at_random_moments_lose_no_more_than_a_segment_each() {
    const KILLS: u64 = 20;
    let file = data(64 * MIB, 1);
    let peer = slow(&file);
    let place = DownloadDir::new();
    let mut killed = 0;
    for round in 0..KILLS {
        let mut child = place.start(&[&peer.url("/f.bin")]);
        thread::sleep(Duration::from_millis(20 + round * 37 % 150));
        if child.try_wait().expect("our child").is_none() {
            child.kill().expect("our child");
            killed += 1;
        }
        child.wait().expect("our child");
    }
    place.get_well(&[&peer.url("/f.bin")]);
    assert!(place.read("f.bin") == *file);
    assert_eq!(place.names(), ["f.bin"]);
    // The peer had written bytes that were still in the socket of the killed run.
    let in_flight = 6 * MIB as u64;
    let most = file.len() as u64 + killed * (SEGMENT + in_flight);
    assert!(
        peer.body_bytes() <= most,
        "{} of at most {most} bytes",
        peer.body_bytes()
    );
}

/// `dl?id=1` and `dl?id=2` are two files, even if a part of one is left.
#[test]
fn another_query_gets_its_own_file_and_leaves_the_part_of_the_first() {
    let files = [data(2 * MIB, 5), data(2 * MIB, 6)];
    let served = files.clone();
    let peer = Peer::start(move |asked, wire| {
        let number = usize::from(asked.line.contains("id=2"));
        let (file, tag) = (&served[number], ["\"one\"", "\"two\""][number]);
        let length = file.len();
        let range = asked.range(length).filter(|_| asked.field("if-range") == Some(tag));
        let (start, end) = range.unwrap_or((0, length));
        let status = match range {
            Some(_) => format!("206 Partial Content\nContent-Range: bytes {start}-{}/{length}", end - 1),
            None => "200 OK".to_owned(),
        };
        wire.head(&format!(
            "HTTP/1.1 {status}\nContent-Length: {}\nAccept-Ranges: bytes\nETag: {tag}\n\
             Content-Disposition: attachment; filename=\"{}.iso\"\n\n",
            end - start,
            ["a", "b"][number],
        ))?;
        if number == 0 && range.is_none() {
            wire.body(&file[..MIB])?;
            return close();
        }
        wire.body(&file[start..end])
    });
    let place = DownloadDir::new();
    let broken = place.get(&[&peer.url("/dl?id=1"), "--retry", "0"]);
    assert_ne!(broken.code, Some(0));
    place.get_well(&[&peer.url("/dl?id=2")]);
    assert!(place.read("b.iso") == *files[1]);
    place.get_well(&[&peer.url("/dl?id=1")]);
    assert!(place.read("a.iso") == *files[0]);
    let last = peer.requests().pop().expect("a request");
    assert!(last.field("range").is_some(), "the first half was there still");
}

#[test]
fn a_file_that_was_changed_here_is_not_called_complete() {
    let file = data(MIB, 9);
    let served = Arc::clone(&file);
    let peer = Peer::start(move |asked, wire| {
        if asked.field("if-none-match") == Some("\"a\"") {
            return wire.head("HTTP/1.1 304 Not Modified\nETag: \"a\"\n\n");
        }
        honest(asked, wire, &served, "\"a\"")
    });
    let place = DownloadDir::new();
    place.get_well(&[&peer.url("/f.bin"), "-o", "f.bin"]);
    place.get_well(&[&peer.url("/f.bin"), "-o", "f.bin"]);
    assert_eq!(peer.requests()[1].field("if-none-match"), Some("\"a\""));
    fs::write(place.path("f.bin"), "cut short").expect("ours");
    place.get_well(&[&peer.url("/f.bin"), "-o", "f.bin"]);
    assert!(place.read("f.bin") == *file);
}

#[test]
fn a_bit_that_flips_between_two_runs_is_found_and_its_bytes_are_fetched_again() {
    let file = data(40 * MIB, 4);
    let served = Arc::clone(&file);
    let peer = Peer::start(move |asked, wire| {
        let (start, end) = honest_head(asked, wire, &served, "\"a\"")?;
        if asked.number > 0 {
            return wire.body(&served[start..end]);
        }
        wire.body(&served[..30 * MIB])?;
        close()
    });
    let place = DownloadDir::new();
    let broken = place.get(&[&peer.url("/f.bin"), "--retry", "0"]);
    assert_ne!(broken.code, Some(0));
    let mut part = fs::read(place.path("f.bin.part")).expect("it stays");
    assert!(part.len() >= 29 * MIB, "{} bytes", part.len());
    // In a whole block, and in the rest after the last one.
    part[11 * MIB] ^= 1;
    part[26 * MIB] ^= 0x80;
    fs::write(place.path("f.bin.part"), part).expect("ours");
    let ended = place.get_well(&[&peer.url("/f.bin"), "--json"]);
    assert!(place.read("f.bin") == *file);
    let damaged = ended.event("damaged")["bytes"].as_u64().expect("a number");
    assert!(damaged >= 8 * MIB as u64 && damaged <= 16 * MIB as u64, "{damaged}");
    let most = (30 + 10 + 16 + 1) * MIB as u64;
    assert!(peer.body_bytes() <= most, "{} of at most {most}", peer.body_bytes());
}

#[test]
fn a_server_that_gives_a_hundred_bytes_a_time_is_given_up() {
    let file = data(MIB, 8);
    let served = Arc::clone(&file);
    let peer = Peer::start(move |asked, wire| {
        let (start, end) = honest_head(asked, wire, &served, "\"a\"")?;
        wire.body(&served[start..end.min(start + 100)])?;
        close()
    });
    let place = DownloadDir::new();
    let ended = place.get(&[&peer.url("/f.bin"), "--retry", "3"]);
    assert_eq!(ended.code, Some(5), "as after any broken connection: {}", ended.stderr);
    assert!(ended.stderr.contains("given up after 4 tries"), "{}", ended.stderr);
    assert!(peer.requests().len() <= 8, "{}", peer.requests().len());
    assert!(place.path("f.bin.part").exists(), "what came stays");
}

#[test]
fn an_interrupted_run_leaves_all_it_had_and_says_so_by_its_code() {
    let file = data(32 * MIB, 2);
    let served = Arc::clone(&file);
    let peer = Peer::start(move |asked, wire| {
        let (start, end) = honest_head(asked, wire, &served, "\"a\"")?;
        if asked.number > 0 {
            return wire.body(&served[start..end]);
        }
        wire.body(&served[..20 * MIB])?;
        thread::sleep(Duration::from_secs(120));
        Ok(())
    });
    let place = DownloadDir::new();
    let mut child = place.start(&[&peer.url("/f.bin")]);
    let part = place.path("f.bin.part");
    for _ in 0..600 {
        if fs::metadata(&part).is_ok_and(|metadata| metadata.len() == 20 * MIB as u64) {
            break;
        }
        thread::sleep(Duration::from_millis(50));
    }
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::INT).expect("our child");
    assert_eq!(child.wait().expect("our child").code(), Some(130));
    place.assert_no_file("f.bin");
    place.get_well(&[&peer.url("/f.bin")]);
    assert!(place.read("f.bin") == *file);
    assert_eq!(peer.body_bytes(), file.len() as u64, "no byte came twice");
    assert_eq!(peer.requests()[1].field("range"), Some("bytes=20971520-33554431"));
}

#[test]
fn a_complete_file_is_a_success_and_costs_no_body() {
    let file = data(MIB, 3);
    let served = Arc::clone(&file);
    let peer = Peer::start(move |asked, wire| {
        if asked.field("if-none-match") == Some("\"a\"") {
            return wire.head("HTTP/1.1 304 Not Modified\nETag: \"a\"\n\n");
        }
        honest(asked, wire, &served, "\"a\"")
    });
    let place = DownloadDir::new();
    let url = peer.url("/f.bin");
    place.get_well(&[&url]);
    let ended = place.get_well(&[&url, "--json"]);
    assert_eq!(ended.event("finished")["already_complete"], true);
    assert_eq!(place.names(), ["f.bin"]);
    assert_eq!(peer.body_bytes(), file.len() as u64);
}

#[test]
fn a_part_that_was_complete_but_for_its_name_is_only_named() {
    let file = data(MIB, 4);
    let served = Arc::clone(&file);
    let peer = Peer::start(move |asked, wire| honest(asked, wire, &served, "\"a\""));
    let place = DownloadDir::new();
    let url = peer.url("/f.bin");
    fs::write(place.path("f.bin.part"), &**file).expect("written");
    let record = format!(
        "{{\"url\":\"{url}\",\"etag\":\"\\\"a\\\"\",\"last_modified\":null,\"total\":{MIB},\"done\":[[0,{MIB}]],\"boot\":\"\",\"is_synced\":true}}"
    );
    fs::write(place.path("f.bin.part.json"), record).expect("written");
    place.get_well(&[&url]);
    assert!(place.read("f.bin") == *file);
    assert_eq!((place.names(), peer.requests().len()), (vec!["f.bin".to_owned()], 0));
}

#[test]
fn a_file_that_shrank_to_what_we_have_is_not_taken_for_complete_under_another_tag() {
    let (old, new) = (data(2 * MIB, 5), data(MIB, 6));
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
    place.get_well(&[&peer.url("/f.bin")]);
    assert!(place.read("f.bin") == *new);
}

#[test]
fn two_runs_at_once_do_not_spoil_each_other() {
    let file = data(16 * MIB, 7);
    let peer = slow(&file);
    let place = DownloadDir::new();
    let mut first = place.start(&[&peer.url("/f.bin"), "-o", "x.bin"]);
    let record = place.path("x.bin.part.json");
    for _ in 0..600 {
        if record.exists() || first.try_wait().expect("our child").is_some() {
            break;
        }
        thread::sleep(Duration::from_millis(5));
    }
    let second = place.get(&[&peer.url("/f.bin"), "-o", "x.bin"]);
    assert!(first.wait().expect("our child").success());
    assert!(matches!(second.code, Some(0 | 10)), "{}", second.stderr);
    assert!(place.read("x.bin") == *file);
}
