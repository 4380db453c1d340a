//! The running parts of image services: stores, caches, the thread they live on, and the workers.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use haulier_image::{Workers, WorkersSettings};
use haulier_image_service::{BACKGROUND_FACTOR, Settings};
use haulier_php::User;
use haulier_server::ImageSite;
use haulier_store::cache::{self, Cache, CacheError, DiskCache, Tiered};
use haulier_store::{LocalStore, Location, Store, StoreError, StoreRuntime};

use crate::account;
use crate::config::images::{self as config, CachePlace, StorePlace};
use crate::config::settings::Site;
use crate::purpose::Purpose;

/// Cache-Control of an image of a store, unless the site has a rule: it never changes, but it may be deleted.
const CACHE_CONTROL: &str = "public, max-age=7776000";
/// An example of the path of an image.
const ANY_IMAGE: &[u8] = b"/00000000000000000000000000000000";

/// An image service cannot be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImagesError {
    #[error("site `{site}`: the image store {place} cannot be opened")]
    Directory {
        site: String,
        place: String,
        source: io::Error,
    },
    #[error("site `{site}`: the image store cannot be used")]
    Store { site: String, source: StoreError },
    #[error("site `{site}`: the cache cannot be used")]
    Cache { site: String, source: CacheError },
    #[error("site `{site}`: the fallback image cannot be used")]
    Fallback { site: String, source: io::Error },
    #[error("image workers cannot be started")]
    Workers(#[source] haulier_image::worker::StartError),
    #[error("the thread of the image stores cannot be started")]
    StoreRuntime(#[source] io::Error),
}

/// The services of all sites, and their shared parts. It outlives a configuration: a service with the same settings goes
/// on, with all that its caches hold.
#[derive(Debug, Default)]
pub(crate) struct Images {
    runtime: Option<StoreRuntime>,
    services: Vec<(Asked, Arc<ImageSite>)>,
    /// Workers by their settings: sites with the same settings share them.
    workers: Vec<(WorkerPool, Arc<Workers>)>,
}

/// Longest time in the queue of an image that is rendered in the background.
const NO_HURRY: Duration = Duration::from_secs(24 * 60 * 60);

/// The settings of a pool of workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WorkerPool {
    workers: usize,
    queue: usize,
    timeout: Duration,
    low_priority: bool,
}

impl WorkerPool {
    fn settings(self) -> WorkersSettings {
        let usual = WorkersSettings::default();
        WorkersSettings {
            workers: self.workers,
            queue: self.queue,
            queue_timeout: if self.low_priority {
                NO_HURRY
            } else {
                usual.queue_timeout
            },
            deadline: self.timeout,
            low_priority: self.low_priority,
            ..usual
        }
    }
}

/// The settings of a service.
#[derive(Debug, Clone, PartialEq)]
struct Asked {
    site: String,
    images: config::Images,
}

impl Images {
    /// The service of a site, if it has one. `user` is the account that will serve.
    pub(crate) fn of_site(
        &mut self,
        site: &Site,
        purpose: Purpose,
        user: Option<&User>,
    ) -> Result<Option<Arc<ImageSite>>, ImagesError> {
        let Some(images) = &site.images else { return Ok(None) };
        let mut images = images.clone();
        images.settings.cache_control = Some(cache_control(site, purpose));
        images.settings.headers.clone_from(&site.settings.filters.headers);
        let asked = Asked {
            site: site.settings.name.clone(),
            images,
        };
        if let Some((_, running)) = self.services.iter().find(|(before, _)| *before == asked) {
            return Ok(Some(Arc::clone(running)));
        }
        let images = &asked.images;
        let runtime = self.runtime()?;
        let store = match &images.store {
            Some(place) => Some(open_store(site, place, user)?),
            None => None,
        };
        let service = Settings {
            store,
            memory: images.memory,
            tiers: Tiered::new(open_caches(site, images, user)?),
            runtime,
            workers: self.workers(images)?,
            background_workers: self.background_workers(images)?,
            background: images.background.clone(),
            limits: images.settings.limits,
            options: images.options,
        };
        let service = ImageSite::new(images.settings.clone(), service).map_err(|source| ImagesError::Fallback {
            site: asked.site.clone(),
            source,
        })?;
        self.services.push((asked, Arc::clone(&service)));
        Ok(Some(service))
    }

    /// Drops services and workers that no site uses. Those of an old configuration end with it.
    pub(crate) fn forget_unused(&mut self) {
        self.services.retain(|(_, service)| Arc::strong_count(service) > 1);
        self.workers.retain(|(_, workers)| Arc::strong_count(workers) > 1);
    }

    fn runtime(&mut self) -> Result<StoreRuntime, ImagesError> {
        match &self.runtime {
            Some(runtime) => Ok(runtime.clone()),
            None => {
                let runtime = StoreRuntime::start().map_err(ImagesError::StoreRuntime)?;
                Ok(self.runtime.insert(runtime).clone())
            }
        }
    }

    fn workers(&mut self, images: &config::Images) -> Result<Arc<Workers>, ImagesError> {
        self.workers_for(WorkerPool {
            workers: images.workers,
            queue: images.queue,
            timeout: images.timeout,
            low_priority: false,
        })
    }

