//! What all connections of one thread share: no locks.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use haulier_proto::field::Fields;
use tokio::sync::Notify;

use crate::access_log::AccessLog;
use crate::handler::image::Memo;
use crate::handler::static_files::FileCache;
use crate::listen::Gate;
use crate::metrics::{Counters, Metrics};
use crate::protocol::Deadlines;
use crate::request::RequestId;
use crate::route::Router;
use crate::settings::ServerSettings;

/// One per thread; connections hold it by `Rc`.
#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) settings: Arc<ServerSettings>,
    pub(crate) router: Arc<Router>,
    pub(crate) files: FileCache,
    /// What addresses of images mean.
    pub(crate) images: Memo,
    pub(crate) clock: Clock,
    pub(crate) buffers: Buffers,
    pub(crate) deadlines: Deadlines,
    pub(crate) gate: Arc<Gate>,
    pub(crate) log: AccessLog,
    pub(crate) metrics: Arc<Metrics>,
    /// This thread's own part of them.
    pub(crate) counters: Arc<Counters>,
    /// No further request on any connection; finish what runs.
    pub(crate) draining: Cell<bool>,
    /// Wakes the accept loops when draining begins.
    pub(crate) drained: Notify,
    next_id: Cell<u64>,
}

impl Thread {
    pub(crate) fn new(
        settings: Arc<ServerSettings>,
        router: Arc<Router>,
        gate: Arc<Gate>,
        log: AccessLog,
        metrics: Arc<Metrics>,
        number: usize,
    ) -> Rc<Self> {
        let started = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let files = FileCache::new((settings.open_files / settings.threads.max(1)).max(16));
        Rc::new(Self {
            settings,
            router,
            files,
            images: Memo::default(),
            clock: Clock::new(),
            buffers: Buffers::default(),
            deadlines: Deadlines::default(),
            gate,
            log,
            counters: metrics.of_thread(number),
            metrics,
            draining: Cell::new(false),
            drained: Notify::new(),
            // Seconds since 1970, thread, counter: unique over restarts without asking anybody.
            next_id: Cell::new((started.as_secs() << 32) | ((number as u64 & 0xff) << 24)),
        })
    }

    /// Begins to drain, or goes on with it: connections that became idle since are closed.
    pub(crate) fn drain(&self) {
        self.draining.set(true);
        self.drained.notify_waiters();
        self.deadlines.close_idle();
    }

    pub(crate) fn next_id(&self) -> RequestId {
        let id = self.next_id.get();
        self.next_id.set(id.wrapping_add(1));
        RequestId(id)
    }
}

/// The time, read once a tick instead of once a request.
#[derive(Debug)]
pub(crate) struct Clock {
    now: Cell<Instant>,
    second: Cell<u64>,
    date: RefCell<[u8; 29]>,
}

impl Clock {
    /// How often [`Clock::tick`] is called.
    pub(crate) const TICK: Duration = Duration::from_millis(100);

    fn new() -> Self {
        let clock = Self {
            now: Cell::new(now()),
            second: Cell::new(0),
            date: RefCell::new([b' '; 29]),
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
            *self.date.borrow_mut() = haulier_proto::date::format(second);
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
}

impl Buffers {
    /// A usual request head fits, and so does the head of a response.
    const CAPACITY: usize = 4096;
    /// Larger ones are given back to the allocator.
    const KEEP_CAPACITY: usize = 64 * 1024;
    /// Enough for the requests a thread has in hand at once; more is a burst.
    const KEEP: usize = 64;

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
}
