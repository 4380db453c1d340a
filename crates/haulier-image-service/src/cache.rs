//! Images in memory and in the caches after it.

use std::sync::Arc;

use bytes::Bytes;
use haulier_http::ImageResult;
use haulier_store::cache::{Buffer, CacheKey, Cached, MemoryCache, Room, Tier, TierStatus, Tiered};

use crate::image::{Image, SharedImage};
use crate::request::VariantRequest;

/// Longest file of a cache that is copied into memory, bytes; a longer one is sent by sendfile(2).
const MOST_COPIED: u64 = 256 * 1024;
/// Least room for images being sent, if the memory cache is small or off, bytes.
const LEAST_ROOM: u64 = 16 << 20;

/// The caches of one site.
#[derive(Debug)]
pub(crate) struct ImageCache {
    memory: Option<MemoryCache<SharedImage>>,
    /// The memory for the bytes of images, cached or being sent.
    room: Option<Room>,
    /// The caches after memory, the nearest first.
    tiers: Tiered,
}

impl ImageCache {
    pub(crate) fn new(memory: u64, tiers: Tiered) -> Self {
        Self {
            memory: (memory > 0).then(|| MemoryCache::new(memory)),
            room: room(memory),
            tiers,
        }
    }

    /// True if there is any cache.
    pub(crate) fn is_enabled(&self) -> bool {
        self.memory.is_some() || !self.tiers.status().is_empty()
    }

    /// The image from the memory cache.
    pub(crate) fn in_memory(&self, key: &CacheKey) -> Option<Arc<Image>> {
        self.memory.as_ref()?.find(key).map(|SharedImage(image)| image)
    }

    /// The image from the nearest cache that has it.
    pub(crate) async fn get(&self, request: &VariantRequest) -> Option<(Arc<Image>, ImageResult)> {
        if let Some(image) = self.in_memory(&request.key) {
            return Some((image, ImageResult::Memory));
        }
        let hit = self.tiers.get(request.key).await?;
        let result = match hit.tier {
            Tier::Memory => ImageResult::Memory,
            Tier::Disk => ImageResult::Disk,
            Tier::Memcached => ImageResult::Memcached,
            Tier::Redis => ImageResult::Redis,
        };
        let image = match hit.value {
            Cached::File(file, length) if length > MOST_COPIED => {
                Arc::new(Image::of_file(file, length, *request.tag()))
            }
            value => {
                let room = self.room.clone();
                let read = tokio::task::spawn_blocking(move || match room {
                    Some(room) => value.into_room(&room),
                    None => value.into_bytes(),
                });
                let bytes = read.await.ok()?.ok()?;
                self.keep_in_memory(request, bytes)
            }
        };
        Some((image, result))
    }

    /// Makes an image of the bytes and keeps it in the memory cache.
    pub(crate) fn keep_in_memory(&self, request: &VariantRequest, bytes: Bytes) -> Arc<Image> {
        let image = Arc::new(Image::of_bytes(bytes, *request.tag()));
        if let Some(memory) = &self.memory {
            memory.keep(request.key, SharedImage(Arc::clone(&image)));
        }
        image
    }

    /// Puts the bytes of an image into the caches after memory.
    pub(crate) fn put_farther(&self, key: CacheKey, bytes: Bytes) -> impl Future<Output = ()> + Send + use<> {
        let tiers = self.tiers.clone();
        async move { tiers.put(key, &bytes).await }
    }

    /// Removes an image from all caches.
    pub(crate) async fn forget(&self, key: CacheKey) {
        if let Some(memory) = &self.memory {
            memory.forget(&key);
        }
        self.tiers.delete(key).await;
    }

    /// A buffer for the bytes of an image.
    pub(crate) fn buffer(&self, length: usize) -> Buffer {
        match &self.room {
            Some(room) => room.buffer(length),
            None => Buffer::Allocated(vec![0; length]),
        }
    }

    /// Bytes of the images in memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.memory.as_ref().map_or(0, MemoryCache::bytes)
    }

    /// Status of the caches after memory.
    pub(crate) fn tiers(&self) -> Vec<TierStatus> {
        self.tiers.status()
    }
}

/// Room for the images of the memory cache and those being sent.
fn room(memory: u64) -> Option<Room> {
    Room::new(memory.max(LEAST_ROOM))
        .inspect_err(|error| tracing::warn!(%error, memory, "no range of addresses for cached images: the allocator holds them, and takes more memory"))
        .ok()
}
