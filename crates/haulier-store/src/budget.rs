//! A limit on the number of cached members of a group, so that a client that requests every variant cannot fill the
//! cache.
//!
//! A member beyond the limit is still served, only not cached. The counts belong to this process, and are dropped after
//! a day, or when very many groups are in use.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::cache::{CacheKey, MemoryCache, Weigh};

/// Time for which a member counts.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Memory for the counts, bytes.
const MEMORY: u64 = 8 << 20;

/// The member counts of all groups.
#[derive(Debug)]
pub struct GroupBudget {
    /// Most members of one group; 0 is no limit.
    most: usize,
    groups: MemoryCache<Group>,
}

/// The members of one group.
#[derive(Debug, Clone)]
struct Group {
    /// The first eight bytes of each key.
    members: Arc<Mutex<Vec<u64>>>,
    since: Instant,
    most: usize,
}

impl Weigh for Group {
    fn weight(&self) -> u64 {
        // The largest weight, since the cache asks only once.
        64 + 8 * self.most as u64
    }
}

impl GroupBudget {
    /// A limit of `most` members per group; 0 is no limit.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            most,
            groups: MemoryCache::new(MEMORY),
        }
    }

    /// Counts a member; true if it may be cached.
    pub fn admit(&self, group: CacheKey, member: &CacheKey, now: Instant) -> bool {
        if self.most == 0 {
            return true;
        }
        let found = self.groups.find(&group);
        let found = found.filter(|found| now.saturating_duration_since(found.since) < DAY);
        let found = found.unwrap_or_else(|| {
            let new = Group {
                members: Arc::default(),
                since: now,
                most: self.most,
            };
            self.groups.keep(group, new.clone());
            new
        });
        let first = u64::from_le_bytes(*member.as_bytes().first_chunk().expect("a key is longer"));
        let mut members = found.members.lock().unwrap_or_else(PoisonError::into_inner);
        if members.contains(&first) {
            return true;
        }
        let has_room = members.len() < self.most;
        if has_room {
            members.push(first);
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> CacheKey {
        CacheKey::of(&[name.as_bytes()])
    }

    #[test]
    fn each_group_has_its_own_and_a_member_counts_once() {
        let budget = GroupBudget::new(2);
        let now = Instant::now();
        for member in ["a", "b", "a", "b"] {
            assert!(budget.admit(key("one"), &key(member), now), "{member}");
        }
        assert!(!budget.admit(key("one"), &key("c"), now));
        assert!(budget.admit(key("other"), &key("c"), now));
        assert!(budget.admit(key("one"), &key("a"), now), "it is one of the two");
    }

    #[test]
    fn the_next_day_begins_anew() {
        let budget = GroupBudget::new(1);
        let now = Instant::now();
        assert!(budget.admit(key("one"), &key("a"), now));
        assert!(!budget.admit(key("one"), &key("b"), now + DAY / 2));
        assert!(budget.admit(key("one"), &key("b"), now + DAY));
        assert!(!budget.admit(key("one"), &key("a"), now + DAY));
    }

    #[test]
    fn without_a_number_everything_is_kept() {
        let budget = GroupBudget::new(0);
        let now = Instant::now();
        assert!((0..500).all(|number| budget.admit(key("one"), &key(&number.to_string()), now)));
    }
}
