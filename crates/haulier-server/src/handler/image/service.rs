//! From a key to an image that is ready: caches, then the store, then the workers.
//!
//! Whatever waits runs on the runtime's thread, once for all who ask for the same. A serving thread looks into memory
//! itself, and at nothing else.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use haulier_http::{ImageResult, ImageTimes, OpenFile, Reason};
use haulier_image::{Format, ImageError, Source, Transform, WorkersStatus};
use haulier_php::WaitTimes;
use haulier_proto::field::Fields;
use haulier_proto::range::{self, ByteRange, Ranges};
use haulier_store::cache::{Buffer, CacheKey, Cached, MemoryCache, Room, Tier, TierStatus, Weigh};
use haulier_store::{Budget, Content, FileState, Key, Md5Sum, Part, Put, SingleFlight, StoreError};
use tokio::sync::{Semaphore, mpsc};

use super::failure::Failure;
use super::originals::{Originals, Passing};
use super::ready::{self, Ready, Shared};
use super::settings::{ImageSettings, PATIENCE};
use crate::clock::now;
use crate::files::Entry;
use crate::metrics::Times;

/// How long it stands that an image is there. Another machine that shares the store may have deleted it meanwhile.
const KNOWN: Duration = Duration::from_secs(10);
/// How long it stands that there is none: it may be uploaded at any moment, to another machine too.
const ABSENT: Duration = Duration::from_secs(1);
/// How long an image that cannot be made is not tried again.
const FAILED: Duration = Duration::from_secs(30);
/// How long what could not be made behind an answer is not tried again: nobody waits for it.
const PUT_OFF: Duration = Duration::from_secs(60 * 60);
/// The same for what took too long, which may be the machine's fault.
const PUT_OFF_LATE: Duration = Duration::from_secs(5 * 60);
/// Variants that wait to be made behind their answers; what is more is made behind a later one.
const MOST_BEHIND: usize = 64;
/// Memory for what is known of images, and of failures, bytes.
const NOTES: u64 = 4 << 20;
/// A file in a cache up to this length is brought into memory, bytes: what is longer leaves by sendfile(2).
const MOST_COPIED: u64 = 256 * 1024;
/// Originals from a store on the network up to this length are cached, bytes, as zimg did.
const MOST_ORIGINAL: u64 = 1 << 20;
/// Bodies of uploads that are in memory at a time; the others wait in their files.
const UPLOADS: usize = 4;
/// Room for images on their way where little or nothing is kept in memory, bytes.
const LEAST_ROOM: u64 = 16 << 20;
/// Enough of a file to tell its format.
const HEAD: usize = 16;

/// In the place of what is made of an original: nothing.
const UNTOUCHED: &str = "original";

/// The next number of a service.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// The image service of one site.
#[derive(Debug)]
pub struct ImageService {
    pub(super) settings: ImageSettings,
    memory: Option<MemoryCache<Shared>>,
    /// Where the bytes of images lie that are in memory, or on their way.
    room: Option<Room>,
    known: MemoryCache<Known>,
    failed: MemoryCache<Noted>,
    infos: MemoryCache<Bytes>,
    flights: Arc<SingleFlight<Made>>,
    /// What is made behind answers.
    behind: Arc<SingleFlight<()>>,
    /// There is a cache.
    keeps: bool,
    /// One at a time, from its original on.
    behind_place: Semaphore,
    originals: Originals,
    put_off: MemoryCache<PutOff>,
    made_behind: AtomicU64,
    pub(super) uploads: Semaphore,
    fallback: Option<Fallback>,
    budget: Budget,
    /// Fields of every stored image.
    frame: Arc<Fields>,
    steps: Mutex<[Times; Step::ALL.len()]>,
    uploaded: AtomicU64,
    unkept: AtomicU64,
    generation: AtomicU64,
    /// Another one for every service there ever was in this process.
    pub(super) number: u64,
}

/// Where the time of a variant goes; a label in metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Fetch,
    Decode,
    Resize,
    Encode,
}

impl Step {
    pub(crate) const ALL: [Self; 4] = [Self::Fetch, Self::Decode, Self::Resize, Self::Encode];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Fetch => "fetch",
            Self::Decode => "decode",
            Self::Resize => "resize",
            Self::Encode => "encode",
        }
    }
}

/// Whether an image is there, and since when that is known.
#[derive(Debug, Clone, Copy)]
struct Known {
    exists: bool,
    since: Instant,
}

impl Weigh for Known {
    fn weight(&self) -> u64 {
        32
    }
}

/// A failure that would come again.
#[derive(Debug, Clone)]
struct Noted {
    failure: Failure,
    since: Instant,
}

