//! The trait of stores: operations on whole objects, each written once.

use std::fmt;
use std::fs::File;
use std::future::Future;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::checked::FileState;
use crate::runtime::blocking;

/// Timeout of an object that is needed as a whole. Each piece has its own timeout; this one ends a very slow transfer.
const WHOLE: Duration = Duration::from_secs(60);

/// A future of a store or a cache. It runs on the [`StoreRuntime`](crate::StoreRuntime).
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Stores objects that must not be lost. An object is written once and never changed. When [`Store::put`] returns, the
/// whole object is visible to all processes that share the store, and survives a power cut.
pub trait Store: fmt::Debug + Send + Sync {
    /// Stores an object under a free key. Exactly one of several concurrent writers of a key gets [`Put::Created`].
    fn put<'a>(&'a self, key: &'a Key, content: Bytes) -> BoxFuture<'a, Result<Put, StoreError>>;

    /// Replaces a damaged object. A concurrent reader gets the whole old or the whole new one.
    fn replace<'a>(&'a self, key: &'a Key, content: Bytes) -> BoxFuture<'a, Result<(), StoreError>>;

    /// The object, or `None` if there is none.
    fn get<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<ObjectContent>, StoreError>>;

    /// The bytes of the object in a range, which must begin within the object and not be empty. The part beyond the end
    /// is left out. `None` if there is no object.
    fn get_part<'a>(&'a self, key: &'a Key, range: Range<u64>)
    -> BoxFuture<'a, Result<Option<ObjectPart>, StoreError>>;

    /// Its length in bytes, or `None` if there is none.
    fn head<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<u64>, StoreError>>;

    /// Removes the object; `false` if there was none.
    fn delete<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<bool, StoreError>>;

    /// Up to `most` keys in order, beginning after `after`.
    fn list<'a>(&'a self, after: Option<&'a Key>, most: usize) -> BoxFuture<'a, Result<Vec<Key>, StoreError>>;

    /// Its location, for messages: `/srv/images`, `s3://bucket/prefix`.
    fn place(&self) -> String;
}

/// The outcome of storing an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// The object was stored.
    Created,
    /// The key exists; its object is unchanged.
    Exists,
}

/// An object that was found.
#[derive(Debug)]
pub enum ObjectContent {
    /// A file of this machine, open for reading, with its state at that time.
    File(File, FileState),
    /// Pieces from the network: exactly `length` bytes, or an error.
    Stream {
        /// Length of the object, bytes.
        length: u64,
        pieces: mpsc::Receiver<Result<Bytes, StoreError>>,
    },
}

impl ObjectContent {
    /// Its length in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        match self {
            Self::File(_, state) => state.length(),
            Self::Stream { length, .. } => *length,
        }
    }

    /// Reads all of it into memory.
    ///
    /// # Errors
    /// It cannot be read, is cut before its end, or takes more than a minute.
    pub async fn into_bytes(self) -> Result<Bytes, StoreError> {
        self.into_buffer(|length| vec![0; length]).await
    }

    /// Reads all of it into a buffer that `make` allocates, given its length.
    ///
    /// # Errors
    /// As [`ObjectContent::into_bytes`].
    pub async fn into_buffer<B>(self, make: impl FnOnce(usize) -> B) -> Result<Bytes, StoreError>
    where
        B: AsMut<[u8]> + Into<Bytes> + Send + 'static,
    {
        let mut buffer = make(usize::try_from(self.length()).map_err(io::Error::other)?);
        match self {
            Self::File(file, _) => {
                let read = move || file.read_exact_at(buffer.as_mut(), 0).map(|()| buffer);
                Ok(blocking(read).await?.into())
            }
            Self::Stream { length, pieces } => {
                within(WHOLE, collect(length, pieces, buffer.as_mut())).await??;
                Ok(buffer.into())
            }
        }
    }
}

async fn collect(
    length: u64,
    mut pieces: mpsc::Receiver<Result<Bytes, StoreError>>,
    buffer: &mut [u8],
) -> Result<(), StoreError> {
    let mut received = 0;
    while let Some(piece) = pieces.recv().await {
        let piece = piece?;
        // Bytes beyond the length are counted, and refused below.
        if let Some(place) = buffer.get_mut(received..received + piece.len()) {
            place.copy_from_slice(&piece);
        }
        received += piece.len();
    }
    match received == buffer.len() {
        true => Ok(()),
        false => Err(StoreError::Short {
            length,
            received: received as u64,
        }),
    }
}

