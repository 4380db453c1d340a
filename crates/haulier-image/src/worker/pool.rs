//! The pool of worker processes: queue, work, and idle workers for the next image.
//!
//! Usable from any number of runtimes at once. A place is a permit of a fair semaphore; a worker belongs to one request
//! from its order to its report, and a request that is dropped meanwhile takes its worker along.

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
use crate::pipeline::{Rendered, RenderTimes};
use crate::worker::message::{Made, WorkerOrder, Report};
use crate::worker::sandbox::LARGEST_RESULT;
use crate::worker::socket;
use crate::worker::starter::{Process, ProcessStarter};
use crate::worker::watch::Watched;

/// One permit of memory, bytes.
const PERMIT: u64 = 1 << 20;
/// A worker that holds more than this after its work is replaced, bytes.
const GROWN: u64 = 96 << 20;
/// A worker is replaced after so much time at work, below the limit of its CPU time.
const WORN: Duration = Duration::from_secs(300);
/// Time for a new process to say that it is ready.
const START: Duration = Duration::from_secs(10);

/// Number and limits of the workers.
#[derive(Debug, Clone)]
pub struct WorkersSettings {
    /// Processes that work at a time, at least 1.
    pub workers: usize,
    /// Most requests that wait for one. One more is [`ImageError::Busy`] at once.
    pub queue: usize,
    /// Longest wait for one, or for memory. After it the request is [`ImageError::Busy`].
    pub queue_timeout: Duration,
    /// Longest time for one image. After it the worker is ended.
    pub deadline: Duration,
    /// Memory for the pixels of all images together, bytes; who needs more than is left waits.
    pub memory: u64,
    /// A worker that has had nothing to do for this long ends.
    pub idle: Duration,
    /// They run at the lowest priority (nice 19): no client waits for them.
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

/// The pool cannot be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot prepare the image workers")]
pub struct StartError(#[from] io::Error);

/// The bytes of an original.
#[derive(Debug)]
pub enum OriginalSource {
    /// A file open for reading only, since a worker is not to be trusted with more. Its position does not matter.
    File(OwnedFd),
    /// Bytes in memory.
    Bytes(Bytes),
}

/// Status of the pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkersStatus {
    /// Processes at work.
    pub busy: usize,
    /// Processes that wait for work.
    pub idle: usize,
    /// Requests that wait for a process.
    pub waiting: usize,
    /// Variants made since the start.
    pub made: u64,
    /// Processes that an image ended since the start, deadlines among them.
    pub crashed: u64,
}

/// A pool of worker processes. They are started when they are needed, and end when this is dropped.
#[derive(Debug)]
pub struct Workers {
    settings: WorkersSettings,
    /// A permit for each process at work.
    places: Semaphore,
    /// A permit for each slow image: one place is left to the quick ones.
    slow: Semaphore,
    /// A permit for each [`PERMIT`] of memory.
    memory: Semaphore,
    waiting: AtomicUsize,
    made: AtomicU64,
    crashed: AtomicU64,
    warned: AtomicBool,
    /// The last one used is the next one used.
    idle: Mutex<Vec<Worker>>,
    /// Set once the pool has its place in memory.
    starter: OnceLock<ProcessStarter>,
}

/// A process that is ready.
#[derive(Debug)]
struct Worker {
    process: Process,
    worked: Duration,
    since: Instant,
}

impl Workers {
    /// Prepares a pool; the first process is started with the first image.
    ///
    /// # Errors
    /// Our own program cannot be opened, or there is no thread to be had.
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

    /// Makes a variant of an original.
    ///
    /// # Errors
    /// Every [`ImageError`]. Dropping the future ends the process that works for it: a caller that shares a variant between
    /// several clients keeps the future in a task of its own.
    pub async fn render(
        &self,
        original: OriginalSource,
        transform: &Transform,
        limits: &Limits,
    ) -> Result<Rendered, ImageError> {
        self.render_into(original, transform, limits, |length| vec![0; length])
            .await
    }

    /// As [`Workers::render`]; the variant is read into memory that `make` makes, of the length it is asked for.
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

    /// Says what an original is; reads its header, and counts its frames.
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
        let (mut hired, report, started) = loop {
            let started = Instant::now();
            let mut hired = Hired {
                pool: self,
                worker: Some(self.worker().await?),
            };
            match self.ask(&hired.worker().process, order, &file).await {
                Ok(report) => break (hired, report, started),
                // It died while it was idle, so this image is not the cause.
                Err(Trouble::Dead) => {}
                Err(Trouble::Image(error)) => return Err(error),
                Err(Trouble::Gone) => match self.autopsy(hired.take()).await {
                    // A signal from outside ended it, not this image: another worker may try, once.
                    ImageError::Killed(_) if !was_killed => was_killed = true,
                    error => return Err(error),
                },
                Err(Trouble::Late) => {
                    self.crashed.fetch_add(1, Relaxed);
                    return Err(ImageError::Deadline {
                        limit: self.settings.deadline,
                    });
                }
            }
        };
        hired.worker().worked += started.elapsed();
        match report {
            Report::Failed(failure) => {
                hired.keep(0);
                Err(failure.into())
            }
            Report::Rendered(made) => {
                let bytes = fetch(&hired.worker().process.results, &made, make)?;
                self.made.fetch_add(1, Relaxed);
                hired.keep(made.resident);
                Ok((report, Some(bytes)))
            }
            other => {
                hired.keep(0);
                Ok((other, None))
            }
        }
    }

