//! Bytes that changed where they lie: in a cache they are made again, in the store they are told as damage; they are never
//! sent as if they were right.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use haulier_image::Format;

use crate::support::client::{Request, Response};
use crate::support::haulier::Haulier;
use crate::support::images::{Images, jpeg, md5, picture, upload};
use crate::support::{readable_directory, wait_until};

/// The files of a cache.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).expect("a folder").flatten() {
        match entry.path() {
            path if path.is_dir() => found.extend(entries(&path)),
            path => found.push(path),
        }
    }
    found
}

/// Changes one bit in the middle, as a disk does: no program is told.
fn flip(path: &Path) {
    // The clock of the file system is coarse.
    thread::sleep(Duration::from_millis(20));
    let file = File::options().read(true).write(true).open(path).expect("it is there");
    let middle = file.metadata().expect("its length").len() / 2;
    let mut byte = [0];
    file.read_exact_at(&mut byte, middle).expect("a byte");
    file.write_all_at(&[byte[0] ^ 1], middle).expect("it is ours");
}

/// Asks for a variant until it comes from the disk.
fn cached(haulier: &Haulier, target: &str) -> Vec<u8> {
    let series = "haulier_image_requests_total{site=\"img\",result=\"disk\"}";
    let mut body = Vec::new();
    wait_until("the cache to have it", || {
        let before = haulier.metrics().count(series);
        body = haulier.get(target).expect(200).body;
        thread::sleep(Duration::from_millis(20));
        haulier.metrics().count(series) > before
    });
    body
}

#[test]
fn a_cached_variant_that_changed_on_the_disk_is_made_again_and_never_sent() {
    let cache = readable_directory();
    let start = |store: &str| {
        let line = format!("cache = [\"disk:{}:64MiB\"]", cache.path().display());
        Images::new().store(store).with(&line).start()
    };
    let store = readable_directory();
    let store = store.path().display().to_string();
    let haulier = start(&store);
    let id = upload(&haulier, &jpeg(900, 700, 0));
    // The one is brought into memory for its answer, the other is sent by sendfile.
    let targets = [format!("/{id}?w=200"), format!("/{id}?w=880&f=png")];
    for target in &targets {
        let right = cached(&haulier, target);
        for path in entries(cache.path()) {
            flip(&path);
        }
        assert!(
            haulier.get(target).expect(200).body == right,
            "{target} in the same process"
        );
        assert!(cached(&haulier, target) == right, "{target} made again");
    }
    let lengths: Vec<u64> = entries(cache.path())
        .iter()
        .map(|path| fs::metadata(path).expect("a file").len())
        .collect();
    assert!(lengths.iter().any(|length| *length > 256 * 1024), "{lengths:?}");
    let right: Vec<Vec<u8>> = targets.iter().map(|target| cached(&haulier, target)).collect();
    drop(haulier);
    // One entry lies under the name of the other.
    let entries = entries(cache.path());
    fs::copy(&entries[0], &entries[1]).expect("it is ours");
    flip(&entries[0]);
    let haulier = start(&store);
    for (target, right) in targets.iter().zip(&right) {
        assert!(
            haulier.get(target).expect(200).body == *right,
            "{target} in the next process"
        );
    }
    haulier.wait_for_line("a damaged value in the cache was removed");
}

/// An answer that says so, and that nobody keeps.
#[track_caller]
fn is_told_as_damage(answer: Response) {
    let answer = answer.expect(502);
    assert!(matches!(answer.field("Cache-Control"), None | Some("no-store")));
    for field in ["ETag", "Last-Modified", "Expires"] {
        assert_eq!(answer.field(field), None, "{field}");
    }
}

#[test]
fn a_damaged_original_is_told_and_healed_by_its_upload() {
    let images = Images::new().with("cache = [\"memory:8MiB\"]");
    let store = images.store_path();
    let haulier = images.start();
    let image = jpeg(640, 480, 0);
    let id = upload(&haulier, &image);
    let path = store.join(format!("{}/{}/{id}", &id[..2], &id[2..4]));
    assert!(haulier.get(&format!("/{id}")).expect(200).body == image);
    let set_length = |length: u64| {
        let file = File::options().write(true).open(&path).expect("it is there");
        file.set_len(length).expect("it is ours");
    };
    let damages: [&dyn Fn(); 3] = [&|| set_length(0), &|| set_length(image.len() as u64 / 2), &|| {
        flip(&path);
    }];
    for (number, damage) in damages.into_iter().enumerate() {
        let variant = format!("/{id}?w={}", 300 + number);
        thread::sleep(Duration::from_millis(20));
        damage();
        is_told_as_damage(haulier.get(&format!("/{id}")));
        is_told_as_damage(haulier.get(&variant));
        is_told_as_damage(haulier.ask(&Request::head(&format!("/{id}"))));
        is_told_as_damage(haulier.ask(&Request::get(&format!("/{id}")).with("Range", "bytes=0-9")));
        is_told_as_damage(haulier.get(&format!("/info?md5={id}")));
        let post = || Request::post("/upload", image.clone()).with("Content-Type", "image/jpeg");
        haulier.ask(&post()).expect(201);
        assert!(fs::read(&path).expect("the original") == image);
        assert!(haulier.get(&format!("/{id}")).expect(200).body == image);
        let (format, width, _) = picture(haulier.get(&variant));
        assert_eq!((format, width), (Format::Jpeg, 300 + number as u32));
        haulier.ask(&post()).expect(200);
    }
    haulier.wait_for_line("store_damaged");
    let line = haulier
        .lines()
        .into_iter()
        .find(|line| line.contains("store_damaged: "));
    let line = line.expect("it was waited for");
    for told in [store.to_str().expect("text"), &id, &md5(b"")] {
        assert!(line.contains(told), "{told} in {line}");
    }
    wait_until("the refusals to be counted", || {
        haulier
            .metrics()
            .count("haulier_errors_total{site=\"img\",reason=\"store_damaged\"}")
            == 15
    });
}
