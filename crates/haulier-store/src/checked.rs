//! Checked files: a file in the same state need not be read and compared again.

use std::collections::HashSet;
use std::fmt;
use std::fs::Metadata;
use std::hash::{BuildHasher, Hash, RandomState};
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, PoisonError};

/// Most files in each of two generations; 1 MiB together.
const MOST: usize = 32 * 1024;

/// The state of a file: it differs after the file was replaced or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileState {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
    /// Time of the last change of content, owner, mode or name. Unlike the modification time, it cannot be set.
    changed: (i64, i64),
}

impl FileState {
    /// The state of an open file, from its metadata.
    #[must_use]
    pub fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            length: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Length of the file, bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }
}

/// The files that this process has checked, by name and state. The least recently used are dropped.
#[derive(Default)]
pub struct Checked {
    /// Hashes of name and state. Their seed is random, so a client cannot make a file with the hash of another one.
    generations: Mutex<Generations>,
    hasher: RandomState,
}

#[derive(Default)]
struct Generations {
    young: HashSet<u64>,
    old: HashSet<u64>,
}

impl Generations {
    fn note(&mut self, hash: u64) {
        if self.young.len() >= MOST {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(hash);
    }
}

impl Checked {
    /// True if the file of this name was noted in this state.
    pub fn contains(&self, name: &impl Hash, state: &FileState) -> bool {
        let hash = self.hasher.hash_one((name, state));
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        if generations.young.contains(&hash) {
            return true;
        }
        let is_known = generations.old.contains(&hash);
        if is_known {
            generations.note(hash);
        }
        is_known
    }

    /// Notes the file of this name in this state.
    pub fn note(&self, name: &impl Hash, state: &FileState) {
        let hash = self.hasher.hash_one((name, state));
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        generations.note(hash);
    }
}

impl fmt::Debug for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checked").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(inode: u64) -> FileState {
        FileState {
            device: 1,
            inode,
            length: 3,
            modified: (4, 5),
            changed: (6, 7),
        }
    }

    #[test]
    fn another_name_or_state_is_not_known() {
        let checked = Checked::default();
        checked.note(&"a", &state(1));
        assert!(checked.contains(&"a", &state(1)));
        assert!(!checked.contains(&"b", &state(1)) && !checked.contains(&"a", &state(2)));
        let touched = FileState {
            changed: (6, 8),
            ..state(1)
        };
        assert!(!checked.contains(&"a", &touched));
    }

    #[test]
    fn the_memory_is_bounded_and_keeps_what_is_asked_for() {
        let checked = Checked::default();
        for inode in 0..5 * MOST as u64 {
            checked.note(&"a", &state(inode));
            assert!(checked.contains(&"a", &state(0)), "after {inode}");
        }
        let generations = checked.generations.lock().expect("no panic");
        assert!(generations.young.len() <= MOST && generations.old.len() <= MOST);
    }
}
