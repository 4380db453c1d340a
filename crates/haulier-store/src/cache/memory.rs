//! A cache of values in the memory of this process, with a limit on their bytes.

use std::fmt;

use bytes::Bytes;
use quick_cache::sync::{Cache as QuickCache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

use super::cache::{Cache, CacheError, Cached, Tier};
use super::key::CacheKey;
use crate::store::BoxFuture;

/// Most shards of the map, which is the number of threads that can write at the same time.
const SHARDS: u64 = 16;
/// The longest value is this part of its shard.
const VALUES_IN_SHARD: u64 = 4;
/// Overhead of an entry, bytes.
const OVERHEAD: u64 = 128;
/// Longest value, bytes; larger ones are sent from files, or requested rarely.
const MOST: u64 = 4 << 20;

/// The size of a value.
pub trait Weigh {
    /// The size in bytes.
    fn weight(&self) -> u64;
}

impl Weigh for Bytes {
    fn weight(&self) -> u64 {
        self.len() as u64
    }
}

#[derive(Debug, Clone)]
struct ByWeight;

impl<V: Weigh> Weighter<CacheKey, V> for ByWeight {
    fn weight(&self, _: &CacheKey, value: &V) -> u64 {
        value.weight() + OVERHEAD
    }
}

/// A cache of values that are cheap to clone. Values that are used again stay longer.
pub struct MemoryCache<V> {
    values: QuickCache<CacheKey, V, ByWeight, DefaultHashBuilder, DefaultLifecycle<CacheKey, V>>,
    limit: u64,
    /// Longest accepted value, bytes.
    most: u64,
}

impl<V: Weigh + Clone> MemoryCache<V> {
    /// A cache for `limit` bytes of values.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        // Each shard silently refuses values above its part of the limit, so the longest value limits the number of
        // shards.
        let most = MOST.min(limit / VALUES_IN_SHARD);
        let shards = (limit / (most.max(1) * VALUES_IN_SHARD)).clamp(1, SHARDS);
        let shards = 1 << shards.ilog2();
        let options = OptionsBuilder::new()
            .estimated_items_capacity(usize::try_from(limit / (16 * 1024)).unwrap_or(usize::MAX).max(16))
            .weight_capacity(limit)
            .shards(shards)
            .build()
            .expect("capacity and weight are given");
        Self {
            values: QuickCache::with_options(
                options,
                ByWeight,
                DefaultHashBuilder::default(),
                DefaultLifecycle::default(),
            ),
            limit,
            most: most.saturating_sub(OVERHEAD),
        }
    }

    /// Finds a value.
    #[must_use]
    pub fn find(&self, key: &CacheKey) -> Option<V> {
        self.values.get(key)
    }

    /// Stores a value; `false` if it is too long.
    pub fn keep(&self, key: CacheKey, value: V) -> bool {
        let fits = value.weight() <= self.most;
        if fits {
            self.values.insert(key, value);
        }
        fits
    }

    /// Removes a value.
    pub fn forget(&self, key: &CacheKey) {
        self.values.remove(key);
    }

    /// Longest accepted value, bytes.
    #[must_use]
    pub fn most(&self) -> u64 {
        self.most
    }

    /// Bytes of all values.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.values.weight()
    }
}

impl<V> fmt::Debug for MemoryCache<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryCache")
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

impl Cache for MemoryCache<Bytes> {
    fn get(&self, key: CacheKey) -> BoxFuture<'_, Result<Option<Cached>, CacheError>> {
        Box::pin(async move { Ok(self.find(&key).map(Cached::Bytes)) })
    }

    fn put(&self, key: CacheKey, value: Bytes) -> BoxFuture<'_, Result<(), CacheError>> {
        Box::pin(async move {
            if !self.keep(key, value) {
                self.forget(&key);
            }
            Ok(())
        })
    }

    fn delete(&self, key: CacheKey) -> BoxFuture<'_, Result<(), CacheError>> {
        Box::pin(async move {
            self.forget(&key);
            Ok(())
        })
    }

    fn tier(&self) -> Tier {
        Tier::Memory
    }

    fn place(&self) -> String {
        "memory".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{StoreRuntime, suite};

    fn key(number: usize) -> CacheKey {
        CacheKey::of(&[&number.to_le_bytes()])
    }

    #[test]
    fn memory_keeps_what_every_cache_promises() {
        let runtime = StoreRuntime::start().expect("a thread");
        suite::cache(&runtime, Arc::new(MemoryCache::<Bytes>::new(8 << 20)));
    }

    #[test]
    fn it_never_holds_more_than_its_limit() {
        let cache = MemoryCache::new(1 << 20);
        for number in 0..1000 {
            cache.keep(key(number), Bytes::from(vec![0; 10_000]));
            assert!(cache.bytes() <= 1 << 20);
        }
        let found = (0..1000).filter(|number| cache.find(&key(*number)).is_some()).count();
        assert!((50..=105).contains(&found), "{found} of 1000");
    }

    #[test]
    fn the_heaviest_value_it_takes_it_also_keeps() {
        for limit in [64 << 10, 1 << 20, 128 << 20, 3 << 30] {
            let cache = MemoryCache::new(limit);
            let heaviest = Bytes::from(vec![0; cache.most() as usize]);
            assert!(cache.keep(key(0), heaviest.clone()), "limit {limit}");
            assert_eq!(
                cache.find(&key(0)).map(|value| value.len()),
                Some(heaviest.len()),
                "limit {limit}"
            );
            let heavier = Bytes::from(vec![0; cache.most() as usize + 1]);
            assert!(
                !cache.keep(key(1), heavier) && cache.find(&key(1)).is_none(),
                "limit {limit}"
            );
        }
    }
}
