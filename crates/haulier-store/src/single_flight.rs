//! Single flight: one computation per key, whose result goes to all callers that wait for it.
//!
//! The computation runs on the [`StoreRuntime`], independent of its callers: it continues if the first one is dropped,
//! and serves later ones.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use crate::StoreRuntime;
use crate::cache::CacheKey;

/// The computations in progress. Results are not kept; that is the task of a cache.
#[derive(Debug)]
pub struct SingleFlight<V> {
    running: Mutex<HashMap<CacheKey, watch::Receiver<Option<V>>>>,
}

impl<V> Default for SingleFlight<V> {
    fn default() -> Self {
        Self {
            running: Mutex::default(),
        }
    }
}

impl<V: Clone + Send + Sync + 'static> SingleFlight<V> {
    /// Waits for the computation of this key, and starts `work` if there is none. `None` if it panicked.
    pub async fn join<W>(self: &Arc<Self>, runtime: &StoreRuntime, key: CacheKey, work: impl FnOnce() -> W) -> Option<V>
    where
        W: Future<Output = V> + Send + 'static,
    {
        let mut result = self.start(runtime, key, work);
        // The sender is dropped without a value if the computation panicked or its thread ended.
        result.wait_for(Option::is_some).await.ok()?.clone()
    }

    /// Starts `work` for this key without waiting, unless it is running or `most` computations are.
    pub fn start_within<W>(
        self: &Arc<Self>,
        most: usize,
        runtime: &StoreRuntime,
        key: CacheKey,
        work: impl FnOnce() -> W,
    ) where
        W: Future<Output = V> + Send + 'static,
    {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).len();
        if running < most {
            self.start(runtime, key, work);
        }
    }

    /// True if a computation of this key is running.
    #[must_use]
    pub fn is_running(&self, key: &CacheKey) -> bool {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.contains_key(key)
    }

    fn start<W>(
        self: &Arc<Self>,
        runtime: &StoreRuntime,
        key: CacheKey,
        work: impl FnOnce() -> W,
    ) -> watch::Receiver<Option<V>>
    where
        W: Future<Output = V> + Send + 'static,
    {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(result) = running.get(&key) {
            return result.clone();
        }
        let (done, result) = watch::channel(None);
        running.insert(key, result.clone());
        let entry = RunningEntry {
            flights: Arc::clone(self),
            key,
        };
        let work = work();
        runtime.spawn(async move {
            let value = work.await;
            // Removed before the result is published: a later caller finds it in a cache, or computes it again.
            drop(entry);
            let _ = done.send(Some(value));
        });
        result
    }
}

/// The entry of a computation, removed when it is dropped, by a panic too.
struct RunningEntry<V> {
    flights: Arc<SingleFlight<V>>,
    key: CacheKey,
}

impl<V> Drop for RunningEntry<V> {
    fn drop(&mut self) {
        let mut running = self.flights.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    fn key(name: &[u8]) -> CacheKey {
        CacheKey::of(&[name])
    }

    #[test]
    fn many_callers_at_once_start_one_computation() {
        let runtime = StoreRuntime::start().expect("a thread");
        let flights = Arc::new(SingleFlight::default());
        let begun = Arc::new(AtomicUsize::new(0));
        let asked = Arc::new(AtomicUsize::new(0));
        let waiting: Vec<_> = (0..100)
            .map(|_| {
                let (flights, begun, own) = (Arc::clone(&flights), Arc::clone(&begun), runtime.clone());
                let asked = Arc::clone(&asked);
                runtime.spawn(async move {
                    asked.fetch_add(1, Ordering::Relaxed);
                    let work = || {
                        begun.fetch_add(1, Ordering::Relaxed);
                        async move {
                            while asked.load(Ordering::Relaxed) < 100 {
                                tokio::time::sleep(Duration::from_millis(5)).await;
                            }
                            42
                        }
                    };
                    flights.join(&own, key(b"x"), work).await
                })
            })
            .collect();
        for one in waiting {
            assert_eq!(runtime.block_on(one).expect("no panic"), Some(42));
        }
        assert_eq!(begun.load(Ordering::Relaxed), 1);
        let again = flights.join(&runtime, key(b"x"), || async { 43 });
        assert_eq!(runtime.block_on(again), Some(43), "a result is not kept here");
    }

    #[test]
    fn the_computation_goes_on_when_its_first_caller_has_gone() {
        let runtime = StoreRuntime::start().expect("a thread");
        let flights = Arc::new(SingleFlight::default());
        let (release, held) = tokio::sync::oneshot::channel::<()>();
        let own = runtime.clone();
        let joined = Arc::clone(&flights);
        let first = runtime.spawn(async move {
            let work = || async {
                held.await.expect("released");
                42
            };
            joined.join(&own, key(b"x"), work).await
        });
        while flights.running.lock().expect("no panic").is_empty() {
            std::thread::yield_now();
        }
        first.abort();
        let second = flights.start(&runtime, key(b"x"), || async { panic!("one is under way") });
        release.send(()).expect("it still runs");
        let mut second = second;
        let value = runtime.block_on(async { *second.wait_for(Option::is_some).await.expect("a result") });
        assert_eq!(value, Some(42));
    }

    #[test]
    fn a_computation_without_callers_is_started_once_and_within_the_limit() {
        let runtime = StoreRuntime::start().expect("a thread");
        let flights = Arc::new(SingleFlight::default());
        let (release, held) = watch::channel(false);
        let begun = Arc::new(AtomicUsize::new(0));
        for name in [&b"a"[..], b"a", b"b", b"c"] {
            let (begun, mut held) = (Arc::clone(&begun), held.clone());
            flights.start_within(2, &runtime, key(name), || async move {
                begun.fetch_add(1, Ordering::Relaxed);
                held.wait_for(|free| *free).await.expect("released").then_some(())
            });
        }
        assert!(flights.is_running(&key(b"a")) && flights.is_running(&key(b"b")) && !flights.is_running(&key(b"c")));
        release.send(true).expect("two wait");
        while flights.is_running(&key(b"a")) || flights.is_running(&key(b"b")) {
            std::thread::yield_now();
        }
        assert_eq!(begun.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_computation_that_panics_lets_the_next_one_try() {
        let runtime = StoreRuntime::start().expect("a thread");
        let flights = Arc::new(SingleFlight::<u8>::default());
        let broken = flights.join(&runtime, key(b"x"), || async { panic!("a fault") });
        assert_eq!(runtime.block_on(broken), None);
        let next = flights.join(&runtime, key(b"x"), || async { 1 });
        assert_eq!(runtime.block_on(next), Some(1));
    }
}
