//! One computation a key: whoever comes while it is under way waits for its result.
//!
//! The computation belongs to nobody: it goes on when the first who asked has gone, and serves those who came later.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use haulier_store::Courier;
use haulier_store::cache::CacheKey;
use tokio::sync::watch;

/// What is under way.
#[derive(Debug)]
pub(super) struct Flights<V> {
    running: Mutex<HashMap<CacheKey, watch::Receiver<Option<V>>>>,
}

impl<V> Default for Flights<V> {
    fn default() -> Self {
        Self {
            running: Mutex::default(),
        }
    }
}

impl<V: Clone + Send + Sync + 'static> Flights<V> {
    /// The result of the computation under this key. If none is under way, `work` is begun; `None` if it panicked.
    pub(super) async fn join<W>(
        self: &Arc<Self>,
        courier: &Courier,
        key: CacheKey,
        work: impl FnOnce() -> W,
    ) -> Option<V>
    where
        W: Future<Output = V> + Send + 'static,
    {
        let mut result = self.board(courier, key, work);
        // An error is a sender that went without a word: the computation panicked, or its thread ended.
        result.wait_for(Option::is_some).await.ok()?.clone()
    }

    /// Begins `work` under this key for nobody who waits; not if it is under way, or `most` others are.
    pub(super) fn begin<W>(self: &Arc<Self>, courier: &Courier, key: CacheKey, most: usize, work: impl FnOnce() -> W)
    where
        W: Future<Output = V> + Send + 'static,
    {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).len();
        if running < most {
            self.board(courier, key, work);
        }
    }

    /// Whether a computation under this key is under way.
    pub(super) fn has(&self, key: &CacheKey) -> bool {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.contains_key(key)
    }

    fn board<W>(
        self: &Arc<Self>,
        courier: &Courier,
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
        let (landed, result) = watch::channel(None);
        running.insert(key, result.clone());
        let seat = Seat {
            flights: Arc::clone(self),
            key,
        };
        let work = work();
        courier.spawn(async move {
            let value = work.await;
            // Before the result is told: who comes now finds it in a cache, or begins anew.
            drop(seat);
            let _ = landed.send(Some(value));
        });
        result
    }
}

/// Takes a computation off the list, however it ends.
struct Seat<V> {
    flights: Arc<Flights<V>>,
    key: CacheKey,
}

impl<V> Drop for Seat<V> {
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
    fn many_who_ask_at_once_start_one_computation() {
        let courier = Courier::start().expect("a thread");
        let flights = Arc::new(Flights::default());
        let begun = Arc::new(AtomicUsize::new(0));
        let asked = Arc::new(AtomicUsize::new(0));
        let waiting: Vec<_> = (0..100)
            .map(|_| {
                let (flights, begun, own) = (Arc::clone(&flights), Arc::clone(&begun), courier.clone());
                let asked = Arc::clone(&asked);
                courier.spawn(async move {
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
            assert_eq!(courier.block_on(one).expect("no panic"), Some(42));
        }
        assert_eq!(begun.load(Ordering::Relaxed), 1);
        let again = flights.join(&courier, key(b"x"), || async { 43 });
        assert_eq!(
            courier.block_on(again),
            Some(43),
            "what has landed is not remembered here"
        );
    }

    #[test]
    fn the_computation_goes_on_when_the_first_who_asked_has_gone() {
        let courier = Courier::start().expect("a thread");
        let flights = Arc::new(Flights::default());
        let (release, held) = tokio::sync::oneshot::channel::<()>();
        let own = courier.clone();
        let joined = Arc::clone(&flights);
        let first = courier.spawn(async move {
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
        let second = flights.board(&courier, key(b"x"), || async { panic!("one is under way") });
        release.send(()).expect("it still runs");
        let mut second = second;
        let value = courier.block_on(async { *second.wait_for(Option::is_some).await.expect("it landed") });
        assert_eq!(value, Some(42));
    }

    #[test]
    fn what_nobody_waits_for_is_begun_once_and_only_so_often() {
        let courier = Courier::start().expect("a thread");
        let flights = Arc::new(Flights::default());
        let (release, held) = watch::channel(false);
        let begun = Arc::new(AtomicUsize::new(0));
        for name in [&b"a"[..], b"a", b"b", b"c"] {
            let (begun, mut held) = (Arc::clone(&begun), held.clone());
            flights.begin(&courier, key(name), 2, || async move {
                begun.fetch_add(1, Ordering::Relaxed);
                held.wait_for(|free| *free).await.expect("released").then_some(())
            });
        }
        assert!(flights.has(&key(b"a")) && flights.has(&key(b"b")) && !flights.has(&key(b"c")));
        release.send(true).expect("two wait");
        while flights.has(&key(b"a")) || flights.has(&key(b"b")) {
            std::thread::yield_now();
        }
        assert_eq!(begun.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_computation_that_panics_lets_the_next_one_try() {
        let courier = Courier::start().expect("a thread");
        let flights = Arc::new(Flights::<u8>::default());
        let broken = flights.join(&courier, key(b"x"), || async { panic!("a fault") });
        assert_eq!(courier.block_on(broken), None);
        let next = flights.join(&courier, key(b"x"), || async { 1 });
        assert_eq!(courier.block_on(next), Some(1));
    }
}
