//! What all connections of one thread share: no locks.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use haulier_proto::field::Fields;
use haulier_proto::h2::hpack;

use crate::access_log::AccessLog;
use crate::handler::image::Memo;
use crate::handler::static_files::{FileCache, Handed};
use crate::listen::Gate;
use crate::metrics::{Counters, Metrics};
use crate::protocol::Deadlines;
use crate::request::{RequestId, RequestIds};
use crate::route::Router;
use crate::settings::ServerSettings;
use crate::tls::Scratch;

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
            ids: RequestIds::new(),
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

/// The time, read once a tick instead of once a request.
#[derive(Debug)]
pub(crate) struct Clock {
    now: Cell<Instant>,
    second: Cell<u64>,
    date: RefCell<[u8; 29]>,
    /// The Date field as HTTP/2 sends it.
    date_block: RefCell<Vec<u8>>,
}

impl Clock {
    /// How often [`Clock::tick`] is called.
    pub(crate) const TICK: Duration = Duration::from_millis(100);

    fn new() -> Self {
        let clock = Self {
            now: Cell::new(now()),
            second: Cell::new(0),
            date: RefCell::new([b' '; 29]),
            date_block: RefCell::default(),
        };
        clock.tick();
        clock
    }

    /// Reads the clocks.
    pub(crate) fn tick(&self) {
        self.now.set(now());
        let second = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        if second != self.second.replace(second) {
            let date = haulier_proto::date::format(second);
            let mut block = self.date_block.borrow_mut();
            block.clear();
            hpack::encode::field(&mut block, b"date", &date);
            *self.date.borrow_mut() = date;
        }
    }

    /// The time of the last tick.
    pub(crate) fn coarse(&self) -> Instant {
        self.now.get()
    }

    /// Appends the value of a Date field.
    pub(crate) fn append_date(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&*self.date.borrow());
    }

    /// Appends a Date field as HTTP/2 sends it.
    pub(crate) fn append_date_block(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.date_block.borrow());
    }
}

/// The precise time, for durations that are logged.
#[allow(clippy::disallowed_methods, reason = "the one place that reads the clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Memory that goes to a connection only while it works on a request.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    bytes: RefCell<Vec<Vec<u8>>>,
    fields: RefCell<Vec<Fields>>,
    /// Fields that keep their bytes: heads of HTTP/2, which are in no read buffer.
    heads: RefCell<Vec<Fields>>,
    /// For all frames of one read, and for all answers to them.
    large: RefCell<Vec<Vec<u8>>>,
}

impl Buffers {
    /// A usual request head fits, and so does the head of a response.
    const CAPACITY: usize = 4096;
    /// Larger ones are given back to the allocator.
    const KEEP_CAPACITY: usize = 64 * 1024;
    /// Enough for the requests a thread has in hand at once; more is a burst.
    const KEEP: usize = 64;
    /// Least capacity of a large buffer.
    pub(crate) const LARGE: usize = 64 * 1024;
    /// Larger ones are given back to the allocator.
    const KEEP_LARGE_CAPACITY: usize = 512 * 1024;
    /// A connection at work has two.
    const KEEP_LARGE: usize = 4;

    /// An empty buffer.
    pub(crate) fn take(&self) -> Vec<u8> {
        self.bytes
            .borrow_mut()
            .pop()
            .unwrap_or_else(|| Vec::with_capacity(Self::CAPACITY))
    }

    pub(crate) fn give(&self, mut buffer: Vec<u8>) {
        let mut kept = self.bytes.borrow_mut();
        if kept.len() < Self::KEEP && (1..=Self::KEEP_CAPACITY).contains(&buffer.capacity()) {
            buffer.clear();
            kept.push(buffer);
        }
    }

    pub(crate) fn take_fields(&self) -> Fields {
        self.fields.borrow_mut().pop().unwrap_or_default()
    }

    /// Takes back what a request head was made of.
    pub(crate) fn give_fields(&self, mut fields: Fields) {
        self.give(fields.take_buffer());
        let mut kept = self.fields.borrow_mut();
        if kept.len() < Self::KEEP {
            kept.push(fields);
        }
    }

    pub(crate) fn take_head(&self) -> Fields {
        self.heads.borrow_mut().pop().unwrap_or_default()
    }

    /// Takes back what a request head of HTTP/2 was made of.
    pub(crate) fn give_head(&self, mut fields: Fields) {
        let mut kept = self.heads.borrow_mut();
        if kept.len() < Self::KEEP {
            fields.clear();
            kept.push(fields);
        }
    }

    /// An empty buffer of at least [`Buffers::LARGE`].
    pub(crate) fn take_large(&self) -> Vec<u8> {
        self.large
            .borrow_mut()
            .pop()
            .unwrap_or_else(|| Vec::with_capacity(Self::LARGE))
    }

    /// Takes back a buffer that may have become large, or never was.
    pub(crate) fn give_large(&self, mut buffer: Vec<u8>) {
        let mut kept = self.large.borrow_mut();
        if kept.len() < Self::KEEP_LARGE && (Self::LARGE..=Self::KEEP_LARGE_CAPACITY).contains(&buffer.capacity()) {
            buffer.clear();
            kept.push(buffer);
        } else {
            drop(kept);
            self.give(buffer);
        }
    }
}
