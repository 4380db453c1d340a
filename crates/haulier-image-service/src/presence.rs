//! The existence of stored images, as the store told it a short time ago.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use haulier_store::Key;
use haulier_store::cache::{MemoryCache, Weigh};

use crate::clock::now;
use crate::request::stored_key;

/// Time for which an image is taken to exist. Another machine that shares the store may have deleted it meanwhile.
const PRESENT: Duration = Duration::from_secs(10);
/// Time for which an image is taken to be missing: it may be uploaded at any moment, to another machine too.
const ABSENT: Duration = Duration::from_secs(1);
/// Memory for it, bytes.
const MEMORY: u64 = 4 << 20;

/// The answers of the store to "is it there", for a short time.
#[derive(Debug)]
pub(crate) struct Presence {
    known: MemoryCache<KnownPresence>,
    generation: AtomicU64,
}

/// One of these answers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KnownPresence {
    pub(crate) exists: bool,
    /// Trusted until then.
    pub(crate) until: Instant,
}

impl Weigh for KnownPresence {
    fn weight(&self) -> u64 {
        32
    }
}

impl Presence {
    pub(crate) fn new() -> Self {
        Self {
            known: MemoryCache::new(MEMORY),
            generation: AtomicU64::new(0),
        }
    }

    /// The answer that is still trusted, if there is one.
    pub(crate) fn find(&self, id: &Key, now: Instant) -> Option<KnownPresence> {
        self.known.find(&stored_key(id)).filter(|known| now < known.until)
    }

    pub(crate) fn note(&self, id: &Key, exists: bool) {
        let until = now() + if exists { PRESENT } else { ABSENT };
        self.known.keep(stored_key(id), KnownPresence { exists, until });
    }

    pub(crate) fn note_deleted(&self, id: &Key) {
        self.note(id, false);
        self.generation.fetch_add(1, Ordering::Relaxed);
    }

    /// Changes with every deletion.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }
}
