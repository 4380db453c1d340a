//! Rendering: a variant comes from a cache or from the workers.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use haulier_http::{ImageResult, ImageTimes};
use haulier_image::{ImageError, Limits, Workers};
use haulier_store::GroupBudget;
use haulier_store::cache::{MemoryCache, Weigh};

use crate::cache::ImageCache;
use crate::clock::now;
use crate::error::ServiceError;
use crate::image::{FoundImage, Image};
use crate::originals::Originals;
use crate::request::VariantRequest;

/// Time for which a failure caused by the image is cached.
const FAILED: Duration = Duration::from_secs(30);
/// Memory for failures, bytes.
const MEMORY: u64 = 4 << 20;

/// Renders variants and keeps them in the cache.
#[derive(Debug)]
pub(crate) struct Renderer {
    cache: Arc<ImageCache>,
    originals: Arc<Originals>,
    workers: Arc<Workers>,
    limits: Limits,
    failed: MemoryCache<Failed>,
    budget: GroupBudget,
    unkept: AtomicU64,
    observer: Observer,
}

/// Called with the durations of each rendering.
pub(crate) struct Observer(pub(crate) Box<dyn Fn(&ImageTimes) + Send + Sync>);

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

/// A cached failure.
#[derive(Debug, Clone)]
struct Failed {
    error: ServiceError,
    until: Instant,
}

impl Weigh for Failed {
    fn weight(&self) -> u64 {
        self.error.weight()
    }
}

/// A rendered variant.
pub(crate) struct Rendered {
    bytes: Bytes,
    times: ImageTimes,
}

impl Renderer {
    pub(crate) fn new(
        cache: Arc<ImageCache>,
        originals: Arc<Originals>,
        workers: Arc<Workers>,
        limits: Limits,
        variants: usize,
        observer: Observer,
    ) -> Self {
        Self {
            cache,
            originals,
            workers,
            limits,
            failed: MemoryCache::new(MEMORY),
            budget: GroupBudget::new(variants),
            unkept: AtomicU64::new(0),
            observer,
        }
    }

    /// The variant, from a cache or rendered.
    pub(crate) async fn find_or_render(&self, request: &VariantRequest) -> Result<FoundImage, ServiceError> {
        let start = now();
        if let Some(found) = self.find(request).await? {
            return Ok(found);
        }
        let cache = Some(now().saturating_duration_since(start));
        if let Some(failed) = self.failed.find(&request.key)
            && now() < failed.until
        {
            return Err(failed.error);
        }
        match self.render(request, &self.workers, &self.limits).await {
            Ok(rendered) => Ok(self.keep(request, rendered, cache)),
            Err(error) => {
                self.log(request, &error);
                if error.is_lasting() {
                    let until = now() + FAILED;
                    let error = error.clone();
                    self.failed.keep(request.key, Failed { error, until });
                }
                Err(error)
            }
        }
    }

    /// The variant, if a cache has it.
    ///
    /// # Errors
    /// Its original was deleted.
    pub(crate) async fn find(&self, request: &VariantRequest) -> Result<Option<FoundImage>, ServiceError> {
        let start = now();
        let Some((image, source)) = self.cache.get(request).await else {
            return Ok(None);
        };
        let times = ImageTimes {
            cache: Some(now().saturating_duration_since(start)),
            ..ImageTimes::default()
        };
        match self.originals.allows(&request.original).await {
            true => Ok(Some(FoundImage { image, source, times })),
            false => Err(ServiceError::Missing),
        }
    }

    /// Renders a variant by these workers, within these limits.
    pub(crate) async fn render(
        &self,
        request: &VariantRequest,
        workers: &Workers,
        limits: &Limits,
    ) -> Result<Rendered, ServiceError> {
        let start = now();
        let source = self.originals.source(&request.original).await?;
        let fetched = now();
        let transform = request.transform.as_deref().cloned().unwrap_or_default();
        let rendered = workers.render_into(source, &transform, limits, |length| self.cache.buffer(length));
        let rendered = rendered.await?;
        let (read, steps, write) = (rendered.times.read, rendered.times.steps, rendered.times.write);
        let waited = now().saturating_duration_since(fetched);
        let times = ImageTimes {
            cache: None,
            fetch: Some(fetched.saturating_duration_since(start)),
            queue: Some(waited.saturating_sub(read + steps + write)),
            decode: Some(read),
            resize: Some(steps),
            encode: Some(write),
        };
        (self.observer.0)(&times);
        Ok(Rendered {
            bytes: rendered.bytes,
            times,
        })
    }

    /// Caches a variant within the budget of its original, without waiting for the caches after memory.
    fn keep(&self, request: &VariantRequest, rendered: Rendered, cache: Option<Duration>) -> FoundImage {
        let image = if self.admits(request) {
            let image = self.cache.keep_in_memory(request, rendered.bytes.clone());
            tokio::spawn(self.cache.put_farther(request.key, rendered.bytes));
            image
        } else {
            self.unkept.fetch_add(1, Ordering::Relaxed);
            Arc::new(Image::of_bytes(rendered.bytes, *request.tag()))
        };
        FoundImage {
            image,
            source: ImageResult::Made,
            times: ImageTimes {
                cache,
                ..rendered.times
            },
        }
    }

    /// Caches a variant from the background, and waits for the caches after memory: until then it counts as being
    /// rendered, so no further request renders it again.
    pub(crate) async fn keep_everywhere(&self, request: &VariantRequest, rendered: Rendered) {
        if !self.admits(request) {
            self.unkept.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.cache.keep_in_memory(request, rendered.bytes.clone());
        self.cache.put_farther(request.key, rendered.bytes).await;
    }

    /// True if the budget of the original has room for this variant, which is counted then.
    pub(crate) fn admits(&self, request: &VariantRequest) -> bool {
        !request.by_client || self.budget.admit(request.group(), &request.key, now())
    }

    /// Logs a failure that the image did not cause, and crashes and timeouts.
    pub(crate) fn log(&self, request: &VariantRequest, error: &ServiceError) {
        let ServiceError::Image(error) = error else { return };
        let is_ours = !error.is_of_image();
        let is_violent = matches!(**error, ImageError::Crashed(_) | ImageError::Deadline { .. });
        if is_ours || is_violent {
            let transform = request.transform.as_deref().cloned().unwrap_or_default();
            tracing::warn!(%error, variant = transform.key(), "an image could not be rendered");
        }
    }

    /// Variants rendered and not cached since the start.
    pub(crate) fn unkept(&self) -> u64 {
        self.unkept.load(Ordering::Relaxed)
    }
}