    /// One more process, for images that are rendered in the background.
    fn background_workers(&mut self, images: &config::Images) -> Result<Option<Arc<Workers>>, ImagesError> {
        let is_asked_for = images
            .settings
            .formats
            .iter()
            .any(|format| images.background.contains(format));
        let pool = WorkerPool {
            workers: 1,
            // Each site sends one image at a time.
            queue: usize::MAX,
            timeout: images.timeout * BACKGROUND_FACTOR,
            low_priority: true,
        };
        is_asked_for.then(|| self.workers_for(pool)).transpose()
    }

    fn workers_for(&mut self, wanted: WorkerPool) -> Result<Arc<Workers>, ImagesError> {
        if let Some((_, workers)) = self.workers.iter().find(|(asked, _)| *asked == wanted) {
            return Ok(Arc::clone(workers));
        }
        let workers = Workers::new(wanted.settings()).map_err(ImagesError::Workers)?;
        self.workers.push((wanted, Arc::clone(&workers)));
        Ok(workers)
    }
}

fn open_store(site: &Site, place: &StorePlace, user: Option<&User>) -> Result<Arc<dyn Store>, ImagesError> {
    open_place(place, user).map_err(|error| match error {
        StoreError::Io(source) | StoreError::Full(source) => ImagesError::Directory {
            site: site.settings.name.clone(),
            place: place.location.to_string(),
            source,
        },
        source => ImagesError::Store {
            site: site.settings.name.clone(),
            source,
        },
    })
}

/// Opens a store as it is written.
///
/// # Errors
/// The directory cannot be used, or the options of the bucket do not fit.
pub(crate) fn open_place(place: &StorePlace, user: Option<&User>) -> Result<Arc<dyn Store>, StoreError> {
    match &place.location {
        Location::Directory(path) => {
            let store = LocalStore::open(path)?;
            hand_over(path, user, |user| store.give_to(user.uid, user.gid))?;
            Ok(Arc::new(store))
        }
        bucket @ Location::Bucket { .. } => haulier_store::open_bucket(bucket, &place.options),
    }
}

/// Opens the caches after memory, the nearest first.
///
/// # Errors
/// A directory cannot be used, or an address is invalid.
pub(crate) fn open_caches(
    site: &Site,
    images: &config::Images,
    user: Option<&User>,
) -> Result<Vec<Arc<dyn Cache>>, ImagesError> {
    let open = |place: &CachePlace| -> Result<Arc<dyn Cache>, CacheError> {
        match place {
            CachePlace::Disk(path, limit) => {
                let cache = DiskCache::open(path, *limit)?;
                hand_over(path, user, |user| cache.give_to(user.uid, user.gid))?;
                Ok(Arc::new(cache))
            }
            CachePlace::Memcached(servers) => cache::open_memcached(servers),
            CachePlace::Redis(url) => cache::open_redis(url),
        }
    };
    let opened = images.caches.iter().map(open);
    opened.collect::<Result<_, _>>().map_err(|source| ImagesError::Cache {
        site: site.settings.name.clone(),
        source,
    })
}

/// Gives what root has made in a directory to the account that serves. After root was left that is not possible: what
/// root has made since stays closed until the next start.
fn hand_over(path: &Path, user: Option<&User>, give: impl FnOnce(&User) -> io::Result<()>) -> io::Result<()> {
    let Some(user) = user else { return Ok(()) };
    match give(user) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied && !account::is_root() => {
            tracing::warn!(directory = %path.display(), %error, "what root has made there is closed until a restart");
            Ok(())
        }
        given => given,
    }
}

/// Cache-Control by the rules of the site. During development browsers ask again.
fn cache_control(site: &Site, purpose: Purpose) -> String {
    let rule = site
        .settings
        .files
        .cache
        .iter()
        .find(|(glob, _)| glob.matches(ANY_IMAGE));
    match (rule, purpose) {
        (Some((_, value)), _) => value.clone(),
        (None, Purpose::Development) => "no-cache".to_owned(),
        (None, Purpose::Production) => CACHE_CONTROL.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_given_away_stops_nobody_who_is_not_root() {
        let user = User {
            name: "somebody".to_owned(),
            uid: 12_345,
            gid: 12_345,
        };
        let given = |user, kind: ErrorKind| hand_over(Path::new("/x"), user, |_| Err(kind.into())).is_ok();
        assert_eq!(given(Some(&user), ErrorKind::PermissionDenied), !account::is_root());
        assert!(!given(Some(&user), ErrorKind::StorageFull));
        assert!(given(None, ErrorKind::StorageFull), "there is nobody to give it to");
    }

    #[test]
    fn nobody_is_turned_away_who_works_behind_answers() {
        let pool = |low_priority| WorkerPool {
            workers: 1,
            queue: 8,
            timeout: Duration::from_secs(5),
            low_priority,
        };
        let (quick, background) = (pool(false).settings(), pool(true).settings());
        assert_eq!((quick.queue, quick.deadline), (8, Duration::from_secs(5)));
        // Longer than all sites together may take, one image after another.
        assert!(background.queue_timeout > 1000 * background.deadline * BACKGROUND_FACTOR);
        assert!(quick.queue_timeout < 3 * quick.deadline && !quick.low_priority);
    }
}
