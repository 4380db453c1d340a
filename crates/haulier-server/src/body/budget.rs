//! Budgets of the spooled bodies of a site.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use haulier_http::ByteBudget;

use super::hold::SPOOL_MEMORY_OF_ALL;

/// Bytes that the spooled bodies of a site take now.
#[derive(Debug)]
pub(crate) struct SpoolBudget {
    /// The name of the site, for the log.
    pub(super) site: String,
    /// Memory of short pieces, and of bodies held until they can be coded whole.
    pub(super) memory: Arc<ByteBudget>,
    /// Memory of long bodies: in pipes, and coded ones.
    pub(super) long: Arc<ByteBudget>,
    /// In files.
    pub(super) disk: Arc<ByteBudget>,
    /// Number of bodies that found all budgets used up.
    full: AtomicU64,
}

impl SpoolBudget {
    pub(crate) fn new(site: &str, most_long: u64, most_disk: u64) -> Arc<Self> {
        Arc::new(Self {
            site: site.to_owned(),
            memory: ByteBudget::new(SPOOL_MEMORY_OF_ALL),
            long: ByteBudget::new(most_long),
            disk: ByteBudget::new(most_disk),
            full: AtomicU64::new(0),
        })
    }

    /// Bytes of long bodies in memory.
    pub(crate) fn in_memory(&self) -> u64 {
        self.long.used()
    }

    /// Bytes in files.
    pub(crate) fn on_disk(&self) -> u64 {
        self.disk.used()
    }

    /// Number of bodies that had to wait for their clients.
    pub(crate) fn times_full(&self) -> u64 {
        self.full.load(Ordering::Relaxed)
    }

    pub(super) fn note_full(&self) {
        self.full.fetch_add(1, Ordering::Relaxed);
    }
}
