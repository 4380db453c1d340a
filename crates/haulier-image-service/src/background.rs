//! Rendering in the background: a format that takes long to encode is made after an answer in the next best one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use haulier_image::{Format, ImageError, Limits, Workers, WorkersStatus};
use haulier_store::cache::{CacheKey, MemoryCache, Weigh};
use haulier_store::{SingleFlight, StoreRuntime};
use tokio::sync::Semaphore;

use crate::error::ServiceError;
use crate::clock::now;
use crate::render::Renderer;
use crate::request::VariantRequest;

/// Pause after a rendering that failed: no client waits for the variant.
const FAILED: Duration = Duration::from_secs(60 * 60);
/// Pause after a rendering that took too long, which may be the machine's fault.
const LATE: Duration = Duration::from_secs(5 * 60);
/// Variants that wait to be rendered; a later answer starts the others.
const MOST: usize = 64;
/// Memory for failures, bytes.
const MEMORY: u64 = 4 << 20;

/// Renders variants that no client waits for, one at a time.
#[derive(Debug)]
pub struct Background {
    /// `None`: nothing is rendered in the background.
    jobs: Option<Arc<Jobs>>,
    formats: Vec<Format>,
}

#[derive(Debug)]
struct Jobs {
    renderer: Arc<Renderer>,
    runtime: StoreRuntime,
    /// A pool of low priority.
    workers: Arc<Workers>,
    limits: Limits,
    running: Arc<SingleFlight<()>>,
    /// One variant at a time, from reading its original to the last cache.
    turn: Semaphore,
    failed: MemoryCache<Until>,
    rendered: AtomicU64,
}

/// A variant is not tried again before this time.
#[derive(Debug, Clone, Copy)]
struct Until(Instant);

impl Weigh for Until {
    fn weight(&self) -> u64 {
        32
    }
}

impl Background {
    /// Rendering of `formats` by `workers`.
    pub(crate) fn new(
        renderer: Arc<Renderer>,
        runtime: StoreRuntime,
        workers: Arc<Workers>,
        limits: Limits,
        formats: Vec<Format>,
    ) -> Self {
        let jobs = Jobs {
            renderer,
            runtime,
            workers,
            limits,
            running: Arc::default(),
            turn: Semaphore::new(1),
            failed: MemoryCache::new(MEMORY),
            rendered: AtomicU64::new(0),
        };
        Self {
            jobs: Some(Arc::new(jobs)),
            formats,
        }
    }

    /// No rendering in the background.
    pub(crate) fn off() -> Self {
        Self {
            jobs: None,
            formats: Vec::new(),
        }
    }

    /// The formats that are rendered in the background.
    #[must_use]
    pub fn formats(&self) -> &[Format] {
        &self.formats
    }

    /// Tells whether a variant is known not to be there yet: it is being rendered, or could not be.
    #[must_use]
    pub fn is_pending(&self, request: &VariantRequest) -> bool {
        let jobs = self.jobs.as_ref();
        jobs.is_some_and(|jobs| jobs.running.is_running(&request.key) || jobs.has_failed(&request.key))
    }

    /// Tells whether a variant could not be rendered lately.
    #[must_use]
    pub fn has_failed(&self, request: &VariantRequest) -> bool {
        self.jobs.as_ref().is_some_and(|jobs| jobs.has_failed(&request.key))
    }

    /// Starts to render a variant, unless it is over budget, failed lately, or too many wait.
    pub fn start(&self, request: &VariantRequest) {
        let Some(jobs) = &self.jobs else { return };
        if jobs.has_failed(&request.key) {
            return;
        }
        if !jobs.renderer.admits(request) {
            jobs.postpone(request, FAILED);
            return;
        }
        let (own, request) = (Arc::clone(jobs), request.clone());
        jobs.running.start_within(
            MOST,
            &jobs.runtime,
            request.key,
            || async move { own.run(&request).await },
        );
    }

    /// A variant was rendered for a client: it can be done after all.
    pub(crate) fn forget_failure(&self, key: &CacheKey) {
        if let Some(jobs) = &self.jobs {
            jobs.failed.forget(key);
        }
    }

    /// Variants that were rendered since the start.
    #[must_use]
    pub fn rendered(&self) -> u64 {
        self.jobs
            .as_ref()
            .map_or(0, |jobs| jobs.rendered.load(Ordering::Relaxed))
    }

    /// Status of the workers.
    pub(crate) fn workers(&self) -> WorkersStatus {
        self.jobs.as_ref().map(|jobs| jobs.workers.status()).unwrap_or_default()
    }
}

impl Jobs {
    async fn run(&self, request: &VariantRequest) {
        let _turn = self.turn.acquire().await.expect("it is never closed");
        // A client may have asked for it by name meanwhile, or it was made just before this started.
        if !matches!(self.renderer.find(request).await, Ok(None)) {
            return;
        }
        match self.renderer.render(request, &self.workers, &self.limits).await {
            Ok(rendered) => {
                self.renderer.keep_everywhere(request, rendered).await;
                self.rendered.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => self.note(request, &error),
        }
    }

    /// Notes a failure. A full pool is none: the variant waits for its next chance.
    fn note(&self, request: &VariantRequest, error: &ServiceError) {
        let is_busy = matches!(error, ServiceError::Image(error) if matches!(**error, ImageError::Busy { .. }));
        if !is_busy {
            self.renderer.log(request, error);
        }
        if error.is_late() {
            self.postpone(request, LATE);
        } else if error.is_lasting() {
            self.postpone(request, FAILED);
        }
    }

    fn postpone(&self, request: &VariantRequest, time: Duration) {
        self.failed.keep(request.key, Until(now() + time));
    }

    fn has_failed(&self, key: &CacheKey) -> bool {
        self.failed.find(key).is_some_and(|Until(until)| now() < until)
    }
}
