//! Background rendering: a format that is slow to encode is rendered after the answer, which uses the next best format.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use haulier_image::{Format, ImageError, Limits, Workers, WorkersStatus};
use haulier_store::cache::{CacheKey, MemoryCache, Weigh};
use haulier_store::{SingleFlight, StoreRuntime};
use tokio::sync::Semaphore;

use crate::clock::now;
use crate::error::ServiceError;
use crate::render::Renderer;
use crate::request::VariantRequest;

/// Pause after a rendering that failed: no client waits for the variant.
const FAILED: Duration = Duration::from_secs(60 * 60);
/// Pause after a rendering that timed out, perhaps because of a busy machine.
const LATE: Duration = Duration::from_secs(5 * 60);
/// Most variants that wait to be rendered; a later answer starts further ones.
const MOST: usize = 64;
/// Memory for failures, bytes.
const MEMORY: u64 = 4 << 20;

/// Renders variants in the background, one at a time.
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
    /// A worker pool of low priority.
    workers: Arc<Workers>,
    limits: Limits,
    running: Arc<SingleFlight<()>>,
    /// Limits rendering to one variant at a time, from reading the original to writing the last cache.
    turn: Semaphore,
    failed: MemoryCache<Until>,
    rendered: AtomicU64,
}

/// The time before which a variant is not tried again.
#[derive(Debug, Clone, Copy)]
struct Until(Instant);

impl Weigh for Until {
    fn weight(&self) -> u64 {
        32
    }
}

impl Background {
    /// Background rendering of these formats by these workers.
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

    /// No background rendering.
    pub(crate) fn off() -> Self {
        Self {
            jobs: None,
            formats: Vec::new(),
        }
    }

    /// The formats rendered in the background.
    #[must_use]
    pub fn formats(&self) -> &[Format] {
        &self.formats
    }

    /// True if the variant cannot be in a cache yet: it is being rendered, or failed lately.
    #[must_use]
    pub fn is_pending(&self, request: &VariantRequest) -> bool {
        let jobs = self.jobs.as_ref();
        jobs.is_some_and(|jobs| jobs.running.is_running(&request.key) || jobs.has_failed(&request.key))
    }

    /// True if rendering the variant failed lately.
    #[must_use]
    pub fn has_failed(&self, request: &VariantRequest) -> bool {
        self.jobs.as_ref().is_some_and(|jobs| jobs.has_failed(&request.key))
    }

    /// Starts to render a variant, unless it exceeds the budget, failed lately, or too many wait.
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

    /// Forgets a failure, because the variant was rendered for a client.
    pub(crate) fn forget_failure(&self, key: &CacheKey) {
        if let Some(jobs) = &self.jobs {
            jobs.failed.forget(key);
        }
    }

    /// Variants rendered since the start.
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
        // It may have been rendered for a client meanwhile, or just before.
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

    /// Notes a failure. A busy pool is not one: a later request tries again.
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
