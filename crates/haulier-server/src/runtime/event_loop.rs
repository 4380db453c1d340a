//! One serving thread: its event loop, its clock, and the orders it is given from outside.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{JoinSet as LocalTasks, LocalSet};

use super::page_dictionaries;
use crate::clock::{Clock, now};
use crate::files::FileCache;
use crate::io::Address;
use crate::io::Gate;
use crate::listen::{self, StopSignal, Endpoint};
use crate::metrics::{LISTED_AFTER, Metrics};
use crate::thread::{Serving, Thread};

/// Threads for calls that may block: reading cold files.
const BLOCKING_THREADS: usize = 4;

/// What the threads are told from outside.
#[derive(Debug)]
pub(super) struct Control {
    started: Instant,
    /// Answers say that there will be an end; everything is still served.
    pub(super) leaving: AtomicBool,
    /// Accept no more, end after what runs.
    pub(super) drain: AtomicBool,
    /// Idle connections may be asked once more before they are closed: another process answers, and whoever asks in the
    /// moment of closing would get nothing.
    pub(super) gentle: AtomicBool,
    /// End now.
    pub(super) abort: AtomicBool,
    /// When each thread last looked at its clock: milliseconds since `started`.
    beats: Box<[AtomicU64]>,
}

/// Ticks in which connections that are broken off come to their ends.
const CUTS: u32 = 5;

/// How long a connection may still be idle when another process has taken over.
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

    /// This thread has come to its end, and is not waited for.
    fn note_end(&self, thread: usize) {
        self.beats[thread].store(u64::MAX, Ordering::Relaxed);
    }

    /// How long ago the thread that is furthest behind looked at its clock.
    pub(super) fn lag(&self) -> Duration {
        let oldest = self.beats.iter().map(|beat| beat.load(Ordering::Relaxed)).min();
        let oldest = Duration::from_millis(oldest.unwrap_or_default());
        self.started.elapsed().saturating_sub(oldest)
    }

    fn idle_patience(&self) -> Duration {
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

/// What is to be served from now on.
pub(super) struct ThreadReload {
    pub(super) serving: Serving,
    /// Addresses to listen on as well.
    pub(super) listen: Vec<Endpoint>,
    /// Addresses not to listen on any more.
    pub(super) leave: Vec<Address>,
    /// Dropped once it is done.
    pub(super) done: Sender<()>,
}

/// What a thread needs to begin.
pub(super) struct Start {
    pub(super) serving: Serving,
    pub(super) gate: Arc<Gate>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) control: Arc<Control>,
    pub(super) sockets: Vec<Endpoint>,
    pub(super) orders: UnboundedReceiver<ThreadReload>,
    pub(super) number: usize,
}

impl Start {
    /// Where to send the orders, and where they come out.
    pub(super) fn orders() -> (UnboundedSender<ThreadReload>, UnboundedReceiver<ThreadReload>) {
        unbounded_channel()
    }

    pub(super) fn run(self) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(BLOCKING_THREADS)
            .thread_keep_alive(Duration::from_secs(10))
            .build();
        match runtime {
            // A task of its own: what `block_on` is given runs whenever any task of the thread does, at every request.
            Ok(runtime) => LocalSet::new().block_on(&runtime, async {
                if let Err(panicked) = tokio::task::spawn_local(self.serve()).await {
                    std::panic::resume_unwind(panicked.into_panic());
                }
            }),
            Err(error) => tracing::error!(%error, "cannot make an event loop"),
        }
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
                    obey(order, &thread, &mut acceptors);
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
                thread.io.deadlines.look(looked);
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
                thread.io.drain(control.idle_patience());
                acceptors.close(|_| true);
                if acceptors.are_closed() && thread.io.deadlines.is_empty() && haulier_php::background_scripts() == 0 {
                    return control.note_end(number);
                }
            }
        }
    }
}

/// Requests that come from now on meet what the order says; those that run go on with what they began with.
fn obey(order: ThreadReload, thread: &Rc<Thread>, acceptors: &mut Acceptors) {
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
                stop.ask();
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
