//! Keeps one php-cgi program running on a socket of ours.
//!
//! A thread starts PHP, waits for its end and starts it again. It lives as long as the pool, because the signal that ends
//! PHP with us follows the thread that forked. The socket stays open here, so that no connection is refused in between. A
//! master replaces children that die by itself.

use std::fs::File;
use std::io::{self, BufRead, BufReader, PipeReader};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{PidfdFlags, Signal};

use super::directory::Directories;
use super::master::{Master, Starter};
use super::socket::Socket;
use crate::children;
use crate::processes::Processes;
use crate::settings::Supervised;
use crate::shared_pool::SharedPool;
use crate::spawner::recipe;
use crate::stderr::StderrTail;

/// A program that lives shorter has crashed at its start.
const SHORT_LIFE: Duration = Duration::from_secs(5);
/// Pauses before another start after such a crash: the first, then twice as long each time up to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(10);
/// Pause between two looks whether PHP has forked, and the time after which the thread takes it for granted.
const LOADING_PAUSE: Duration = Duration::from_millis(2);
const LOADING_LIMIT: Duration = Duration::from_secs(2);
/// Time that workers have to end after SIGTERM before SIGKILL.
const END_GRACE: Duration = Duration::from_secs(1);
/// Time that a master may leave ended children unreplaced while PHP has something to do.
const STUCK: Duration = Duration::from_secs(1);

/// The thread's part of the world.
pub(super) struct Watcher {
    pub(super) shared: Arc<SharedPool>,
    /// Every worker is a program of its own; otherwise this program is a master with children.
    pub(super) separate: bool,
    /// Number of the program's address.
    pub(super) server: usize,
    pub(super) own: Supervised,
    pub(super) starter: Starter,
    pub(super) socket: Socket,
    pub(super) directories: Arc<Directories>,
    /// Closed as the order to end.
    pub(super) orders: PipeReader,
    pub(super) _alive: tokio::sync::mpsc::Sender<()>,
}

/// An event that ends the watch over a running php-cgi.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WatchEvent {
    /// It has ended.
    End,
    /// The pool ends.
    Order,
    /// No request needs it: it is parked.
    Park,
    /// It does not replace its children.
    Stuck,
}

/// Too few children of a master: since when, and which ones are left.
type Missing = Option<(Instant, Vec<u32>)>;

/// How the watch over one php-cgi ended. It runs no longer.
enum WatchEnd {
    Ordered,
    Parked,
    Replaced,
    ByItself(ExitStatus),
}

impl Watcher {
    /// Starts PHP again and again until the order to end. The socket goes with `self`.
    pub(super) fn run(self, tell_started: &mpsc::SyncSender<io::Result<()>>) {
        let mut pause = Duration::ZERO;
        let mut first = Some(tell_started);
        let mut is_usual = false;
        loop {
            let begun = Instant::now();
            match self
                .starter
                .start(self.socket.listener.as_fd(), self.directories.inherited())
            {
                Ok(master) => {
                    self.report_start(master.id(), first.take(), is_usual);
                    let status = match self.watch(master) {
                        WatchEnd::Ordered => return,
                        WatchEnd::Parked if self.wait_for_alarm() => None,
                        WatchEnd::Parked => return,
                        WatchEnd::Replaced => None,
                        WatchEnd::ByItself(status) => Some(status),
                    };
                    // A program that ends successfully at its very start is not PHP.
                    let was_asked = |status| self.was_asked_to_end(status) && begun.elapsed() >= FIRST_PAUSE;
                    is_usual = status.is_none_or(was_asked);
                    let Some(status) = status.filter(|_| !is_usual) else {
                        pause = Duration::ZERO;
                        continue;
                    };
                    tracing::error!(pool = self.pool(), %status, "PHP ended by itself and is started again");
                }
                Err(error) => {
                    tracing::error!(pool = self.pool(), %error, php = %self.own.php.display(), "PHP cannot be started");
                    if let Some(tell) = first.take() {
                        let _ = tell.send(Err(error));
                        return;
                    }
                }
            }
            if self.ordered_to_end(pause) {
                return;
            }
            pause = next_pause(pause, begun.elapsed());
        }
    }

    fn pool(&self) -> &str {
        &self.shared.settings.name
    }

