//! An image as caches return it: bytes or a file, its tag, and data of the layer above.

use std::any::Any;
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use haulier_http::{ImageResult, ImageTimes, OpenFile};
use haulier_image::Format;
use haulier_store::cache::{CacheKey, Weigh};

/// Memory of a cached image besides its bytes: its response heads, as fields and encoded.
const ATTACHED: u64 = 1500;
/// First bytes of a file that suffice to recognise its format.
pub(crate) const HEAD: usize = 16;

/// A whole original or variant.
pub struct Image {
    content: ImageContent,
    tag: CacheKey,
    format: Option<Format>,
    attached: OnceLock<Box<dyn Any + Send + Sync>>,
}

/// The bytes of an image.
#[derive(Debug)]
pub enum ImageContent {
    Bytes(Bytes),
    /// The beginning of a file, of the image's length.
    File(Arc<OpenFile>),
}

impl Image {
    /// An image in memory.
    #[must_use]
    pub fn of_bytes(bytes: Bytes, tag: CacheKey) -> Self {
        let format = Format::of_bytes(&bytes);
        Self::new(ImageContent::Bytes(bytes), tag, format)
    }

    /// An image in the first `length` bytes of a file.
    pub(crate) fn of_file(file: File, length: u64, tag: CacheKey) -> Self {
        let mut head = [0; HEAD];
        let format = file.read_at(&mut head, 0).ok();
        let format = format.and_then(|read| Format::of_bytes(&head[..read]));
        Self::new(ImageContent::File(Arc::new(OpenFile::new(file, length))), tag, format)
    }

    fn new(content: ImageContent, tag: CacheKey, format: Option<Format>) -> Self {
        Self {
            content,
            tag,
            format,
            attached: OnceLock::new(),
        }
    }

    /// Its bytes.
    #[must_use]
    pub fn content(&self) -> &ImageContent {
        &self.content
    }

    /// The key from which its entity tag is made.
    #[must_use]
    pub fn tag(&self) -> &CacheKey {
        &self.tag
    }

    /// Its format; `None` if unknown.
    #[must_use]
    pub fn format(&self) -> Option<Format> {
        self.format
    }

    /// Data that the layer above derives from the image, such as response heads, kept as long as the image.
    ///
    /// # Panics
    /// Data of another type is attached already.
    pub fn attached<T: Send + Sync + 'static>(&self, derive: impl FnOnce(&Self) -> T) -> &T {
        let attached = self.attached.get_or_init(|| Box::new(derive(self)));
        attached.downcast_ref().expect("one layer attaches one type")
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image")
            .field("content", &self.content)
            .field("format", &self.format)
            .finish_non_exhaustive()
    }
}

/// An image that was found or rendered.
#[derive(Debug, Clone)]
pub struct FoundImage {
    pub image: Arc<Image>,
    pub source: ImageResult,
    pub times: ImageTimes,
}

/// An entry of the memory cache.
#[derive(Debug, Clone)]
pub(crate) struct SharedImage(pub(crate) Arc<Image>);

impl Weigh for SharedImage {
    fn weight(&self) -> u64 {
        let bytes = match &self.0.content {
            ImageContent::Bytes(bytes) => bytes.len() as u64,
            ImageContent::File(_) => 0,
        };
        ATTACHED + bytes
    }
}
