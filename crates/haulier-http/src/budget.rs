//! Bytes shared by several bodies, and the share of one of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number of bytes of memory or disk, shared by all bodies of a kind.
#[derive(Debug)]
pub struct ByteBudget {
    used: AtomicU64,
    most: u64,
}

impl ByteBudget {
    /// A budget of `most` bytes, all free.
    #[must_use]
    pub fn new(most: u64) -> Arc<Self> {
        Arc::new(Self {
            used: AtomicU64::new(0),
            most,
        })
    }

    /// Bytes in use.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// True while any byte is free.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.used() < self.most
    }

    /// Takes `bytes` if that many are free.
    #[must_use]
    pub fn take(&self, bytes: u64) -> bool {
        let add = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= self.most);
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .is_ok()
    }

    /// Takes `bytes` even if fewer are free.
    pub fn overdraw(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns bytes that were taken.
    pub fn give(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Bytes taken from a budget, returned when the charge is dropped.
#[derive(Debug)]
pub struct Charge {
    budget: Arc<ByteBudget>,
    bytes: u64,
}

impl Charge {
    /// A charge of no bytes.
    #[must_use]
    pub fn new(budget: &Arc<ByteBudget>) -> Self {
        Self::of_taken(budget, 0)
    }

    /// A charge of bytes that were taken already.
    #[must_use]
    pub fn of_taken(budget: &Arc<ByteBudget>, bytes: u64) -> Self {
        Self {
            budget: Arc::clone(budget),
            bytes,
        }
    }

    /// Takes `bytes` more; `false` if fewer are free.
    pub fn grow(&mut self, bytes: u64) -> bool {
        let granted = self.budget.take(bytes);
        self.bytes += if granted { bytes } else { 0 };
        granted
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.give(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_takes_what_is_left_and_gives_it_back() {
        let budget = ByteBudget::new(10);
        let mut charge = Charge::new(&budget);
        assert!(charge.grow(4) && !charge.grow(7) && charge.grow(6));
        assert!(!budget.has_room() && !budget.take(1));
        budget.overdraw(5);
        assert_eq!(budget.used(), 15);
        drop(charge);
        assert_eq!((budget.used(), budget.has_room()), (5, true));
    }
}
