//! Several connections where they help, one where they do not.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::peer::{Peer, data, honest_head};
use crate::program::DownloadDir;

const MIB: usize = 1024 * 1024;

/// The largest number of connections in the progress events.
fn most_connections(ended: &crate::program::Ended) -> u64 {
    let events = ended.events();
    let counts = events.iter().filter_map(|event| event["connections"].as_u64());
    counts.max().unwrap_or(1)
}

#[test]
fn a_link_limited_for_each_connection_gets_more_of_them() {
    let file = data(48 * MIB, 1);
    let served = Arc::clone(&file);
    let peer = Peer::start(move |asked, wire| {
        let (start, end) = honest_head(asked, wire, &served, "\"a\"")?;
        wire.slow_body(&served[start..end], 4_000_000)
    });
    let place = DownloadDir::new();
    let ended = place.get_well(&[&peer.url("/f.bin"), "--json", "-x", "8"]);
    assert!(place.read("f.bin") == *file);
    assert!(
        most_connections(&ended) >= 4,
        "{} connections",
        most_connections(&ended)
    );
    assert!(
        peer.requests()
            .iter()
            .skip(1)
            .all(|asked| asked.field("if-range") == Some("\"a\"")),
        "every part is bound to the state of the first"
    );
}

/// The second connection takes half and gains nothing, so it is retired: no byte may be missing, whichever ends last.
/// The length decides how far both have come by then.
#[test]
fn a_link_that_others_share_leaves_no_hole() {
    let ends: Vec<_> = (16..28)
        .map(|mebibytes| {
            std::thread::spawn(move || {
                let file = data(mebibytes * MIB, 8);
                let served = Arc::clone(&file);
                let link = Mutex::new(());
                let peer = Peer::start(move |asked, wire| {
                    let (start, end) = honest_head(asked, wire, &served, "\"a\"")?;
                    for piece in served[start..end].chunks(128 * 1024) {
                        let turn = link.lock().expect("no panic");
                        std::thread::sleep(Duration::from_millis(15));
                        drop(turn);
                        wire.body(piece)?;
                    }
                    Ok(())
                });
                let place = DownloadDir::new();
                place.get_well(&[&peer.url("/f.bin"), "-x", "4"]);
                assert!(place.read("f.bin") == *file, "of {mebibytes} MiB");
            })
        })
        .collect();
    for end in ends {
        end.join().expect("every file is whole");
    }
}

#[test]
fn a_limit_by_the_second_gets_all_connections_although_it_comes_in_bursts() {
    let file = data(32 * MIB, 7);
    let served = Arc::clone(&file);
    let peer = Peer::start(move |asked, wire| {
        let (start, end) = honest_head(asked, wire, &served, "\"a\"")?;
        wire.bursts(&served[start..end], MIB)
    });
    let place = DownloadDir::new();
    let ended = place.get_well(&[&peer.url("/f.bin"), "--json", "-x", "8"]);
    assert!(place.read("f.bin") == *file);
    assert_eq!(most_connections(&ended), 8);
}

#[test]
fn one_connection_is_one_if_that_was_asked() {
    let file = data(24 * MIB, 2);
    let served = Arc::clone(&file);
    let peer = Peer::start(move |asked, wire| {
        let (start, end) = honest_head(asked, wire, &served, "\"a\"")?;
        wire.slow_body(&served[start..end], 12_000_000)
    });
    let place = DownloadDir::new();
    place.get_well(&[&peer.url("/f.bin"), "-x", "1"]);
    assert!(place.read("f.bin") == *file);
    assert_eq!(peer.connections(), 1);
}

#[test]
fn a_server_that_promises_ranges_and_gives_none_costs_nothing() {
    let file = data(24 * MIB, 3);
    let served = Arc::clone(&file);
    let peer = Peer::start(move |_, wire| {
        let length = served.len();
        wire.head(&format!(
            "HTTP/1.1 200 OK\nContent-Length: {length}\nAccept-Ranges: bytes\nETag: \"a\"\n\n"
        ))?;
        wire.slow_body(&served, 8_000_000)
    });
    let place = DownloadDir::new();
    place.get_well(&[&peer.url("/f.bin")]);
    assert!(place.read("f.bin") == *file);
}

#[test]
fn a_server_that_refuses_further_connections_is_left_with_one() {
    let file = data(24 * MIB, 4);
    let served = Arc::clone(&file);
    let peer = Peer::start(move |asked, wire| {
        if asked.number > 0 {
            return wire.head("HTTP/1.1 429 Too Many Requests\nContent-Length: 0\n\n");
        }
        let (start, end) = honest_head(asked, wire, &served, "\"a\"")?;
        wire.slow_body(&served[start..end], 8_000_000)
    });
    let place = DownloadDir::new();
    place.get_well(&[&peer.url("/f.bin")]);
    assert!(place.read("f.bin") == *file);
}

#[test]
fn lanes_that_break_leave_no_hole() {
    let file = data(48 * MIB, 5);
    let served = Arc::clone(&file);
    let peer = Peer::start(move |asked, wire| {
        let (start, end) = honest_head(asked, wire, &served, "\"a\"")?;
        let most = if asked.number % 2 == 1 { MIB } else { usize::MAX };
        let end = end.min(start.saturating_add(most));
        wire.slow_body(&served[start..end], 6_000_000)?;
        if most == MIB { crate::peer::close() } else { Ok(()) }
    });
    let place = DownloadDir::new();
    place.get_well(&[&peer.url("/f.bin"), "-x", "8"]);
    assert!(place.read("f.bin") == *file);
}
