//! The pool of worker processes: queue, running workers, idle workers.
//!
//! Any number of runtimes may use it. A place is a permit of a fair semaphore. A worker belongs to one request from its
//! order to its report; dropping the request meanwhile ends the worker.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::fs::{MemfdFlags, memfd_create};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::error::ImageError;
use crate::format::Format;
use crate::limits::Limits;
use crate::options::{FormatChoice, Transform};
use crate::original::Original;
use crate::pipeline::{RenderTimes, Rendered};
use crate::worker::message::{Made, Report, WorkerOrder};
use crate::worker::sandbox::LARGEST_RESULT;
use crate::worker::socket;
use crate::worker::starter::{Process, ProcessStarter};
use crate::worker::watch::Watched;

/// Memory of one permit, bytes.
const PERMIT: u64 = 1 << 20;
/// A worker with more resident memory than this after a request is replaced, bytes.
const MOST_RESIDENT: u64 = 96 << 20;
/// A worker is replaced after this time at work, before its CPU limit ends it.
const MOST_WORKED: Duration = Duration::from_secs(300);
/// Timeout for a new process to report that it is ready.
const START: Duration = Duration::from_secs(10);

/// Number and limits of the workers.
#[derive(Debug, Clone)]
pub struct WorkersSettings {
    /// Most processes that work at a time, at least 1.
    pub workers: usize,
    /// Most requests that wait for a worker. A further one is [`ImageError::Busy`] at once.
    pub queue: usize,
    /// Longest wait for a worker, or for memory. After it the request is [`ImageError::Busy`].
    pub queue_timeout: Duration,
    /// Longest time for one image. After it the worker is ended.
    pub deadline: Duration,
    /// Memory for the pixels of all images together, bytes. A request that needs more than is left waits.
    pub memory: u64,
    /// A worker that has been idle for this time is ended.
    pub idle: Duration,
    /// Workers run at the lowest priority (nice 19), since no client waits for them.
    pub low_priority: bool,
}

impl Default for WorkersSettings {
    fn default() -> Self {
        Self {
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            queue: 64,
            queue_timeout: Duration::from_secs(10),
            deadline: Duration::from_secs(5),
            memory: 320 << 20,
            idle: Duration::from_secs(60),
            low_priority: false,
        }
    }
}

/// An error at the start of the pool.
#[derive(Debug, thiserror::Error)]
#[error("cannot prepare the image workers")]
pub struct StartError(#[from] io::Error);

/// The bytes of an original.
#[derive(Debug)]
pub enum OriginalSource {
    /// A file, open for reading only, because workers are untrusted. Its position does not matter.
    File(OwnedFd),
    /// Bytes in memory.
    Bytes(Bytes),
}

/// Status of the pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkersStatus {
    /// Processes at work.
    pub busy: usize,
    /// Idle processes.
    pub idle: usize,
    /// Requests that wait for a process.
    pub waiting: usize,
    /// Variants rendered since the start.
    pub made: u64,
    /// Processes that an image ended since the start, deadlines included.
    pub crashed: u64,
}

/// A pool of worker processes, which are started on demand. Dropping it ends them.
#[derive(Debug)]
pub struct Workers {
    settings: WorkersSettings,
    /// A permit for each process at work.
    places: Semaphore,
    /// A permit for each slow image, one less than places: the last place is left to fast ones.
    slow: Semaphore,
    /// A permit for each [`PERMIT`] of memory.
    memory: Semaphore,
    waiting: AtomicUsize,
    made: AtomicU64,
    crashed: AtomicU64,
    warned: AtomicBool,
    /// Idle workers; the last used is used next.
    idle: Mutex<Vec<Worker>>,
    /// Set once, after the pool has been allocated.
    starter: OnceLock<ProcessStarter>,
}

/// A worker process that is ready.
#[derive(Debug)]
struct Worker {
    process: Process,
    worked: Duration,
    since: Instant,
}

