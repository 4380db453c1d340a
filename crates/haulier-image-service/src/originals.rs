//! The originals in the store. Reads are checked against the id, and every answer updates the presence of the image.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use haulier_image::{Limits, OriginalSource};
use haulier_store::{FileState, Key, ObjectContent, ObjectPart, Put, Store, StoreError, StoreRuntime};

use crate::cache::ImageCache;
use crate::clock::now;
use crate::error::ServiceError;
use crate::info::{ImageInfo, Infos};
use crate::integrity::{Integrity, StreamCheck};
use crate::presence::Presence;
use crate::request::{Original, original_key};

/// The originals of one site.
#[derive(Debug)]
pub(crate) struct Originals {
    /// `None` if the site has images in its document root only.
    store: Option<Arc<dyn Store>>,
    pub(crate) presence: Presence,
    integrity: Integrity,
    infos: Infos,
    /// Caches copies of originals.
    cache: Arc<ImageCache>,
}

impl Originals {
    pub(crate) fn new(store: Option<Arc<dyn Store>>, runtime: StoreRuntime, cache: Arc<ImageCache>) -> Self {
        let place = store.as_ref().map(|store| store.place()).unwrap_or_default();
        Self {
            integrity: Integrity::new(runtime, place),
            presence: Presence::new(),
            infos: Infos::new(),
            cache,
            store,
        }
    }

    fn store(&self) -> Result<&dyn Store, ServiceError> {
        self.store.as_deref().ok_or(ServiceError::Missing)
    }

    /// Reads an original, unchecked.
    pub(crate) async fn fetch(&self, id: &Key) -> Result<ObjectContent, ServiceError> {
        let found = self.store()?.get(id).await.map_err(|error| self.failed(error))?;
        self.presence.note(id, found.is_some());
        found.ok_or(ServiceError::Missing)
    }

    /// The checked bytes of an original for a worker.
    pub(crate) async fn source(&self, original: &Original) -> Result<OriginalSource, ServiceError> {
        match original {
            Original::Memory { content, .. } => Ok(OriginalSource::Bytes(content.clone())),
            Original::File { file, .. } => {
                let file = file.file().try_clone().map_err(StoreError::Io)?;
                Ok(OriginalSource::File(file.into()))
            }
            Original::Stored(id) => match self.fetch(id).await? {
                ObjectContent::File(file, state) => {
                    self.check_file(id, &file, &state).await?;
                    Ok(OriginalSource::File(file.into()))
                }
                content => Ok(OriginalSource::Bytes(self.whole(id, content).await?)),
            },
        }
    }

    /// Reads a part of an original, unchecked, because only a whole original can be checked.
    pub(crate) async fn fetch_part(&self, id: &Key, range: Range<u64>) -> Result<ObjectPart, ServiceError> {
        let found = self.store()?.get_part(id, range).await;
        let found = found.map_err(|error| self.failed(error))?;
        self.presence.note(id, found.is_some());
        found.ok_or(ServiceError::Missing)
    }

    /// The checked bytes of an original.
    pub(crate) async fn whole(&self, id: &Key, content: ObjectContent) -> Result<Bytes, ServiceError> {
        let read = content.into_buffer(|length| self.cache.buffer(length)).await;
        let bytes = read.map_err(|error| self.failed(error))?;
        self.integrity.check_bytes(id, bytes).await
    }

    /// Checks a file against its id.
    pub(crate) async fn check_file(&self, id: &Key, file: &File, state: &FileState) -> Result<(), ServiceError> {
        self.integrity.check_file(id, file, state).await
    }

    /// A check of an original that is sent in pieces.
    pub(crate) fn stream_check(&self, id: &Key) -> StreamCheck {
        self.integrity.stream_check(id)
    }

