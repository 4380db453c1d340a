//! The interface of the service: every operation on the images of a site.
//!
//! All waiting happens on the [`StoreRuntime`], which owns the connections to stores and caches. A serving thread
//! itself reads only the memory cache ([`ImageService::cached`]).

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use haulier_http::{ImageResult, ImageTimes};
use haulier_image::{Format, Limits, Workers, WorkersStatus};
use haulier_proto::range::{self, ByteRange, Ranges};
use haulier_store::cache::{TierStatus, Tiered};
use haulier_store::{FileState, Key, ObjectContent, ObjectPart, SingleFlight, Store, StoreError, StoreRuntime};
use tokio::sync::SemaphorePermit;

use crate::background::Background;
use crate::cache::ImageCache;
use crate::clock::now;
use crate::error::ServiceError;
use crate::image::{FoundImage, HEAD, Image};
use crate::info::ImageInfo;
use crate::options::ServiceOptions;
use crate::originals::Originals;
use crate::render::{Observer, Renderer};
use crate::request::{Original, VariantRequest};
use crate::stream::OriginalStream;
use crate::upload::{Stored, Uploads};

/// Deadline of background rendering, as a multiple of that for a client.
pub const BACKGROUND_FACTOR: u32 = 6;
/// Longest original from a store on the network that is cached, bytes, as in zimg.
const MOST_CACHED: u64 = 1 << 20;

/// Stores, caches and workers of a service, and its limits.
#[derive(Debug)]
pub struct Settings {
    /// The store of originals; `None` for a site without uploads.
    pub store: Option<Arc<dyn Store>>,
    /// Memory cache for variants, bytes; 0 is none.
    pub memory: u64,
    /// Further caches, the nearest first.
    pub tiers: Tiered,
    /// The thread of stores and caches.
    pub runtime: StoreRuntime,
    /// Workers for variants that clients wait for.
    pub workers: Arc<Workers>,
    /// Workers for background rendering; `None` is off.
    pub background_workers: Option<Arc<Workers>>,
    /// The formats that are rendered in the background.
    pub background: Vec<Format>,
    /// Limits of one image.
    pub limits: Limits,
    /// Options of the service.
    pub options: ServiceOptions,
}

/// The images of one site.
#[derive(Debug)]
pub struct ImageService {
    runtime: StoreRuntime,
    limits: Limits,
    workers: Arc<Workers>,
    cache: Arc<ImageCache>,
    originals: Arc<Originals>,
    renderer: Arc<Renderer>,
    /// Renderings in progress that clients wait for.
    running: Arc<SingleFlight<Result<FoundImage, ServiceError>>>,
    background: Background,
    uploads: Uploads,
}

/// An opened original.
#[derive(Debug)]
pub enum Opened {
    Image(FoundImage),
    /// The whole, received from the network and checked while it is sent.
    Whole {
        format: Option<Format>,
        body: OriginalStream,
        times: ImageTimes,
    },
    /// A part, received from the network.
    Part {
        range: ByteRange,
        /// Length of the whole, bytes.
        total: u64,
        format: Option<Format>,
        body: OriginalStream,
        times: ImageTimes,
    },
    /// The range begins beyond the end of the image, which has this length in bytes.
    Beyond(u64),
}

impl ImageService {
    /// A service with these settings. `observer` is called with the durations of each rendering.
    #[must_use]
    pub fn new(settings: Settings, observer: impl Fn(&ImageTimes) + Send + Sync + 'static) -> Arc<Self> {
        let cache = Arc::new(ImageCache::new(settings.memory, settings.tiers));
        let originals = Arc::new(Originals::new(
            settings.store,
            settings.runtime.clone(),
            Arc::clone(&cache),
        ));
        let renderer = Arc::new(Renderer::new(
            Arc::clone(&cache),
            Arc::clone(&originals),
            Arc::clone(&settings.workers),
            settings.limits,
            settings.options.variants,
            Observer(Box::new(observer)),
        ));
        let background = match settings.background_workers {
            Some(workers) if cache.is_enabled() => {
                let mut limits = settings.limits;
                limits.avif_pixels = limits.avif_pixels.saturating_mul(BACKGROUND_FACTOR.into());
                let runtime = settings.runtime.clone();
                Background::new(Arc::clone(&renderer), runtime, workers, limits, settings.background)
            }
            _ => Background::off(),
        };
        Arc::new(Self {
            uploads: Uploads::new(Arc::clone(&originals), settings.limits),
            runtime: settings.runtime,
            limits: settings.limits,
            workers: settings.workers,
            cache,
            originals,
            renderer,
            running: Arc::default(),
            background,
        })
    }

    /// The image, if it is in memory and its original is known to exist, with the time until which that is trusted.
    #[must_use]
    pub fn cached(&self, request: &VariantRequest, now: Instant) -> Option<(Arc<Image>, Option<Instant>)> {
        let until = match &request.original {
            Original::Stored(id) => {
                let known = self.originals.presence.find(id, now).filter(|known| known.exists)?;
                Some(known.until)
            }
            Original::File { .. } | Original::Memory { .. } => None,
        };
        Some((self.cache.in_memory(&request.key)?, until))
    }