impl Workers {
    /// Creates a pool. The first process is started with the first image.
    ///
    /// # Errors
    /// Our own program cannot be opened, or no thread can be started.
    pub fn new(settings: WorkersSettings) -> Result<Arc<Self>, StartError> {
        let workers = settings.workers.max(1);
        let pool = Arc::new(Self {
            places: Semaphore::new(workers),
            slow: Semaphore::new((workers - 1).max(1)),
            memory: Semaphore::new(permits(settings.memory)),
            waiting: AtomicUsize::new(0),
            made: AtomicU64::new(0),
            crashed: AtomicU64::new(0),
            warned: AtomicBool::new(false),
            idle: Mutex::default(),
            starter: OnceLock::new(),
            settings,
        });
        let watched: Weak<Self> = Arc::downgrade(&pool);
        let starter = ProcessStarter::start(pool.settings.low_priority, move || {
            if let Some(pool) = watched.upgrade() {
                pool.end_idle();
            }
        })?;
        pool.starter.get_or_init(|| starter);
        Ok(pool)
    }

    /// Renders a variant of an original.
    ///
    /// # Errors
    /// Every [`ImageError`]. Dropping the future ends its worker, so a caller that shares a variant between clients
    /// must run the future in a task.
    pub async fn render(
        &self,
        original: OriginalSource,
        transform: &Transform,
        limits: &Limits,
    ) -> Result<Rendered, ImageError> {
        self.render_into(original, transform, limits, |length| vec![0; length])
            .await
    }

    /// As [`Workers::render`]; the variant is read into a buffer that `make` allocates, given its length.
    ///
    /// # Errors
    /// Every [`ImageError`].
    pub async fn render_into<B: AsMut<[u8]> + Into<Bytes>>(
        &self,
        original: OriginalSource,
        transform: &Transform,
        limits: &Limits,
        make: impl FnOnce(usize) -> B,
    ) -> Result<Rendered, ImageError> {
        let slow = match transform.format {
            FormatChoice::As(Format::Avif) => Some(self.queued(&self.slow).await?),
            _ => None,
        };
        let order = WorkerOrder::Render {
            transform: Box::new(transform.clone()),
            limits: *limits,
        };
        let rendered = self.exchange(original, &order, limits, make).await;
        drop(slow);
        match rendered? {
            (Report::Rendered(made), Some(bytes)) => Ok(Rendered {
                bytes,
                format: made.format,
                width: made.width,
                height: made.height,
                frames: made.frames,
                times: RenderTimes::of_micros(made.times),
            }),
            _ => Err(unexpected()),
        }
    }

    /// Reads the properties of an original in a worker.
    ///
    /// # Errors
    /// Every [`ImageError`].
    pub async fn probe(&self, original: OriginalSource, limits: &Limits) -> Result<Original, ImageError> {
        let order = WorkerOrder::Probe { limits: *limits };
        let nothing = |length| vec![0; length];
        match self.exchange(original, &order, limits, nothing).await? {
            (Report::Probed(original), _) => Ok(original),
            _ => Err(unexpected()),
        }
    }

    /// Status of the pool.
    #[must_use]
    pub fn status(&self) -> WorkersStatus {
        let workers = self.settings.workers.max(1);
        WorkersStatus {
            busy: workers.saturating_sub(self.places.available_permits()),
            idle: self.idle().len(),
            waiting: self.waiting.load(Relaxed),
            made: self.made.load(Relaxed),
            crashed: self.crashed.load(Relaxed),
        }
    }

    async fn exchange<B: AsMut<[u8]> + Into<Bytes>>(
        &self,
        original: OriginalSource,
        order: &WorkerOrder,
        limits: &Limits,
        make: impl FnOnce(usize) -> B,
    ) -> Result<(Report, Option<Bytes>), ImageError> {
        let file = original.into_file(limits)?;
        let _place = self.queued(&self.places).await?;
        let mut was_killed = false;
        let (mut guard, report, started) = loop {
            let started = Instant::now();
            let mut guard = WorkerGuard {
                pool: self,
                worker: Some(self.worker().await?),
            };
            match self.ask(&guard.worker().process, order, &file).await {
                Ok(report) => break (guard, report, started),
                // It ended while idle, so this image is not the cause.
                Err(ReportError::DiedIdle) => {}
                Err(ReportError::Image(error)) => return Err(error),
                Err(ReportError::Died) => match self.end_failed(guard.take()).await {
                    // A signal from outside ended it, not this image: another worker tries once.
                    ImageError::Killed(_) if !was_killed => was_killed = true,
                    error => return Err(error),
                },
                Err(ReportError::Deadline) => {
                    self.crashed.fetch_add(1, Relaxed);
                    return Err(ImageError::Deadline {
                        limit: self.settings.deadline,
                    });
                }
            }
        };
        guard.worker().worked += started.elapsed();
        match report {
            Report::Failed(failure) => {
                guard.give_back(0);
                Err(failure.into())
            }
            Report::Rendered(made) => {
                let bytes = fetch(&guard.worker().process.results, &made, make)?;
                self.made.fetch_add(1, Relaxed);
                guard.give_back(made.resident);
                Ok((report, Some(bytes)))
            }
            other => {
                guard.give_back(0);
                Ok((other, None))
            }
        }
    }

