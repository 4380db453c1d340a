//! The missing ranges of a file, and their workers.
//!
//! A worker fetches from its position to its end. Another worker may take the far half away at any moment; the cut lies
//! so far ahead that the bytes the worker is moving stay before it.

/// The shortest range that is split off, bytes: twice the bytes that a worker moves at once, so that no cut falls into
/// them.
pub const LEAST: u64 = 2 * MOVE as u64;
/// The most bytes that a worker moves at once.
pub const MOVE: usize = 1024 * 1024;

/// Cuts are multiples of this, bytes: whole pages on every machine.
const ALIGNED: u64 = 128 * 1024;

/// The range of one worker.
#[derive(Debug, Clone, Copy, Default)]
struct Worker {
    at: u64,
    end: u64,
    is_working: bool,
    is_retired: bool,
}

/// The ranges of all workers, and those that have none.
#[derive(Debug, Default)]
pub struct Ranges {
    workers: Vec<Worker>,
    free: Vec<(u64, u64)>,
}

impl Ranges {
    /// The missing ranges, in order, without workers.
    #[must_use]
    pub fn new(free: Vec<(u64, u64)>) -> Self {
        Self {
            workers: Vec::new(),
            free,
        }
    }

    /// Adds a worker without a range.
    pub fn add_worker(&mut self) -> usize {
        self.workers.push(Worker::default());
        self.workers.len() - 1
    }

    /// Gives the free bytes from `start` up to `end` to the worker.
    pub fn assign(&mut self, worker: usize, start: u64, end: u64) {
        self.free = std::mem::take(&mut self.free)
            .into_iter()
            .flat_map(|(from, to)| [(from, to.min(start)), (from.max(end), to)])
            .filter(|(from, to)| from < to)
            .collect();
        self.workers[worker] = Worker {
            at: start,
            end,
            is_working: true,
            is_retired: false,
        };
    }

    /// Finds a range for the worker: the first free one, else the far half of the longest; `false` if there is none.
    pub fn take(&mut self, worker: usize) -> bool {
        if self.workers[worker].is_retired {
            return false;
        }
        if let Some(&(start, end)) = self.free.first() {
            self.assign(worker, start, end);
            return true;
        }
        let busiest = self
            .workers
            .iter_mut()
            .filter(|other| other.is_working && other.end != u64::MAX)
            .max_by_key(|other| other.end - other.at);
        let Some(busiest) = busiest.filter(|other| other.end - other.at >= 2 * LEAST) else {
            return false;
        };
        let middle = busiest.at + (busiest.end - busiest.at) / 2;
        let middle = middle - middle % ALIGNED;
        let end = std::mem::replace(&mut busiest.end, middle);
        self.assign(worker, middle, end);
        true
    }

    /// The worker's position and the end of its range.
    #[must_use]
    pub fn span(&self, worker: usize) -> (u64, u64) {
        (self.workers[worker].at, self.workers[worker].end)
    }

    /// Moves the worker's position on by `bytes`.
    pub fn advance(&mut self, worker: usize, bytes: u64) {
        self.workers[worker].at += bytes;
    }

    /// Ends a file of unknown length at the worker's position.
    pub fn end_here(&mut self, worker: usize) {
        self.workers[worker].end = self.workers[worker].at;
    }

    /// Ends the worker's range at its position. The rest goes to the worker whose range ends there, which only has to
    /// read on; else it is free.
    pub fn release(&mut self, worker: usize) {
        let left = std::mem::replace(&mut self.workers[worker].is_working, false);
        let (start, end) = self.span(worker);
        if !left || start >= end {
            return;
        }
        match self
            .workers
            .iter_mut()
            .find(|other| other.is_working && other.end == start)
        {
            Some(before) => before.end = end,
            None => {
                self.free.push((start, end));
                self.free.sort_unstable();
            }
        }
    }

    /// Retires the workers that came last: they stop after the bytes they are moving. One working worker stays.
    pub fn retire(&mut self, workers: usize) {
        let is_working = |worker: &&mut Worker| worker.is_working && !worker.is_retired;
        let working = self.workers.iter_mut().filter(is_working).count();
        let leaving = self.workers.iter_mut().rev().filter(is_working);
        leaving
            .take(workers.min(working.saturating_sub(1)))
            .for_each(|worker| worker.is_retired = true);
    }

    /// True if a range has no worker.
    #[must_use]
    pub fn is_left(&self) -> bool {
        !self.free.is_empty()
    }

