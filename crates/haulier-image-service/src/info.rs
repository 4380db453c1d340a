//! The properties of an original, read from its header.

use bytes::Bytes;
use haulier_image::{Format, Limits};
use haulier_store::Key;
use haulier_store::cache::{MemoryCache, Weigh};

use crate::error::ServiceError;
use crate::request::stored_key;

/// Memory for all entries, bytes.
const MEMORY: u64 = 4 << 20;

/// The properties of an original.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageInfo {
    /// Length, bytes.
    pub size: usize,
    /// Pixels, as stored, not rotated.
    pub width: u32,
    pub height: u32,
    /// Quality of a JPEG, estimated.
    pub quality: Option<u8>,
    pub format: Format,
}

impl Weigh for ImageInfo {
    fn weight(&self) -> u64 {
        32
    }
}

/// A cache of properties.
#[derive(Debug)]
pub(crate) struct Infos(MemoryCache<ImageInfo>);

impl Infos {
    pub(crate) fn new() -> Self {
        Self(MemoryCache::new(MEMORY))
    }

    pub(crate) fn find(&self, id: &Key) -> Option<ImageInfo> {
        self.0.find(&stored_key(id))
    }

    pub(crate) fn forget(&self, id: &Key) {
        self.0.forget(&stored_key(id));
    }

    /// Reads the header of an original of any size.
    pub(crate) async fn read(&self, id: &Key, bytes: Bytes, limits: Limits) -> Result<ImageInfo, ServiceError> {
        let size = bytes.len();
        let unbounded = Limits {
            file: u64::MAX,
            pixels: u64::MAX,
            side: u32::MAX,
            ..limits
        };
        let read = tokio::task::spawn_blocking(move || haulier_image::Original::read(&bytes, &unbounded));
        let original = read.await.map_err(|_| ServiceError::Aborted("read"))??;
        let info = ImageInfo {
            size,
            width: original.width,
            height: original.height,
            quality: original.quality,
            format: original.format,
        };
        self.0.keep(stored_key(id), info);
        Ok(info)
    }
}