    /// True if a cached image may be sent: its original was not deleted. If the store fails, cached images are still
    /// sent.
    pub(crate) async fn allows(&self, original: &Original) -> bool {
        let (Original::Stored(id), Some(store)) = (original, &self.store) else {
            return true;
        };
        if let Some(known) = self.presence.find(id, now()) {
            return known.exists;
        }
        match store.head(id).await {
            Ok(found) => {
                self.presence.note(id, found.is_some());
                found.is_some()
            }
            Err(error) => {
                tracing::warn!(%error, store = store.place(), "store_failed: a cached image is sent nevertheless");
                true
            }
        }
    }

    /// Asks the store whether an image exists.
    pub(crate) async fn exists(&self, id: &Key) -> Result<bool, ServiceError> {
        let Some(store) = &self.store else { return Ok(false) };
        let found = store.head(id).await.map_err(|error| self.failed(error))?;
        self.presence.note(id, found.is_some());
        Ok(found.is_some())
    }

    /// Stores an image, replacing a damaged original of the same id. Returns `Created` if the image is new.
    pub(crate) async fn put(&self, id: &Key, content: Bytes) -> Result<Put, ServiceError> {
        let put = self.store()?.put(id, content.clone()).await;
        let put = match put.map_err(|error| self.failed(error))? {
            Put::Created => Put::Created,
            Put::Exists => self.compare(id, content).await?,
        };
        self.presence.note(id, true);
        Ok(put)
    }

    /// Compares an upload with the stored original of the same id, and replaces that if it is damaged.
    ///
    /// Two files with the same MD5 can be made on purpose: the client that uploads the second one must not get the
    /// address of the first.
    async fn compare(&self, id: &Key, content: Bytes) -> Result<Put, ServiceError> {
        let found = match self.fetch(id).await?.into_bytes().await {
            Ok(stored) if stored == content => return Ok(Put::Exists),
            Ok(stored) => self.integrity.sum(&stored).await?,
            // The file was truncated, or the disk fails to read it.
            Err(StoreError::Io(error)) => error.to_string(),
            Err(error) => return Err(self.failed(error)),
        };
        if found == id.as_str() {
            return Err(ServiceError::Conflict);
        }
        let store = self.store()?;
        let replaced = store.replace(id, content).await;
        replaced.map_err(|error| self.failed(error))?;
        tracing::warn!(store = store.place(), %id, found, "a damaged original was replaced by an upload of the right one");
        self.forget(id).await;
        Ok(Put::Created)
    }

    /// The properties of an original, if they are cached and the original exists.
    pub(crate) fn known_info(&self, id: &Key) -> Option<ImageInfo> {
        let known = self.presence.find(id, now())?;
        self.infos.find(id).filter(|_| known.exists)
    }

    /// Reads the properties of an original.
    pub(crate) async fn read_info(
        &self,
        id: &Key,
        content: ObjectContent,
        limits: Limits,
    ) -> Result<ImageInfo, ServiceError> {
        let bytes = self.whole(id, content).await?;
        self.infos.read(id, bytes, limits).await
    }

    /// Deletes an original; `false` if there was none.
    pub(crate) async fn delete(&self, id: &Key) -> Result<bool, ServiceError> {
        let Some(store) = &self.store else { return Ok(false) };
        let existed = store.delete(id).await.map_err(|error| self.failed(error))?;
        self.presence.note_deleted(id);
        self.forget(id).await;
        Ok(existed)
    }

    /// Removes the cached copies of an original. Its variants remain, because their keys are hashes that cannot be
    /// listed. They are not sent while the original is missing, and are valid again if it is stored again.
    async fn forget(&self, id: &Key) {
        self.cache.forget(original_key(id)).await;
        self.infos.forget(id);
    }

    /// Logs a failure of the store.
    pub(crate) fn failed(&self, error: StoreError) -> ServiceError {
        let place = self.store.as_ref().map(|store| store.place());
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        tracing::error!(%error, cause, store = place, "store_failed");
        error.into()
    }
}
