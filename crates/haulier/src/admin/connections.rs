//! The connections of one admin listener: few at a time, and new ones take the place of silent ones.
//!
//! Some descriptors are reserved for them, so that a server that has none left still answers a health check and
//! `haulier stop`.

use std::future::Future;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use tokio::task::{AbortHandle, JoinSet};

use crate::machine::Reserve;

/// Most connections that a listener serves at once.
const MOST: usize = 32;
/// Pause of accepting when the system has no descriptor left.
const PAUSE: Duration = Duration::from_millis(50);
/// Time for which the reserve of descriptors is open: a waiting client is accepted at once.
const RESERVE_OPEN: Duration = Duration::from_millis(5);

/// The stage of a connection; one at a lower stage is closed first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Stage {
    /// It has not sent a request, or has its answer.
    Silent,
    /// It is between two requests.
    Between,
    /// It receives its answer.
    Taking,
    /// Its answer is being made: it is never closed for another.
    Waiting,
}

/// The stage of a connection, shared with the list of connections.
#[derive(Debug, Clone)]
pub(super) struct StageCell(Arc<AtomicU8>);

impl StageCell {
    pub(super) fn new() -> Self {
        Self(Arc::new(AtomicU8::new(Stage::Silent as u8)))
    }

    pub(super) fn set(&self, stage: Stage) {
        self.0.store(stage as u8, Ordering::Relaxed);
    }

    /// The stage, if the connection may be closed for another.
    fn evictable(&self) -> Option<u8> {
        let stage = self.0.load(Ordering::Relaxed);
        (stage != Stage::Waiting as u8).then_some(stage)
    }
}

/// Accepts connections and serves them, for as long as it is polled. `has_pending` is true while a client waits to be
/// accepted.
pub(super) async fn accept_and_serve<S, A, F>(
    accept: impl Fn() -> A,
    has_pending: impl Fn() -> bool,
    serve: impl Fn(S, StageCell) -> F,
) where
    A: Future<Output = io::Result<S>>,
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let mut connections = Connections::new();
    loop {
        connections.remove_closed();
        let accepted = tokio::select! {
            accepted = accept() => accepted,
            Some(_) = connections.tasks.join_next() => continue,
        };
        // Without descriptors, accepting fails whether or not a client waits.
        let accepted = match accepted {
            Err(_) if has_pending() => from_reserve(accept()).await,
            accepted => accepted,
        };
        match accepted {
            Ok(stream) => {
                connections.make_room().await;
                let stage = StageCell::new();
                connections.admit(stage.clone(), serve(stream, stage));
            }
            // A client that waits needs the descriptor more than a silent connection does.
            Err(_) if has_pending() && connections.evict_silent() => tokio::task::yield_now().await,
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Accepts with a descriptor of the reserve.
async fn from_reserve<S>(accept: impl Future<Output = io::Result<S>>) -> io::Result<S> {
    let _open = Reserve::open();
    let accepted = tokio::time::timeout(RESERVE_OPEN, accept).await;
    accepted.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// The connections that are open, the oldest first.
#[derive(Debug)]
struct Connections {
    open: Vec<(StageCell, AbortHandle)>,
    tasks: JoinSet<()>,
}

impl Drop for Connections {
    /// Open connections still get their answers.
    fn drop(&mut self) {
        self.tasks.detach_all();
    }
}

impl Connections {
    fn new() -> Self {
        Self {
            open: Vec::new(),
            tasks: JoinSet::new(),
        }
    }

    fn admit(&mut self, stage: StageCell, serving: impl Future<Output = io::Result<()>> + Send + 'static) {
        let task = self.tasks.spawn(async move {
            // A client that stops reading is not worth a line in the log.
            let _ = serving.await;
        });
        self.open.push((stage, task));
    }

    fn remove_closed(&mut self) {
        while self.tasks.try_join_next().is_some() {}
        self.open.retain(|(_, task)| !task.is_finished());
    }

    /// Makes room for one more: closes one, or waits for the first whose answer is complete.
    async fn make_room(&mut self) {
        while self.open.len() >= MOST {
            self.evict(u8::MAX);
            let _ = self.tasks.join_next().await;
            self.remove_closed();
        }
    }

    fn evict_silent(&mut self) -> bool {
        self.evict(Stage::Silent as u8)
    }

    /// Closes the oldest connection at the lowest stage, if that is no higher than `most`.
    fn evict(&mut self, most: u8) -> bool {
        let spare = self.open.iter().enumerate().filter_map(|(index, (cell, _))| {
            let stage = cell.evictable().filter(|stage| *stage <= most)?;
            Some((stage, index))
        });
        let Some((_, index)) = spare.min() else { return false };
        let (_, task) = self.open.remove(index);
        task.abort();
        true
    }
}

/// True while a client waits to be accepted on this listening socket.
pub(super) fn has_pending(socket: impl AsFd) -> bool {
    let mut poll = [PollFd::new(&socket, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut poll, Some(&now)).map_or(true, |count| count > 0)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::sync::mpsc;

    use super::*;

    /// Answers every byte with the same byte.
    async fn echo(mut stream: DuplexStream, stage: StageCell) -> io::Result<()> {
        let byte = stream.read_u8().await?;
        stage.set(Stage::Waiting);
        tokio::task::yield_now().await;
        stream.write_u8(byte).await?;
        stage.set(Stage::Silent);
        std::future::pending().await
    }

    #[tokio::test]
    async fn a_client_that_sends_is_answered_in_spite_of_any_number_of_silent_ones() {
        let (doorbell, door) = mpsc::unbounded_channel();
        let door = Arc::new(tokio::sync::Mutex::new(door));
        let accept = move || {
            let door = Arc::clone(&door);
            async move { door.lock().await.recv().await.ok_or(io::ErrorKind::NotConnected.into()) }
        };
        let receiving = tokio::spawn(accept_and_serve(accept, || true, echo));
        let connect = || {
            let (client, server) = duplex(16);
            doorbell.send(server).expect("it accepts");
            client
        };
        let held = Mutex::new(Vec::new());
        for _ in 0..5 {
            held.lock().expect("no panic").extend((0..MOST * 3).map(|_| connect()));
            let mut client = connect();
            client.write_u8(7).await.expect("room for a byte");
            assert_eq!(client.read_u8().await.expect("an answer"), 7);
        }
        let mut first = held.lock().expect("no panic").remove(0);
        assert_eq!(
            first.read(&mut [0]).await.expect("its end"),
            0,
            "the oldest silent one went"
        );
        receiving.abort();
    }
}