impl Weigh for Noted {
    fn weight(&self) -> u64 {
        self.failure.weight()
    }
}

/// Not made behind an answer before this time.
#[derive(Debug, Clone, Copy)]
struct PutOff(Instant);

impl Weigh for PutOff {
    fn weight(&self) -> u64 {
        32
    }
}

/// What stands in for images that are missing.
#[derive(Debug)]
pub(super) struct Fallback {
    content: Bytes,
    /// Of its content.
    key: CacheKey,
}

/// What a variant is made of.
#[derive(Debug, Clone)]
pub(super) enum Original {
    /// An image of the store.
    Stored(Key),
    /// A file of the document root, and what its variants have in common.
    File(Arc<OpenFile>, CacheKey),
    /// The image that stands in for others.
    Fallback,
}

/// A variant somebody wants.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) original: Original,
    /// `None` is the original itself, untouched.
    pub(super) transform: Option<Box<Transform>>,
    /// Of original and transform.
    pub(super) key: CacheKey,
    /// What its entity tag is made of: the same on every machine that has the original.
    pub(super) tag: CacheKey,
    /// Fields of its answer that do not depend on what it is.
    pub(super) frame: Arc<Fields>,
    /// The client thought of it: it counts among those that are kept.
    pub(super) by_client: bool,
}

impl Wanted {
    fn new(original: Original, name: &[u8], transform: Option<Transform>, frame: Arc<Fields>) -> Self {
        let key = key(name, transform.as_ref());
        Self {
            original,
            key,
            tag: key,
            transform: transform.map(Box::new),
            frame,
            by_client: false,
        }
    }

    /// Its entity tag, which is known before any work.
    pub(super) fn etag(&self) -> String {
        ready::tag(&self.tag)
    }
}

/// Of the name of an original, and what is made of it.
fn key(name: &[u8], transform: Option<&Transform>) -> CacheKey {
    let variant = transform.map(Transform::key);
    CacheKey::of(&[name, variant.as_deref().unwrap_or(UNTOUCHED).as_bytes()])
}

/// Who waits for a variant that is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// A client.
    Now,
    /// Nobody: it is made behind an answer.
    Behind,
}

/// What came of a variant.
#[derive(Debug, Clone)]
pub(super) enum Made {
    Ready(Arc<Ready>, ImageResult, ImageTimes),
    Failed(Failure),
}

/// An original that was found.
#[derive(Debug)]
pub(super) enum Opened {
    Ready(Arc<Ready>, ImageResult),
    /// It comes over the network, a piece at a time.
    Stream {
        /// Bytes.
        length: u64,
        first: Bytes,
        pieces: mpsc::Receiver<Result<Bytes, StoreError>>,
        /// It is compared on its way.
        passing: Passing,
    },
    /// A part of it comes over the network.
    Part {
        range: ByteRange,
        /// Bytes of the whole.
        total: u64,
        format: Option<Format>,
        pieces: mpsc::Receiver<Result<Bytes, StoreError>>,
    },
    /// The range lies behind the end of an image of so many bytes.
    Beyond(u64),
}

/// An image that was taken in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) id: Key,
    pub(super) size: u64,
    pub(super) format: Format,
    /// Width and height, pixels, upright; where its header was read.
    pub(super) sides: Option<(u32, u32)>,
    /// It was not there before.
    pub(super) is_new: bool,
}

