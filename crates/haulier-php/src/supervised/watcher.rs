//! Keeps one php-cgi program running on a listening socket.
//!
//! A thread starts PHP, waits for its end and starts it again. It lives as long as the pool, because the kernel sends
//! the parent-death signal when the thread that forked ends. The socket stays open here, so no connection is refused in
//! between. A master itself replaces children that end.

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
use crate::spawner::spawn::Inherited;
use crate::stderr::StderrTail;
use crate::trace::TraceLine;

/// A program that runs for less than this has crashed at its start.
const SHORT_LIFE: Duration = Duration::from_secs(5);
/// Pauses before a restart after such a crash: the first, doubled each time up to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(10);
/// Polling interval for the children of a new master, and the time after which the thread assumes that they exist.
const LOADING_PAUSE: Duration = Duration::from_millis(2);
const LOADING_LIMIT: Duration = Duration::from_secs(2);
/// Time between SIGTERM and SIGKILL.
const END_GRACE: Duration = Duration::from_secs(1);
/// Time for which a master may leave ended children unreplaced while requests need them.
const STUCK: Duration = Duration::from_secs(1);

/// The state of one thread.
pub(super) struct Watcher {
    pub(super) shared: Arc<SharedPool>,
    /// Every worker is a separate program; otherwise this program is a master with children.
    pub(super) separate: bool,
    /// Number of the server in the upstream.
    pub(super) server: usize,
    pub(super) own: Supervised,
    pub(super) starter: Starter,
    pub(super) socket: Socket,
    pub(super) directories: Arc<Directories>,
    /// Closed to tell the thread to end.
    pub(super) orders: PipeReader,
    pub(super) _alive: tokio::sync::mpsc::Sender<()>,
}

/// An event that makes the watcher end its php-cgi, or the end of php-cgi itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WatchEvent {
    /// php-cgi has ended.
    End,
    /// The pool is stopping.
    Order,
    /// No request needs PHP: it is parked.
    Park,
    /// The master does not replace its children.
    Stuck,
}

/// Missing children of a master: since when, and the remaining ones.
type Missing = Option<(Instant, Vec<u32>)>;

/// The way in which a php-cgi, which has ended, came to its end.
enum WatchEnd {
    Ordered,
    Parked,
    Replaced,
    ByItself(ExitStatus),
}

impl Watcher {
    /// Starts PHP again and again until told to end. The socket is removed with `self`.
    pub(super) fn run(self, tell_started: &mpsc::SyncSender<io::Result<()>>) {
        let mut pause = Duration::ZERO;
        let mut first = Some(tell_started);
        let mut is_usual = false;
        loop {
            let begun = Instant::now();
            match self.start_master() {
                Ok((master, traces)) => {
                    self.report_start(master.id(), first.take(), is_usual);
                    let status = match self.watch(master, traces) {
                        WatchEnd::Ordered => return,
                        WatchEnd::Parked if self.wait_for_alarm() => None,
                        WatchEnd::Parked => return,
                        WatchEnd::Replaced => None,
                        WatchEnd::ByItself(status) => Some(status),
                    };
                    // A program that exits successfully right after its start is not PHP.
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

    /// Starts PHP; a master of our own workers with a line over which it tells what they are at.
    fn start_master(&self) -> io::Result<(Master, Option<TraceLine>)> {
        let has_line = self.own.embedded.is_some() && !self.separate;
        let (traces, control) = has_line.then(TraceLine::new).transpose()?.unzip();
        let inherited = Inherited {
            control: control.as_ref().map(AsFd::as_fd),
            ..self.directories.inherited()
        };
        let master = self.starter.start(self.socket.listener.as_fd(), inherited)?;
        Ok((master, traces))
    }

    fn pool(&self) -> &str {
        &self.shared.settings.name
    }

    fn processes(&self) -> &Processes {
        self.shared.processes.as_ref().expect("a supervised pool has processes")
    }

    /// Reports a start. The first one goes to the thread that starts the pool.
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

    /// Waits until PHP ends by itself, or ends it: if told to, if no request needs it, or if it is stuck.
    fn watch(&self, mut master: Master, traces: Option<TraceLine>) -> WatchEnd {
        if let Some(stderr) = master.take_stderr() {
            log_stderr(stderr, self.pool().to_owned(), Arc::clone(&self.shared.stderr));
        }
        let process = rustix::process::pidfd_open(master.pid(), PidfdFlags::empty());
        let single = process.ok().filter(|_| self.separate);
        // Connections to a program without children wait in the kernel until it has loaded.
        if single.is_some() || self.wait_for_children(&mut master) {
            self.processes().note_started(self.server, master.id(), single, traces);
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
        // Its children would continue to answer on the socket. SIGTERM lets them finish their requests.
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

    /// Waits until a request needs the parked PHP; false if told to end first.
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

    /// True if a separate worker was ended by us: it exits successfully after SIGTERM, when it is replaced, or by
    /// SIGKILL, after a timeout. It does neither by itself.
    fn was_asked_to_end(&self, status: ExitStatus) -> bool {
        self.separate && (status.success() || status.signal() == Some(Signal::KILL.as_raw()))
    }

    /// Waits until PHP has loaded and forked; false if it ended first, or if told to end. Meanwhile requests wait in
    /// our queue with its timeout, not in the kernel's.
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
        // A kernel that does not list children cannot tell that some are missing. Where a script must boot first, they may
        // be missing for long.
        let has_children = !self.separate && !self.own.boots_script() && !children::of(master.id()).is_empty();
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

    /// True if the master has left children that requests need unreplaced for [`STUCK`]. It replaces them at once
    /// unless it is stopped or hangs.
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
        // A new child shows that the master works.
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

    /// Waits for an event by polling, if the system gives no descriptor of the process.
    fn poll_for_event(&self, master: &mut Master) -> WatchEvent {
        while master.is_running() {
            if self.ordered_to_end(END_GRACE) {
                return WatchEvent::Order;
            }
        }
        WatchEvent::End
    }

    /// Waits at most for `time`; true if told to end.
    fn ordered_to_end(&self, time: Duration) -> bool {
        let mut order = [PollFd::new(&self.orders, PollFlags::IN)];
        let time = Timespec::try_from(time).ok();
        matches!(rustix::event::poll(&mut order, time.as_ref()), Ok(1..))
    }
}

/// The pause before the next start: none after a run of some length, otherwise longer each time.
fn next_pause(pause: Duration, lived: Duration) -> Duration {
    if lived >= SHORT_LIFE + pause {
        Duration::ZERO
    } else {
        (pause * 2).clamp(FIRST_PAUSE, LAST_PAUSE)
    }
}

/// Ends the master and its children, by SIGKILL after [`END_GRACE`].
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

/// Logs PHP's output outside of requests, such as invalid settings and missing extensions.
fn log_stderr(stderr: File, pool: String, tail: Arc<StderrTail>) {
    let reader = move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            tail.push(&line);
            tracing::warn!(pool, "PHP: {line}");
        }
    };
    let _ = thread::Builder::new().name("php-stderr".into()).spawn(reader); // without it PHP writes into a closed pipe
}
