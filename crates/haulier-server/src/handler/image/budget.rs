//! How many variants of one image are kept: a client that asks for every width must not fill the caches.
//!
//! What is beyond the budget is made and sent all the same, so nobody's page breaks; it is only kept nowhere. The count
//! is this process's own, and forgotten after a day or when very many images are asked for.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use haulier_store::cache::{CacheKey, MemoryCache, Weigh};

/// How long a variant counts.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Memory for the counts, bytes.
const MEMORY: u64 = 8 << 20;

/// The counts of all images.
#[derive(Debug)]
pub(super) struct Budget {
    /// Variants of one image; 0 is no bound.
    most: usize,
    images: MemoryCache<Counted>,
}

/// The variants of one image.
#[derive(Debug, Clone)]
struct Counted {
    /// Beginnings of their keys.
    variants: Arc<Mutex<Vec<u64>>>,
    since: Instant,
    most: usize,
}

impl Weigh for Counted {
    fn weight(&self) -> u64 {
        // As it will be, since weights are asked for once.
        64 + 8 * self.most as u64
    }
}

impl Budget {
    /// For so many variants of each image; 0 is no bound.
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            images: MemoryCache::new(MEMORY),
        }
    }

    /// Whether a variant that was just made may be kept; if so, it counts.
    pub(super) fn takes(&self, image: CacheKey, variant: &CacheKey, now: Instant) -> bool {
        if self.most == 0 {
            return true;
        }
        let counted = self.images.find(&image);
        let counted = counted.filter(|counted| now.saturating_duration_since(counted.since) < DAY);
        let counted = counted.unwrap_or_else(|| {
            let counted = Counted {
                variants: Arc::default(),
                since: now,
                most: self.most,
            };
            self.images.keep(image, counted.clone());
            counted
        });
        let beginning = u64::from_le_bytes(*variant.as_bytes().first_chunk().expect("a key is longer"));
        let mut variants = counted.variants.lock().unwrap_or_else(PoisonError::into_inner);
        if variants.contains(&beginning) {
            return true;
        }
        let has_room = variants.len() < self.most;
        if has_room {
            variants.push(beginning);
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
    fn each_image_has_its_own_and_a_variant_counts_once() {
        let budget = Budget::new(2);
        let now = Instant::now();
        for variant in ["a", "b", "a", "b"] {
            assert!(budget.takes(key("one"), &key(variant), now), "{variant}");
        }
        assert!(!budget.takes(key("one"), &key("c"), now));
        assert!(budget.takes(key("other"), &key("c"), now));
        assert!(budget.takes(key("one"), &key("a"), now), "it is one of the two");
    }

    #[test]
    fn the_next_day_begins_anew() {
        let budget = Budget::new(1);
        let now = Instant::now();
        assert!(budget.takes(key("one"), &key("a"), now));
        assert!(!budget.takes(key("one"), &key("b"), now + DAY / 2));
        assert!(budget.takes(key("one"), &key("b"), now + DAY));
        assert!(!budget.takes(key("one"), &key("a"), now + DAY));
    }

    #[test]
    fn without_a_number_everything_is_kept() {
        let budget = Budget::new(0);
        let now = Instant::now();
        assert!((0..500).all(|number| budget.takes(key("one"), &key(&number.to_string()), now)));
    }
}
