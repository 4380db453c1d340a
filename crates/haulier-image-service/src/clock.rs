//! The time.

use std::time::Instant;

/// The precise time. Tests that pause tokio's clock pause this one too.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
