//! Stores for objects that must not be lost, and caches for copies that may be lost. This crate knows no HTTP and no
//! images.
//!
//! A [`Store`] is a directory of this machine, or an object store (S3, GCS, Azure). A [`cache`] may drop a value at any
//! time, and every failure is a miss. [`suite`] is the contract test of all stores and caches, run against the real
//! servers. README.md lists the parts.
//!
//! Connections to stores and caches belong to one thread with one event loop, [`StoreRuntime`], so all serving threads
//! share the connection pools of the libraries, and none of them ends a pool.

pub mod cache;
pub mod sealed;
pub mod suite;

mod budget;
mod checked;
mod digest;
mod folder;
mod local;
mod location;
mod memo;
#[cfg(feature = "objects")]
mod object;
mod runtime;
mod single_flight;
mod store;

pub use budget::GroupBudget;
pub use checked::{Checked, FileState};
pub use digest::Md5Sum;
pub use local::LocalStore;
pub use location::{BadLocation, Location, ObjectOptions, Service};
pub use memo::Memo;
#[cfg(feature = "objects")]
pub use object::ObjectStore;
pub use runtime::StoreRuntime;
pub use single_flight::SingleFlight;
pub use store::{BoxFuture, Key, NotAKey, ObjectContent, ObjectPart, Put, Store, StoreError};

use std::sync::Arc;

/// Prepares access to a bucket; no request is sent yet.
///
/// # Errors
/// An option is unknown or contradicts another one, or this build has no object stores.
///
/// # Panics
/// `location` is a directory.
#[cfg(feature = "objects")]
pub fn open_bucket(location: &Location, options: &ObjectOptions) -> Result<Arc<dyn Store>, StoreError> {
    Ok(Arc::new(ObjectStore::new(location, options)?))
}

/// Fails, because this build has no object stores.
///
/// # Errors
/// Always.
#[cfg(not(feature = "objects"))]
pub fn open_bucket(_: &Location, _: &ObjectOptions) -> Result<Arc<dyn Store>, StoreError> {
    Err(StoreError::NotBuilt)
}