    fn processes(&self) -> &Processes {
        self.shared.processes.as_ref().expect("a supervised pool has processes")
    }

    /// Reports a start: the first to the thread that starts the pool, which logs it as part of its own start.
    fn report_start(&self, pid: u32, first: Option<&mpsc::SyncSender<io::Result<()>>>, is_usual: bool) {
        let (pool, workers) = (self.pool(), if self.separate { 1 } else { self.own.workers });
        match first {
            Some(tell) => {
                let _ = tell.send(Ok(()));
                tracing::debug!(pool, pid, workers, "PHP started");
            }
            None if is_usual => tracing::debug!(pool, pid, "PHP started anew"),
            None => tracing::info!(pool, pid, workers, "PHP started again"),
        }
    }

    /// Waits until PHP ends by itself, or ends it: when ordered to, when no request needs it, when it is stuck.
    fn watch(&self, mut master: Master) -> WatchEnd {
        if let Some(stderr) = master.take_stderr() {
            log_stderr(stderr, self.pool().to_owned(), Arc::clone(&self.shared.stderr));
        }
        let process = rustix::process::pidfd_open(master.pid(), PidfdFlags::empty());
        let single = process.ok().filter(|_| self.separate);
        // A program without children takes connections as soon as it has loaded; they wait in the kernel.
        if single.is_some() || self.wait_for_children(&mut master) {
            self.processes().note_started(self.server, master.id(), single);
            self.shared.upstream.server_started(self.server);
        }
        let event = self.wait_for_event(&mut master);
        match event {
            WatchEvent::End => {}
            WatchEvent::Stuck => master.end(),
            WatchEvent::Order | WatchEvent::Park => end_group(&mut master),
        }
        let status = master.wait();
        self.note_end(event == WatchEvent::Park || self.was_asked_to_end(status));
        match event {
            WatchEvent::Order => return WatchEnd::Ordered,
            WatchEvent::Park => return WatchEnd::Parked,
            WatchEvent::End | WatchEvent::Stuck => {}
        }
        // Its children would answer on the socket for ever. SIGTERM lets them finish their requests.
        master.end_group(Signal::TERM);
        if event == WatchEvent::Stuck {
            WatchEnd::Replaced
        } else {
            WatchEnd::ByItself(status)
        }
    }

    /// Notes the end of the program, and counts it unless it `was_asked` to end.
    fn note_end(&self, was_asked: bool) {
        let pid = self.processes().note_ended(self.server);
        // The children of a master end with it.
        self.shared.recycling.forget(|worker| !self.separate || worker == pid);
        if !was_asked && !self.shared.upstream.is_stopping() {
            self.shared.count(|counts| counts.exits += 1);
        }
        self.shared.upstream.server_ended(self.server);
    }

    /// Waits until a request needs the parked PHP; false if the order to end came first.
    fn wait_for_alarm(&self) -> bool {
        let Some(alarm) = self.shared.upstream.alarm(self.server) else {
            return true;
        };
        tracing::debug!(pool = self.pool(), "PHP is parked until a request needs it");
        let mut either = [
            PollFd::new(alarm, PollFlags::IN),
            PollFd::new(&self.orders, PollFlags::IN),
        ];
        while either.iter().all(|descriptor| descriptor.revents().is_empty()) {
            let _ = rustix::event::poll(&mut either, None); // EINTR: once more
        }
        let is_ordered = !either[1].revents().is_empty();
        alarm.reset();
        !is_ordered
    }

    /// A single worker ends successfully after SIGTERM, which is how it is replaced, and by SIGKILL when a request took too
    /// long. By itself it does neither.
    fn was_asked_to_end(&self, status: ExitStatus) -> bool {
        self.separate && (status.success() || status.signal() == Some(Signal::KILL.as_raw()))
    }

    /// Waits until PHP has loaded and forked; false if it ended before, or the order to end came. Requests meanwhile stay
    /// in our queue, with its time limit, and not in the kernel's.
    fn wait_for_children(&self, master: &mut Master) -> bool {
        let begun = Instant::now();
        while children::of(master.id()).is_empty() {
            if self.ordered_to_end(LOADING_PAUSE) || !master.is_running() {
                return false;
            }
            if begun.elapsed() >= LOADING_LIMIT {
                return true; // a kernel that does not list children
            }
        }
        true
    }

