//! A cache of answers by address for one thread, so a repeated request needs no parsing and no hashing.
//!
//! It is bounded and has no locks. An entry is valid until a time, and while no image was deleted.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Instant;

/// Most entries; beyond that all are dropped.
const MOST: usize = 1024;

/// The answers of one thread.
#[derive(Debug)]
pub struct Memo<V> {
    entries: RefCell<HashMap<Box<[u8]>, MemoEntry<V>, foldhash::fast::RandomState>>,
}

#[derive(Debug)]
struct MemoEntry<V> {
    value: V,
    /// Time until which it is valid.
    until: Instant,
    /// The only generation in which it is valid; a deletion begins the next one.
    generation: u64,
}

impl<V> Default for Memo<V> {
    fn default() -> Self {
        Self {
            entries: RefCell::default(),
        }
    }
}

impl<V> Memo<V> {
    /// Makes an answer of the entry of this key, if it is still valid.
    pub fn find<T>(
        &self,
        key: &[u8],
        now: Instant,
        generation: u64,
        answer: impl FnOnce(&V) -> Option<T>,
    ) -> Option<T> {
        let entries = self.entries.borrow();
        let entry = entries.get(key)?;
        if now >= entry.until || entry.generation != generation {
            return None;
        }
        answer(&entry.value)
    }

    /// Stores a value that is valid until a time.
    pub fn keep(&self, key: Vec<u8>, value: V, until: Instant, generation: u64) {
        let mut entries = self.entries.borrow_mut();
        if entries.len() >= MOST {
            entries.clear();
        }
        let entry = MemoEntry {
            value,
            until,
            generation,
        };
        entries.insert(key.into_boxed_slice(), entry);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_entry_is_trusted_until_its_time_and_while_nothing_was_deleted() {
        let (memo, now) = (Memo::default(), Instant::now());
        let second = Duration::from_secs(1);
        memo.keep(b"/a".to_vec(), 1, now + second, 7);
        let find = |key: &[u8], now, generation| memo.find(key, now, generation, |value| Some(*value));
        assert_eq!(find(b"/a", now, 7), Some(1));
        assert_eq!(find(b"/b", now, 7), None);
        assert_eq!(find(b"/a", now + second, 7), None);
        assert_eq!(find(b"/a", now, 8), None);
    }

    #[test]
    fn it_holds_a_bounded_number_of_entries() {
        let (memo, now) = (Memo::default(), Instant::now());
        let later = now + Duration::from_secs(1);
        for number in 0..=MOST {
            memo.keep(number.to_le_bytes().to_vec(), number, later, 0);
        }
        assert_eq!(memo.entries.borrow().len(), 1);
    }
}