/// Waits for an answer from the network, at most for `limit`.
pub(crate) async fn within<T>(limit: Duration, answer: impl Future<Output = T>) -> Result<T, StoreError> {
    let answer = tokio::time::timeout(limit, answer).await;
    answer.map_err(|_| StoreError::Remote(Box::new(TooSlow(limit))))
}

/// A timeout of the network.
#[derive(Debug, thiserror::Error)]
#[error("it takes longer than {0:?}")]
struct TooSlow(Duration);

/// A part of an object that was found.
#[derive(Debug)]
pub enum ObjectPart {
    /// A file of this machine, open for reading, of which the caller can read any part.
    File(File, FileState),
    /// Pieces from the network.
    Stream {
        /// Length of the whole object, bytes.
        total: u64,
        /// The requested part.
        content: ObjectContent,
    },
}

/// The first `length` bytes of a file.
pub(crate) fn read_whole(file: &File, length: u64) -> io::Result<Bytes> {
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes.into())
}

/// The name of an object: 4 to 128 lower-case letters, digits, `-`, `_` and `.`. It is the same in every store; a store
/// may derive folders from its first letters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(String);

/// A malformed name of an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not the name of an object")]
pub struct NotAKey(String);

impl Key {
    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The path `ab/cd/abcd…`, which spreads objects over many folders.
    #[must_use]
    pub(crate) fn path(&self) -> String {
        format!("{}/{}/{}", &self.0[..2], &self.0[2..4], self.0)
    }
}

impl FromStr for Key {
    type Err = NotAKey;

    fn from_str(text: &str) -> Result<Self, NotAKey> {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
        let begins_well = text.bytes().take(4).all(|byte| byte.is_ascii_alphanumeric());
        if (4..=128).contains(&text.len()) && text.bytes().all(fits) && begins_well {
            Ok(Self(text.to_owned()))
        } else {
            Err(NotAKey(text.chars().take(200).collect()))
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A failure of a store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No space is left.
    #[error("the store is full")]
    Full(#[source] io::Error),
    /// The file system failed.
    #[error("the store's file system failed")]
    Io(#[source] io::Error),
    /// The service refused, failed, or was unreachable, after all retries.
    #[error("the object store failed")]
    Remote(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The feature `objects` is off in this build.
    #[error("this haulier was built without object stores; build it with `--features objects`")]
    NotBuilt,
    /// The transfer of an object was cut.
    #[error("an object of {length} bytes ended after {received}")]
    Short { length: u64, received: u64 },
}

impl StoreError {
    /// True if the store is full, so a retry fails until an administrator frees space.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Full(_))
    }
}

impl From<io::Error> for StoreError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full(error),
            _ => Self::Io(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_object_that_drips_is_not_waited_for() {
        let (sender, pieces) = mpsc::channel(1);
        tokio::spawn(async move {
            while sender.send(Ok(Bytes::from_static(b"x"))).await.is_ok() {
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
        });
        let before = tokio::time::Instant::now();
        let outcome = ObjectContent::Stream { length: 1000, pieces }.into_bytes().await;
        assert!(matches!(outcome, Err(StoreError::Remote(_))), "{outcome:?}");
        assert_eq!(before.elapsed(), WHOLE);
    }

    #[test]
    fn a_key_is_a_harmless_file_name() {
        for good in ["5f189d8ec57f5a5a0d3dcba47fa797e2", "abcd", "ab12-x_y.json"] {
            assert_eq!(good.parse::<Key>().expect(good).as_str(), good);
        }
        for bad in [
            "",
            "abc",
            "../..",
            "..ab",
            "abcd/ef",
            "ABCD",
            "ab c",
            "abcd\n",
            "abcé",
            &"a".repeat(129),
        ] {
            assert!(bad.parse::<Key>().is_err(), "{bad:?}");
        }
        let key: Key = "5f189d8e".parse().expect("a key");
        assert_eq!(key.path(), "5f/18/5f189d8e");
    }

    #[test]
    fn a_full_disk_is_told_apart() {
        assert!(StoreError::from(io::Error::from(io::ErrorKind::StorageFull)).is_full());
        assert!(StoreError::from(io::Error::from_raw_os_error(28)).is_full(), "ENOSPC");
        assert!(!StoreError::from(io::Error::from(io::ErrorKind::NotFound)).is_full());
    }
}
