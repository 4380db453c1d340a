//! Checksums of the blocks in a `.part` file, so that the next run finds those that have changed since.
//!
//! A thread of its own reads each block from the page cache as soon as it is whole; the writers wait for nothing.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use serde::{Deserialize, Serialize};

use super::spans::Spans;

/// The least length of a block.
const BLOCK: u64 = 8 * 1024 * 1024;
/// Most blocks of a file: the record, which is written often, has a checksum for each.
const MOST_BLOCKS: u64 = 1024;
/// Most bytes outside whole blocks that the end of a run hashes.
const MOST_AT_END: u64 = 1 << 30;
/// Bytes of the hash that are kept: enough to find damage; no attacker is expected here.
const KEPT: usize = 8;
/// Bytes read at once.
const PIECE: usize = 256 * 1024;

/// The hash of the bytes from `start` up to `end`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sum {
    start: u64,
    end: u64,
    hash: String,
}

/// The checksums of one file, and the thread that makes them.
#[derive(Debug, Default)]
pub(super) struct Sums {
    /// By their first byte.
    made: Arc<Mutex<BTreeMap<u64, Sum>>>,
    /// Beginnings and ends of those that were asked for.
    asked: Spans,
    worker: Option<Worker>,
}

#[derive(Debug)]
struct Worker {
    blocks: Sender<(u64, u64)>,
    thread: JoinHandle<()>,
    stop: Arc<AtomicBool>,
}

impl Sums {
    /// The checksums of an earlier run that still match. Blocks that changed are taken out of `done`; the second value
    /// is their length in bytes.
    pub(super) fn checked(file: &File, recorded: Vec<Sum>, done: &mut Spans) -> (Self, u64) {
        let (mut sums, mut damaged) = (Self::default(), 0);
        for sum in recorded {
            if sum.start >= sum.end || !done.covers(sum.start, sum.end) {
                continue;
            }
            if hash(file, sum.start, sum.end).is_ok_and(|found| found == sum.hash) {
                sums.asked.insert(sum.start, sum.end);
                lock(&sums.made).insert(sum.start, sum);
            } else {
                done.remove(sum.start, sum.end);
                damaged += sum.end - sum.start;
            }
        }
        (sums, damaged)
    }

    /// All checksums made so far.
    pub(super) fn made(&self) -> Vec<Sum> {
        lock(&self.made).values().cloned().collect()
    }

    /// Hashes the blocks that became whole when the bytes from `start` up to `end` were written.
    pub(super) fn wrote(&mut self, file: &File, (start, end): (u64, u64), total: Option<u64>, done: &Spans) {
        let block = BLOCK.max((total.unwrap_or(0) / MOST_BLOCKS).next_power_of_two());
        for number in start / block..end.div_ceil(block) {
            let (from, to) = (number * block, (number + 1) * block);
            if done.covers(from, to) && !self.asked.touches(from, to) {
                self.ask(file, from, to);
            }
        }
    }

    fn ask(&mut self, file: &File, from: u64, to: u64) {
        if self.worker.is_none() {
            // Without the thread, the next run cannot check these blocks, and nothing else is lost.
            self.worker = Worker::start(file, Arc::clone(&self.made)).ok();
        }
        if let Some(worker) = &self.worker {
            self.asked.insert(from, to);
            let _ = worker.blocks.send((from, to));
        }
    }

    /// Forgets all checksums: other bytes will be written.
    pub(super) fn forget(&mut self) {
        self.end(true);
        *self = Self::default();
    }

    /// Hashes the bytes of `done` outside whole blocks, too, because the run ends.
    pub(super) fn complete(&mut self, file: &File, done: &Spans) {
        self.end(false);
        let mut missing = done.clone();
        for sum in self.made() {
            missing.remove(sum.start, sum.end);
        }
        if missing.len() > MOST_AT_END {
            return;
        }
        for (start, end) in Vec::from(missing) {
            if let Ok(hash) = hash(file, start, end) {
                lock(&self.made).insert(start, Sum { start, end, hash });
            }
        }
    }

    /// Waits for the thread; with `is_useless` it skips the blocks that it has not begun.
    fn end(&mut self, is_useless: bool) {
        if let Some(worker) = self.worker.take() {
            worker.stop.store(is_useless, Ordering::Relaxed);
            drop(worker.blocks);
            let _ = worker.thread.join();
        }
    }
}

impl Drop for Sums {
    fn drop(&mut self) {
        self.end(true);
    }
}

impl Worker {
    fn start(file: &File, made: Arc<Mutex<BTreeMap<u64, Sum>>>) -> io::Result<Self> {
        let (file, stop) = (file.try_clone()?, Arc::new(AtomicBool::new(false)));
        let (blocks, asked) = mpsc::channel();
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("sums".to_owned()).spawn(move || {
            for (start, end) in asked {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                if let Ok(hash) = hash(&file, start, end) {
                    lock(&made).insert(start, Sum { start, end, hash });
                }
            }
        })?;
        Ok(Self { blocks, thread, stop })
    }
}

fn hash(file: &File, start: u64, end: u64) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; PIECE];
    let mut at = start;
    while at < end {
        let length = usize::try_from(end - at).unwrap_or(PIECE).min(PIECE);
        file.read_exact_at(&mut buffer[..length], at)?;
        hasher.update(&buffer[..length]);
        at += length as u64;
    }
    let hash = hasher.finalize();
    Ok(hash.as_bytes()[..KEPT]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(pairs: &[(u64, u64)]) -> Spans {
        pairs.to_vec().into()
    }

    #[test]
    fn what_has_changed_is_found_and_taken_out() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(3 * BLOCK).expect("room");
        let mut done = spans(&[(0, 2 * BLOCK), (2 * BLOCK + 100, 2 * BLOCK + 300)]);
        let mut sums = Sums::default();
        sums.wrote(&file, (0, BLOCK / 2), Some(3 * BLOCK), &done);
        sums.wrote(&file, (BLOCK / 2, 2 * BLOCK), Some(3 * BLOCK), &done);
        sums.complete(&file, &done);
        let made = sums.made();
        assert_eq!(made.len(), 3, "{made:?}");
        let (again, damaged) = Sums::checked(&file, made.clone(), &mut done);
        assert_eq!((again.made().len(), damaged), (3, 0));
        file.write_all_at(b"x", BLOCK + 7).expect("written");
        file.write_all_at(b"x", 2 * BLOCK + 150).expect("written");
        let (again, damaged) = Sums::checked(&file, made, &mut done);
        assert_eq!((again.made().len(), damaged), (1, BLOCK + 200));
        assert_eq!(done, spans(&[(0, BLOCK)]));
    }

    #[test]
    fn a_sum_of_what_is_not_there_counts_for_nothing() {
        let file = tempfile::tempfile().expect("a file");
        let sum = Sum {
            start: 0,
            end: 10,
            hash: String::new(),
        };
        let mut done = spans(&[(0, 9)]);
        let (sums, damaged) = Sums::checked(&file, vec![sum], &mut done);
        assert_eq!((sums.made().len(), damaged, done.len()), (0, 0, 9));
    }
}