    /// Sends an order and waits for the report, within the deadline; waiting for memory does not count.
    async fn ask(&self, process: &Process, order: &WorkerOrder, file: &OwnedFd) -> Result<Report, Trouble> {
        let socket = Watched::new(&process.socket).map_err(ImageError::Worker)?;
        let mut left = self.settings.deadline;
        let mut granted: Option<SemaphorePermit<'_>> = None;
        socket::send(&process.socket, order, Some(file.as_fd())).map_err(|_| Trouble::Dead)?;
        loop {
            let asked = Instant::now();
            let report = timeout(left, receive(&socket)).await.map_err(|_| Trouble::Late)??;
            left = left.saturating_sub(asked.elapsed());
            match report {
                Report::Need { memory } if granted.is_none() => {
                    granted = Some(self.granted(memory).await?);
                    socket::send(&process.socket, &WorkerOrder::Go, None).map_err(|_| Trouble::Gone)?;
                }
                Report::Need { .. } | Report::Ready { .. } => return Err(unexpected().into()),
                report => return Ok(report),
            }
        }
    }

    /// Waits for memory. Who asks for more than there is at all gets all there is.
    async fn granted(&self, memory: u64) -> Result<SemaphorePermit<'_>, ImageError> {
        let wanted = permits(memory).min(permits(self.settings.memory));
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        let wait = timeout(self.settings.queue_timeout, self.memory.acquire_many(wanted)).await;
        wait.map_err(|_| self.busy())?
            .map_err(io::Error::other)
            .map_err(ImageError::Worker)
    }

    /// Waits for a permit, if not too many wait already.
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
        let mut hired = Hired {
            pool: self,
            worker: Some(Worker {
                process: self.starter().hire().await?,
                worked: Duration::ZERO,
                since: Instant::now(),
            }),
        };
        let ready = async {
            let socket = Watched::new(&hired.worker().process.socket).map_err(ImageError::Worker)?;
            receive(&socket).await
        };
        match timeout(START, ready).await {
            Ok(Ok(Report::Ready { without })) => self.warn(&without),
            _ => {
                let end = self.starter().autopsy(hired.take().process).await;
                return Err(io::Error::other(format!("a new image worker does not answer: {}", end.told)).into());
            }
        }
        Ok(hired.take())
    }

    /// Says once what this system cannot do.
    fn warn(&self, without: &[String]) {
        if !without.is_empty() && !self.warned.swap(true, Relaxed) {
            tracing::warn!(
                "images are decoded without {}: this kernel does not have it",
                without.join(" and ")
            );
        }
    }

    /// The reason why a worker ended.
    async fn autopsy(&self, worker: Worker) -> ImageError {
        let end = self.starter().autopsy(worker.process).await;
        if end.is_from_outside {
            tracing::warn!(end = end.told, "an image worker was ended from outside");
            return ImageError::Killed(end.told);
        }
        self.crashed.fetch_add(1, Relaxed);
        ImageError::Crashed(end.told)
    }

    fn end_idle(&self) {
        let now = Instant::now();
        let ended: Vec<Worker> = self
            .idle()
            .extract_if(.., |worker| now.duration_since(worker.since) > self.settings.idle)
            .collect();
        for worker in ended {
            self.starter().bury(worker.process);
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
            self.starter().bury(worker.process);
        }
    }
}

fn permits(memory: u64) -> usize {
    usize::try_from(memory.div_ceil(PERMIT))
        .unwrap_or(Semaphore::MAX_PERMITS)
        .min(Semaphore::MAX_PERMITS)
}

/// A worker at work. Unless it is kept, it ends with this.
struct Hired<'a> {
    pool: &'a Workers,
    worker: Option<Worker>,
}

impl Hired<'_> {
    fn worker(&mut self) -> &mut Worker {
        self.worker.as_mut().expect("taken only at the end")
    }

    fn take(&mut self) -> Worker {
        self.worker.take().expect("taken only at the end")
    }

    /// Gives it back, unless it has grown or is worn.
    fn keep(mut self, resident: u64) {
        let mut worker = self.take();
        if resident > GROWN || worker.worked > WORN {
            self.pool.starter().bury(worker.process);
            return;
        }
        worker.since = Instant::now();
        self.pool.idle().push(worker);
    }
}

impl Drop for Hired<'_> {
    fn drop(&mut self) {
        if let Some(worker) = self.worker.take() {
            self.pool.starter().bury(worker.process);
        }
    }
}

/// A place in the queue, given back when dropped.
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
    /// A file to hand over; bytes go into one in memory.
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

/// A failure to get a report.
enum Trouble {
    /// The image is at fault, or the whole pool is busy.
    Image(ImageError),
    /// The process was dead before it was asked.
    Dead,
    /// The process died of it.
    Gone,
    /// The deadline is over.
    Late,
}

impl From<ImageError> for Trouble {
    fn from(error: ImageError) -> Self {
        Self::Image(error)
    }
}

/// An unexpected message: the worker is no longer the program that was started.
async fn receive(socket: &Watched<'_>) -> Result<Report, Trouble> {
    let report = socket.until(|socket| socket::receive(socket)).await;
    report.ok().flatten().ok_or(Trouble::Gone)
}

/// Takes a result out of the file; what the worker says about its length is not believed beyond the limit.
fn fetch<B: AsMut<[u8]> + Into<Bytes>>(
    results: &File,
    made: &Made,
    make: impl FnOnce(usize) -> B,
) -> Result<Bytes, ImageError> {
    crate::error::Excess::Memory.check(made.length, LARGEST_RESULT)?;
    let mut bytes = make(made.length as usize);
    results.read_exact_at(bytes.as_mut(), 0)?;
    // Its pages are given back at once if they are many.
    if made.length > PERMIT {
        results.set_len(0)?;
    }
    Ok(bytes.into())
}

fn unexpected() -> ImageError {
    ImageError::Worker(io::Error::other("an image worker sent an unexpected message"))
}
