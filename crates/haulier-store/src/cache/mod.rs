//! Caches: they may forget at any time, and never fail their caller.
//!
//! [`Tiered`] asks a row of them, the nearest first, and puts what a farther one had into the nearer ones. Each has a
//! budget of time for a call; one that fails again and again is left alone for a while ([`Guard`]).

mod disk;
mod guard;
#[cfg(feature = "memcached")]
mod ketama;
#[cfg(feature = "memcached")]
mod memcached;
mod memory;
#[cfg(feature = "redis")]
mod redis;
#[cfg(any(feature = "memcached", feature = "redis"))]
mod remote;
mod room;
mod tiered;

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::store::{BoxFuture, read_whole};

pub use disk::DiskCache;
pub use guard::Guard;
#[cfg(feature = "memcached")]
pub use memcached::MemcachedCache;
pub use memory::{MemoryCache, Weigh};
#[cfg(feature = "redis")]
pub use redis::RedisCache;
pub use room::{Buffer, Piece, Room};
pub use tiered::{Hit, TierStatus, Tiered};

/// Time limit of a call to the disk, which may have to spin up.
const DISK_BUDGET: Duration = Duration::from_millis(250);

/// Prepares a cache in memcached, over these servers, each `host:port`; connections are made when they are needed.
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

/// Refuses: this build has no memcached.
///
/// # Errors
/// Always.
#[cfg(not(feature = "memcached"))]
pub fn open_memcached(_: &[String]) -> Result<Arc<dyn Cache>, CacheError> {
    Err(CacheError::NotBuilt(Tier::Memcached))
}

/// Prepares a cache in the Redis at this address; the connection is made when it is needed.
///
/// # Errors
/// The address is invalid, or this build has no Redis.
#[cfg(feature = "redis")]
pub fn open_redis(url: &str) -> Result<Arc<dyn Cache>, CacheError> {
    Ok(Arc::new(RedisCache::new(url)?))
}

/// Refuses: this build has no Redis.
///
/// # Errors
/// Always.
#[cfg(not(feature = "redis"))]
pub fn open_redis(_: &str) -> Result<Arc<dyn Cache>, CacheError> {
    Err(CacheError::NotBuilt(Tier::Redis))
}

/// A cache of whole values.
pub trait Cache: fmt::Debug + Send + Sync {
    /// The value under this key, if it is still there.
    fn get(&self, key: CacheKey) -> BoxFuture<'_, Result<Option<Cached>, CacheError>>;

    /// Keeps a value, in the place of an older one. A value that is too long for this cache is left out in silence.
    fn put(&self, key: CacheKey, value: Bytes) -> BoxFuture<'_, Result<(), CacheError>>;

    /// Forgets a value.
    fn delete(&self, key: CacheKey) -> BoxFuture<'_, Result<(), CacheError>>;

    /// Its kind.
    fn tier(&self) -> Tier;

    /// Its location, for messages.
    fn place(&self) -> String;
}

/// The kinds of caches; a label in metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    Memory,
    Disk,
    Memcached,
    Redis,
}

impl Tier {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Memory, Self::Disk, Self::Memcached, Self::Redis];

    /// Its name in configuration, logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Disk => "disk",
            Self::Memcached => "memcached",
            Self::Redis => "redis",
        }
    }
}

/// The key of a value: a hash of all that determines it. No part of a request is a key itself, so no request can write
/// a command into the protocol of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CacheKey([u8; 32]);

impl CacheKey {
    /// The key of what these parts describe; where one ends and the next begins counts.
    #[must_use]
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Self(*hasher.finalize().as_bytes())
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// 64 hexadecimal digits.
    #[must_use]
    pub fn to_hex(self) -> String {
        blake3::Hash::from_bytes(self.0).to_hex().to_string()
    }
}

/// A value that was found.
#[derive(Debug)]
pub enum Cached {
    Bytes(Bytes),
    /// The first bytes of an open file, and how many they are.
    File(File, u64),
}

impl Cached {
    /// Its length in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(_, length) => *length,
        }
    }

    /// All of it in memory. Reads the file at once: for threads that may block.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn into_bytes(self) -> io::Result<Bytes> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::File(file, length) => read_whole(&file, length),
        }
    }

    /// The same, in a room if there is some left in it.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn into_room(self, room: &Room) -> io::Result<Bytes> {
        let (file, length) = match self {
            Self::Bytes(bytes) => return Ok(room.keep(bytes)),
            Self::File(file, length) => (file, length),
        };
        let mut buffer = room.buffer(usize::try_from(length).map_err(io::Error::other)?);
        file.read_exact_at(buffer.as_mut(), 0)?;
        Ok(buffer.into())
    }
}

/// A failure of a cache. For the caller every one of them is a miss.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// It did not answer in its time.
    #[error("no answer within {0:?}")]
    TooSlow(Duration),
    /// It failed often of late and is left alone for a while.
    #[error("left alone after failures")]
    Resting,
    /// The value is not the one that was put there.
    #[error("the value is damaged")]
    Damaged,
    /// The feature for this kind of cache is off in this build.
    #[error("this haulier was built without {tier}; build it with `--features {tier}`", tier = .0.as_str())]
    NotBuilt(Tier),
    /// The file system, or the connection.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// An error of the server.
    #[error("{0}")]
    Server(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_tell_apart_where_their_parts_end() {
        assert_ne!(CacheKey::of(&[b"ab", b"c"]), CacheKey::of(&[b"a", b"bc"]));
        assert_ne!(CacheKey::of(&[b"ab"]), CacheKey::of(&[b"ab", b""]));
        assert_eq!(CacheKey::of(&[b"ab"]), CacheKey::of(&[b"ab"]));
        assert_eq!(CacheKey::of(&[b"ab"]).to_hex().len(), 64);
    }
}
