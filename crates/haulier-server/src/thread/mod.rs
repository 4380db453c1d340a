//! What all connections of one thread share: no locks.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use haulier_http::{RequestId, RequestIds};

use crate::access_log::AccessLog;
use crate::clock::Clock;
use crate::files::{FileCache, Handed};
use crate::handler::image::Memo;
use crate::io::{Buffers, Deadlines, Gate, Scratch};
use crate::metrics::{Counters, Metrics};
use crate::settings::ServerSettings;
use crate::site::Router;

/// One per thread; connections hold it by `Rc`.
#[derive(Debug)]
pub(crate) struct Thread {
    number: usize,
    serving: RefCell<Rc<Serving>>,
    pub(crate) files: FileCache,
    /// Files that scripts name.
    pub(crate) handed: Handed,
    /// What addresses of images mean.
    pub(crate) images: Memo,
    pub(crate) clock: Clock,
    pub(crate) buffers: Buffers,
    /// Memory of its TLS connections.
    pub(crate) scratch: Rc<Scratch>,
    pub(crate) deadlines: Deadlines,
    pub(crate) gate: Arc<Gate>,
    pub(crate) metrics: Arc<Metrics>,
    /// No further request on any connection after the next one.
    pub(crate) draining: Cell<bool>,
    /// What still ran has been broken off.
    cut: Cell<bool>,
    ids: RequestIds,
}

/// What is served, which a reload exchanges as a whole. A request keeps what it began with.
#[derive(Debug)]
pub(crate) struct Serving {
    pub(crate) settings: Arc<ServerSettings>,
    pub(crate) router: Arc<Router>,
    /// The log of the server; a site may have its own.
    pub(crate) log: AccessLog,
    /// This thread's own part of the metrics.
    pub(crate) counters: Arc<Counters>,
}

impl Serving {
    /// Files each thread may hold open: those clients ask for, and those scripts name.
    fn open_files(&self) -> (usize, usize) {
        let all = (self.settings.open_files / self.settings.threads.max(1)).max(16);
        (all - all / 4, all / 4)
    }
}

impl Thread {
    pub(crate) fn new(serving: Serving, gate: Arc<Gate>, metrics: Arc<Metrics>, number: usize) -> Rc<Self> {
        let (files, handed) = serving.open_files();
        Rc::new(Self {
            number,
            serving: RefCell::new(Rc::new(serving)),
            files: FileCache::new(files),
            handed: Handed::new(handed),
            images: Memo::default(),
            clock: Clock::new(),
            buffers: Buffers::default(),
            scratch: Rc::default(),
            deadlines: Deadlines::default(),
            gate,
            metrics,
            draining: Cell::new(false),
            cut: Cell::new(false),
            ids: RequestIds::random(),
        })
    }

    /// What is served now. Whoever waits with it in hand keeps the old one.
    pub(crate) fn serving(&self) -> Rc<Serving> {
        Rc::clone(&self.serving.borrow())
    }

    /// Serves this from the next request on.
    pub(crate) fn serve(&self, serving: Serving) {
        let (files, handed) = serving.open_files();
        self.files.resize(files);
        self.handed.resize(handed);
        self.serving.replace(Rc::new(serving));
    }

    /// Lets go of files that are only kept open: the process is out of descriptors.
    pub(crate) fn shed_files(&self) {
        self.files.shed();
        self.handed.shed();
    }

    /// Has connections closed that have been idle longest, of this thread or else of others; how many of this one.
    pub(crate) fn make_room(&self) -> usize {
        let closed = self.make_own_room();
        if closed == 0 {
            self.gate.ask_others(self.number);
        }
        closed
    }

    /// The same for another thread that has none.
    pub(crate) fn make_own_room(&self) -> usize {
        self.deadlines.make_room(self.clock.coarse())
    }

    /// Has connections of one address closed that have been idle longest; how many.
    pub(crate) fn make_room_of(&self, address: IpAddr) -> usize {
        self.deadlines.make_room_of(address, self.clock.coarse())
    }

    /// Waits until another thread needs room.
    pub(crate) async fn asked_for_room(&self) {
        self.gate.asked(self.number).await;
    }

    /// Begins to drain, or goes on with it: connections that have been idle for so long are closed.
    pub(crate) fn drain(&self, idle: Duration) {
        self.draining.set(true);
        let now = self.clock.coarse();
        self.deadlines.drain(now.checked_sub(idle).unwrap_or(now));
    }

    /// Breaks off what still runs, so that it is logged; said again until no connection is left.
    pub(crate) fn cut(&self) {
        self.cut.set(true);
        self.deadlines.cut();
    }

    /// Whether what still runs has been broken off.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut.get()
    }

    /// Why a connection is not there any more that nobody has closed for a reason of its own.
    pub(crate) fn why_gone(&self) -> &'static str {
        if self.cut.get() {
            "server_stopped"
        } else {
            "client_gone"
        }
    }

    pub(crate) fn next_id(&self) -> RequestId {
        self.ids.next()
    }
}