    fn wait_for_event(&self, master: &mut Master) -> WatchEvent {
        let process = rustix::process::pidfd_open(master.pid(), PidfdFlags::empty());
        let Ok(process) = process else {
            return self.poll_for_event(master);
        };
        let mut either = [
            PollFd::new(&process, PollFlags::IN),
            PollFd::new(&self.orders, PollFlags::IN),
        ];
        // A kernel that does not list children cannot tell that some are missing.
        let has_children = !self.separate && !children::of(master.id()).is_empty();
        let mut missing = None;
        while either.iter().all(|descriptor| descriptor.revents().is_empty()) {
            if has_children && self.is_stuck(master.id(), &mut missing) {
                return WatchEvent::Stuck;
            }
            let upstream = &self.shared.upstream;
            let park = match self.own.parks_after().map(|idle| upstream.park(self.server, idle)) {
                Some(Ok(())) => return WatchEvent::Park,
                Some(Err(left)) => Some(left),
                None => None,
            };
            let pause = park.into_iter().chain(has_children.then_some(STUCK)).min();
            let pause = pause.and_then(|pause| Timespec::try_from(pause).ok());
            let _ = rustix::event::poll(&mut either, pause.as_ref()); // EINTR: once more
        }
        if either[0].revents().is_empty() {
            WatchEvent::Order
        } else {
            WatchEvent::End
        }
    }

    /// Whether the master has left children unreplaced for [`STUCK`] that the requests need. It replaces them at once
    /// unless it is stopped, or hangs.
    fn is_stuck(&self, master: u32, missing: &mut Missing) -> bool {
        if !self.shared.upstream.is_needed() {
            *missing = None;
            return false;
        }
        let wanted = recipe::children(&self.own);
        let mut alive = children::of(master);
        alive.retain(|&child| children::is_alive(child));
        if alive.len() >= wanted {
            *missing = None;
            return false;
        }
        // A child that was not there before is new: the master is at work.
        let before = missing.take();
        let since = before.filter(|(_, before)| alive.iter().all(|child| before.contains(child)));
        let since = since.map_or_else(Instant::now, |(since, _)| since);
        let is_stuck = since.elapsed() >= STUCK;
        if is_stuck {
            let (pool, children) = (self.pool(), alive.len());
            tracing::error!(
                pool,
                pid = master,
                children,
                wanted,
                "php-cgi does not replace children that have ended: it hangs or is stopped, and is replaced itself"
            );
        }
        *missing = Some((since, alive));
        is_stuck
    }

    /// The event where the system gives no descriptor for the process.
    fn poll_for_event(&self, master: &mut Master) -> WatchEvent {
        while master.is_running() {
            if self.ordered_to_end(END_GRACE) {
                return WatchEvent::Order;
            }
        }
        WatchEvent::End
    }

    /// Waits for the order to end, at most for `time`; true if it came.
    fn ordered_to_end(&self, time: Duration) -> bool {
        let mut order = [PollFd::new(&self.orders, PollFlags::IN)];
        let time = Timespec::try_from(time).ok();
        matches!(rustix::event::poll(&mut order, time.as_ref()), Ok(1..))
    }
}

/// The pause before the next start: none after a life of some length, else ever longer.
fn next_pause(pause: Duration, lived: Duration) -> Duration {
    if lived >= SHORT_LIFE + pause {
        Duration::ZERO
    } else {
        (pause * 2).clamp(FIRST_PAUSE, LAST_PAUSE)
    }
}

/// Ends the master and its children, by force after [`END_GRACE`].
fn end_group(master: &mut Master) {
    let of_master = children::of(master.id());
    master.end_group(Signal::TERM);
    let deadline = Instant::now() + END_GRACE;
    while master.is_running() || of_master.iter().any(|&child| children::is_alive(child)) {
        if Instant::now() >= deadline {
            master.end_group(Signal::KILL);
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Logs what PHP writes outside of requests: settings it cannot use, extensions it cannot load.
fn log_stderr(stderr: File, pool: String, tail: Arc<StderrTail>) {
    let reader = move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            tail.push(&line);
            tracing::warn!(pool, "PHP: {line}");
        }
    };
    let _ = thread::Builder::new().name("php-stderr".into()).spawn(reader); // without it PHP writes into a closed pipe
}
