//! Requests that have kept a worker for a while, by name: what `status` shows when a pool is slow.
//!
//! A request is noted only once it takes longer than most, so that the usual one costs nothing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a request keeps its worker before it is noted, unless its response is on the way sooner.
pub(crate) const NOTED_AFTER: Duration = Duration::from_millis(100);

/// A request PHP is at work on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningRequest {
    /// In a few words: `GET /export (req 7e10)`.
    pub label: String,
    /// How long it has had its worker.
    pub running: Duration,
    /// The worker, where it is known.
    pub pid: Option<u32>,
    /// Requests that worker has answered before, as far as we have seen.
    pub served: u64,
}

/// All noted requests of a pool.
#[derive(Debug, Default)]
pub(crate) struct Running {
    notes: Mutex<Notes>,
}

#[derive(Debug, Default)]
struct Notes {
    next_ticket: u64,
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    ticket: u64,
    label: String,
    since: Instant,
    pid: Option<u32>,
    served: u64,
    /// The log of slow requests has it.
    logged: bool,
}

/// Keeps a request noted until it is dropped.
#[derive(Debug)]
pub(crate) struct Noted {
    running: Arc<Running>,
    ticket: u64,
}

impl Running {
    fn lock(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a request that has had its worker, who answered `served` before, since then.
    pub(crate) fn note(self: &Arc<Self>, label: String, since: Instant, pid: Option<u32>, served: u64) -> Noted {
        let mut notes = self.lock();
        let ticket = notes.next_ticket;
        notes.next_ticket += 1;
        notes.entries.push(Entry {
            ticket,
            label,
            since,
            pid,
            served,
            logged: false,
        });
        drop(notes);
        Noted {
            running: Arc::clone(self),
            ticket,
        }
    }

    /// What is noted now, the longest first.
    pub(crate) fn list(&self) -> Vec<RunningRequest> {
        let notes = self.lock();
        let mut list: Vec<_> = notes.entries.iter().map(Entry::describe).collect();
        drop(notes);
        list.sort_by_key(|request| std::cmp::Reverse(request.running));
        list
    }

    /// Those that have had their worker for this long, each once.
    pub(crate) fn take_slow(&self, after: Duration) -> Vec<RunningRequest> {
        let mut notes = self.lock();
        let slow = notes
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

impl Entry {
    fn describe(&self) -> RunningRequest {
        RunningRequest {
            label: self.label.clone(),
            running: self.since.elapsed(),
            pid: self.pid,
            served: self.served,
        }
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        let mut notes = self.running.lock();
        notes.entries.retain(|entry| entry.ticket != self.ticket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_listed_while_it_is_noted_and_the_oldest_comes_first() {
        let running = Arc::new(Running::default());
        let now = Instant::now();
        let young = running.note("GET /young".into(), now, None, 0);
        let earlier = now.checked_sub(Duration::from_secs(5)).unwrap_or(now);
        let old = running.note("GET /old".into(), earlier, Some(7), 3);
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
        let running = Arc::new(Running::default());
        let now = Instant::now();
        let _young = running.note("GET /young".into(), now, None, 0);
        let _old = running.note("GET /old".into(), now - Duration::from_millis(50), None, 0);
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