impl ImageService {
    /// Makes a service ready.
    ///
    /// # Errors
    /// The fallback image cannot be read, or is none.
    pub fn new(settings: ImageSettings) -> io::Result<Arc<Self>> {
        let fallback = match &settings.fallback {
            Some(path) => {
                let content = Bytes::from(std::fs::read(path)?);
                if Format::of_bytes(&content).is_none() {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        "not an image of a known format",
                    ));
                }
                let key = CacheKey::of(&[b"fallback", &content]);
                Some(Fallback { content, key })
            }
            None => None,
        };
        let mut frame = settings.fields.clone();
        if let Some(cache_control) = &settings.cache_control {
            frame.set("Cache-Control", cache_control);
        }
        Ok(Arc::new(Self {
            frame: Arc::new(frame),
            memory: (settings.memory > 0).then(|| MemoryCache::new(settings.memory)),
            room: room(settings.memory),
            known: MemoryCache::new(NOTES),
            failed: MemoryCache::new(NOTES),
            infos: MemoryCache::new(NOTES),
            flights: Arc::default(),
            behind: Arc::default(),
            keeps: settings.memory > 0 || !settings.tiers.status().is_empty(),
            behind_place: Semaphore::new(1),
            originals: Originals::new(
                settings.runtime.clone(),
                settings.store.as_ref().map(|store| store.place()).unwrap_or_default(),
            ),
            put_off: MemoryCache::new(NOTES),
            made_behind: AtomicU64::new(0),
            uploads: Semaphore::new(UPLOADS),
            fallback,
            budget: Budget::new(settings.variants),
            steps: Mutex::default(),
            uploaded: AtomicU64::new(0),
            unkept: AtomicU64::new(0),
            generation: AtomicU64::new(0),
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            settings,
        }))
    }

    /// An image of the store, or a variant of it.
    pub(super) fn stored(&self, id: &Key, transform: Option<Transform>) -> Wanted {
        let original = Original::Stored(id.clone());
        Wanted::new(original, id.as_str().as_bytes(), transform, Arc::clone(&self.frame))
    }

    /// A variant of a file of the document root. Its answers are cached as long as those of the file itself.
    pub(super) fn file(&self, path: &[u8], entry: &Entry, transform: Transform) -> Wanted {
        let state = entry.state();
        let etag = entry.etag.as_deref().unwrap_or(state.as_bytes());
        // Two files of one size and time, on two machines or one after the other, share a tag and no cached variant.
        let name = CacheKey::of(&[b"file", path, state.as_bytes(), etag]);
        let tag = key(CacheKey::of(&[b"file", path, etag]).as_bytes(), Some(&transform));
        let mut frame = self.settings.fields.clone();
        if let Some(cache_control) = entry.head.fields().get("Cache-Control") {
            frame.set("Cache-Control", cache_control);
        }
        let original = Original::File(Arc::clone(&entry.file), name);
        Wanted {
            tag,
            ..Wanted::new(original, name.as_bytes(), Some(transform), Arc::new(frame))
        }
    }

    /// The image, if it is in memory and its original is known to be there, and until when that is known.
    pub(super) fn at_hand(&self, wanted: &Wanted, now: Instant) -> Option<(Arc<Ready>, Option<Instant>)> {
        let until = match &wanted.original {
            Original::Stored(id) => Some(self.known_until(id, now)?),
            Original::File(..) | Original::Fallback => None,
        };
        Some((self.memory.as_ref()?.find(&wanted.key)?.0, until))
    }

    /// Until when it stands that an image is there; `None` if that is not known now.
    fn known_until(&self, id: &Key, now: Instant) -> Option<Instant> {
        let known = self.known.find(&known_key(id)).filter(|known| known.exists)?;
        Some(known.since + KNOWN).filter(|until| now < *until)
    }

    /// Another number after something was deleted.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// What is known at the moment of whether an image is there.
    pub(super) fn known(&self, id: &Key, now: Instant) -> Option<bool> {
        let known = self.known.find(&known_key(id))?;
        let holds = if known.exists { KNOWN } else { ABSENT };
        (now.saturating_duration_since(known.since) < holds).then_some(known.exists)
    }

    fn note(&self, id: &Key, exists: bool) {
        let since = now();
        self.known.keep(known_key(id), Known { exists, since });
    }

    /// The image: from a cache, or made now, once for all who wait for it.
    pub(super) async fn obtain(self: &Arc<Self>, wanted: Wanted) -> Made {
        let service = Arc::clone(self);
        let made = self
            .flights
            .join(&self.settings.runtime, wanted.key, || service.make(wanted))
            .await;
        made.unwrap_or_else(|| {
            Made::Failed(Failure::ours(
                500,
                Reason::ImageWorkerFailed,
                "the image could not be made",
            ))
        })
    }

    /// The image that stands in for one that is missing, made as that one was wanted.
    pub(super) fn fallback(&self, wanted: &Wanted) -> Option<Wanted> {
        let fallback = self.fallback.as_ref()?;
        let transform = wanted.transform.as_deref().cloned();
        let frame = Arc::clone(&wanted.frame);
        Some(Wanted {
            by_client: wanted.by_client,
            ..Wanted::new(Original::Fallback, fallback.key.as_bytes(), transform, frame)
        })
    }

    async fn make(self: Arc<Self>, wanted: Wanted) -> Made {
        let begin = now();
        let cached = self.cached(&wanted).await;
        let asked = ImageTimes {
            cache: Some(now().saturating_duration_since(begin)),
            ..ImageTimes::default()
        };
        if let Some((ready, result)) = cached {
            match self.is_still_there(&wanted.original).await {
                true => return Made::Ready(ready, result, asked),
                false => return Made::Failed(Failure::missing()),
            }
        }
        if let Some(noted) = self.failed.find(&wanted.key)
            && now().saturating_duration_since(noted.since) < FAILED
        {
            return Made::Failed(noted.failure);
        }
        let rendered = self.render(&wanted, asked, Pace::Now).await;
        rendered.unwrap_or_else(|failure| {
            if failure.is_lasting {
                let since = now();
                let failure = failure.clone();
                self.failed.keep(wanted.key, Noted { failure, since });
            }
            Made::Failed(failure)
        })
    }

    /// From memory, or from another cache.
    async fn cached(&self, wanted: &Wanted) -> Option<(Arc<Ready>, ImageResult)> {
        let key = wanted.key;
        if let Some(Shared(ready)) = self.memory.as_ref().and_then(|memory| memory.find(&key)) {
            return Some((ready, ImageResult::Memory));
        }
        let hit = self.settings.tiers.get(key).await?;
        let result = match hit.tier {
            Tier::Memory => ImageResult::Memory,
            Tier::Disk => ImageResult::Disk,
            Tier::Memcached => ImageResult::Memcached,
            Tier::Redis => ImageResult::Redis,
        };
        let ready = match hit.value {
            Cached::File(file, length) if length > MOST_COPIED => {
                let format = format_of(&file);
                Arc::new(Ready::of_file(file, length, &wanted.tag, format))
            }
            value => {
                let room = self.room.clone();
                let read = tokio::task::spawn_blocking(move || match room {
                    Some(room) => value.into_room(&room),
                    None => value.into_bytes(),
                });
                let bytes = read.await.ok()?.ok()?;
                self.keep(wanted, bytes)
            }
        };
        Some((ready, result))
    }

    /// Memory for an image.
    fn buffer(&self, length: usize) -> Buffer {
        match &self.room {
            Some(room) => room.buffer(length),
            None => Buffer::Allocated(vec![0; length]),
        }
    }

    /// Ready, and in memory from now on.
    fn keep(&self, wanted: &Wanted, bytes: Bytes) -> Arc<Ready> {
        let ready = ready_of(wanted, bytes);
        if let Some(memory) = &self.memory {
            memory.keep(wanted.key, Shared(Arc::clone(&ready)));
        }
        ready
    }

    /// Whether a cached variant may be given out: not of an image that was deleted. A store that does not answer
    /// decides nothing: what is cached outlives it.
    async fn is_still_there(&self, original: &Original) -> bool {
        let (Original::Stored(id), Some(store)) = (original, &self.settings.store) else {
            return true;
        };
        if let Some(exists) = self.known(id, now()) {
            return exists;
        }
        match store.head(id).await {
            Ok(found) => {
                self.note(id, found.is_some());
                found.is_some()
            }
            Err(error) => {
                tracing::warn!(%error, store = store.place(), "store_failed: a cached image is sent all the same");
                true
            }
        }
    }

    /// Makes a variant; `asked` is the time it took to find it in no cache.
    async fn render(&self, wanted: &Wanted, asked: ImageTimes, pace: Pace) -> Result<Made, Failure> {
        let begin = now();
        let source = self.source(&wanted.original).await?;
        let fetched = now();
        let transform = wanted.transform.as_deref().cloned().unwrap_or_default();
        let mut limits = self.settings.limits;
        let workers = match (pace, &self.settings.patient) {
            (Pace::Behind, Some(patient)) => {
                limits.avif_pixels = limits.avif_pixels.saturating_mul(PATIENCE.into());
                patient
            }
            _ => &self.settings.workers,
        };
        let rendered = workers.render_into(source, &transform, &limits, |length| self.buffer(length));
        let rendered = rendered.await;
        let rendered = rendered.map_err(|error| {
            let failure = Failure::from(&error);
            // What an image does to its worker is worth a line, though it is the image's fault.
            let is_violent = matches!(error, ImageError::Crashed(_) | ImageError::Deadline { .. });
            // Behind an answer it waits for its next chance, and nobody was refused.
            let is_silent = pace == Pace::Behind && matches!(error, ImageError::Busy { .. });
            if (failure.reason.is_some() || is_violent) && !is_silent {
                tracing::warn!(%error, variant = transform.key(), "an image was not made");
            }
            failure
        })?;
        let fetch = fetched.saturating_duration_since(begin);
        let (read, steps, write) = (rendered.times.read, rendered.times.steps, rendered.times.write);
        self.took([fetch, read, steps, write]);
        let waited = now().saturating_duration_since(fetched);
        let times = ImageTimes {
            fetch: Some(fetch),
            queue: Some(waited.saturating_sub(read + steps + write)),
            decode: Some(read),
            resize: Some(steps),
            encode: Some(write),
            ..asked
        };
        if !self.may_keep(wanted) {
            self.unkept.fetch_add(1, Ordering::Relaxed);
            return Ok(Made::Ready(ready_of(wanted, rendered.bytes), ImageResult::Made, times));
        }
        let ready = self.keep(wanted, rendered.bytes.clone());
        self.put_off.forget(&wanted.key);
        let (tiers, key) = (self.settings.tiers.clone(), wanted.key);
        let put = async move { tiers.put(key, &rendered.bytes).await };
        match pace {
            // Nobody waits for the farther caches.
            Pace::Now => drop(tokio::spawn(put)),
            // It is under way until whoever looks for it finds it: else it would be made again.
            Pace::Behind => put.await,
        }
        Ok(Made::Ready(ready, ImageResult::Made, times))
    }

    /// The formats that are made behind answers, if anything is kept at all.
    pub(super) fn behind(&self) -> &[Format] {
        match &self.settings.patient {
            Some(_) if self.keeps => &self.settings.behind,
            _ => &[],
        }
    }

    /// Whether it is known that a variant is not there yet: it is being made behind an answer, or could not be.
    pub(super) fn is_awaited(&self, wanted: &Wanted) -> bool {
        self.behind.is_running(&wanted.key) || self.is_put_off(wanted)
    }

    /// Whether a variant could not be made behind an answer lately.
    pub(super) fn is_put_off(&self, wanted: &Wanted) -> bool {
        self.put_off
            .find(&wanted.key)
            .is_some_and(|PutOff(until)| now() < until)
    }

    fn put_off(&self, wanted: &Wanted, time: Duration) {
        self.put_off.keep(wanted.key, PutOff(now() + time));
    }

    /// A variant, if a cache has it.
    ///
    /// # Errors
    /// Its original was deleted.
    pub(super) async fn find(
        self: Arc<Self>,
        wanted: Wanted,
    ) -> Result<Option<(Arc<Ready>, ImageResult, ImageTimes)>, Failure> {
        let begin = now();
        let Some((ready, result)) = self.cached(&wanted).await else {
            return Ok(None);
        };
        if !self.is_still_there(&wanted.original).await {
            return Err(Failure::missing());
        }
        let times = ImageTimes {
            cache: Some(now().saturating_duration_since(begin)),
            ..ImageTimes::default()
        };
        Ok(Some((ready, result, times)))
    }

    /// Makes a variant behind an answer, if it can be kept, was not tried in vain, and not too many wait.
    pub(super) fn make_behind(self: &Arc<Self>, wanted: &Wanted) {
        if self.is_put_off(wanted) {
            return;
        }
        if !self.may_keep(wanted) {
            self.put_off(wanted, PUT_OFF);
            return;
        }
        let (service, wanted) = (Arc::clone(self), wanted.clone());
        let (flights, runtime) = (Arc::clone(&self.behind), self.settings.runtime.clone());
        flights.start_within(MOST_BEHIND, &runtime, wanted.key, || async move {
            let _place = service.behind_place.acquire().await.expect("it is never closed");
            // It may have come meanwhile: by its name, or just before this was begun.
            if service.cached(&wanted).await.is_some() {
                return;
            }
            match service.render(&wanted, ImageTimes::default(), Pace::Behind).await {
                Ok(_) => {
                    service.made_behind.fetch_add(1, Ordering::Relaxed);
                }
                Err(failure) if failure.is_late => service.put_off(&wanted, PUT_OFF_LATE),
                Err(failure) if failure.is_lasting => service.put_off(&wanted, PUT_OFF),
                Err(_) => {}
            }
        });
    }

    /// Whether there is room for one more variant of its image.
    fn may_keep(&self, wanted: &Wanted) -> bool {
        let image = match &wanted.original {
            Original::Stored(id) => known_key(id),
            Original::File(_, name) => *name,
            Original::Fallback => CacheKey::of(&[b"fallback"]),
        };
        !wanted.by_client || self.budget.admit(image, &wanted.key, now())
    }

    async fn source(&self, original: &Original) -> Result<Source, Failure> {
        match original {
            Original::File(file, _) => {
                let file = file
                    .file()
                    .try_clone()
                    .map_err(StoreError::Io)
                    .map_err(|error| Failure::from(&error))?;
                Ok(Source::File(file.into()))
            }
            Original::Fallback => match &self.fallback {
                Some(fallback) => Ok(Source::Bytes(fallback.content.clone())),
                None => Err(Failure::missing()),
            },
            Original::Stored(id) => match self.fetch(id).await? {
                Content::File(file, state) => {
                    self.originals.check_file(id, &file, &state).await?;
                    Ok(Source::File(file.into()))
                }
                content => Ok(Source::Bytes(self.whole(id, content).await?)),
            },
        }
    }

    /// An original of the store, and what that says about whether it is there.
    async fn fetch(&self, id: &Key) -> Result<Content, Failure> {
        let Some(store) = &self.settings.store else {
            return Err(Failure::missing());
        };
        let found = store.get(id).await.map_err(|error| self.store_failed(&error))?;
        self.note(id, found.is_some());
        found.ok_or_else(Failure::missing)
    }

    /// The bytes of an original, compared with its id.
    async fn whole(&self, id: &Key, content: Content) -> Result<Bytes, Failure> {
        let read = content.into_buffer(|length| self.buffer(length)).await;
        let bytes = read.map_err(|error| self.store_failed(&error))?;
        self.originals.check_bytes(id, bytes).await
    }

    fn store_failed(&self, error: &StoreError) -> Failure {
        let place = self.settings.store.as_ref().map(|store| store.place());
        let cause = std::error::Error::source(error).map(ToString::to_string);
        tracing::error!(%error, cause, store = place, "store_failed");
        Failure::from(error)
    }

    /// The bytes of an original, untouched. What comes over the network is cached if it is short.
    pub(super) async fn open(self: Arc<Self>, wanted: Wanted) -> Result<Opened, Failure> {
        let key = wanted.key;
        if let Some((ready, result)) = self.cached(&wanted).await {
            return match self.is_still_there(&wanted.original).await {
                true => Ok(Opened::Ready(ready, result)),
                false => Err(Failure::missing()),
            };
        }
        let Original::Stored(id) = &wanted.original else {
            let fallback = self.fallback.as_ref().ok_or_else(Failure::missing)?;
            let ready = self.keep(&wanted, fallback.content.clone());
            return Ok(Opened::Ready(ready, ImageResult::Original));
        };
        match self.fetch(id).await? {
            Content::File(file, state) => self.in_file(id, file, &state, &wanted).await,
            Content::Stream { length, mut pieces } if length > MOST_ORIGINAL => {
                let first = pieces
                    .recv()
                    .await
                    .transpose()
                    .map_err(|error| self.store_failed(&error))?;
                let first = first.unwrap_or_default();
                Ok(Opened::Stream {
                    length,
                    first,
                    pieces,
                    passing: self.originals.passing(id),
                })
            }
            stream => {
                let bytes = self.whole(id, stream).await?;
                let ready = self.keep(&wanted, bytes.clone());
                let tiers = self.settings.tiers.clone();
                tokio::spawn(async move { tiers.put(key, &bytes).await });
                Ok(Opened::Ready(ready, ImageResult::Original))
            }
        }
    }

    /// An original that is a file, if it is what its id says.
    async fn in_file(&self, id: &Key, file: File, state: &FileState, wanted: &Wanted) -> Result<Opened, Failure> {
        self.originals.check_file(id, &file, state).await?;
        let format = format_of(&file);
        let ready = Ready::of_file(file, state.length(), &wanted.tag, format);
        Ok(Opened::Ready(Arc::new(ready), ImageResult::Original))
    }

    /// A part of an original, or all of it where that is no more trouble: it is short, a file, or in a cache. `asked` is
    /// the value of Range.
    pub(super) async fn open_part(self: Arc<Self>, wanted: Wanted, asked: Bytes) -> Result<Opened, Failure> {
        let (Original::Stored(id), Some(store)) = (&wanted.original, &self.settings.store) else {
            return self.open(wanted).await;
        };
        if let Some((ready, result)) = self.cached(&wanted).await {
            return match self.is_still_there(&wanted.original).await {
                true => Ok(Opened::Ready(ready, result)),
                false => Err(Failure::missing()),
            };
        }
        // What it is, and how long, is told by its beginning.
        let found = store.get_part(id, 0..HEAD as u64).await;
        let found = found.map_err(|error| self.store_failed(&error))?;
        self.note(id, found.is_some());
        let (total, head) = match found.ok_or_else(Failure::missing)? {
            Part::File(file, state) => return self.in_file(id, file, &state, &wanted).await,
            Part::Stream { total, content } => (total, content),
        };
        let ranges = range::resolve(&asked, total, 1);
        if total <= MOST_ORIGINAL || matches!(ranges, Ranges::Whole | Ranges::Many(_)) {
            return self.open(wanted).await;
        }
        let Ranges::One(range) = ranges else {
            return Ok(Opened::Beyond(total));
        };
        let head = head.into_bytes().await.map_err(|error| self.store_failed(&error))?;
        let found = store.get_part(id, range.start..range.end + 1).await;
        match found.map_err(|error| self.store_failed(&error))? {
            Some(Part::Stream {
                content: Content::Stream { length, pieces },
                ..
            }) if length == range.length() => Ok(Opened::Part {
                range,
                total,
                format: Format::of_bytes(&head),
                pieces,
            }),
            Some(_) => Err(self.store_failed(&StoreError::Remote("another part than was asked for".into()))),
            None => Err(Failure::missing()),
        }
    }

    /// Takes an image in. `is_judged` says that one beyond the limits is refused now, and not when it is asked for.
    pub(super) async fn take(self: Arc<Self>, content: Bytes, is_judged: bool) -> Result<Stored, Failure> {
        let Some(store) = self.settings.store.clone() else {
            return Err(Failure::missing());
        };
        let format = Format::of_bytes(&content).ok_or_else(|| Failure::from(&ImageError::Unknown))?;
        let limits = self.settings.limits;
        let measured = content.clone();
        let read = tokio::task::spawn_blocking(move || {
            let header = haulier_image::Original::read(&measured, &limits);
            (header, Md5Sum::of(&measured))
        });
        let Ok((header, id)) = read.await else {
            return Err(Failure::ours(
                500,
                Reason::ImageWorkerFailed,
                "the image could not be read",
            ));
        };
        let sides = match header {
            Ok(original) => Some(original.upright()),
            Err(error) if is_judged => return Err(Failure::from(&error)),
            Err(_) => None,
        };
        let id: Key = id.parse().expect("hexadecimal digits are a key");
        let size = content.len() as u64;
        let is_new = match store.put(&id, content.clone()).await {
            Ok(Put::Created) => true,
            Ok(Put::Exists) => self.meet(&id, content).await?,
            Err(error) => return Err(self.store_failed(&error)),
        };
        self.note(&id, true);
        self.uploaded.fetch_add(1, Ordering::Relaxed);
        Ok(Stored {
            id,
            size,
            format,
            sides,
            is_new,
        })
    }

    /// An upload meets what lies under its id; true if it took the place of a damaged original.
    ///
    /// Two files with one MD5 can be made on purpose. Whoever uploads the second one must not be handed the first one's
    /// address as that of his own.
    async fn meet(&self, id: &Key, content: Bytes) -> Result<bool, Failure> {
        let found = match self.fetch(id).await?.into_bytes().await {
            Ok(there) if there == content => return Ok(false),
            Ok(there) => self.originals.sum(&there).await?,
            // A file that is short by now, or on a bad part of its disk.
            Err(StoreError::Io(error)) => error.to_string(),
            Err(error) => return Err(self.store_failed(&error)),
        };
        let Some(store) = self.settings.store.as_ref().filter(|_| found != id.as_str()) else {
            return Err(Failure::new(409, "another image with this id is there already"));
        };
        let replaced = store.replace(id, content).await;
        replaced.map_err(|error| self.store_failed(&error))?;
        tracing::warn!(store = store.place(), %id, found, "a damaged original was replaced by an upload of the right one");
        self.forget_original(id).await;
        Ok(true)
    }

    /// Forgets what is kept of an original, but not what was made of it.
    async fn forget_original(&self, id: &Key) {
        let key = original_key(id);
        if let Some(memory) = &self.memory {
            memory.forget(&key);
        }
        self.settings.tiers.delete(key).await;
        self.infos.forget(&known_key(id));
    }

    /// Forgets an image; `false` if there was none.
    pub(super) async fn delete(self: Arc<Self>, id: Key) -> Result<bool, Failure> {
        let Some(store) = &self.settings.store else {
            return Ok(false);
        };
        let existed = store.delete(&id).await.map_err(|error| self.store_failed(&error))?;
        self.note(&id, false);
        self.generation.fetch_add(1, Ordering::Relaxed);
        // What is made of it is kept under hashes that nobody can list. It is given out no more, because the original
        // is asked about; and should the same image come again, it fits.
        self.forget_original(&id).await;
        Ok(existed)
    }

    /// Whether an image is there.
    pub(super) async fn exists(self: Arc<Self>, id: Key) -> Result<bool, Failure> {
        let Some(store) = &self.settings.store else {
            return Ok(false);
        };
        let found = store.head(&id).await.map_err(|error| self.store_failed(&error))?;
        self.note(&id, found.is_some());
        Ok(found.is_some())
    }

    /// What an original is, as zimg writes it: the inside of the object `info`.
    pub(super) async fn info(self: Arc<Self>, id: Key) -> Result<Bytes, Failure> {
        let key = known_key(&id);
        if self.known(&id, now()) == Some(true)
            && let Some(info) = self.infos.find(&key)
        {
            return Ok(info);
        }
        let content = self.fetch(&id).await?;
        let _place = self.uploads.acquire().await.expect("it is never closed");
        let bytes = self.whole(&id, content).await?;
        let size = bytes.len();
        let unbounded = haulier_image::Limits {
            file: u64::MAX,
            pixels: u64::MAX,
            side: u32::MAX,
            ..self.settings.limits
        };
        let read = tokio::task::spawn_blocking(move || haulier_image::Original::read(&bytes, &unbounded));
        let original = match read.await {
            Ok(Ok(original)) => original,
            Ok(Err(error)) => return Err(Failure::from(&error)),
            Err(_) => {
                return Err(Failure::ours(
                    500,
                    Reason::ImageWorkerFailed,
                    "the image could not be read",
                ));
            }
        };
        let info = format!(
            "{{\"size\":{size},\"width\":{},\"height\":{},\"quality\":{},\"format\":\"{}\"}}",
            original.width,
            original.height,
            original.quality.unwrap_or(100),
            original.format.as_str().to_ascii_uppercase(),
        );
        let info = Bytes::from(info);
        self.infos.keep(key, info.clone());
        Ok(info)
    }

    /// Whether pages are to ask for client hints.
    pub(crate) fn follows_hints(&self) -> bool {
        self.settings.client_hints
    }

    /// The preset of this name.
    pub(super) fn preset(&self, name: &str) -> Option<&Transform> {
        let mut presets = self.settings.presets.iter();
        presets.find(|(known, _)| known == name).map(|(_, transform)| transform)
    }

    fn took(&self, times: [Duration; Step::ALL.len()]) {
        let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        for (step, time) in steps.iter_mut().zip(times) {
            step.classes[WaitTimes::class_of(time)] += 1;
            step.sum += time;
        }
    }

    /// How long the steps of variants took, in the order of [`Step::ALL`].
    pub(crate) fn steps(&self) -> [Times; Step::ALL.len()] {
        *self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Images taken in since the start.
    pub(crate) fn uploaded(&self) -> u64 {
        self.uploaded.load(Ordering::Relaxed)
    }

    /// Variants that were made and kept nowhere, since the start.
    pub(crate) fn unkept(&self) -> u64 {
        self.unkept.load(Ordering::Relaxed)
    }

    /// Variants that were made behind answers, since the start.
    pub(crate) fn made_behind(&self) -> u64 {
        self.made_behind.load(Ordering::Relaxed)
    }

    /// Bytes of the images in memory.
    pub(crate) fn in_memory(&self) -> u64 {
        self.memory.as_ref().map_or(0, MemoryCache::bytes)
    }

    /// What is known of the caches behind memory.
    pub(crate) fn tiers(&self) -> Vec<TierStatus> {
        self.settings.tiers.status()
    }

    /// What the workers do, those among them that work behind answers.
    pub(crate) fn workers(&self) -> WorkersStatus {
        let quick = self.settings.workers.status();
        let patient = self.settings.patient.as_ref().map(|workers| workers.status());
        let patient = patient.unwrap_or_default();
        WorkersStatus {
            busy: quick.busy + patient.busy,
            idle: quick.idle + patient.idle,
            waiting: quick.waiting,
            made: quick.made + patient.made,
            crashed: quick.crashed + patient.crashed,
        }
    }
}

/// Room for what a memory cache holds, and for what is on its way where that is less.
fn room(memory: u64) -> Option<Room> {
    Room::new(memory.max(LEAST_ROOM))
        .inspect_err(|error| tracing::warn!(%error, memory, "images in memory take more of it than they should"))
        .ok()
}

/// An image in memory.
fn ready_of(wanted: &Wanted, bytes: Bytes) -> Arc<Ready> {
    let format = Format::of_bytes(&bytes);
    Arc::new(Ready::of_bytes(bytes, &wanted.tag, format))
}

/// What a stored original itself is kept under in caches.
#[must_use]
pub fn original_key(id: &Key) -> CacheKey {
    CacheKey::of(&[id.as_str().as_bytes(), UNTOUCHED.as_bytes()])
}

fn known_key(id: &Key) -> CacheKey {
    CacheKey::of(&[b"known", id.as_str().as_bytes()])
}

/// The format that the first bytes of a file tell.
fn format_of(file: &File) -> Option<Format> {
    let mut head = [0; HEAD];
    let read = file.read_at(&mut head, 0).ok()?;
    Format::of_bytes(&head[..read])
}
