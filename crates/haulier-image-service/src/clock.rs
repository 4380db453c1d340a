//! The clock.

use std::time::Instant;

/// The current time, by tokio's clock, which tests may pause.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
