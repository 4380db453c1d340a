//! Who fetches which bytes: the lanes of one file, and what nobody fetches yet.
//!
//! A lane works from its position to its end. Another lane may take the far half away from it at any moment; the cut is
//! always so far ahead that what the lane is moving just now stays before it.

/// The least a lane is given, bytes. Twice what a lane moves at once, so that no cut falls into a move.
pub const LEAST: u64 = 2 * MOVE as u64;
/// The most a lane moves at once, bytes.
pub const MOVE: usize = 1024 * 1024;

/// Cuts are multiples of this, bytes: whole pages on every machine.
const ALIGNED: u64 = 128 * 1024;

/// One connection's share.
#[derive(Debug, Clone, Copy, Default)]
struct Lane {
    at: u64,
    end: u64,
    is_working: bool,
    is_retired: bool,
}

/// All lanes of one file.
#[derive(Debug, Default)]
pub struct Board {
    lanes: Vec<Lane>,
    free: Vec<(u64, u64)>,
}

impl Board {
    /// `free` is what is missing, in order.
    #[must_use]
    pub fn new(free: Vec<(u64, u64)>) -> Self {
        Self {
            lanes: Vec::new(),
            free,
        }
    }

    /// A further lane, without work.
    pub fn add_lane(&mut self) -> usize {
        self.lanes.push(Lane::default());
        self.lanes.len() - 1
    }

    /// Gives the lane the part of the free bytes that begins at `start` and ends before `end`.
    pub fn assign(&mut self, lane: usize, start: u64, end: u64) {
        self.free = std::mem::take(&mut self.free)
            .into_iter()
            .flat_map(|(from, to)| [(from, to.min(start)), (from.max(end), to)])
            .filter(|(from, to)| from < to)
            .collect();
        self.lanes[lane] = Lane {
            at: start,
            end,
            is_working: true,
            is_retired: false,
        };
    }

    /// Finds work for the lane: the first free bytes, else the far half of the lane with most to do.
    pub fn take(&mut self, lane: usize) -> bool {
        if self.lanes[lane].is_retired {
            return false;
        }
        if let Some(&(start, end)) = self.free.first() {
            self.assign(lane, start, end);
            return true;
        }
        let busiest = self
            .lanes
            .iter_mut()
            .filter(|other| other.is_working && other.end != u64::MAX)
            .max_by_key(|other| other.end - other.at);
        let Some(busiest) = busiest.filter(|other| other.end - other.at >= 2 * LEAST) else {
            return false;
        };
        let middle = busiest.at + (busiest.end - busiest.at) / 2;
        let middle = middle - middle % ALIGNED;
        let end = std::mem::replace(&mut busiest.end, middle);
        self.assign(lane, middle, end);
        true
    }

    /// Where the lane is and where it ends.
    #[must_use]
    pub fn span(&self, lane: usize) -> (u64, u64) {
        (self.lanes[lane].at, self.lanes[lane].end)
    }

    /// The lane has moved on by so many bytes.
    pub fn advance(&mut self, lane: usize, bytes: u64) {
        self.lanes[lane].at += bytes;
    }

    /// A file of unknown length ends where the lane is.
    pub fn end_here(&mut self, lane: usize) {
        self.lanes[lane].end = self.lanes[lane].at;
    }

