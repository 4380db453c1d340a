//! Bytes that changed where they lie: in a cache they are made again, and never sent as if they were right.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::support::haulier::Haulier;
use crate::support::images::{Images, jpeg, upload};
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
    haulier.wait_for_line("a cached value was damaged");
}
