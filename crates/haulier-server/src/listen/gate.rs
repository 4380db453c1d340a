//! How many connections there may be, in all and from one address.
//!
//! A full server stops accepting and the rest waits in the kernel's queue: that is better than to accept and refuse,
//! and it keeps the descriptors that files and PHP need.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// Counts the connections of all threads.
#[derive(Debug)]
pub(crate) struct Gate {
    most: AtomicUsize,
    /// 0: no limit.
    most_per_ip: AtomicU32,
    open: AtomicUsize,
    /// Accept loops that wait for a connection to close.
    waiting: AtomicUsize,
    closed: Notify,
    /// Connections that came while `most_per_ip` was set.
    per_ip: Mutex<HashMap<IpAddr, u32>>,
}

impl Gate {
    /// `most_per_ip` 0 means no limit.
    pub(crate) fn new(most: usize, most_per_ip: u32) -> Arc<Self> {
        Arc::new(Self {
            most: AtomicUsize::new(most),
            most_per_ip: AtomicU32::new(most_per_ip),
            open: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            closed: Notify::new(),
            per_ip: Mutex::default(),
        })
    }

    /// Other limits from now on. Connections that are open stay, however many they are.
    pub(crate) fn set_limits(&self, most: usize, most_per_ip: u32) {
        self.most.store(most, Ordering::Relaxed);
        self.most_per_ip.store(most_per_ip, Ordering::Relaxed);
    }

    /// Connections now open.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Whether no further connection may be accepted.
    pub(crate) fn is_full(&self) -> bool {
        self.open() >= self.most.load(Ordering::Relaxed)
    }

    /// A place for a connection that was accepted; `None` if its address has enough. A proxy has no address here: it
    /// speaks for many.
    pub(crate) fn enter(self: &Arc<Self>, address: Option<IpAddr>) -> Option<Permit> {
        let most_per_ip = self.most_per_ip.load(Ordering::Relaxed);
        let counted = address.filter(|_| most_per_ip > 0);
        if let Some(address) = counted {
            let mut per_ip = self.per_ip.lock().unwrap_or_else(PoisonError::into_inner);
            let count = per_ip.entry(address).or_default();
            if *count >= most_per_ip {
                return None;
            }
            *count += 1;
        }
        self.open.fetch_add(1, Ordering::Relaxed);
        Some(Permit {
            gate: Arc::clone(self),
            counted,
        })
    }

    /// Waits until a connection closes, or a moment has passed: descriptors are freed by others, too.
    pub(crate) async fn wait_for_room(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let _ = tokio::time::timeout(std::time::Duration::from_millis(100), self.closed.notified()).await;
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    fn leave(&self, counted: Option<IpAddr>) {
        self.open.fetch_sub(1, Ordering::SeqCst);
        if let Some(address) = counted {
            let mut per_ip = self.per_ip.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(count) = per_ip.get_mut(&address) {
                *count -= 1;
                if *count == 0 {
                    per_ip.remove(&address);
                }
            }
        }
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.closed.notify_one();
        }
    }
}

/// The right to be a connection; gives its place back when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    gate: Arc<Gate>,
    /// The address whose connections it is counted among.
    counted: Option<IpAddr>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.gate.leave(self.counted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    #[test]
    fn a_dropped_permit_makes_room() {
        let gate = Gate::new(2, 0);
        let first = gate.enter(Some(A)).expect("room for two");
        let _second = gate.enter(Some(A)).expect("room for two");
        assert!(gate.is_full());
        drop(first);
        assert!(!gate.is_full());
        assert_eq!(gate.open(), 1);
    }

    #[test]
    fn an_address_has_its_own_limit() {
        let gate = Gate::new(100, 1);
        let first = gate.enter(Some(A));
        assert!(first.is_some() && gate.enter(Some(A)).is_none() && gate.enter(Some(B)).is_some());
        assert!(
            gate.enter(None).is_some() && gate.enter(None).is_some(),
            "a proxy speaks for many"
        );
        drop(first);
        assert!(gate.enter(Some(A)).is_some());
    }

    #[test]
    fn limits_that_change_count_the_connections_that_are_open() {
        let gate = Gate::new(100, 0);
        let before = gate.enter(Some(A)).expect("no limit yet");
        gate.set_limits(2, 1);
        let after = gate.enter(Some(A)).expect("the first that is counted");
        assert!(gate.is_full() && gate.enter(Some(A)).is_none());
        drop(before);
        assert!(gate.enter(Some(A)).is_none(), "it was never counted for its address");
        gate.set_limits(100, 0);
        drop(after);
        gate.set_limits(100, 1);
        assert!(
            gate.enter(Some(A)).is_some(),
            "what was counted is given back, whatever the limit is by then"
        );
    }
}
