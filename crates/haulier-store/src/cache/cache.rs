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