    /// Sends an order and waits for the report within the deadline, not counting the wait for memory.
    async fn ask(&self, process: &Process, order: &WorkerOrder, file: &OwnedFd) -> Result<Report, ReportError> {
        let socket = Watched::new(&process.socket).map_err(ImageError::Worker)?;
        let mut left = self.settings.deadline;
        let mut granted: Option<SemaphorePermit<'_>> = None;
        socket::send(&process.socket, order, Some(file.as_fd())).map_err(|_| ReportError::DiedIdle)?;
        loop {
            let asked = Instant::now();
            let report = timeout(left, receive(&socket))
                .await
                .map_err(|_| ReportError::Deadline)??;
            left = left.saturating_sub(asked.elapsed());
            match report {
                Report::Need { memory } if granted.is_none() => {
                    granted = Some(self.granted(memory).await?);
                    socket::send(&process.socket, &WorkerOrder::Go, None).map_err(|_| ReportError::Died)?;
                }
                Report::Need { .. } | Report::Ready { .. } => return Err(unexpected().into()),
                report => return Ok(report),
            }
        }
    }

    /// Waits for memory. A request for more than the pool has gets all of it.
    async fn granted(&self, memory: u64) -> Result<SemaphorePermit<'_>, ImageError> {
        let wanted = permits(memory).min(permits(self.settings.memory));
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        let wait = timeout(self.settings.queue_timeout, self.memory.acquire_many(wanted)).await;
        wait.map_err(|_| self.busy())?
            .map_err(io::Error::other)
            .map_err(ImageError::Worker)
    }

    /// Waits for a permit, if the queue is not full.
    async fn queued<'a>(&self, permits: &'a Semaphore) -> Result<SemaphorePermit<'a>, ImageError> {
        if let Ok(permit) = permits.try_acquire() {
            return Ok(permit);
        }
        let _waiting = Waiting::join(&self.waiting, self.settings.queue).ok_or_else(|| self.busy())?;
        let wait = timeout(self.settings.queue_timeout, permits.acquire()).await;
        wait.map_err(|_| self.busy())?
            .map_err(io::Error::other)
            .map_err(ImageError::Worker)
    }

    fn busy(&self) -> ImageError {
        ImageError::Busy {
            retry_after: self.settings.deadline.min(Duration::from_secs(2)),
        }
    }

    /// An idle worker, or a new one.
    async fn worker(&self) -> Result<Worker, ImageError> {
        if let Some(worker) = self.idle().pop() {
            return Ok(worker);
        }
        let mut guard = WorkerGuard {
            pool: self,
            worker: Some(Worker {
                process: self.starter().start_process().await?,
                worked: Duration::ZERO,
                since: Instant::now(),
            }),
        };
        let ready = async {
            let socket = Watched::new(&guard.worker().process.socket).map_err(ImageError::Worker)?;
            receive(&socket).await
        };
        match timeout(START, ready).await {
            Ok(Ok(Report::Ready { without })) => self.warn(&without),
            _ => {
                let end = self.starter().end_and_report(guard.take().process).await;
                return Err(io::Error::other(format!("a new image worker did not answer: {}", end.cause)).into());
            }
        }
        Ok(guard.take())
    }

    /// Warns once about parts of the sandbox that the kernel lacks.
    fn warn(&self, without: &[String]) {
        if !without.is_empty() && !self.warned.swap(true, Relaxed) {
            tracing::warn!(
                "images are decoded without {}, which this kernel lacks",
                without.join(" and ")
            );
        }
    }

    /// Ends a worker that failed, and returns the cause.
    async fn end_failed(&self, worker: Worker) -> ImageError {
        let end = self.starter().end_and_report(worker.process).await;
        if end.is_from_outside {
            tracing::warn!(end = end.cause, "an image worker was ended from outside");
            return ImageError::Killed(end.cause);
        }
        self.crashed.fetch_add(1, Relaxed);
        ImageError::Crashed(end.cause)
    }

    fn end_idle(&self) {
        let now = Instant::now();
        let ended: Vec<Worker> = self
            .idle()
            .extract_if(.., |worker| now.duration_since(worker.since) > self.settings.idle)
            .collect();
        for worker in ended {
            self.starter().end_in_background(worker.process);
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Worker>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn starter(&self) -> &ProcessStarter {
        self.starter.get().expect("set before the pool is handed out")
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        let idle: Vec<Worker> = self.idle().drain(..).collect();
        for worker in idle {
            self.starter().end_in_background(worker.process);
        }
    }
}

fn permits(memory: u64) -> usize {
    usize::try_from(memory.div_ceil(PERMIT))
        .unwrap_or(Semaphore::MAX_PERMITS)
        .min(Semaphore::MAX_PERMITS)
}

/// A worker in use. Dropping the guard ends it, unless it was given back.
struct WorkerGuard<'a> {
    pool: &'a Workers,
    worker: Option<Worker>,
}