    /// The lane stops where it is. What it leaves goes to the lane whose work ends there, which only has to read on;
    /// else it is free.
    pub fn release(&mut self, lane: usize) {
        let left = std::mem::replace(&mut self.lanes[lane].is_working, false);
        let (start, end) = self.span(lane);
        if !left || start >= end {
            return;
        }
        match self
            .lanes
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

    /// Sends the lanes that came last home: they stop after what they are moving. One that works stays.
    pub fn retire(&mut self, lanes: usize) {
        let is_working = |lane: &&mut Lane| lane.is_working && !lane.is_retired;
        let working = self.lanes.iter_mut().filter(is_working).count();
        let leaving = self.lanes.iter_mut().rev().filter(is_working);
        leaving
            .take(lanes.min(working.saturating_sub(1)))
            .for_each(|lane| lane.is_retired = true);
    }

    /// Whether there are bytes that nobody fetches.
    #[must_use]
    pub fn is_left(&self) -> bool {
        !self.free.is_empty()
    }

    /// Whether the lane is to stop.
    #[must_use]
    pub fn is_retired(&self, lane: usize) -> bool {
        self.lanes[lane].is_retired
    }

    /// Whether there is work for another lane.
    #[must_use]
    pub fn has_work(&self) -> bool {
        let splits = |lane: &&Lane| lane.is_working && lane.end != u64::MAX && lane.end - lane.at >= 2 * LEAST;
        !self.free.is_empty() || self.lanes.iter().any(|lane| splits(&lane))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1024 * 1024;

    #[test]
    fn a_second_lane_takes_the_far_half() {
        let mut board = Board::new(vec![(0, 100 * MIB)]);
        let first = board.add_lane();
        assert!(board.take(first));
        board.advance(first, 20 * MIB);
        let second = board.add_lane();
        assert!(board.take(second));
        assert_eq!(board.span(first), (20 * MIB, 60 * MIB));
        assert_eq!(board.span(second), (60 * MIB, 100 * MIB));
    }

    #[test]
    fn little_work_is_not_shared() {
        let mut board = Board::new(vec![(0, 2 * LEAST - 1)]);
        let (first, second) = (board.add_lane(), board.add_lane());
        assert!(board.take(first));
        assert!(!board.has_work() && !board.take(second));
    }

    #[test]
    fn what_a_failed_lane_leaves_is_read_on_by_the_one_before_it() {
        let mut board = Board::new(vec![(0, 100 * MIB)]);
        let (first, second) = (board.add_lane(), board.add_lane());
        assert!(board.take(first) && board.take(second));
        board.release(second);
        assert_eq!(board.span(first), (0, 100 * MIB));
    }

    #[test]
    fn the_last_one_is_not_sent_home() {
        let mut board = Board::new(vec![(0, 100 * MIB)]);
        let (first, second) = (board.add_lane(), board.add_lane());
        assert!(board.take(first) && board.take(second));
        let (at, end) = board.span(first);
        board.advance(first, end - at);
        board.release(first);
        board.retire(1);
        assert!(!board.is_retired(second), "nobody else would fetch what is left");
        let third = board.add_lane();
        assert!(board.take(third));
        board.retire(5);
        assert!(!board.is_retired(second) && board.is_retired(third));
    }

    proptest! {
        /// Steps: a lane moves, or fails, or is added, or the last one is retired.
        #[test]
        fn every_byte_is_fetched_once_whatever_happens(
            steps in proptest::collection::vec((0usize..8, 0usize..5), 0..200),
        ) {
            let total = 64 * MIB;
            let mut board = Board::new(vec![(0, total)]);
            let mut fetched = vec![0u8; (total / MOVE as u64) as usize * 8];
            let unit = ALIGNED;
            let mut run = |board: &mut Board, lane: usize| {
                let (at, end) = board.span(lane);
                let moved = (end - at).min(unit);
                if moved > 0 {
                    fetched[(at / unit) as usize] += 1;
                    board.advance(lane, moved);
                }
                moved > 0
            };
            let mut lanes = 0;
            for (lane, what) in steps {
                match what {
                    0 if lanes < 8 => {
                        let lane = board.add_lane();
                        lanes += 1;
                        board.take(lane);
                    }
                    1 if lane < lanes => {
                        board.release(lane);
                        board.take(lane);
                    }
                    2 => board.retire(1),
                    _ if lane < lanes && board.lanes[lane].is_working => {
                        let stops = board.is_retired(lane) || !run(&mut board, lane);
                        if stops {
                            board.release(lane);
                            board.take(lane);
                        }
                    }
                    _ => {}
                }
            }
            let last = board.add_lane();
            for lane in 0..=last {
                loop {
                    if board.lanes[lane].is_working {
                        while run(&mut board, lane) {}
                        board.release(lane);
                    }
                    if lane < last || board.free.is_empty() {
                        break;
                    }
                    board.take(lane);
                }
            }
            while board.take(last) {
                while run(&mut board, last) {}
                board.release(last);
            }
            prop_assert!(fetched.iter().all(|times| *times == 1));
        }
    }
}
