//! Originals are what their ids say: the id of an image is the MD5 of its bytes.
//!
//! A file is read when this process meets it for the first time, and again when it changes; then it leaves by sendfile
//! as any other. What comes over the network is compared whenever all of it comes.

use haulier_http::Reason;
use std::fs::File;
use std::sync::Arc;

use bytes::Bytes;
use haulier_store::cache::CacheKey;
use haulier_store::{Checked, FileState, Key, Md5Sum, SingleFlight, StoreError, StoreRuntime};

use super::failure::Failure;

/// What is known of the originals of one store.
#[derive(Debug)]
pub(super) struct Originals {
    runtime: StoreRuntime,
    /// Where they are, for people.
    place: Arc<str>,
    whole: Arc<Checked>,
    damaged: Arc<Checked>,
    /// Files being read, each once for all who ask for it.
    reading: Arc<SingleFlight<Result<(), Failure>>>,
}

impl Originals {
    pub(super) fn new(runtime: StoreRuntime, place: String) -> Self {
        Self {
            runtime,
            place: place.into(),
            whole: Arc::default(),
            damaged: Arc::default(),
            reading: Arc::default(),
        }
    }

    /// Refuses a file that is not what its id says.
    pub(super) async fn check_file(&self, id: &Key, file: &File, state: &FileState) -> Result<(), Failure> {
        if let Some(known) = self.known(id, state) {
            return known;
        }
        let copy = file.try_clone().map_err(StoreError::from);
        let copy = copy.map_err(|error| Failure::from(&error))?;
        let key = CacheKey::of(&[b"read", id.as_str().as_bytes()]);
        let read = self.reading.join(&self.runtime, key, || self.read(id, copy, *state));
        read.await.unwrap_or_else(|| Err(not_read()))?;
        match self.known(id, state) {
            Some(known) => known,
            // It was another file of this name that was just being read.
            None => {
                let copy = file.try_clone().map_err(StoreError::from);
                let copy = copy.map_err(|error| Failure::from(&error))?;
                self.read(id, copy, *state).await?;
                self.known(id, state).unwrap_or_else(|| Err(not_read()))
            }
        }
    }

    fn known(&self, id: &Key, state: &FileState) -> Option<Result<(), Failure>> {
        if self.whole.contains(id, state) {
            return Some(Ok(()));
        }
        self.damaged.contains(id, state).then(|| Err(Failure::damaged()))
    }

    /// Reads a file and notes what it is. An error is that it cannot be read.
    fn read(&self, id: &Key, file: File, state: FileState) -> impl Future<Output = Result<(), Failure>> + use<> {
        let (id, place) = (id.clone(), Arc::clone(&self.place));
        let (whole, damaged) = (Arc::clone(&self.whole), Arc::clone(&self.damaged));
        let read = move || {
            let length = state.length();
            match Md5Sum::of_file(&file, length) {
                Ok(found) if found == id.as_str() => whole.note(&id, &state),
                Ok(found) => {
                    say_damaged(&place, &id, &found, length);
                    damaged.note(&id, &state);
                }
                Err(error) => {
                    tracing::error!(store = %place, %id, %error, "store_failed: an original cannot be read");
                    return Err(Failure::from(&StoreError::from(error)));
                }
            }
            Ok(())
        };
        async move {
            tokio::task::spawn_blocking(read)
                .await
                .unwrap_or_else(|_| Err(not_read()))
        }
    }

    /// The bytes of a whole original, if they are what its id says.
    pub(super) async fn check_bytes(&self, id: &Key, bytes: Bytes) -> Result<Bytes, Failure> {
        match self.sum(&bytes).await? {
            found if found == id.as_str() => Ok(bytes),
            found => {
                say_damaged(&self.place, id, &found, bytes.len() as u64);
                Err(Failure::damaged())
            }
        }
    }

    /// The MD5 of bytes, taken where it keeps nobody waiting.
    pub(super) async fn sum(&self, bytes: &Bytes) -> Result<String, Failure> {
        let bytes = bytes.clone();
        let sum = tokio::task::spawn_blocking(move || Md5Sum::of(&bytes));
        sum.await.map_err(|_| not_read())
    }

    /// Compares a whole original that passes by in pieces.
    pub(super) fn passing(&self, id: &Key) -> Passing {
        Passing {
            id: id.clone(),
            place: Arc::clone(&self.place),
            sum: Md5Sum::default(),
        }
    }
}

/// An original that is compared while it is sent.
#[derive(Debug)]
pub(super) struct Passing {
    id: Key,
    place: Arc<str>,
    sum: Md5Sum,
}

impl Passing {
    pub(super) fn add(&mut self, piece: &[u8]) {
        self.sum.add(piece);
    }

    /// Whether all that passed, so many bytes, is what the id says.
    pub(super) fn ends_whole(self, length: u64) -> bool {
        let found = self.sum.finish();
        let is_whole = found == self.id.as_str();
        if !is_whole {
            say_damaged(&self.place, &self.id, &found, length);
        }
        is_whole
    }
}

fn say_damaged(place: &str, id: &Key, found: &str, length: u64) {
    tracing::error!(
        store = place,
        expected = id.as_str(),
        found,
        length,
        "store_damaged: an original is not what its id says; uploading the right file heals it, and so may `haulier image \
         verify --repair`"
    );
}

fn not_read() -> Failure {
    Failure::ours(500, Reason::ImageWorkerFailed, "the image could not be read")
}
