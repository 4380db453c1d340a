//! Caches: they may drop a value at any time, and never fail their caller.
//!
//! [`Tiered`] asks several in a row, the nearest first, and copies a value from a farther one into the nearer ones.
//! Each has a timeout for a call; after repeated failures it is not asked for a while ([`Guard`]).

#[allow(clippy::module_inception, reason = "the file of `Cache`")]
mod cache;
mod disk;
mod guard;
#[cfg(feature = "memcached")]
mod ketama;
mod key;
#[cfg(feature = "memcached")]
mod memcached;
mod memory;
#[cfg(feature = "redis")]
mod redis;
#[cfg(any(feature = "memcached", feature = "redis"))]
mod remote;
mod room;
mod tiered;

use std::sync::Arc;

pub use cache::{Cache, CacheError, Cached, Tier};
pub use disk::DiskCache;
pub use guard::Guard;
pub use key::CacheKey;
#[cfg(feature = "memcached")]
pub use memcached::MemcachedCache;
pub use memory::{MemoryCache, Weigh};
#[cfg(feature = "redis")]
pub use redis::RedisCache;
pub use room::{Buffer, Room, RoomPiece};
pub use tiered::{Hit, TierStatus, Tiered};

/// Prepares a cache in memcached over these servers, each `host:port`. Connections are opened on demand.
///
/// # Errors
/// This build has no memcached.
///
/// # Panics
/// `servers` is empty.
#[cfg(feature = "memcached")]
pub fn open_memcached(servers: &[String]) -> Result<Arc<dyn Cache>, CacheError> {
    Ok(Arc::new(MemcachedCache::new(servers)))
}

/// Fails, because this build has no memcached.
///
/// # Errors
/// Always.
#[cfg(not(feature = "memcached"))]
pub fn open_memcached(_: &[String]) -> Result<Arc<dyn Cache>, CacheError> {
    Err(CacheError::NotBuilt(Tier::Memcached))
}

/// Prepares a cache in the Redis at this address. The connection is opened on demand.
///
/// # Errors
/// The address is invalid, or this build has no Redis.
#[cfg(feature = "redis")]
pub fn open_redis(url: &str) -> Result<Arc<dyn Cache>, CacheError> {
    Ok(Arc::new(RedisCache::new(url)?))
}

/// Fails, because this build has no Redis.
///
/// # Errors
/// Always.
#[cfg(not(feature = "redis"))]
pub fn open_redis(_: &str) -> Result<Arc<dyn Cache>, CacheError> {
    Err(CacheError::NotBuilt(Tier::Redis))
}
