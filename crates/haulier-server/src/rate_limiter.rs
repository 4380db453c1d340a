//! A limit on requests of one client address: the next one gets 429 with Retry-After (RFC 6585 §4).
//!
//! A token bucket, as the generic cell rate algorithm: one number for each address, shared by all threads. An IPv6
//! client owns at least a /64, so that network counts as one.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::clock::{nanoseconds, now};
use crate::lock::lock;

/// A number of requests in a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Requests; at least one.
    pub count: u32,
    /// Not zero.
    pub period: Duration,
    /// Most requests at once; at least one.
    pub burst: u32,
}

/// Number of locks that the addresses are spread over.
pub(crate) const SHARDS: usize = 16;
/// Most addresses remembered under each lock: 131,072 in all, in 2 to 4 MiB.
const MOST: usize = 8192;

/// Counter of requests by client address.
#[derive(Debug)]
pub struct RateLimiter {
    rate: Rate,
    started: Instant,
    /// Network → time when its bucket is full again, nanoseconds since `started`.
    shards: [Mutex<HashMap<u64, u64, foldhash::fast::RandomState>>; SHARDS],
}

impl RateLimiter {
    #[must_use]
    pub fn new(rate: Rate) -> Self {
        Self {
            rate,
            started: now(),
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }

    /// Counts a request.
    ///
    /// # Errors
    /// The time until a request is allowed.
    pub(crate) fn take(&self, address: IpAddr, now: Instant) -> Result<(), Duration> {
        let now = nanoseconds(now.saturating_duration_since(self.started));
        let interval = nanoseconds(self.rate.period) / u64::from(self.rate.count.max(1));
        let tolerance = interval.saturating_mul(u64::from(self.rate.burst.max(1)) - 1);
        let key = key(address);
        let mut shard = lock(&self.shards[shard_of(key)]);
        let full_at = shard.get(&key).copied().unwrap_or(0).max(now);
        if full_at - now > tolerance {
            return Err(Duration::from_nanos(full_at - now - tolerance));
        }
        if shard.len() >= MOST {
            make_room(&mut shard, now);
        }
        shard.insert(key, full_at.saturating_add(interval));
        Ok(())
    }
}

/// Forgets addresses whose bucket is full again; if there are none, all. Memory is bounded, and a flood from that many
/// addresses is not stopped by counting them.
fn make_room(shard: &mut HashMap<u64, u64, foldhash::fast::RandomState>, now: u64) {
    shard.retain(|_, full_at| *full_at > now);
    if shard.len() >= MOST {
        shard.clear();
    }
}

/// The key of a client: its IPv4 address, or its IPv6 network.
pub(crate) fn key(address: IpAddr) -> u64 {
    match address.to_canonical() {
        IpAddr::V4(address) => u64::from(address.to_bits()),
        // The upper half. Only the loopback address begins with 32 zero bits, as IPv4 addresses do here.
        IpAddr::V6(address) => (address.to_bits() >> 64) as u64,
    }
}

/// The lock that a key belongs to.
pub(crate) fn shard_of(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limiter(count: u32, seconds: u64, burst: u32) -> RateLimiter {
        RateLimiter::new(Rate {
            count,
            period: Duration::from_secs(seconds),
            burst,
        })
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_burst_is_served_and_then_one_at_a_time() {
        let limiter = limiter(2, 1, 3);
        let one = address("192.0.2.1");
        let start = limiter.started;
        for _ in 0..3 {
            assert_eq!(limiter.take(one, start), Ok(()));
        }
        assert_eq!(limiter.take(one, start), Err(Duration::from_millis(500)));
        assert_eq!(limiter.take(address("192.0.2.2"), start), Ok(()), "another has its own");
        let later = start + Duration::from_millis(500);
        assert_eq!(limiter.take(one, later), Ok(()));
        assert_eq!(
            limiter.take(one, later),
            Err(Duration::from_millis(500)),
            "a refusal costs nothing"
        );
        let much_later = start + Duration::from_secs(3600);
        for _ in 0..3 {
            assert_eq!(
                limiter.take(one, much_later),
                Ok(()),
                "no more than the burst is saved up"
            );
        }
        assert!(limiter.take(one, much_later).is_err());
    }

    #[test]
    fn the_addresses_of_one_ipv6_network_count_together() {
        let limiter = limiter(1, 60, 1);
        let start = limiter.started;
        assert_eq!(limiter.take(address("2001:db8::1"), start), Ok(()));
        assert!(limiter.take(address("2001:db8::2"), start).is_err());
        assert_eq!(limiter.take(address("2001:db8:0:1::1"), start), Ok(()));
        assert_eq!(limiter.take(address("192.0.2.1"), start), Ok(()));
        assert!(
            limiter.take(address("::ffff:192.0.2.1"), start).is_err(),
            "the same client"
        );
    }

    #[test]
    fn memory_is_bounded() {
        let limiter = limiter(1, 1, 1);
        let start = limiter.started;
        for number in 0..(SHARDS * MOST * 2) as u32 {
            assert_eq!(limiter.take(IpAddr::V4(number.into()), start), Ok(()), "{number}");
        }
        let held: usize = limiter
            .shards
            .iter()
            .map(|shard| shard.lock().expect("not poisoned").len())
            .sum();
        assert!(held <= SHARDS * MOST, "{held} addresses are remembered");
    }
}
