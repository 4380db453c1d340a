//! One HTTP/2 connection: its task, its reads and its writes.

use std::cell::{Cell, RefCell, RefMut};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

use haulier_http::{Peer, Timeouts};
use haulier_proto::h2::connection::Connection as Machine;
use haulier_proto::h2::error::{ConnectionError, ErrorCode};

use super::requests;
use super::stream::WaitingStreams;
use crate::io::Permit;
use crate::io::WaitPhase;
use crate::io::pace::Pace;
use crate::io::socket::Socket;
use crate::metrics::Http2Connection;
use crate::thread::Thread;

/// Output that is sent before further frames are read and further bodies polled, bytes. With one more piece, it is the
/// most that a connection holds unsent.
pub(super) const MOST_OUTPUT: usize = 256 * 1024;
/// Writes before other tasks run.
const TURNS: u32 = 2;
/// Most bytes read and discarded after the last frame.
const MOST_LINGERING: usize = 4 * 1024 * 1024;

/// A connection and its streams.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(super) thread: Rc<Thread>,
    pub(super) socket: Socket,
    pub(super) peer: Peer,
    machine: RefCell<Machine>,
    /// Bytes read and not yet parsed; without memory while there are none.
    pub(super) input: RefCell<Vec<u8>>,
    /// Bytes of the state machine's output that the kernel has taken.
    pub(super) sent: Cell<usize>,
    pub(super) streams: RefCell<WaitingStreams>,
    /// The awaited event, and the start of the wait.
    pub(super) waiting: Cell<(WaitPhase, Instant)>,
    /// The timeouts of the last request's site, if they differ from the server's.
    pub(super) timeouts: RefCell<Option<Arc<Timeouts>>>,
    /// The wait that has expired, for the task to handle.
    pub(super) expired: Cell<Option<WaitPhase>>,
    pub(super) task: RefCell<Option<Waker>>,
    /// The task is running and need not be woken.
    is_at_work: Cell<bool>,
    /// Number of requests.
    pub(super) served: Cell<u32>,
    /// The time of the first GOAWAY.
    pub(super) announced: Cell<Option<Instant>>,
    /// The client opens no more streams.
    pub(super) is_leaving: Cell<bool>,
    /// The client has closed its side.
    has_ended: Cell<bool>,
    /// The client violated the protocol: GOAWAY is in the output, and further input is ignored.
    pub(super) has_failed: Cell<bool>,
    pub(super) pace: Pace,
    /// The client takes less than the least rate.
    pub(super) is_too_slow: Cell<bool>,
    /// The server cuts active requests off.
    pub(super) is_cut: Cell<bool>,
    /// Others need its place: it ends after the input that is there, without waiting for the client.
    pub(super) gives_way: Cell<bool>,
    _open: Http2Connection,
    pub(super) permit: Permit,
}

/// Takes over a connection with `input` as its first bytes, after a PROXY header and the TLS handshake. Requests that
/// are there already are answered before anything is registered with the event loop.
pub(crate) fn start(thread: &Rc<Thread>, socket: Socket, peer: Peer, permit: Permit, input: Vec<u8>) {
    let now = thread.io.clock.coarse();
    let connection = Rc::new(Connection {
        thread: Rc::clone(thread),
        socket,
        peer,
        machine: RefCell::new(Machine::new(requests::limits(&thread.serving().settings.limits), now)),
        input: RefCell::new(input),
        sent: Cell::new(0),
        streams: RefCell::default(),
        waiting: Cell::new((WaitPhase::Head, now)),
        timeouts: RefCell::default(),
        expired: Cell::new(None),
        task: RefCell::default(),
        is_at_work: Cell::new(false),
        served: Cell::new(0),
        announced: Cell::new(None),
        is_leaving: Cell::new(false),
        has_ended: Cell::new(false),
        has_failed: Cell::new(false),
        pace: Pace::default(),
        is_too_slow: Cell::new(false),
        is_cut: Cell::new(false),
        gives_way: Cell::new(false),
        _open: Http2Connection::new(&thread.serving().counters),
        permit,
    });
    let weak = Rc::downgrade(&connection);
    thread.io.deadlines.watch(weak);
    // Ends all streams, even if the task panics.
    let guard = Guard(connection);
    guard.0.work();
    if guard.0.flush().is_ok() {
        tokio::task::spawn_local(async move { guard.0.drive().await });
    }
}