impl WorkerGuard<'_> {
    fn worker(&mut self) -> &mut Worker {
        self.worker.as_mut().expect("taken only at the end")
    }

    fn take(&mut self) -> Worker {
        self.worker.take().expect("taken only at the end")
    }

    /// Makes the worker idle, or ends it if it has grown or worked too long.
    fn give_back(mut self, resident: u64) {
        let mut worker = self.take();
        if resident > MOST_RESIDENT || worker.worked > MOST_WORKED {
            self.pool.starter().end_in_background(worker.process);
            return;
        }
        worker.since = Instant::now();
        self.pool.idle().push(worker);
    }
}

impl Drop for WorkerGuard<'_> {
    fn drop(&mut self) {
        if let Some(worker) = self.worker.take() {
            self.pool.starter().end_in_background(worker.process);
        }
    }
}

/// A place in the queue, freed when dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn join(waiting: &'a AtomicUsize, most: usize) -> Option<Self> {
        let place = Self(waiting);
        (waiting.fetch_add(1, Relaxed) < most).then_some(place)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl OriginalSource {
    /// The file to pass to a worker; bytes are written into a memory file.
    fn into_file(self, limits: &Limits) -> Result<OwnedFd, ImageError> {
        match self {
            Self::File(file) => Ok(file),
            Self::Bytes(bytes) => {
                crate::error::Excess::Bytes.check(bytes.len() as u64, limits.file)?;
                let file = File::from(memfd_create("haulier-original", MemfdFlags::CLOEXEC).map_err(io::Error::from)?);
                file.write_all_at(&bytes, 0)?;
                Ok(file.into())
            }
        }
    }
}

/// An error instead of a report.
enum ReportError {
    /// The image is at fault, or the whole pool is busy.
    Image(ImageError),
    /// The process had ended before it got the order.
    DiedIdle,
    /// The process ended during the order.
    Died,
    /// The deadline has expired.
    Deadline,
}

impl From<ImageError> for ReportError {
    fn from(error: ImageError) -> Self {
        Self::Image(error)
    }
}

/// Receives a report. An unexpected message counts as the end of the worker, which may have been taken over.
async fn receive(socket: &Watched<'_>) -> Result<Report, ReportError> {
    let report = socket.until(|socket| socket::receive(socket)).await;
    report.ok().flatten().ok_or(ReportError::Died)
}

/// Reads the result from the file. A length beyond the limit is refused, since workers are untrusted.
fn fetch<B: AsMut<[u8]> + Into<Bytes>>(
    results: &File,
    made: &Made,
    make: impl FnOnce(usize) -> B,
) -> Result<Bytes, ImageError> {
    crate::error::Excess::Memory.check(made.length, LARGEST_RESULT)?;
    let mut bytes = make(made.length as usize);
    results.read_exact_at(bytes.as_mut(), 0)?;
    // A long file is truncated at once, which frees its pages.
    if made.length > PERMIT {
        results.set_len(0)?;
    }
    Ok(bytes.into())
}

fn unexpected() -> ImageError {
    ImageError::Worker(io::Error::other("an image worker sent an unexpected message"))
}
