//! The presence of images in the store, by its recent answers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use haulier_store::Key;
use haulier_store::cache::{MemoryCache, Weigh};

use crate::clock::now;
use crate::request::stored_key;

/// Time for which an image is assumed to exist. Another machine that shares the store may delete it meanwhile.
const PRESENT: Duration = Duration::from_secs(10);
/// Time for which an image is assumed to be missing. It may be uploaded meanwhile, also to another machine.
const ABSENT: Duration = Duration::from_secs(1);
/// Memory for all entries, bytes.
const MEMORY: u64 = 4 << 20;

/// The recent answers of the store about the existence of images.
#[derive(Debug)]
pub(crate) struct Presence {
    known: MemoryCache<KnownPresence>,
    generation: AtomicU64,
}

/// One answer of the store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KnownPresence {
    pub(crate) exists: bool,
    /// Time until which it is trusted.
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

    /// The answer that is still trusted.
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

    /// A number that changes with every deletion.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }
}
