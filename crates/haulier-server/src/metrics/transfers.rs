//! Responses that take a second or more to send: the downloads under way.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use haulier_http::Request;

use super::recent::shortened;
use crate::lock::lock;
use crate::site::Site;

/// Time after which a response is listed; most end before, at no cost.
pub(crate) const LISTED_AFTER: Duration = Duration::from_secs(1);

/// A response that is being sent.
#[derive(Debug)]
pub struct Transfer {
    /// Number since the start, in the order of listing.
    pub number: u64,
    /// The name of its site, if it has one.
    pub site: Option<String>,
    /// The request's target, shortened.
    pub target: String,
    /// The client's address.
    pub client: IpAddr,
    /// Total bytes; `None` if unknown before the end.
    pub length: Option<u64>,
    /// The moment its sending began.
    pub since: Instant,
    sent: AtomicU64,
    unacknowledged: AtomicU64,
}

impl Transfer {
    /// Bytes given to the kernel so far.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Bytes the client has acknowledged.
    ///
    /// The kernel takes megabytes at once for a slow client, so that [`sent`](Self::sent) rises in jumps.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.sent().saturating_sub(self.unacknowledged.load(Ordering::Relaxed))
    }

    /// Sets the number of bytes that the kernel holds.
    pub(crate) fn note_queue(&self, unacknowledged: u64) {
        self.unacknowledged.store(unacknowledged, Ordering::Relaxed);
    }
}

/// The listed responses.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    table: Mutex<TransferTable>,
}

#[derive(Debug, Default)]
struct TransferTable {
    next: u64,
    /// By number, so oldest first.
    listed: BTreeMap<u64, Arc<Transfer>>,
}

impl Transfers {
    /// Oldest first.
    pub(super) fn list(&self) -> Vec<Arc<Transfer>> {
        lock(&self.table).listed.values().cloned().collect()
    }

    /// Lists a response to `request` whose sending began at `since`.
    pub(super) fn begin(
        self: &Arc<Self>,
        request: &Request,
        site: Option<&Site>,
        length: Option<u64>,
        since: Instant,
    ) -> ListedTransfer {
        let site = site.map(|site| site.settings.name.clone());
        let client = request.peer.remote.ip();
        self.list_one(site, shortened(request.head.target()), client, length, since)
    }

    fn list_one(
        self: &Arc<Self>,
        site: Option<String>,
        target: String,
        client: IpAddr,
        length: Option<u64>,
        since: Instant,
    ) -> ListedTransfer {
        let mut table = lock(&self.table);
        let number = table.next;
        table.next += 1;
        let transfer = Arc::new(Transfer {
            number,
            site,
            target,
            client,
            length,
            since,
            sent: AtomicU64::new(0),
            unacknowledged: AtomicU64::new(0),
        });
        table.listed.insert(number, Arc::clone(&transfer));
        drop(table);
        ListedTransfer {
            transfers: Arc::clone(self),
            transfer,
        }
    }
}

/// Keeps a transfer listed until it is dropped.
#[derive(Debug)]
pub(crate) struct ListedTransfer {
    transfers: Arc<Transfers>,
    transfer: Arc<Transfer>,
}

impl ListedTransfer {
    /// Sets the number of bytes given to the kernel.
    pub(crate) fn sent(&self, bytes: u64) {
        self.transfer.sent.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn transfer(&self) -> &Arc<Transfer> {
        &self.transfer
    }
}

impl Drop for ListedTransfer {
    fn drop(&mut self) {
        lock(&self.transfers.table).listed.remove(&self.transfer.number);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::clock::now;

    #[test]
    fn a_transfer_is_listed_with_its_progress_while_it_lasts() {
        let transfers = Arc::new(Transfers::default());
        let client = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let begin = |target: &str| transfers.list_one(None, target.into(), client, Some(100), now());
        let (first, second) = (begin("/first"), begin("/second"));
        second.sent(40);
        let listed: Vec<_> = transfers
            .list()
            .iter()
            .map(|one| (one.target.clone(), one.sent()))
            .collect();
        assert_eq!(listed, [("/first".into(), 0), ("/second".into(), 40)]);
        second.transfer().note_queue(30);
        assert_eq!(transfers.list()[1].taken(), 10);
        drop(first);
        assert_eq!(transfers.list()[0].target, "/second");
        drop(second);
        assert!(transfers.list().is_empty());
    }
}
