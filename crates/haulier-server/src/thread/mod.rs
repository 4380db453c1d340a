//! State that the connections of one thread share without locks: the [`Io`] below the protocols; above it the settings,
//! the sites and the caches.

mod serving;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use haulier_http::{Reason, RequestId, RequestIds};

use crate::files::{FileCache, SendfileCache};
use crate::images::Memo;
use crate::io::{Gate, Io};
use crate::metrics::Metrics;

pub(crate) use serving::Serving;

/// State of one thread; connections hold it by `Rc`.
#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) io: Io,
    serving: RefCell<Rc<Serving>>,
    pub(crate) caches: Caches,
    pub(crate) metrics: Arc<Metrics>,
    ids: RequestIds,
}

/// Caches of a thread.
#[derive(Debug)]
pub(crate) struct Caches {
    /// Files that clients request.
    pub(crate) files: FileCache,
    /// Files that scripts hand off.
    pub(crate) sendfile: SendfileCache,
    /// Image responses by address.
    pub(crate) images: Memo,
}

impl Thread {
    pub(crate) fn new(serving: Serving, gate: Arc<Gate>, metrics: Arc<Metrics>, number: usize) -> Rc<Self> {
        let (files, sendfile) = serving.open_files();
        Rc::new(Self {
            io: Io::new(gate, number),
            serving: RefCell::new(Rc::new(serving)),
            caches: Caches {
                files: FileCache::new(files),
                sendfile: SendfileCache::new(sendfile),
                images: Memo::default(),
            },
            metrics,
            ids: RequestIds::random(),
        })
    }

    /// The current settings and sites. A caller that keeps them while waiting keeps the old ones.
    pub(crate) fn serving(&self) -> Rc<Serving> {
        Rc::clone(&self.serving.borrow())
    }

    /// Serves these settings and sites from the next request on.
    pub(crate) fn serve(&self, serving: Serving) {
        let (files, sendfile) = serving.open_files();
        self.caches.files.resize(files);
        self.caches.sendfile.resize(sendfile);
        self.serving.replace(Rc::new(serving));
    }

    /// Closes the cached files, since the process is out of descriptors.
    pub(crate) fn shed_files(&self) {
        self.caches.files.shed();
        self.caches.sendfile.shed();
    }

    /// The reason for an exchange that ended early without a reason of its own.
    pub(crate) fn end_reason(&self) -> Reason {
        if self.io.is_cut() {
            Reason::ServerStopped
        } else {
            Reason::ClientGone
        }
    }

    pub(crate) fn next_id(&self) -> RequestId {
        self.ids.next()
    }
}
