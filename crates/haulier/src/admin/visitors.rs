//! The connections of one of our own listeners: few at a time, and those that say nothing give way to newcomers.
//!
//! Whatever sites do with their descriptors, some are kept for these, so that a health check and `haulier stop` are answered
//! by a server that has none left.

use std::future::Future;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use tokio::task::{AbortHandle, JoinSet};

use crate::machine::Reserve;

/// Connections each listener serves at a time.
const AT_ONCE: usize = 32;
/// How long accepting pauses when the system has nothing to give.
const PAUSE: Duration = Duration::from_millis(50);
/// How long the reserve of descriptors is open: whoever waits is accepted at once.
const AT_ONCE_MEANS: Duration = Duration::from_millis(5);

/// What a connection is at; the lesser one gives way first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Stage {
    /// It has not asked for anything, or has its answer.
    Silent,
    /// It has asked before and may ask again.
    Between,
    /// It takes its answer.
    Taking,
    /// Its answer is being made.
    Waiting,
}

/// Where a connection says what it is at.
#[derive(Debug, Clone)]
pub(super) struct Standing(Arc<AtomicU8>);

impl Standing {
    pub(super) fn new() -> Self {
        Self(Arc::new(AtomicU8::new(Stage::Silent as u8)))
    }

    pub(super) fn set(&self, stage: Stage) {
        self.0.store(stage as u8, Ordering::Relaxed);
    }

    /// Of those that may be turned out.
    fn patience(&self) -> Option<u8> {
        let stage = self.0.load(Ordering::Relaxed);
        (stage != Stage::Waiting as u8).then_some(stage)
    }
}

/// Accepts connections and serves them, for as long as it is polled. `is_awaited` says whether somebody waits to be
/// accepted.
pub(super) async fn receive<S, A, F>(
    accept: impl Fn() -> A,
    is_awaited: impl Fn() -> bool,
    serve: impl Fn(S, Standing) -> F,
) where
    A: Future<Output = io::Result<S>>,
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let mut visitors = Visitors::new();
    loop {
        visitors.forget_gone();
        let accepted = tokio::select! {
            accepted = accept() => accepted,
            Some(_) = visitors.tasks.join_next() => continue,
        };
        // Without descriptors the system says so whether or not anybody is there.
        let accepted = match accepted {
            Err(_) if is_awaited() => from_reserve(accept()).await,
            accepted => accepted,
        };
        match accepted {
            Ok(stream) => {
                visitors.make_room().await;
                let standing = Standing::new();
                visitors.admit(standing.clone(), serve(stream, standing));
            }
            // Whoever has one and says nothing needs it less.
            Err(_) if is_awaited() && visitors.turn_out_silent() => tokio::task::yield_now().await,
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Accepts with what is kept for us.
async fn from_reserve<S>(accept: impl Future<Output = io::Result<S>>) -> io::Result<S> {
    let _open = Reserve::open();
    let accepted = tokio::time::timeout(AT_ONCE_MEANS, accept).await;
    accepted.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// The connections that are open, the oldest first.
#[derive(Debug)]
struct Visitors {
    open: Vec<(Standing, AbortHandle)>,
    tasks: JoinSet<()>,
}

impl Drop for Visitors {
    /// Those that are open still get their answers.
    fn drop(&mut self) {
        self.tasks.detach_all();
    }
}

impl Visitors {
    fn new() -> Self {
        Self {
            open: Vec::new(),
            tasks: JoinSet::new(),
        }
    }

    fn admit(&mut self, standing: Standing, serving: impl Future<Output = io::Result<()>> + Send + 'static) {
        let task = self.tasks.spawn(async move {
            // A client that stops talking is not worth a word in the log.
            let _ = serving.await;
        });
        self.open.push((standing, task));
    }

    fn forget_gone(&mut self) {
        while self.tasks.try_join_next().is_some() {}
        self.open.retain(|(_, task)| !task.is_finished());
    }

    /// Room for one more: one that gives way, or the first whose answer is complete.
    async fn make_room(&mut self) {
        while self.open.len() >= AT_ONCE {
            self.turn_out(u8::MAX);
            let _ = self.tasks.join_next().await;
            self.forget_gone();
        }
    }

    fn turn_out_silent(&mut self) -> bool {
        self.turn_out(Stage::Silent as u8)
    }

    /// Ends the oldest of those that can be spared most, if it is at no more than this stage.
    fn turn_out(&mut self, most: u8) -> bool {
        let spare = self.open.iter().enumerate().filter_map(|(place, (standing, _))| {
            let stage = standing.patience().filter(|stage| *stage <= most)?;
            Some((stage, place))
        });
        let Some((_, place)) = spare.min() else { return false };
        let (_, task) = self.open.remove(place);
        task.abort();
        true
    }
}

/// Whether somebody waits in the queue of a socket that listens.
pub(super) fn is_awaited(socket: impl AsFd) -> bool {
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
    async fn echo(mut stream: DuplexStream, standing: Standing) -> io::Result<()> {
        let byte = stream.read_u8().await?;
        standing.set(Stage::Waiting);
        tokio::task::yield_now().await;
        stream.write_u8(byte).await?;
        standing.set(Stage::Silent);
        std::future::pending().await
    }

    #[tokio::test]
    async fn whoever_speaks_is_answered_beside_any_number_of_silent_ones() {
        let (doorbell, door) = mpsc::unbounded_channel();
        let door = Arc::new(tokio::sync::Mutex::new(door));
        let accept = move || {
            let door = Arc::clone(&door);
            async move { door.lock().await.recv().await.ok_or(io::ErrorKind::NotConnected.into()) }
        };
        let receiving = tokio::spawn(receive(accept, || true, echo));
        let connect = || {
            let (client, server) = duplex(16);
            doorbell.send(server).expect("it accepts");
            client
        };
        let held = Mutex::new(Vec::new());
        for _ in 0..5 {
            held.lock()
                .expect("no panic")
                .extend((0..AT_ONCE * 3).map(|_| connect()));
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
