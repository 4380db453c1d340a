//! Uploads: the id of a new original is its MD5.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use haulier_image::{Format, ImageError, Limits};
use haulier_store::{Key, Md5Sum, Put};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::error::ServiceError;
use crate::originals::Originals;

/// Most upload bodies in memory at a time; the others wait in their files.
const MOST: usize = 4;

/// Stores new originals.
#[derive(Debug)]
pub(crate) struct Uploads {
    originals: Arc<Originals>,
    limits: Limits,
    bodies: Semaphore,
    stored: AtomicU64,
}

/// An uploaded image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    pub id: Key,
    /// Bytes.
    pub size: u64,
    pub format: Format,
    /// Width and height, pixels, upright; `None` if its header cannot be read.
    pub sides: Option<(u32, u32)>,
    /// It was not stored before.
    pub is_new: bool,
}

impl Uploads {
    pub(crate) fn new(originals: Arc<Originals>, limits: Limits) -> Self {
        Self {
            originals,
            limits,
            bodies: Semaphore::new(MOST),
            stored: AtomicU64::new(0),
        }
    }

    /// The right to hold the body of one upload in memory.
    pub(crate) async fn permit(&self) -> SemaphorePermit<'_> {
        self.bodies.acquire().await.expect("it is never closed")
    }

    /// Stores an image. With `is_strict`, an image beyond the limits is refused now, otherwise when it is requested.
    pub(crate) async fn store(&self, content: Bytes, is_strict: bool) -> Result<Stored, ServiceError> {
        let format = Format::of_bytes(&content).ok_or(ImageError::Unknown)?;
        let (limits, measured) = (self.limits, content.clone());
        let read = tokio::task::spawn_blocking(move || {
            let header = haulier_image::Original::read(&measured, &limits);
            (header, Md5Sum::of(&measured))
        });
        let (header, id) = read.await.map_err(|_| ServiceError::Aborted("read"))?;
        let sides = match header {
            Ok(original) => Some(original.upright()),
            Err(error) if is_strict => return Err(error.into()),
            Err(_) => None,
        };
        let id: Key = id.parse().expect("hexadecimal digits are a key");
        let size = content.len() as u64;
        let is_new = self.originals.put(&id, content).await? == Put::Created;
        self.stored.fetch_add(1, Ordering::Relaxed);
        Ok(Stored {
            id,
            size,
            format,
            sides,
            is_new,
        })
    }

    /// Images stored since the start.
    pub(crate) fn count(&self) -> u64 {
        self.stored.load(Ordering::Relaxed)
    }
}
