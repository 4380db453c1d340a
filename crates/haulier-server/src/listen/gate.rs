//! How many connections there may be, in all and from one address.
//!
//! A full server stops accepting and the rest waits in the kernel's queue: that is better than to accept and refuse,
//! and it keeps the descriptors that files and PHP need.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// Counts the connections of all threads.
#[derive(Debug)]
pub(crate) struct Gate {
    most: usize,
    most_per_ip: u32,
    open: AtomicUsize,
    /// Accept loops that wait for a connection to close.
    waiting: AtomicUsize,
    closed: Notify,
    /// Only kept if `most_per_ip` is set.
    per_ip: Mutex<HashMap<IpAddr, u32>>,
}

impl Gate {
    /// `most_per_ip` 0 means no limit.
    pub(crate) fn new(most: usize, most_per_ip: u32) -> Arc<Self> {
        Arc::new(Self {
            most,
            most_per_ip,
            open: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            closed: Notify::new(),
            per_ip: Mutex::default(),
        })
    }

    /// Connections now open.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Whether no further connection may be accepted.
    pub(crate) fn is_full(&self) -> bool {
        self.open() >= self.most
    }

    /// A place for a connection that was accepted; `None` if its address has enough. A proxy has no address here: it
    /// speaks for many.
    pub(crate) fn enter(self: &Arc<Self>, address: Option<IpAddr>) -> Option<Permit> {
        if self.most_per_ip > 0
            && let Some(address) = address
        {
            let mut per_ip = self.per_ip.lock().unwrap_or_else(PoisonError::into_inner);
            let count = per_ip.entry(address).or_default();
            if *count >= self.most_per_ip {
                return None;
            }
            *count += 1;
        }
        self.open.fetch_add(1, Ordering::Relaxed);
        Some(Permit {
            gate: Arc::clone(self),
            address,
        })
    }

    /// Waits until a connection closes, or a moment has passed: descriptors are freed by others, too.
    pub(crate) async fn wait_for_room(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let _ = tokio::time::timeout(std::time::Duration::from_millis(100), self.closed.notified()).await;
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    fn leave(&self, address: Option<IpAddr>) {
        self.open.fetch_sub(1, Ordering::SeqCst);
        if self.most_per_ip > 0 {
            let mut per_ip = self.per_ip.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(address) = address
                && let Some(count) = per_ip.get_mut(&address)
            {
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
    address: Option<IpAddr>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.gate.leave(self.address);
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
}