/// Ends the remaining streams with the task.
struct Guard(Rc<Connection>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.end_streams();
    }
}

/// The end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The client is gone.
    Gone,
    /// The last frame was sent; the client may still be reading.
    Sent,
}

/// The result of a read.
enum ReadResult {
    Bytes,
    End,
}

impl Connection {
    /// Runs the connection to its end.
    async fn drive(self: &Rc<Self>) {
        let end = std::future::poll_fn(|context| self.poll(context)).await;
        self.end_streams();
        if end == End::Sent && !self.gives_way.get() {
            self.linger().await;
        }
    }

    /// Works turn by turn until it has to wait.
    fn poll(self: &Rc<Self>, context: &mut Context<'_>) -> Poll<End> {
        self.task
            .borrow_mut()
            .get_or_insert_with(|| context.waker().clone())
            .clone_from(context.waker());
        let mut turns = 0;
        loop {
            self.handle_expiry();
            if ready!(self.poll_flush(context)).is_err() {
                return Poll::Ready(End::Gone);
            }
            if self.is_over() {
                return Poll::Ready(End::Sent);
            }
            if turns == TURNS {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            if self.work() {
                turns += 1;
                continue;
            }
            if self.is_over() {
                return Poll::Ready(End::Sent);
            }
            let read = if self.has_ended.get() {
                // No WINDOW_UPDATE will come any more.
                self.drop_stalled(self.all_stalled(), self.thread.end_reason());
                if self.has_output() {
                    continue;
                }
                Poll::Pending
            } else {
                self.poll_receive(context)
            };
            match read {
                Poll::Pending => {
                    self.note_wait();
                    if self.end_for_others() {
                        continue;
                    }
                    return Poll::Pending;
                }
                Poll::Ready(Ok(ReadResult::Bytes)) => {}
                Poll::Ready(Ok(ReadResult::End)) => self.note_end(),
                Poll::Ready(Err(_)) => return Poll::Ready(End::Gone),
            }
        }
    }

    /// The client has closed its side, but may still be reading.
    fn note_end(&self) {
        self.has_ended.set(true);
        self.is_leaving.set(true);
        for stream in self.streams.borrow().all() {
            stream.note_end();
        }
    }

    /// The state machine, with an output buffer and the time of this tick.
    pub(super) fn machine(&self) -> RefMut<'_, Machine> {
        let mut machine = self.machine.borrow_mut();
        machine.set_time(self.thread.io.clock.coarse());
        if machine.output().capacity() == 0 {
            *machine.output() = self.thread.io.buffers.take_large();
        }
        machine
    }

    /// Asks the state machine.
    pub(super) fn ask<T>(&self, question: impl FnOnce(&mut Machine) -> T) -> T {
        let mut machine = self.machine.borrow_mut();
        machine.set_time(self.thread.io.clock.coarse());
        question(&mut machine)
    }

    /// Does everything without reading or writing; true if there is output to send.
    fn work(self: &Rc<Self>) -> bool {
        self.is_at_work.set(true);
        self.take_frames();
        self.fill();
        self.is_at_work.set(false);
        self.has_output()
    }

    /// True if the connection may be closed once all output is sent.
    fn is_over(&self) -> bool {
        let finished =
            self.ask(|machine| machine.is_finished() || (self.is_leaving.get() && machine.open_streams() == 0));
        self.has_failed.get() || finished
    }

    /// Wakes the task, to send or to work.
    pub(super) fn wake(&self) {
        if !self.is_at_work.get()
            && let Some(task) = &*self.task.borrow()
        {
            task.wake_by_ref();
        }
    }

