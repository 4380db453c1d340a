//! Entity tags of files: from size and time of modification, or from the content.
//!
//! A tag does not depend on the machine: several servers with the same files agree on it, and so do two releases behind
//! one symbolic link. For deployments that give files new times, a site chooses tags of the content. Content also
//! decides if a file has no real time: some archives and package stores write 1970 or 1980 for every version.
//!
//! One low-priority thread hashes each file once; the process caches the digest by the state of the file. Until the
//! digest is known, responses have no tag.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::SystemTime;

use haulier_http::OpenFile;

use super::cache::SETTLED;
use super::open::Version;
use super::settings::EntityTags;
use crate::lock::lock;

/// Larger files get no tag of their content, bytes: reading one would evict everything else from the page cache.
const MOST_LENGTH: u64 = 1 << 30;
/// Longest queue of files to hash; requests beyond it retry later.
const MOST_WAITING: usize = 256;
/// Most cached digests, about 100 bytes each; the cache is cleared when full.
const MOST_KNOWN: usize = 65_536;
/// Bytes read at once.
const PIECE: usize = 128 * 1024;
/// 1980-01-02, in seconds since 1970: after the epoch of zip archives in every time zone.
const FIRST_TRUE_TIME: i64 = 315_619_200;

/// The entity tag of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Tag {
    /// Strong, with quotes.
    Known(Vec<u8>),
    /// The content has not been hashed yet.
    Awaited,
    /// No tag for this file.
    None,
}

impl Tag {
    /// Makes the tag by the site's setting.
    pub(super) fn of(kind: EntityTags, version: &Version, file: &Arc<OpenFile>) -> Self {
        let has_true_time = version.modified.0 >= FIRST_TRUE_TIME;
        match kind {
            EntityTags::Off => Self::None,
            EntityTags::Stat if has_true_time => Self::Known(quoted(&of_stat(version))),
            EntityTags::Stat | EntityTags::Content => Self::of_content(version, file),
        }
    }

    fn of_content(version: &Version, file: &Arc<OpenFile>) -> Self {
        if let Some(content) = file.content() {
            return Self::Known(quoted(&hex(&digest(blake3::hash(content)))));
        }
        match &*DIGESTS {
            Some(digests) if file.length() <= MOST_LENGTH => match digests.find(version, file) {
                Some(digest) => Self::Known(quoted(&hex(&digest))),
                None => Self::Awaited,
            },
            _ => Self::None,
        }
    }

    /// The tag, if the file has one.
    pub(super) fn known(self) -> Option<Vec<u8>> {
        match self {
            Self::Known(tag) => Some(tag),
            Self::Awaited | Self::None => None,
        }
    }
}

/// True if the missing digest is known now; queues the file otherwise.
pub(super) fn is_ready(version: &Version, file: &Arc<OpenFile>) -> bool {
    DIGESTS
        .as_ref()
        .is_none_or(|digests| digests.find(version, file).is_some())
}

/// Size and time of modification in nanoseconds, which change when a file is written or replaced.
pub(super) fn of_stat(version: &Version) -> String {
    let (seconds, nanoseconds) = version.modified;
    let modified = (seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(nanoseconds);
    format!("{:x}-{modified:x}", version.size)
}

/// A tag made here, without its quotes.
pub(super) fn opaque(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"\"")
        .and_then(|tag| tag.strip_suffix(b"\""))
        .unwrap_or(tag)
}

fn quoted(text: &str) -> Vec<u8> {
    format!("\"{text}\"").into_bytes()
}

/// The first half of a hash, which is enough to tell contents apart.
type Digest = [u8; 16];

fn digest(hash: blake3::Hash) -> Digest {
    *hash.as_bytes().first_chunk().expect("a hash has 32 bytes")
}

fn hex(digest: &Digest) -> String {
    format!("{:032x}", u128::from_be_bytes(*digest))
}

/// Digests of the process; `None` if their thread cannot be started.
static DIGESTS: LazyLock<Option<Digests>> = LazyLock::new(|| Digests::start().ok());

/// Digests of file contents, and the queue of the hashing thread.
#[derive(Debug)]
struct Digests {
    /// `None` while a file waits or is being read.
    known: Arc<Mutex<KnownDigests>>,
    jobs: SyncSender<DigestJob>,
}

type KnownDigests = HashMap<Version, Option<Digest>>;
type DigestJob = (Version, Arc<OpenFile>);

impl Digests {
    fn start() -> io::Result<Self> {
        let (jobs, waiting) = sync_channel(MOST_WAITING);
        let known = Arc::default();
        let found = Arc::clone(&known);
        std::thread::Builder::new()
            .name("digests".into())
            .spawn(move || hash_all(&found, &waiting))
            .inspect_err(|error| tracing::warn!(%error, "cannot start the hashing thread: files get no entity tags of their content"))?;
        Ok(Self { known, jobs })
    }

    /// The digest of a file in this state. Queues an unknown one once the file has been unchanged for a while: before
    /// that, two states of it may look the same.
    fn find(&self, version: &Version, file: &Arc<OpenFile>) -> Option<Digest> {
        let mut known = lock(&self.known);
        if let Some(found) = known.get(version) {
            return *found;
        }
        if !version.is_settled(SETTLED, SystemTime::now()) {
            return None;
        }
        if known.len() >= MOST_KNOWN {
            known.retain(|_, digest| digest.is_none());
        }
        if self.jobs.try_send((*version, Arc::clone(file))).is_ok() {
            known.insert(*version, None);
        }
        None
    }
}

/// Main loop of the hashing thread.
fn hash_all(known: &Mutex<KnownDigests>, jobs: &Receiver<DigestJob>) {
    // Linux applies this to the calling thread. If refused, hashing runs at normal priority.
    let _ = rustix::process::setpriority_process(None, 10);
    while let Ok((version, file)) = jobs.recv() {
        let digest = hash(&version, &file);
        let mut known = lock(known);
        match digest {
            Ok(digest) => known.insert(version, Some(digest)),
            // The file changed or cannot be read now: the next request queues it again.
            Err(_) => known.remove(&version),
        };
    }
}

fn hash(version: &Version, file: &OpenFile) -> io::Result<Digest> {
    let hash = hash_content(file.file(), file.length())?;
    if Version::of_file(file.file())? != *version {
        return Err(io::Error::other("the file changed while it was read"));
    }
    Ok(digest(hash))
}

fn hash_content(file: &File, length: u64) -> io::Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    while at < length {
        let most = usize::try_from(length - at).map_or(PIECE, |left| left.min(PIECE));
        file.read_exact_at(&mut piece[..most], at)?;
        hasher.update(&piece[..most]);
        at += most as u64;
    }
    Ok(hasher.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_of_size_and_time_tells_writes_within_one_second_apart() {
        let tag = |modified| of_stat(&Version::sample(modified));
        assert_ne!(tag((1_700_000_000, 1)), tag((1_700_000_000, 2)));
        assert_eq!(tag((1_700_000_000, 1)), tag((1_700_000_000, 1)));
    }

    #[test]
    fn a_long_file_is_hashed_piece_by_piece() {
        let content: Vec<u8> = (0..PIECE * 2 + 7).map(|number| (number % 251) as u8).collect();
        let path = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(path.path(), &content).expect("a file");
        let hash = hash_content(path.as_file(), content.len() as u64).expect("its content");
        assert_eq!(hash, blake3::hash(&content));
        assert!(hash_content(path.as_file(), content.len() as u64 + 1).is_err());
    }
}
