//! Memory that a booted script keeps from one request to the next, and its growth.
//!
//! A worker of our own tells the size of PHP's heap with the end of each request (embed/sapi.c). The least size among many
//! requests counts, since one request may keep more than another. What an application caches at first is soon forgotten.

use std::collections::VecDeque;

/// Requests of a worker whose least size counts.
const WINDOW: u32 = 100;
/// Last windows of all workers that make the growth of a pool, and the fewest.
const WINDOWS: usize = 20;
const FEWEST_WINDOWS: usize = 5;
/// Bytes a request that are a leak: a megabyte in four thousand requests.
const LEAK: i64 = 256;

/// Memory that the script of a pool keeps in a worker between two requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeptMemory {
    /// Size of PHP's heap, as the last worker has told it, bytes; `None` if no script stays booted.
    pub bytes: Option<u64>,
    /// Bytes by which it has grown with each of the last requests; `None` before there are enough.
    pub growth: Option<i64>,
}

impl KeptMemory {
    /// True if the script keeps more with every request.
    pub fn is_leak(&self) -> bool {
        self.growth.is_some_and(|growth| growth >= LEAK)
    }
}

/// The memory of one worker.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WorkerMemory {
    /// Requests of the window so far, and the least size among them.
    requests: u32,
    least: u64,
    /// The least size of the window before.
    before: Option<u64>,
}

impl WorkerMemory {
    /// Notes the size after a request. Returns the growth within a window of requests, at its end.
    pub(crate) fn note(&mut self, bytes: u64) -> Option<i64> {
        self.least = if self.requests == 0 {
            bytes
        } else {
            self.least.min(bytes)
        };
        self.requests += 1;
        if self.requests < WINDOW {
            return None;
        }
        self.requests = 0;
        let before = self.before.replace(self.least)?;
        Some(self.least.cast_signed() - before.cast_signed())
    }
}

/// The memory of all workers of a pool.
#[derive(Debug, Default)]
pub(crate) struct PoolMemory {
    bytes: Option<u64>,
    /// Growth of the last windows, oldest first.
    growths: VecDeque<i64>,
}

impl PoolMemory {
    /// Notes the size that a worker has told, with the growth at the end of a window.
    pub(crate) fn note(&mut self, bytes: u64, growth: Option<i64>) {
        self.bytes = Some(bytes);
        let Some(growth) = growth else { return };
        if self.growths.len() == WINDOWS {
            self.growths.pop_front();
        }
        self.growths.push_back(growth);
    }

    pub(crate) fn kept(&self) -> KeptMemory {
        let requests = i64::from(WINDOW) * self.growths.len() as i64;
        let is_enough = self.growths.len() >= FEWEST_WINDOWS;
        KeptMemory {
            bytes: self.bytes,
            growth: is_enough.then(|| self.growths.iter().sum::<i64>() / requests),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a pool of one worker shows after these sizes.
    fn after(sizes: impl Iterator<Item = u64>) -> KeptMemory {
        let (mut worker, mut pool) = (WorkerMemory::default(), PoolMemory::default());
        for bytes in sizes {
            let growth = worker.note(bytes);
            pool.note(bytes, growth);
        }
        pool.kept()
    }

    #[test]
    fn a_leak_is_told_by_its_bytes_a_request() {
        let leaking = after((0..1000).map(|request| 5_000_000 + 400 * request));
        assert_eq!((leaking.bytes, leaking.growth), (Some(5_399_600), Some(400)));
        assert!(leaking.is_leak());
        assert_eq!(
            after((0..300).map(|request| 400 * request)).growth,
            None,
            "too early to say"
        );
        let shrinking = after((0..1000).map(|request| 5_000_000 - 400 * request));
        assert!(!shrinking.is_leak(), "{shrinking:?}");
    }

    #[test]
    fn pages_of_different_size_and_caches_that_fill_are_no_leak() {
        let mixed = after((0..1000).map(|request| 5_000_000 + request % 7 * 100_000));
        assert_eq!(mixed.growth, Some(0));
        let caching = after((0..4000).map(|request| 5_000_000 + 2000 * request.min(1000)));
        assert_eq!(caching.growth, Some(0), "its cache is full");
        assert_eq!(after(std::iter::empty()), KeptMemory::default());
    }
}
