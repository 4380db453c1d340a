//! The integrity check of originals: the id of an image is the MD5 of its bytes.
//!
//! A file is read once per process, and again if it changes; it is sent by sendfile(2) otherwise. An original from the
//! network is checked each time it is received completely.

use std::fs::File;
use std::sync::Arc;

use bytes::Bytes;
use haulier_store::cache::CacheKey;
use haulier_store::{Checked, FileState, Key, Md5Sum, SingleFlight, StoreError, StoreRuntime};

use crate::error::ServiceError;

const NOT_READ: ServiceError = ServiceError::Aborted("read");

/// Results of the checks of one store.
#[derive(Debug)]
pub(crate) struct Integrity {
    runtime: StoreRuntime,
    /// The location of the store, for messages.
    place: Arc<str>,
    whole: Arc<Checked>,
    damaged: Arc<Checked>,
    /// Checks in progress, one per file for all requests.
    reading: Arc<SingleFlight<Result<(), ServiceError>>>,
}

impl Integrity {
    pub(crate) fn new(runtime: StoreRuntime, place: String) -> Self {
        Self {
            runtime,
            place: place.into(),
            whole: Arc::default(),
            damaged: Arc::default(),
            reading: Arc::default(),
        }
    }

    /// Checks a file against its id.
    pub(crate) async fn check_file(&self, id: &Key, file: &File, state: &FileState) -> Result<(), ServiceError> {
        if let Some(known) = self.known(id, state) {
            return known;
        }
        let copy = file.try_clone().map_err(StoreError::from)?;
        let key = CacheKey::of(&[b"read", id.as_str().as_bytes()]);
        let read = self.reading.join(&self.runtime, key, || self.read(id, copy, *state));
        read.await.unwrap_or_else(|| Err(NOT_READ))?;
        match self.known(id, state) {
            Some(known) => known,
            // The check in progress was of an earlier file with this name.
            None => {
                let copy = file.try_clone().map_err(StoreError::from)?;
                self.read(id, copy, *state).await?;
                self.known(id, state).unwrap_or_else(|| Err(NOT_READ))
            }
        }
    }

    fn known(&self, id: &Key, state: &FileState) -> Option<Result<(), ServiceError>> {
        if self.whole.contains(id, state) {
            return Some(Ok(()));
        }
        self.damaged.contains(id, state).then(|| Err(ServiceError::Damaged))
    }

    /// Reads a file and notes the result. An error means that it cannot be read.
    fn read(&self, id: &Key, file: File, state: FileState) -> impl Future<Output = Result<(), ServiceError>> + use<> {
        let (id, place) = (id.clone(), Arc::clone(&self.place));
        let (whole, damaged) = (Arc::clone(&self.whole), Arc::clone(&self.damaged));
        let read = move || {
            let length = state.length();
            match Md5Sum::of_file(&file, length) {
                Ok(found) if found == id.as_str() => whole.note(&id, &state),
                Ok(found) => {
                    log_damaged(&place, &id, &found, length);
                    damaged.note(&id, &state);
                }
                Err(error) => {
                    tracing::error!(store = %place, %id, %error, "store_failed: an original cannot be read");
                    return Err(StoreError::from(error).into());
                }
            }
            Ok(())
        };
        async move {
            tokio::task::spawn_blocking(read)
                .await
                .unwrap_or_else(|_| Err(NOT_READ))
        }
    }

    /// Checks the bytes of an original against its id, and returns them.
    pub(crate) async fn check_bytes(&self, id: &Key, bytes: Bytes) -> Result<Bytes, ServiceError> {
        match self.sum(&bytes).await? {
            found if found == id.as_str() => Ok(bytes),
            found => {
                log_damaged(&self.place, id, &found, bytes.len() as u64);
                Err(ServiceError::Damaged)
            }
        }
    }

    /// The MD5 of the bytes, computed on a blocking thread.
    pub(crate) async fn sum(&self, bytes: &Bytes) -> Result<String, ServiceError> {
        let bytes = bytes.clone();
        let sum = tokio::task::spawn_blocking(move || Md5Sum::of(&bytes));
        sum.await.map_err(|_| NOT_READ)
    }

    /// A check of an original that is sent in pieces.
    pub(crate) fn stream_check(&self, id: &Key) -> StreamCheck {
        StreamCheck {
            id: id.clone(),
            place: Arc::clone(&self.place),
            sum: Md5Sum::default(),
        }
    }
}

/// The check of an original while it is sent.
#[derive(Debug)]
pub(crate) struct StreamCheck {
    id: Key,
    place: Arc<str>,
    sum: Md5Sum,
}

impl StreamCheck {
    pub(crate) fn add(&mut self, piece: &[u8]) {
        self.sum.add(piece);
    }

    /// True if the `length` bytes that were sent match the id.
    pub(crate) fn ends_whole(self, length: u64) -> bool {
        let found = self.sum.finish();
        let is_whole = found == self.id.as_str();
        if !is_whole {
            log_damaged(&self.place, &self.id, &found, length);
        }
        is_whole
    }
}

fn log_damaged(place: &str, id: &Key, found: &str, length: u64) {
    tracing::error!(
        store = place,
        expected = id.as_str(),
        found,
        length,
        "store_damaged: an original does not match its id; upload the right file, or try `haulier image verify --repair`"
    );
}