    /// True if the worker is to stop.
    #[must_use]
    pub fn is_retired(&self, worker: usize) -> bool {
        self.workers[worker].is_retired
    }

    /// True if there is a range for another worker.
    #[must_use]
    pub fn has_work(&self) -> bool {
        let splits =
            |worker: &&Worker| worker.is_working && worker.end != u64::MAX && worker.end - worker.at >= 2 * LEAST;
        !self.free.is_empty() || self.workers.iter().any(|worker| splits(&worker))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1024 * 1024;

    #[test]
    fn a_second_worker_takes_the_far_half() {
        let mut ranges = Ranges::new(vec![(0, 100 * MIB)]);
        let first = ranges.add_worker();
        assert!(ranges.take(first));
        ranges.advance(first, 20 * MIB);
        let second = ranges.add_worker();
        assert!(ranges.take(second));
        assert_eq!(ranges.span(first), (20 * MIB, 60 * MIB));
        assert_eq!(ranges.span(second), (60 * MIB, 100 * MIB));
    }

    #[test]
    fn little_work_is_not_shared() {
        let mut ranges = Ranges::new(vec![(0, 2 * LEAST - 1)]);
        let (first, second) = (ranges.add_worker(), ranges.add_worker());
        assert!(ranges.take(first));
        assert!(!ranges.has_work() && !ranges.take(second));
    }

    #[test]
    fn what_a_failed_worker_leaves_is_read_on_by_the_one_before_it() {
        let mut ranges = Ranges::new(vec![(0, 100 * MIB)]);
        let (first, second) = (ranges.add_worker(), ranges.add_worker());
        assert!(ranges.take(first) && ranges.take(second));
        ranges.release(second);
        assert_eq!(ranges.span(first), (0, 100 * MIB));
    }

    #[test]
    fn the_last_one_is_not_retired() {
        let mut ranges = Ranges::new(vec![(0, 100 * MIB)]);
        let (first, second) = (ranges.add_worker(), ranges.add_worker());
        assert!(ranges.take(first) && ranges.take(second));
        let (at, end) = ranges.span(first);
        ranges.advance(first, end - at);
        ranges.release(first);
        ranges.retire(1);
        assert!(!ranges.is_retired(second), "no other worker would fetch the rest");
        let third = ranges.add_worker();
        assert!(ranges.take(third));
        ranges.retire(5);
        assert!(!ranges.is_retired(second) && ranges.is_retired(third));
    }

    proptest! {
        /// Steps: a worker moves, or fails, or is added, or the last one is retired.
        #[test]
        fn every_byte_is_fetched_once_whatever_happens(
            steps in proptest::collection::vec((0usize..8, 0usize..5), 0..200),
        ) {
            let total = 64 * MIB;
            let mut ranges = Ranges::new(vec![(0, total)]);
            let mut fetched = vec![0u8; (total / MOVE as u64) as usize * 8];
            let unit = ALIGNED;
            let mut run = |ranges: &mut Ranges, worker: usize| {
                let (at, end) = ranges.span(worker);
                let moved = (end - at).min(unit);
                if moved > 0 {
                    fetched[(at / unit) as usize] += 1;
                    ranges.advance(worker, moved);
                }
                moved > 0
            };
            let mut workers = 0;
            for (worker, what) in steps {
                match what {
                    0 if workers < 8 => {
                        let worker = ranges.add_worker();
                        workers += 1;
                        ranges.take(worker);
                    }
                    1 if worker < workers => {
                        ranges.release(worker);
                        ranges.take(worker);
                    }
                    2 => ranges.retire(1),
                    _ if worker < workers && ranges.workers[worker].is_working => {
                        let stops = ranges.is_retired(worker) || !run(&mut ranges, worker);
                        if stops {
                            ranges.release(worker);
                            ranges.take(worker);
                        }
                    }
                    _ => {}
                }
            }
            let last = ranges.add_worker();
            for worker in 0..=last {
                loop {
                    if ranges.workers[worker].is_working {
                        while run(&mut ranges, worker) {}
                        ranges.release(worker);
                    }
                    if worker < last || ranges.free.is_empty() {
                        break;
                    }
                    ranges.take(worker);
                }
            }
            while ranges.take(last) {
                while run(&mut ranges, last) {}
                ranges.release(last);
            }
            prop_assert!(fetched.iter().all(|times| *times == 1));
        }
    }
}
