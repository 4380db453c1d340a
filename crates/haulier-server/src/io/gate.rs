//! Limits on the number of connections, in all and from one address.
//!
//! A full server closes idle connections (`io::deadline`). If none is idle it stops accepting, and new connections wait in the kernel's
//! queue. That is better than to accept and refuse, and it keeps descriptors for files and PHP.

use std::collections::HashMap;
use std::future::Future;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use crate::lock::lock;
use crate::log_throttle::LogThrottle;
use crate::rate_limiter::{SHARDS, key as address_key, shard_of};

/// Counts of connections by [`address_key`].
type PerIp = HashMap<u64, u32, foldhash::fast::RandomState>;

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
    /// Connections accepted while `most_per_ip` was set.
    per_ip: [Mutex<PerIp>; SHARDS],
    /// One for each thread. Rings if another thread needs room and has no idle connection.
    room_requests: Box<[Notify]>,
    pub(crate) warnings: GateWarnings,
}

/// Throttled warnings about a lack of room.
#[derive(Debug)]
pub(crate) struct GateWarnings {
    pub(crate) made_room: LogThrottle,
    pub(crate) all_busy: LogThrottle,
    pub(crate) no_descriptors: LogThrottle,
    pub(crate) crowded: LogThrottle,
}

impl Gate {
    /// `most_per_ip` 0 means no limit.
    pub(crate) fn new(most: usize, most_per_ip: u32, threads: usize) -> Arc<Self> {
        Arc::new(Self {
            most: AtomicUsize::new(most),
            most_per_ip: AtomicU32::new(most_per_ip),
            open: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            closed: Notify::new(),
            per_ip: Default::default(),
            room_requests: (0..threads).map(|_| Notify::new()).collect(),
            warnings: GateWarnings {
                made_room: LogThrottle::new(),
                all_busy: LogThrottle::new(),
                no_descriptors: LogThrottle::new(),
                crowded: LogThrottle::new(),
            },
        })
    }

    /// Changes the limits. Open connections stay, even above them.
    pub(crate) fn set_limits(&self, most: usize, most_per_ip: u32) {
        self.most.store(most, Ordering::Relaxed);
        self.most_per_ip.store(most_per_ip, Ordering::Relaxed);
    }

    /// Number of open connections.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// True if no further connection may be accepted.
    pub(crate) fn is_full(&self) -> bool {
        self.open() >= self.most.load(Ordering::Relaxed)
    }

    /// A permit for an accepted connection; `None` if its address has reached its limit. `None` as address is not
    /// counted, as for proxies.
    pub(crate) fn enter(self: &Arc<Self>, address: Option<IpAddr>) -> Option<Permit> {
        let most_per_ip = self.most_per_ip.load(Ordering::Relaxed);
        let counted = address.filter(|_| most_per_ip > 0).map(address_key);
        if let Some(key) = counted {
            let mut per_ip = self.shard(key);
            let count = per_ip.entry(key).or_default();
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

    /// Waits until a connection closes, or a moment has passed: other parts free descriptors, too.
    pub(crate) async fn wait_for_room(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let _ = tokio::time::timeout(std::time::Duration::from_millis(100), self.closed.notified()).await;
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// Asks all other threads to close idle connections.
    pub(crate) fn ask_others(&self, thread: usize) {
        let others = self
            .room_requests
            .iter()
            .enumerate()
            .filter(|(number, _)| *number != thread);
        others.for_each(|(_, bell)| bell.notify_one());
    }

    /// Waits until another thread asks this one to close idle connections.
    pub(crate) fn asked(&self, thread: usize) -> impl Future<Output = ()> + '_ {
        self.room_requests[thread].notified()
    }

    fn shard(&self, key: u64) -> MutexGuard<'_, PerIp> {
        lock(&self.per_ip[shard_of(key)])
    }

    fn leave(&self, counted: Option<u64>) {
        self.open.fetch_sub(1, Ordering::SeqCst);
        if let Some(key) = counted {
            let mut per_ip = self.shard(key);
            if let Some(count) = per_ip.get_mut(&key) {
                *count -= 1;
                if *count == 0 {
                    per_ip.remove(&key);
                }
            }
        }
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.closed.notify_one();
        }
    }
}

/// The right to hold a connection, given back when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    gate: Arc<Gate>,
    /// Key of the address that it counts for.
    counted: Option<u64>,
}

impl Permit {
    /// True if it counts for this address.
    pub(crate) fn is_of(&self, address: IpAddr) -> bool {
        self.counted == Some(address_key(address))
    }
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
        let gate = Gate::new(2, 0, 1);
        let first = gate.enter(Some(A)).expect("room for two");
        let _second = gate.enter(Some(A)).expect("room for two");
        assert!(gate.is_full());
        drop(first);
        assert!(!gate.is_full());
        assert_eq!(gate.open(), 1);
    }

    #[test]
    fn an_address_has_its_own_limit() {
        let gate = Gate::new(100, 1, 1);
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
    fn a_network_of_ipv6_has_the_limit_of_an_address() {
        let gate = Gate::new(100, 1, 1);
        let address = |text: &str| Some(text.parse().expect("an address"));
        let first = gate.enter(address("2001:db8:0:1::1")).expect("the first");
        assert!(gate.enter(address("2001:db8:0:1:ffff::2")).is_none());
        assert!(gate.enter(address("2001:db8:0:2::1")).is_some());
        assert!(first.is_of("2001:db8:0:1::5".parse().expect("an address")));
    }

    #[test]
    fn limits_that_change_count_the_connections_that_are_open() {
        let gate = Gate::new(100, 0, 1);
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
