//! Several caches in a row, the nearest first.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::future::join_all;

use super::cache::{Cache, CacheError, Cached, Tier};
use super::key::CacheKey;
use crate::runtime::blocking;

/// Caches that are asked one after the other. A failure of one is a miss.
#[derive(Debug, Clone, Default)]
pub struct Tiered(Arc<[Member]>);

#[derive(Debug)]
struct Member {
    cache: Arc<dyn Cache>,
    failures: AtomicU64,
}

/// A found value, with the kind of cache.
#[derive(Debug)]
pub struct Hit {
    pub value: Cached,
    pub tier: Tier,
}

/// Status of one of the caches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierStatus {
    pub tier: Tier,
    /// Location, for messages.
    pub place: String,
    /// Failed calls since the start.
    pub failures: u64,
}

impl Tiered {
    /// These caches, the nearest first.
    #[must_use]
    pub fn new(caches: Vec<Arc<dyn Cache>>) -> Self {
        let member = |cache| Member {
            cache,
            failures: AtomicU64::new(0),
        };
        Self(caches.into_iter().map(member).collect())
    }

    /// The value from the nearest cache that has it, which is copied into the nearer ones in the background.
    pub async fn get(&self, key: CacheKey) -> Option<Hit> {
        for (number, member) in self.0.iter().enumerate() {
            if let Ok(Some(value)) = member.count(member.cache.get(key).await) {
                let tier = member.cache.tier();
                let value = self.promote(key, value, number);
                return Some(Hit { value, tier });
            }
        }
        None
    }

    /// Copies the value of cache `number` into those before it.
    fn promote(&self, key: CacheKey, value: Cached, number: usize) -> Cached {
        if number == 0 {
            return value;
        }
        let copy = match &value {
            Cached::Bytes(bytes) => Cached::Bytes(bytes.clone()),
            Cached::File(file, length) => match file.try_clone() {
                Ok(file) => Cached::File(file, *length),
                Err(_) => return value,
            },
        };
        let tiers = self.clone();
        tokio::spawn(async move {
            if let Ok(bytes) = blocking(move || copy.into_bytes()).await {
                tiers.put_into(&tiers.0[..number], key, &bytes).await;
            }
        });
        value
    }

    /// Stores a value in all caches.
    pub async fn put(&self, key: CacheKey, value: &Bytes) {
        self.put_into(&self.0, key, value).await;
    }

    async fn put_into(&self, members: &[Member], key: CacheKey, value: &Bytes) {
        let mut calls = Vec::with_capacity(members.len());
        for member in members {
            calls.push(member.cache.put(key, value.clone()));
        }
        let outcomes = join_all(calls).await;
        for (member, outcome) in members.iter().zip(outcomes) {
            // An error is counted, and logged by the guard; the value can be made again.
            let _ = member.count(outcome);
        }
    }

    /// Removes a value from all caches.
    pub async fn delete(&self, key: CacheKey) {
        let mut calls = Vec::with_capacity(self.0.len());
        for member in self.0.iter() {
            calls.push(member.cache.delete(key));
        }
        let outcomes = join_all(calls).await;
        for (member, outcome) in self.0.iter().zip(outcomes) {
            let _ = member.count(outcome);
        }
    }

    /// Status of each cache, in order.
    #[must_use]
    pub fn status(&self) -> Vec<TierStatus> {
        let status = |member: &Member| TierStatus {
            tier: member.cache.tier(),
            place: member.cache.place(),
            failures: member.failures.load(Ordering::Relaxed),
        };
        self.0.iter().map(status).collect()
    }
}

impl Member {
    fn count<T>(&self, outcome: Result<T, CacheError>) -> Result<T, CacheError> {
        if let Err(error) = &outcome {
            self.failures.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(tier = self.cache.tier().as_str(), %error, "a cache failed");
        }
        outcome
    }
}

#[cfg(all(test, feature = "memcached"))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::StoreRuntime;
    use crate::cache::{DiskCache, MemcachedCache, MemoryCache};
    use crate::store::BoxFuture;

    /// A cache whose every call fails.
    #[derive(Debug)]
    struct Broken;

    impl Cache for Broken {
        fn get(&self, _: CacheKey) -> BoxFuture<'_, Result<Option<Cached>, CacheError>> {
            Box::pin(async { Err(CacheError::Damaged) })
        }

        fn put(&self, _: CacheKey, _: Bytes) -> BoxFuture<'_, Result<(), CacheError>> {
            Box::pin(async { Err(CacheError::Damaged) })
        }

        fn delete(&self, _: CacheKey) -> BoxFuture<'_, Result<(), CacheError>> {
            Box::pin(async { Err(CacheError::Damaged) })
        }

        fn tier(&self) -> Tier {
            Tier::Redis
        }

        fn place(&self) -> String {
            "nowhere".into()
        }
    }

    #[test]
    fn a_farther_cache_fills_the_nearer_ones_and_failures_are_misses() {
        let directory = tempfile::tempdir().expect("a directory");
        let runtime = StoreRuntime::start().expect("a thread");
        let memory = Arc::new(MemoryCache::<Bytes>::new(1 << 20));
        let disk = Arc::new(DiskCache::open(directory.path(), 1 << 20).expect("a cache"));
        // No server listens on port 1: calls fail at once.
        let gone = Arc::new(MemcachedCache::new(&["127.0.0.1:1".to_owned()]));
        let tiers = Tiered::new(vec![memory.clone(), Arc::new(Broken), gone, disk.clone()]);
        let key = CacheKey::of(&[b"key"]);
        let value = Bytes::from_static(b"value");
        let asked = tiers.clone();
        let check = async move {
            assert!(asked.get(key).await.is_none());
            disk.put(key, value.clone()).await.expect("kept");
            let hit = asked.get(key).await.expect("it is on the disk");
            assert_eq!(hit.tier, Tier::Disk);
            assert_eq!(hit.value.into_bytes().expect("its bytes"), value);
            for _ in 0..1000 {
                if memory.find(&key).is_some() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            assert_eq!(asked.get(key).await.expect("it is nearer now").tier, Tier::Memory);
            asked.delete(key).await;
            assert!(asked.get(key).await.is_none());
        };
        runtime.block_on(runtime.spawn(check)).expect("no panic");
        let failures: Vec<bool> = tiers.status().iter().map(|tier| tier.failures > 0).collect();
        assert_eq!(failures, [false, true, true, false]);
    }
}
