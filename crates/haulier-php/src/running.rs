//! Requests that have kept a worker for a while, by label; `haulier status` shows them.
//!
//! A request is listed only after a delay, so a fast one costs nothing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time after which a request is listed, unless its response head has arrived by then.
pub(crate) const LISTED_AFTER: Duration = Duration::from_millis(100);

/// A request in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningRequest {
    /// Label of the request: `GET /export (req 7e10)`.
    pub label: String,
    /// Time since the lease.
    pub running: Duration,
    /// Process id of the worker, if known.
    pub pid: Option<u32>,
    /// Requests that the worker has answered before, as far as the pool knows.
    pub served: u64,
}

/// All listed requests of a pool.
#[derive(Debug, Default)]
pub(crate) struct RunningRequests {
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    next_ticket: u64,
    entries: Vec<ListedRequest>,
}

#[derive(Debug)]
struct ListedRequest {
    ticket: u64,
    label: String,
    since: Instant,
    pid: Option<u32>,
    served: u64,
    /// It was written to the log of slow requests.
    logged: bool,
}

/// Keeps a request listed until it is dropped.
#[derive(Debug)]
pub(crate) struct RunningGuard {
    running: Arc<RunningRequests>,
    ticket: u64,
}

impl RunningRequests {
    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists a request that has had its worker since `since`. The worker has answered `served` requests before.
    pub(crate) fn add(self: &Arc<Self>, label: String, since: Instant, pid: Option<u32>, served: u64) -> RunningGuard {
        let mut list = self.lock();
        let ticket = list.next_ticket;
        list.next_ticket += 1;
        list.entries.push(ListedRequest {
            ticket,
            label,
            since,
            pid,
            served,
            logged: false,
        });
        drop(list);
        RunningGuard {
            running: Arc::clone(self),
            ticket,
        }
    }

    /// The listed requests, the longest-running first.
    pub(crate) fn list(&self) -> Vec<RunningRequest> {
        let mut list: Vec<_> = self.lock().entries.iter().map(ListedRequest::describe).collect();
        list.sort_by_key(|request| std::cmp::Reverse(request.running));
        list
    }

    /// Requests that have had their worker for this time, each only once.
    pub(crate) fn take_slow(&self, after: Duration) -> Vec<RunningRequest> {
        let mut list = self.lock();
        let slow = list
            .entries
            .iter_mut()
            .filter(|entry| !entry.logged && entry.since.elapsed() >= after);
        slow.map(|entry| {
            entry.logged = true;
            entry.describe()
        })
        .collect()
    }
}

impl ListedRequest {
    fn describe(&self) -> RunningRequest {
        RunningRequest {
            label: self.label.clone(),
            running: self.since.elapsed(),
            pid: self.pid,
            served: self.served,
        }
    }
}

impl Drop for RunningGuard {
    fn drop(&mut self) {
        let mut list = self.running.lock();
        list.entries.retain(|entry| entry.ticket != self.ticket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_listed_until_its_guard_is_dropped_and_the_oldest_comes_first() {
        let running = Arc::new(RunningRequests::default());
        let now = Instant::now();
        let young = running.add("GET /young".into(), now, None, 0);
        let earlier = now.checked_sub(Duration::from_secs(5)).unwrap_or(now);
        let old = running.add("GET /old".into(), earlier, Some(7), 3);
        let labels = || {
            running
                .list()
                .into_iter()
                .map(|request| request.label)
                .collect::<Vec<_>>()
        };
        assert_eq!(labels(), ["GET /old", "GET /young"]);
        drop(old);
        assert_eq!(labels(), ["GET /young"]);
        drop(young);
        assert!(labels().is_empty());
    }

    #[test]
    fn a_slow_request_is_taken_once() {
        let running = Arc::new(RunningRequests::default());
        let now = Instant::now();
        let _young = running.add("GET /young".into(), now, None, 0);
        let _old = running.add("GET /old".into(), now - Duration::from_millis(50), None, 0);
        let slow = |after| {
            running
                .take_slow(after)
                .into_iter()
                .map(|request| request.label)
                .collect::<Vec<_>>()
        };
        assert!(slow(Duration::from_secs(3600)).is_empty());
        assert_eq!(slow(Duration::ZERO), ["GET /young", "GET /old"]);
        assert!(slow(Duration::ZERO).is_empty());
        assert_eq!(running.list().len(), 2, "it is still listed");
    }
}
