//! Images that were made to hurt, all at once: they are refused or made in bounds, and nobody else notices.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::client::{Connection, Request};
use crate::support::haulier::{Haulier, children_of};
use crate::support::images::{md5, picture};
use crate::support::readable_directory;
use crate::support::site::Site;

/// A real PNG of one colour, whose pixels deflate to a thousandth.
fn flat_png(width: u32, height: u32, shade: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgba);
    encoder.set_compression(png::Compression::Fast);
    let mut writer = encoder.write_header().expect("a header");
    let mut rows = writer.stream_writer().expect("a stream");
    let row = vec![shade; width as usize * 4];
    for _ in 0..height {
        rows.write_all(&row).expect("a row");
    }
    rows.finish().expect("an end");
    drop(writer);
    bytes
}

/// The header of a JPEG of this size with hardly anything behind it.
fn empty_jpeg(width: u16, height: u16) -> Vec<u8> {
    let mut bytes = vec![0xff, 0xd8, 0xff, 0xc2, 0, 17, 8];
    bytes.extend(height.to_be_bytes());
    bytes.extend(width.to_be_bytes());
    bytes.extend([3, 1, 0x22, 0, 2, 0x11, 0, 3, 0x11, 0]);
    bytes.extend([0xff, 0xda, 0, 12, 3, 1, 0, 2, 0, 3, 0, 0, 0, 0, 0, 0xff, 0xd9]);
    bytes
}

/// Memory that a process has for itself and its share of the rest, bytes; 0 if it is gone.
fn proportional(pid: u32) -> u64 {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kilobytes.unwrap_or(0) << 10
}

/// The server with its children and theirs.
fn whole_tree(pid: u32) -> u64 {
    proportional(pid) + children_of(pid).into_iter().map(whole_tree).sum::<u64>()
}

fn upload(haulier: &Haulier, image: &[u8]) -> String {
    haulier
        .ask(&Request::post("/upload", image).with("Content-Type", "image/png"))
        .expect(201);
    md5(image)
}

#[test]
fn eight_bombs_at_once_take_bounded_memory_and_files_are_served_meanwhile() {
    let store = readable_directory();
    let haulier = Site::new()
        .file("index.html", "<p>here</p>")
        .config(&format!(
            "[site.test.images]\nstore = {:?}\ntimeout = \"60s\"",
            store.path()
        ))
        .start();
    // As large as the limits allow: 160 MB of pixels each, a few kilobytes of file.
    let mut bombs: Vec<String> = (0..6)
        .map(|shade| upload(&haulier, &flat_png(8000, 5000, shade)))
        .collect();
    // These lie about themselves; the upload takes the second one, because 40 million pixels are allowed.
    let refused = Request::post("/upload", empty_jpeg(65_500, 65_500)).with("Content-Type", "image/jpeg");
    haulier.ask(&refused).expect(422);
    for height in [2400, 2450] {
        bombs.push(upload(&haulier, &empty_jpeg(16_000, height)));
    }
    assert_eq!(bombs.len(), 8);

    let over = AtomicBool::new(false);
    let (address, pid) = (haulier.address(), haulier.pid());
    let (answers, most, waits) = thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut most = 0;
            while !over.load(Ordering::Relaxed) {
                most = most.max(whole_tree(pid));
                thread::sleep(Duration::from_millis(5));
            }
            most
        });
        let visitor = scope.spawn(|| {
            let mut waits = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let begin = Instant::now();
                Connection::open(address).ask(&Request::get("/")).expect(200);
                waits.push(begin.elapsed());
                thread::sleep(Duration::from_millis(20));
            }
            waits
        });
        let asking: Vec<_> = bombs
            .iter()
            .map(|id| scope.spawn(move || Connection::open(address).ask(&Request::get(&format!("/{id}?w=100")))))
            .collect();
        let answers: Vec<_> = asking.into_iter().map(thread::ScopedJoinHandle::join).collect();
        // Before anything is judged: the watchers must end whatever came.
        over.store(true, Ordering::Relaxed);
        let answers: Vec<_> = answers.into_iter().map(|answer| answer.expect("an answer")).collect();
        (
            answers,
            watcher.join().expect("the watcher"),
            visitor.join().expect("the visitor"),
        )
    });
    // Whoever waits too long for memory is told to come again; what lies about itself is no image.
    let made = answers.iter().filter(|answer| answer.status() == 200).count();
    for (number, answer) in answers.into_iter().enumerate() {
        match (number < 6, answer.status()) {
            (_, 200) => assert_eq!(picture(answer).1, 100, "bomb {number}"),
            (_, 503) => assert!(answer.field("Retry-After").is_some(), "bomb {number}"),
            (false, 422) => {}
            (_, status) => panic!("bomb {number}: {status}"),
        }
    }
    assert!(made > 0, "some were made");
    println!(
        "eight bombs: {} MiB at most, {} files meanwhile",
        most >> 20,
        waits.len()
    );
    assert!(most <= 512 << 20, "{} MiB", most >> 20);
    // Where files waited for images most of them would; one or the other waits where a machine has much to do.
    let mut waits = waits;
    waits.sort();
    let usual = waits[waits.len() / 2];
    assert!(usual < Duration::from_millis(1500), "{usual:?}");
    assert_eq!(
        haulier
            .metrics()
            .count("haulier_image_worker_crashes_total{site=\"test\"}"),
        0
    );
}