    /// True if the original is known to be missing.
    #[must_use]
    pub fn is_missing(&self, original: &Original) -> bool {
        let Original::Stored(id) = original else { return false };
        let known = self.originals.presence.find(id, now());
        known.is_some_and(|known| !known.exists)
    }

    /// A number that changes with every deletion.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.originals.presence.generation()
    }

    /// The variant, from a cache or rendered. One rendering serves all clients that wait for it, and continues if they
    /// disconnect.
    ///
    /// # Errors
    /// The original is missing or damaged, does not allow this variant, or the service is overloaded.
    pub async fn get(&self, request: VariantRequest) -> Result<FoundImage, ServiceError> {
        let (key, renderer) = (request.key, Arc::clone(&self.renderer));
        let work = || async move { renderer.find_or_render(&request).await };
        let found = self.running.join(&self.runtime, key, work).await;
        let found = found.unwrap_or(Err(ServiceError::Aborted("made")))?;
        if found.source == ImageResult::Made {
            self.background.forget_failure(&key);
        }
        Ok(found)
    }

    /// The variant, if a cache has it.
    ///
    /// # Errors
    /// Its original was deleted.
    pub async fn find(&self, request: VariantRequest) -> Result<Option<FoundImage>, ServiceError> {
        let renderer = Arc::clone(&self.renderer);
        self.run(async move { renderer.find(&request).await }).await
    }

    /// Background rendering.
    #[must_use]
    pub fn background(&self) -> &Background {
        &self.background
    }

    /// Opens an original: all of it, or the part of `range`, the value of a Range field. A short original, a file, or a
    /// cached one is always opened as a whole.
    ///
    /// # Errors
    /// The original is missing or damaged, or the store fails.
    pub async fn open(self: &Arc<Self>, request: VariantRequest, range: Option<Bytes>) -> Result<Opened, ServiceError> {
        let start = now();
        let service = Arc::clone(self);
        let opened = self.run(async move { service.open_now(&request, range).await });
        let mut opened = opened.await?;
        opened.took(now().saturating_duration_since(start));
        Ok(opened)
    }

    async fn open_now(&self, request: &VariantRequest, range: Option<Bytes>) -> Result<Opened, ServiceError> {
        if let Some(found) = self.renderer.find(request).await? {
            return Ok(Opened::Image(found));
        }
        match (&request.original, range) {
            (Original::Stored(id), Some(range)) => self.open_part(id, request, &range).await,
            (Original::Stored(id), None) => self.open_whole(id, request).await,
            (Original::Memory { content, .. }, _) => {
                let image = self.cache.keep_in_memory(request, content.clone());
                Ok(Opened::original(image))
            }
            // A site's own file is sent by the file handler.
            (Original::File { .. }, _) => Err(ServiceError::Missing),
        }
    }

    async fn open_whole(&self, id: &Key, request: &VariantRequest) -> Result<Opened, ServiceError> {
        match self.originals.fetch(id).await? {
            ObjectContent::File(file, state) => self.open_file(id, file, &state, request).await,
            ObjectContent::Stream { length, mut pieces } if length > MOST_CACHED => {
                let first = pieces.recv().await.transpose();
                let first = first.map_err(|error| self.originals.failed(error))?.unwrap_or_default();
                let format = Format::of_bytes(&first);
                let check = Some(self.originals.stream_check(id));
                Ok(Opened::Whole {
                    format,
                    body: OriginalStream::new(length, first, pieces, check),
                    times: ImageTimes::default(),
                })
            }
            stream => {
                let bytes = self.originals.whole(id, stream).await?;
                let image = self.cache.keep_in_memory(request, bytes.clone());
                tokio::spawn(self.cache.put_farther(request.key, bytes));
                Ok(Opened::original(image))
            }
        }
    }

    async fn open_part(&self, id: &Key, request: &VariantRequest, range: &[u8]) -> Result<Opened, ServiceError> {
        // Read for the format; the answer also states the total length.
        let (total, head) = match self.originals.fetch_part(id, 0..HEAD as u64).await? {
            ObjectPart::File(file, state) => return self.open_file(id, file, &state, request).await,
            ObjectPart::Stream { total, content } => (total, content),
        };
        let ranges = range::resolve(range, total, 1);
        if total <= MOST_CACHED || matches!(ranges, Ranges::Whole | Ranges::Many(_)) {
            return self.open_whole(id, request).await;
        }
        let Ranges::One(range) = ranges else {
            return Ok(Opened::Beyond(total));
        };
        let head = head.into_bytes().await.map_err(|error| self.originals.failed(error))?;
        match self.originals.fetch_part(id, range.start..range.end + 1).await? {
            ObjectPart::Stream {
                content: ObjectContent::Stream { length, pieces },
                ..
            } if length == range.length() => Ok(Opened::Part {
                range,
                total,
                format: Format::of_bytes(&head),
                body: OriginalStream::new(length, Bytes::new(), pieces, None),
                times: ImageTimes::default(),
            }),
            _ => {
                let error = StoreError::Remote("another part than was asked for".into());
                Err(self.originals.failed(error))
            }
        }
    }

    async fn open_file(
        &self,
        id: &Key,
        file: File,
        state: &FileState,
        request: &VariantRequest,
    ) -> Result<Opened, ServiceError> {
        self.originals.check_file(id, &file, state).await?;
        let image = Image::of_file(file, state.length(), *request.tag());
        Ok(Opened::original(Arc::new(image)))
    }

    /// Asks the store whether an image exists.
    ///
    /// # Errors
    /// The store fails.
    pub async fn exists(&self, id: Key) -> Result<bool, ServiceError> {
        let originals = Arc::clone(&self.originals);
        self.run(async move { originals.exists(&id).await }).await
    }

    /// Deletes an image; `false` if there was none.
    ///
    /// # Errors
    /// The store fails.
    pub async fn delete(&self, id: Key) -> Result<bool, ServiceError> {
        let originals = Arc::clone(&self.originals);
        self.run(async move { originals.delete(&id).await }).await
    }

    /// The properties of an original.
    ///
    /// # Errors
    /// It is missing, damaged or unreadable.
    pub async fn info(self: &Arc<Self>, id: Key) -> Result<ImageInfo, ServiceError> {
        let service = Arc::clone(self);
        let read = async move {
            if let Some(info) = service.originals.known_info(&id) {
                return Ok(info);
            }
            let content = service.originals.fetch(&id).await?;
            // Limited like uploads, since all of it is in memory.
            let _permit = service.uploads.permit().await;
            service.originals.read_info(&id, content, service.limits).await
        };
        self.run(read).await
    }

    /// Stores an image. With `is_strict`, an image beyond the limits is refused now, otherwise when it is requested.
    ///
    /// # Errors
    /// It is no image, too large, or the store fails.
    pub async fn store(self: &Arc<Self>, content: Bytes, is_strict: bool) -> Result<Stored, ServiceError> {
        let service = Arc::clone(self);
        self.run(async move { service.uploads.store(content, is_strict).await })
            .await
    }

    /// The right to hold the body of an upload in memory.
    pub async fn upload_permit(&self) -> SemaphorePermit<'_> {
        self.uploads.permit().await
    }

    /// Runs a blocking call.
    ///
    /// # Errors
    /// Those of the call, and its panic.
    pub async fn run_blocking<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let call = async { tokio::task::spawn_blocking(call).await };
        let done = self.runtime.spawn(call).await.and_then(|done| done);
        done.unwrap_or_else(|error| Err(io::Error::other(error)))
    }

    /// Runs a future on the store thread, where it continues if the client disconnects.
    async fn run<T: Send + 'static>(
        &self,
        future: impl Future<Output = Result<T, ServiceError>> + Send + 'static,
    ) -> Result<T, ServiceError> {
        let outcome = self.runtime.spawn(future).await;
        outcome.unwrap_or(Err(ServiceError::Aborted("had")))
    }

    /// Images stored since the start.
    #[must_use]
    pub fn uploaded(&self) -> u64 {
        self.uploads.count()
    }

    /// Variants rendered and not cached since the start.
    #[must_use]
    pub fn unkept(&self) -> u64 {
        self.renderer.unkept()
    }

    /// Bytes of the images in memory.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.cache.bytes()
    }

    /// Status of the caches after memory.
    #[must_use]
    pub fn tiers(&self) -> Vec<TierStatus> {
        self.cache.tiers()
    }

    /// Status of all workers, those of the background included. The queue is that of the clients.
    #[must_use]
    pub fn workers(&self) -> WorkersStatus {
        let (clients, background) = (self.workers.status(), self.background.workers());
        WorkersStatus {
            busy: clients.busy + background.busy,
            idle: clients.idle + background.idle,
            waiting: clients.waiting,
            made: clients.made + background.made,
            crashed: clients.crashed + background.crashed,
        }
    }
}

impl Opened {
    fn original(image: Arc<Image>) -> Self {
        Self::Image(FoundImage {
            image,
            source: ImageResult::Original,
            times: ImageTimes::default(),
        })
    }

    /// Notes the duration: of a fetch, or of the cache lookup.
    fn took(&mut self, time: Duration) {
        let fetched = ImageTimes {
            fetch: Some(time),
            ..ImageTimes::default()
        };
        match self {
            Self::Image(found) if found.source != ImageResult::Original => {
                found.times = ImageTimes {
                    cache: Some(time),
                    ..ImageTimes::default()
                };
            }
            Self::Image(found) => found.times = fetched,
            Self::Whole { times, .. } | Self::Part { times, .. } => *times = fetched,
            Self::Beyond(_) => {}
        }
    }
}
