//! The thread that owns the connections to stores and caches.
//!
//! Each serving thread has its own event loop. The clients of object stores and Redis keep pools of connections, each
//! driven by a task of the loop on which it was opened. Shared by several loops, a connection would wait for a busy
//! loop, and end with it. So all of them belong to this thread. A serving thread sends it a future and waits for the
//! result, which costs two wake-ups; hot values are found in memory before that.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle as Thread;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Threads for blocking calls: reading and writing files.
const BLOCKING_THREADS: usize = 16;

/// Runs futures on the store thread. Clones use the same thread, which ends with the last of them.
#[derive(Debug, Clone)]
pub struct StoreRuntime {
    handle: Handle,
    /// Ends the thread when dropped.
    _running: Arc<StoreThread>,
}

impl StoreRuntime {
    /// Starts the thread.
    ///
    /// # Errors
    /// The thread or its event loop cannot be created.
    pub fn start() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(BLOCKING_THREADS)
            .thread_keep_alive(Duration::from_secs(10))
            .build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::Builder::new()
            .name("haulier-store".into())
            .spawn(move || {
                // The sender is never used; it is dropped with the last handle.
                let _ = runtime.block_on(stopped);
                // A hanging file system must not keep the process alive.
                runtime.shutdown_timeout(Duration::from_secs(1));
            })?;
        Ok(Self {
            handle,
            _running: Arc::new(StoreThread {
                stop: Some(stop),
                thread: Some(thread),
            }),
        })
    }

    /// Runs a future on the thread; it continues if the handle is dropped.
    pub fn spawn<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        self.handle.spawn(future)
    }

    /// Runs a future on the thread and waits for it. For threads that may block, never for the store thread itself.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.handle.block_on(future)
    }
}

#[derive(Debug)]
struct StoreThread {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<Thread<()>>,
}

impl Drop for StoreThread {
    fn drop(&mut self) {
        self.stop.take();
        // The last handle may be dropped by a future on the thread itself, which cannot join itself.
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the stores had panicked");
        }
    }
}

/// Runs a blocking call on the threads for such calls.
///
/// # Errors
/// Those of the call. A panic in it, or the end of the runtime, is [`io::ErrorKind::Other`].
pub(crate) async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(call)
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_over_runs_on_one_thread_and_goes_on_when_nobody_waits() {
        let runtime = StoreRuntime::start().expect("a thread");
        let name = || async { std::thread::current().name().map(str::to_owned) };
        assert_eq!(
            runtime.block_on(runtime.spawn(name())).expect("no panic"),
            Some("haulier-store".to_owned())
        );
        let (done, finished) = oneshot::channel();
        drop(runtime.spawn(async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            done.send(()).expect("the test waits");
        }));
        runtime.block_on(finished).expect("it was not cancelled");
    }

    #[test]
    fn the_last_clone_may_be_dropped_on_the_thread_itself() {
        let runtime = StoreRuntime::start().expect("a thread");
        let (done, finished) = std::sync::mpsc::channel();
        let own = runtime.clone();
        runtime.spawn(async move {
            tokio::task::yield_now().await;
            drop(own);
            done.send(()).expect("the test waits");
        });
        drop(runtime);
        // Dropped by the future, or cancelled with the thread: either way the sender goes, and the test ends.
        let _ = finished.recv_timeout(Duration::from_secs(30));
    }
}
