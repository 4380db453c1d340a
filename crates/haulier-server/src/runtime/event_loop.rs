//! One serving thread: its event loop, its clock, and its orders from the main thread.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{JoinSet as LocalTasks, LocalSet};

use super::page_dictionaries;
use crate::clock::{Clock, now};
use crate::files::FileCache;
use crate::io::Address;
use crate::io::Gate;
use crate::listen::{self, Endpoint, StopSignal};
use crate::metrics::{LISTED_AFTER, Metrics};
use crate::thread::{Serving, Thread};

/// Threads for blocking calls, such as reading cold files.
const BLOCKING_THREADS: usize = 4;

/// Flags that the main thread sets for all serving threads.
#[derive(Debug)]
pub(super) struct Control {
    started: Instant,
    /// Responses announce the end of their connection; everything is still served.
    pub(super) leaving: AtomicBool,
    /// Accept no more, and end after the active requests.
    pub(super) drain: AtomicBool,
    /// Close idle connections only after [`GENTLE_IDLE`]: another process serves now, and a client that sends a request
    /// at that moment would get nothing.
    pub(super) gentle: AtomicBool,
    /// End now.
    pub(super) abort: AtomicBool,
    /// Time at which each thread last looked at its clock: milliseconds since `started`.
    beats: Box<[AtomicU64]>,
}

/// Ticks that cut-off connections have to log and close.
const CUTS: u32 = 5;

/// Longest idle time of a connection once another process has taken over.
const GENTLE_IDLE: Duration = Duration::from_secs(2);

impl Control {
    pub(super) fn new(threads: usize) -> Self {
        Self {
            started: now(),
            leaving: AtomicBool::new(false),
            drain: AtomicBool::new(false),
            gentle: AtomicBool::new(false),
            abort: AtomicBool::new(false),
            beats: (0..threads).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn beat(&self, thread: usize) {
        self.beats[thread].store(milliseconds(self.started.elapsed()), Ordering::Relaxed);
    }

    /// Marks a thread as ended: it no longer counts for the lag.
    fn note_end(&self, thread: usize) {
        self.beats[thread].store(u64::MAX, Ordering::Relaxed);
    }

    /// Time since the slowest thread last looked at its clock.
    pub(super) fn lag(&self) -> Duration {
        let oldest = self.beats.iter().map(|beat| beat.load(Ordering::Relaxed)).min();
        let oldest = Duration::from_millis(oldest.unwrap_or_default());
        self.started.elapsed().saturating_sub(oldest)
    }

    fn idle_grace(&self) -> Duration {
        if self.gentle.load(Ordering::SeqCst) {
            GENTLE_IDLE
        } else {
            Duration::ZERO
        }
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// New settings and sockets of a thread.
pub(super) struct ThreadReload {
    pub(super) serving: Serving,
    /// Additional addresses.
    pub(super) listen: Vec<Endpoint>,
    /// Addresses to stop listening on.
    pub(super) leave: Vec<Address>,
    /// Dropped once the thread has switched.
    pub(super) done: Sender<()>,
}

/// Start parameters of a thread.
pub(super) struct ThreadStart {
    pub(super) serving: Serving,
    pub(super) gate: Arc<Gate>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) control: Arc<Control>,
    pub(super) sockets: Vec<Endpoint>,
    pub(super) orders: UnboundedReceiver<ThreadReload>,
    pub(super) number: usize,
}

impl ThreadStart {
    /// A channel for orders.
    pub(super) fn orders() -> (UnboundedSender<ThreadReload>, UnboundedReceiver<ThreadReload>) {
        unbounded_channel()
    }

    /// The event loop of a thread.
    ///
    /// # Errors
    /// No descriptors left.
    pub(super) fn event_loop() -> io::Result<Runtime> {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(BLOCKING_THREADS)
            .thread_keep_alive(Duration::from_secs(10))
            .build()
    }

    pub(super) fn run(self, event_loop: &Runtime) {
        // A task of its own, since `block_on` polls its argument whenever any task of the thread runs, that is at every
        // request.
        LocalSet::new().block_on(event_loop, async {
            if let Err(panicked) = tokio::task::spawn_local(self.serve()).await {
                std::panic::resume_unwind(panicked.into_panic());
            }
        });
    }

    async fn serve(self) {
        let Self { control, number, .. } = self;
        let mut orders = self.orders;
        let thread = Thread::new(self.serving, self.gate, self.metrics, number);
        let mut acceptors = Acceptors::default();
        acceptors.open(&thread, self.sockets);
        if number == 0 {
            tokio::task::spawn_local(page_dictionaries::keep_fresh(Rc::clone(&thread)));
        }
        let (mut aged, mut looked) = (now(), now());
        let mut cuts = 0;
        let mut ticks = tokio::time::interval(Clock::TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                Some(order) = orders.recv() => {
                    apply(order, &thread, &mut acceptors);
                    continue;
                }
                () = thread.io.asked_for_room() => {
                    thread.io.make_own_room();
                    continue;
                }
            }
            control.beat(number);
            thread.io.clock.tick();
            thread
                .io
                .deadlines
                .scan(thread.io.clock.coarse(), &thread.serving().settings.limits);
            if thread.io.clock.coarse().saturating_duration_since(looked) >= LISTED_AFTER {
                looked = thread.io.clock.coarse();
                thread.io.deadlines.check_progress(looked);
            }
            if thread.io.clock.coarse().saturating_duration_since(aged) > FileCache::AGE {
                aged = thread.io.clock.coarse();
                thread.caches.files.age();
                thread.caches.sendfile.age();
            }
            acceptors.forget_closed();
            if control.leaving.load(Ordering::SeqCst) {
                thread.io.draining.set(true);
            }
            if control.abort.load(Ordering::SeqCst) {
                thread.io.cut();
                cuts += 1;
                if thread.io.deadlines.is_empty() || cuts > CUTS {
                    return control.note_end(number);
                }
            }
            if control.drain.load(Ordering::SeqCst) {
                thread.io.drain(control.idle_grace());
                acceptors.close(|_| true);
                if acceptors.are_closed() && thread.io.deadlines.is_empty() && haulier_php::background_scripts() == 0 {
                    return control.note_end(number);
                }
            }
        }
    }
}

/// Applies an order. New requests get the new settings; active ones keep theirs.
fn apply(order: ThreadReload, thread: &Rc<Thread>, acceptors: &mut Acceptors) {
    thread.serve(order.serving);
    acceptors.close(|address| order.leave.contains(address));
    acceptors.open(thread, order.listen);
    drop(order.done);
}

/// The accept loops of a thread.
#[derive(Debug, Default)]
struct Acceptors {
    accepting: LocalTasks<()>,
    open: Vec<(Address, Rc<StopSignal>)>,
}

impl Acceptors {
    fn open(&mut self, thread: &Rc<Thread>, sockets: Vec<Endpoint>) {
        for endpoint in sockets {
            let stop = Rc::<StopSignal>::default();
            self.open.push((endpoint.address.clone(), Rc::clone(&stop)));
            self.accepting
                .spawn_local(listen::accept(Rc::clone(thread), endpoint, stop));
        }
    }

    fn close(&mut self, which: impl Fn(&Address) -> bool) {
        self.open.retain(|(address, stop)| {
            let closes = which(address);
            if closes {
                stop.send();
            }
            !closes
        });
    }

    fn forget_closed(&mut self) {
        while self.accepting.try_join_next().is_some() {}
    }

    fn are_closed(&self) -> bool {
        self.accepting.is_empty()
    }
}
