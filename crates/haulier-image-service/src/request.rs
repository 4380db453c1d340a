//! A request for one variant, with its cache key.

use std::sync::Arc;

use bytes::Bytes;
use haulier_http::OpenFile;
use haulier_image::Transform;
use haulier_store::Key;
use haulier_store::cache::CacheKey;

/// Part of a key in place of the transform, for an original.
const UNTOUCHED: &str = "original";

/// The original of a variant.
#[derive(Debug, Clone)]
pub enum Original {
    /// An image of the store.
    Stored(Key),
    /// A file of a document root.
    File {
        file: Arc<OpenFile>,
        /// Hash of path and state of the file.
        name: CacheKey,
    },
    /// Bytes in memory, such as the placeholder for missing images.
    Memory { content: Bytes, name: CacheKey },
}

/// A variant of an original, or the original itself.
#[derive(Debug, Clone)]
pub struct VariantRequest {
    pub original: Original,
    /// `None` asks for the original itself.
    pub transform: Option<Box<Transform>>,
    /// The client chose the transform, so the variant counts against the budget of its original.
    pub(crate) by_client: bool,
    /// Cache key of original and transform.
    pub(crate) key: CacheKey,
    tag: CacheKey,
}

impl VariantRequest {
    /// A variant of an image of the store, or the image itself.
    #[must_use]
    pub fn of_stored(id: &Key, transform: Option<Transform>) -> Self {
        Self::new(Original::Stored(id.clone()), id.as_str().as_bytes(), transform)
    }

    /// A variant of a file. `name` identifies the state of the file; `tag` is the same on every machine that has the
    /// file.
    #[must_use]
    pub fn of_file(file: Arc<OpenFile>, name: CacheKey, tag: CacheKey, transform: Transform) -> Self {
        let tag = key(tag.as_bytes(), Some(&transform));
        Self {
            tag,
            ..Self::new(Original::File { file, name }, name.as_bytes(), Some(transform))
        }
    }

    /// The same transform of another image, in memory.
    #[must_use]
    pub fn with_content(&self, content: Bytes, name: CacheKey) -> Self {
        let transform = self.transform.as_deref().cloned();
        Self {
            by_client: self.by_client,
            ..Self::new(Original::Memory { content, name }, name.as_bytes(), transform)
        }
    }

    /// Sets whether the client chose the transform.
    #[must_use]
    pub fn chosen_by_client(self, by_client: bool) -> Self {
        Self { by_client, ..self }
    }

    fn new(original: Original, name: &[u8], transform: Option<Transform>) -> Self {
        let key = key(name, transform.as_ref());
        Self {
            original,
            key,
            tag: key,
            transform: transform.map(Box::new),
            by_client: false,
        }
    }

    /// The key from which the entity tag is made. It needs no rendering, and is the same on every machine that has the
    /// original.
    #[must_use]
    pub fn tag(&self) -> &CacheKey {
        &self.tag
    }

    /// The key of the original whose variants share a budget.
    pub(crate) fn group(&self) -> CacheKey {
        match &self.original {
            Original::Stored(id) => stored_key(id),
            Original::File { name, .. } | Original::Memory { name, .. } => *name,
        }
    }
}

fn key(name: &[u8], transform: Option<&Transform>) -> CacheKey {
    let variant = transform.map(Transform::key);
    CacheKey::of(&[name, variant.as_deref().unwrap_or(UNTOUCHED).as_bytes()])
}

/// The cache key of a stored original itself.
#[must_use]
pub fn original_key(id: &Key) -> CacheKey {
    CacheKey::of(&[id.as_str().as_bytes(), UNTOUCHED.as_bytes()])
}

/// The key of cached facts about a stored image.
pub(crate) fn stored_key(id: &Key) -> CacheKey {
    CacheKey::of(&[b"known", id.as_str().as_bytes()])
}
