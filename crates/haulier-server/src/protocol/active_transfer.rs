//! Entries in the list of long transfers.

use std::sync::Arc;
use std::time::Instant;

use haulier_http::Request;

use crate::metrics::{LISTED_AFTER, ListedTransfer, Transfer};
use crate::site::Site;
use crate::thread::Thread;

/// A response that did not fit one send. It is listed after a second.
#[derive(Debug)]
pub(super) struct ActiveTransfer {
    begun: Instant,
    listed: Option<ListedTransfer>,
}

impl ActiveTransfer {
    /// Starts the clock.
    pub(super) fn begin(thread: &Thread) -> Self {
        Self {
            begun: thread.io.clock.coarse(),
            listed: None,
        }
    }

    /// The entry in the list, if there is one.
    pub(super) fn transfer(&self) -> Option<&Arc<Transfer>> {
        self.listed.as_ref().map(ListedTransfer::transfer)
    }

    /// Notes that `sent` bytes of `length` were sent, and lists the transfer if it is due.
    pub(super) fn note(
        &mut self,
        thread: &Thread,
        request: Option<&Request>,
        site: Option<&Site>,
        sent: u64,
        length: Option<u64>,
    ) {
        if self.listed.is_none()
            && let Some(request) = request
            && thread.io.clock.coarse().saturating_duration_since(self.begun) >= LISTED_AFTER
        {
            self.listed = Some(thread.metrics.begin_transfer(request, site, length, self.begun));
        }
        if let Some(listed) = &self.listed {
            listed.sent(sent);
        }
    }
}