    /// Ends the connection for the client's error; GOAWAY is in the output.
    pub(super) fn note_failure(&self, error: ConnectionError) {
        let (client, code, reason) = (self.peer.remote, error.code.0, error.reason);
        if error.code == ErrorCode::ENHANCE_YOUR_CALM {
            tracing::info!(%client, code, reason, "an HTTP/2 client exceeded a limit");
        } else {
            tracing::debug!(%client, code, reason, "an HTTP/2 client violated the protocol");
        }
        self.has_failed.set(true);
    }

    fn has_output(&self) -> bool {
        self.ask(|machine| !machine.output().is_empty())
    }

    /// Sends all output; false if the kernel takes no more.
    fn flush(&self) -> io::Result<bool> {
        let mut machine = self.machine.borrow_mut();
        let output = machine.output();
        while self.sent.get() < output.len() {
            let Some(sent) = self.socket.send(&output[self.sent.get()..], false)? else {
                return Ok(false);
            };
            self.sent.set(self.sent.get() + sent);
            if self.is_waiting_for(WaitPhase::Send) {
                self.wait_for(WaitPhase::Send);
                self.socket.note_queue();
            }
        }
        self.sent.set(0);
        if output.capacity() > 0 {
            self.thread.io.buffers.give_large(std::mem::take(output));
        }
        Ok(true)
    }

    fn poll_flush(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.has_output() {
            return Poll::Ready(Ok(()));
        }
        let registered = self.socket.registered()?;
        loop {
            let Poll::Ready(ready) = registered.poll_write_ready(context) else {
                if !self.is_waiting_for(WaitPhase::Send) {
                    self.wait_for(WaitPhase::Send);
                    self.socket.note_queue();
                }
                return Poll::Pending;
            };
            let mut ready = ready?;
            if self.flush()? {
                return Poll::Ready(Ok(()));
            }
            // Only EAGAIN ends readiness.
            ready.clear_ready();
        }
    }

    fn poll_receive(&self, context: &mut Context<'_>) -> Poll<io::Result<ReadResult>> {
        let registered = self.socket.registered()?;
        loop {
            if self.socket.has_ended() {
                return Poll::Ready(Ok(ReadResult::End));
            }
            let mut ready = ready!(registered.poll_read_ready(context))?;
            let mut input = self.input.borrow_mut();
            if input.capacity() < crate::io::Buffers::LARGE {
                let mut larger = self.thread.io.buffers.take_large();
                larger.extend_from_slice(&input);
                self.thread.io.buffers.give(std::mem::replace(&mut input, larger));
            }
            let room = input.capacity() - input.len();
            let received = self.socket.receive(&mut input)?;
            if received.is_none_or(|count| count > 0 && count < room) {
                // A short read emptied the socket; clearing readiness saves an empty read.
                ready.clear_ready();
            }
            match received {
                Some(0) => return Poll::Ready(Ok(ReadResult::End)),
                Some(_) => return Poll::Ready(Ok(ReadResult::Bytes)),
                None => {}
            }
        }
    }

    /// Closes the sending side and reads on, so that no reset overtakes the last frame.
    async fn linger(&self) {
        self.socket.shutdown_write();
        self.expired.set(None);
        self.wait_for(WaitPhase::Linger);
        let mut budget = MOST_LINGERING;
        while budget > 0
            && let Ok(ReadResult::Bytes) = std::future::poll_fn(|context| self.poll_linger(context)).await
        {
            let mut input = self.input.borrow_mut();
            budget = budget.saturating_sub(input.len());
            input.clear();
        }
    }

    fn poll_linger(&self, context: &mut Context<'_>) -> Poll<io::Result<ReadResult>> {
        if self.expired.get().is_some() || self.has_ended.get() {
            return Poll::Ready(Ok(ReadResult::End));
        }
        self.poll_receive(context)
    }
}
