//! The trait of caches, with the values and errors of their calls.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use bytes::Bytes;

use super::key::CacheKey;
use super::room::Room;
use crate::store::{BoxFuture, read_whole};

/// A cache of whole values.
pub trait Cache: fmt::Debug + Send + Sync {
    /// The value of this key, if the cache has it.
    fn get(&self, key: CacheKey) -> BoxFuture<'_, Result<Option<Cached>, CacheError>>;

    /// Stores a value, replacing an older one. A value too long for this cache is silently not stored.
    fn put(&self, key: CacheKey, value: Bytes) -> BoxFuture<'_, Result<(), CacheError>>;

    /// Removes a value.
    fn delete(&self, key: CacheKey) -> BoxFuture<'_, Result<(), CacheError>>;

    /// The kind of cache.
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
    /// All kinds, in order.
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

/// A value that was found.
#[derive(Debug)]
pub enum Cached {
    Bytes(Bytes),
    /// An open file, and the length of the value at its beginning.
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

    /// Reads all of it into memory. For threads that may block.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn into_bytes(self) -> io::Result<Bytes> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::File(file, length) => read_whole(&file, length),
        }
    }

    /// As [`into_bytes`](Self::into_bytes), but into the room, if that has space.
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

/// A failure of a cache. Each is a miss for the caller.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The call timed out.
    #[error("no answer within {0:?}")]
    TooSlow(Duration),
    /// Calls are refused after repeated failures.
    #[error("not asked after repeated failures")]
    Resting,
    /// The value is not the one that was stored.
    #[error("the value is damaged")]
    Damaged,
    /// The feature for this kind of cache is off in this build.
    #[error("this haulier was built without {tier}; build it with `--features {tier}`", tier = .0.as_str())]
    NotBuilt(Tier),
    /// The file system or the connection failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// An error of the server.
    #[error("{0}")]
    Server(String),
}
